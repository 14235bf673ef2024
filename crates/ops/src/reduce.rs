//! `reduce`: sums, means, extrema, products and truth over axes. Floats accumulate in f32 or wider, integers wrap in their
//! own type, extrema hand NaN on.

use frit_ir::expr::{Scalar, ScalarOp};
use frit_ir::graph::Type;
use frit_ir::op::{Case, CaseInput, Cost, InferCtx, Layout, Lowered, NodeCtx, OpError, RefCtx, Tolerance};
use frit_ir::{Attrs, DType, OpDef, Tensor};

use crate::{cases, util};

/// The op.
pub fn def() -> OpDef {
    OpDef {
        name: "reduce",
        summary: "sum, mean, max, min, prod, any or all over `axes`; `keep` leaves extents of 1",
        infer,
        reference: Some(reference),
        expand: None,
        vjp: None,
        cost,
        lower,
        view: None,
        updates: &[],
        cases: table,
    }
}

/// One way to reduce. The position in [`KINDS`] is its kernel code.
struct Kind {
    name: &'static str,
    /// How two values become one.
    step: ScalarOp,
    /// Types taken.
    takes: fn(DType) -> bool,
    /// What an empty axis gives.
    identity: fn(DType) -> f64,
}

const KINDS: [Kind; 7] = [
    Kind { name: "sum", step: ScalarOp::Add, takes: number, identity: |_| 0.0 },
    Kind { name: "mean", step: ScalarOp::Add, takes: |d| d.is_float(), identity: |_| 0.0 },
    Kind { name: "max", step: ScalarOp::Max, takes: number, identity: |_| f64::NEG_INFINITY },
    Kind { name: "min", step: ScalarOp::Min, takes: number, identity: |_| f64::INFINITY },
    Kind { name: "prod", step: ScalarOp::Mul, takes: number, identity: |_| 1.0 },
    Kind { name: "any", step: ScalarOp::Or, takes: truth, identity: |_| 0.0 },
    Kind { name: "all", step: ScalarOp::And, takes: truth, identity: |_| 1.0 },
];

const MEAN: usize = 1;

fn number(d: DType) -> bool {
    d.is_float() || d.is_int()
}

fn truth(d: DType) -> bool {
    d == DType::Bool
}

struct Params {
    code: usize,
    axes: Vec<usize>,
    keep: bool,
}

fn params(attrs: &Attrs, rank: usize) -> Result<Params, OpError> {
    let name = attrs.str("op")?;
    let code = KINDS.iter().position(|k| k.name == name.as_ref()).ok_or_else(|| {
        let all = KINDS.iter().map(|k| k.name).collect::<Vec<_>>().join(", ");
        OpError::Value(format!("attribute `op` is {name:?}; it must be one of {all}"))
    })?;
    let axes = util::axes("axes", &attrs.ints("axes")?, rank)?;
    Ok(Params { code, axes, keep: attrs.bool("keep")? })
}

fn infer(ctx: &mut InferCtx) -> Result<Vec<Type>, OpError> {
    ctx.attrs.only(&["op", "axes", "keep"])?;
    ctx.arity(1, 1)?;
    let ty = ctx.ty(0)?;
    let p = params(ctx.attrs, ty.rank())?;
    let kind = &KINDS[p.code];
    if !ty.dtype.is_compute() || !(kind.takes)(ty.dtype) {
        let takes: Vec<DType> = DType::all().filter(|d| d.is_compute() && (kind.takes)(*d)).collect();
        let list = frit_ir::op::list_dtypes(&takes);
        return Err(OpError::DType(format!("`{}` does not take {}; it takes {list}", kind.name, ty.dtype)));
    }
    let mut shape = frit_ir::Shape::new();
    for (i, d) in ty.shape.iter().enumerate() {
        match (p.axes.contains(&i), p.keep) {
            (false, _) => shape.push(d.clone()),
            (true, true) => shape.push(1i64.into()),
            (true, false) => {}
        }
    }
    Ok(vec![Type { dtype: ty.dtype, shape }])
}

fn reference(ctx: &RefCtx) -> Result<Vec<Tensor>, OpError> {
    let t = ctx.input(0)?;
    let p = params(ctx.attrs, t.shape().len())?;
    let kept: Vec<usize> =
        t.shape().iter().enumerate().map(|(i, n)| if p.axes.contains(&i) { 1 } else { *n }).collect();
    let strides = util::broadcast_strides(&kept, t.shape());
    let (kind, dtype) = (&KINDS[p.code], t.dtype());
    let identity = Scalar::Float((kind.identity)(dtype)).cast(DType::F64, wide(dtype));
    let mut acc = vec![identity; kept.iter().product()];
    let values = util::read(t)?;
    let mut at = values.iter();
    util::for_each_index(t.shape(), |index| {
        let a = &mut acc[util::offset(index, &strides)];
        if let Some(v) = at.next() {
            *a = combine(kind.step, *a, *v, dtype);
        }
    });
    if p.code == MEAN {
        let n: usize = p.axes.iter().map(|a| t.shape()[*a]).product();
        acc.iter_mut().for_each(|a| *a = Scalar::Float(a.to_f64() / n as f64));
    }
    Ok(vec![util::write(dtype, &ctx.shape(0)?, &acc)?])
}

/// The accumulator's type: f64 for every float.
pub(crate) fn wide(d: DType) -> DType {
    if d.is_float() { DType::F64 } else { d }
}

/// `step` of two values that stand for `dtype`: floats in f64, integers wrapped in their type.
pub(crate) fn combine(step: ScalarOp, a: Scalar, b: Scalar, dtype: DType) -> Scalar {
    match (a, b) {
        (Scalar::Int(x), Scalar::Int(y)) => Scalar::Int((step.info().int)(&[x, y], dtype)).cast(dtype, dtype),
        _ => Scalar::Float((step.info().float)(&[a.to_f64(), b.to_f64()])),
    }
}

fn cost(ctx: &NodeCtx) -> Cost {
    let n = ctx.inputs[0].map_or_else(|| 0i64.into(), Type::elements);
    Cost { flops: n, bytes: util::moved(ctx) }
}

fn lower(ctx: &NodeCtx) -> Result<Lowered, OpError> {
    let p = params(ctx.attrs, ctx.inputs[0].map_or(0, Type::rank))?;
    Ok(Lowered::default()
        .int("op", p.code)
        .int("axes", util::mask(&p.axes))
        .int("keep", i64::from(p.keep))
        .int("elements", util::elements(ctx)))
}

fn attrs(op: &str, axes: &[i64], keep: bool) -> Attrs {
    Attrs::new().with("op", op).with("axes", axes.to_vec()).with("keep", keep)
}

/// The bound of `op` over `n` values in -1..1 stored as `dtype`: sums lose at most half a unit of 2^-23 a term.
fn bound(op: &str, dtype: DType, n: usize) -> Tolerance {
    let step = if dtype == DType::F64 { 2f64.powi(-53) } else { 2f64.powi(-24) };
    match (op, dtype.is_float()) {
        ("sum", true) => cases::tolerance(dtype, step * n as f64, 4.0 * step),
        ("mean", true) => cases::tolerance(dtype, step, 4.0 * step),
        ("prod", true) => cases::tolerance(dtype, 0.0, step * (n + 2) as f64),
        _ => Tolerance::EXACT,
    }
}

fn table() -> Vec<Case> {
    let mut out = shapes();
    out.extend(edges());
    out.extend(special());
    out
}

/// Every kind on every type it takes, over inner, outer and several axes, in each layout.
fn shapes() -> Vec<Case> {
    let rows: &[(&[usize], &[i64])] = &[
        (&[], &[]),
        (&[5], &[]),
        (&[1], &[0]),
        (&[3, 17], &[1]),
        (&[17, 3], &[0]),
        (&[4, 33], &[0, 1]),
        (&[2, 3, 5], &[1]),
        (&[2, 3, 5], &[0, -1]),
        (&[2, 5, 3, 4], &[1, 2]),
    ];
    let mut out = Vec::new();
    for kind in &KINDS {
        for dtype in DType::all().filter(|d| d.is_compute() && (kind.takes)(*d)) {
            for (i, (shape, axes)) in rows.iter().enumerate() {
                let layouts: &[Layout] = match dtype {
                    DType::F32 | DType::F16 | DType::I32 | DType::Bool => {
                        &[Layout::Dense, Layout::Rows, Layout::Strided]
                    }
                    _ => &[Layout::Dense],
                };
                for layout in layouts {
                    let t = cases::random(dtype, shape, i as u64);
                    let n = shape.iter().product();
                    let name = format!("{} {shape:?} over {axes:?} {layout:?} {dtype}", kind.name);
                    let input = CaseInput::new(t).layout(*layout);
                    let a = attrs(kind.name, axes, i % 2 == 0);
                    out.push(cases::case_of(name, a, vec![Some(input)], bound(kind.name, dtype, n)));
                }
            }
        }
    }
    out
}

/// Lengths at and one off tile sizes, along the last and the first axis.
fn edges() -> Vec<Case> {
    let mut out = Vec::new();
    for n in cases::EDGES.into_iter().chain([1023, 1024, 1025, 4099]) {
        for op in ["sum", "mean", "max", "min"] {
            for (shape, axis) in [([3, n], 1i64), ([n, 3], 0)] {
                let t = cases::random(DType::F32, &shape, n as u64);
                let name = format!("{op} length {n} axis {axis}");
                out.push(cases::case(name, attrs(op, &[axis], false), &[&t], bound(op, DType::F32, n)));
            }
        }
    }
    out
}

/// Empty axes, NaN, infinities, cancellation and wrapping, with stated results.
fn special() -> Vec<Case> {
    let mut out = Vec::new();
    let mut add = |name: &str, op: &str, dtype, shape: &[usize], v: &[f64], axes: &[i64], want: &[f64]| {
        let t = cases::values(dtype, shape, v);
        let c = cases::case(name, attrs(op, axes, false), &[&t], cases::tolerance(dtype, 0.0, 1e-6));
        out.push(cases::expecting(c, &[want]));
    };
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    for (op, want) in [("sum", 0.0), ("mean", nan), ("max", -inf), ("min", inf), ("prod", 1.0)] {
        add(&format!("{op} of an empty axis"), op, DType::F32, &[2, 0], &[], &[1], &[want; 2]);
        add(&format!("{op} of an empty batch"), op, DType::F32, &[0, 3], &[], &[1], &[]);
        add(&format!("{op} of nothing"), op, DType::F16, &[0], &[], &[0], &[want]);
    }
    add("max of no ints", "max", DType::I32, &[0], &[], &[0], &[i32::MIN.into()]);
    add("min of no bytes", "min", DType::U8, &[0], &[], &[0], &[255.0]);
    add("any of nothing", "any", DType::Bool, &[0], &[], &[0], &[0.0]);
    add("all of nothing", "all", DType::Bool, &[0], &[], &[0], &[1.0]);
    for op in ["sum", "mean", "max", "min", "prod"] {
        let v = [1.0, nan, 2.0, 3.0, inf, 4.0];
        let by_row = match op {
            "min" => [nan, 3.0],
            _ => [nan, inf],
        };
        add(&format!("{op} with NaN and infinity"), op, DType::F32, &[2, 3], &v, &[1], &by_row);
    }
    add("sum of opposite infinities", "sum", DType::F32, &[2], &[inf, -inf], &[0], &[nan]);
    let mut long = vec![1.0; 100];
    long[77] = nan;
    add("max with one NaN in a hundred", "max", DType::F32, &[100], &long, &[0], &[nan]);
    add("sum of halves stays exact", "sum", DType::F16, &[4096], &[0.5; 4096], &[0], &[2048.0]);
    add("sum of bf16 ones", "sum", DType::BF16, &[1024], &[1.0; 1024], &[0], &[1024.0]);
    add("mean of large halves", "mean", DType::F16, &[64], &[6e4; 64], &[0], &[6e4]);
    add("min over ints", "min", DType::I32, &[2], &[32768.0, 32767.0], &[0], &[32767.0]);
    add("sum wraps", "sum", DType::I8, &[3], &[100.0, 100.0, 100.0], &[0], &[44.0]);
    add("unsigned max", "max", DType::U32, &[2], &[4e9, 1.0], &[0], &[4e9]);
    add("signed min", "min", DType::I64, &[2], &[-9e15, 1.0], &[0], &[-9e15]);
    out
}
