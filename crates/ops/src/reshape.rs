//! `reshape`: the same elements in row-major order under other extents. A view where the strides allow it.

use frit_ir::dim::Dim;
use frit_ir::graph::{Shape, Type};
use frit_ir::op::{Case, CaseInput, InferCtx, Layout, NodeCtx, OpError, RefCtx, Tolerance, View};
use frit_ir::{Attrs, DType, OpDef, Tensor};

use crate::{cases, util};

/// The op.
pub fn def() -> OpDef {
    OpDef {
        name: "reshape",
        summary: "the same elements in row-major order under other extents; attribute `shape`",
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
    let (ty, shape) = (ctx.ty(0)?, util::shape_attr(ctx, "shape")?);
    let to = Type { dtype: ty.dtype, shape };
    util::whole_units(ty)?;
    util::whole_units(&to)?;
    let what = format!("{} cannot become {}: elements", util::show(&ty.shape), util::show(&to.shape));
    ctx.require_equal(&ty.elements(), &to.elements(), &what)?;
    Ok(vec![to])
}

fn reference(ctx: &RefCtx) -> Result<Vec<Tensor>, OpError> {
    Ok(vec![ctx.input(0)?.reshaped(&ctx.shape(0)?)?])
}

fn view(ctx: &NodeCtx, v: &View) -> Option<View> {
    reshape_view(v, &ctx.outputs[0].shape)
}

/// The dimensions of more than one element: (extent, stride).
fn real(v: &View) -> Vec<(Dim, Dim)> {
    v.dims.iter().cloned().zip(v.strides.iter().cloned()).filter(|(d, _)| !d.is(1)).collect()
}

/// `v` under the extents `to`, or `None` where no strides express it. Runs of old dimensions that lie contiguously are
/// merged and split again; a run on both sides holds the same number of elements.
pub(crate) fn reshape_view(v: &View, to: &Shape) -> Option<View> {
    let offset = v.offset.clone();
    let dense = View { offset: offset.clone(), ..View::dense(to) };
    let empty = |dims: &Shape| dims.iter().any(|d| d.is(0));
    if empty(&v.dims) || empty(to) || real(v) == real(&View::dense(&v.dims)) {
        return Some(dense);
    }
    let old = real(v);
    let new: Vec<usize> = (0..to.len()).filter(|i| !to[*i].is(1)).collect();
    let mut strides: Vec<Option<Dim>> = vec![None; to.len()];
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < new.len() {
        let (oi, nj) = run(&old[i..], &new[j..], to)?;
        let old_run = &old[i..i + oi];
        if old_run.windows(2).any(|w| w[0].1 != w[1].1.clone() * w[1].0.clone()) {
            return None;
        }
        let mut stride = old_run.last()?.1.clone();
        for at in new[j..j + nj].iter().rev() {
            strides[*at] = Some(stride.clone());
            stride = stride * to[*at].clone();
        }
        (i, j) = (i + oi, j + nj);
    }
    // Dimensions of one element take the stride that makes them look dense.
    let mut next = Dim::from(1i64);
    let mut out: Vec<Dim> = Vec::with_capacity(to.len());
    for (s, d) in strides.into_iter().zip(to).rev() {
        let s = s.unwrap_or_else(|| next.clone());
        next = s.clone() * d.clone();
        out.push(s);
    }
    out.reverse();
    Some(View { offset, dims: to.clone(), strides: out.into_iter().collect() })
}

/// The shortest leading runs of `old` and `new` that hold the same number of elements, as their lengths.
fn run(old: &[(Dim, Dim)], new: &[usize], to: &Shape) -> Option<(usize, usize)> {
    let (mut a, mut b) = (old.first()?.0.clone(), to[*new.first()?].clone());
    let (mut i, mut j) = (1, 1);
    while a != b {
        // The smaller side grows; where symbols hide which is smaller, a factor is the smaller one.
        let grow_old = match (a.as_const(), b.as_const()) {
            (Some(x), Some(y)) => x < y,
            _ => divides(&a, &b) || (!divides(&b, &a) && i < old.len()),
        };
        if grow_old {
            a = a * old.get(i)?.0.clone();
            i += 1;
        } else {
            b = b * to[*new.get(j)?].clone();
            j += 1;
        }
    }
    Some((i, j))
}

/// Whether `b` is `a` times a dimension, by the normal form.
fn divides(a: &Dim, b: &Dim) -> bool {
    b.floor_div(a) * a.clone() == *b
}

fn table() -> Vec<Case> {
    use Layout::{Dense, Rows, Strided};
    let shapes: &[(&[usize], &[i64])] = &[
        (&[6], &[2, 3]),
        (&[2, 3, 4], &[6, 4]),
        (&[2, 3, 4], &[2, 12]),
        (&[2, 3, 4], &[4, 6]),
        (&[33, 31], &[31, 33]),
        (&[1, 5, 1], &[5]),
        (&[5], &[1, 5, 1]),
        (&[1], &[]),
        (&[], &[1, 1]),
        (&[0, 3], &[3, 0, 7]),
        (&[129, 2], &[2, 129]),
    ];
    let mut out = Vec::new();
    for (i, (from, to)) in shapes.iter().enumerate() {
        for layout in [Dense, Rows, Strided] {
            for dtype in [DType::F32, DType::F16, DType::I64, DType::Bool] {
                let t = cases::random(dtype, from, i as u64);
                let name = format!("{from:?} to {to:?} {layout:?} {dtype}");
                let input = CaseInput::new(t).layout(layout);
                let attrs = Attrs::new().with("shape", to.to_vec());
                out.push(cases::case_of(name, attrs, vec![Some(input)], Tolerance::EXACT));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(d: &[&str]) -> Shape {
        d.iter().map(|s| s.parse::<i64>().map_or_else(|_| Dim::sym(s), Dim::from)).collect()
    }

    fn at(v: View, to: Shape) -> Option<(Shape, Shape)> {
        reshape_view(&v, &to).map(|v| (v.dims, v.strides))
    }

    #[test]
    fn splits_and_merges_symbolic_runs() {
        let (b, t) = (Dim::sym("B"), Dim::sym("T"));
        // Rows that are further apart than their length: [B*T, 64] with stride 100 splits, but does not merge.
        let bt = b * t.clone();
        let v = View {
            offset: 3.into(),
            dims: [bt.clone(), 64.into()].into_iter().collect(),
            strides: [Dim::from(100i64), 1.into()].into_iter().collect(),
        };
        let (_, s) = at(v.clone(), dims(&["B", "T", "4", "16"])).unwrap();
        assert_eq!(s.to_vec(), [t.clone() * 100.into(), 100.into(), 16.into(), 1.into()]);
        let flat: Shape = [bt * 64.into()].into_iter().collect();
        assert_eq!(at(v, flat), None);
        // Merging a broadcast run keeps stride 0.
        let v = View { offset: 0.into(), dims: dims(&["B", "T", "8"]), strides: dims(&["0", "0", "1"]) };
        let to: Shape = [Dim::sym("B") * t, 8.into()].into_iter().collect();
        assert_eq!(at(v, to).unwrap().1.to_vec(), dims(&["0", "1"]).to_vec());
    }

    #[test]
    fn a_transposed_matrix_needs_a_copy() {
        let v = View { offset: 0.into(), dims: dims(&["4", "6"]), strides: dims(&["1", "4"]) };
        assert_eq!(at(v.clone(), dims(&["24"])), None);
        let (_, s) = at(v, dims(&["2", "2", "1", "6"])).unwrap();
        assert_eq!(s.to_vec(), dims(&["2", "1", "24", "4"]).to_vec());
    }
}
