//! Sixteen f32 lanes over each instruction set, and the element types that load into them. Every operation gives the
//! same bits on every set, sums included.
//!
//! Methods are inlined into functions that enable the instruction set (see [`super::row::kernel`]); nothing else may
//! call them.

use frit_ir::DType;
use half::{bf16, f16};

/// Number of lanes.
pub(crate) const LANES: usize = 16;

/// Sixteen lanes of one instruction set.
///
/// # Safety
/// All methods: the machine must have the instruction set, and pointers must be valid for what is read or written (no
/// alignment needed).
pub(crate) trait Lanes: Copy + 'static {
    /// 16 × f32.
    type F: Copy;
    /// How many vectors the register file holds, about: what register tiles may count on. 0 where fused multiply-adds are
    /// calls, so that larger tiles would only be more code.
    const REGISTERS: usize;

    /// All lanes `v`.
    unsafe fn splat(v: f32) -> Self::F;
    /// Sixteen f32.
    unsafe fn load(p: *const f32) -> Self::F;
    /// Sixteen f16.
    unsafe fn load_f16(p: *const u16) -> Self::F;
    /// Sixteen bf16.
    unsafe fn load_bf16(p: *const u16) -> Self::F;
    /// Sixteen f32 out.
    unsafe fn store(p: *mut f32, v: Self::F);
    /// Sixteen f16 out, rounded to nearest even.
    unsafe fn store_f16(p: *mut u16, v: Self::F);
    /// a + b.
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    /// a · b.
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    /// The larger; b if one is NaN.
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    /// a · b + c, rounded once.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The sum of the lanes of each of four vectors, in the order of [`sum_of`].
    unsafe fn sum4(v: [Self::F; 4]) -> [f32; 4];
    /// Lane `i` of the four vectors to the four f32 at `p + i·stride`.
    unsafe fn turn4(v: [Self::F; 4], p: *mut f32, stride: usize);
}

/// The lanes of `v` as an array.
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
pub(crate) unsafe fn array<L: Lanes>(v: L::F) -> [f32; LANES] {
    let mut a = [0.0; LANES];
    // SAFETY: the caller's; the array holds sixteen.
    unsafe { L::store(a.as_mut_ptr(), v) };
    a
}

/// The sum of the lanes of `v` in the one order that every instruction set keeps.
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
pub(crate) unsafe fn sum<L: Lanes>(v: L::F) -> f32 {
    // SAFETY: the caller's.
    let [total, ..] = unsafe { L::sum4([v; 4]) };
    total
}

/// [`sum`] of an array.
fn sum_of(x: [f32; LANES]) -> f32 {
    let quarter = |q: usize| (x[4 * q] + x[4 * q + 2]) + (x[4 * q + 1] + x[4 * q + 3]);
    (quarter(0) + quarter(2)) + (quarter(1) + quarter(3))
}

/// A float type of memory.
pub(crate) trait Element: Copy + 'static {
    /// Its name.
    const DTYPE: DType;

    /// Its value.
    fn get(self) -> f32;
    /// The nearest value of the type, halves to even.
    fn of(v: f32) -> Self;
    /// As [`Floats`].
    fn floats(p: *const Self) -> Floats {
        Floats { ptr: p.cast_mut().cast(), dtype: Self::DTYPE }
    }
    /// Sixteen values.
    ///
    /// # Safety
    /// As [`Lanes`].
    unsafe fn load<L: Lanes>(p: *const Self) -> L::F;
    /// Sixteen values out, rounded to nearest even.
    ///
    /// # Safety
    /// As [`Lanes`].
    unsafe fn store<L: Lanes>(p: *mut Self, v: L::F);
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;

    #[inline(always)]
    fn get(self) -> f32 {
        self
    }
    #[inline(always)]
    fn of(v: f32) -> f32 {
        v
    }
    #[inline(always)]
    unsafe fn load<L: Lanes>(p: *const f32) -> L::F {
        // SAFETY: the caller's.
        unsafe { L::load(p) }
    }
    #[inline(always)]
    unsafe fn store<L: Lanes>(p: *mut f32, v: L::F) {
        // SAFETY: the caller's.
        unsafe { L::store(p, v) }
    }
}

impl Element for f16 {
    const DTYPE: DType = DType::F16;

    #[inline(always)]
    fn get(self) -> f32 {
        self.to_f32()
    }
    #[inline(always)]
    fn of(v: f32) -> f16 {
        f16::from_f32(v)
    }
    #[inline(always)]
    unsafe fn load<L: Lanes>(p: *const f16) -> L::F {
        // SAFETY: the caller's; f16 is a u16 in memory.
        unsafe { L::load_f16(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store<L: Lanes>(p: *mut f16, v: L::F) {
        // SAFETY: as above.
        unsafe { L::store_f16(p.cast(), v) }
    }
}

impl Element for bf16 {
    const DTYPE: DType = DType::BF16;

    #[inline(always)]
    fn get(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    /// NaN is kept quiet with its upper bits.
    #[inline(always)]
    fn of(v: f32) -> bf16 {
        let b = v.to_bits();
        let rounded = b.wrapping_add(0x7fff + (b >> 16 & 1)) >> 16;
        bf16::from_bits(if v.is_nan() { b >> 16 | 0x40 } else { rounded } as u16)
    }
    #[inline(always)]
    unsafe fn load<L: Lanes>(p: *const bf16) -> L::F {
        // SAFETY: the caller's; bf16 is a u16 in memory.
        unsafe { L::load_bf16(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store<L: Lanes>(p: *mut bf16, v: L::F) {
        // SAFETY: the caller's.
        let a = unsafe { array::<L>(v) };
        let mut out = [bf16::ZERO; LANES];
        for (out, a) in out.iter_mut().zip(a) {
            *out = bf16::of(a);
        }
        // SAFETY: the caller's: sixteen elements at `p`.
        unsafe { p.cast::<[bf16; LANES]>().write_unaligned(out) };
    }
}

/// `n` elements at `src` as f32 to `dst`.
///
/// # Safety
/// As [`Lanes`]; the two do not overlap.
#[inline(always)]
pub(crate) unsafe fn widen<L: Lanes, E: Element>(src: *const E, dst: *mut f32, n: usize) {
    let whole = n - n % LANES;
    // SAFETY: every index is below `n`.
    unsafe {
        for i in (0..whole).step_by(LANES) {
            L::store(dst.add(i), E::load::<L>(src.add(i)));
        }
        for i in whole..n {
            dst.add(i).write((*src.add(i)).get());
        }
    }
}

/// `n` f32 at `src`, rounded, to `dst`.
///
/// # Safety
/// As [`Lanes`]; the two do not overlap.
#[inline(always)]
pub(crate) unsafe fn narrow<L: Lanes, E: Element>(src: *const f32, dst: *mut E, n: usize) {
    let whole = n - n % LANES;
    // SAFETY: every index is below `n`.
    unsafe {
        for i in (0..whole).step_by(LANES) {
            E::store::<L>(dst.add(i), L::load(src.add(i)));
        }
        for i in whole..n {
            dst.add(i).write(E::of(*src.add(i)));
        }
    }
}

/// Elements in memory of a float type (f32, f16 or bf16) known at run time.
///
/// # Safety
/// All methods: as [`Lanes`], for the elements named.
#[derive(Clone, Copy)]
pub(crate) struct Floats {
    pub ptr: *mut u8,
    pub dtype: DType,
}

impl Floats {
    /// The elements from `offset` on.
    #[inline(always)]
    pub fn skip(self, offset: isize) -> Floats {
        let size = if self.dtype == DType::F32 { 4 } else { 2 };
        Floats { ptr: self.ptr.wrapping_offset(offset * size), ..self }
    }

    /// Element `i`.
    #[inline(always)]
    pub unsafe fn get(self, i: usize) -> f32 {
        // SAFETY: the caller's.
        unsafe {
            match self.dtype {
                DType::F16 => (*self.ptr.cast::<f16>().add(i)).get(),
                DType::BF16 => (*self.ptr.cast::<bf16>().add(i)).get(),
                _ => *self.ptr.cast::<f32>().add(i),
            }
        }
    }

    /// Element `i` becomes `v`, rounded to nearest even.
    #[inline(always)]
    pub unsafe fn put(self, i: usize, v: f32) {
        // SAFETY: the caller's.
        unsafe {
            match self.dtype {
                DType::F16 => self.ptr.cast::<f16>().add(i).write(f16::of(v)),
                DType::BF16 => self.ptr.cast::<bf16>().add(i).write(bf16::of(v)),
                _ => self.ptr.cast::<f32>().add(i).write(v),
            }
        }
    }

    /// The `n ≤ 16` elements from `i` on; other lanes are zero.
    #[inline(always)]
    pub unsafe fn load<L: Lanes>(self, i: usize, n: usize) -> L::F {
        // SAFETY: the caller's.
        unsafe {
            if n < LANES {
                return L::load(self.load_part(i, n).as_ptr());
            }
            match self.dtype {
                DType::F16 => f16::load::<L>(self.ptr.cast::<f16>().add(i)),
                DType::BF16 => bf16::load::<L>(self.ptr.cast::<bf16>().add(i)),
                _ => L::load(self.ptr.cast::<f32>().add(i)),
            }
        }
    }

    /// The first `n ≤ 16` lanes become the elements from `i` on.
    #[inline(always)]
    pub unsafe fn store<L: Lanes>(self, i: usize, n: usize, v: L::F) {
        // SAFETY: the caller's.
        unsafe {
            if n < LANES {
                return self.store_part(i, n, &array::<L>(v));
            }
            match self.dtype {
                DType::F16 => f16::store::<L>(self.ptr.cast::<f16>().add(i), v),
                DType::BF16 => bf16::store::<L>(self.ptr.cast::<bf16>().add(i), v),
                _ => L::store(self.ptr.cast::<f32>().add(i), v),
            }
        }
    }

    /// The end of a row, out of line: it stands in every loop.
    #[inline(never)]
    unsafe fn load_part(self, i: usize, n: usize) -> [f32; LANES] {
        let mut a = [0.0; LANES];
        for (k, a) in a.iter_mut().enumerate().take(n) {
            // SAFETY: the caller's.
            *a = unsafe { self.get(i + k) };
        }
        a
    }

    #[inline(never)]
    unsafe fn store_part(self, i: usize, n: usize, v: &[f32; LANES]) {
        for (k, v) in v.iter().enumerate().take(n) {
            // SAFETY: the caller's.
            unsafe { self.put(i + k, *v) };
        }
    }
}

/// `0..n` in steps of sixteen: the start and the number of each.
#[inline(always)]
pub(crate) fn steps(n: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n).step_by(LANES).map(move |i| (i, LANES.min(n - i)))
}

/// Plain Rust. On x86-64 without FMA the longer operations are sixteen calls each, and stay out of line.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

impl Lanes for Portable {
    type F = [f32; LANES];
    const REGISTERS: usize = if cfg!(target_arch = "aarch64") { 8 } else { 0 };

    #[inline(always)]
    unsafe fn splat(v: f32) -> [f32; LANES] {
        [v; LANES]
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> [f32; LANES] {
        // SAFETY: the caller's.
        unsafe { p.cast::<[f32; LANES]>().read_unaligned() }
    }
    #[cfg_attr(target_arch = "x86_64", inline(never))]
    #[cfg_attr(not(target_arch = "x86_64"), inline(always))]
    unsafe fn load_f16(p: *const u16) -> [f32; LANES] {
        // SAFETY: the caller's.
        unsafe { p.cast::<[u16; LANES]>().read_unaligned() }.map(|b| f16::from_bits(b).to_f32())
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> [f32; LANES] {
        // SAFETY: the caller's.
        unsafe { p.cast::<[u16; LANES]>().read_unaligned() }.map(|b| f32::from_bits(u32::from(b) << 16))
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: [f32; LANES]) {
        // SAFETY: the caller's.
        unsafe { p.cast::<[f32; LANES]>().write_unaligned(v) }
    }
    #[cfg_attr(target_arch = "x86_64", inline(never))]
    #[cfg_attr(not(target_arch = "x86_64"), inline(always))]
    unsafe fn store_f16(p: *mut u16, v: [f32; LANES]) {
        // SAFETY: the caller's.
        unsafe { p.cast::<[u16; LANES]>().write_unaligned(v.map(|v| f16::from_f32(v).to_bits())) }
    }
    #[inline(always)]
    unsafe fn add(a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        std::array::from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    unsafe fn mul(a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        std::array::from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    unsafe fn max(a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        std::array::from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[cfg_attr(target_arch = "x86_64", inline(never))]
    #[cfg_attr(not(target_arch = "x86_64"), inline(always))]
    unsafe fn fma(a: [f32; LANES], b: [f32; LANES], c: [f32; LANES]) -> [f32; LANES] {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    #[cfg_attr(target_arch = "x86_64", inline(never))]
    #[cfg_attr(not(target_arch = "x86_64"), inline(always))]
    unsafe fn sum4(v: [[f32; LANES]; 4]) -> [f32; 4] {
        v.map(sum_of)
    }
    #[cfg_attr(target_arch = "x86_64", inline(never))]
    #[cfg_attr(not(target_arch = "x86_64"), inline(always))]
    unsafe fn turn4([a, b, c, d]: [[f32; LANES]; 4], p: *mut f32, stride: usize) {
        for (i, (((a, b), c), d)) in a.into_iter().zip(b).zip(c).zip(d).enumerate() {
            // SAFETY: the caller's.
            unsafe { p.add(i * stride).cast::<[f32; 4]>().write_unaligned([a, b, c, d]) };
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Lanes;

    /// Two registers of eight.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2;

    // SAFETY of every block here: the caller vouches for the instruction set and the pointers.
    #[allow(clippy::undocumented_unsafe_blocks)]
    impl Lanes for Avx2 {
        type F = [__m256; 2];
        const REGISTERS: usize = 8;

        #[inline(always)]
        unsafe fn splat(v: f32) -> [__m256; 2] {
            unsafe { [_mm256_set1_ps(v); 2] }
        }
        #[inline(always)]
        unsafe fn load(p: *const f32) -> [__m256; 2] {
            unsafe { [_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))] }
        }
        #[inline(always)]
        unsafe fn load_f16(p: *const u16) -> [__m256; 2] {
            unsafe {
                [
                    _mm256_cvtph_ps(_mm_loadu_si128(p.cast())),
                    _mm256_cvtph_ps(_mm_loadu_si128(p.add(8).cast())),
                ]
            }
        }
        #[inline(always)]
        unsafe fn load_bf16(p: *const u16) -> [__m256; 2] {
            unsafe {
                let one = |p: *const u16| {
                    let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
                };
                [one(p), one(p.add(8))]
            }
        }
        #[inline(always)]
        unsafe fn store(p: *mut f32, v: [__m256; 2]) {
            unsafe {
                _mm256_storeu_ps(p, v[0]);
                _mm256_storeu_ps(p.add(8), v[1]);
            }
        }
        #[inline(always)]
        unsafe fn store_f16(p: *mut u16, v: [__m256; 2]) {
            unsafe {
                _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v[0]));
                _mm_storeu_si128(p.add(8).cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v[1]));
            }
        }
        #[inline(always)]
        unsafe fn add(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
            unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
        }
        #[inline(always)]
        unsafe fn mul(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
            unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
        }
        #[inline(always)]
        unsafe fn max(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
            unsafe { [_mm256_max_ps(a[0], b[0]), _mm256_max_ps(a[1], b[1])] }
        }
        #[inline(always)]
        unsafe fn fma(a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
            unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
        }
        #[inline(always)]
        unsafe fn sum4(v: [[__m256; 2]; 4]) -> [f32; 4] {
            unsafe {
                let half = |i: usize| {
                    let pair = |a: __m256, b: __m256| {
                        _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b))
                    };
                    let (s, t) =
                        (_mm256_castps_pd(pair(v[0][i], v[1][i])), _mm256_castps_pd(pair(v[2][i], v[3][i])));
                    _mm256_add_ps(
                        _mm256_castpd_ps(_mm256_unpacklo_pd(s, t)),
                        _mm256_castpd_ps(_mm256_unpackhi_pd(s, t)),
                    )
                };
                let both = _mm256_add_ps(half(0), half(1));
                let all = _mm_add_ps(_mm256_castps256_ps128(both), _mm256_extractf128_ps::<1>(both));
                let mut out = [0.0; 4];
                _mm_storeu_ps(out.as_mut_ptr(), all);
                out
            }
        }
        #[inline(always)]
        unsafe fn turn4(v: [[__m256; 2]; 4], p: *mut f32, stride: usize) {
            unsafe {
                for half in 0..2 {
                    let (a, b, c, d) = (v[0][half], v[1][half], v[2][half], v[3][half]);
                    let p = p.add(8 * half * stride);
                    let put = |at: usize, a: __m256, b: __m256, high: bool| {
                        let (a, b) = (_mm256_castps_pd(a), _mm256_castps_pd(b));
                        let v = if high { _mm256_unpackhi_pd(a, b) } else { _mm256_unpacklo_pd(a, b) };
                        let v = _mm256_castpd_ps(v);
                        _mm_storeu_ps(p.add(at * stride), _mm256_castps256_ps128(v));
                        _mm_storeu_ps(p.add((at + 4) * stride), _mm256_extractf128_ps::<1>(v));
                    };
                    let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
                    put(0, ab, cd, false);
                    put(1, ab, cd, true);
                    let (ab, cd) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
                    put(2, ab, cd, false);
                    put(3, ab, cd, true);
                }
            }
        }
    }

    /// One register of sixteen.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512;

    // SAFETY of every block here: the caller vouches for the instruction set and the pointers.
    #[allow(clippy::undocumented_unsafe_blocks)]
    impl Lanes for Avx512 {
        type F = __m512;
        const REGISTERS: usize = 32;

        #[inline(always)]
        unsafe fn splat(v: f32) -> __m512 {
            unsafe { _mm512_set1_ps(v) }
        }
        #[inline(always)]
        unsafe fn load(p: *const f32) -> __m512 {
            unsafe { _mm512_loadu_ps(p) }
        }
        #[inline(always)]
        unsafe fn load_f16(p: *const u16) -> __m512 {
            unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
        }
        #[inline(always)]
        unsafe fn load_bf16(p: *const u16) -> __m512 {
            unsafe {
                let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()));
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
            }
        }
        #[inline(always)]
        unsafe fn store(p: *mut f32, v: __m512) {
            unsafe { _mm512_storeu_ps(p, v) }
        }
        #[inline(always)]
        unsafe fn store_f16(p: *mut u16, v: __m512) {
            unsafe { _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
        }
        #[inline(always)]
        unsafe fn add(a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_add_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn mul(a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_mul_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn max(a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_max_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }
        #[inline(always)]
        unsafe fn sum4(v: [__m512; 4]) -> [f32; 4] {
            unsafe {
                let pair =
                    |a: __m512, b: __m512| _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
                let (s, t) = (_mm512_castps_pd(pair(v[0], v[1])), _mm512_castps_pd(pair(v[2], v[3])));
                let quarters = _mm512_add_ps(
                    _mm512_castpd_ps(_mm512_unpacklo_pd(s, t)),
                    _mm512_castpd_ps(_mm512_unpackhi_pd(s, t)),
                );
                let both =
                    _mm256_add_ps(_mm512_castps512_ps256(quarters), _mm512_extractf32x8_ps::<1>(quarters));
                let all = _mm_add_ps(_mm256_castps256_ps128(both), _mm256_extractf128_ps::<1>(both));
                let mut out = [0.0; 4];
                _mm_storeu_ps(out.as_mut_ptr(), all);
                out
            }
        }
        #[inline(always)]
        unsafe fn turn4(v: [__m512; 4], p: *mut f32, stride: usize) {
            unsafe {
                let put = |at: usize, a: __m512, b: __m512, high: bool| {
                    let (a, b) = (_mm512_castps_pd(a), _mm512_castps_pd(b));
                    let v = if high { _mm512_unpackhi_pd(a, b) } else { _mm512_unpacklo_pd(a, b) };
                    let (v, p) = (_mm512_castpd_ps(v), p.add(at * stride));
                    _mm_storeu_ps(p, _mm512_castps512_ps128(v));
                    _mm_storeu_ps(p.add(4 * stride), _mm512_extractf32x4_ps::<1>(v));
                    _mm_storeu_ps(p.add(8 * stride), _mm512_extractf32x4_ps::<2>(v));
                    _mm_storeu_ps(p.add(12 * stride), _mm512_extractf32x4_ps::<3>(v));
                };
                let (ab, cd) = (_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpacklo_ps(v[2], v[3]));
                put(0, ab, cd, false);
                put(1, ab, cd, true);
                let (ab, cd) = (_mm512_unpackhi_ps(v[0], v[1]), _mm512_unpackhi_ps(v[2], v[3]));
                put(2, ab, cd, false);
                put(3, ab, cd, true);
            }
        }
    }
}
