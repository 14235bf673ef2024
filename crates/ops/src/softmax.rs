//! `softmax`: exponentials along an axis, divided by their sum; or the logarithm of that. Subtracts the largest value
//! first. A row whose largest value is infinite gives NaN, as the formula does.

use frit_ir::graph::Type;
use frit_ir::op::{Case, CaseInput, Cost, InferCtx, Layout, Lowered, NodeCtx, OpError, RefCtx};
use frit_ir::{Attrs, DType, OpDef, Tensor};

use crate::{cases, util};

/// The op.
pub fn def() -> OpDef {
    OpDef {
        name: "softmax",
        summary: "softmax along `axis`, its logarithm with `log`",
        infer,
        reference: Some(reference),
        expand: None,
        vjp: None,
        cost: |ctx| Cost { ..util::cost_per_element(ctx, 5) },
        lower,
        view: None,
        updates: &[],
        cases: table,
    }
}

fn infer(ctx: &mut InferCtx) -> Result<Vec<Type>, OpError> {
    ctx.attrs.only(&["axis", "log"])?;
    ctx.arity(1, 1)?;
    let ty = ctx.ty(0)?;
    util::dtype_of(ctx, 0, util::FLOATS)?;
    util::axis("axis", ctx.attrs.int("axis")?, ty.rank())?;
    ctx.attrs.bool("log")?;
    Ok(vec![ty.clone()])
}

fn reference(ctx: &RefCtx) -> Result<Vec<Tensor>, OpError> {
    let t = ctx.input(0)?;
    let (shape, log) = (t.shape(), ctx.attrs.bool("log")?);
    let axis = util::axis("axis", ctx.attrs.int("axis")?, shape.len())?;
    let (n, stride) = (shape[axis], util::strides(shape)[axis]);
    let mut rows = shape.to_vec();
    rows[axis] = 1;
    let strides = util::strides(shape);
    let x = t.to_f64()?;
    let mut out = vec![0.0; x.len()];
    util::for_each_index(&rows, |index| {
        let base = util::offset(index, &strides);
        let at = |i: usize| base + i * stride;
        let largest = (0..n).map(|i| x[at(i)]).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = (0..n).map(|i| (x[at(i)] - largest).exp()).sum();
        for i in 0..n {
            let d = x[at(i)] - largest;
            out[at(i)] = if log { d - sum.ln() } else { d.exp() / sum };
        }
    });
    Ok(vec![ctx.result(0, &out)?])
}

fn lower(ctx: &NodeCtx) -> Result<Lowered, OpError> {
    let axis = util::axis("axis", ctx.attrs.int("axis")?, ctx.outputs[0].rank())?;
    Ok(Lowered::default()
        .int("axis", axis)
        .int("log", i64::from(ctx.attrs.bool("log")?))
        .int("elements", util::elements(ctx)))
}

fn attrs(axis: i64, log: bool) -> Attrs {
    Attrs::new().with("axis", axis).with("log", log)
}

/// e^x in f32 is within a few units of 2^-23, and so is the sum; the difference x − max adds its own rounding.
fn bound(dtype: DType) -> frit_ir::op::Tolerance {
    let f64 = dtype == DType::F64;
    cases::tolerance(dtype, if f64 { 1e-15 } else { 1e-6 }, if f64 { 1e-14 } else { 4e-6 })
}

fn table() -> Vec<Case> {
    let mut out = Vec::new();
    let mut add = |name: String, axis, log, t: Tensor, layout| {
        let tolerance = bound(t.dtype());
        let input = CaseInput::new(t).layout(layout);
        out.push(cases::case_of(name, attrs(axis, log), vec![Some(input)], tolerance));
    };
    let shapes: &[(&[usize], i64)] = &[
        (&[1], 0),
        (&[5], -1),
        (&[3, 17], 1),
        (&[17, 3], 0),
        (&[2, 33, 4], 1),
        (&[2, 3, 65], -1),
        (&[0, 4], 1),
        (&[4, 0], 1),
        (&[2, 2, 3, 16], 3),
    ];
    for log in [false, true] {
        for (i, (shape, axis)) in shapes.iter().enumerate() {
            for layout in [Layout::Dense, Layout::Rows, Layout::Strided] {
                for dtype in util::FLOATS {
                    let mut n = cases::Numbers::new(i as u64);
                    let t = cases::fill(*dtype, shape, || 6.0 * n.unit());
                    add(format!("{shape:?} axis {axis} log {log} {layout:?} {dtype}"), *axis, log, t, layout);
                }
            }
        }
        for n in cases::EDGES.into_iter().chain([1023, 1024, 1025, 5000]) {
            let t = cases::random(DType::F32, &[2, n], n as u64);
            add(format!("length {n} log {log}"), 1, log, t, Layout::Dense);
        }
    }
    out.extend(special());
    out
}

fn special() -> Vec<Case> {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let mut out = Vec::new();
    let mut add = |name: &str, dtype, log, v: &[f64], want: &[f64]| {
        let t = cases::values(dtype, &[1, v.len()], v);
        let c = cases::case(name, attrs(1, log), &[&t], bound(dtype));
        out.push(cases::expecting(c, &[want]));
    };
    let f = DType::F32;
    add("large values", f, false, &[1e30, 1e30, -1e30], &[0.5, 0.5, 0.0]);
    add("large values log", f, true, &[1e4, 1e4], &[-(2f64.ln()), -(2f64.ln())]);
    add("large halves", DType::F16, false, &[6e4, -6e4], &[1.0, 0.0]);
    add("masked entries", f, false, &[-inf, 0.0, -inf, 0.0], &[0.0, 0.5, 0.0, 0.5]);
    add("masked entries log", f, true, &[-inf, 3.0], &[-inf, 0.0]);
    add("all masked", f, false, &[-inf, -inf], &[nan, nan]);
    add("plus infinity", f, false, &[inf, 0.0], &[nan, nan]);
    add("NaN spreads", f, false, &[nan, 0.0, 1.0], &[nan, nan, nan]);
    add("one element", f, false, &[-7.0], &[1.0]);
    add("equal values", f, false, &[88.0; 4], &[0.25; 4]);
    out
}
