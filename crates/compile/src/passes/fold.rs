//! Constant folding by the reference implementation.

use frit_ir::Tensor;
use frit_ir::graph::GraphError;

use crate::work::{At, Work};

/// The most elements that operands or results of a folded node may have.
const MAX_ELEMENTS: usize = 1 << 16;

/// Computes a node whose operands are all constants. Broadcasts stay: as views they cost nothing, as constants they grow.
pub(super) fn fold(w: &mut Work, at: At) -> Result<bool, GraphError> {
    let node = w.node(at);
    let Some(def) = w.registry.get(&node.op) else { return Ok(false) };
    if node.inputs.is_empty()
        || def.reference.is_none()
        || !def.updates.is_empty()
        || &*node.op == "broadcast"
    {
        return Ok(false);
    }
    let small = |v: &frit_ir::ValueId| w.constant(*v).is_some_and(|t| t.len() <= MAX_ELEMENTS);
    let fits = |v: &frit_ir::ValueId| {
        w.ty(*v).elements().as_const().is_some_and(|n| (0..=MAX_ELEMENTS as i64).contains(&n))
    };
    if !node.inputs.iter().all(|v| v.is_none() || small(v)) || !node.outputs.iter().all(fits) {
        return Ok(false);
    }
    let inputs: Vec<Option<&Tensor>> = node.inputs.iter().map(|v| w.constant(*v)).collect();
    // A node that the reference refuses stays, and is reported when it runs.
    let Ok(results) = frit_ops::interpret::run_node(w.registry, def, &node.attrs, &inputs) else {
        return Ok(false);
    };
    let outputs = node.outputs.clone();
    for (old, t) in outputs.into_iter().zip(results) {
        let new = w.add_constant("folded", t);
        w.replace(old, new);
    }
    Ok(true)
}
