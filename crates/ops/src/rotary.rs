//! Rotary position embedding (Su et al., "RoFormer", 2021): rotates pairs of elements by an angle that grows with the
//! position. Tables of frequencies come from [`crate::rope_scaling`].

use frit_ir::dim::Dim;
use frit_ir::graph::Type;
use frit_ir::op::{Case, CaseInput, InferCtx, Layout, Lowered, NodeCtx, OpError, RefCtx, Tolerance};
use frit_ir::{Attrs, DType, OpDef, Tensor};

use crate::cases::{case_of, expecting, random, tolerance, values};
use crate::shapes::{operand, same};
use crate::util::{FLOATS, cost_per_element, elements};

/// The op `rotary` {dims, style, factor}: x `[B, T, H, D]` (any float type), positions i32 `[B, T]` or `[1, T]`, inverse
/// frequencies f32 `[dims/2]`, to x's type. Pair i turns by the angle position · `inv_freq[i]`, rounded to f32; its cosine and
/// sine are multiplied by `factor`. Style "half" pairs elements i and i + dims/2, "interleaved" 2i and 2i + 1. Elements
/// from `dims` on stay as they are.
pub fn def() -> OpDef {
    OpDef {
        name: "rotary",
        summary: "rotates pairs of elements by an angle proportional to the position",
        infer,
        reference: Some(reference),
        expand: None,
        vjp: None,
        cost: |ctx| cost_per_element(ctx, 6),
        lower,
        view: None,
        updates: &[],
        cases,
    }
}

pub(crate) struct Rotary {
    dims: usize,
    interleaved: bool,
    factor: f64,
}

pub(crate) fn read(attrs: &Attrs) -> Result<Rotary, OpError> {
    attrs.only(&["dims", "style", "factor"])?;
    let dims = attrs.int("dims")?;
    if dims < 2 || dims % 2 != 0 {
        return Err(OpError::Value(format!("attribute `dims` is {dims}; it must be even and at least 2")));
    }
    let interleaved = match &*attrs.str("style")? {
        "half" => false,
        "interleaved" => true,
        other => {
            let why = format!("attribute `style` is {other:?}; known are half, interleaved");
            return Err(OpError::Value(why));
        }
    };
    let factor = attrs.float("factor")?;
    if !factor.is_finite() {
        return Err(OpError::Value(format!("attribute `factor` is {factor}; it must be finite")));
    }
    Ok(Rotary { dims: dims as usize, interleaved, factor })
}

fn infer(ctx: &mut InferCtx) -> Result<Vec<Type>, OpError> {
    let r = read(ctx.attrs)?;
    ctx.arity(3, 3)?;
    let x = operand(ctx, 0, FLOATS, &["B", "T", "H", "D"])?;
    let positions = operand(ctx, 1, &[DType::I32], &["B", "T"])?;
    let freq = operand(ctx, 2, &[DType::F32], &["dims/2"])?;
    ctx.require_at_most(&Dim::from(r.dims), &x.shape[3], "attribute `dims` and the head dimension")?;
    ctx.require_equal(&positions.shape[1], &x.shape[1], "positions and x, T")?;
    if !positions.shape[0].is(1) {
        ctx.require_equal(&positions.shape[0], &x.shape[0], "positions (1 or B rows) and x, B")?;
    }
    same(ctx, &freq.shape, &[Dim::from(r.dims / 2)], "inverse frequencies")?;
    Ok(vec![x.clone()])
}

fn lower(ctx: &NodeCtx) -> Result<Lowered, OpError> {
    let r = read(ctx.attrs)?;
    Ok(Lowered::default()
        .int("dims", r.dims)
        .int("interleaved", i64::from(r.interleaved))
        .float("factor", r.factor)
        .int("elements", elements(ctx)))
}

fn reference(ctx: &RefCtx) -> Result<Vec<Tensor>, OpError> {
    let r = read(ctx.attrs)?;
    let (x, positions) = (ctx.input(0)?, ctx.input(1)?);
    let freq = ctx.input(2)?.to_f32()?;
    let (tokens, heads, d) = (x.shape()[1], x.shape()[2], x.shape()[3]);
    let at = positions.to_i64()?;
    let rows = positions.shape()[0];
    let mut out = x.to_f64()?;
    for (i, head) in out.chunks_exact_mut(d.max(1)).enumerate() {
        let (b, t) = (i / heads / tokens, i / heads % tokens);
        let position = at[if rows == 1 { t } else { b * tokens + t }] as f32;
        for (p, f) in freq.iter().enumerate() {
            let angle = f64::from(position * f);
            let (sin, cos) = (angle.sin() * r.factor, angle.cos() * r.factor);
            let (i, j) = if r.interleaved { (2 * p, 2 * p + 1) } else { (p, p + r.dims / 2) };
            let (a, b) = (head[i], head[j]);
            head[i] = a * cos - b * sin;
            head[j] = b * cos + a * sin;
        }
    }
    Ok(vec![ctx.result(0, &out)?])
}

/// Attributes of a case.
fn attrs(dims: usize, style: &str, factor: f64) -> Attrs {
    Attrs::new().with("dims", dims as i64).with("style", style).with("factor", factor)
}

/// base^(−2i/dims).
fn frequencies(dims: usize, base: f64) -> Tensor {
    let v: Vec<f64> = (0..dims / 2).map(|i| base.powf(-(2.0 * i as f64) / dims as f64)).collect();
    values(DType::F32, &[dims / 2], &v)
}

/// Rows of consecutive positions, one row for each start.
fn positions(starts: &[i32], tokens: usize) -> Tensor {
    let v: Vec<f64> =
        starts.iter().flat_map(|s| (0..tokens).map(move |t| f64::from(*s) + t as f64)).collect();
    values(DType::I32, &[starts.len(), tokens], &v)
}

fn bound(d: DType) -> Tolerance {
    tolerance(d, 2e-6, 1e-6)
}

/// A case with x of `shape` in `dtype`.
fn one(name: String, attrs: Attrs, x: (DType, [usize; 4]), starts: &[i32], layout: Layout) -> Case {
    let (dtype, shape) = x;
    let dims = attrs.int("dims").map_or(2, |d| d as usize);
    let x = CaseInput::new(random(dtype, &shape, 31)).layout(layout);
    let inputs = [x, CaseInput::new(positions(starts, shape[1])), CaseInput::new(frequencies(dims, 10000.0))];
    case_of(name, attrs, inputs.map(Some).into(), bound(dtype))
}

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for style in ["half", "interleaved"] {
        for dtype in crate::cases::FLOATS {
            for d in [2, 4, 16, 24, 64, 80, 96, 128, 192, 256] {
                let (a, x) = (attrs(d, style, 1.0), (dtype, [2, 3, 2, d]));
                all.push(one(format!("{style}-{dtype}-d{d}"), a, x, &[6, 40], Layout::Dense));
            }
            // A quarter of the head, and other parts of it.
            for (dims, d) in [(16, 64), (32, 128), (2, 7), (6, 16), (64, 96), (20, 80)] {
                let (a, x) = (attrs(dims, style, 1.0), (dtype, [1, 4, 3, d]));
                all.push(one(format!("{style}-{dtype}-{dims}-of-{d}"), a, x, &[0], Layout::Dense));
            }
            for layout in [Layout::Rows, Layout::Strided] {
                let (a, x) = (attrs(32, style, 1.0), (dtype, [2, 5, 4, 48]));
                all.push(one(format!("{style}-{dtype}-{layout:?}"), a, x, &[3, 9], layout));
            }
        }
        let f32x = |shape| (DType::F32, shape);
        for t in [1, 2, 15, 16, 17, 33] {
            let a = attrs(16, style, 1.0);
            all.push(one(format!("{style}-tokens-{t}"), a, f32x([1, t, 3, 16]), &[5], Layout::Dense));
        }
        let a = attrs(32, style, 1.0);
        all.push(one(format!("{style}-one-row"), a.clone(), f32x([3, 4, 2, 32]), &[11], Layout::Dense));
        all.push(one(
            format!("{style}-far"),
            a.clone(),
            f32x([2, 2, 1, 32]),
            &[32767, 131071],
            Layout::Dense,
        ));
        all.push(one(format!("{style}-negative"), a.clone(), f32x([1, 9, 1, 32]), &[-5], Layout::Dense));
        all.push(one(format!("{style}-no-tokens"), a, f32x([1, 0, 2, 32]), &[0], Layout::Dense));
        let a = attrs(32, style, 1.138_629_4);
        all.push(one(format!("{style}-factor"), a, f32x([1, 6, 2, 40]), &[700], Layout::Dense));
    }
    for layout in [Layout::Rows, Layout::Strided] {
        let x = CaseInput::new(random(DType::F32, &[2, 5, 3, 32], 31));
        let at = CaseInput::new(positions(&[7, 300], 5)).layout(layout);
        let inputs = [x, at, CaseInput::new(frequencies(32, 10000.0)).layout(layout)];
        let name = format!("positions-{layout:?}");
        all.push(case_of(name, attrs(32, "half", 1.0), inputs.map(Some).into(), bound(DType::F32)));
    }
    all.push(equal_rows());
    all.extend(quarter_turns());
    all
}

/// Ones at the same positions in both rows of the batch.
fn equal_rows() -> Case {
    let x = CaseInput::new(values(DType::F32, &[2, 16, 1, 256], &[1.0; 2 * 16 * 256]));
    let inputs = [x, CaseInput::new(positions(&[6, 6], 16)), CaseInput::new(frequencies(256, 10000.0))];
    case_of("equal-rows", attrs(256, "half", 1.0), inputs.map(Some).into(), bound(DType::F32))
}

/// A turn by π/2 takes (a, b) to (−b, a); the tail stays.
fn quarter_turns() -> Vec<Case> {
    let quarter = values(DType::F32, &[2], &[std::f64::consts::FRAC_PI_2, 0.0]);
    let x = values(DType::F32, &[1, 2, 1, 5], &[1.0, 2.0, 3.0, 4.0, 5.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let at = positions(&[0], 2);
    let inputs = || [&x, &at, &quarter].map(|t| Some(CaseInput::new(t.clone()))).into();
    let half = case_of("quarter-turn-half", attrs(4, "half", 1.0), inputs(), bound(DType::F32));
    let inter =
        case_of("quarter-turn-interleaved", attrs(4, "interleaved", 2.0), inputs(), bound(DType::F32));
    vec![
        expecting(half, &[&[1.0, 2.0, 3.0, 4.0, 5.0, -3.0, 2.0, 1.0, 4.0, 5.0]]),
        expecting(inter, &[&[2.0, 4.0, 6.0, 8.0, 5.0, -4.0, 2.0, 6.0, 8.0, 5.0]]),
    ]
}
