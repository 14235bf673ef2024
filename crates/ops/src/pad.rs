//! `pad`: elements added before and after each dimension: a constant, the mirror image, or the edge repeated.

use frit_ir::dim::Dim;
use frit_ir::graph::Type;
use frit_ir::op::{Case, CaseInput, InferCtx, Layout, Lowered, NodeCtx, OpError, RefCtx, Tolerance};
use frit_ir::{Attrs, DType, OpDef, Tensor};

use crate::{cases, util};

/// The op.
pub fn def() -> OpDef {
    OpDef {
        name: "pad",
        summary: "elements added before and after each dimension; `mode` constant, reflect or edge",
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

/// The modes, in the order of their kernel codes.
const MODES: [&str; 3] = ["constant", "reflect", "edge"];

struct Padding {
    before: Vec<i64>,
    after: Vec<i64>,
    /// Position in [`MODES`].
    mode: usize,
    value: f64,
}

fn padding(attrs: &Attrs, rank: usize) -> Result<Padding, OpError> {
    let (before, after, mode) = (attrs.ints("before")?, attrs.ints("after")?, attrs.str("mode")?);
    for (name, list) in [("before", &before), ("after", &after)] {
        if list.len() != rank || list.iter().any(|v| *v < 0) {
            return Err(OpError::Value(format!(
                "attribute `{name}` is {list:?}; it must hold {rank} values of at least 0"
            )));
        }
    }
    let mode = MODES.iter().position(|m| *m == mode.as_ref()).ok_or_else(|| {
        OpError::Value(format!("attribute `mode` is {mode:?}; it must be one of {}", MODES.join(", ")))
    })?;
    let value = if attrs.get("value").is_some() { attrs.float("value")? } else { 0.0 };
    Ok(Padding { before, after, mode, value })
}

fn infer(ctx: &mut InferCtx) -> Result<Vec<Type>, OpError> {
    ctx.attrs.only(&["before", "after", "mode", "value"])?;
    ctx.arity(1, 1)?;
    let mut ty = ctx.ty(0)?.clone();
    util::compute_dtype(ctx, 0)?;
    if ty.rank() > 8 {
        return Err(OpError::Shape(format!("pad takes at most 8 dimensions, got {ty}")));
    }
    let p = padding(ctx.attrs, ty.rank())?;
    for (i, d) in ty.shape.iter_mut().enumerate() {
        let (before, after) = (p.before[i], p.after[i]);
        // A mirror needs as many elements besides the edge, a repeated edge needs one.
        let needed = [0, before.max(after) + 1, 1][p.mode];
        if before.max(after) > 0 && needed > 0 {
            let what = format!("pad by {}: extent of dimension {i}", MODES[p.mode]);
            ctx.require_at_most(&Dim::from(needed), d, &what)?;
        }
        *d = d.clone() + Dim::from(before) + Dim::from(after);
    }
    Ok(vec![ty])
}

/// The index in 0..n that is shown at `i`, which may lie outside.
fn source(i: i64, n: i64, mode: usize) -> Option<i64> {
    match (mode, (0..n).contains(&i)) {
        (_, true) => Some(i),
        (0, _) => None,
        (1, _) => Some(if i < 0 { -i } else { 2 * (n - 1) - i }),
        _ => Some(i.clamp(0, n - 1)),
    }
}

fn reference(ctx: &RefCtx) -> Result<Vec<Tensor>, OpError> {
    let t = ctx.input(0)?;
    let p = padding(ctx.attrs, t.shape().len())?;
    let fill = Tensor::from_f64(t.dtype(), &[1], &[p.value])?;
    let strides = util::strides(t.shape());
    let from = |index: &[usize]| {
        let mut at = 0;
        for (d, i) in index.iter().enumerate() {
            at += source(*i as i64 - p.before[d], t.shape()[d] as i64, p.mode)? as usize * strides[d];
        }
        Some(at)
    };
    Ok(vec![util::rearrange(t, &ctx.shape(0)?, fill.bytes(), from)?])
}

const BEFORE: [&str; 8] =
    ["before0", "before1", "before2", "before3", "before4", "before5", "before6", "before7"];
const AFTER: [&str; 8] = ["after0", "after1", "after2", "after3", "after4", "after5", "after6", "after7"];

fn lower(ctx: &NodeCtx) -> Result<Lowered, OpError> {
    let p = padding(ctx.attrs, ctx.outputs[0].rank())?;
    let mut out = Lowered::default().int("mode", p.mode).float("value", p.value);
    for (names, list) in [(BEFORE, &p.before), (AFTER, &p.after)] {
        for (i, name) in names.into_iter().enumerate() {
            out = out.int(name, list.get(i).copied().unwrap_or(0));
        }
    }
    Ok(out.int("elements", util::elements(ctx)))
}

fn attrs(before: &[i64], after: &[i64], mode: &str, value: f64) -> Attrs {
    Attrs::new()
        .with("before", before.to_vec())
        .with("after", after.to_vec())
        .with("mode", mode)
        .with("value", value)
}

fn table() -> Vec<Case> {
    type Row = (&'static [usize], &'static [i64], &'static [i64]);
    let shapes: &[Row] = &[
        (&[], &[], &[]),
        (&[5], &[0], &[0]),
        (&[5], &[2], &[3]),
        (&[33], &[4], &[31]),
        (&[3, 17], &[1, 0], &[0, 2]),
        (&[4, 16], &[3, 15], &[3, 15]),
        (&[2, 3, 5], &[0, 2, 1], &[1, 0, 4]),
        (&[1, 2, 4, 5], &[0, 0, 1, 1], &[0, 0, 1, 1]),
    ];
    let mut out = Vec::new();
    for (i, (shape, before, after)) in shapes.iter().enumerate() {
        for mode in MODES {
            for layout in [Layout::Dense, Layout::Rows, Layout::Strided] {
                for dtype in [DType::F32, DType::F16, DType::BF16, DType::I32] {
                    let input = CaseInput::new(cases::random(dtype, shape, i as u64)).layout(layout);
                    let name = format!("{shape:?} by {before:?} {after:?} {mode} {layout:?} {dtype}");
                    let a = attrs(before, after, mode, -3.0);
                    out.push(cases::case_of(name, a, vec![Some(input)], Tolerance::EXACT));
                }
            }
        }
    }
    for dtype in DType::all().filter(|d| d.is_compute()) {
        let t = cases::random(dtype, &[3, 4], 8);
        let a = attrs(&[1, 0], &[0, 2], "constant", 1.0);
        out.push(cases::case(format!("every type {dtype}"), a, &[&t], Tolerance::EXACT));
    }
    let t = cases::values(DType::F32, &[3], &[1., 2., 3.]);
    let expect: [&[f64]; 3] =
        [&[9., 9., 1., 2., 3., 9.], &[3., 2., 1., 2., 3., 2.], &[1., 1., 1., 2., 3., 3.]];
    for (mode, e) in MODES.into_iter().zip(expect) {
        let c = cases::case(format!("stated {mode}"), attrs(&[2], &[1], mode, 9.0), &[&t], Tolerance::EXACT);
        out.push(cases::expecting(c, &[e]));
    }
    let empty = cases::values(DType::F32, &[0, 2], &[]);
    let inf = f64::NEG_INFINITY;
    let c = cases::case("empty", attrs(&[1, 0], &[0, 1], "constant", inf), &[&empty], Tolerance::EXACT);
    out.push(cases::expecting(c, &[&[inf, inf, inf]]));
    out
}
