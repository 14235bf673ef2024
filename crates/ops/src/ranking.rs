//! What `sort` and `top_k` share: the order of elements along an axis, and the cases that try it.
//!
//! NaN stands above every number, −0 equals +0, and of equal elements the one with the lower index comes first, in ascending
//! and in descending order alike. Values come out bit for bit as they were. Indices are i32, like every other index of a
//! graph (positions, page tables): half the memory of i64, and `gather` takes them as they are. So a row has at most 2³¹ − 1
//! elements.

use std::cmp::Ordering;

use frit_ir::dim::Dim;
use frit_ir::dtype::Kind;
use frit_ir::expr::Scalar;
use frit_ir::graph::Type;
use frit_ir::op::{Case, CaseInput, Cost, InferCtx, Layout, Lowered, NodeCtx, OpError, RefCtx, Tolerance};
use frit_ir::{Attrs, DType, Tensor};

use crate::{cases, util};

/// The types of values and indices: the operand's with the extent `k` along `axis` (its own if not given).
pub(crate) fn infer(ctx: &mut InferCtx, k: Option<Dim>) -> Result<Vec<Type>, OpError> {
    ctx.arity(1, 1)?;
    let ty = ctx.ty(0)?;
    util::compute_dtype(ctx, 0)?;
    let axis = util::axis("axis", ctx.attrs.int("axis")?, ty.rank())?;
    let extent = &ty.shape[axis];
    let most = Dim::from(i64::from(i32::MAX));
    ctx.require_at_most(extent, &most, &format!("axis {axis} by i32 indices"))?;
    let mut shape = ty.shape.clone();
    if let Some(k) = k {
        ctx.require_at_most(&Dim::from(0i64), &k, "attribute `k`")?;
        ctx.require_at_most(&k, extent, &format!("attribute `k`, axis {axis} of {}", util::show(&ty.shape)))?;
        shape[axis] = k;
    }
    Ok(vec![Type { dtype: ty.dtype, shape: shape.clone() }, Type { dtype: DType::I32, shape }])
}

fn ascending(a: Scalar, b: Scalar, dtype: DType) -> Ordering {
    match (a, b) {
        (Scalar::Int(a), Scalar::Int(b)) if dtype == DType::U64 => (a as u64).cmp(&(b as u64)),
        (Scalar::Int(a), Scalar::Int(b)) => a.cmp(&b),
        (a, b) => {
            let (a, b) = (a.to_f64(), b.to_f64());
            a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
        }
    }
}

/// The first elements of every row, as many as the results have, and their indices.
pub(crate) fn reference(ctx: &RefCtx, descending: bool) -> Result<Vec<Tensor>, OpError> {
    let (t, shape) = (ctx.input(0)?, ctx.shape(0)?);
    let axis = util::axis("axis", ctx.attrs.int("axis")?, shape.len())?;
    let (x, n, strides) = (util::read(t)?, t.shape()[axis], util::strides(t.shape()));
    let mut rows = shape.clone();
    rows[axis] = 1;
    // For each place of the results: the index along the axis of the element that comes there.
    let own = util::strides(&shape);
    let mut picks = vec![0; shape.iter().product()];
    util::for_each_index(&rows, |index| {
        let at = |i: usize| x[util::offset(index, &strides) + i * strides[axis]];
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|a, b| {
            let o = ascending(at(*a), at(*b), t.dtype());
            if descending { o.reverse() } else { o }
        });
        for (j, i) in order.into_iter().enumerate().take(shape[axis]) {
            picks[util::offset(index, &own) + j * own[axis]] = i;
        }
    });
    let mut next = picks.iter();
    let values = util::rearrange(t, &shape, &[], |index| {
        let mut from = index.to_vec();
        from[axis] = *next.next()?;
        Some(util::offset(&from, &strides))
    })?;
    let indices: Vec<f64> = picks.iter().map(|i| *i as f64).collect();
    Ok(vec![values, ctx.result(1, &indices)?])
}

/// A row of a million takes some twenty comparisons an element.
pub(crate) fn cost(ctx: &NodeCtx) -> Cost {
    let n = ctx.inputs[0].map_or_else(|| Dim::from(0i64), Type::elements);
    Cost { flops: n * Dim::from(20i64), bytes: util::moved(ctx) }
}

/// The bits of infinity of a float type, by which a kernel that sees bits tells numbers from NaN; 0 of other types.
fn infinity(dtype: DType) -> i64 {
    match dtype {
        DType::F64 => f64::INFINITY.to_bits() as i64,
        DType::F32 => f32::INFINITY.to_bits().into(),
        DType::F16 => 0x7c00,
        DType::BF16 => 0x7f80,
        _ => 0,
    }
}

/// The values that kernels ask for; `rows` is how many rows there are to order.
pub(crate) fn lower(ctx: &NodeCtx, descending: bool) -> Result<Lowered, OpError> {
    let out = &ctx.outputs[0];
    let axis = util::axis("axis", ctx.attrs.int("axis")?, out.rank())?;
    let extent = ctx.inputs[0].map_or_else(|| Dim::from(0i64), |t| t.shape[axis].clone());
    let others = out.shape.iter().enumerate().filter(|(i, _)| *i != axis);
    let rows = others.fold(Dim::from(1i64), |a, (_, d)| a * d.clone());
    Ok(Lowered::default()
        .int("axis", axis)
        .int("descending", i64::from(descending))
        .int("signed", i64::from(out.dtype.info().kind == Kind::Signed))
        .int("infinity", infinity(out.dtype))
        .int("extent", extent)
        .int("k", out.shape[axis].clone())
        .int("rows", rows)
        .int("elements", util::elements(ctx)))
}

/// How an op is told what to do: its attributes from axis, number of elements and direction.
pub(crate) type Ask = fn(axis: i64, k: usize, descending: bool) -> Attrs;

/// The cases of an op, told by `ask`, that gives `ks(n)` elements of rows of `n`.
pub(crate) fn cases(ask: Ask, ks: fn(usize) -> Vec<usize>) -> Vec<Case> {
    let mut out = shapes(ask, ks);
    out.extend(known(ask, ks));
    out.extend(special(ask, ks));
    out
}

/// Every axis, layout and type, lengths at and one off tile sizes.
fn shapes(ask: Ask, ks: fn(usize) -> Vec<usize>) -> Vec<Case> {
    let mut out = Vec::new();
    let mut add = |axis: i64, t: &Tensor, layout| {
        let n = t.shape()[util::axis("axis", axis, t.shape().len()).expect("an axis of the shape")];
        for (k, descending) in ks(n).into_iter().flat_map(|k| [(k, false), (k, true)]) {
            let name = format!(
                "{k} of {:?} axis {axis} descending {descending} {layout:?} {}",
                t.shape(),
                t.dtype()
            );
            let input = CaseInput::new(t.clone()).layout(layout);
            let attrs = ask(axis, k, descending);
            out.push(cases::case_of(name, attrs, vec![Some(input)], Tolerance::EXACT));
        }
    };
    let all: &[(&[usize], i64)] = &[
        (&[1], 0),
        (&[5], -1),
        (&[3, 17], 1),
        (&[17, 3], 0),
        (&[2, 33, 4], 1),
        (&[0, 4], 1),
        (&[4, 0], 1),
        (&[2, 3, 2, 16], 0),
        (&[1, 2, 1, 2, 3, 2, 1, 3], 4),
    ];
    for (i, (shape, axis)) in all.iter().enumerate() {
        for layout in [Layout::Dense, Layout::Rows, Layout::Strided] {
            for dtype in [DType::F32, DType::F16, DType::I32] {
                add(*axis, &cases::random(dtype, shape, i as u64), layout);
            }
        }
    }
    for dtype in DType::all().filter(|d| d.is_compute()) {
        add(1, &cases::random(dtype, &[3, 40], 5), Layout::Dense);
    }
    for n in cases::EDGES.into_iter().chain([255, 256, 257, 4099]) {
        add(1, &cases::random(DType::F32, &[5, n], n as u64), Layout::Dense);
    }
    out
}

/// A row whose order is known: its elements are drawn from buckets, the last of which holds NaN; a bucket keeps the order in
/// which it was filled.
fn buckets(n: usize, k: usize, descending: bool) -> (Vec<f64>, [Vec<f64>; 2]) {
    let mut numbers = cases::Numbers::new(n as u64);
    let many = n.div_ceil(3) + 1;
    let mut filled: Vec<Vec<usize>> = vec![Vec::new(); many];
    let value = |bucket: usize, i: usize| match bucket {
        _ if bucket + 1 == many => f64::NAN,
        // The bucket of both zeros.
        _ if bucket == many / 2 => [0.0, -0.0][i % 2],
        _ => bucket as f64 - (many / 2) as f64,
    };
    let mut x = Vec::with_capacity(n);
    for i in 0..n {
        let bucket = numbers.within(0, many as i64) as usize;
        filled[bucket].push(i);
        x.push(value(bucket, i));
    }
    let mut order: Vec<(usize, Vec<usize>)> = filled.into_iter().enumerate().collect();
    if descending {
        order.reverse();
    }
    let flat = || order.iter().flat_map(|(b, all)| all.iter().map(|i| (*b, *i))).take(k);
    let values = flat().map(|(b, i)| value(b, i)).collect();
    (x, [values, flat().map(|(_, i)| i as f64).collect()])
}

/// Long rows whose results are known without the reference: a permutation, ties by the lower index, NaN above every number.
fn known(ask: Ask, ks: fn(usize) -> Vec<usize>) -> Vec<Case> {
    let mut out = Vec::new();
    for n in [1, 1023, 1024, 1025, 2048, 100_000] {
        for (k, descending) in ks(n).into_iter().flat_map(|k| [(k, false), (k, true)]) {
            for dtype in [DType::F32, DType::F64] {
                let (x, [values, indices]) = buckets(n, k, descending);
                let t = cases::values(dtype, &[n], &x);
                let name = format!("{k} of {n} with ties and NaN descending {descending} {dtype}");
                let c = cases::case(name, ask(0, k, descending), &[&t], Tolerance::EXACT);
                out.push(cases::expecting(c, &[&values, &indices]));
            }
        }
    }
    out
}

/// Orders that are adverse to a selection, ends of types, zeros, NaN and infinities, with stated results.
fn special(ask: Ask, ks: fn(usize) -> Vec<usize>) -> Vec<Case> {
    let mut out = Vec::new();
    // `up` and `down` are the indices in ascending and in descending order.
    let mut add = |name: &str, t: Tensor, up: &[usize], down: &[usize]| {
        let x = t.to_f64().expect("values of a case");
        for (k, descending) in ks(x.len()).into_iter().flat_map(|k| [(k, false), (k, true)]) {
            let order = &if descending { down } else { up }[..k];
            let values: Vec<f64> = order.iter().map(|i| x[*i]).collect();
            let indices: Vec<f64> = order.iter().map(|i| *i as f64).collect();
            let name = format!("{k} of {name} descending {descending} {}", t.dtype());
            let c = cases::case(name, ask(-1, k, descending), &[&t], Tolerance::EXACT);
            out.push(cases::expecting(c, &[&values, &indices]));
        }
    };
    let n = 2000;
    let (up, down): (Vec<usize>, Vec<usize>) = ((0..n).collect(), (0..n).rev().collect());
    let rising: Vec<f64> = (0..n).map(|i| i as f64).collect();
    for dtype in [DType::F32, DType::I32, DType::I64, DType::U16] {
        add("rising", cases::values(dtype, &[n], &rising), &up, &down);
        let falling: Vec<f64> = rising.iter().rev().copied().collect();
        add("falling", cases::values(dtype, &[n], &falling), &down, &up);
        add("equal", cases::values(dtype, &[n], &vec![7.0; n]), &up, &up);
    }
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    for dtype in util::FLOATS {
        add("only NaN", cases::values(*dtype, &[n], &vec![nan; n]), &up, &up);
        let ends = [nan, inf, -0.0, -inf, 0.0, 1.0, nan, -1.0, -0.0, inf];
        let (up, down) = ([3, 7, 2, 4, 8, 5, 1, 9, 0, 6], [0, 6, 1, 9, 5, 2, 4, 8, 7, 3]);
        add("ends", cases::values(*dtype, &[10], &ends), &up, &down);
        // A NaN with its sign set, as 0/0 gives on some machines, is above every number too.
        let size = dtype.info().unit_bytes;
        let mut bytes = cases::values(*dtype, &[3], &[nan, inf, -1.0]).bytes().to_vec();
        bytes[size - 1] |= 0x80;
        add("negative NaN", Tensor::new(*dtype, &[3], bytes).expect("three"), &[2, 1, 0], &[0, 1, 2]);
    }
    let row = |dtype, v: &[f64]| cases::values(dtype, &[v.len()], v);
    add("ends", row(DType::I8, &[127., -128., 0., -1.]), &[1, 3, 2, 0], &[0, 2, 3, 1]);
    add("ends", row(DType::U8, &[127., 128., 0., 255.]), &[2, 0, 1, 3], &[3, 1, 0, 2]);
    add("ends", row(DType::I16, &[32767., -32768., 0., -1.]), &[1, 3, 2, 0], &[0, 2, 3, 1]);
    add("ends", row(DType::I32, &[2147483647., -2147483648., 0., -1.]), &[1, 3, 2, 0], &[0, 2, 3, 1]);
    add("ends", row(DType::U32, &[1., 4294967295., 0., 2147483648.]), &[2, 0, 3, 1], &[1, 3, 0, 2]);
    add("truth", row(DType::Bool, &[1., 0., 1., 0.]), &[1, 3, 0, 2], &[0, 2, 1, 3]);
    // Neighbours that are one number in f64, on both sides of the sign bit.
    let bits = [u64::MAX, 1 << 62 | 1, 1 << 62, 0, u64::MAX - 1, i64::MIN as u64];
    let bytes: Vec<u8> = bits.iter().flat_map(|v| v.to_le_bytes()).collect();
    let whole = |dtype| Tensor::new(dtype, &[6], bytes.as_slice()).expect("six of eight bytes");
    add("near neighbours", whole(DType::U64), &[3, 2, 1, 5, 4, 0], &[0, 4, 5, 1, 2, 3]);
    add("near neighbours", whole(DType::I64), &[5, 4, 0, 3, 2, 1], &[1, 2, 3, 0, 4, 5]);
    out
}
