//! `transpose`: the dimensions in another order. A view.

use frit_ir::graph::Type;
use frit_ir::op::{Case, CaseInput, InferCtx, Layout, NodeCtx, OpError, RefCtx, Tolerance, View};
use frit_ir::{Attrs, DType, OpDef, Tensor};

use crate::{cases, util};

/// The op.
pub fn def() -> OpDef {
    OpDef {
        name: "transpose",
        summary: "the dimensions in the order `perm`: result dimension i is operand dimension perm[i]",
        infer,
        reference: Some(reference),
        expand: None,
        vjp: None,
        cost: util::cost_of_view,
        lower: util::lower_elements,
        view: Some(view),
        updates: &[],
        cases: table,
    }
}

fn perm(attrs: &Attrs, rank: usize) -> Result<Vec<usize>, OpError> {
    let all = attrs.ints("perm")?;
    let valid = all.len() == rank && (0..rank as i64).all(|i| all.contains(&i));
    if !valid {
        return Err(OpError::Value(format!(
            "attribute `perm` is {all:?}; it must hold each of 0..{rank} once, the operand has rank {rank}"
        )));
    }
    Ok(all.into_iter().map(|i| i as usize).collect())
}

fn infer(ctx: &mut InferCtx) -> Result<Vec<Type>, OpError> {
    ctx.attrs.only(&["perm"])?;
    ctx.arity(1, 1)?;
    let ty = ctx.ty(0)?;
    let perm = perm(ctx.attrs, ty.rank())?;
    util::whole_units(ty)?;
    if ty.dtype.info().unit_elements > 1 && perm.last().is_some_and(|p| p + 1 != perm.len()) {
        return Err(OpError::DType(format!(
            "the last dimension of {ty} must stay last: its elements share bytes; dequantize or cast first"
        )));
    }
    Ok(vec![Type { dtype: ty.dtype, shape: perm.iter().map(|p| ty.shape[*p].clone()).collect() }])
}

fn reference(ctx: &RefCtx) -> Result<Vec<Tensor>, OpError> {
    let t = ctx.input(0)?;
    let own = util::strides(&util::unit_shape(t));
    let strides: Vec<usize> = perm(ctx.attrs, own.len())?.into_iter().map(|p| own[p]).collect();
    Ok(vec![util::rearrange(t, &ctx.shape(0)?, &[], |i| Some(util::offset(i, &strides)))?])
}

fn view(ctx: &NodeCtx, v: &View) -> Option<View> {
    let perm = perm(ctx.attrs, v.dims.len()).ok()?;
    Some(View {
        offset: v.offset.clone(),
        dims: perm.iter().map(|p| v.dims[*p].clone()).collect(),
        strides: perm.iter().map(|p| v.strides[*p].clone()).collect(),
    })
}

fn table() -> Vec<Case> {
    let shapes: &[(&[usize], &[i64])] = &[
        (&[], &[]),
        (&[5], &[0]),
        (&[3, 5], &[1, 0]),
        (&[33, 17], &[1, 0]),
        (&[2, 3, 4], &[0, 2, 1]),
        (&[2, 3, 4], &[2, 0, 1]),
        (&[2, 5, 3, 8], &[0, 2, 1, 3]),
        (&[0, 4], &[1, 0]),
        (&[1, 7, 1], &[1, 2, 0]),
        (&[129, 2], &[1, 0]),
    ];
    let mut out = Vec::new();
    for (i, (shape, perm)) in shapes.iter().enumerate() {
        for layout in [Layout::Dense, Layout::Rows, Layout::Strided] {
            for dtype in [DType::F32, DType::BF16, DType::U8, DType::I64] {
                let input = CaseInput::new(cases::random(dtype, shape, i as u64)).layout(layout);
                let name = format!("{shape:?} by {perm:?} {layout:?} {dtype}");
                let attrs = Attrs::new().with("perm", perm.to_vec());
                out.push(cases::case_of(name, attrs, vec![Some(input)], Tolerance::EXACT));
            }
        }
    }
    let t = cases::values(DType::F32, &[2, 3], &[1., 2., 3., 4., 5., 6.]);
    let stated = cases::case("stated", Attrs::new().with("perm", vec![1i64, 0]), &[&t], Tolerance::EXACT);
    out.push(cases::expecting(stated, &[&[1., 4., 2., 5., 3., 6.]]));
    out
}
