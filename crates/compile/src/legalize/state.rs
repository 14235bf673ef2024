//! Versions of storages: which nodes write a state in place, and an order in which every version is read before it is
//! overwritten.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use frit_ir::graph::{Graph, Source, ValueId};
use frit_ir::op::Registry;

use super::emit::{Emitter, Loc, Proto};
use crate::CompileError;

/// The values on the way from each state's first version to its last, where every one updates the version before.
pub(super) fn in_place_values(graph: &Graph, registry: &Registry) -> HashSet<ValueId> {
    let mut out = HashSet::new();
    for s in graph.states() {
        let (mut v, mut chain) = (s.last, Vec::new());
        while v != s.first {
            let Source::Node(id, result) = graph.value(v).source else { break };
            let node = &graph.nodes()[id.0 as usize];
            let updated = registry.get(&node.op).and_then(|d| d.updates.get(result as usize));
            match updated.and_then(|at| node.inputs.get(*at)) {
                Some(before) if !before.is_none() => {
                    chain.push(v);
                    v = *before;
                }
                _ => break,
            }
        }
        if v == s.first {
            out.extend(chain);
        }
    }
    out
}

/// The writer and readers of one version.
#[derive(Clone, Default)]
struct Version {
    writer: Option<u32>,
    readers: Vec<u32>,
}

/// The versions of each storage.
fn versions(emitter: &Emitter) -> Vec<Vec<Version>> {
    let mut all: Vec<Vec<Version>> =
        emitter.storages.iter().map(|s| vec![Version::default(); s.version as usize + 1]).collect();
    for (i, p) in emitter.steps.iter().enumerate() {
        let i = i as u32;
        for l in p.writes() {
            all[l.storage as usize][l.version as usize].writer = Some(i);
        }
        for l in p.reads() {
            let readers = &mut all[l.storage as usize][l.version as usize].readers;
            if readers.last() != Some(&i) {
                readers.push(i);
            }
        }
    }
    all
}

/// What a step waits for: those whose results it reads or replaces, and those that still read what it replaces.
struct Waits {
    data: Vec<u32>,
    readers: Vec<u32>,
}

fn waits(step: u32, p: &Proto, all: &[Vec<Version>]) -> Waits {
    let of = |l: &Loc, version: u32| &all[l.storage as usize][version as usize];
    let mut data: Vec<u32> = p.reads().filter_map(|l| of(l, l.version).writer).collect();
    let mut readers = Vec::new();
    for l in p.writes().filter(|l| l.version > 0) {
        let replaced = of(l, l.version - 1);
        data.extend(replaced.writer);
        readers.extend(replaced.readers.iter().copied().filter(|r| *r != step));
    }
    data.sort_unstable();
    data.dedup();
    readers.retain(|r| data.binary_search(r).is_err());
    Waits { data, readers }
}

/// Puts the steps of `emitter` into an order in which every version is read before it is replaced, as near to the given
/// order as that allows, and gives what each step must come after. Readers that would have to come both before and after
/// a write read a copy of the old version.
pub(super) fn sequence(emitter: &mut Emitter) -> Result<Vec<Vec<u32>>, CompileError> {
    loop {
        let all = versions(emitter);
        let waits: Vec<Waits> =
            emitter.steps.iter().enumerate().map(|(i, p)| waits(i as u32, p, &all)).collect();
        let (order, left) = kahn(&waits);
        let Some(step) = blocked_write(&waits, &left) else {
            return Ok(permute(emitter, &order, &waits));
        };
        copy_old_version(emitter, step, &left)?;
    }
}

/// A topological order that takes the earliest step that is ready, and which steps a cycle left over.
fn kahn(waits: &[Waits]) -> (Vec<u32>, Vec<bool>) {
    let n = waits.len();
    let mut missing: Vec<usize> = waits.iter().map(|w| w.data.len() + w.readers.len()).collect();
    let mut after: Vec<Vec<u32>> = vec![Vec::new(); n];
    for (i, w) in waits.iter().enumerate() {
        w.data.iter().chain(&w.readers).for_each(|p| after[*p as usize].push(i as u32));
    }
    let mut ready: BinaryHeap<Reverse<u32>> =
        (0..n as u32).filter(|i| missing[*i as usize] == 0).map(Reverse).collect();
    let (mut order, mut left) = (Vec::with_capacity(n), vec![true; n]);
    while let Some(Reverse(i)) = ready.pop() {
        order.push(i);
        left[i as usize] = false;
        for a in &after[i as usize] {
            missing[*a as usize] -= 1;
            if missing[*a as usize] == 0 {
                ready.push(Reverse(*a));
            }
        }
    }
    (order, left)
}

/// The first step left that waits for nothing but readers of what it replaces. If any step is left there is one: what
/// steps compute has no cycle.
fn blocked_write(waits: &[Waits], left: &[bool]) -> Option<usize> {
    (0..waits.len()).find(|i| left[*i] && waits[*i].data.iter().all(|d| !left[*d as usize]))
}

/// Inserts, before `step`, a copy of what it replaces, and lets the readers that are left read it.
fn copy_old_version(emitter: &mut Emitter, step: usize, left: &[bool]) -> Result<(), CompileError> {
    let replaced: Vec<(u32, u32)> =
        emitter.steps[step].writes().map(|l| (l.storage, l.version.saturating_sub(1))).collect();
    for (storage, version) in replaced {
        let reads = |p: &Proto| p.reads().any(|l| (l.storage, l.version) == (storage, version));
        let late: Vec<usize> =
            (0..left.len()).filter(|i| *i != step && left[*i] && reads(&emitter.steps[*i])).collect();
        if late.is_empty() {
            continue;
        }
        let ty = emitter.storages[storage as usize].ty.clone();
        let view = frit_ir::op::View::dense(&ty.shape);
        let copy = emitter.fresh_copy(&Loc { storage, version, dtype: ty.dtype, view })?;
        for i in late {
            let p = &mut emitter.steps[i];
            let inputs = p.inputs;
            for a in p.operands[..inputs].iter_mut().flatten() {
                if (a.loc.storage, a.loc.version) == (storage, version) {
                    (a.loc.storage, a.loc.version) = (copy.storage, copy.version);
                }
            }
        }
    }
    // The copies were appended; they belong right before the step that would destroy what they keep.
    let added = emitter.steps.len() - left.len();
    emitter.steps[step..].rotate_right(added);
    Ok(())
}

fn permute(emitter: &mut Emitter, order: &[u32], waits: &[Waits]) -> Vec<Vec<u32>> {
    let mut position = vec![0u32; order.len()];
    order.iter().enumerate().for_each(|(at, i)| position[*i as usize] = at as u32);
    let mut old: Vec<Option<Proto>> = std::mem::take(&mut emitter.steps).into_iter().map(Some).collect();
    emitter.steps = order.iter().filter_map(|i| old[*i as usize].take()).collect();
    let at = |w: &Waits| w.data.iter().chain(&w.readers).map(|p| position[*p as usize]).collect();
    order.iter().map(|i| at(&waits[*i as usize])).collect()
}
