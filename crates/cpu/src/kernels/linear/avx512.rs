//! [`Simd`] over AVX-512 with VNNI: one register per value.

use std::arch::x86_64::*;

use super::avx2::sum_bytes;
use super::simd::Simd;

/// AVX-512 F, BW, VL, DQ and VNNI.
#[derive(Clone, Copy)]
pub(crate) struct Avx512;

#[inline(always)]
fn count(n: u32) -> __m128i {
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_cvtsi32_si128(n as i32) }
}

// Every method is inlined into a function that enables the features; pointers are the caller's, as the trait says.
impl Simd for Avx512 {
    type B = __m512i;
    type I = __m512i;
    type F = __m512;
    // vpdpbusd wants unsigned codes: signed ones are moved up by 128.
    const BIAS: i32 = 128;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m512i {
        // SAFETY: the caller's.
        unsafe { _mm512_loadu_si512(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut u8, v: __m512i) {
        // SAFETY: the caller's.
        unsafe { _mm512_storeu_si512(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        // SAFETY: a prefetch reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
    #[inline(always)]
    unsafe fn and(v: __m512i, mask: u8) -> __m512i {
        // SAFETY: the caller's.
        unsafe { _mm512_and_si512(v, _mm512_set1_epi8(mask as i8)) }
    }
    #[inline(always)]
    unsafe fn shr(v: __m512i, n: u32, mask: u8) -> __m512i {
        // SAFETY: the caller's.
        unsafe { _mm512_and_si512(_mm512_srl_epi16(v, count(n)), _mm512_set1_epi8(mask as i8)) }
    }
    #[inline(always)]
    unsafe fn shl(v: __m512i, n: u32, mask: u8) -> __m512i {
        // SAFETY: the caller's.
        unsafe { _mm512_and_si512(_mm512_sll_epi16(v, count(n)), _mm512_set1_epi8(mask as i8)) }
    }
    #[inline(always)]
    unsafe fn or(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the caller's.
        unsafe { _mm512_or_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn signed(v: __m512i) -> __m512i {
        // SAFETY: the caller's.
        unsafe { _mm512_xor_si512(v, _mm512_set1_epi8(-128)) }
    }
    #[inline(always)]
    unsafe fn dot(_: bool, acc: __m512i, codes: __m512i, x: *const i8) -> __m512i {
        // SAFETY: the caller's.
        unsafe { _mm512_dpbusd_epi32(acc, codes, _mm512_set1_epi32(x.cast::<i32>().read_unaligned())) }
    }
    #[inline(always)]
    unsafe fn byte(signed: bool, codes: __m512i, j: usize) -> __m512 {
        // SAFETY: the caller's.
        unsafe {
            if signed {
                let up = _mm512_sll_epi32(codes, count(24 - 8 * j as u32));
                _mm512_cvtepi32_ps(_mm512_sra_epi32(up, count(24)))
            } else {
                let down = _mm512_srl_epi32(codes, count(8 * j as u32));
                _mm512_cvtepi32_ps(_mm512_and_si512(down, _mm512_set1_epi32(255)))
            }
        }
    }
    #[inline(always)]
    unsafe fn splat_i(v: i32) -> __m512i {
        // SAFETY: the caller's.
        unsafe { _mm512_set1_epi32(v) }
    }
    #[inline(always)]
    unsafe fn add_i(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the caller's.
        unsafe { _mm512_add_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn mul_i(a: __m512i, by: i32) -> __m512i {
        // SAFETY: the caller's.
        unsafe {
            let by = _mm512_set1_epi32(by);
            _mm512_mullo_epi32(a, by)
        }
    }
    #[inline(always)]
    unsafe fn to_f(v: __m512i) -> __m512 {
        // SAFETY: the caller's.
        unsafe { _mm512_cvtepi32_ps(v) }
    }
    #[inline(always)]
    unsafe fn splat(v: f32) -> __m512 {
        // SAFETY: the caller's.
        unsafe { _mm512_set1_ps(v) }
    }
    #[inline(always)]
    unsafe fn load_f32(p: *const f32) -> __m512 {
        // SAFETY: the caller's.
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> __m512 {
        // SAFETY: the caller's.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> __m512 {
        // SAFETY: the caller's.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> __m512 {
        // SAFETY: the caller's.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_u4(p: *const u8, shift: u32) -> __m512 {
        // SAFETY: the caller's.
        unsafe {
            let wide = _mm512_srl_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast())), count(shift));
            _mm512_cvtepi32_ps(_mm512_and_si512(wide, _mm512_set1_epi32(15)))
        }
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> __m512 {
        // SAFETY: the caller's.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn store_f32(p: *mut f32, v: __m512) {
        // SAFETY: the caller's.
        unsafe { _mm512_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn store_f16(p: *mut u16, v: __m512) {
        // SAFETY: the caller's.
        unsafe { _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(v)) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        // SAFETY: the caller's.
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: the caller's.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn neg_mul(a: __m512, b: __m512) -> __m512 {
        // SAFETY: the caller's.
        unsafe { _mm512_fnmadd_ps(a, b, _mm512_set1_ps(-0.0)) }
    }
    #[inline(always)]
    unsafe fn amax(a: __m512, b: __m512) -> f32 {
        // The bits of absolute values order as integers do, NaN above all.
        // SAFETY: the caller's.
        unsafe {
            let abs = _mm512_set1_epi32(0x7fff_ffff);
            let a = _mm512_and_si512(_mm512_castps_si512(a), abs);
            let b = _mm512_and_si512(_mm512_castps_si512(b), abs);
            f32::from_bits(_mm512_reduce_max_epi32(_mm512_max_epi32(a, b)) as u32)
        }
    }
    #[inline(always)]
    unsafe fn rounded(v: __m512, d: f32, most: f32) -> __m512 {
        // The second operand of max and min is the one that is kept when there is a NaN.
        // SAFETY: the caller's.
        unsafe {
            let r = _mm512_div_ps(v, _mm512_set1_ps(d));
            let r = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(r);
            _mm512_min_ps(_mm512_set1_ps(most), _mm512_max_ps(_mm512_set1_ps(-most), r))
        }
    }
    #[inline(always)]
    unsafe fn codes(v: __m512, out: *mut i8) -> (__m512, i32) {
        // SAFETY: the caller's.
        unsafe {
            let real = _mm512_cmp_ps_mask::<_CMP_ORD_Q>(v, v);
            let v = _mm512_min_ps(_mm512_max_ps(v, _mm512_set1_ps(-127.0)), _mm512_set1_ps(127.0));
            let q = _mm512_maskz_cvtps_epi32(real, v);
            let bytes = _mm512_cvtepi32_epi8(q);
            _mm_storeu_si128(out.cast(), bytes);
            (_mm512_cvtepi32_ps(q), sum_bytes(bytes))
        }
    }
}
