//! [`Simd`] over NEON with the dot product of Armv8.2: four registers per value, four rows of a panel each.

use std::arch::aarch64::*;
use std::arch::asm;

use super::simd::Simd;

/// NEON and dotprod.
#[derive(Clone, Copy)]
pub(crate) struct Neon;

/// `acc` plus, in each lane, the products of four signed bytes.
///
/// # Safety
/// The machine has dotprod.
#[inline(always)]
unsafe fn dot(mut acc: int32x4_t, a: uint8x16_t, b: int8x16_t) -> int32x4_t {
    // The intrinsic is not in stable Rust.
    // SAFETY: registers in, registers out; the caller has the instruction.
    unsafe {
        asm!("sdot {0:v}.4s, {1:v}.16b, {2:v}.16b", inout(vreg) acc, in(vreg) a, in(vreg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    acc
}

/// Eight f16, four to a register.
#[inline(always)]
fn widen(v: uint16x8_t) -> [float32x4_t; 2] {
    let (lo, hi): (float32x4_t, float32x4_t);
    // SAFETY: registers in, registers out; the instructions are part of NEON.
    unsafe {
        asm!("fcvtl {0:v}.4s, {2:v}.4h", "fcvtl2 {1:v}.4s, {2:v}.8h", out(vreg) lo, lateout(vreg) hi, in(vreg) v,
            options(pure, nomem, nostack, preserves_flags));
    }
    [lo, hi]
}

/// Eight floats rounded to f16.
#[inline(always)]
fn narrow(lo: float32x4_t, hi: float32x4_t) -> uint16x8_t {
    let v: uint16x8_t;
    // SAFETY: as `widen`.
    unsafe {
        asm!("fcvtn {0:v}.4h, {1:v}.4s", "fcvtn2 {0:v}.8h, {2:v}.4s", out(vreg) v, in(vreg) lo, in(vreg) hi,
            options(pure, nomem, nostack, preserves_flags));
    }
    v
}

/// Sixteen bytes as floats.
#[inline(always)]
fn floats(v: uint8x16_t) -> [float32x4_t; 4] {
    // SAFETY: NEON is part of every aarch64 target.
    unsafe {
        let (a, b) = (vmovl_u8(vget_low_u8(v)), vmovl_high_u8(v));
        let quarter = |v: uint16x4_t| vcvtq_f32_u32(vmovl_u16(v));
        [
            quarter(vget_low_u16(a)),
            quarter(vget_high_u16(a)),
            quarter(vget_low_u16(b)),
            quarter(vget_high_u16(b)),
        ]
    }
}

/// `f` of each of four registers.
#[inline(always)]
fn each<T>(f: impl Fn(usize) -> T) -> [T; 4] {
    [f(0), f(1), f(2), f(3)]
}

// NEON is part of every aarch64 target; dotprod is the caller's, and so are pointers, as the trait says.
impl Simd for Neon {
    type B = [uint8x16_t; 4];
    type I = [int32x4_t; 4];
    type F = [float32x4_t; 4];
    const BIAS: i32 = 0;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self::B {
        // SAFETY: the caller's.
        each(|i| unsafe { vld1q_u8(p.add(16 * i)) })
    }
    #[inline(always)]
    unsafe fn store(p: *mut u8, v: Self::B) {
        // SAFETY: the caller's.
        each(|i| unsafe { vst1q_u8(p.add(16 * i), v[i]) });
    }
    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        // SAFETY: a prefetch reads nothing.
        unsafe { asm!("prfm pldl1keep, [{0}]", in(reg) p, options(nostack, preserves_flags, readonly)) }
    }
    #[inline(always)]
    unsafe fn and(v: Self::B, mask: u8) -> Self::B {
        // SAFETY: NEON.
        each(|i| unsafe { vandq_u8(v[i], vdupq_n_u8(mask)) })
    }
    #[inline(always)]
    unsafe fn shr(v: Self::B, n: u32, mask: u8) -> Self::B {
        // SAFETY: NEON.
        each(|i| unsafe { vandq_u8(vshlq_u8(v[i], vdupq_n_s8(-(n as i8))), vdupq_n_u8(mask)) })
    }
    #[inline(always)]
    unsafe fn shl(v: Self::B, n: u32, mask: u8) -> Self::B {
        // SAFETY: NEON.
        each(|i| unsafe { vandq_u8(vshlq_u8(v[i], vdupq_n_s8(n as i8)), vdupq_n_u8(mask)) })
    }
    #[inline(always)]
    unsafe fn or(a: Self::B, b: Self::B) -> Self::B {
        // SAFETY: NEON.
        each(|i| unsafe { vorrq_u8(a[i], b[i]) })
    }
    #[inline(always)]
    unsafe fn signed(v: Self::B) -> Self::B {
        v
    }
    #[inline(always)]
    unsafe fn dot(_: bool, acc: Self::I, codes: Self::B, x: *const i8) -> Self::I {
        // Codes that are not signed are at most 127, so that both kinds are signed bytes here.
        // SAFETY: the caller's.
        unsafe {
            let x = vreinterpretq_s8_s32(vdupq_n_s32(x.cast::<i32>().read_unaligned()));
            each(|i| dot(acc[i], codes[i], x))
        }
    }
    #[inline(always)]
    unsafe fn byte(signed: bool, codes: Self::B, j: usize) -> Self::F {
        // SAFETY: NEON.
        each(|i| unsafe {
            let up = vshlq_u32(vreinterpretq_u32_u8(codes[i]), vdupq_n_s32(24 - 8 * j as i32));
            match signed {
                true => vcvtq_f32_s32(vshrq_n_s32::<24>(vreinterpretq_s32_u32(up))),
                false => vcvtq_f32_u32(vshrq_n_u32::<24>(up)),
            }
        })
    }
    #[inline(always)]
    unsafe fn splat_i(v: i32) -> Self::I {
        // SAFETY: NEON.
        each(|_| unsafe { vdupq_n_s32(v) })
    }
    #[inline(always)]
    unsafe fn add_i(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: NEON.
        each(|i| unsafe { vaddq_s32(a[i], b[i]) })
    }
    #[inline(always)]
    unsafe fn mul_i(a: Self::I, by: i32) -> Self::I {
        // SAFETY: NEON.
        each(|i| unsafe { vmulq_s32(a[i], vdupq_n_s32(by)) })
    }
    #[inline(always)]
    unsafe fn to_f(v: Self::I) -> Self::F {
        // SAFETY: NEON.
        each(|i| unsafe { vcvtq_f32_s32(v[i]) })
    }
    #[inline(always)]
    unsafe fn splat(v: f32) -> Self::F {
        // SAFETY: NEON.
        each(|_| unsafe { vdupq_n_f32(v) })
    }
    #[inline(always)]
    unsafe fn load_f32(p: *const f32) -> Self::F {
        // SAFETY: the caller's.
        each(|i| unsafe { vld1q_f32(p.add(4 * i)) })
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> Self::F {
        // SAFETY: the caller's.
        let [a, b] = unsafe { [widen(vld1q_u16(p)), widen(vld1q_u16(p.add(8)))] };
        [a[0], a[1], b[0], b[1]]
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> Self::F {
        // SAFETY: the caller's.
        each(|i| unsafe { vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(p.add(4 * i)))) })
    }
    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> Self::F {
        // SAFETY: the caller's.
        floats(unsafe { vld1q_u8(p) })
    }
    #[inline(always)]
    unsafe fn load_u4(p: *const u8, shift: u32) -> Self::F {
        // SAFETY: the caller's.
        floats(unsafe { vandq_u8(vshlq_u8(vld1q_u8(p), vdupq_n_s8(-(shift as i8))), vdupq_n_u8(15)) })
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> Self::F {
        // SAFETY: the caller's.
        unsafe {
            let v = vld1q_s8(p);
            let (a, b) = (vmovl_s8(vget_low_s8(v)), vmovl_high_s8(v));
            let quarter = |v: int16x4_t| vcvtq_f32_s32(vmovl_s16(v));
            [
                quarter(vget_low_s16(a)),
                quarter(vget_high_s16(a)),
                quarter(vget_low_s16(b)),
                quarter(vget_high_s16(b)),
            ]
        }
    }
    #[inline(always)]
    unsafe fn store_f32(p: *mut f32, v: Self::F) {
        // SAFETY: the caller's.
        each(|i| unsafe { vst1q_f32(p.add(4 * i), v[i]) });
    }
    #[inline(always)]
    unsafe fn store_f16(p: *mut u16, v: Self::F) {
        // SAFETY: the caller's.
        unsafe {
            vst1q_u16(p, narrow(v[0], v[1]));
            vst1q_u16(p.add(8), narrow(v[2], v[3]));
        }
    }
    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: NEON.
        each(|i| unsafe { vmulq_f32(a[i], b[i]) })
    }
    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // SAFETY: NEON.
        each(|i| unsafe { vfmaq_f32(c[i], a[i], b[i]) })
    }
    #[inline(always)]
    unsafe fn neg_mul(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: NEON.
        each(|i| unsafe { vnegq_f32(vmulq_f32(a[i], b[i])) })
    }
    #[inline(always)]
    unsafe fn amax(a: Self::F, b: Self::F) -> f32 {
        // The bits of absolute values order as integers do, NaN above all.
        // SAFETY: NEON.
        unsafe {
            let top = each(|i| {
                let bits = |v| vreinterpretq_u32_f32(vabsq_f32(v));
                vmaxq_u32(bits(a[i]), bits(b[i]))
            });
            f32::from_bits(vmaxvq_u32(vmaxq_u32(vmaxq_u32(top[0], top[1]), vmaxq_u32(top[2], top[3]))))
        }
    }
    #[inline(always)]
    unsafe fn rounded(v: Self::F, d: f32, most: f32) -> Self::F {
        // SAFETY: NEON.
        each(|i| unsafe {
            let r = vrndnq_f32(vdivq_f32(v[i], vdupq_n_f32(d)));
            vminq_f32(vmaxq_f32(r, vdupq_n_f32(-most)), vdupq_n_f32(most))
        })
    }
    #[inline(always)]
    unsafe fn codes(v: Self::F, out: *mut i8) -> (Self::F, i32) {
        // SAFETY: the caller's. The conversion rounds half to even and makes NaN 0.
        unsafe {
            let q =
                each(|i| vcvtnq_s32_f32(vminq_f32(vmaxq_f32(v[i], vdupq_n_f32(-127.0)), vdupq_n_f32(127.0))));
            let words = [
                vcombine_s16(vmovn_s32(q[0]), vmovn_s32(q[1])),
                vcombine_s16(vmovn_s32(q[2]), vmovn_s32(q[3])),
            ];
            let bytes = vcombine_s8(vmovn_s16(words[0]), vmovn_s16(words[1]));
            vst1q_s8(out, bytes);
            (Self::to_f(q), i32::from(vaddlvq_s8(bytes)))
        }
    }
}
