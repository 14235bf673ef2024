//! Moving tiles between memory and slots: any strides, f16 and bf16 widened and rounded on the way.

use frit_ir::DType;
use half::{bf16, f16};

use crate::kernels::lanes::{Element, Lanes, narrow, widen};

/// A rectangle of memory; strides in elements.
pub(crate) struct Rect {
    pub row_stride: isize,
    pub stride: isize,
    pub rows: usize,
    pub cols: usize,
}

impl Rect {
    /// Number of contiguous rows, their length and distance; `None` if columns are apart. Rows without a gap are one.
    fn lines(&self) -> Option<(usize, usize, isize)> {
        match self.stride {
            1 if self.row_stride == self.cols as isize => Some((1, self.rows * self.cols, 0)),
            1 => Some((self.rows, self.cols, self.row_stride)),
            _ => None,
        }
    }

    fn at(&self, r: usize, c: usize) -> isize {
        r as isize * self.row_stride + c as isize * self.stride
    }
}

/// The elements of `rect` at `src`, row after row, as compute type to `dst`.
pub(super) type LoadFn = unsafe fn(DType, *const u8, &Rect, *mut u8);

/// Values of compute type at `src`, rounded, to `rect` at `dst`.
pub(super) type StoreFn = unsafe fn(DType, *const u8, *mut u8, &Rect);

#[inline(always)]
unsafe fn load_as<T: Copy, U>(src: *const T, rect: &Rect, dst: *mut U, f: impl Fn(T) -> U) {
    for r in 0..rect.rows {
        for c in 0..rect.cols {
            // SAFETY: the caller's: the rectangle is readable and `dst` holds it.
            unsafe { dst.add(r * rect.cols + c).write(f(*src.offset(rect.at(r, c)))) };
        }
    }
}

#[inline(always)]
unsafe fn load_float<L: Lanes, E: Element>(src: *const u8, rect: &Rect, dst: *mut u8) {
    // SAFETY: the caller's.
    unsafe {
        let (from, to) = (src.cast::<E>(), dst.cast::<f32>());
        let Some((rows, cols, step)) = rect.lines() else { return load_as(from, rect, to, E::get) };
        for r in 0..rows {
            widen::<L, E>(from.offset(r as isize * step), to.add(r * cols), cols);
        }
    }
}

#[inline(always)]
unsafe fn load_plain<T: Copy>(src: *const u8, rect: &Rect, dst: *mut u8) {
    // SAFETY: the caller's; slots are aligned for every type.
    unsafe {
        let (from, to) = (src.cast::<T>(), dst.cast::<T>());
        let Some((rows, cols, step)) = rect.lines() else { return load_as(from, rect, to, |v| v) };
        for r in 0..rows {
            std::ptr::copy_nonoverlapping(from.offset(r as isize * step), to.add(r * cols), cols);
        }
    }
}

/// See [`LoadFn`].
#[inline(always)]
pub(crate) unsafe fn load<L: Lanes>(dtype: DType, src: *const u8, rect: &Rect, dst: *mut u8) {
    // SAFETY: the caller's.
    unsafe {
        match (dtype, dtype.info().unit_bytes) {
            (DType::F16, _) => load_float::<L, f16>(src, rect, dst),
            (DType::BF16, _) => load_float::<L, bf16>(src, rect, dst),
            (_, 8) => load_plain::<u64>(src, rect, dst),
            (_, 4) => load_plain::<u32>(src, rect, dst),
            (_, 2) => load_plain::<u16>(src, rect, dst),
            _ => load_plain::<u8>(src, rect, dst),
        }
    }
}

#[inline(always)]
unsafe fn store_as<T: Copy, U>(src: *const T, dst: *mut U, rect: &Rect, f: impl Fn(T) -> U) {
    for r in 0..rect.rows {
        for c in 0..rect.cols {
            // SAFETY: the caller's: `src` holds the rectangle, which is writable.
            unsafe { dst.offset(rect.at(r, c)).write(f(*src.add(r * rect.cols + c))) };
        }
    }
}

#[inline(always)]
unsafe fn store_float<L: Lanes, E: Element>(src: *const u8, dst: *mut u8, rect: &Rect) {
    // SAFETY: the caller's.
    unsafe {
        let (from, to) = (src.cast::<f32>(), dst.cast::<E>());
        let Some((rows, cols, step)) = rect.lines() else { return store_as(from, to, rect, E::of) };
        for r in 0..rows {
            narrow::<L, E>(from.add(r * cols), to.offset(r as isize * step), cols);
        }
    }
}

#[inline(always)]
unsafe fn store_plain<T: Copy>(src: *const u8, dst: *mut u8, rect: &Rect) {
    // SAFETY: the caller's. The value may be an input in place, hence a copy that may overlap.
    unsafe {
        let (from, to) = (src.cast::<T>(), dst.cast::<T>());
        let Some((rows, cols, step)) = rect.lines() else { return store_as(from, to, rect, |v| v) };
        for r in 0..rows {
            std::ptr::copy(from.add(r * cols), to.offset(r as isize * step), cols);
        }
    }
}

/// See [`StoreFn`].
#[inline(always)]
pub(crate) unsafe fn store<L: Lanes>(dtype: DType, src: *const u8, dst: *mut u8, rect: &Rect) {
    // SAFETY: the caller's.
    unsafe {
        match (dtype, dtype.info().unit_bytes) {
            (DType::F16, _) => store_float::<L, f16>(src, dst, rect),
            (DType::BF16, _) => store_float::<L, bf16>(src, dst, rect),
            (_, 8) => store_plain::<u64>(src, dst, rect),
            (_, 4) => store_plain::<u32>(src, dst, rect),
            (_, 2) => store_plain::<u16>(src, dst, rect),
            _ => store_plain::<u8>(src, dst, rect),
        }
    }
}
