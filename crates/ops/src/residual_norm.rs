//! A residual sum and the norm of it in one step: what stands between the blocks of a transformer.

use frit_ir::expr::{Expr, ScalarOp};
use frit_ir::graph::{Graph, Node, ValueId};
use frit_ir::op::{Case, CaseInput, InferCtx, Layout, OpError, Registry};
use frit_ir::{Attrs, DType, OpDef};
use std::sync::Arc;

use crate::cases::{case, case_of, expecting, random, values};
use crate::norm::{self, Kind, LENGTHS, Norm, bound};
use crate::shapes::same;
use crate::util::{FLOATS, cost_per_element, dtype_of};
use frit_ir::graph::Type;

/// The op `residual_norm` {kind: "rms" | "layer", eps, plus_one}: x, r `[..., D]`, optional weight `[D]`, optional bias `[D]` to
/// (sum = x + r, norm of sum), both of x's type. The norm reads the sum as it is stored.
pub fn def() -> OpDef {
    OpDef {
        name: "residual_norm",
        summary: "adds two values and norms the sum; gives both",
        infer,
        reference: None,
        expand: Some(expand),
        vjp: None,
        cost: |ctx| cost_per_element(ctx, 7),
        lower: |ctx| Ok(read(ctx.attrs)?.lowered(ctx)),
        view: None,
        updates: &[],
        cases,
    }
}

fn read(attrs: &Attrs) -> Result<Norm, OpError> {
    attrs.only(&["kind", "eps", "plus_one"])?;
    let kind = match &*attrs.str("kind")? {
        "rms" => Kind::Rms,
        "layer" => Kind::Layer,
        other => return Err(OpError::Value(format!("attribute `kind` is {other:?}; known are rms, layer"))),
    };
    let norm = Norm::read(kind, attrs, true)?;
    if kind == Kind::Layer && norm.plus_one {
        return Err(OpError::Value("attribute `plus_one` must be false where `kind` is layer".into()));
    }
    Ok(norm)
}

fn infer(ctx: &mut InferCtx) -> Result<Vec<Type>, OpError> {
    read(ctx.attrs)?;
    let x = norm::infer(ctx, 2)?;
    let r = dtype_of(ctx, 1, FLOATS)?;
    if (x.dtype == DType::F64) != (r == DType::F64) {
        return Err(OpError::DType(format!("operand 0 is {}, operand 1 {r}; f64 adds only to f64", x.dtype)));
    }
    let shape = &ctx.ty(1)?.shape;
    same(ctx, shape, &x.shape, "the second summand")?;
    Ok(vec![x.clone(), x])
}

fn expand(g: &mut Graph, r: &Registry, node: &Node, inputs: &[ValueId]) -> Result<Vec<ValueId>, OpError> {
    let norm = read(&node.attrs)?;
    let (x, residual) = (g.ty(inputs[0]).dtype, g.ty(inputs[1]).dtype);
    let add: Arc<Expr> = Arc::new(Expr::single(ScalarOp::Add, &[x, residual], x));
    let sum = g.push(r, "expr", Attrs::new().with("expr", add), &inputs[..2], &["sum"])?[0];
    let mut operands = vec![sum];
    operands.extend(&inputs[2..]);
    let attrs = Attrs::new().with("eps", norm.eps);
    let (op, attrs) = match norm.kind {
        Kind::Rms => ("rms_norm", attrs.with("plus_one", norm.plus_one)),
        Kind::Layer => ("layer_norm", attrs),
    };
    let normed = g.push(r, op, attrs, &operands, &["normed"])?[0];
    Ok(vec![sum, normed])
}

fn attrs(kind: &str, eps: f64, plus_one: bool) -> Attrs {
    Attrs::new().with("kind", kind).with("eps", eps).with("plus_one", plus_one)
}

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for kind in ["rms", "layer"] {
        let a = attrs(kind, 1e-5, false);
        for (i, d) in LENGTHS.into_iter().enumerate() {
            let (x, r) = (random(DType::F32, &[3, d], i as u64), random(DType::F32, &[3, d], 100 + i as u64));
            let w = random(DType::F32, &[d], 50);
            all.push(case(format!("{kind}-length-{d}"), a.clone(), &[&x, &r, &w], bound(DType::F32)));
        }
        for d in crate::cases::FLOATS {
            let (x, r) = (random(d, &[4, 95], 1), random(d, &[4, 95], 2));
            let (w, b) = (random(d, &[95], 3), random(d, &[95], 4));
            all.push(case(format!("{kind}-{d}"), a.clone(), &[&x, &r, &w, &b], bound(d)));
            all.push(case(format!("{kind}-{d}-plain"), a.clone(), &[&x, &r], bound(d)));
        }
        let (x, r) = (random(DType::F32, &[2, 3, 32], 5), random(DType::F16, &[2, 3, 32], 6));
        all.push(case(format!("{kind}-f32-f16"), a.clone(), &[&x, &r], bound(DType::F32)));
        for layout in [Layout::Rows, Layout::Strided] {
            let x = CaseInput::new(random(DType::F32, &[6, 40], 7)).layout(layout);
            let r = CaseInput::new(random(DType::F32, &[6, 40], 8));
            let w = CaseInput::new(random(DType::F32, &[40], 9));
            let inputs = vec![Some(x), Some(r), Some(w)];
            all.push(case_of(format!("{kind}-{layout:?}"), a.clone(), inputs, bound(DType::F32)));
        }
        for layout in [Layout::Rows, Layout::Strided] {
            let x = CaseInput::new(random(DType::F32, &[6, 40], 7));
            let r = CaseInput::new(random(DType::F16, &[6, 40], 8)).layout(layout);
            let inputs = vec![Some(x), Some(r)];
            all.push(case_of(format!("{kind}-residual-{layout:?}"), a.clone(), inputs, bound(DType::F32)));
        }
        let none = random(DType::F32, &[0, 8], 10);
        all.push(case(format!("{kind}-no-rows"), a.clone(), &[&none, &none], bound(DType::F32)));
    }
    let (x, r) = (random(DType::F32, &[2, 33], 11), random(DType::F32, &[2, 33], 12));
    let w = random(DType::F32, &[33], 13);
    all.push(case("rms-plus-one", attrs("rms", 1e-6, true), &[&x, &r, &w], bound(DType::F32)));
    let (x, r) = (values(DType::F32, &[1, 2], &[1.0, 1.0]), values(DType::F32, &[1, 2], &[2.0, 3.0]));
    let s = 12.5f64.sqrt();
    let c = case("three-four", attrs("rms", 0.0, false), &[&x, &r], bound(DType::F32));
    all.push(expecting(c, &[&[3.0, 4.0], &[3.0 / s, 4.0 / s]]));
    let c = case("three-four-layer", attrs("layer", 0.0, false), &[&x, &r], bound(DType::F32));
    all.push(expecting(c, &[&[3.0, 4.0], &[-1.0, 1.0]]));
    all
}
