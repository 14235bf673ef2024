//! Rotary position embedding from its parts, in the half-split form.
//!
//! ```text
//! %f = expr(%pos, %inv)                   pos·inv_freq, [B, T, D/2] (with any extents of 1)
//! %a = concat(%f, %f)                     on the last axis: [B, T, D]
//! %lo = slice(%x) …0..D/2    %hi = slice(%x) …D/2..D
//! %r = concat(−%hi, %lo)
//! %y = %x·cos(%a) + %r·sin(%a)            %x: [B, T, H, D], or [B, H, T, D]
//! ⇒
//! %y = rotary(%x, positions, inv_freq) {dims=D, style="half", factor=1}
//! ```
//!
//! For [B, H, T, D] the op stands between two transposes, which are views. Cosine and sine may carry a common constant
//! factor. Only angles that are computed from integer positions in the graph are recognized; tables given as inputs are
//! not.

use frit_ir::graph::ValueId;
use frit_ir::{Attrs, DType, Dim, ScalarOp};

use super::tree::{Tree, tree};
use super::{Arg, Context, Match, NewNode};
use crate::work::{At, Work};

/// The parts of a match.
struct Parts {
    x: ValueId,
    positions: ValueId,
    frequencies: ValueId,
    factor: f64,
}

pub(super) fn find(w: &Work, c: &Context, at: At) -> Option<Match> {
    let node = w.node(at);
    let y = node.outputs[0];
    let ty = w.ty(y);
    if node.outputs.len() != 1 || ty.rank() != 4 || !c.target.has_op("rotary") {
        return None;
    }
    let parts = parts(w, y)?;
    let dims = ty.shape[3].as_const()?;
    let angle = w.ty(parts.positions).elements();
    let (batch, time) = (&ty.shape[0], [&ty.shape[1], &ty.shape[2]]);
    // Whether positions run along dimension 1, and whether each row has its own.
    let (heads_last, rows) = [(true, time[0]), (false, time[1])].into_iter().find_map(|(first, t)| {
        let whole = angle == batch.clone() * t.clone();
        let matches = whole || angle == *t;
        (matches && along(w, &parts, first))
            .then(|| (first, if whole { batch.clone() } else { Dim::from(1i64) }))
    })?;
    let t = time[usize::from(!heads_last)].clone();
    let reshape = |v: ValueId, shape: Vec<Dim>| NewNode {
        op: "reshape",
        attrs: Attrs::new().with("shape", shape),
        inputs: vec![Arg::Value(v)],
    };
    let swap = |a: Arg| NewNode {
        op: "transpose",
        attrs: Attrs::new().with("perm", vec![0i64, 2, 1, 3]),
        inputs: vec![a],
    };
    let mut nodes =
        vec![reshape(parts.positions, vec![rows, t]), reshape(parts.frequencies, vec![Dim::from(dims / 2)])];
    let mut x = Arg::Value(parts.x);
    if !heads_last {
        nodes.push(swap(x));
        x = Arg::New(2, 0);
    }
    let attrs = Attrs::new().with("dims", dims).with("style", "half").with("factor", parts.factor);
    nodes.push(NewNode { op: "rotary", attrs, inputs: vec![x, Arg::New(0, 0), Arg::New(1, 0)] });
    if !heads_last {
        nodes.push(swap(Arg::New(nodes.len() - 1, 0)));
    }
    let replaces = vec![(y, nodes.len() - 1, 0)];
    Some(Match { claims: vec![at], place: at, nodes, replaces })
}

/// x·cos + rotated(x)·sin.
fn parts(w: &Work, y: ValueId) -> Option<Parts> {
    let (n, _) = w.producer(y)?;
    let same = |v: &ValueId| w.ty(*v) == w.ty(y);
    let mut candidates: Vec<ValueId> = w.node(n).operands().filter(same).collect();
    // The products may be expressions of their own.
    let inner: Vec<ValueId> = (candidates.iter().filter_map(|v| w.made_by(*v, "expr")))
        .flat_map(|n| w.node(n).operands())
        .filter(same)
        .collect();
    candidates.extend(inner);
    candidates.iter().find_map(|x| {
        let t = tree(w, y, &[*x]);
        let (a, b) = t.binary(ScalarOp::Add)?;
        [(a, b), (b, a)].into_iter().find_map(|(straight, turned)| {
            let cos = straight.either(ScalarOp::Mul).find(|(l, _)| l.leaf() == Some(*x)).map(|(_, c)| c)?;
            let (r, sin) =
                turned.either(ScalarOp::Mul).find(|(r, _)| r.leaf().is_some_and(|r| is_turned(w, r, *x)))?;
            r.leaf()?;
            let (of_cos, f) = table(w, cos, ScalarOp::Cos)?;
            let (of_sin, g) = table(w, sin, ScalarOp::Sin)?;
            let (positions, frequencies) = angle(w, of_cos).filter(|_| of_cos == of_sin && f == g)?;
            Some(Parts { x: *x, positions, frequencies, factor: f })
        })
    })
}

/// Whether `r` is −x's upper half followed by its lower half.
fn is_turned(w: &Work, r: ValueId, x: ValueId) -> bool {
    let Some(n) = w.made_by(r, "concat") else { return false };
    let node = w.node(n);
    let [hi, lo] = node.inputs.as_slice() else { return false };
    let axis = node.attrs.int("axis").unwrap_or(0);
    let rank = w.ty(x).rank();
    let Some(d) = w.ty(x).shape.last().and_then(Dim::as_const) else { return false };
    let half = |v: ValueId, start: i64| {
        w.made_by(v, "slice").is_some_and(|s| {
            let s = w.node(s);
            let starts = s.attrs.dims("starts").unwrap_or_default();
            let whole = starts.iter().take(rank - 1).all(|d| d.is(0));
            s.inputs[0] == x
                && whole
                && starts.last().is_some_and(|d| d.is(start))
                && w.ty(v).shape[rank - 1].is(d / 2)
                && s.attrs.ints("steps").is_ok_and(|s| s.iter().all(|s| *s == 1))
        })
    };
    let negated = tree(w, *hi, &[]).unary(ScalarOp::Neg).and_then(Tree::leaf);
    (axis == -1 || axis == rank as i64 - 1)
        && d % 2 == 0
        && half(*lo, 0)
        && negated.is_some_and(|v| half(v, d / 2))
}

/// The angles under a cosine or sine, seen through views that add extents of 1, and the constant factor on it.
fn table(w: &Work, t: &Tree, op: ScalarOp) -> Option<(ValueId, f64)> {
    if let Some(v) = t.unary(op).and_then(Tree::leaf) {
        return Some((base(w, v), 1.0));
    }
    if let Some(v) = t.leaf() {
        let inner = tree(w, base(w, v), &[]);
        return if inner == *t { None } else { table(w, &inner, op) };
    }
    t.either(ScalarOp::Mul).find_map(|(x, c)| {
        let (v, f) = table(w, x, op)?;
        Some((v, f * c.constant()?))
    })
}

/// The value under views that add extents of 1 or repeat.
fn base(w: &Work, v: ValueId) -> ValueId {
    let squeezed = |v: ValueId| w.ty(v).shape.iter().filter(|d| !d.is(1)).cloned().collect::<Vec<Dim>>();
    let mut v = v;
    while let Some((n, _)) = w.producer(v) {
        let node = w.node(n);
        match &*node.op {
            "reshape" if squeezed(v) == squeezed(node.inputs[0]) => v = node.inputs[0],
            _ => break,
        }
    }
    v
}

/// (positions, inverse frequencies) of angles `concat(pos·inv, pos·inv)`.
fn angle(w: &Work, v: ValueId) -> Option<(ValueId, ValueId)> {
    let n = w.made_by(v, "concat")?;
    let node = w.node(n);
    let [a, b] = node.inputs.as_slice() else { return None };
    let rank = w.ty(v).rank() as i64;
    let axis = node.attrs.int("axis").ok()?;
    if a != b || !(axis == -1 || axis == rank - 1) {
        return None;
    }
    let product = base(w, *a);
    let half = w.ty(*a).shape.last()?.clone();
    let positions = |t: &Tree| {
        let v = t.leaf().map(|v| base(w, v))?;
        // Integers, as f32.
        let Tree::Rounded(DType::F32, under) = tree(w, v, &[]) else { return None };
        let under = under.leaf().map(|v| base(w, v))?;
        (w.ty(under).dtype == DType::I32).then_some(under)
    };
    let frequencies = |t: &Tree| {
        let v = t.leaf()?;
        (w.ty(v).dtype == DType::F32 && w.ty(v).elements() == half && w.ty(v).shape.last() == Some(&half))
            .then_some(v)
    };
    let t = tree(w, product, &[]);
    t.either(ScalarOp::Mul).find_map(|(p, f)| Some((positions(p)?, frequencies(f)?)))
}

/// Whether cosines vary along dimension 1 (`first`) or 2 of the result: the other of the two is 1 in what multiplies x.
fn along(w: &Work, p: &Parts, first: bool) -> bool {
    let users = w.users(p.x).iter().filter(|n| &*w.node(**n).op == "expr");
    let other = if first { 2 } else { 1 };
    users.flat_map(|n| w.node(*n).operands()).filter(|v| *v != p.x && w.ty(*v).rank() >= 3).any(|v| {
        let ty = w.ty(v);
        let rank = ty.rank();
        let dim = |i: usize| (i + rank).checked_sub(4).map(|i| &ty.shape[i]);
        dim(other).is_none_or(|d| d.is(1)) && dim(3 - other).is_some_and(|d| !d.is(1))
    })
}
