//! `cumsum`: running sums along an axis. Floats accumulate in f32 or wider, integers wrap in their own type. A reverse sum
//! starts at the last element: a total minus a prefix would lose what is small beside it.

use frit_ir::expr::{Scalar, ScalarOp};
use frit_ir::graph::Type;
use frit_ir::op::{Case, CaseInput, InferCtx, Layout, Lowered, NodeCtx, OpError, RefCtx, Tolerance};
use frit_ir::{Attrs, DType, OpDef, Tensor};

use crate::{cases, reduce, util};

/// The op.
pub fn def() -> OpDef {
    OpDef {
        name: "cumsum",
        summary: "running sums along `axis`; `exclusive` leaves the element itself out, `reverse` sums from the end",
        infer,
        reference: Some(reference),
        expand: None,
        vjp: None,
        cost: |ctx| util::cost_per_element(ctx, 1),
        lower,
        view: None,
        updates: &[],
        cases: table,
    }
}

struct Params {
    axis: usize,
    exclusive: bool,
    reverse: bool,
}

fn params(attrs: &Attrs, rank: usize) -> Result<Params, OpError> {
    let axis = util::axis("axis", attrs.int("axis")?, rank)?;
    Ok(Params { axis, exclusive: attrs.bool("exclusive")?, reverse: attrs.bool("reverse")? })
}

fn infer(ctx: &mut InferCtx) -> Result<Vec<Type>, OpError> {
    ctx.attrs.only(&["axis", "exclusive", "reverse"])?;
    ctx.arity(1, 1)?;
    let ty = ctx.ty(0)?;
    let takes: Vec<DType> = types().collect();
    util::dtype_of(ctx, 0, &takes)?;
    params(ctx.attrs, ty.rank())?;
    Ok(vec![ty.clone()])
}

fn types() -> impl Iterator<Item = DType> {
    DType::all().filter(|d| d.is_compute() && *d != DType::Bool)
}

/// The running sums of `x`, dense values of `shape`.
fn sums(x: &[Scalar], shape: &[usize], p: &Params, dtype: DType) -> Vec<Scalar> {
    let (strides, zero) = (util::strides(shape), Scalar::Float(0.0).cast(DType::F64, reduce::wide(dtype)));
    let mut rows = shape.to_vec();
    let n = std::mem::replace(&mut rows[p.axis], 1);
    let mut out = vec![zero; x.len()];
    util::for_each_index(&rows, |index| {
        let mut sum = zero;
        for i in 0..n {
            let i = if p.reverse { n - 1 - i } else { i };
            let at = util::offset(index, &strides) + i * strides[p.axis];
            let with = reduce::combine(ScalarOp::Add, sum, x[at], dtype);
            out[at] = if p.exclusive { sum } else { with };
            sum = with;
        }
    });
    out
}

fn reference(ctx: &RefCtx) -> Result<Vec<Tensor>, OpError> {
    let t = ctx.input(0)?;
    let p = params(ctx.attrs, t.shape().len())?;
    let out = sums(&util::read(t)?, t.shape(), &p, t.dtype());
    Ok(vec![util::write(t.dtype(), t.shape(), &out)?])
}

fn lower(ctx: &NodeCtx) -> Result<Lowered, OpError> {
    let p = params(ctx.attrs, ctx.outputs[0].rank())?;
    Ok(Lowered::default()
        .int("axis", p.axis)
        .int("exclusive", i64::from(p.exclusive))
        .int("reverse", i64::from(p.reverse))
        .int("elements", util::elements(ctx)))
}

const WAYS: [(bool, bool); 4] = [(false, false), (true, false), (false, true), (true, true)];

fn attrs(axis: i64, (exclusive, reverse): (bool, bool)) -> Attrs {
    Attrs::new().with("axis", axis).with("exclusive", exclusive).with("reverse", reverse)
}

/// Each of n − 1 additions rounds a sum that is no larger than the largest one, and so does the result.
fn bound(t: &Tensor, attrs: &Attrs) -> Tolerance {
    let unit = match t.dtype() {
        DType::F64 => 2f64.powi(-53),
        d if d.is_float() => 2f64.powi(-24),
        _ => return Tolerance::EXACT,
    };
    let p = params(attrs, t.shape().len()).expect("attributes of a case");
    let all = sums(&util::read(t).expect("values of a case"), t.shape(), &p, t.dtype());
    let largest = all.iter().fold(0f64, |a, v| a.max(v.to_f64().abs()));
    cases::tolerance(t.dtype(), unit * t.shape()[p.axis] as f64 * largest, 0.0)
}

fn table() -> Vec<Case> {
    let mut out = Vec::new();
    let mut add = |name: String, axis, way, t: Tensor, layout| {
        let attrs = attrs(axis, way);
        let tolerance = bound(&t, &attrs);
        out.push(cases::case_of(name, attrs, vec![Some(CaseInput::new(t).layout(layout))], tolerance));
    };
    let shapes: &[(&[usize], i64)] = &[
        (&[1], 0),
        (&[5], -1),
        (&[3, 17], 1),
        (&[17, 3], 0),
        (&[2, 33, 4], 1),
        (&[3, 2, 65], -1),
        (&[5, 300], 0),
        (&[0, 4], 1),
        (&[4, 0], 1),
        (&[2, 3, 2, 16], 0),
        (&[1, 2, 1, 2, 3, 2, 1, 3], 4),
    ];
    for (exclusive, reverse) in WAYS {
        let how = format!("exclusive {exclusive} reverse {reverse}");
        for (i, (shape, axis)) in shapes.iter().enumerate() {
            for layout in [Layout::Dense, Layout::Rows, Layout::Strided] {
                for dtype in [DType::F32, DType::F16, DType::I32] {
                    let t = cases::random(dtype, shape, i as u64);
                    let name = format!("{shape:?} axis {axis} {how} {layout:?} {dtype}");
                    add(name, *axis, (exclusive, reverse), t, layout);
                }
            }
        }
        for dtype in types() {
            for (shape, axis) in [([3, 40], 1), ([40, 3], 0)] {
                let t = cases::random(dtype, &shape, 7);
                let name = format!("every type {dtype} axis {axis} {how}");
                add(name, axis, (exclusive, reverse), t, Layout::Dense);
            }
        }
        for n in cases::EDGES.into_iter().chain([255, 256, 257, 1023, 1024, 1025, 4099]) {
            for (shape, axis) in [([3, n], 1), ([n, 3], 0), ([3, n], 0)] {
                let t = cases::random(DType::F32, &shape, n as u64);
                let name = format!("{shape:?} along {axis} {how}");
                add(name, axis, (exclusive, reverse), t, Layout::Dense);
            }
        }
    }
    out.extend(stated());
    out
}

/// Results known without the reference.
fn stated() -> Vec<Case> {
    let mut out = Vec::new();
    let mut add = |name: String, dtype, way, v: &[f64], want: &[f64]| {
        // As a row, and as the column of a matrix, whose sums go across rows.
        for (shape, axis) in [([1, v.len()], 1), ([v.len(), 1], 0)] {
            let t = cases::values(dtype, &shape, v);
            let name = format!("{name} {dtype} {way:?} axis {axis}");
            out.push(cases::expecting(cases::case(name, attrs(axis, way), &[&t], Tolerance::EXACT), &[want]));
        }
    };
    let wants = [[1., 3., 6., 10.], [0., 1., 3., 6.], [10., 9., 7., 4.], [9., 7., 4., 0.]];
    for (way, want) in WAYS.into_iter().zip(wants) {
        for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64, DType::I64, DType::U8] {
            add("one to four".into(), dtype, way, &[1., 2., 3., 4.], &want);
        }
    }
    let mut v = [1e8; 64];
    v[32..].fill(1.0);
    let from_end = |i: usize| if i < 32 { (32 - i) as f64 * 1e8 + 32.0 } else { (64 - i) as f64 };
    let all: Vec<f64> = (0..64).map(from_end).collect();
    add("ones behind large values".into(), DType::F64, (false, true), &v, &all);
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let f = DType::F32;
    add("NaN spreads".into(), f, (false, false), &[1., nan, 2.], &[1., nan, nan]);
    add("NaN spreads".into(), f, (false, true), &[1., nan, 2.], &[nan, nan, 2.]);
    add("infinity".into(), f, (false, false), &[1., inf, 2., -inf], &[1., inf, inf, nan]);
    add("infinity".into(), f, (true, true), &[1., inf, 2.], &[inf, 2., 0.]);
    add("wraps".into(), DType::I8, (false, false), &[100., 100., 100.], &[100., -56., 44.]);
    add("wraps".into(), DType::U8, (false, true), &[200., 100., 1.], &[45., 101., 1.]);
    add("wraps".into(), DType::I32, (false, false), &[2147483647., 1.], &[2147483647., -2147483648.]);
    // Sums in f16 would stop at 2048.
    let halves: Vec<f64> = (1..=4096).map(|i| f64::from(i) / 2.0).collect();
    let stored = |v: &f64| cases::values(DType::F16, &[1], &[*v]).to_f64().map_or(nan, |v| v[0]);
    let want: Vec<f64> = halves.iter().map(stored).collect();
    add("halves".into(), DType::F16, (false, false), &[0.5; 4096], &want);
    out.extend(suffixes(&v, &all));
    out
}

/// In f32 the sums that hold large values round; those of the ones alone must not.
fn suffixes(v: &[f64], want: &[f64]) -> Vec<Case> {
    // Relative alone: 64 roundings, and less than a thousandth of a one.
    let tolerance = Tolerance { abs: 0.0, rel: 64.0 * 2f64.powi(-24) };
    let case = |(shape, axis): ([usize; 2], i64)| {
        let (t, attrs) = (cases::values(DType::F32, &shape, v), attrs(axis, (false, true)));
        let name = format!("ones behind large values f32 axis {axis}");
        cases::expecting(cases::case(name, attrs, &[&t], tolerance), &[want])
    };
    [([1, 64], 1), ([64, 1], 0)].into_iter().map(case).collect()
}
