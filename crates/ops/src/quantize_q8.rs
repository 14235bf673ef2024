//! Rounding of activations to 8 bits per block of 32, given back as floats: what a quantized matmul does to its left
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

/// The op `quantize_q8`: x `[..., K]` (f32, f16 or bf16; K a multiple of 32) to f32 of the same shape. Each run of 32 elements
/// becomes q·d with d = max|x|/127 and q = x/d rounded half to even, within ±127; all of it in f32.
pub fn def() -> OpDef {
    OpDef {
        name: "quantize_q8",
        summary: "rounds each 32 elements of a row to 8-bit codes with a common scale, as f32",
        infer,
        reference: Some(reference),
        expand: None,
        vjp: None,
        cost: |ctx| cost_per_element(ctx, 4),
        lower: |ctx: &NodeCtx| Ok(Lowered::default().int("elements", elements(ctx))),
        view: None,
        updates: None,
        cases,
    }
}

fn infer(ctx: &mut InferCtx) -> Result<Vec<Type>, OpError> {
    ctx.attrs.only(&[])?;
    ctx.arity(1, 1)?;
    dtype_of(ctx, 0, &FLOATS)?;
    let x = ctx.ty(0)?;
    let Some(k) = x.shape.last() else {
        return Err(OpError::Shape(format!("operand 0 is {x}; it must have at least one dimension")));
    };
    multiple(ctx, k, &Dim::from(BLOCK), "row length")?;
    Ok(vec![Type { dtype: DType::F32, shape: x.shape.clone() }])
}

/// Codes and scale of one block. Division and rounding are those of f32, so that every device gets the same codes.
fn block(x: &[f32], out: &mut Vec<f32>) {
    let amax = x.iter().fold(0f32, |a, v| a.max(v.abs()));
    let d = amax / 127.0;
    for v in x {
        let q = if d == 0.0 { 0.0 } else { (v / d).round_ties_even().clamp(-127.0, 127.0) };
        out.push(q * d);
    }
}

fn reference(ctx: &RefCtx) -> Result<Vec<Tensor>, OpError> {
    let x = ctx.input(0)?.to_f32()?;
    let mut out = Vec::with_capacity(x.len());
    for b in x.chunks_exact(BLOCK) {
        block(b, &mut out);
    }
    Ok(vec![Tensor::from_f32(&ctx.shape(0)?, &out)?])
}

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for d in FLOATS {
        for (i, shape) in [[1, 32], [3, 64], [5, 96], [2, 1024]].iter().enumerate() {
            let name = format!("{d}-{}x{}", shape[0], shape[1]);
            all.push(case(name, Attrs::new(), &[&random(d, shape, i as u64)], Tolerance::EXACT));
        }
    }
    // With a largest element of 127 the scale is 1 and halves are ties.
    let mut x = vec![127.0, 0.5, 1.5, 2.5, -0.5, -1.5, 126.5, -126.5, 3.49];
    let mut want = vec![127.0, 0.0, 2.0, 2.0, 0.0, -2.0, 126.0, -126.0, 3.0];
    x.resize(BLOCK, 0.0);
    want.resize(BLOCK, 0.0);
    let t = values(DType::F32, &[1, BLOCK], &x);
    all.push(expecting(case("ties", Attrs::new(), &[&t], Tolerance::EXACT), &[&want]));
    let zero = values(DType::F32, &[2, BLOCK], &[0.0; 2 * BLOCK]);
    all.push(expecting(case("zeros", Attrs::new(), &[&zero], Tolerance::EXACT), &[&[0.0; 2 * BLOCK]]));
    let mut n = Numbers::new(9);
    let wide = fill(DType::F32, &[4, 2, BLOCK], || n.unit() * 10f64.powi(n.within(-6, 7) as i32));
    all.push(case("wide-range", Attrs::new(), &[&wide], Tolerance::EXACT));
    all.push(case("empty", Attrs::new(), &[&random(DType::F32, &[0, 64], 1)], Tolerance::EXACT));
    for layout in [Layout::Rows, Layout::Strided] {
        let x = frit_ir::op::CaseInput::new(random(DType::F32, &[6, 64], 4)).layout(layout);
        all.push(case_of(format!("{layout:?}"), Attrs::new(), vec![Some(x)], Tolerance::EXACT));
    }
    all
}
