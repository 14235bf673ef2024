//! `slice`: of each dimension `sizes` elements, from `starts` on, every `steps`-th. A view.

use frit_ir::dim::Dim;
use frit_ir::graph::Type;
use frit_ir::op::{Case, CaseInput, InferCtx, Layout, NodeCtx, OpError, RefCtx, Tolerance, View};
use frit_ir::{Attrs, DType, OpDef, Tensor};

use crate::{cases, util};

/// The op.
pub fn def() -> OpDef {
    OpDef {
        name: "slice",
        summary: "of each dimension `sizes` elements, from `starts` on, every `steps`-th",
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

/// (start, size, step) of each dimension.
fn windows(attrs: &Attrs, rank: usize) -> Result<Vec<(Dim, Dim, i64)>, OpError> {
    let (starts, sizes, steps) = (attrs.dims("starts")?, attrs.dims("sizes")?, attrs.ints("steps")?);
    for (name, n) in [("starts", starts.len()), ("sizes", sizes.len()), ("steps", steps.len())] {
        if n != rank {
            return Err(OpError::Value(format!(
                "attribute `{name}` has {n} values; the operand has rank {rank}"
            )));
        }
    }
    if let Some(s) = steps.iter().find(|s| **s < 1) {
        return Err(OpError::Value(format!("attribute `steps` holds {s}; steps are at least 1")));
    }
    Ok(starts.into_iter().zip(sizes).zip(steps).map(|((a, b), c)| (a, b, c)).collect())
}

fn infer(ctx: &mut InferCtx) -> Result<Vec<Type>, OpError> {
    ctx.attrs.only(&["starts", "sizes", "steps"])?;
    ctx.arity(1, 1)?;
    let ty = ctx.ty(0)?;
    util::whole_units(ty)?;
    let all = windows(ctx.attrs, ty.rank())?;
    let zero = Dim::from(0i64);
    for (i, ((start, size, step), extent)) in all.iter().zip(&ty.shape).enumerate() {
        let what = |w: &str| format!("slice of {}: {w} of dimension {i}", util::show(&ty.shape));
        ctx.require_at_most(&zero, start, &what("start"))?;
        ctx.require_at_most(&zero, size, &what("size"))?;
        // A slice that holds an element has its start bounded by its end.
        if ctx.symbols.interval(size).0 < 1 {
            ctx.require_at_most(start, extent, &what("start"))?;
        }
        let end = start.clone() + (size.clone() - 1.into()) * Dim::from(*step) + 1.into();
        if !size.is(0) {
            ctx.require_at_most(&end, extent, &what("end"))?;
        }
    }
    check_units(ty, &all)?;
    Ok(vec![Type { dtype: ty.dtype, shape: all.into_iter().map(|(_, size, _)| size).collect() }])
}

/// Elements that share bytes are taken by whole units.
fn check_units(ty: &Type, all: &[(Dim, Dim, i64)]) -> Result<(), OpError> {
    let unit = ty.dtype.info().unit_elements as i64;
    let Some((start, size, step)) = all.last().filter(|_| unit > 1) else { return Ok(()) };
    let whole = |d: &Dim| d.as_const().is_some_and(|v| v % unit == 0);
    if *step == 1 && whole(start) && (whole(size) || Some(size) == ty.shape.last()) {
        return Ok(());
    }
    Err(OpError::Shape(format!(
        "the last dimension of {ty} is taken by whole units of {unit} elements with step 1, not {size} from {start} by {step}"
    )))
}

fn reference(ctx: &RefCtx) -> Result<Vec<Tensor>, OpError> {
    let t = ctx.input(0)?;
    let strides = util::strides(&util::unit_shape(t));
    let unit = t.dtype().info().unit_elements;
    let last = strides.len().saturating_sub(1);
    let mut at = 0;
    let mut steps = Vec::new();
    for (i, (start, _, step)) in windows(ctx.attrs, strides.len())?.into_iter().enumerate() {
        let start = util::constant(&start)?;
        at += strides[i] * if i == last { start / unit } else { start };
        steps.push(strides[i] * step as usize);
    }
    Ok(vec![util::rearrange(t, &ctx.shape(0)?, &[], |i| Some(at + util::offset(i, &steps)))?])
}

fn view(ctx: &NodeCtx, v: &View) -> Option<View> {
    let all = windows(ctx.attrs, v.dims.len()).ok()?;
    let mut offset = v.offset.clone();
    for ((start, _, _), stride) in all.iter().zip(&v.strides) {
        offset = offset + start.clone() * stride.clone();
    }
    Some(View {
        offset,
        dims: all.iter().map(|(_, size, _)| size.clone()).collect(),
        strides: all.iter().zip(&v.strides).map(|((_, _, step), s)| s.clone() * Dim::from(*step)).collect(),
    })
}

fn attrs(windows: &[(i64, i64, i64)]) -> Attrs {
    let pick = |f: fn(&(i64, i64, i64)) -> i64| windows.iter().map(f).collect::<Vec<i64>>();
    Attrs::new().with("starts", pick(|w| w.0)).with("sizes", pick(|w| w.1)).with("steps", pick(|w| w.2))
}

fn table() -> Vec<Case> {
    type Windows = &'static [(i64, i64, i64)];
    let shapes: &[(&[usize], Windows)] = &[
        (&[], &[]),
        (&[7], &[(0, 7, 1)]),
        (&[7], &[(2, 3, 1)]),
        (&[7], &[(0, 3, 3)]),
        (&[7], &[(7, 0, 1)]),
        (&[7], &[(6, 1, 5)]),
        (&[5, 33], &[(4, 1, 1), (0, 33, 1)]),
        (&[5, 33], &[(1, 3, 1), (1, 16, 2)]),
        (&[4, 3, 8], &[(0, 2, 2), (0, 3, 1), (3, 5, 1)]),
        (&[0, 3], &[(0, 0, 1), (1, 1, 1)]),
        (&[129, 2], &[(1, 128, 1), (1, 1, 1)]),
    ];
    let mut out = Vec::new();
    for (i, (shape, windows)) in shapes.iter().enumerate() {
        for layout in [Layout::Dense, Layout::Rows, Layout::Strided] {
            for dtype in [DType::F32, DType::F16, DType::I8, DType::F64] {
                let input = CaseInput::new(cases::random(dtype, shape, i as u64)).layout(layout);
                let name = format!("{shape:?} at {windows:?} {layout:?} {dtype}");
                out.push(cases::case_of(name, attrs(windows), vec![Some(input)], Tolerance::EXACT));
            }
        }
    }
    let t = cases::values(DType::I32, &[2, 3], &[1., 2., 3., 4., 5., 6.]);
    let stated = cases::case("stated", attrs(&[(1, 1, 1), (0, 2, 2)]), &[&t], Tolerance::EXACT);
    out.push(cases::expecting(stated, &[&[4., 6.]]));
    out
}
