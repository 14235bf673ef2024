//! `broadcast`: dimensions of one element repeated to the extents of `shape`, aligned at the last dimension. A view.

use frit_ir::dim::Dim;
use frit_ir::graph::Type;
use frit_ir::op::{Case, CaseInput, InferCtx, Layout, NodeCtx, OpError, RefCtx, Tolerance, View};
use frit_ir::symbols::Proof;
use frit_ir::{Attrs, DType, OpDef, Tensor};

use crate::{cases, util};

/// The op.
pub fn def() -> OpDef {
    OpDef {
        name: "broadcast",
        summary: "dimensions of one element repeated to the extents `shape`, aligned at the last",
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

fn infer(ctx: &mut InferCtx) -> Result<Vec<Type>, OpError> {
    ctx.attrs.only(&["shape"])?;
    ctx.arity(1, 1)?;
    let (ty, to) = (ctx.ty(0)?, util::shape_attr(ctx, "shape")?);
    util::whole_units(ty)?;
    let what = format!("{} does not broadcast to {}", util::show(&ty.shape), util::show(&to));
    let lead = to
        .len()
        .checked_sub(ty.rank())
        .ok_or_else(|| OpError::Shape(format!("{what}: the rank would shrink")))?;
    for (i, (d, out)) in ty.shape.iter().zip(&to[lead..]).enumerate() {
        if d.is(1) || d == out {
            continue;
        }
        // The view must know which dimensions repeat, so a symbol that can only be 1 has to be written as 1.
        if ctx.symbols.equal(d, &Dim::from(1i64)) == Proof::Yes {
            return Err(OpError::Shape(format!("{what}: {d} can only be 1; reshape it to 1 first")));
        }
        ctx.require_equal(d, out, &format!("{what}: dimension {i}"))?;
    }
    if ty.dtype.info().unit_elements > 1 && ty.shape.last() != to.last() {
        return Err(OpError::DType(format!(
            "the last dimension of {ty} cannot repeat: its elements share bytes"
        )));
    }
    Ok(vec![Type { dtype: ty.dtype, shape: to }])
}

fn reference(ctx: &RefCtx) -> Result<Vec<Tensor>, OpError> {
    let t = ctx.input(0)?;
    let shape = ctx.shape(0)?;
    let mut units = shape.clone();
    if let Some(last) = units.last_mut() {
        *last = last.div_ceil(t.dtype().info().unit_elements);
    }
    let strides = util::broadcast_strides(&util::unit_shape(t), &units);
    Ok(vec![util::rearrange(t, &shape, &[], |i| Some(util::offset(i, &strides)))?])
}

fn view(ctx: &NodeCtx, v: &View) -> Option<View> {
    let dims = ctx.outputs[0].shape.clone();
    let lead = dims.len().checked_sub(v.dims.len())?;
    let stride = |i: usize| match i.checked_sub(lead) {
        Some(j) if !v.dims[j].is(1) || dims[i].is(1) => v.strides[j].clone(),
        _ => Dim::from(0i64),
    };
    let strides = (0..dims.len()).map(stride).collect();
    Some(View { offset: v.offset.clone(), dims, strides })
}

fn table() -> Vec<Case> {
    let shapes: &[(&[usize], &[i64])] = &[
        (&[], &[3]),
        (&[1], &[5]),
        (&[5], &[3, 5]),
        (&[3, 1], &[3, 5]),
        (&[1, 33], &[17, 33]),
        (&[2, 1, 4], &[2, 3, 4]),
        (&[1, 1, 1], &[2, 3, 4]),
        (&[4], &[0, 4]),
        (&[1], &[0]),
        (&[3, 4], &[3, 4]),
    ];
    let mut out = Vec::new();
    for (i, (from, to)) in shapes.iter().enumerate() {
        for layout in [Layout::Dense, Layout::Rows, Layout::Strided] {
            for dtype in [DType::F32, DType::F16, DType::I32, DType::Bool] {
                let input = CaseInput::new(cases::random(dtype, from, i as u64)).layout(layout);
                let name = format!("{from:?} to {to:?} {layout:?} {dtype}");
                let attrs = Attrs::new().with("shape", to.to_vec());
                out.push(cases::case_of(name, attrs, vec![Some(input)], Tolerance::EXACT));
            }
        }
    }
    out
}
