//! Expansion of fused ops that the target has no rows for, until every node has rows or is a view.

use std::borrow::Cow;

use frit_ir::graph::{Graph, Node, Source, Type, ValueId};
use frit_ir::op::{Lowered, NodeCtx, OpDef, OpError, Registry};

use super::rows::{Call, RowMatch, Rows};
use crate::CompileError;

/// Expansions may give fused ops again, but not for ever.
const MAX_ROUNDS: usize = 16;

/// A graph whose every node the target can run, with what matching found.
pub(super) struct Expanded<'g> {
    pub graph: Cow<'g, Graph>,
    /// For each node: its lowering and rows; `None` for a view.
    pub nodes: Vec<Option<Matched>>,
    /// For each node: the value and op that it was expanded from.
    pub origins: Vec<Option<String>>,
}

/// What is known of a node before its operands are laid out.
pub(super) struct Matched {
    pub lowered: Lowered,
    pub rows: Vec<RowMatch>,
}

/// The name of a node for messages: that of its first result.
pub(super) fn node_name(graph: &Graph, node: &Node) -> String {
    node.outputs.first().map_or_else(|| node.op.to_string(), |v| graph.value(*v).name.to_string())
}

/// The op of a node.
pub(super) fn definition<'r>(
    registry: &'r Registry,
    graph: &Graph,
    node: &Node,
) -> Result<&'r OpDef, CompileError> {
    registry
        .get(&node.op)
        .ok_or_else(|| CompileError::UnknownOp { node: node_name(graph, node), op: node.op.to_string() })
}

/// The types of a node's operands and results.
pub(super) fn types<'g>(graph: &'g Graph, node: &Node) -> (Vec<Option<&'g Type>>, Vec<Type>) {
    let inputs = node.inputs.iter().map(|v| (!v.is_none()).then(|| graph.ty(*v))).collect();
    (inputs, node.outputs.iter().map(|v| graph.ty(*v).clone()).collect())
}

/// An op's refusal as a compile error.
pub(super) fn op_error(name: String, op: &str) -> impl FnOnce(OpError) -> CompileError {
    let op = op.to_string();
    move |source| CompileError::Op { node: name, op, source }
}

/// Matches every node of `graph`, expanding where no row fits.
pub(super) fn expand<'g>(
    graph: &'g Graph,
    registry: &Registry,
    rows: &Rows,
) -> Result<Expanded<'g>, CompileError> {
    let mut graph = Cow::Borrowed(graph);
    let mut origins = vec![None; graph.nodes().len()];
    for _ in 0..MAX_ROUNDS {
        let mut nodes = Vec::with_capacity(graph.nodes().len());
        let mut lacking = vec![false; graph.nodes().len()];
        for (i, node) in graph.nodes().iter().enumerate() {
            let m = match_node(&graph, registry, rows, node)?;
            lacking[i] = matches!(m, Fit::Expand);
            nodes.push(if let Fit::Rows(m) = m { Some(m) } else { None });
        }
        if !lacking.contains(&true) {
            return Ok(Expanded { graph, nodes, origins });
        }
        let (new, new_origins) = rebuild(&graph, registry, &lacking, &origins)?;
        graph = Cow::Owned(new);
        origins = new_origins;
    }
    let left = graph
        .nodes()
        .iter()
        .find(|n| registry.get(&n.op).is_some_and(|d| d.expand.is_some()) && !rows.target.has_op(&n.op));
    let op = left.map_or_else(String::new, |n| n.op.to_string());
    Err(CompileError::Expansion { op, rounds: MAX_ROUNDS })
}

enum Fit {
    View,
    Rows(Matched),
    Expand,
}

fn match_node(graph: &Graph, registry: &Registry, rows: &Rows, node: &Node) -> Result<Fit, CompileError> {
    let def = definition(registry, graph, node)?;
    if def.view.is_some() {
        return Ok(Fit::View);
    }
    let (inputs, outputs) = types(graph, node);
    let ctx = NodeCtx { attrs: &node.attrs, inputs: &inputs, outputs: &outputs };
    let lowered = (def.lower)(&ctx).map_err(op_error(node_name(graph, node), &node.op))?;
    let params: Vec<bool> =
        node.inputs.iter().map(|v| !v.is_none() && matches!(graph.value(*v).source, Source::Param)).collect();
    let call = Call { op: &node.op, inputs: &inputs, params: &params, outputs: &outputs, lowered: &lowered };
    let found = rows.matches(&call)?;
    if rows.choose(&found, &|_| true).is_some() {
        return Ok(Fit::Rows(Matched { lowered, rows: found }));
    }
    if def.expand.is_some() {
        return Ok(Fit::Expand);
    }
    Err(rows.no_row(&node_name(graph, node), &call, "fits"))
}

fn complete(results: Vec<ValueId>, want: usize) -> Result<Vec<ValueId>, OpError> {
    if results.len() == want && !results.contains(&ValueId::NONE) {
        return Ok(results);
    }
    Err(OpError::Value(format!("the expansion gives {} results, the op {want}", results.len())))
}

/// The graph with the marked nodes expanded.
fn rebuild(
    old: &Graph,
    registry: &Registry,
    marked: &[bool],
    origins: &[Option<String>],
) -> Result<(Graph, Vec<Option<String>>), CompileError> {
    let mut new = Graph::new(&old.name);
    new.symbols = old.symbols.clone();
    new.guards = old.guards.clone();
    let mut map = vec![ValueId::NONE; old.values().len()];
    for (i, v) in old.values().iter().enumerate() {
        map[i] = match &v.source {
            Source::Input => new.input(&v.name, v.ty.clone())?,
            Source::Param => new.param(&v.name, v.ty.clone())?,
            Source::State => new.state(&v.name, v.ty.clone())?,
            Source::Const(t) => new.constant(&v.name, t.clone())?,
            Source::Node(..) => continue,
        };
    }
    let mut new_origins = Vec::new();
    for (i, node) in old.nodes().iter().enumerate() {
        let inputs: Vec<ValueId> =
            node.inputs.iter().map(|v| if v.is_none() { *v } else { map[v.0 as usize] }).collect();
        let def = definition(registry, old, node)?;
        let mut origin = origins[i].clone();
        let results: Vec<ValueId> = match def.expand {
            Some(f) if marked[i] => {
                let name = node_name(old, node);
                origin.get_or_insert_with(|| format!("{name} = {}", node.op));
                let results = f(&mut new, registry, node, &inputs);
                results.and_then(|r| complete(r, node.outputs.len())).map_err(op_error(name, &node.op))?
            }
            _ => {
                let names: Vec<&str> = node.outputs.iter().map(|v| old.value(*v).name.as_ref()).collect();
                new.push(registry, &node.op, node.attrs.clone(), &inputs, &names)?.to_vec()
            }
        };
        for (from, to) in node.outputs.iter().zip(results) {
            map[from.0 as usize] = to;
        }
        new_origins.resize(new.nodes().len(), origin);
    }
    for (name, v) in old.outputs() {
        new.output(name, map[v.0 as usize])?;
    }
    for s in old.states() {
        new.update(map[s.first.0 as usize], map[s.last.0 as usize])?;
    }
    Ok((new, new_origins))
}
