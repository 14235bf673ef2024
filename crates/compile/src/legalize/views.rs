//! Arithmetic on views: density, layout classes, broadcasting, merging of dimensions, block alignment.

use frit_ir::DType;
use frit_ir::dim::Dim;
use frit_ir::dtype::Kind;
use frit_ir::op::View;
use frit_ir::symbols::{Proof, Symbols};
use frit_ir::target::LayoutClass;

/// Whether `d` is 1 for every size in range.
pub(super) fn is_one(symbols: &Symbols, d: &Dim) -> bool {
    match d.as_const() {
        Some(v) => v == 1,
        None => symbols.interval(d) == (1, 1),
    }
}

/// Whether the view is row-major without gaps; strides of single-element dimensions do not count.
pub(super) fn is_dense(symbols: &Symbols, v: &View) -> bool {
    let mut expected = Dim::from(1i64);
    for (d, s) in v.dims.iter().zip(&v.strides).rev() {
        if is_one(symbols, d) {
            continue;
        }
        if *s != expected {
            return false;
        }
        expected = expected * d.clone();
    }
    true
}

/// The strictest layout class that the view belongs to.
pub(super) fn class(symbols: &Symbols, v: &View) -> LayoutClass {
    if is_dense(symbols, v) {
        return LayoutClass::Dense;
    }
    match (v.dims.last(), v.strides.last()) {
        (Some(d), Some(s)) if s.is(1) || is_one(symbols, d) => LayoutClass::Rows,
        _ => LayoutClass::Strided,
    }
}

/// Gives single-element dimensions the stride of a dense layout, so that kernels may rely on a last stride of 1.
pub(super) fn normalize(symbols: &Symbols, v: &mut View) {
    let mut inner = Dim::from(1i64);
    for i in (0..v.dims.len()).rev() {
        if is_one(symbols, &v.dims[i]) {
            v.strides[i] = inner.clone();
        }
        inner = v.strides[i].clone() * v.dims[i].clone();
    }
}

/// The view repeated over `shape` with stride 0, dimensions aligned at the last.
pub(super) fn broadcast(symbols: &Symbols, v: &View, shape: &[Dim]) -> View {
    let skip = shape.len().saturating_sub(v.dims.len());
    let stride = |i: usize, d: &Dim| match i.checked_sub(skip) {
        Some(at) if !is_one(symbols, &v.dims[at]) || is_one(symbols, d) => v.strides[at].clone(),
        _ => Dim::from(0i64),
    };
    let strides = shape.iter().enumerate().map(|(i, d)| stride(i, d)).collect();
    View { offset: v.offset.clone(), dims: shape.into(), strides }
}

/// Merges neighbouring dimensions of `views`, all of which have the same extents, where every view allows it, and drops
/// single-element dimensions. At least one dimension is left.
pub(super) fn merge(symbols: &Symbols, views: &mut [View]) {
    let Some(first) = views.first() else { return };
    let dims = first.dims.clone();
    let mut merged: Vec<View> = views
        .iter()
        .map(|v| View { offset: v.offset.clone(), dims: Default::default(), strides: Default::default() })
        .collect();
    for (i, d) in dims.iter().enumerate() {
        if is_one(symbols, d) {
            continue;
        }
        let joins = merged
            .iter()
            .zip(views.iter())
            .all(|(m, v)| m.strides.last().is_some_and(|outer| *outer == v.strides[i].clone() * d.clone()));
        for (m, v) in merged.iter_mut().zip(views.iter()) {
            match (m.dims.last_mut(), m.strides.last_mut()) {
                (Some(dim), Some(stride)) if joins => {
                    *dim = dim.clone() * d.clone();
                    *stride = v.strides[i].clone();
                }
                _ => {
                    m.dims.push(d.clone());
                    m.strides.push(v.strides[i].clone());
                }
            }
        }
    }
    for (v, mut m) in views.iter_mut().zip(merged) {
        if m.dims.is_empty() {
            m.dims.push(Dim::from(1i64));
            m.strides.push(Dim::from(1i64));
        }
        *v = m;
    }
}

fn divisible(d: &Dim, unit: usize) -> bool {
    d.terms().iter().all(|(_, c)| c % unit as i64 == 0)
}

/// Whether the view cuts no block of a block format and no byte of a sub-byte type.
pub(super) fn whole_units(symbols: &Symbols, dtype: DType, v: &View) -> bool {
    let info = dtype.info();
    let unit = info.unit_elements;
    if unit == 1 {
        return true;
    }
    let (Some(last), Some(stride)) = (v.dims.last(), v.strides.last()) else {
        return info.kind != Kind::Block && divisible(&v.offset, unit);
    };
    let rows = divisible(last, unit)
        && stride.is(1)
        && v.strides[..v.strides.len() - 1].iter().all(|s| divisible(s, unit));
    let dense = info.kind != Kind::Block && is_dense(symbols, v);
    divisible(&v.offset, unit) && (rows || dense)
}

/// Byte offset of the first element of a view that cuts no unit.
pub(super) fn byte_offset(dtype: DType, offset: &Dim) -> Dim {
    let info = dtype.info();
    offset.floor_div(&Dim::from(info.unit_elements)) * Dim::from(info.unit_bytes)
}

/// Whether the view is all of a dense storage of `elements` elements.
pub(super) fn is_whole(symbols: &Symbols, v: &View, elements: &Dim) -> bool {
    let n: Dim = v.dims.iter().cloned().product();
    v.offset.is(0) && is_dense(symbols, v) && symbols.equal(&n, elements) == Proof::Yes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(offset: i64, dims: &[i64], strides: &[i64]) -> View {
        let list = |v: &[i64]| v.iter().map(|d| Dim::from(*d)).collect();
        View { offset: offset.into(), dims: list(dims), strides: list(strides) }
    }

    #[test]
    fn classes() {
        let s = Symbols::default();
        assert_eq!(class(&s, &view(0, &[2, 3], &[3, 1])), LayoutClass::Dense);
        assert_eq!(class(&s, &view(0, &[1, 3], &[99, 1])), LayoutClass::Dense);
        assert_eq!(class(&s, &view(0, &[2, 3], &[0, 1])), LayoutClass::Rows);
        assert_eq!(class(&s, &view(0, &[2, 1], &[8, 7])), LayoutClass::Rows);
        assert_eq!(class(&s, &view(0, &[3, 2], &[1, 3])), LayoutClass::Strided);
        let mut v = view(0, &[2, 1], &[8, 7]);
        normalize(&s, &mut v);
        assert_eq!(v, view(0, &[2, 1], &[8, 1]));
    }

    #[test]
    fn merging_needs_every_view() {
        let s = Symbols::default();
        let mut all = [view(0, &[2, 1, 3, 4], &[12, 12, 4, 1]), view(5, &[2, 1, 3, 4], &[0, 0, 4, 1])];
        merge(&s, &mut all);
        assert_eq!(all, [view(0, &[2, 12], &[12, 1]), view(5, &[2, 12], &[0, 1])]);
        let mut one = [view(0, &[1, 1], &[1, 1])];
        merge(&s, &mut one);
        assert_eq!(one, [view(0, &[1], &[1])]);
    }

    #[test]
    fn symbolic_rows_merge() {
        let mut s = Symbols::default();
        let t = s.declare("T", 1, 8).unwrap();
        let mut all = [View::dense(&[t.clone(), 4.into(), 2.into()])];
        merge(&s, &mut all);
        assert_eq!(all[0].dims.as_slice(), [t * 8.into()]);
    }

    #[test]
    fn broadcasting_repeats_with_stride_zero() {
        let s = Symbols::default();
        let shape = [2.into(), 3.into(), 4.into()];
        assert_eq!(broadcast(&s, &view(1, &[3, 1], &[1, 1]), &shape), view(1, &[2, 3, 4], &[0, 1, 0]));
    }

    #[test]
    fn blocks_are_not_cut() {
        let s = Symbols::default();
        assert!(whole_units(&s, DType::Q8_0, &view(64, &[4, 64], &[128, 1])));
        assert!(!whole_units(&s, DType::Q8_0, &view(16, &[4, 64], &[128, 1])));
        assert!(!whole_units(&s, DType::Q8_0, &view(0, &[8, 16], &[16, 1])));
        assert!(!whole_units(&s, DType::Q8_0, &view(0, &[128, 4], &[1, 128])));
        assert!(whole_units(&s, DType::I4, &view(0, &[3, 3], &[3, 1])));
        assert_eq!(byte_offset(DType::Q8_0, &64.into()), Dim::from(68i64));
    }
}
