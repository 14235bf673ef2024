//! `copy`: the same value in a dense buffer of its own. Legalization inserts it where a kernel needs another layout.

use frit_ir::graph::Type;
use frit_ir::op::{Case, CaseInput, InferCtx, Layout, OpError, RefCtx, Tolerance};
use frit_ir::{Attrs, DType, OpDef, Tensor};

use crate::{cases, util};

/// The op.
pub fn def() -> OpDef {
    OpDef {
        name: "copy",
        summary: "the same value, dense in a buffer of its own",
        infer,
        reference: Some(reference),
        expand: None,
        vjp: None,
        cost: util::cost_of_copy,
        lower: util::lower_elements,
        view: None,
        updates: &[],
        cases: table,
    }
}

fn infer(ctx: &mut InferCtx) -> Result<Vec<Type>, OpError> {
    ctx.attrs.only(&[])?;
    ctx.arity(1, 1)?;
    Ok(vec![ctx.ty(0)?.clone()])
}

fn reference(ctx: &RefCtx) -> Result<Vec<Tensor>, OpError> {
    Ok(vec![ctx.input(0)?.clone()])
}

fn table() -> Vec<Case> {
    let mut out = Vec::new();
    let mut add = |shape: &[usize], dtype, layout| {
        let t = cases::random(dtype, shape, shape.len() as u64);
        let name = format!("{shape:?} {layout:?} {dtype}");
        let input = CaseInput::new(t).layout(layout);
        out.push(cases::case_of(name, Attrs::new(), vec![Some(input)], Tolerance::EXACT));
    };
    // One element size each; odd lengths end inside a vector.
    for dtype in [DType::F32, DType::F16, DType::I64, DType::U8] {
        for layout in [Layout::Dense, Layout::Rows, Layout::Strided] {
            for n in cases::EDGES {
                add(&[n], dtype, layout);
            }
            for shape in [&[][..], &[0, 5], &[3, 33], &[17, 16], &[2, 3, 5, 7], &[2, 1, 129], &[1, 1, 1]] {
                add(shape, dtype, layout);
            }
        }
    }
    for dtype in DType::all() {
        let unit = dtype.info().unit_elements;
        for layout in [Layout::Dense, Layout::Rows, Layout::Strided] {
            add(&[3, 11 * unit], dtype, layout);
        }
    }
    add(&[1025], DType::F16, Layout::Dense);
    add(&[5, 1023], DType::F16, Layout::Rows);
    out
}
