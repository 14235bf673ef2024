//! `matmul`: products of matrices, batch dimensions broadcast. Accumulates in f32, in f64 for f64.

use frit_ir::dim::Dim;
use frit_ir::graph::{Shape, Type};
use frit_ir::op::{
    Case, CaseInput, Cost, InferCtx, Layout, Lowered, NodeCtx, OpError, RefCtx, Role, Tolerance,
};
use frit_ir::{Attrs, DType, OpDef, Tensor};

use crate::{cases, util};

/// The op.
pub fn def() -> OpDef {
    OpDef {
        name: "matmul",
        summary: "[…, M, K] times [..., K, N], batch dimensions broadcast",
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

fn infer(ctx: &mut InferCtx) -> Result<Vec<Type>, OpError> {
    ctx.attrs.only(&[])?;
    ctx.arity(2, 2)?;
    let (a, b) = (ctx.ty(0)?, ctx.ty(1)?);
    let dtype = util::dtype_of(ctx, 0, util::FLOATS)?;
    if b.dtype != dtype {
        return Err(OpError::DType(format!("operands are {a} and {b}; both must have one type, cast one")));
    }
    let both = format!("{} and {} do not multiply", util::show(&a.shape), util::show(&b.shape));
    if a.rank() < 2 || b.rank() < 2 {
        return Err(OpError::Shape(format!("{both}: each must have at least 2 dimensions")));
    }
    let (ka, kb) = (&a.shape[a.rank() - 1], &b.shape[b.rank() - 2]);
    ctx.require_equal(ka, kb, &format!("{both}: inner extents"))?;
    let batch = |t: &Type| -> Shape { t.shape[..t.rank() - 2].iter().cloned().collect() };
    let (x, y) = (batch(a), batch(b));
    let mut shape = ctx.broadcast(&[&x, &y]).map_err(|e| OpError::Shape(format!("{both}: batch {e}")))?;
    shape.push(a.shape[a.rank() - 2].clone());
    shape.push(b.shape[b.rank() - 1].clone());
    Ok(vec![Type { dtype, shape }])
}

fn reference(ctx: &RefCtx) -> Result<Vec<Tensor>, OpError> {
    let (a, b, shape) = (ctx.input(0)?, ctx.input(1)?, ctx.shape(0)?);
    let rank = shape.len();
    let batch = &shape[..rank - 2];
    let (m, n) = (shape[rank - 2], shape[rank - 1]);
    let k = a.shape()[a.shape().len() - 1];
    // Strides of the batch dimensions, counted in matrices.
    let walk = |t: &Tensor| util::broadcast_strides(&t.shape()[..t.shape().len() - 2], batch);
    let (wa, wb) = (walk(a), walk(b));
    let (x, y) = (a.to_f64()?, b.to_f64()?);
    let mut out = Vec::with_capacity(shape.iter().product());
    util::for_each_index(batch, |index| {
        let x = &x[util::offset(index, &wa) * m * k..];
        let y = &y[util::offset(index, &wb) * k * n..];
        for i in 0..m {
            let mut row = vec![0.0; n];
            for p in 0..k {
                for (r, v) in row.iter_mut().zip(&y[p * n..]) {
                    *r += x[i * k + p] * v;
                }
            }
            out.extend(row);
        }
    });
    Ok(vec![ctx.result(0, &out)?])
}

/// (M, K, N) of the node.
fn extents(ctx: &NodeCtx) -> (Dim, Dim, Dim) {
    let last = |t: Option<&Type>, back: usize| {
        t.and_then(|t| t.shape.iter().nth_back(back).cloned()).unwrap_or_default()
    };
    (last(ctx.inputs[0], 1), last(ctx.inputs[0], 0), last(ctx.inputs[1], 0))
}

fn cost(ctx: &NodeCtx) -> Cost {
    let (_, k, _) = extents(ctx);
    Cost { flops: util::elements(ctx) * k * Dim::from(2i64), bytes: util::moved(ctx) }
}

fn lower(ctx: &NodeCtx) -> Result<Lowered, OpError> {
    let (m, k, n) = extents(ctx);
    Ok(Lowered::default().int("m", m).int("k", k).int("n", n).int("elements", util::elements(ctx)))
}

/// The bound for operands in -1..1: each of K terms adds at most one rounding of a partial sum, which stays near √K.
fn bound(dtype: DType, k: usize) -> Tolerance {
    let step = if dtype == DType::F64 { 2f64.powi(-52) } else { 2f64.powi(-23) };
    cases::tolerance(dtype, step * (k + 4) as f64 / 2.0, step)
}

fn add(out: &mut Vec<Case>, dtype: DType, a: &[usize], b: &[usize], layouts: [Layout; 2], role: Role) {
    let k = a[a.len() - 1];
    let x = CaseInput::new(cases::random(dtype, a, k as u64)).layout(layouts[0]);
    let y = CaseInput::new(cases::random(dtype, b, k as u64 + 1)).layout(layouts[1]).role(role);
    let name = format!("{a:?} {:?} by {b:?} {:?} {role:?} {dtype}", layouts[0], layouts[1]);
    out.push(cases::case_of(name, Attrs::new(), vec![Some(x), Some(y)], bound(dtype, k)));
}

fn table() -> Vec<Case> {
    let mut out = Vec::new();
    tiles(&mut out);
    layouts(&mut out);
    out.extend(special());
    out
}

/// Extents at and one off tile sizes: each of M, N and K swept against two settings of the others.
fn tiles(out: &mut Vec<Case>) {
    const DENSE: [Layout; 2] = [Layout::Dense; 2];
    for n in cases::EDGES {
        for (m, k) in [(1, 35), (18, 5)] {
            add(out, DType::F32, &[m, k], &[k, n], DENSE, Role::Input);
            add(out, DType::F32, &[m, k], &[k, n], DENSE, Role::Param);
            add(out, DType::F32, &[n, k + 2], &[k + 2, m], DENSE, Role::Input);
            add(out, DType::F32, &[m, n], &[n, k + 1], DENSE, Role::Input);
        }
    }
    for dtype in [DType::F16, DType::BF16, DType::F64] {
        for (m, k, n) in [(1, 1, 1), (1, 64, 33), (3, 17, 16), (16, 16, 16), (33, 31, 47), (65, 129, 17)] {
            add(out, dtype, &[m, k], &[k, n], DENSE, Role::Input);
            add(out, dtype, &[m, k], &[k, n], DENSE, Role::Param);
        }
    }
    for (m, k, n) in [(5, 7, 6), (6, 255, 32), (7, 256, 48), (8, 257, 49), (130, 64, 65), (64, 513, 96)] {
        add(out, DType::F32, &[m, k], &[k, n], DENSE, Role::Input);
    }
}

/// Each layout of each operand, and batches that broadcast.
fn layouts(out: &mut Vec<Case>) {
    use Layout::{Dense, Rows, Strided};
    for dtype in cases::FLOATS.into_iter().chain([DType::F64]) {
        for x in [Dense, Rows, Strided] {
            for y in [Dense, Rows, Strided] {
                add(out, dtype, &[5, 33], &[33, 18], [x, y], Role::Input);
                add(out, dtype, &[2, 17, 16], &[2, 16, 31], [x, y], Role::Input);
            }
        }
    }
    let batches: &[(&[usize], &[usize])] = &[
        (&[3, 4, 5], &[5, 6]),
        (&[4, 5], &[3, 5, 6]),
        (&[1, 4, 5], &[3, 5, 6]),
        (&[2, 1, 4, 5], &[1, 3, 5, 6]),
        (&[2, 3, 1, 8], &[2, 3, 8, 4]),
        (&[5, 49, 24], &[24, 3]),
        (&[0, 4, 5], &[5, 6]),
        (&[2, 0, 5], &[5, 6]),
        (&[2, 4, 5], &[5, 0]),
    ];
    for (a, b) in batches {
        for l in [Dense, Rows, Strided] {
            add(out, DType::F32, a, b, [l, l], Role::Input);
        }
    }
}

fn special() -> Vec<Case> {
    let mut out = Vec::new();
    let mut add = |name: &str, dtype, a: (&[usize], &[f64]), b: (&[usize], &[f64]), want: &[f64]| {
        let (x, y) = (cases::values(dtype, a.0, a.1), cases::values(dtype, b.0, b.1));
        let c = cases::case(name, Attrs::new(), &[&x, &y], cases::tolerance(dtype, 0.0, 1e-6));
        out.push(cases::expecting(c, &[want]));
    };
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let ones = vec![1.0; 32 * 32 * 32];
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
        let name = format!("ones broadcast over a batch {dtype}");
        add(&name, dtype, (&[1, 32, 32], &ones[..1024]), (&[32, 32, 32], &ones), &vec![32.0; 32768]);
    }
    let f = DType::F32;
    add("no inner extent", f, (&[2, 0], &[]), (&[0, 3], &[]), &[0.0; 6]);
    add("one element", f, (&[1, 1], &[3.0]), (&[1, 1], &[-2.0]), &[-6.0]);
    add("zero times infinity", f, (&[1, 2], &[0.0, 1.0]), (&[2, 2], &[inf, 1.0, 1.0, 2.0]), &[nan, 2.0]);
    add("NaN stays in its row", f, (&[2, 2], &[nan, 0.0, 1.0, 1.0]), (&[2, 1], &[1.0, 1.0]), &[nan, 2.0]);
    add(
        "half sums beyond half precision",
        DType::F16,
        (&[1, 4096], &ones[..4096]),
        (&[4096, 1], &ones[..4096]),
        &[4096.0],
    );
    add(
        "half overflows at the end only",
        DType::F16,
        (&[1, 3], &[6e4, 6e4, -6e4]),
        (&[3, 1], &[1.0, 1.0, 1.0]),
        &[6e4],
    );
    add("large values", f, (&[1, 2], &[1e30, 1.0]), (&[2, 1], &[1e30, 1.0]), &[inf]);
    out
}
