//! RMS and layer norms from their parts.
//!
//! ```text
//! %m = reduce(%x·%x) {op="mean", axes=[-1], keep=true}
//! %y = %x · rsqrt(%m + eps) · %w                          (also x/√…, and without %w)
//! ⇒
//! %y = rms_norm(%x, %w) {eps=…}
//!
//! %u = reduce(%x) {op="mean", …}
//! %v = reduce((%x − %u)²) {op="mean", …}
//! %y = (%x − %u) / √(%v + eps) · %w + %b                  (also without %w, %b)
//! ⇒
//! %y = layer_norm(%x, %w, %b) {eps=…}
//! ```
//!
//! The elementwise parts may be split over expressions in any way.

use frit_ir::graph::{Type, ValueId};
use frit_ir::{Attrs, Dim, ScalarOp};

use super::tree::{Tree, tree};
use super::{Arg, Context, Match, NewNode};
use crate::work::{At, Work};

/// Expressions between the mean and the result.
const MAX_DEPTH: usize = 6;

/// The norm around a mean: what it is of, the mean that is subtracted, and the mean of squares.
struct Around {
    x: ValueId,
    center: Option<ValueId>,
    mean: ValueId,
}

/// What a formula turned out to be.
struct Found {
    eps: f64,
    plus_one: bool,
    weight: Option<ValueId>,
    bias: Option<ValueId>,
}

pub(super) fn find(w: &Work, c: &Context, at: At) -> Option<Match> {
    let around = mean_of_squares(w, at)?;
    let op = if around.center.is_some() { "layer_norm" } else { "rms_norm" };
    if !c.target.has_op(op) || w.registry.get(op).is_none() {
        return None;
    }
    let mut best: Option<(At, ValueId, Found)> = None;
    let mut v = around.mean;
    let mut claims = vec![at];
    for _ in 0..MAX_DEPTH {
        let Some(n) = w.only_user(v).filter(|n| &*w.node(*n).op == "expr") else { break };
        let [out] = w.node(n).outputs.as_slice() else { break };
        v = *out;
        claims.push(n);
        if w.ty(v) == w.ty(around.x)
            && let Some(found) = recognize(w, &around, v)
        {
            best = Some((n, v, found));
        }
    }
    let (last, y, found) = best?;
    build(w, &around, op, last, y, found, claims)
}

fn build(
    w: &Work,
    around: &Around,
    op: &'static str,
    last: At,
    y: ValueId,
    found: Found,
    mut claims: Vec<At>,
) -> Option<Match> {
    claims.truncate(claims.iter().position(|n| *n == last)? + 1);
    let mut nodes = Vec::new();
    let mut vector = |v: Option<ValueId>| match v {
        None => Arg::Value(ValueId::NONE),
        Some(v) if w.ty(v).rank() == 1 => Arg::Value(v),
        Some(v) => {
            let shape: Vec<Dim> = w.ty(v).shape.last().cloned().into_iter().collect();
            let attrs = Attrs::new().with("shape", shape);
            nodes.push(NewNode { op: "reshape", attrs, inputs: vec![Arg::Value(v)] });
            Arg::New(nodes.len() - 1, 0)
        }
    };
    let mut inputs = vec![Arg::Value(around.x), vector(found.weight), vector(found.bias)];
    while inputs.last() == Some(&Arg::Value(ValueId::NONE)) {
        inputs.pop();
    }
    let mut attrs = Attrs::new().with("eps", found.eps);
    if op == "rms_norm" {
        attrs.set("plus_one", found.plus_one);
    }
    nodes.push(NewNode { op, attrs, inputs });
    let replaces = vec![(y, nodes.len() - 1, 0)];
    Some(Match { claims, place: last, nodes, replaces })
}

/// Whether the node is a mean over the last axis that keeps it.
fn is_mean(w: &Work, n: At) -> bool {
    let node = w.node(n);
    let rank = w.ty(node.inputs[0]).rank() as i64;
    &*node.op == "reduce"
        && node.attrs.str("op").is_ok_and(|s| &*s == "mean")
        && node.attrs.ints("axes").is_ok_and(|a| a == [-1] || a == [rank - 1])
        && node.attrs.bool("keep").unwrap_or(false)
}

fn mean_of_squares(w: &Work, at: At) -> Option<Around> {
    if !is_mean(w, at) {
        return None;
    }
    let node = w.node(at);
    let (squares, mean) = (node.inputs[0], node.outputs[0]);
    let (n, _) = w.producer(squares)?;
    if &*w.node(n).op != "expr" {
        return None;
    }
    // The squared value itself, whatever it is computed from.
    for x in w.node(n).operands() {
        let t = tree(w, squares, &[x]);
        if t.squared().and_then(Tree::leaf) == Some(x) {
            return centered(w, x, mean).or(Some(Around { x, center: None, mean }));
        }
        if let Some(a) = w.made_by(x, "reduce").filter(|a| is_mean(w, *a)) {
            let of = w.node(a).inputs[0];
            let t = tree(w, squares, &[x, of]);
            if t.squared().is_some_and(|d| is_difference(d, of, x)) {
                return Some(Around { x: of, center: Some(x), mean });
            }
        }
    }
    None
}

/// `v` as a value minus its mean.
fn centered(w: &Work, v: ValueId, mean: ValueId) -> Option<Around> {
    let (n, _) = w.producer(v)?;
    if &*w.node(n).op != "expr" {
        return None;
    }
    w.node(n).operands().find_map(|u| {
        let a = w.made_by(u, "reduce").filter(|a| is_mean(w, *a))?;
        let x = w.node(a).inputs[0];
        is_difference(&tree(w, v, &[x, u]), x, u).then_some(Around { x, center: Some(u), mean })
    })
}

fn is_difference(t: &Tree, x: ValueId, u: ValueId) -> bool {
    t.binary(ScalarOp::Sub).is_some_and(|(a, b)| a.leaf() == Some(x) && b.leaf() == Some(u))
}

/// The formula of `v` as a norm.
fn recognize(w: &Work, a: &Around, v: ValueId) -> Option<Found> {
    let stops: Vec<ValueId> = [a.x, a.mean].into_iter().chain(a.center).collect();
    let t = tree(w, v, &stops);
    let d = w.ty(a.x).shape.last()?.clone();
    let vector = |t: &Tree| t.leaf().filter(|v| !stops.contains(v) && is_vector(w.ty(*v), &d));
    let core = |t: &Tree| -> Option<f64> {
        let (n, r) = t.over_root()?;
        let right = match a.center {
            None => n.leaf() == Some(a.x),
            Some(u) => is_difference(n, a.x, u),
        };
        let (_, eps) =
            r.either(ScalarOp::Add).find(|(m, e)| m.leaf() == Some(a.mean) && e.constant().is_some())?;
        eps.constant().filter(|_| right)
    };
    let plain = |t: &Tree| core(t).map(|eps| Found { eps, plus_one: false, weight: None, bias: None });
    let scaled = |t: &Tree| {
        plain(t).or_else(|| {
            t.either(ScalarOp::Mul).find_map(|(c, s)| {
                let eps = core(c)?;
                let one_more = || {
                    s.either(ScalarOp::Add)
                        .find(|(o, _)| **o == Tree::Const(1.0))
                        .and_then(|(_, s)| vector(s))
                };
                let (weight, plus_one) = match vector(s) {
                    Some(v) => (v, false),
                    None => (one_more().filter(|_| a.center.is_none())?, true),
                };
                Some(Found { eps, plus_one, weight: Some(weight), bias: None })
            })
        })
    };
    scaled(&t).or_else(|| {
        t.either(ScalarOp::Add).find_map(|(s, b)| {
            let bias = vector(b)?;
            scaled(s).map(|f| Found { bias: Some(bias), ..f })
        })
    })
}

/// Whether the type is one value for each element of the last axis.
fn is_vector(ty: &Type, d: &Dim) -> bool {
    let (Some(last), true) = (ty.shape.last(), ty.dtype.is_float()) else { return false };
    last == d && ty.shape.iter().rev().skip(1).all(|d| d.is(1))
}
