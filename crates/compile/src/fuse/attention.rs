//! Attention from its parts.
//!
//! ```text
//! %s = matmul(%q, %kt)                    %q: [B, H, T, D], %kt: [B, H, D, S]
//! %z = expr(%s, %mask)                    s·scale, c·tanh(·/c) and + mask, each or none
//! %p = softmax(%z) {axis=-1}
//! %o = matmul(%p, %v)                     %v: [B, H, S, Dv]
//! ⇒
//! %o = transpose(attention(transpose(%q), transpose(%kt), %v, mask))
//! ```
//!
//! Keys and values that are repeated for groups of heads (reshape, broadcast, reshape) are read unrepeated. The
//! transposes are views, and mostly cancel with those around.

use frit_ir::graph::{Type, ValueId};
use frit_ir::{Attrs, Dim, ScalarOp};

use super::tree::{Tree, tree};
use super::{Arg, Context, Match, NewNode};
use crate::work::{At, Work};

/// What happens to the scores before the softmax.
#[derive(Default)]
struct Scores {
    scale: Option<f64>,
    softcap: Option<f64>,
    bias: Option<ValueId>,
}

pub(super) fn find(w: &Work, c: &Context, at: At) -> Option<Match> {
    let softmax = w.node(at);
    let (z, p) = (softmax.inputs[0], softmax.outputs[0]);
    let axis = softmax.attrs.int("axis").ok()?;
    let last = axis == -1 || axis == w.ty(z).rank() as i64 - 1;
    if !c.target.has_op("attention")
        || !last
        || softmax.attrs.bool("log").unwrap_or(false)
        || w.ty(z).rank() != 4
    {
        return None;
    }
    let second = w.only_user(p).filter(|n| &*w.node(*n).op == "matmul" && w.node(*n).inputs[0] == p)?;
    let (first, scores) = scores(w, z)?;
    let (q, kt) = (w.node(first).inputs[0], w.node(first).inputs[1]);
    let (v, o) = (w.node(second).inputs[1], w.node(second).outputs[0]);
    let (tq, tk, tv) = (w.ty(q), w.ty(kt), w.ty(v));
    let batched = tq.rank() == 4 && tk.rank() == 4 && tv.rank() == 4;
    if !batched || tq.shape[..2] != tk.shape[..2] || tq.shape[..2] != tv.shape[..2] {
        return None;
    }
    let perm = |p: [i64; 4]| Attrs::new().with("perm", p.to_vec());
    let (mut nodes, mut args) = (Vec::new(), Vec::new());
    let transpose = |v: ValueId, p| NewNode { op: "transpose", attrs: perm(p), inputs: vec![Arg::Value(v)] };
    nodes.push(transpose(q, [0, 2, 1, 3]));
    args.push(Arg::New(0, 0));
    let unrepeated_k = w.made_by(kt, "transpose").and_then(|n| {
        let swaps = w.node(n).attrs.ints("perm").is_ok_and(|p| p == [0, 1, 3, 2]);
        unrepeated(w, w.node(n).inputs[0]).filter(|_| swaps)
    });
    match (unrepeated_k, unrepeated(w, v)) {
        (Some(k), Some(v)) if w.ty(k).shape[1] == w.ty(v).shape[1] => {
            args.extend([Arg::Value(k), Arg::Value(v)]);
        }
        _ => {
            nodes.push(transpose(kt, [0, 1, 3, 2]));
            args.extend([Arg::New(1, 0), Arg::Value(v)]);
        }
    }
    if let Some(b) = scores.bias {
        args.resize(6, Arg::Value(ValueId::NONE));
        args.push(Arg::Value(b));
    }
    nodes.push(NewNode { op: "attention", attrs: attrs(&scores), inputs: args });
    let attention = nodes.len() - 1;
    nodes.push(NewNode { op: "transpose", attrs: perm([0, 2, 1, 3]), inputs: vec![Arg::New(attention, 0)] });
    let replaces = vec![(o, nodes.len() - 1, 0)];
    Some(Match { claims: vec![first, at, second], place: second, nodes, replaces })
}

fn attrs(s: &Scores) -> Attrs {
    Attrs::new()
        .with("scale", s.scale.unwrap_or(1.0))
        .with("causal", false)
        .with("window_left", -1i64)
        .with("window_right", -1i64)
        .with("softcap", s.softcap.unwrap_or(0.0))
        .with("ring", false)
        .with("lse", false)
}

/// The matmul behind the scores `z`, and what was done to its result.
fn scores(w: &Work, z: ValueId) -> Option<(At, Scores)> {
    let t = tree(w, z, &[]);
    let mut leaves = Vec::new();
    t.leaves(&mut leaves);
    let raw =
        leaves.into_iter().find(|v| w.made_by(*v, "matmul").is_some() && w.ty(*v).shape == w.ty(z).shape)?;
    let matmul = w.made_by(raw, "matmul")?;
    // Scores that something else reads are computed anyway.
    w.only_user(raw)?;
    let (mut s, mut t) = (Scores::default(), &t);
    if let Some((inner, bias)) = t.either(ScalarOp::Add).find(|(_, b)| is_bias(w, b, w.ty(z)))
        && holds(inner, raw)
    {
        s.bias = bias.leaf();
        t = inner;
    }
    if let Some((inner, c)) =
        t.either(ScalarOp::Mul).find_map(|(x, c)| Some((x.unary(ScalarOp::Tanh)?, c.constant()?)))
    {
        let divided = inner.binary(ScalarOp::Div).filter(|(_, d)| d.constant() == Some(c)).map(|(x, _)| x);
        let times = |x: &&Tree| x.constant().is_some_and(|k| (k * c - 1.0).abs() < 1e-6);
        let multiplied = || inner.either(ScalarOp::Mul).find(|(_, k)| times(k)).map(|(x, _)| x);
        t = divided.or_else(multiplied)?;
        s.softcap = Some(c);
    }
    while t.leaf() != Some(raw) {
        let factor = |c: f64| s.scale.unwrap_or(1.0) * c;
        if let Some((x, c)) = t.either(ScalarOp::Mul).find_map(|(x, c)| Some((x, c.constant()?))) {
            (s.scale, t) = (Some(factor(c)), x);
        } else {
            let (x, c) = t.binary(ScalarOp::Div)?;
            (s.scale, t) = (Some(factor(1.0 / c.constant()?)), x);
        }
    }
    Some((matmul, s))
}

fn holds(t: &Tree, v: ValueId) -> bool {
    let mut leaves = Vec::new();
    t.leaves(&mut leaves);
    leaves.contains(&v)
}

/// A float value that broadcasts to the scores without repeating them.
fn is_bias(w: &Work, t: &Tree, scores: &Type) -> bool {
    let Some(v) = t.leaf() else { return false };
    let ty = w.ty(v);
    let skip = scores.rank().saturating_sub(ty.rank());
    let fits = ty.shape.iter().zip(scores.shape.iter().skip(skip)).all(|(a, b)| a == b || a.is(1));
    ty.dtype.is_float() && ty.rank() <= scores.rank() && fits && w.made_by(v, "matmul").is_none()
}

/// The [B, KVH, S, D] of which `v` repeats every head the same number of times in a row.
fn unrepeated(w: &Work, v: ValueId) -> Option<ValueId> {
    let outer = w.made_by(v, "reshape")?;
    let broadcast = w.made_by(w.node(outer).inputs[0], "broadcast")?;
    let inner = w.made_by(w.node(broadcast).inputs[0], "reshape")?;
    let base = w.node(inner).inputs[0];
    let (tv, tw) = (w.ty(v), w.ty(w.node(broadcast).outputs[0]));
    let (ti, tb) = (w.ty(w.node(inner).outputs[0]), w.ty(base));
    let one = Dim::from(1i64);
    let shapes = [tb.rank(), tv.rank(), tw.rank(), ti.rank()] == [4, 4, 5, 5];
    let fits = shapes
        && ti.shape[2] == one
        && (0..2).all(|i| ti.shape[i] == tb.shape[i] && tw.shape[i] == tb.shape[i])
        && (2..4).all(|i| {
            ti.shape[i + 1] == tb.shape[i] && tw.shape[i + 1] == tb.shape[i] && tv.shape[i] == tb.shape[i]
        })
        && tv.shape[0] == tb.shape[0]
        && tv.shape[1] == tb.shape[1].clone() * tw.shape[2].clone();
    fits.then_some(base)
}
