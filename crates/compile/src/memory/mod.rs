//! The memory planner: transient values and scratch get offsets in one arena, at the upper bounds of the symbols, so that
//! no two that live at once overlap. It never changes a step's order or operands' extents.

mod check;
mod map;
mod pack;
#[cfg(test)]
mod random;
#[cfg(test)]
mod simulate;
#[cfg(test)]
mod tests;

use frit_ir::dim::Dim;
use frit_ir::schedule::{KernelStep, MemoryReport, Operand, Region, Schedule, Step};
use frit_ir::target::Target;

use crate::CompileError;
use crate::legalize::{Legalized, scratch_bytes};
use pack::Block;

pub use check::{Overlap, check};
pub use map::{Placed, map};

/// How many values the report names.
const LARGEST: usize = 8;

/// First and last step of each value, as the steps' operands show it; `None` for one that no step touches.
type Lives = Vec<Option<(u32, u32)>>;

/// Gives every transient value and every step's scratch its offset. The result has passed [`check`].
///
/// # Errors
/// More bytes than can be addressed.
pub fn plan(legalized: &Legalized, target: &Target) -> Result<Schedule, CompileError> {
    let mut schedule = legalized.schedule.clone();
    let lives = lives(&schedule, legalized.arena.len());
    let round = |bytes: u64| bytes.div_ceil(target.align).saturating_mul(target.align);
    // Values that share memory are one block; scratch blocks follow.
    let group = in_place(legalized, &lives);
    let mut block_of = vec![usize::MAX; legalized.arena.len()];
    let mut blocks: Vec<Block> = Vec::new();
    for (v, life) in lives.iter().enumerate() {
        let Some((first, last)) = *life else { continue };
        let root = group[v];
        if block_of[root] == usize::MAX {
            block_of[root] = blocks.len();
            blocks.push(Block { size: round(legalized.arena[root].bytes), first, last });
        }
        block_of[v] = block_of[root];
        let b = &mut blocks[block_of[root]];
        (b.first, b.last) = (b.first.min(first), b.last.max(last));
    }
    let values = blocks.len();
    let mut scratch = Vec::new();
    for (i, step) in schedule.steps.iter().enumerate() {
        let Step::Kernel(k) = step else { continue };
        let bytes = scratch_bytes(&schedule.symbols, &k.name, &k.candidates)?;
        if bytes > 0 {
            scratch.push(i);
            blocks.push(Block { size: round(bytes), first: i as u32, last: i as u32 });
        }
    }
    let too_large = || CompileError::TooLarge {
        what: "the arena".into(),
        bytes: blocks.iter().fold(0u64, |a, b| a.saturating_add(b.size)).to_string(),
    };
    let packed = pack::pack(&blocks, schedule.steps.len()).ok_or_else(too_large)?;
    if packed.arena > isize::MAX as u64 {
        return Err(too_large());
    }
    for step in &mut schedule.steps {
        let Step::Kernel(k) = step else { continue };
        for o in k.operands.iter_mut().flatten().filter(|o| o.region == Region::Arena) {
            place(o, packed.offsets[block_of[o.buffer as usize]]);
        }
    }
    for (n, i) in scratch.into_iter().enumerate() {
        if let Step::Kernel(k) = &mut schedule.steps[i] {
            k.scratch = packed.offsets[values + n];
        }
    }
    schedule.memory = report(legalized, &lives, packed.arena, packed.live);
    check(&schedule, legalized, target)?;
    Ok(schedule)
}

fn place(o: &mut Operand, base: u64) {
    o.buffer = 0;
    o.offset = o.offset.clone() + Dim::from(i64::try_from(base).unwrap_or(i64::MAX));
}

fn lives(schedule: &Schedule, values: usize) -> Lives {
    let mut lives: Lives = vec![None; values];
    for (i, step) in schedule.steps.iter().enumerate() {
        let Step::Kernel(k) = step else { continue };
        for o in k.operands.iter().flatten().filter(|o| o.region == Region::Arena) {
            let life = &mut lives[o.buffer as usize];
            *life = Some((life.map_or(i as u32, |l| l.0), i as u32));
        }
    }
    lives
}

/// For each value, the value whose memory it shares (itself, if none). A result takes over the memory of an operand that
/// dies at its step where the row allows it and both have the same extents, strides and element size.
fn in_place(legalized: &Legalized, lives: &Lives) -> Vec<usize> {
    let mut root: Vec<usize> = (0..lives.len()).collect();
    for (i, step) in legalized.schedule.steps.iter().enumerate() {
        let Step::Kernel(k) = step else { continue };
        for (a, b) in &legalized.aliases[i] {
            let (Some(Some(from)), Some(Some(to))) = (k.operands.get(*a), k.operands.get(*b)) else {
                continue;
            };
            if from.region != Region::Arena || to.region != Region::Arena {
                continue;
            }
            let (x, y) = (from.buffer as usize, to.buffer as usize);
            let meets =
                lives[x].is_some_and(|l| l.1 == i as u32) && lives[y].is_some_and(|l| l.0 == i as u32);
            let taken = k.operands[k.inputs..].iter().flatten().any(|o| {
                o.region == Region::Arena && o.buffer != to.buffer && root[o.buffer as usize] == root[x]
            });
            let fresh = root[y] == y && x != y;
            let sized = legalized.arena[x].bytes == legalized.arena[y].bytes;
            if meets && fresh && sized && !taken && reads_allow(k, &legalized.aliases[i], from, *b, to) {
                root[y] = root[x];
            }
        }
    }
    root
}

/// Whether every operand of the step that reads the value of `from` may share memory with result `b`, element by element.
fn reads_allow(k: &KernelStep, pairs: &[(usize, usize)], from: &Operand, b: usize, to: &Operand) -> bool {
    k.operands[..k.inputs].iter().enumerate().all(|(i, o)| {
        let Some(o) = o else { return true };
        let same_value = o.region == Region::Arena && o.buffer == from.buffer;
        !same_value || (pairs.contains(&(i, b)) && same_place(o, to))
    })
}

/// Whether two operands step through memory alike.
fn same_place(a: &Operand, b: &Operand) -> bool {
    let (x, y) = (a.dtype.info(), b.dtype.info());
    (x.unit_elements, x.unit_bytes) == (y.unit_elements, y.unit_bytes)
        && a.offset == b.offset
        && a.dims == b.dims
        && a.strides == b.strides
}

fn report(legalized: &Legalized, lives: &Lives, arena: u64, live: u64) -> MemoryReport {
    let mut largest: Vec<(String, u64, u32, u32)> = legalized
        .arena
        .iter()
        .zip(lives)
        .filter_map(|(v, l)| l.map(|(first, last)| (v.name.clone(), v.bytes, first, last)))
        .collect();
    largest.sort_by_key(|l| std::cmp::Reverse(l.1));
    largest.truncate(LARGEST);
    MemoryReport { arena, live, largest }
}
