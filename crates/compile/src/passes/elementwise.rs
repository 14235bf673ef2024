//! Simplification of `expr` nodes: operands given once, scalar constants inside the expression, no views that
//! broadcasting makes needless, no unused or copied results.

use std::sync::Arc;

use frit_ir::expr::{Expr, ScalarOp, Step};
use frit_ir::graph::{GraphError, Type, ValueId};
use frit_ir::{Attrs, Dim};
use smallvec::SmallVec;

use crate::exprs::{bind_constant, merge_equal_inputs, simplify as simplify_expr};
use crate::work::{At, Work};

pub(super) fn simplify(w: &mut Work, at: At) -> Result<bool, GraphError> {
    if &*w.node(at).op != "expr" {
        return Ok(false);
    }
    let mut changed = drop_copies(w, at);
    if !w.is_live(at) {
        return Ok(true);
    }
    let node = w.node(at);
    let Ok(expr) = node.attrs.expr("expr") else { return Ok(changed) };
    let outputs = node.outputs.clone();
    let old_inputs = node.inputs.to_vec();
    let used = |v: &ValueId| !w.users(*v).is_empty() || w.is_kept(*v);
    let live: Vec<usize> = (0..outputs.len()).filter(|i| used(&outputs[*i])).collect();
    let mut e = Expr::clone(&expr);
    e.outputs = live.iter().map(|i| expr.outputs[*i]).collect();
    let types: Vec<Type> = live.iter().map(|i| w.ty(outputs[*i]).clone()).collect();

    let (mut e, mut inputs) = merge_equal_inputs(&e, &old_inputs);
    let mut i = 0;
    while i < inputs.len() {
        i += usize::from(!improve_input(w, &mut e, &mut inputs, i, &types));
    }
    let (e, inputs) = merge_equal_inputs(&e, &inputs);
    let e = simplify_expr(&e);
    if e != *expr || inputs != old_inputs {
        let attrs = Attrs::new().with("expr", Arc::new(e));
        let made = w.add(at, "expr", attrs, &inputs)?;
        for (i, new) in live.iter().zip(made) {
            w.replace(outputs[*i], new);
        }
        changed = true;
    }
    Ok(changed)
}

/// Lets the readers of a result that is an operand unchanged read the operand.
fn drop_copies(w: &mut Work, at: At) -> bool {
    let node = w.node(at);
    let Ok(e) = node.attrs.expr("expr") else { return false };
    let copies: Vec<(ValueId, ValueId)> = (e.outputs.iter().zip(&node.outputs))
        .filter_map(|(o, v)| Some((*v, *node.inputs.get(o.value as usize)?)))
        .filter(|(v, x)| w.ty(*v) == w.ty(*x) && !w.is_stale(*x))
        .filter(|(v, _)| !w.users(*v).is_empty() || w.is_kept(*v))
        .collect();
    copies.iter().for_each(|(v, x)| w.replace(*v, *x));
    !copies.is_empty()
}

/// Replaces input `i` by a constant step, or by what it broadcasts; says whether input `i` is now another one that is to be
/// looked at again.
fn improve_input(w: &Work, e: &mut Expr, inputs: &mut Vec<ValueId>, i: usize, types: &[Type]) -> bool {
    let attempt = |e: &Expr, inputs: &[ValueId]| {
        let attrs = Attrs::new().with("expr", Arc::new(e.clone()));
        w.infer("expr", &attrs, inputs).is_ok_and(|(t, guards)| t == types && guards.is_empty())
    };
    if inputs.len() > 1
        && let Some(c) = scalar_step(w, inputs[i])
    {
        let bound = bind_constant(e, i, c);
        let mut rest = inputs.clone();
        rest.remove(i);
        if attempt(&bound, &rest) {
            (*e, *inputs) = (bound, rest);
            return true;
        }
    }
    if let Some(x) = under_broadcast(w, inputs[i]) {
        let mut other = inputs.clone();
        other[i] = x;
        if attempt(e, &other) {
            *inputs = other;
            return true;
        }
    }
    false
}

/// A one-element constant as a step.
fn scalar_step(w: &Work, v: ValueId) -> Option<Step> {
    let t = w.constant(v).filter(|t| t.len() == 1 && t.dtype().is_compute())?;
    let imm = match t.dtype().is_float() {
        true => t.to_f64().ok()?.first()?.to_bits(),
        false => *t.to_i64().ok()?.first()? as u64,
    };
    Some(Step { op: ScalarOp::Const, args: SmallVec::new(), dtype: t.dtype(), imm })
}

/// What `v` repeats or gives leading extents of 1.
fn under_broadcast(w: &Work, v: ValueId) -> Option<ValueId> {
    let (n, _) = w.producer(v)?;
    let node = w.node(n);
    let x = *node.inputs.first()?;
    let inner = |v: ValueId| -> Vec<Dim> { w.ty(v).shape.iter().skip_while(|d| d.is(1)).cloned().collect() };
    match &*node.op {
        "broadcast" => Some(x),
        "reshape" if inner(x) == inner(v) => Some(x),
        _ => None,
    }
}
