//! Scalar expressions: joining, inlining and exact simplification.

use std::collections::HashMap;

use frit_ir::DType;
use frit_ir::expr::{Expr, Output, Ref, ScalarOp, Step, compute_type};
use frit_ir::graph::ValueId;
use smallvec::SmallVec;

/// The expression that hands its one input of type `from` on as `to` (of the same compute type).
pub(crate) fn identity(from: DType, to: DType) -> Expr {
    let mut e = Expr::new(&[from]);
    e.output(0, to);
    e
}

/// `e` with its inputs in another order: input `i` of the result is input `order[i]` of `e`; every input stands in `order`
/// once.
pub(crate) fn order_inputs(e: &Expr, order: &[usize]) -> Expr {
    let mut place = vec![0 as Ref; e.inputs.len()];
    for (new, old) in order.iter().enumerate() {
        place[*old] = new as Ref;
    }
    let inputs = order.iter().map(|o| e.inputs[*o]).collect();
    remap(e, inputs, |i| place[i])
}

/// `e` with its input `i` read as input `place(i)` of `inputs`.
fn remap(e: &Expr, inputs: SmallVec<[DType; 4]>, place: impl Fn(usize) -> Ref) -> Expr {
    let (old, new) = (e.inputs.len(), inputs.len());
    let map = |r: Ref| if (r as usize) < old { place(r as usize) } else { (r as usize - old + new) as Ref };
    Expr {
        inputs,
        steps: e
            .steps
            .iter()
            .map(|s| Step { args: s.args.iter().map(|a| map(*a)).collect(), ..s.clone() })
            .collect(),
        outputs: e.outputs.iter().map(|o| Output { value: map(o.value), dtype: o.dtype }).collect(),
    }
}

/// `e` over `values` with every value given once: (expression, values).
pub(crate) fn merge_equal_inputs(e: &Expr, values: &[ValueId]) -> (Expr, Vec<ValueId>) {
    let mut kept: Vec<ValueId> = Vec::new();
    let mut inputs = SmallVec::new();
    let mut place = Vec::with_capacity(values.len());
    for (v, d) in values.iter().zip(&e.inputs) {
        let at = kept.iter().position(|k| k == v).unwrap_or_else(|| {
            kept.push(*v);
            inputs.push(*d);
            kept.len() - 1
        });
        place.push(at as Ref);
    }
    (remap(e, inputs, |i| place[i]), kept)
}

/// `outer` with some of its inputs computed by `inner`: `feeds` holds (input of `outer`, output of `inner`). Inputs of the
/// result are the other inputs of `outer`, then those of `inner`; results are those of `outer`, then the outputs of `inner`
/// named in `keep`. A value that `inner` stores as f16 or bf16 is rounded to it on the way.
pub(crate) fn inline(outer: &Expr, feeds: &[(usize, usize)], inner: &Expr, keep: &[usize]) -> Expr {
    let fed = |i: usize| feeds.iter().find(|(at, _)| *at == i).map(|(_, o)| *o);
    let free: Vec<usize> = (0..outer.inputs.len()).filter(|i| fed(*i).is_none()).collect();
    let mut inputs: SmallVec<[DType; 4]> = free.iter().map(|i| outer.inputs[*i]).collect();
    inputs.extend(inner.inputs.iter().copied());
    let (lead, total) = (free.len() as Ref, inputs.len() as Ref);
    let inner_n = inner.inputs.len() as Ref;
    let inside = |r: Ref| if r < inner_n { lead + r } else { total + r - inner_n };
    let mut e = Expr { inputs, ..Expr::default() };
    for s in &inner.steps {
        e.push_step(Step { args: s.args.iter().map(|a| inside(*a)).collect(), ..s.clone() });
    }
    let mut place: Vec<Ref> = vec![0; outer.inputs.len()];
    for (at, i) in free.iter().enumerate() {
        place[*i] = at as Ref;
    }
    for (at, o) in feeds {
        let o = inner.outputs[*o];
        let v = inside(o.value);
        place[*at] = if o.dtype == compute_type(o.dtype) { v } else { e.cast(v, o.dtype) };
    }
    let base = total + e.steps.len() as Ref;
    let outer_n = outer.inputs.len() as Ref;
    let map = |r: Ref| if r < outer_n { place[r as usize] } else { base + r - outer_n };
    for s in &outer.steps {
        e.push_step(Step { args: s.args.iter().map(|a| map(*a)).collect(), ..s.clone() });
    }
    e.outputs = outer.outputs.iter().map(|o| Output { value: map(o.value), dtype: o.dtype }).collect();
    e.outputs.extend(keep.iter().map(|o| {
        let o = inner.outputs[*o];
        Output { value: inside(o.value), dtype: o.dtype }
    }));
    e
}

/// Whether the step is a conversion that changes no value: to the compute type that the argument has already.
fn is_idle_cast(e: &Expr, s: &Step) -> bool {
    s.op == ScalarOp::Cast && s.dtype == compute_type(s.dtype) && e.value_type(s.args[0]) == s.dtype
}

/// An equal expression with constants folded, exact identities applied, equal steps merged and unused steps dropped.
/// Inputs stay as they are.
pub(crate) fn simplify(e: &Expr) -> Expr {
    let n = e.inputs.len();
    let mut out = Expr { inputs: e.inputs.clone(), ..Expr::default() };
    let mut map: Vec<Ref> = (0..n as Ref).collect();
    let mut known: HashMap<Step, Ref> = HashMap::new();
    for s in &e.steps {
        let step = Step { args: s.args.iter().map(|a| map[*a as usize]).collect(), ..s.clone() };
        let step = fold(&out, &step).unwrap_or(step);
        let r = match identity_of(&out, &step) {
            Some(r) => r,
            None => *known.entry(step).or_insert_with_key(|s| out.push_step(s.clone())),
        };
        map.push(r);
    }
    out.outputs = e.outputs.iter().map(|o| Output { value: map[o.value as usize], dtype: o.dtype }).collect();
    drop_unused(&out)
}

/// The constant that the value is.
fn constant_of(e: &Expr, r: Ref) -> Option<&Step> {
    let s = e.steps.get((r as usize).checked_sub(e.inputs.len())?)?;
    (s.op == ScalarOp::Const).then_some(s)
}

/// Whether the value is the constant `v`; for floats of the same sign too.
fn is_constant(e: &Expr, r: Ref, v: f64) -> bool {
    constant_of(e, r).is_some_and(|s| match s.dtype.is_float() {
        true => s.imm == v.to_bits(),
        false => s.imm == v as i64 as u64,
    })
}

/// The step as a constant, if all its arguments are.
fn fold(e: &Expr, s: &Step) -> Option<Step> {
    if s.op == ScalarOp::Const || s.args.is_empty() {
        return None;
    }
    let mut one = Expr::default();
    let mut args = SmallVec::new();
    for a in &s.args {
        args.push(one.push_step(constant_of(e, *a)?.clone()));
    }
    let r = one.push_step(Step { args, ..s.clone() });
    let dtype = s.dtype;
    one.output(r, dtype);
    let imm = match *one.eval(&[]).first()? {
        frit_ir::expr::Scalar::Float(v) if dtype.is_float() => v.to_bits(),
        frit_ir::expr::Scalar::Int(v) if !dtype.is_float() => v as u64,
        // Comparisons give 0 or 1 as a float on the way.
        frit_ir::expr::Scalar::Float(v) => v as i64 as u64,
        frit_ir::expr::Scalar::Int(v) => (v as f64).to_bits(),
    };
    Some(Step { op: ScalarOp::Const, args: SmallVec::new(), dtype, imm })
}

/// The value that the step gives unchanged: x·1, x/1, x−0, x+(−0), −(−x), idle casts, `where` of equal values. Never x+0 on
/// floats, which turns −0 into 0.
fn identity_of(e: &Expr, s: &Step) -> Option<Ref> {
    if is_idle_cast(e, s) {
        return Some(s.args[0]);
    }
    let float = s.args.last().is_some_and(|a| e.value_type(*a).is_float());
    let nothing = if float { -0.0 } else { 0.0 };
    match (s.op, s.args.as_slice()) {
        (ScalarOp::Mul, [x, c]) if is_constant(e, *c, 1.0) => Some(*x),
        (ScalarOp::Mul, [c, x]) if is_constant(e, *c, 1.0) => Some(*x),
        (ScalarOp::Div, [x, c]) if is_constant(e, *c, 1.0) => Some(*x),
        (ScalarOp::Pow, [x, c]) if is_constant(e, *c, 1.0) => Some(*x),
        (ScalarOp::Sub, [x, c]) if is_constant(e, *c, 0.0) => Some(*x),
        (ScalarOp::Add, [x, c]) if is_constant(e, *c, nothing) => Some(*x),
        (ScalarOp::Add, [c, x]) if is_constant(e, *c, nothing) => Some(*x),
        (ScalarOp::Where, [_, a, b]) if a == b => Some(*a),
        (ScalarOp::Neg, [x]) => {
            let inner = e.steps.get((*x as usize).checked_sub(e.inputs.len())?)?;
            (inner.op == ScalarOp::Neg).then(|| inner.args[0])
        }
        _ => None,
    }
}

fn drop_unused(e: &Expr) -> Expr {
    let n = e.inputs.len();
    let mut used = vec![false; n + e.steps.len()];
    e.outputs.iter().for_each(|o| used[o.value as usize] = true);
    for (i, s) in e.steps.iter().enumerate().rev() {
        if used[n + i] {
            s.args.iter().for_each(|a| used[*a as usize] = true);
        }
    }
    let mut map: Vec<Ref> = (0..n as Ref).collect();
    let mut out = Expr { inputs: e.inputs.clone(), ..Expr::default() };
    for (i, s) in e.steps.iter().enumerate() {
        let args = || s.args.iter().map(|a| map[*a as usize]).collect();
        let r = if used[n + i] { out.push_step(Step { args: args(), ..s.clone() }) } else { Ref::MAX };
        map.push(r);
    }
    out.outputs = e.outputs.iter().map(|o| Output { value: map[o.value as usize], dtype: o.dtype }).collect();
    out
}

/// `e` with input `at` replaced by the constant whose value is `value` (an f64, or an i64 read as one, of type `dtype`).
pub(crate) fn bind_constant(e: &Expr, at: usize, constant: Step) -> Expr {
    let dtype = e.inputs[at];
    let mut inner = Expr::default();
    let r = inner.push_step(constant);
    inner.output(r, dtype);
    inline(e, &[(at, 0)], &inner, &[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use frit_ir::text::parse_expr;

    fn check(e: &Expr, want: &str) {
        e.check().unwrap();
        assert_eq!(e.to_string(), want);
    }

    #[test]
    fn inlining_rounds_and_keeps_outputs() {
        let inner = parse_expr("{(f32) 1=exp(0) 2=neg(0) -> 1:f16, 2:f32}").unwrap();
        let outer = parse_expr("{(f32, f16, f32) 3=add(0,1) 4=mul(3,2) -> 4:f32}").unwrap();
        let e = inline(&outer, &[(1, 0), (2, 1)], &inner, &[0]);
        check(&e, "{(f32, f32) 2=exp(1) 3=neg(1) 4=cast:f16(2) 5=add(0,4) 6=mul(5,3) -> 6:f32, 2:f16}");
        let j = inline(&inner, &[], &inner, &[0, 1]);
        let (j, v) = merge_equal_inputs(&j, &[ValueId(7), ValueId(7)]);
        assert_eq!(v, [ValueId(7)]);
        check(&simplify(&j), "{(f32) 1=exp(0) 2=neg(0) -> 1:f16, 2:f32, 1:f16, 2:f32}");
    }

    #[test]
    fn only_exact_identities_are_applied() {
        let cases = [
            ("{(f32) 1=const:f32(1.0) 2=mul(0,1) -> 2:f32}", "{(f32) -> 0:f32}"),
            ("{(f32) 1=const:f32(-0.0) 2=add(0,1) -> 2:f32}", "{(f32) -> 0:f32}"),
            ("{(i32) 1=const:i32(0) 2=add(1,0) -> 2:i32}", "{(i32) -> 0:i32}"),
            ("{(f32) 1=const:f32(0.0) 2=add(0,1) -> 2:f32}", "{(f32) 1=const:f32(0.0) 2=add(0,1) -> 2:f32}"),
            ("{(f32) 1=neg(0) 2=neg(1) 3=cast:f32(2) -> 3:f16}", "{(f32) -> 0:f16}"),
            (
                "{(f32) 1=const:f32(2.0) 2=const:f32(3.0) 3=mul(1,2) 4=mul(0,3) -> 4:f32}",
                "{(f32) 1=const:f32(6.0) 2=mul(0,1) -> 2:f32}",
            ),
            (
                "{(bool) 1=const:f32(2.0) 2=const:f32(3.0) 3=lt(1,2) 4=and(0,3) -> 4:bool}",
                "{(bool) 1=const:bool(1) 2=and(0,1) -> 2:bool}",
            ),
        ];
        for (from, to) in cases {
            check(&simplify(&parse_expr(from).unwrap()), to);
        }
    }

    #[test]
    fn inputs_move_and_constants_bind() {
        let e = parse_expr("{(f32, f16, i32) 3=sub(0,1) -> 3:f32, 2:i32}").unwrap();
        check(&order_inputs(&e, &[2, 0, 1]), "{(i32, f32, f16) 3=sub(1,2) -> 3:f32, 0:i32}");
        let c = Step { op: ScalarOp::Const, args: SmallVec::new(), dtype: DType::F32, imm: 2f64.to_bits() };
        check(
            &simplify(&bind_constant(&e, 1, c)),
            "{(f32, i32) 2=const:f16(2.0) 3=sub(0,2) -> 3:f32, 1:i32}",
        );
    }
}
