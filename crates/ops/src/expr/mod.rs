//! `expr`: a scalar expression over operands that broadcast to a common shape. Every elementwise op, cast and activation
//! is a node of this op.

mod cases;

use frit_ir::expr::Scalar;
use frit_ir::graph::{Shape, Type};
use frit_ir::op::{Cost, InferCtx, Lowered, NodeCtx, OpError, RefCtx};
use frit_ir::{OpDef, Tensor};

use crate::util;

/// The op.
pub fn def() -> OpDef {
    OpDef {
        name: "expr",
        summary: "a scalar expression over broadcast operands; attribute `expr`",
        infer,
        reference: Some(reference),
        expand: None,
        vjp: None,
        cost,
        lower,
        view: None,
        updates: &[],
        cases: cases::all,
    }
}

fn infer(ctx: &mut InferCtx) -> Result<Vec<Type>, OpError> {
    ctx.attrs.only(&["expr"])?;
    let e = ctx.attrs.expr("expr")?;
    e.check()?;
    ctx.arity(e.inputs.len(), e.inputs.len())?;
    let mut shapes: Vec<&Shape> = Vec::with_capacity(e.inputs.len());
    for (i, want) in e.inputs.iter().enumerate() {
        let ty = ctx.ty(i)?;
        if ty.dtype != *want {
            return Err(OpError::DType(format!(
                "operand {i} is {}; the expression {e} reads it as {want}",
                ty.dtype
            )));
        }
        shapes.push(&ty.shape);
    }
    let shape = ctx.broadcast(&shapes)?;
    Ok(e.outputs.iter().map(|o| Type { dtype: o.dtype, shape: shape.clone() }).collect())
}

fn reference(ctx: &RefCtx) -> Result<Vec<Tensor>, OpError> {
    let e = ctx.attrs.expr("expr")?;
    let shape = ctx.shape(0)?;
    let mut operands = Vec::new();
    for i in 0..e.inputs.len() {
        let t = ctx.input(i)?;
        operands.push((util::read(t)?, util::broadcast_strides(t.shape(), &shape)));
    }
    let mut results: Vec<Vec<Scalar>> = vec![Vec::new(); e.outputs.len()];
    let mut point = Vec::with_capacity(operands.len());
    util::for_each_index(&shape, |index| {
        point.clear();
        point.extend(operands.iter().map(|(v, strides)| v[util::offset(index, strides)]));
        for (r, v) in results.iter_mut().zip(e.eval(&point)) {
            r.push(v);
        }
    });
    let store = |(o, v): (&frit_ir::expr::Output, &Vec<Scalar>)| Ok(util::write(o.dtype, &shape, v)?);
    e.outputs.iter().zip(&results).map(store).collect()
}

fn cost(ctx: &NodeCtx) -> Cost {
    let steps = ctx.attrs.expr("expr").map_or(0, |e| e.steps.len());
    util::cost_per_element(ctx, steps as i64)
}

fn lower(ctx: &NodeCtx) -> Result<Lowered, OpError> {
    let exprs = vec![ctx.attrs.expr("expr")?];
    Ok(Lowered { exprs, ..Lowered::default() }.int("elements", util::elements(ctx)))
}
