//! `dequantize`: a tensor in a block format decoded to a float type.

use frit_ir::graph::Type;
use frit_ir::op::{Case, CaseInput, Cost, InferCtx, Layout, OpError, RefCtx, Role};
use frit_ir::{Attrs, DType, OpDef, Tensor};

use crate::{cases, util};

/// The op.
pub fn def() -> OpDef {
    OpDef {
        name: "dequantize",
        summary: "a block-format tensor decoded to `dtype`",
        infer,
        reference: Some(reference),
        expand: None,
        vjp: None,
        cost: |ctx| Cost { ..util::cost_per_element(ctx, 2) },
        lower: util::lower_elements,
        view: None,
        updates: &[],
        cases: table,
    }
}

const RESULTS: &[DType] = &[DType::F32, DType::F16, DType::BF16];

fn infer(ctx: &mut InferCtx) -> Result<Vec<Type>, OpError> {
    ctx.attrs.only(&["dtype"])?;
    ctx.arity(1, 1)?;
    let ty = ctx.ty(0)?;
    if !ty.dtype.is_block() {
        return Err(OpError::DType(format!("operand 0 is {ty}; it must be in a block format such as Q4_K")));
    }
    util::whole_units(ty)?;
    let dtype = ctx.attrs.dtype("dtype")?;
    if !RESULTS.contains(&dtype) {
        let list = frit_ir::op::list_dtypes(RESULTS);
        return Err(OpError::DType(format!("attribute `dtype` is {dtype}; it must be one of {list}")));
    }
    Ok(vec![Type { dtype, shape: ty.shape.clone() }])
}

fn reference(ctx: &RefCtx) -> Result<Vec<Tensor>, OpError> {
    Ok(vec![ctx.result(0, &ctx.input(0)?.to_f64()?)?])
}

fn table() -> Vec<Case> {
    let mut out = Vec::new();
    for dtype in DType::all().filter(|d| d.is_block()) {
        let unit = dtype.info().unit_elements;
        for (i, shape) in
            [&[unit][..], &[3, unit], &[2, 2 * unit], &[2, 3, 3 * unit], &[0, unit], &[17, unit]]
                .iter()
                .enumerate()
        {
            for to in RESULTS {
                for role in [Role::Input, Role::Param] {
                    let input = CaseInput::new(cases::random(dtype, shape, i as u64)).role(role);
                    let attrs = Attrs::new().with("dtype", *to);
                    let name = format!("{dtype} {shape:?} to {to} {role:?}");
                    // The minimum may be subtracted from an unrounded product.
                    let tolerance = cases::tolerance(*to, 3e-7, 3e-7);
                    out.push(cases::case_of(name, attrs, vec![Some(input)], tolerance));
                }
            }
        }
        let input = CaseInput::new(cases::random(dtype, &[2, 3, 2 * unit], 9)).layout(Layout::Rows);
        let attrs = Attrs::new().with("dtype", DType::F32);
        let tolerance = cases::tolerance(DType::F32, 3e-7, 3e-7);
        out.push(cases::case_of(format!("{dtype} rows apart"), attrs, vec![Some(input)], tolerance));
        let zero = cases::fill(dtype, &[2, unit], || 0.0);
        let attrs = Attrs::new().with("dtype", DType::F32);
        let c =
            cases::case(format!("{dtype} zeros"), attrs, &[&zero], cases::tolerance(DType::F32, 0.0, 0.0));
        out.push(cases::expecting(c, &[&vec![0.0; 2 * unit]]));
    }
    out
}
