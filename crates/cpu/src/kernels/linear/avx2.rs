//! [`Simd`] over AVX2, FMA and F16C, with AVX-VNNI or without: two registers per value, rows 0..8 and 8..16 of a panel.

use std::arch::x86_64::*;

use super::simd::Simd;

/// AVX2, FMA and F16C, and AVX-VNNI if `VNNI`.
#[derive(Clone, Copy)]
pub(crate) struct Avx2<const VNNI: bool>;

#[inline(always)]
fn count(n: u32) -> __m128i {
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_cvtsi32_si128(n as i32) }
}

/// The largest lane.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn reduce_max(v: __m256i) -> i32 {
    // SAFETY: the caller's.
    unsafe {
        let v = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
        let v = _mm_max_epi32(v, _mm_shuffle_epi32::<0b01_00_11_10>(v));
        _mm_cvtsi128_si32(_mm_max_epi32(v, _mm_shuffle_epi32::<0b10_11_00_01>(v)))
    }
}

/// The sum of sixteen signed bytes.
///
/// # Safety
/// SSE2.
#[inline(always)]
pub(super) unsafe fn sum_bytes(v: __m128i) -> i32 {
    // SAFETY: the caller's.
    unsafe {
        let sums = _mm_sad_epu8(_mm_xor_si128(v, _mm_set1_epi8(-128)), _mm_setzero_si128());
        _mm_cvtsi128_si32(_mm_add_epi32(sums, _mm_unpackhi_epi64(sums, sums))) - 16 * 128
    }
}

/// Eight floats rounded to i32, limited to ±127, NaN made 0.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn integers(v: __m256) -> __m256i {
    // SAFETY: the caller's.
    unsafe {
        let real = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_ORD_Q>(v, v));
        let v = _mm256_min_ps(_mm256_max_ps(v, _mm256_set1_ps(-127.0)), _mm256_set1_ps(127.0));
        _mm256_and_si256(_mm256_cvtps_epi32(v), real)
    }
}

// Every method is inlined into a function that enables the features; pointers are the caller's, as the trait says.
impl<const VNNI: bool> Simd for Avx2<VNNI> {
    type B = [__m256i; 2];
    type I = [__m256i; 2];
    type F = [__m256; 2];
    // vpdpbusd wants unsigned codes: signed ones are moved up by 128.
    const BIAS: i32 = if VNNI { 128 } else { 0 };

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self::B {
        // SAFETY: the caller's.
        unsafe { [_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(32).cast())] }
    }
    #[inline(always)]
    unsafe fn store(p: *mut u8, v: Self::B) {
        // SAFETY: the caller's.
        unsafe {
            _mm256_storeu_si256(p.cast(), v[0]);
            _mm256_storeu_si256(p.add(32).cast(), v[1]);
        }
    }
    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        // SAFETY: a prefetch reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
    #[inline(always)]
    unsafe fn and(v: Self::B, mask: u8) -> Self::B {
        // SAFETY: the caller's.
        unsafe {
            let m = _mm256_set1_epi8(mask as i8);
            [_mm256_and_si256(v[0], m), _mm256_and_si256(v[1], m)]
        }
    }
    #[inline(always)]
    unsafe fn shr(v: Self::B, n: u32, mask: u8) -> Self::B {
        // SAFETY: the caller's.
        unsafe { Self::and([_mm256_srl_epi16(v[0], count(n)), _mm256_srl_epi16(v[1], count(n))], mask) }
    }
    #[inline(always)]
    unsafe fn shl(v: Self::B, n: u32, mask: u8) -> Self::B {
        // SAFETY: the caller's.
        unsafe { Self::and([_mm256_sll_epi16(v[0], count(n)), _mm256_sll_epi16(v[1], count(n))], mask) }
    }
    #[inline(always)]
    unsafe fn or(a: Self::B, b: Self::B) -> Self::B {
        // SAFETY: the caller's.
        unsafe { [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn signed(v: Self::B) -> Self::B {
        if !VNNI {
            return v;
        }
        // SAFETY: the caller's.
        unsafe {
            let top = _mm256_set1_epi8(-128);
            [_mm256_xor_si256(v[0], top), _mm256_xor_si256(v[1], top)]
        }
    }
    #[inline(always)]
    unsafe fn dot(signed: bool, acc: Self::I, codes: Self::B, x: *const i8) -> Self::I {
        // SAFETY: the caller's.
        unsafe {
            let x = _mm256_set1_epi32(x.cast::<i32>().read_unaligned());
            if VNNI {
                return [
                    _mm256_dpbusd_avx_epi32(acc[0], codes[0], x),
                    _mm256_dpbusd_avx_epi32(acc[1], codes[1], x),
                ];
            }
            let ones = _mm256_set1_epi16(1);
            let mut out = acc;
            for (o, c) in out.iter_mut().zip(codes) {
                // Neither form overflows 16 bits: |code| ≤ 128 and |x| ≤ 127 give at most 32512 a pair.
                let pairs = if signed {
                    _mm256_maddubs_epi16(_mm256_abs_epi8(c), _mm256_sign_epi8(x, c))
                } else {
                    _mm256_maddubs_epi16(c, x)
                };
                *o = _mm256_add_epi32(*o, _mm256_madd_epi16(pairs, ones));
            }
            out
        }
    }
    #[inline(always)]
    unsafe fn byte(signed: bool, codes: Self::B, j: usize) -> Self::F {
        // SAFETY: the caller's.
        unsafe {
            let one = |c: __m256i| {
                _mm256_cvtepi32_ps(if signed {
                    _mm256_sra_epi32(_mm256_sll_epi32(c, count(24 - 8 * j as u32)), count(24))
                } else {
                    _mm256_and_si256(_mm256_srl_epi32(c, count(8 * j as u32)), _mm256_set1_epi32(255))
                })
            };
            [one(codes[0]), one(codes[1])]
        }
    }
    #[inline(always)]
    unsafe fn splat_i(v: i32) -> Self::I {
        // SAFETY: the caller's.
        unsafe { [_mm256_set1_epi32(v); 2] }
    }
    #[inline(always)]
    unsafe fn add_i(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: the caller's.
        unsafe { [_mm256_add_epi32(a[0], b[0]), _mm256_add_epi32(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn mul_i(a: Self::I, by: i32) -> Self::I {
        // SAFETY: the caller's.
        unsafe {
            let by = _mm256_set1_epi32(by);
            [_mm256_mullo_epi32(a[0], by), _mm256_mullo_epi32(a[1], by)]
        }
    }
    #[inline(always)]
    unsafe fn to_f(v: Self::I) -> Self::F {
        // SAFETY: the caller's.
        unsafe { [_mm256_cvtepi32_ps(v[0]), _mm256_cvtepi32_ps(v[1])] }
    }
    #[inline(always)]
    unsafe fn splat(v: f32) -> Self::F {
        // SAFETY: the caller's.
        unsafe { [_mm256_set1_ps(v); 2] }
    }
    #[inline(always)]
    unsafe fn load_f32(p: *const f32) -> Self::F {
        // SAFETY: the caller's.
        unsafe { [_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))] }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> Self::F {
        // SAFETY: the caller's.
        unsafe {
            let half = |p: *const u16| _mm256_cvtph_ps(_mm_loadu_si128(p.cast()));
            [half(p), half(p.add(8))]
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> Self::F {
        // SAFETY: the caller's.
        unsafe {
            let half = |p: *const u16| {
                let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
            };
            [half(p), half(p.add(8))]
        }
    }
    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> Self::F {
        // SAFETY: the caller's.
        unsafe {
            let half = |p: *const u8| _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast())));
            [half(p), half(p.add(8))]
        }
    }
    #[inline(always)]
    unsafe fn load_u4(p: *const u8, shift: u32) -> Self::F {
        // SAFETY: the caller's.
        unsafe {
            let half = |p: *const u8| {
                let wide = _mm256_srl_epi32(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast())), count(shift));
                _mm256_cvtepi32_ps(_mm256_and_si256(wide, _mm256_set1_epi32(15)))
            };
            [half(p), half(p.add(8))]
        }
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> Self::F {
        // SAFETY: the caller's.
        unsafe {
            let half = |p: *const i8| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast())));
            [half(p), half(p.add(8))]
        }
    }
    #[inline(always)]
    unsafe fn store_f32(p: *mut f32, v: Self::F) {
        // SAFETY: the caller's.
        unsafe {
            _mm256_storeu_ps(p, v[0]);
            _mm256_storeu_ps(p.add(8), v[1]);
        }
    }
    #[inline(always)]
    unsafe fn store_f16(p: *mut u16, v: Self::F) {
        // SAFETY: the caller's.
        unsafe {
            _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(v[0]));
            _mm_storeu_si128(p.add(8).cast(), _mm256_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(v[1]));
        }
    }
    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the caller's.
        unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // SAFETY: the caller's.
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }
    #[inline(always)]
    unsafe fn neg_mul(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: the caller's.
        unsafe {
            let z = _mm256_set1_ps(-0.0);
            [_mm256_fnmadd_ps(a[0], b[0], z), _mm256_fnmadd_ps(a[1], b[1], z)]
        }
    }
    #[inline(always)]
    unsafe fn amax(a: Self::F, b: Self::F) -> f32 {
        // The bits of absolute values order as integers do, NaN above all.
        // SAFETY: the caller's.
        unsafe {
            let abs = |v: __m256| _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fff_ffff));
            let a = _mm256_max_epi32(abs(a[0]), abs(a[1]));
            let b = _mm256_max_epi32(abs(b[0]), abs(b[1]));
            f32::from_bits(reduce_max(_mm256_max_epi32(a, b)) as u32)
        }
    }
    #[inline(always)]
    unsafe fn rounded(v: Self::F, d: f32, most: f32) -> Self::F {
        // The second operand of max and min is the one that is kept when there is a NaN.
        // SAFETY: the caller's.
        unsafe {
            let (d, lo, hi) = (_mm256_set1_ps(d), _mm256_set1_ps(-most), _mm256_set1_ps(most));
            let half = |v: __m256| {
                let r =
                    _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(_mm256_div_ps(v, d));
                _mm256_min_ps(hi, _mm256_max_ps(lo, r))
            };
            [half(v[0]), half(v[1])]
        }
    }
    #[inline(always)]
    unsafe fn codes(v: Self::F, out: *mut i8) -> (Self::F, i32) {
        // SAFETY: the caller's.
        unsafe {
            let q = [integers(v[0]), integers(v[1])];
            let words = _mm256_packs_epi32(q[0], q[1]);
            // Packing works by 128-bit halves; put the four quarters in order.
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(words);
            let bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
            _mm_storeu_si128(out.cast(), bytes);
            ([_mm256_cvtepi32_ps(q[0]), _mm256_cvtepi32_ps(q[1])], sum_bytes(bytes))
        }
    }
}
