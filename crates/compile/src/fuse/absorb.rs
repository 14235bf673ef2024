//! Expressions that move into the linears whose results they read.
//!
//! Epilogue:
//! ```text
//! %h = linear(%x, %w) {exprs=[e]}
//! %y = expr(%h, %r) {expr=f}             only reader of %h, same shape
//! ⇒
//! %y = linear(%x, %w, %r) {exprs=[f∘e]}
//! ```
//! Gated unit, where both linears read the same operand:
//! ```text
//! %g = linear(%x, %w1)    %u = linear(%x, %w2)
//! %y = expr(%g, %u) {silu(g)·u}
//! ⇒
//! %y = linear(%x, %w1, %w2) {weights=2, arity=[2], exprs=[silu(g)·u]}
//! ```

use frit_ir::expr::Expr;
use frit_ir::graph::ValueId;

use super::linear::attrs;
use super::{Arg, Context, Match, NewNode};
use crate::exprs::{inline, merge_equal_inputs, order_inputs, simplify};
use crate::work::{At, Work};

/// The most weights of one group.
const MAX_GROUP: usize = 4;

/// The most operands of a linear.
const MAX_OPERANDS: usize = 48;

pub(super) fn gated(w: &Work, _: &Context, at: At) -> Option<Match> {
    let all = feeding(w, at);
    let first = *all.first()?;
    let same = |n: &At| {
        let (a, b) = (w.node(first), w.node(*n));
        let activations = |n: &frit_ir::graph::Node| n.attrs.str("activations").ok();
        a.inputs[0] == b.inputs[0]
            && activations(a) == activations(b)
            && w.ty(a.inputs[1]).dtype.is_block() == w.ty(b.inputs[1]).dtype.is_block()
    };
    let group: Vec<At> = all.into_iter().filter(same).collect();
    let weights: usize = group.iter().filter_map(|n| Some(Single::of(w, *n)?.weights.len())).sum();
    if group.len() < 2 || weights > MAX_GROUP { None } else { absorb(w, at, &group) }
}

pub(super) fn epilogue(w: &Work, _: &Context, at: At) -> Option<Match> {
    // Of several linears the last takes the expression, and the others' results as extras.
    absorb(w, at, &[*feeding(w, at).last()?])
}

/// The linears of one group and one result that only the expression `at` reads, of its shape.
fn feeding(w: &Work, at: At) -> Vec<At> {
    let node = w.node(at);
    let mut out = Vec::new();
    for v in node.operands() {
        if let Some(n) = w.made_by(v, "linear")
            && w.only_user(v) == Some(at)
            && w.ty(v).shape == w.ty(node.outputs[0]).shape
            && Single::of(w, n).is_some()
            && !out.contains(&n)
            // Extras would be read later than they are now.
            && !w.node(n).operands().any(|v| w.is_stale(v))
        {
            out.push(n);
        }
    }
    out.sort_by_key(|n| w.place(*n));
    out
}

/// A linear of one group with one result.
struct Single<'a> {
    weights: &'a [ValueId],
    extras: &'a [ValueId],
    expr: Expr,
}

impl<'a> Single<'a> {
    fn of(w: &'a Work, n: At) -> Option<Single<'a>> {
        let node = w.node(n);
        let exprs = node.attrs.exprs("exprs").ok()?;
        let [expr] = exprs.as_slice() else { return None };
        let weights = usize::try_from(node.attrs.int("weights").ok()?).ok()?;
        (expr.outputs.len() == 1).then(|| Single {
            weights: &node.inputs[1..1 + weights],
            extras: &node.inputs[1 + weights..],
            expr: Expr::clone(expr),
        })
    }
}

/// One linear for the expression `at` and the linears `parts`, which all read the same operand.
fn absorb(w: &Work, at: At, parts: &[At]) -> Option<Match> {
    let node = w.node(at);
    let mut expr = Expr::clone(&*node.attrs.expr("expr").ok()?);
    let (mut weights, mut operands) = (Vec::new(), node.inputs.to_vec());
    // For each operand of the growing expression: whether it is a product with a weight, and with which.
    let mut product: Vec<Option<usize>> = vec![None; operands.len()];
    for n in parts {
        let single = Single::of(w, *n)?;
        let result = w.node(*n).outputs[0];
        let feeds: Vec<(usize, usize)> = (0..operands.len())
            .filter(|i| product[*i].is_none() && operands[*i] == result)
            .map(|i| (i, 0))
            .collect();
        expr = inline(&expr, &feeds, &single.expr, &[]);
        let fed = |i: usize| feeds.iter().any(|(f, _)| *f == i);
        let left: Vec<usize> = (0..operands.len()).filter(|i| !fed(*i)).collect();
        let mut next: Vec<ValueId> = left.iter().map(|i| operands[*i]).collect();
        let mut places: Vec<Option<usize>> = left.iter().map(|i| product[*i]).collect();
        for v in single.weights {
            next.push(*v);
            places.push(Some(weights.len()));
            weights.push(*v);
        }
        next.extend(single.extras);
        places.resize(next.len(), None);
        (operands, product) = (next, places);
    }
    let mut order: Vec<usize> = (0..operands.len()).collect();
    order.sort_by_key(|i| (product[*i].is_none(), product[*i], *i));
    let expr = order_inputs(&expr, &order);
    let operands: Vec<ValueId> = order.iter().map(|i| operands[*i]).collect();
    let (expr, extras) = merge_extras(&expr, weights.len(), &operands);
    let first = w.node(parts[0]);
    let activations = first.attrs.str("activations").unwrap_or_else(|_| "f32".into());
    let arity = weights.len() as i64;
    let inputs: Vec<Arg> =
        [first.inputs[0]].into_iter().chain(weights).chain(extras).map(Arg::Value).collect();
    if inputs.len() > MAX_OPERANDS {
        return None;
    }
    let attrs = attrs(arity as usize, &[arity], vec![simplify(&expr)], &activations);
    Some(Match {
        claims: parts.iter().copied().chain([at]).collect(),
        place: at,
        nodes: vec![NewNode { op: "linear", attrs, inputs }],
        replaces: node.outputs.iter().enumerate().map(|(i, v)| (*v, 0, i)).collect(),
    })
}

/// The expression over `products` products and the extras behind them, every extra given once.
fn merge_extras(e: &Expr, products: usize, operands: &[ValueId]) -> (Expr, Vec<ValueId>) {
    // Products are different values even where their weights are equal: number them apart from all values.
    let apart = (0..products).map(|i| ValueId(u32::MAX - 1 - i as u32));
    let all: Vec<ValueId> = apart.chain(operands[products..].iter().copied()).collect();
    let (e, kept) = merge_equal_inputs(e, &all);
    (e, kept[products..].to_vec())
}
