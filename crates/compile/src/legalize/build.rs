//! The walk over the graph: views become locations, nodes become steps, results that are outputs go straight to them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use frit_ir::graph::{Graph, Node, Source, ValueId};
use frit_ir::op::{NodeCtx, OpDef, Registry, View};

use super::Placement;
use super::emit::{Emitter, Home, Job, Loc, Proto, Storage};
use super::expand::{Expanded, Matched, definition, node_name, types};
use super::rows::Rows;
use super::{state, views};
use crate::CompileError;

/// Steps in an order that respects every version of every storage, with what each must wait for.
pub(super) struct Built {
    pub storages: Vec<Storage>,
    pub steps: Vec<Proto>,
    /// For each step, the steps that must come before it.
    pub before: Vec<Vec<u32>>,
    pub placements: Vec<Placement>,
}

struct Walk<'a, 'r, 'g> {
    emitter: Emitter<'a, 'r>,
    graph: &'g Graph,
    /// Where each value lies.
    locs: Vec<Option<Loc>>,
    /// The versions of states that are made in place.
    in_place: HashSet<ValueId>,
}

pub(super) fn build<'a>(
    expanded: &Expanded,
    registry: &Registry,
    rows: &mut Rows<'a>,
) -> Result<Built, CompileError> {
    let graph = &*expanded.graph;
    let emitter = Emitter {
        rows,
        registry,
        storages: vec![],
        steps: vec![],
        placements: vec![],
        copies: HashMap::new(),
    };
    let n = graph.values().len();
    let mut walk =
        Walk { emitter, graph, locs: vec![None; n], in_place: state::in_place_values(graph, registry) };
    walk.place_sources();
    for (i, node) in graph.nodes().iter().enumerate() {
        let def = definition(registry, graph, node)?;
        match &expanded.nodes[i] {
            None => walk.view(def, node)?,
            Some(m) => walk.node(def, node, m, &expanded.origins[i])?,
        }
    }
    walk.outputs()?;
    walk.states()?;
    let mut emitter = walk.emitter;
    let before = state::sequence(&mut emitter)?;
    Ok(Built { storages: emitter.storages, steps: emitter.steps, before, placements: emitter.placements })
}

impl Walk<'_, '_, '_> {
    fn place_sources(&mut self) {
        let (mut inputs, mut states) = (0, 0);
        for (i, v) in self.graph.values().iter().enumerate() {
            let next = |n: &mut u32| {
                *n += 1;
                *n - 1
            };
            let home = match v.source {
                Source::Input => Home::Input(next(&mut inputs)),
                Source::State => Home::State(next(&mut states)),
                Source::Param | Source::Const(_) => Home::Weight(ValueId(i as u32)),
                Source::Node(..) => continue,
            };
            let storage = self.emitter.storage(&v.name, home, v.ty.clone());
            let view = View::dense(&v.ty.shape);
            self.locs[i] = Some(Loc { storage, version: 0, dtype: v.ty.dtype, view });
        }
    }

    /// The location of a value, which an earlier node made.
    fn loc(&self, v: ValueId) -> Result<Loc, CompileError> {
        let missing = frit_ir::graph::GraphError::Value(v.0);
        self.locs.get(v.0 as usize).cloned().flatten().ok_or(CompileError::Graph(missing))
    }

    fn view(&mut self, def: &OpDef, node: &Node) -> Result<(), CompileError> {
        let (inputs, outputs) = types(self.graph, node);
        let ctx = NodeCtx { attrs: &node.attrs, inputs: &inputs, outputs: &outputs };
        let source = node.inputs.first().copied().unwrap_or(ValueId::NONE);
        let mut from = self.loc(source)?;
        let symbols = self.emitter.rows.symbols;
        let look = |l: &Loc| {
            let v = def.view.and_then(|f| f(&ctx, &l.view))?;
            views::whole_units(symbols, l.dtype, &v).then_some(v)
        };
        let mut view = look(&from);
        if view.is_none() && !views::is_dense(symbols, &from.view) {
            from = self.emitter.dense_copy(&from)?;
            view = look(&from);
        }
        let view = view.ok_or_else(|| CompileError::View {
            node: node_name(self.graph, node),
            op: node.op.to_string(),
            operand: self.graph.ty(source).to_string(),
        })?;
        if let Some(result) = node.outputs.first() {
            self.locs[result.0 as usize] = Some(Loc { view, ..from });
        }
        Ok(())
    }

    fn node(
        &mut self,
        def: &OpDef,
        node: &Node,
        m: &Matched,
        origin: &Option<String>,
    ) -> Result<(), CompileError> {
        let mut copies = Vec::new();
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for v in &node.inputs {
            inputs.push(if v.is_none() { None } else { Some(self.loc(*v)?) });
        }
        let mut updated = Vec::with_capacity(def.updates.len());
        for (at, next) in def.updates.iter().zip(&node.outputs) {
            updated.push(match inputs.get(*at) {
                Some(Some(_)) => Some(self.prepare_update(node, *at, *next, &mut inputs, &mut copies)?),
                _ => None,
            });
        }
        let mut outputs = Vec::with_capacity(node.outputs.len());
        for (i, v) in node.outputs.iter().enumerate() {
            let value = self.graph.value(*v);
            let loc = match updated.get(i).copied().flatten() {
                // The storage may have been made for the same elements in another shape.
                Some(storage) => {
                    Loc { view: View::dense(&value.ty.shape), ..self.emitter.next_version(storage) }
                }
                _ => self.emitter.transient(&value.name, value.ty.clone()),
            };
            self.locs[v.0 as usize] = Some(loc.clone());
            outputs.push(loc);
        }
        let (in_types, out_types) = types(self.graph, node);
        let ctx = NodeCtx { attrs: &node.attrs, inputs: &in_types, outputs: &out_types };
        self.emitter.emit(Job {
            name: node_name(self.graph, node).into(),
            op: &node.op,
            inputs,
            outputs,
            lowered: &m.lowered,
            rows: &m.rows,
            cost: (def.cost)(&ctx),
            copies,
            origin: origin.clone(),
        })
    }

    /// Makes operand `at` a storage that the node may overwrite with `next`, and gives that storage.
    fn prepare_update(
        &mut self,
        node: &Node,
        at: usize,
        next: ValueId,
        inputs: &mut [Option<Loc>],
        copies: &mut Vec<String>,
    ) -> Result<u32, CompileError> {
        let target = node.inputs[at];
        let mut loc = match &inputs[at] {
            Some(l) => l.clone(),
            None => self.loc(target)?,
        };
        let storage = &self.emitter.storages[loc.storage as usize];
        let own = match storage.home {
            Home::State(_) => self.in_place.contains(&next),
            // Readers of the value as it is now are put before this node, or read a copy.
            Home::Arena => storage.version == loc.version,
            _ => false,
        };
        if !own || !self.emitter.is_whole(&loc) {
            copies.push(self.graph.value(target).name.to_string());
            loc = self.emitter.fresh_copy(&loc)?;
            inputs[at] = Some(loc.clone());
        }
        for (i, v) in node.inputs.iter().enumerate() {
            let shared = inputs[i].as_ref().filter(|l| i != at && l.storage == loc.storage);
            if let Some(l) = shared {
                copies.push(self.graph.value(*v).name.to_string());
                inputs[i] = Some(self.emitter.dense_copy(l)?);
            }
        }
        Ok(loc.storage)
    }

    fn outputs(&mut self) -> Result<(), CompileError> {
        for (i, (name, v)) in self.graph.outputs().iter().enumerate() {
            let loc = self.loc(*v)?;
            let s = &self.emitter.storages[loc.storage as usize];
            let newest = s.version == loc.version;
            let home = Home::Output(i as u32);
            if s.home == Home::Arena && newest && self.emitter.is_whole(&loc) {
                self.emitter.storages[loc.storage as usize].home = home;
                continue;
            }
            let name: Arc<str> = name.as_str().into();
            let storage = self.emitter.storage(&name, home, self.graph.ty(*v).clone());
            let to = self.emitter.next_version(storage);
            self.emitter.copy(&loc, to)?;
        }
        Ok(())
    }

    /// Leaves the last version of each state in its buffer.
    fn states(&mut self) -> Result<(), CompileError> {
        for s in self.graph.states() {
            let storage = self.loc(s.first)?.storage;
            let mut last = self.loc(s.last)?;
            let newest = self.emitter.storages[storage as usize].version;
            if last.storage == storage {
                if last.version == newest && self.emitter.is_whole(&last) {
                    continue;
                }
                last = self.emitter.dense_copy(&last)?;
            }
            let to = self.emitter.next_version(storage);
            self.emitter.copy(&last, to)?;
        }
        Ok(())
    }
}
