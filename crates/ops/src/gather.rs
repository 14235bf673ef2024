//! `gather`: rows of a table chosen by index. An index out of range, a negative one too, gives zeros.

use frit_ir::graph::Type;
use frit_ir::op::{
    Case, CaseInput, Cost, InferCtx, Layout, Lowered, NodeCtx, OpError, RefCtx, Role, Tolerance,
};
use frit_ir::{Attrs, DType, OpDef, Tensor};

use crate::{cases, util};

/// The op.
pub fn def() -> OpDef {
    OpDef {
        name: "gather",
        summary: "slices of a table along `axis` chosen by i32 or i64 indices; block tables decode to `dtype`",
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

/// What block tables decode to.
const DECODED: &[DType] = &[DType::F32, DType::F16, DType::BF16];

fn infer(ctx: &mut InferCtx) -> Result<Vec<Type>, OpError> {
    ctx.attrs.only(&["axis", "dtype"])?;
    ctx.arity(2, 2)?;
    let (table, indices) = (ctx.ty(0)?, ctx.ty(1)?);
    util::dtype_of(ctx, 1, &[DType::I32, DType::I64])?;
    let axis = util::axis("axis", ctx.attrs.int("axis")?, table.rank())?;
    let stated = ctx.attrs.get("dtype").map(|_| ctx.attrs.dtype("dtype")).transpose()?;
    let dtype = if table.dtype.is_block() {
        if table.rank() != 2 || axis != 0 {
            return Err(OpError::Shape(format!(
                "{table} is read by whole rows: it must have rank 2 and axis 0, not axis {axis}"
            )));
        }
        stated.unwrap_or(DType::F32)
    } else {
        util::whole_bytes(table)?;
        stated.unwrap_or(table.dtype)
    };
    let allowed = if table.dtype.is_block() { DECODED } else { &[table.dtype] };
    if !allowed.contains(&dtype) {
        return Err(OpError::DType(format!(
            "attribute `dtype` is {dtype}; a table of {} gives {}",
            table.dtype,
            frit_ir::op::list_dtypes(allowed)
        )));
    }
    let shape = table.shape[..axis].iter().chain(&indices.shape).chain(&table.shape[axis + 1..]);
    Ok(vec![Type { dtype, shape: shape.cloned().collect() }])
}

fn reference(ctx: &RefCtx) -> Result<Vec<Tensor>, OpError> {
    let (table, indices, shape) = (ctx.input(0)?, ctx.input(1)?, ctx.shape(0)?);
    let dtype = ctx.outputs[0].dtype;
    let decoded = if table.dtype().is_block() {
        Tensor::from_f64(dtype, table.shape(), &table.to_f64()?)?
    } else {
        table.clone()
    };
    let axis = util::axis("axis", ctx.attrs.int("axis")?, table.shape().len())?;
    let (rows, rank) = (table.shape()[axis], indices.shape().len());
    let (own, pick) = (util::strides(table.shape()), util::strides(indices.shape()));
    let indices = indices.to_i64()?;
    let from = |index: &[usize]| {
        let row = indices[util::offset(&index[axis..axis + rank], &pick)];
        let row = usize::try_from(row).ok().filter(|r| *r < rows)?;
        let before = util::offset(&index[..axis], &own);
        Some(before + row * own[axis] + util::offset(&index[axis + rank..], &own[axis + 1..]))
    };
    let zero = vec![0; dtype.info().unit_bytes];
    Ok(vec![util::rearrange(&decoded, &shape, &zero, from)?])
}

/// Only the chosen rows are read.
fn cost(ctx: &NodeCtx) -> Cost {
    let (out, indices) = (ctx.outputs[0].bytes(), ctx.inputs[1].map(Type::bytes));
    let bytes = out.clone() + out + indices.unwrap_or_default();
    Cost { flops: 0i64.into(), bytes }
}

fn lower(ctx: &NodeCtx) -> Result<Lowered, OpError> {
    let rank = ctx.inputs[0].map_or(0, Type::rank);
    let axis = util::axis("axis", ctx.attrs.int("axis")?, rank)?;
    Ok(Lowered::default().int("axis", axis).int("elements", util::elements(ctx)))
}

fn table() -> Vec<Case> {
    let mut out = plain();
    out.extend(params());
    for dtype in DType::all().filter(|d| d.is_block()) {
        let row = 2 * dtype.info().unit_elements;
        let t = CaseInput::new(cases::random(dtype, &[5, row], 3));
        let ids = CaseInput::new(cases::values(DType::I32, &[2, 3], &[4., 0., -1., 3., 5., 4.]));
        for to in DECODED {
            for role in [Role::Input, Role::Param] {
                let attrs = Attrs::new().with("axis", 0i64).with("dtype", *to);
                let name = format!("{dtype} to {to} {role:?}");
                let inputs = vec![Some(t.clone().role(role)), Some(ids.clone())];
                // The decoding arithmetic may be fused: the minimum is subtracted from a product.
                out.push(cases::case_of(name, attrs, inputs, cases::tolerance(*to, 3e-7, 3e-7)));
            }
        }
        for layout in [Layout::Rows, Layout::Strided] {
            let far = cases::values(DType::I64, &[2, 3], &[4., 0., -1., 3., 5., 4294967296.]);
            let inputs = vec![Some(t.clone().layout(layout)), Some(CaseInput::new(far).layout(layout))];
            let attrs = Attrs::new().with("axis", 0i64).with("dtype", DType::F32);
            let name = format!("{dtype} {layout:?} by i64");
            out.push(cases::case_of(name, attrs, inputs, cases::tolerance(DType::F32, 3e-7, 3e-7)));
        }
    }
    out
}

/// Tables that are parameters, which a device may keep in a layout of its own.
fn params() -> Vec<Case> {
    let mut out = Vec::new();
    for (dtype, shape) in [
        (DType::F32, vec![37, 50]),
        (DType::F16, vec![37, 50]),
        (DType::BF16, vec![5, 3, 20]),
        (DType::Q8_0, vec![20, 64]),
    ] {
        for axis in 0..shape.len() as i64 - 1 {
            for layout in [Layout::Dense, Layout::Rows, Layout::Strided] {
                for index in [DType::I32, DType::I64] {
                    let t = CaseInput::new(cases::random(dtype, &shape, 3)).role(Role::Param);
                    let rows = shape[axis as usize] as i64;
                    let ids =
                        CaseInput::new(cases::random_ints(index, &[2, 3], -1, rows + 1, 7)).layout(layout);
                    let mut attrs = Attrs::new().with("axis", axis);
                    if dtype.is_block() {
                        attrs.set("dtype", DType::F32);
                    }
                    let name = format!("parameter {dtype} {shape:?} axis {axis} by {index} {layout:?}");
                    let tolerance = cases::tolerance(DType::F32, 3e-7, 3e-7);
                    out.push(cases::case_of(name, attrs, vec![Some(t), Some(ids)], tolerance));
                }
            }
        }
    }
    out
}

fn plain() -> Vec<Case> {
    let shapes: &[(&[usize], i64, &[usize])] = &[
        (&[7], 0, &[3]),
        (&[7, 16], 0, &[2, 5]),
        (&[7, 33], 0, &[]),
        (&[7, 1], 0, &[129]),
        (&[3, 9, 4], 1, &[5]),
        (&[3, 9, 4], -1, &[2, 2]),
        (&[3, 9], 1, &[0]),
        (&[4, 0], 0, &[3]),
        (&[130, 17], 0, &[31]),
        (&[2, 3, 5, 7], 2, &[4]),
    ];
    let mut out = Vec::new();
    for (i, (shape, axis, ids)) in shapes.iter().enumerate() {
        let rows = shape[util::axis("axis", *axis, shape.len()).expect("an axis of the shape")] as i64;
        for layout in [Layout::Dense, Layout::Rows, Layout::Strided] {
            for dtype in [DType::F32, DType::F16, DType::I64, DType::U8] {
                for index in [DType::I32, DType::I64] {
                    let t = CaseInput::new(cases::random(dtype, shape, i as u64)).layout(layout);
                    let ids = cases::random_ints(index, ids, 0, rows, 7);
                    let ids = CaseInput::new(ids).layout(layout);
                    let name = format!("{shape:?} axis {axis} by {index} {i} {layout:?} {dtype}");
                    let attrs = Attrs::new().with("axis", *axis);
                    out.push(cases::case_of(name, attrs, vec![Some(t), Some(ids)], Tolerance::EXACT));
                }
            }
        }
    }
    for dtype in DType::all().filter(|d| d.size().is_some()) {
        let (t, ids) = (cases::random(dtype, &[5, 3], 1), cases::values(DType::I32, &[3], &[4., 0., 2.]));
        let attrs = Attrs::new().with("axis", 0i64);
        out.push(cases::case(format!("every type {dtype}"), attrs, &[&t, &ids], Tolerance::EXACT));
    }
    let t = cases::values(DType::F32, &[2, 2], &[1., 2., 3., 4.]);
    for (dtype, far) in [(DType::I32, -2147483648.0), (DType::I64, 4294967296.0)] {
        let ids = cases::values(dtype, &[5], &[1., 2., -1., 0., far]);
        let attrs = Attrs::new().with("axis", 0i64);
        let c = cases::case(format!("out of range {dtype}"), attrs, &[&t, &ids], Tolerance::EXACT);
        out.push(cases::expecting(c, &[&[3., 4., 0., 0., 0., 0., 1., 2., 0., 0.]]));
    }
    let (none, ids) = (cases::values(DType::F32, &[0, 2], &[]), cases::values(DType::I32, &[1], &[0.]));
    let c = cases::case("empty table", Attrs::new().with("axis", 0i64), &[&none, &ids], Tolerance::EXACT);
    out.push(cases::expecting(c, &[&[0., 0.]]));
    out
}
