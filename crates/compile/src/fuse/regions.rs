//! Expressions that become one.
//!
//! Chain: an expression whose only reader is an expression of the same shape moves into it.
//! ```text
//! %a = expr(%x) {silu}
//! %y = expr(%a, %u) {mul}
//! ⇒
//! %y = expr(%x, %u) {silu(x)·u}
//! ```
//! Region: expressions of one shape that share an operand, or of which one reads the other, become one with several
//! results.
//! ```text
//! %a = expr(%x) {exp}    %b = expr(%x, %a) {add}     %a has other readers
//! ⇒
//! %a, %b = expr(%x) {exp(x), x + exp(x)}
//! ```

use std::sync::Arc;

use frit_ir::Attrs;
use frit_ir::expr::Expr;
use frit_ir::graph::ValueId;

use super::{Arg, Context, Match, NewNode};
use crate::exprs::{inline, merge_equal_inputs, simplify};
use crate::work::{At, Work};

/// Sizes beyond which expressions stay apart: the registers of a kernel hold only so much.
const MAX_INPUTS: usize = 16;
const MAX_STEPS: usize = 64;
const MAX_OUTPUTS: usize = 8;

pub(super) fn chain(w: &Work, _: &Context, at: At) -> Option<Match> {
    let node = w.node(at);
    let shape = &w.ty(node.outputs[0]).shape;
    let inner = node.operands().find_map(|v| {
        let n = w.made_by(v, "expr")?;
        let outputs = &w.node(n).outputs;
        let alone = |v: &ValueId| w.only_user(*v) == Some(at) || (w.users(*v).is_empty() && !w.is_kept(*v));
        let fits = outputs.iter().all(alone) && w.ty(v).shape == *shape;
        // Its operands would be read later than they are now.
        (fits && !w.node(n).operands().any(|v| w.is_stale(v))).then_some(n)
    })?;
    combine(w, inner, at, at)
}

pub(super) fn siblings(w: &Work, _: &Context, at: At) -> Option<Match> {
    let node = w.node(at);
    let shape = &w.ty(node.outputs[0]).shape;
    let near = node.operands().chain(node.outputs.iter().copied()).filter(|v| w.ty(*v).shape == *shape);
    let mut others: Vec<At> = near.flat_map(|v| w.users(v).iter().copied()).collect();
    others.retain(|n| {
        let other = w.node(*n);
        w.place(*n) > w.place(at) && &*other.op == "expr" && w.ty(other.outputs[0]).shape == *shape
    });
    others.sort_by_key(|n| w.place(*n));
    others.dedup();
    others.into_iter().find_map(|n| {
        let other = w.node(n);
        let outside: Vec<ValueId> = other.operands().filter(|v| !node.outputs.contains(v)).collect();
        let own: Vec<ValueId> = node.operands().collect();
        let stale = own.iter().chain(&outside).any(|v| w.is_stale(*v));
        if stale || !w.independent(&outside, &[at]) || !w.independent(&own, &[n]) {
            return None;
        }
        combine(w, at, n, at)
    })
}

/// One expression for `first` and `second`, which may read results of `first`. Results of `first` that something else reads
/// stay results.
fn combine(w: &Work, first: At, second: At, place: At) -> Option<Match> {
    let (a, b) = (w.node(first), w.node(second));
    let (ea, eb) = (a.attrs.expr("expr").ok()?, b.attrs.expr("expr").ok()?);
    let mut feeds = Vec::new();
    for (i, v) in b.inputs.iter().enumerate() {
        if let Some(o) = a.outputs.iter().position(|x| x == v) {
            feeds.push((i, o));
        }
    }
    let elsewhere = |v: &ValueId| w.is_kept(*v) || w.users(*v).iter().any(|n| *n != second);
    let keep: Vec<usize> = (0..a.outputs.len()).filter(|i| elsewhere(&a.outputs[*i])).collect();
    let fed = |i: &usize| feeds.iter().any(|(f, _)| f == i);
    let free = (0..b.inputs.len()).filter(|i| !fed(i)).map(|i| b.inputs[i]);
    let operands: Vec<ValueId> = free.chain(a.inputs.iter().copied()).collect();
    let e: Expr = inline(&eb, &feeds, &ea, &keep);
    let (e, operands) = merge_equal_inputs(&e, &operands);
    let e = simplify(&e);
    if operands.len() > MAX_INPUTS || e.steps.len() > MAX_STEPS || e.outputs.len() > MAX_OUTPUTS {
        return None;
    }
    let results = b.outputs.iter().chain(keep.iter().map(|i| &a.outputs[*i]));
    let replaces = results.enumerate().map(|(i, v)| (*v, 0, i)).collect();
    let attrs = Attrs::new().with("expr", Arc::new(e));
    let inputs = operands.into_iter().map(Arg::Value).collect();
    Some(Match {
        claims: vec![first, second],
        place,
        nodes: vec![NewNode { op: "expr", attrs, inputs }],
        replaces,
    })
}
