//! A residual add and the norm that reads it.
//!
//! ```text
//! %s = expr(%x, %r) {add}
//! %n = rms_norm(%s, %w) {eps=…}           or layer_norm
//! ⇒
//! %s, %n = residual_norm(%x, %r, %w, _) {kind="rms", eps=…, plus_one=…}
//! ```
//!
//! The sum may have other readers.

use frit_ir::graph::ValueId;
use frit_ir::{Attrs, ScalarOp};

use super::{Arg, Context, Match, NewNode};
use crate::work::{At, Work};

pub(super) fn find(w: &Work, c: &Context, at: At) -> Option<Match> {
    if !c.target.has_op("residual_norm") {
        return None;
    }
    let (x, r) = plain_add(w, at)?;
    let sum = w.node(at).outputs[0];
    let is_norm = |n: &At| {
        let node = w.node(*n);
        matches!(&*node.op, "rms_norm" | "layer_norm") && node.inputs[0] == sum
    };
    let norm = w.users(sum).iter().copied().filter(is_norm).min_by_key(|n| w.place(*n))?;
    let node = w.node(norm);
    let optional = |i: usize| node.inputs.get(i).copied().unwrap_or(ValueId::NONE);
    let (weight, bias) = (optional(1), optional(2));
    let given: Vec<ValueId> = [weight, bias].into_iter().filter(|v| !v.is_none()).collect();
    if !w.independent(&given, &[at]) {
        return None;
    }
    let rms = &*node.op == "rms_norm";
    let attrs = Attrs::new()
        .with("kind", if rms { "rms" } else { "layer" })
        .with("eps", node.attrs.float("eps").ok()?)
        .with("plus_one", node.attrs.bool("plus_one").unwrap_or(false));
    let inputs = [x, r, weight, bias].map(Arg::Value).to_vec();
    Some(Match {
        claims: vec![at, norm],
        place: at,
        nodes: vec![NewNode { op: "residual_norm", attrs, inputs }],
        replaces: vec![(sum, 0, 0), (node.outputs[0], 0, 1)],
    })
}

/// The operands of an expression that adds two values of one type.
fn plain_add(w: &Work, at: At) -> Option<(ValueId, ValueId)> {
    let node = w.node(at);
    let e = node.attrs.expr("expr").ok()?;
    let [s] = e.steps.as_slice() else { return None };
    let [out] = e.outputs.as_slice() else { return None };
    let [x, r] = node.inputs.as_slice() else { return None };
    let add = s.op == ScalarOp::Add && s.args.iter().sum::<u16>() == 1 && out.value == 2;
    let ty = w.ty(node.outputs[0]);
    (add && w.ty(*x) == ty && w.ty(*r) == ty).then_some((*x, *r))
}
