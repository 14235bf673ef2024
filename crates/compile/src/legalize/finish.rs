//! The last part of legalization: steps in their final order, storages resolved to regions and buffers.

use std::collections::HashMap;

use frit_ir::dim::Dim;
use frit_ir::graph::{Graph, Source, ValueId};
use frit_ir::schedule::{KernelStep, Operand, Port, Region, Schedule, Step, Weight, WeightSource};
use frit_ir::symbols::Symbols;
use frit_ir::target::Target;

use super::build::Built;
use super::emit::{Access, Home, Proto, Storage};
use super::{ArenaValue, Legalized, PlacementReport, views};
use crate::CompileError;
use crate::order::{Item, order};

/// Bytes of `what` at the upper bounds of the symbols.
pub(crate) fn upper_bytes(
    symbols: &Symbols,
    bytes: &Dim,
    what: impl FnOnce() -> String,
) -> Result<u64, CompileError> {
    let v = symbols.upper(bytes);
    // The dimension type saturates, so the very end stands for everything beyond it.
    if v < isize::MAX as i64 {
        return Ok(v.max(0) as u64);
    }
    Err(CompileError::TooLarge { what: what(), bytes: bytes.to_string() })
}

/// The bytes of scratch that a step needs: as many as its hungriest candidate.
pub(crate) fn scratch_bytes(
    symbols: &Symbols,
    name: &str,
    candidates: &[frit_ir::schedule::Candidate],
) -> Result<u64, CompileError> {
    let mut most = 0;
    for c in candidates {
        most = most.max(upper_bytes(symbols, &c.scratch, || format!("the scratch of `{name}`"))?);
    }
    Ok(most)
}

struct Regions<'g> {
    graph: &'g Graph,
    storages: Vec<Storage>,
    /// Number in the arena of each storage that is there.
    arena: Vec<Option<u32>>,
    weights: Vec<Weight>,
    weight_of: HashMap<(ValueId, Option<&'static str>), u32>,
}

pub(super) fn finish(graph: &Graph, target: &Target, built: Built) -> Result<Legalized, CompileError> {
    let symbols = &graph.symbols;
    let (ids, arena) = arena_values(symbols, &built)?;
    let items = items(symbols, &built, &ids)?;
    let bytes: Vec<u64> = arena.iter().map(|a| a.bytes).collect();
    let sequence = order(&items, &bytes);
    let mut regions = Regions {
        graph,
        storages: built.storages,
        arena: ids,
        weights: Vec::new(),
        weight_of: HashMap::new(),
    };
    let mut old: Vec<Option<Proto>> = built.steps.into_iter().map(Some).collect();
    let (mut steps, mut aliases) = (Vec::with_capacity(old.len()), Vec::with_capacity(old.len()));
    for i in sequence {
        let Some(p) = old[i as usize].take() else { continue };
        aliases.push(p.aliases);
        steps.push(Step::Kernel(KernelStep {
            name: p.name.to_string(),
            candidates: p.candidates,
            operands: p.operands.into_iter().map(|a| a.map(|a| regions.operand(a))).collect(),
            inputs: p.inputs,
            exprs: p.exprs,
            scratch: 0,
            flops: p.cost.flops,
            bytes: p.cost.bytes,
        }));
    }
    let port = |name: &str, v: ValueId| Port { name: name.into(), ty: graph.ty(v).clone() };
    let named = |v: ValueId| port(&graph.value(v).name, v);
    let schedule = Schedule {
        name: graph.name.clone(),
        target: target.name.clone(),
        symbols: symbols.clone(),
        guards: graph.guards.clone(),
        weights: regions.weights,
        states: graph.sourced(|s| matches!(s, Source::State)).map(named).collect(),
        inputs: graph.sourced(|s| matches!(s, Source::Input)).map(named).collect(),
        outputs: graph.outputs().iter().map(|(n, v)| port(n, *v)).collect(),
        steps,
        memory: Default::default(),
    };
    Ok(Legalized { schedule, arena, aliases, report: PlacementReport { nodes: built.placements } })
}

/// Numbers the storages in the arena in the order of their first writers.
fn arena_values(
    symbols: &Symbols,
    built: &Built,
) -> Result<(Vec<Option<u32>>, Vec<ArenaValue>), CompileError> {
    let mut ids = vec![None; built.storages.len()];
    let mut arena = Vec::new();
    for l in built.steps.iter().flat_map(Proto::writes) {
        let s = &built.storages[l.storage as usize];
        let id = &mut ids[l.storage as usize];
        if s.home == Home::Arena && id.is_none() {
            *id = Some(arena.len() as u32);
            let bytes = upper_bytes(symbols, &s.ty.bytes(), || format!("value `{}` {}", s.name, s.ty))?;
            arena.push(ArenaValue { name: s.name.to_string(), ty: s.ty.clone(), bytes });
        }
    }
    Ok((ids, arena))
}

fn items(symbols: &Symbols, built: &Built, ids: &[Option<u32>]) -> Result<Vec<Item>, CompileError> {
    let item = |(p, before): (&Proto, &Vec<u32>)| {
        let mut values: Vec<u32> =
            p.reads().chain(p.writes()).filter_map(|l| ids[l.storage as usize]).collect();
        values.sort_unstable();
        values.dedup();
        let scratch = scratch_bytes(symbols, &p.name, &p.candidates)?;
        Ok(Item { values, before: before.clone(), scratch })
    };
    built.steps.iter().zip(&built.before).map(item).collect()
}

impl Regions<'_> {
    fn operand(&mut self, a: Access) -> Operand {
        let storage = &self.storages[a.loc.storage as usize];
        let (region, buffer) = match storage.home {
            Home::Weight(v) => (Region::Weights, self.weight(v, a.packing)),
            Home::State(i) => (Region::State, i),
            Home::Input(i) => (Region::Input, i),
            Home::Output(i) => (Region::Output, i),
            // Every storage in the arena that a step touches was numbered at its writer.
            Home::Arena => (Region::Arena, self.arena[a.loc.storage as usize].unwrap_or(u32::MAX)),
        };
        Operand {
            region,
            buffer,
            offset: views::byte_offset(a.loc.dtype, &a.loc.view.offset),
            dtype: a.loc.dtype,
            dims: a.loc.view.dims.to_vec(),
            strides: a.loc.view.strides.to_vec(),
        }
    }

    fn weight(&mut self, v: ValueId, packing: Option<&'static str>) -> u32 {
        let value = self.graph.value(v);
        let weights = &mut self.weights;
        *self.weight_of.entry((v, packing)).or_insert_with(|| {
            let source = match &value.source {
                Source::Const(t) => WeightSource::Const(t.clone()),
                _ => WeightSource::Param(value.name.to_string()),
            };
            weights.push(Weight { source, ty: value.ty.clone(), packing });
            weights.len() as u32 - 1
        })
    }
}
