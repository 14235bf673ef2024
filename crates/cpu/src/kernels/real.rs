//! The types that reductions and softmax compute in: f32 (for f32, f16 and bf16), f64, and i64 for integers.

use frit_ir::DType;
use half::{bf16, f16};

use super::lanes::{Element, Lanes};
use crate::expr::TILE;
use crate::expr::io::{self, Rect};
use crate::expr::steps::{ints, put_ints};
use crate::math;

/// A type that values are widened to.
pub(crate) trait Wide: Copy + PartialOrd + 'static {
    /// 0.
    const ZERO: Self;

    /// `n ≤ TILE` elements of type `dtype`, `stride` apart, to `to`.
    ///
    /// # Safety
    /// The elements are readable.
    unsafe fn load<L: Lanes>(dtype: DType, p: *const u8, stride: isize, n: usize, to: &mut [Self; TILE]);
    /// `v`, rounded or wrapped, as the element of type `dtype` at `p`.
    ///
    /// # Safety
    /// The element is writable.
    unsafe fn store(self, dtype: DType, p: *mut u8);
    /// The values `v`, rounded or wrapped, as neighbouring elements of type `dtype` from `p` on.
    ///
    /// # Safety
    /// The elements are writable.
    unsafe fn store_all<L: Lanes>(dtype: DType, v: &[Self], p: *mut u8);
    /// Whether it is NaN.
    fn is_nan(self) -> bool;
    /// a + b; integers wrap.
    fn plus(self, b: Self) -> Self;
    /// a · b; integers wrap.
    fn times(self, b: Self) -> Self;
    /// a / n, for a mean.
    fn over(self, n: usize) -> Self;
}

/// A float that softmax computes in.
pub(crate) trait Real: Wide {
    /// −∞.
    const LOWEST: Self;
    /// a − b.
    fn minus(self, b: Self) -> Self;
    /// e^a.
    fn exp(self) -> Self;
    /// Natural logarithm.
    fn ln(self) -> Self;
    /// a / b.
    fn divided(self, b: Self) -> Self;
}

macro_rules! real {
    ($t:ty, $exp:path, $ln:path) => {
        impl Real for $t {
            const LOWEST: $t = <$t>::NEG_INFINITY;
            #[inline(always)]
            fn minus(self, b: $t) -> $t {
                self - b
            }
            #[inline(always)]
            fn exp(self) -> $t {
                $exp(self)
            }
            #[inline(always)]
            fn ln(self) -> $t {
                $ln(self)
            }
            #[inline(always)]
            fn divided(self, b: $t) -> $t {
                self / b
            }
        }
    };
}

real!(f32, math::exp, math::log);
real!(f64, f64::exp, f64::ln);

fn rect(stride: isize, n: usize) -> Rect {
    Rect { row_stride: 0, stride, rows: 1, cols: n }
}

impl Wide for f32 {
    const ZERO: f32 = 0.0;

    #[inline(always)]
    unsafe fn load<L: Lanes>(dtype: DType, p: *const u8, stride: isize, n: usize, to: &mut [f32; TILE]) {
        // SAFETY: the caller's; `n ≤ TILE`.
        unsafe { io::load::<L>(dtype, p, &rect(stride, n), to.as_mut_ptr().cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, dtype: DType, p: *mut u8) {
        // SAFETY: the caller's.
        unsafe {
            match dtype {
                DType::F16 => p.cast::<f16>().write(f16::of(self)),
                DType::BF16 => p.cast::<bf16>().write(bf16::of(self)),
                _ => p.cast::<f32>().write(self),
            }
        }
    }
    #[inline(always)]
    unsafe fn store_all<L: Lanes>(dtype: DType, v: &[f32], p: *mut u8) {
        // SAFETY: the caller's.
        unsafe { io::store::<L>(dtype, v.as_ptr().cast(), p, &rect(1, v.len())) }
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        f32::is_nan(self)
    }
    #[inline(always)]
    fn plus(self, b: f32) -> f32 {
        self + b
    }
    #[inline(always)]
    fn times(self, b: f32) -> f32 {
        self * b
    }
    #[inline(always)]
    fn over(self, n: usize) -> f32 {
        self / n as f32
    }
}

impl Wide for f64 {
    const ZERO: f64 = 0.0;

    #[inline(always)]
    unsafe fn load<L: Lanes>(dtype: DType, p: *const u8, stride: isize, n: usize, to: &mut [f64; TILE]) {
        // SAFETY: the caller's; `n ≤ TILE`.
        unsafe { io::load::<L>(dtype, p, &rect(stride, n), to.as_mut_ptr().cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, _: DType, p: *mut u8) {
        // SAFETY: the caller's.
        unsafe { p.cast::<f64>().write(self) }
    }
    #[inline(always)]
    unsafe fn store_all<L: Lanes>(dtype: DType, v: &[f64], p: *mut u8) {
        // SAFETY: the caller's.
        unsafe { io::store::<L>(dtype, v.as_ptr().cast(), p, &rect(1, v.len())) }
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        f64::is_nan(self)
    }
    #[inline(always)]
    fn plus(self, b: f64) -> f64 {
        self + b
    }
    #[inline(always)]
    fn times(self, b: f64) -> f64 {
        self * b
    }
    #[inline(always)]
    fn over(self, n: usize) -> f64 {
        self / n as f64
    }
}

/// u64 is held with its upper bit flipped where its order matters; see `reduce`.
impl Wide for i64 {
    const ZERO: i64 = 0;

    #[inline(always)]
    unsafe fn load<L: Lanes>(dtype: DType, p: *const u8, stride: isize, n: usize, to: &mut [i64; TILE]) {
        let mut own = [0u64; TILE];
        // SAFETY: the caller's; `n ≤ TILE` elements of at most eight bytes.
        unsafe {
            io::load::<L>(dtype, p, &rect(stride, n), own.as_mut_ptr().cast());
            ints(dtype, own.as_ptr().cast(), &mut to[..n]);
        }
    }
    #[inline(always)]
    unsafe fn store(self, dtype: DType, p: *mut u8) {
        // SAFETY: the caller's.
        unsafe { put_ints(dtype, &[self], p) }
    }
    #[inline(always)]
    unsafe fn store_all<L: Lanes>(dtype: DType, v: &[i64], p: *mut u8) {
        // SAFETY: the caller's.
        unsafe { put_ints(dtype, v, p) }
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        false
    }
    #[inline(always)]
    fn plus(self, b: i64) -> i64 {
        self.wrapping_add(b)
    }
    #[inline(always)]
    fn times(self, b: i64) -> i64 {
        self.wrapping_mul(b)
    }
    #[inline(always)]
    fn over(self, n: usize) -> i64 {
        self.checked_div(n as i64).unwrap_or(0)
    }
}
