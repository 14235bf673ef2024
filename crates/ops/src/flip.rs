//! `flip`: dimensions in reverse order. A copy, since strides are never negative.

use frit_ir::graph::Type;
use frit_ir::op::{Case, CaseInput, InferCtx, Layout, Lowered, NodeCtx, OpError, RefCtx, Tolerance};
use frit_ir::{Attrs, DType, OpDef, Tensor};

use crate::{cases, util};

/// The op.
pub fn def() -> OpDef {
    OpDef {
        name: "flip",
        summary: "the dimensions `axes` in reverse order",
        infer,
        reference: Some(reference),
        expand: None,
        vjp: None,
        cost: util::cost_of_copy,
        lower,
        view: None,
        updates: &[],
        cases: table,
    }
}

fn infer(ctx: &mut InferCtx) -> Result<Vec<Type>, OpError> {
    ctx.attrs.only(&["axes"])?;
    ctx.arity(1, 1)?;
    let ty = ctx.ty(0)?;
    util::whole_bytes(ty)?;
    util::axes("axes", &ctx.attrs.ints("axes")?, ty.rank())?;
    Ok(vec![ty.clone()])
}

fn reference(ctx: &RefCtx) -> Result<Vec<Tensor>, OpError> {
    let t = ctx.input(0)?;
    let shape = t.shape();
    let axes = util::axes("axes", &ctx.attrs.ints("axes")?, shape.len())?;
    let strides = util::strides(shape);
    let mut at = vec![0; shape.len()];
    let from = |index: &[usize]| {
        for (d, i) in index.iter().enumerate() {
            at[d] = if axes.contains(&d) { shape[d] - 1 - i } else { *i };
        }
        Some(util::offset(&at, &strides))
    };
    Ok(vec![util::rearrange(t, shape, &[], from)?])
}

fn lower(ctx: &NodeCtx) -> Result<Lowered, OpError> {
    let axes = util::axes("axes", &ctx.attrs.ints("axes")?, ctx.outputs[0].rank())?;
    Ok(Lowered::default().int("axes", util::mask(&axes)).int("elements", util::elements(ctx)))
}

fn table() -> Vec<Case> {
    let shapes: &[(&[usize], &[i64])] = &[
        (&[], &[]),
        (&[1], &[0]),
        (&[33], &[0]),
        (&[3, 16], &[1]),
        (&[3, 17], &[0]),
        (&[3, 31], &[0, 1]),
        (&[2, 3, 5], &[1, -1]),
        (&[2, 3, 5], &[]),
        (&[0, 4], &[0, 1]),
        (&[129], &[-1]),
    ];
    let mut out = Vec::new();
    for (i, (shape, axes)) in shapes.iter().enumerate() {
        for layout in [Layout::Dense, Layout::Rows, Layout::Strided] {
            for dtype in [DType::F32, DType::F16, DType::F64, DType::U8] {
                let input = CaseInput::new(cases::random(dtype, shape, i as u64)).layout(layout);
                let name = format!("{shape:?} along {axes:?} {layout:?} {dtype}");
                let attrs = Attrs::new().with("axes", axes.to_vec());
                out.push(cases::case_of(name, attrs, vec![Some(input)], Tolerance::EXACT));
            }
        }
    }
    for dtype in DType::all().filter(|d| d.size().is_some()) {
        let attrs = Attrs::new().with("axes", vec![1i64]);
        let t = cases::random(dtype, &[3, 5], 8);
        out.push(cases::case(format!("every type {dtype}"), attrs, &[&t], Tolerance::EXACT));
    }
    let t = cases::values(DType::I32, &[2, 2], &[1., 2., 3., 4.]);
    let c = cases::case("stated", Attrs::new().with("axes", vec![1i64]), &[&t], Tolerance::EXACT);
    out.push(cases::expecting(c, &[&[2., 1., 4., 3.]]));
    out
}
