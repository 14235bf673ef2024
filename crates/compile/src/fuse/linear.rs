//! A matmul with a transposed weight becomes a `linear`, which reads the weight as it is stored.
//!
//! ```text
//! %d = dequantize(%w)                    %w: Q4_K[N, K], or no dequantize and %w: f32[N, K]
//! %t = transpose(%d) {perm=[1, 0]}
//! %y = matmul(%x, %t)
//! ⇒
//! %y = linear(%x, %w) {weights=1, arity=[1], exprs=[identity]}
//! ```
//!
//! A weight that a cast widens (`f16` to `f32`) is read unwidened too. Weights are parameters or constants.

use std::sync::Arc;

use frit_ir::expr::Expr;
use frit_ir::graph::{Source, ValueId};
use frit_ir::target::Count;
use frit_ir::{Attr, Attrs, DType};

use super::{Arg, Context, Match, NewNode};
use crate::Activations;
use crate::exprs::identity;
use crate::work::{At, Work};

pub(super) fn find(w: &Work, c: &Context, at: At) -> Option<Match> {
    let node = w.node(at);
    let (x, y) = (node.inputs[0], node.outputs[0]);
    let transpose = w.made_by(node.inputs[1], "transpose")?;
    let t = w.node(transpose);
    if !t.attrs.ints("perm").is_ok_and(|p| p == [1, 0]) {
        return None;
    }
    let (weight, mut claims) = stored(w, t.inputs[0], w.ty(x).dtype)?;
    let wt = w.ty(weight);
    if !takes_weight(c, wt.dtype) {
        return None;
    }
    let activations = if wt.dtype.is_block() { c.activations } else { Activations::F32 };
    let expr = identity(accumulator(w.ty(x).dtype), w.ty(y).dtype);
    let attrs = attrs(1, &[1], vec![expr], activations.name());
    claims.push(at);
    Some(Match {
        claims,
        place: at,
        nodes: vec![NewNode { op: "linear", attrs, inputs: vec![Arg::Value(x), Arg::Value(weight)] }],
        replaces: vec![(y, 0, 0)],
    })
}

/// The type in which a linear over `x` hands its sums to the expressions.
pub(super) fn accumulator(x: DType) -> DType {
    if x == DType::F64 { DType::F64 } else { DType::F32 }
}

/// The attributes of a `linear`.
pub(super) fn attrs(weights: usize, arity: &[i64], exprs: Vec<Expr>, activations: &str) -> Attrs {
    let exprs: Vec<Attr> = exprs.into_iter().map(|e| Attr::Expr(Arc::new(e))).collect();
    Attrs::new()
        .with("weights", weights as i64)
        .with("arity", arity.to_vec())
        .with("exprs", exprs)
        .with("activations", activations)
}

/// The weight as it is stored, under a dequantize or a widening cast, and the nodes between.
fn stored(w: &Work, v: ValueId, x: DType) -> Option<(ValueId, Vec<At>)> {
    let is_weight = |v: ValueId| matches!(w.value(v).source, Source::Param | Source::Const(_));
    if is_weight(v) {
        return Some((v, Vec::new()));
    }
    let (n, _) = w.producer(v)?;
    let node = w.node(n);
    let under = *node.inputs.first()?;
    let widens = match &*node.op {
        "dequantize" => w.ty(under).dtype.is_block(),
        "expr" => {
            let e = node.attrs.expr("expr").ok()?;
            let from = w.ty(under).dtype;
            let bytes = |d: DType| d.info().unit_bytes;
            // Inputs of one step that hands input 0 on, stored wider than it comes.
            e.inputs.len() == 1
                && e.steps.iter().all(|s| s.op == frit_ir::ScalarOp::Cast && s.dtype == x)
                && e.outputs.len() == 1
                && from.is_float()
                && from.is_compute()
                && bytes(from) < bytes(x)
                && x != DType::F64
        }
        _ => false,
    };
    (widens && is_weight(under)).then(|| (under, vec![n]))
}

/// Whether the target has a row of `linear` that reads such a weight.
fn takes_weight(c: &Context, d: DType) -> bool {
    c.target
        .rows
        .iter()
        .filter(|r| r.op == "linear")
        .any(|r| r.inputs.iter().any(|s| matches!(s.count, Count::Param(_)) && s.dtypes.contains(&d)))
}
