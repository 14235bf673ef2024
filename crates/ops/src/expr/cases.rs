//! The cases of `expr`: every scalar op on every type of its domain, from one table of inputs and bounds; casts between
//! all types; shapes, broadcasting and layouts; expressions of many inputs, steps and outputs.

use std::f64::consts::{FRAC_PI_2, PI, TAU};
use std::sync::Arc;

use frit_ir::expr::ScalarOp as S;
use frit_ir::expr::compute_type;
use frit_ir::op::{Case, CaseInput, Layout, Tolerance};
use frit_ir::{Attrs, DType, Expr, Tensor};

use crate::cases::{self, FLOATS};

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

/// Floats of every kind: zeros, halves, powers, thresholds of exponentials, huge and special values.
const GENERAL: &[f64] = &[
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3.7, -3.7, 8.0, -8.0, 20.0, -20.0, 1e-3, -1e-3,
    1e-6, -1e-6, 1e4, -1e4, 1e30, -1e30, INF, -INF, NAN,
];
/// Where e^x is a normal number, overflows, or is far below the smallest.
const EXPONENTS: &[f64] = &[
    0.0, -0.0, 1.0, -1.0, 1e-4, -1e-4, 0.3465, -0.3466, 10.0, -10.0, 88.0, -87.0, 88.7, 90.0, -120.0, 1e9,
    -1e9, INF, -INF, NAN,
];
/// Positive numbers of every size, the edges of the domain, and numbers outside it.
const POSITIVE: &[f64] =
    &[1.0, 0.5, 2.0, 4.0, 0.999, 1.001, 3.0, 10.0, 1e-6, 1e-30, 1e30, 6e4, 0.0, -0.0, -1.0, -INF, INF, NAN];
/// Angles; reduction of arguments far beyond these is not asked for.
const ANGLES: &[f64] =
    &[0.0, -0.0, 0.5, -0.5, 0.785, FRAC_PI_2, PI, -PI, TAU, 31.4, -100.0, 1e3, -1e4, 1e-4, INF, -INF, NAN];
/// Angles away from the poles of the tangent.
const TANGENTS: &[f64] = &[0.0, -0.0, 0.5, -0.5, 1.3, -1.3, 1.5, 3.0, -4.0, 1e-4, 100.0, INF, -INF, NAN];
/// Pairs are taken from here: all against all.
const PAIRED: &[f64] = &[0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 7.25, 1e-20, -1e20, 1e30, INF, -INF, NAN];
/// Divisors and dividends whose remainder needs no more digits than the type has.
const REMAINDERS: &[f64] = &[1.0, -1.0, 0.5, 2.0, -3.0, 7.25, -7.25, 100.0, -1e3, 1e6, NAN];
/// Bases and exponents; powers that leave the range overflow or vanish by a wide margin.
const POWERS: &[f64] = &[0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 3.0, -3.0, 10.0, 1.25, INF, -INF, NAN];

/// How far a device may be from the rounded value in f32: (absolute, relative). For f64 both shrink with the precision.
#[derive(Clone, Copy)]
struct Bound(f64, f64);

/// One correctly rounded operation (results below the smallest normal number may vanish).
const EXACT: Bound = Bound(0.0, 0.0);
/// Division and roots, which some devices round to 3 units in the last place.
const NEAR: Bound = Bound(0.0, 4e-7);
/// Polynomial approximations whose relative error holds down to zero.
const APPROX: Bound = Bound(1e-36, 1e-6);
/// Approximations that cancel near a zero of the function.
const ABSOLUTE: Bound = Bound(5e-7, 1e-6);

/// Inputs and bound of a float op.
fn domain(op: S) -> (&'static [f64], Bound) {
    match op {
        S::Exp => (EXPONENTS, Bound(0.0, 1e-6)),
        S::Log => (POSITIVE, Bound(1.5e-7, 5e-7)),
        S::Sqrt | S::Rsqrt => (POSITIVE, NEAR),
        S::Sin | S::Cos => (ANGLES, ABSOLUTE),
        S::Tan => (TANGENTS, Bound(5e-7, 4e-6)),
        S::Atan | S::Tanh | S::Erf => (GENERAL, Bound(2e-7, 1e-6)),
        S::Sigmoid | S::Silu | S::Softplus => (GENERAL, APPROX),
        S::Gelu | S::GeluTanh => (GENERAL, ABSOLUTE),
        S::Div => (PAIRED, NEAR),
        // The exponent times the logarithm of the base loses the digits before its point.
        S::Pow => (POWERS, Bound(1e-36, 2e-5)),
        S::Mod => (REMAINDERS, NEAR),
        _ if op.info().arity == 1 => (GENERAL, EXACT),
        _ => (PAIRED, EXACT),
    }
}

/// The bound for results stored as `dtype`.
fn tolerance(dtype: DType, bound: Bound) -> Tolerance {
    match dtype {
        // A unit in the last place of f64 is 2^-29 of one of f32; twice that leaves room for tables of coefficients.
        DType::F64 => {
            let shrink = 2f64.powi(-28);
            cases::tolerance(dtype, bound.0 * shrink, bound.1 * shrink)
        }
        d if d.is_float() && bound.1 == 0.0 => {
            let abs = if d == DType::F16 { 0.0 } else { f32::MIN_POSITIVE.into() };
            Tolerance { abs, rel: 0.0 }
        }
        d if d.is_float() => cases::tolerance(d, bound.0, bound.1),
        _ => Tolerance::EXACT,
    }
}

/// Integers at both ends of `dtype`, around zero, and some between.
fn integers(dtype: DType) -> Vec<f64> {
    let bits = 8 * dtype.info().unit_bytes as i32;
    let signed = dtype.info().kind == frit_ir::dtype::Kind::Signed;
    let top = if signed { 2f64.powi(bits - 1) } else { 2f64.powi(bits) };
    // Above 2^53 the ends themselves are the only exact f64 values near them.
    let top = if bits == 64 { top } else { top - 1.0 };
    let mut v = vec![0.0, 1.0, 2.0, 3.0, 5.0, 7.0, 31.0, 100.0, top];
    if signed {
        v.extend([-1.0, -2.0, -3.0, -7.0, -100.0, -2f64.powi(bits - 1)]);
    }
    v
}

/// The inputs of `op` on `dtype`, as one column.
fn column(op: S, dtype: DType) -> Vec<f64> {
    match dtype {
        DType::Bool => vec![0.0, 1.0],
        d if d.is_int() => integers(d),
        _ => domain(op).0.to_vec(),
    }
}

/// Every combination of `arity` values of the column; unary ops also get random ones between.
fn operands(op: S, dtype: DType) -> Vec<Vec<f64>> {
    let column = column(op, dtype);
    let arity = op.info().arity;
    if arity == 1 {
        let mut v = column;
        if dtype.is_float() && op != S::Tan {
            let mut n = cases::Numbers::new(op as u64);
            v.extend(
                (0..40).map(|_| if op == S::Log { 4.0 * n.unit().abs() + 0.01 } else { 6.0 * n.unit() }),
            );
        }
        return vec![v];
    }
    let mut rows = vec![Vec::new(); arity];
    let n = column.len();
    for i in 0..n.pow(arity as u32) {
        for (j, row) in rows.iter_mut().enumerate() {
            row.push(column[i / n.pow(j as u32) % n]);
        }
    }
    rows
}

fn attrs(e: Expr) -> Attrs {
    Attrs::new().with("expr", Arc::new(e))
}

pub(super) fn all() -> Vec<Case> {
    let mut out = Vec::new();
    for op in S::all().filter(|o| !matches!(o, S::Const | S::Cast | S::Where | S::Clamp)) {
        for dtype in DType::all().filter(|d| d.is_compute() && op.info().domain.holds(compute_type(*d))) {
            out.push(scalar(op, dtype));
        }
    }
    for dtype in DType::all().filter(|d| d.is_compute()) {
        out.extend(ternary(dtype));
        out.push(constants(dtype));
        out.extend(DType::all().filter(|d| d.is_compute()).map(|to| cast(dtype, to)));
    }
    out.extend(stated());
    out.extend(shapes());
    out.extend(large());
    out
}

fn scalar(op: S, dtype: DType) -> Case {
    let gives = if op.info().gives == frit_ir::expr::scalar::Gives::Bool { DType::Bool } else { dtype };
    let inputs: Vec<Tensor> =
        operands(op, dtype).iter().map(|v| cases::values(dtype, &[v.len()], v)).collect();
    let e = Expr::single(op, &vec![dtype; inputs.len()], gives);
    let bound = if dtype.is_float() { domain(op).1 } else { EXACT };
    let refs: Vec<&Tensor> = inputs.iter().collect();
    cases::case(format!("{} {dtype}", op.name()), attrs(e), &refs, tolerance(gives, bound))
}

/// `where` and `clamp`.
fn ternary(dtype: DType) -> Vec<Case> {
    let column = column(S::Add, dtype);
    let n = column.len();
    let second: Vec<f64> = column.iter().rev().copied().collect();
    let cond: Vec<f64> = (0..n).map(|i| f64::from(u8::from(i % 3 == 0))).collect();
    let (c, a) = (cases::values(DType::Bool, &[n], &cond), cases::values(dtype, &[n], &column));
    let b = cases::values(dtype, &[n], &second);
    let e = Expr::single(S::Where, &[DType::Bool, dtype, dtype], dtype);
    let mut out =
        vec![cases::case(format!("where {dtype}"), attrs(e), &[&c, &a, &b], tolerance(dtype, EXACT))];
    if dtype != DType::Bool {
        let e = Expr::single(S::Clamp, &[dtype; 3], dtype);
        let (lo, hi) = (cases::values(dtype, &[1], &[1.0]), cases::values(dtype, &[], &[5.0]));
        let name = format!("clamp {dtype}");
        out.push(cases::case(name, attrs(e), &[&a, &lo, &hi], tolerance(dtype, EXACT)));
    }
    out
}

/// x chosen against a constant of its type.
fn constants(dtype: DType) -> Case {
    let mut e = Expr::new(&[dtype]);
    let compute = compute_type(dtype);
    let one = e.constant(compute, 1.0);
    let equal = e.push(S::Eq, &[0, one]);
    let r = e.push(S::Where, &[equal, 0, one]);
    e.output(r, dtype);
    let v = column(S::Add, dtype);
    let t = cases::values(dtype, &[v.len()], &v);
    cases::case(format!("constant {dtype}"), attrs(e), &[&t], Tolerance::EXACT)
}

/// Conversion of the whole range of `from`: floats truncate and saturate, NaN gives 0, integers wrap.
fn cast(from: DType, to: DType) -> Case {
    let v = match from {
        DType::Bool => vec![0.0, 1.0],
        d if d.is_int() => integers(d),
        _ => vec![
            0.0,
            -0.0,
            0.5,
            -0.5,
            0.75,
            -0.75,
            1.0,
            -1.0,
            1.5,
            2.5,
            -2.5,
            100.0,
            127.0,
            128.0,
            255.0,
            256.0,
            -128.0,
            -129.0,
            32768.0,
            -32768.0,
            65504.0,
            1e6,
            -1e6,
            3e9,
            -3e9,
            1e10,
            2f64.powi(63),
            -(2f64.powi(63)),
            1e20,
            INF,
            -INF,
            NAN,
        ],
    };
    let mut e = Expr::new(&[from]);
    let r = e.cast(0, to);
    e.output(r, to);
    let t = cases::values(from, &[v.len()], &v);
    cases::case(format!("cast {from} to {to}"), attrs(e), &[&t], Tolerance::EXACT)
}

/// Results that are known without the reference.
fn stated() -> Vec<Case> {
    type Row = (&'static str, S, DType, &'static [&'static [f64]], &'static [f64]);
    let f = DType::F32;
    let rows: &[Row] = &[
        ("clamp hands NaN on", S::Clamp, f, &[&[NAN, 2.0, -1.0], &[0.0; 3], &[1.0; 3]], &[NAN, 1.0, 0.0]),
        ("max hands NaN on", S::Max, f, &[&[NAN, 1.0, -0.0], &[1.0, NAN, 3.0]], &[NAN, NAN, 3.0]),
        ("min hands NaN on", S::Min, f, &[&[NAN, 1.0, -INF], &[1.0, NAN, 3.0]], &[NAN, NAN, -INF]),
        ("relu hands NaN on", S::Relu, f, &[&[NAN, -1.0, 2.0]], &[NAN, 0.0, 2.0]),
        ("min of ints", S::Min, DType::I32, &[&[32768.0], &[32767.0]], &[32767.0]),
        ("softplus of a small sum", S::Softplus, f, &[&[-12.3392]], &[4.3768e-6]),
        ("gelu by erf", S::Gelu, f, &[&[1.0, -1.0, 2.0]], &[0.841344746, -0.158655254, 1.954499736]),
        ("gelu by tanh", S::GeluTanh, f, &[&[1.0, -1.0, 2.0]], &[0.841191991, -0.158808009, 1.954597694]),
        ("round to even", S::Round, f, &[&[0.5, 1.5, 2.5, -0.5, -1.5]], &[0.0, 2.0, 2.0, 0.0, -2.0]),
        ("silu of infinities", S::Silu, f, &[&[-INF, INF, 0.0]], &[0.0, INF, 0.0]),
        ("integers wrap", S::Add, DType::I8, &[&[127.0, -128.0], &[1.0, -1.0]], &[-128.0, 127.0]),
        (
            "division truncates",
            S::Div,
            DType::I32,
            &[&[-7.0, 7.0, 1.0], &[2.0, -2.0, 0.0]],
            &[-3.0, -3.0, 0.0],
        ),
        ("remainder has the divisor's sign", S::Mod, DType::I32, &[&[-7.0, 7.0], &[3.0, -3.0]], &[2.0, -2.0]),
        ("float remainder", S::Mod, f, &[&[-7.0, 7.0, 5.5], &[3.0, -3.0, 2.0]], &[2.0, -2.0, 1.5]),
        (
            "powers of special values",
            S::Pow,
            f,
            &[&[0.0, NAN, -2.0, 2.0], &[0.0, 0.0, 3.0, -2.0]],
            &[1.0, 1.0, -8.0, 0.25],
        ),
        ("NaN differs from itself", S::Eq, f, &[&[NAN, 1.0, -0.0], &[NAN, 1.0, 0.0]], &[0.0, 1.0, 1.0]),
        ("unsigned order", S::Lt, DType::U32, &[&[4294967295.0, 1.0], &[1.0, 4294967295.0]], &[0.0, 1.0]),
    ];
    let mut out = Vec::new();
    for (name, op, dtype, inputs, want) in rows {
        let inputs: Vec<Tensor> = inputs.iter().map(|v| cases::values(*dtype, &[v.len()], v)).collect();
        let gives = if matches!(op, S::Eq | S::Lt) { DType::Bool } else { *dtype };
        let e = Expr::single(*op, &vec![*dtype; inputs.len()], gives);
        let refs: Vec<&Tensor> = inputs.iter().collect();
        // The stated digits of softplus are five.
        let bound = if *op == S::Softplus { Bound(0.0, 1e-5) } else { domain(*op).1 };
        out.push(cases::expecting(cases::case(*name, attrs(e), &refs, tolerance(gives, bound)), &[want]));
    }
    out.extend(rounded_once());
    out
}

/// f64 cast to the narrow floats: just above, at and just below a tie, nearer than an f32 tells.
fn rounded_once() -> Vec<Case> {
    let mut out = Vec::new();
    for (to, step) in [(DType::F16, 2f64.powi(-10)), (DType::BF16, 2f64.powi(-7))] {
        let (tie, least) = (1.0 + step / 2.0, 2f64.powi(-40));
        let x = [tie + least, tie, tie - least, -(tie + least), -(tie - least)];
        let want: &[f64] = &[1.0 + step, 1.0, 1.0, -(1.0 + step), -1.0];
        let x = cases::values(DType::F64, &[x.len()], &x);
        let mut e = Expr::new(&[DType::F64]);
        let narrow = e.cast(0, to);
        e.output(narrow, to);
        let name = format!("f64 as {to} rounds once");
        out.push(cases::expecting(cases::case(name, attrs(e), &[&x], Tolerance::EXACT), &[want]));
    }
    out
}

/// Lengths around vectors and tiles, broadcasting and layouts, on one expression: (a + b) · b.
fn shapes() -> Vec<Case> {
    use Layout::{Dense, Rows, Strided};
    let pairs: &[(&[usize], &[usize])] = &[
        (&[], &[]),
        (&[5], &[]),
        (&[], &[5]),
        (&[3, 1], &[1, 4]),
        (&[3, 33], &[33]),
        (&[3, 33], &[3, 1]),
        (&[2, 3, 16], &[3, 1]),
        (&[2, 1, 17], &[5, 1]),
        (&[4, 1, 3, 1], &[2, 1, 31]),
        (&[0, 3], &[3]),
        (&[2, 0], &[2, 1]),
        (&[1, 1, 1], &[1]),
        (&[2, 3, 5, 7], &[2, 3, 5, 7]),
        (&[2, 1, 2, 1, 2, 1, 2, 3], &[1, 2, 1, 2, 1, 2, 1, 3]),
    ];
    let mut out = Vec::new();
    let mut add = |dtype: DType, a: &[usize], b: &[usize], la, lb| {
        let mut e = Expr::new(&[dtype, dtype]);
        let sum = e.push(S::Add, &[0, 1]);
        let r = e.push(S::Mul, &[sum, 1]);
        e.output(r, dtype);
        let x = CaseInput::new(cases::random(dtype, a, 1)).layout(la);
        let y = CaseInput::new(cases::random(dtype, b, 2)).layout(lb);
        let name = format!("{a:?} {la:?} with {b:?} {lb:?} {dtype}");
        // A device may contract the sum and product into fewer roundings.
        let t = tolerance(dtype, Bound(2e-7, 2e-7));
        out.push(cases::case_of(name, attrs(e), vec![Some(x), Some(y)], t));
    };
    for (a, b) in pairs {
        for (la, lb) in [(Dense, Dense), (Rows, Dense), (Strided, Rows), (Dense, Strided)] {
            add(DType::F32, a, b, la, lb);
        }
        add(DType::F16, a, b, Strided, Dense);
        add(DType::I32, a, b, Rows, Strided);
    }
    for n in cases::EDGES.into_iter().chain([1023, 1025, 4097]) {
        for dtype in FLOATS {
            add(dtype, &[n], &[n], Dense, Dense);
            add(dtype, &[2, n], &[n], Rows, Dense);
        }
    }
    out
}

/// Several outputs of different types, mixed inputs, many inputs and many steps.
fn large() -> Vec<Case> {
    let mut out = Vec::new();
    let mut gated = Expr::new(&[DType::F16, DType::BF16, DType::F32]);
    let silu = gated.push(S::Silu, &[0]);
    let product = gated.push(S::Mul, &[silu, 1]);
    let sum = gated.push(S::Add, &[product, 2]);
    let positive = gated.constant(DType::F32, 0.0);
    let sign = gated.push(S::Gt, &[sum, positive]);
    gated.output(sum, DType::F32);
    gated.output(product, DType::F16);
    gated.output(sum, DType::BF16);
    gated.output(sign, DType::Bool);
    let x = cases::random(DType::F16, &[3, 33], 1);
    let (y, z) = (cases::random(DType::BF16, &[33], 2), cases::random(DType::F32, &[3, 1], 3));
    let t = tolerance(DType::BF16, Bound(1e-6, 1e-6));
    out.push(cases::case("four outputs", attrs(gated), &[&x, &y, &z], t));

    let n = 40u16;
    let mut wide = Expr::new(&vec![DType::F32; n as usize]);
    let total = (1..n).fold(0, |sum, i| wide.push(S::Add, &[sum, i]));
    wide.output(total, DType::F32);
    let inputs: Vec<Tensor> = (0..n.into()).map(|i| cases::random(DType::F32, &[2, 17], i)).collect();
    let refs: Vec<&Tensor> = inputs.iter().collect();
    out.push(cases::case("forty inputs", attrs(wide), &refs, tolerance(DType::F32, Bound(5e-6, 0.0))));

    let mut deep = Expr::new(&[DType::F32]);
    let half = deep.constant(DType::F32, 0.5);
    let mut v = 0;
    for _ in 0..150 {
        let product = deep.push(S::Mul, &[v, half]);
        v = deep.push(S::Add, &[product, half]);
    }
    deep.output(v, DType::F32);
    let x = cases::random(DType::F32, &[33], 9);
    out.push(cases::case("three hundred steps", attrs(deep), &[&x], tolerance(DType::F32, Bound(1e-6, 0.0))));

    let mut rounded = Expr::new(&[DType::F32]);
    let half = rounded.cast(0, DType::F16);
    let back = rounded.push(S::Sub, &[0, half]);
    rounded.output(back, DType::F32);
    let c = cases::case(
        "a cast rounds in between",
        attrs(rounded),
        &[&cases::random(DType::F32, &[65], 4)],
        tolerance(DType::F32, EXACT),
    );
    out.push(c);

    let mut none = Expr::new(&[]);
    let v = none.constant(DType::F32, 2.5);
    none.output(v, DType::F32);
    out.push(cases::expecting(cases::case("no inputs", attrs(none), &[], Tolerance::EXACT), &[&[2.5]]));
    out
}
