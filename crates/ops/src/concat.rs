//! `concat`: operands one after another along an axis.

use frit_ir::dim::Dim;
use frit_ir::graph::Type;
use frit_ir::op::{Case, CaseInput, InferCtx, Layout, Lowered, NodeCtx, OpError, RefCtx, Role, Tolerance};
use frit_ir::{Attrs, DType, OpDef, Tensor};

use crate::{cases, util};

/// The op.
pub fn def() -> OpDef {
    OpDef {
        name: "concat",
        summary: "operands one after another along `axis`",
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
    ctx.attrs.only(&["axis"])?;
    if ctx.inputs.is_empty() {
        return Err(OpError::Operands { want: "at least 1".into(), got: 0 });
    }
    let first = ctx.ty(0)?;
    util::whole_bytes(first)?;
    let axis = util::axis("axis", ctx.attrs.int("axis")?, first.rank())?;
    let mut sum = Dim::from(0i64);
    for i in 0..ctx.inputs.len() {
        let ty = ctx.ty(i)?;
        if ty.dtype != first.dtype || ty.rank() != first.rank() {
            return Err(OpError::Shape(format!(
                "operand {i} is {ty}; it must have the type and rank of operand 0, {first}"
            )));
        }
        for (j, (a, b)) in first.shape.iter().zip(&ty.shape).enumerate().filter(|(j, _)| *j != axis) {
            let what = format!("{first} and {ty} do not join along axis {axis}: dimension {j}");
            ctx.require_equal(a, b, &what)?;
        }
        sum = sum + ty.shape[axis].clone();
    }
    let mut ty = first.clone();
    ty.shape[axis] = sum;
    Ok(vec![ty])
}

fn reference(ctx: &RefCtx) -> Result<Vec<Tensor>, OpError> {
    let shape = ctx.shape(0)?;
    let axis = util::axis("axis", ctx.attrs.int("axis")?, shape.len())?;
    let size = ctx.outputs[0].dtype.info().unit_bytes;
    let outer: usize = shape[..axis].iter().product();
    let inner: usize = shape[axis + 1..].iter().product::<usize>() * size;
    let mut bytes = Vec::new();
    for o in 0..outer {
        for i in 0..ctx.inputs.len() {
            let t = ctx.input(i)?;
            let n = t.shape()[axis] * inner;
            bytes.extend_from_slice(&t.bytes()[o * n..(o + 1) * n]);
        }
    }
    Ok(vec![Tensor::new(ctx.outputs[0].dtype, &shape, bytes)?])
}

fn lower(ctx: &NodeCtx) -> Result<Lowered, OpError> {
    let axis = util::axis("axis", ctx.attrs.int("axis")?, ctx.outputs[0].rank())?;
    Ok(Lowered::default().int("axis", axis).int("elements", util::elements(ctx)))
}

fn table() -> Vec<Case> {
    let shapes: &[(i64, &[&[usize]])] = &[
        (0, &[&[0], &[2]]),
        (0, &[&[2], &[0]]),
        (0, &[&[0], &[0]]),
        (0, &[&[5]]),
        (0, &[&[1], &[31], &[33]]),
        (1, &[&[3, 1], &[3, 16], &[3, 17]]),
        (-1, &[&[2, 3, 64], &[2, 3, 65]]),
        (1, &[&[2, 3, 4], &[2, 1, 4], &[2, 0, 4], &[2, 5, 4]]),
        (0, &[&[2, 0], &[3, 0]]),
        (2, &[&[1, 2, 3, 4], &[1, 2, 5, 4]]),
        (0, &[&[127], &[1], &[129]]),
    ];
    let mut out = Vec::new();
    for (axis, shapes) in shapes {
        for layout in [Layout::Dense, Layout::Rows, Layout::Strided] {
            for dtype in [DType::F32, DType::F16, DType::I64, DType::Bool] {
                let input = |(i, s): (usize, &&[usize])| {
                    Some(CaseInput::new(cases::random(dtype, s, i as u64)).layout(layout))
                };
                let inputs = shapes.iter().enumerate().map(input).collect();
                let name = format!("{shapes:?} along {axis} {layout:?} {dtype}");
                let attrs = Attrs::new().with("axis", *axis);
                out.push(cases::case_of(name, attrs, inputs, Tolerance::EXACT));
            }
        }
    }
    for dtype in DType::all().filter(|d| d.size().is_some()) {
        let input = |n: usize| Some(CaseInput::new(cases::random(dtype, &[3, n], n as u64)));
        let name = format!("every type {dtype}");
        let attrs = Attrs::new().with("axis", 1i64);
        out.push(cases::case_of(name, attrs, vec![input(2), input(5)], Tolerance::EXACT));
    }
    let many: Vec<Tensor> = (0..40).map(|i| cases::random(DType::F32, &[2, 1 + i % 3], i as u64)).collect();
    for role in [Role::Input, Role::Param] {
        let inputs = many.iter().map(|t| Some(CaseInput::new(t.clone()).role(role))).collect();
        let attrs = Attrs::new().with("axis", 1i64);
        out.push(cases::case_of(format!("40 operands {role:?}"), attrs, inputs, Tolerance::EXACT));
    }
    let (a, b) = (cases::values(DType::F32, &[0], &[]), cases::values(DType::F32, &[2], &[3., 4.]));
    let stated = cases::case("empty first", Attrs::new().with("axis", 0i64), &[&a, &b], Tolerance::EXACT);
    out.push(cases::expecting(stated, &[&[3., 4.]]));
    out
}
