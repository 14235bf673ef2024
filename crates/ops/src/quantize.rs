//! Rounding of activations to integers per block of 32, given back as floats: what a quantized matmul does to its left
//! operand, as an op of its own, so that the fused form has an expansion.

use frit_ir::dim::Dim;
use frit_ir::graph::Type;
use frit_ir::op::{Case, InferCtx, Layout, Lowered, NodeCtx, OpError, RefCtx, Tolerance};
use frit_ir::{Attrs, DType, OpDef, Tensor};

use crate::cases::{FLOATS, Numbers, case, case_of, expecting, fill, random, values};
use crate::shapes::multiple;
use crate::util::{cost_per_element, dtype_of, elements};

/// Elements that share a scale.
pub(crate) const BLOCK: usize = 32;

/// The largest code of 8 bits, and the radix that splits a code of 16 bits into two of them.
const Q8: f32 = 127.0;
const RADIX: f32 = 254.0;

/// The largest code of `bits` bits: 127 for 8, and 127 + 254 · 127 for 16, so that a code is two of 8 bits:
/// q = 254 · high + low with both within ±127.
pub(crate) fn largest_code(bits: i64) -> f32 {
    if bits == 16 { Q8 + RADIX * Q8 } else { Q8 }
}

/// The op `quantize` {bits: 8 or 16}: x `[..., K]` (f32, f16 or bf16; K a multiple of 32) to f32 of the same shape. Each run of 32
/// elements becomes q·d with d = max|x|/L and q = x/d rounded half to even, within ±L, where L is 127 for 8 bits and 32385
/// for 16; all of it in f32. With 16 bits the value is 254·d·high + d·low rounded once, q = 254·high + low.
pub fn def() -> OpDef {
    OpDef {
        name: "quantize",
        summary: "rounds each 32 elements of a row to 8- or 16-bit codes with a common scale, as f32",
        infer,
        reference: Some(reference),
        expand: None,
        vjp: None,
        cost: |ctx| cost_per_element(ctx, 4),
        lower,
        view: None,
        updates: &[],
        cases,
    }
}

fn lower(ctx: &NodeCtx) -> Result<Lowered, OpError> {
    Ok(Lowered::default().int("bits", ctx.attrs.int("bits")?).int("elements", elements(ctx)))
}

fn infer(ctx: &mut InferCtx) -> Result<Vec<Type>, OpError> {
    ctx.attrs.only(&["bits"])?;
    let bits = ctx.attrs.int("bits")?;
    if bits != 8 && bits != 16 {
        return Err(OpError::Value(format!("attribute `bits` is {bits}; it must be 8 or 16")));
    }
    ctx.arity(1, 1)?;
    dtype_of(ctx, 0, &FLOATS)?;
    let x = ctx.ty(0)?;
    let Some(k) = x.shape.last() else {
        return Err(OpError::Shape(format!("operand 0 is {x}; it must have at least one dimension")));
    };
    multiple(ctx, k, &Dim::from(BLOCK), "row length")?;
    Ok(vec![Type { dtype: DType::F32, shape: x.shape.clone() }])
}

/// Codes and scale of one block; one that holds NaN or infinity is NaN throughout. Division and rounding are those of f32, so that every device gets the same codes.
fn block(x: &[f32], largest: f32, out: &mut Vec<f32>) {
    let amax = x.iter().fold(0f32, |a, v| if v.is_nan() || a.is_nan() { f32::NAN } else { a.max(v.abs()) });
    let d = amax / largest;
    for v in x {
        let q = if d == 0.0 { 0.0 } else { (v / d).round_ties_even().clamp(-largest, largest) };
        out.push(q * d);
    }
}

fn reference(ctx: &RefCtx) -> Result<Vec<Tensor>, OpError> {
    let x = ctx.input(0)?.to_f32()?;
    let mut out = Vec::with_capacity(x.len());
    let largest = largest_code(ctx.attrs.int("bits")?);
    for b in x.chunks_exact(BLOCK) {
        block(b, largest, &mut out);
    }
    Ok(vec![Tensor::from_f32(&ctx.shape(0)?, &out)?])
}

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    let bits = |n: i64| Attrs::new().with("bits", n);
    for (d, n) in FLOATS.into_iter().flat_map(|d| [(d, 8), (d, 16)]) {
        for (i, shape) in [[1, 32], [3, 64], [5, 96], [2, 1024]].iter().enumerate() {
            let name = format!("{d}-{}x{}-{n}", shape[0], shape[1]);
            all.push(case(name, bits(n), &[&random(d, shape, i as u64)], Tolerance::EXACT));
        }
    }
    // With a largest element of 127 the scale is 1 and halves are ties.
    let mut x = vec![127.0, 0.5, 1.5, 2.5, -0.5, -1.5, 126.5, -126.5, 3.49];
    let mut want = vec![127.0, 0.0, 2.0, 2.0, 0.0, -2.0, 126.0, -126.0, 3.0];
    x.resize(BLOCK, 0.0);
    want.resize(BLOCK, 0.0);
    let t = values(DType::F32, &[1, BLOCK], &x);
    all.push(expecting(case("ties", bits(8), &[&t], Tolerance::EXACT), &[&want]));
    let zero = values(DType::F32, &[2, BLOCK], &[0.0; 2 * BLOCK]);
    all.push(expecting(case("zeros", bits(16), &[&zero], Tolerance::EXACT), &[&[0.0; 2 * BLOCK]]));
    for bad in [f64::NAN, f64::INFINITY] {
        let mut x = vec![0.0; 3 * BLOCK];
        x[BLOCK + 3] = bad;
        let want: Vec<f64> = (0..3 * BLOCK).map(|i| if i / BLOCK == 1 { f64::NAN } else { 0.0 }).collect();
        let c = case(
            format!("{bad}-among-zeros"),
            bits(8),
            &[&values(DType::F32, &[3 * BLOCK], &x)],
            Tolerance::EXACT,
        );
        all.push(expecting(c, &[&want]));
    }
    let mut n = Numbers::new(9);
    let wide = fill(DType::F32, &[4, 2, BLOCK], || n.unit() * 10f64.powi(n.within(-6, 7) as i32));
    all.push(case("wide-range", bits(16), &[&wide], Tolerance::EXACT));
    all.push(case("empty", bits(8), &[&random(DType::F32, &[0, 64], 1)], Tolerance::EXACT));
    for layout in [Layout::Rows, Layout::Strided] {
        let x = frit_ir::op::CaseInput::new(random(DType::F32, &[6, 64], 4)).layout(layout);
        all.push(case_of(format!("{layout:?}"), bits(16), vec![Some(x)], Tolerance::EXACT));
    }
    all
}
