//! Linears over one operand become one step with a group for each: queries, keys and values, say. Weights stay apart, each
//! in its own format.
//!
//! ```text
//! %q = linear(%x, %wq)    %k = linear(%x, %wk, %bk)    %v = linear(%x, %wv)
//! ⇒
//! %q, %k, %v = linear(%x, %wq, %wk, %wv, %bk) {weights=3, arity=[1, 1, 1], exprs=[…, …, …]}
//! ```

use frit_ir::expr::Expr;
use frit_ir::graph::ValueId;

use super::linear::attrs;
use super::{Arg, Context, Match, NewNode};
use crate::work::{At, Work};

/// The most groups of one linear, and the most weights.
const MAX_GROUPS: usize = 8;
const MAX_WEIGHTS: usize = 16;

pub(super) fn find(w: &Work, _: &Context, at: At) -> Option<Match> {
    let x = w.node(at).inputs[0];
    let mut all: Vec<At> = w.users(x).iter().copied().filter(|n| may_join(w, at, *n)).collect();
    all.sort_by_key(|n| w.place(*n));
    if all.len() < 2 || all[0] != at {
        return None;
    }
    let mut members: Vec<At> = Vec::new();
    let (mut groups, mut weights) = (0, 0);
    for n in all {
        let (g, k) = sizes(w, n)?;
        let operands: Vec<ValueId> = w.node(n).operands().collect();
        let fits = groups + g <= MAX_GROUPS && weights + k <= MAX_WEIGHTS;
        let before: Vec<ValueId> = members.iter().flat_map(|m| w.node(*m).operands()).collect();
        if fits && w.independent(&operands, &members) && w.independent(&before, &[n]) {
            members.push(n);
            (groups, weights) = (groups + g, weights + k);
        }
    }
    (members.len() > 1).then(|| join(w, x, members)).flatten()
}

fn sizes(w: &Work, n: At) -> Option<(usize, usize)> {
    let a = &w.node(n).attrs;
    Some((a.list("arity").ok()?.len(), usize::try_from(a.int("weights").ok()?).ok()?))
}

/// Whether `n` reads the same operand 0 in the same way, and its weights are of the same family: block formats together,
/// floats of one type together.
fn may_join(w: &Work, at: At, n: At) -> bool {
    let (a, b) = (w.node(at), w.node(n));
    let family = |v: ValueId| Some(w.ty(v).dtype).filter(|d| !d.is_block());
    b.op == a.op
        && a.inputs[0] == b.inputs[0]
        && a.attrs.str("activations").ok() == b.attrs.str("activations").ok()
        && family(a.inputs[1]) == family(b.inputs[1])
        && !b.operands().any(|v| w.is_stale(v))
}

fn join(w: &Work, x: ValueId, members: Vec<At>) -> Option<Match> {
    let (mut arity, mut exprs): (Vec<i64>, Vec<Expr>) = Default::default();
    let (mut weights, mut extras, mut replaces) = (Vec::new(), Vec::new(), Vec::new());
    for n in &members {
        let node = w.node(*n);
        let (_, k) = sizes(w, *n)?;
        arity.extend(node.attrs.ints("arity").ok()?);
        exprs.extend(node.attrs.exprs("exprs").ok()?.iter().map(|e| Expr::clone(e)));
        weights.extend_from_slice(&node.inputs[1..1 + k]);
        extras.extend_from_slice(&node.inputs[1 + k..]);
        for v in &node.outputs {
            replaces.push((*v, 0, replaces.len()));
        }
    }
    let activations = w.node(members[0]).attrs.str("activations").unwrap_or_else(|_| "f32".into());
    let attrs = attrs(weights.len(), &arity, exprs, &activations);
    let inputs = [x].into_iter().chain(weights).chain(extras).map(Arg::Value).collect();
    let place = members[0];
    Some(Match { claims: members, place, nodes: vec![NewNode { op: "linear", attrs, inputs }], replaces })
}
