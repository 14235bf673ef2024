//! Sixteen-lane vectors over each instruction set. Kernels are written once over [`Simd`]; since every operation gives
//! the same bits everywhere, so do they.
//!
//! Methods are inlined into functions that enable the instruction set; nothing else may call them.

/// Sixteen lanes of one instruction set.
///
/// # Safety
/// All methods: the machine must have the instruction set, and pointers must be valid for what the name says is read
/// or written (no alignment needed).
pub(crate) trait Simd: Copy + 'static {
    /// 64 bytes.
    type B: Copy;
    /// 16 × i32.
    type I: Copy;
    /// 16 × f32.
    type F: Copy;
    /// What [`Simd::dot`] of signed codes adds per unit of the activation: it computes Σ (code + BIAS)·x.
    const BIAS: i32;

    /// 64 bytes from `p`.
    unsafe fn load(p: *const u8) -> Self::B;
    /// 64 bytes to `p`.
    unsafe fn store(p: *mut u8, v: Self::B);
    /// Asks for the cache line of `p`, which need not be valid.
    unsafe fn prefetch(p: *const u8);
    /// Each byte `& mask`.
    unsafe fn and(v: Self::B, mask: u8) -> Self::B;
    /// Each byte `>> n`, then `& mask`, which has no bit that the shift brings in from a neighbour.
    unsafe fn shr(v: Self::B, n: u32, mask: u8) -> Self::B;
    /// Each byte `<< n`, then `& mask`, likewise.
    unsafe fn shl(v: Self::B, n: u32, mask: u8) -> Self::B;
    /// Each byte or-ed.
    unsafe fn or(a: Self::B, b: Self::B) -> Self::B;
    /// Signed code bytes in the form that `dot` takes.
    unsafe fn signed(v: Self::B) -> Self::B;
    /// `acc + Σ code·x` over the four codes of each lane and the four activations at `x`, which are within ±127.
    /// Codes are in 0..=127, or signed (see [`Simd::BIAS`]).
    unsafe fn dot(signed: bool, acc: Self::I, codes: Self::B, x: *const i8) -> Self::I;
    /// Byte `j` of each lane as a float.
    unsafe fn byte(signed: bool, codes: Self::B, j: usize) -> Self::F;
    /// All lanes `v`.
    unsafe fn splat_i(v: i32) -> Self::I;
    /// Lane-wise sum.
    unsafe fn add_i(a: Self::I, b: Self::I) -> Self::I;
    /// Each lane times `by`.
    unsafe fn mul_i(a: Self::I, by: i32) -> Self::I;
    /// To the nearest float.
    unsafe fn to_f(v: Self::I) -> Self::F;

    /// All lanes `v`.
    unsafe fn splat(v: f32) -> Self::F;
    /// Sixteen f32.
    unsafe fn load_f32(p: *const f32) -> Self::F;
    /// Sixteen f16.
    unsafe fn load_f16(p: *const u16) -> Self::F;
    /// Sixteen bf16.
    unsafe fn load_bf16(p: *const u16) -> Self::F;
    /// Sixteen u8.
    unsafe fn load_u8(p: *const u8) -> Self::F;
    /// Four bits of sixteen u8, from bit `shift` (0 or 4) on.
    unsafe fn load_u4(p: *const u8, shift: u32) -> Self::F;
    /// Sixteen i8.
    unsafe fn load_i8(p: *const i8) -> Self::F;
    /// Sixteen f32 out.
    unsafe fn store_f32(p: *mut f32, v: Self::F);
    /// Sixteen f16 out, rounded to nearest even.
    unsafe fn store_f16(p: *mut u16, v: Self::F);
    /// a · b.
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    /// a · b + c, rounded once.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// −(a · b).
    unsafe fn neg_mul(a: Self::F, b: Self::F) -> Self::F;
    /// The largest absolute value of both; NaN if there is one.
    unsafe fn amax(a: Self::F, b: Self::F) -> f32;
    /// round-half-even(v / d) limited to ±`most`; NaN stays.
    unsafe fn rounded(v: Self::F, d: f32, most: f32) -> Self::F;
    /// `v` rounded half to even, limited to ±127, NaN made 0: sixteen bytes at `out`, the same as floats, and their sum.
    unsafe fn codes(v: Self::F, out: *mut i8) -> (Self::F, i32);
}

/// Plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

fn bytes(mut v: [u8; 64], f: impl Fn(u8) -> u8) -> [u8; 64] {
    for b in &mut v {
        *b = f(*b);
    }
    v
}

fn lanes(f: impl Fn(usize) -> f32) -> [f32; 16] {
    std::array::from_fn(f)
}

// Every method below reads or writes through pointers that the caller vouches for, as the trait says.
impl Simd for Portable {
    type B = [u8; 64];
    type I = [i32; 16];
    type F = [f32; 16];
    const BIAS: i32 = 0;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> [u8; 64] {
        // SAFETY: the caller's.
        unsafe { p.cast::<[u8; 64]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(p: *mut u8, v: [u8; 64]) {
        // SAFETY: the caller's.
        unsafe { p.cast::<[u8; 64]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}
    #[inline(always)]
    unsafe fn and(v: [u8; 64], mask: u8) -> [u8; 64] {
        bytes(v, |b| b & mask)
    }
    #[inline(always)]
    unsafe fn shr(v: [u8; 64], n: u32, mask: u8) -> [u8; 64] {
        bytes(v, |b| b >> n & mask)
    }
    #[inline(always)]
    unsafe fn shl(v: [u8; 64], n: u32, mask: u8) -> [u8; 64] {
        bytes(v, |b| b << n & mask)
    }
    #[inline(always)]
    unsafe fn or(a: [u8; 64], b: [u8; 64]) -> [u8; 64] {
        std::array::from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    unsafe fn signed(v: [u8; 64]) -> [u8; 64] {
        v
    }
    #[inline(always)]
    unsafe fn dot(signed: bool, mut acc: [i32; 16], codes: [u8; 64], x: *const i8) -> [i32; 16] {
        // SAFETY: the caller's.
        let x = unsafe { x.cast::<[i8; 4]>().read_unaligned() };
        for (r, a) in acc.iter_mut().enumerate() {
            for (j, x) in x.iter().enumerate() {
                let c = codes[4 * r + j];
                *a += i32::from(*x) * if signed { i32::from(c as i8) } else { i32::from(c) };
            }
        }
        acc
    }
    #[inline(always)]
    unsafe fn byte(signed: bool, codes: [u8; 64], j: usize) -> [f32; 16] {
        lanes(|r| if signed { f32::from(codes[4 * r + j] as i8) } else { f32::from(codes[4 * r + j]) })
    }
    #[inline(always)]
    unsafe fn splat_i(v: i32) -> [i32; 16] {
        [v; 16]
    }
    #[inline(always)]
    unsafe fn add_i(a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        std::array::from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    unsafe fn mul_i(a: [i32; 16], by: i32) -> [i32; 16] {
        a.map(|v| v * by)
    }
    #[inline(always)]
    unsafe fn to_f(v: [i32; 16]) -> [f32; 16] {
        lanes(|i| v[i] as f32)
    }
    #[inline(always)]
    unsafe fn splat(v: f32) -> [f32; 16] {
        [v; 16]
    }
    #[inline(always)]
    unsafe fn load_f32(p: *const f32) -> [f32; 16] {
        // SAFETY: the caller's.
        unsafe { p.cast::<[f32; 16]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> [f32; 16] {
        // SAFETY: the caller's.
        let v = unsafe { p.cast::<[u16; 16]>().read_unaligned() };
        lanes(|i| half::f16::from_bits(v[i]).to_f32())
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> [f32; 16] {
        // SAFETY: the caller's.
        let v = unsafe { p.cast::<[u16; 16]>().read_unaligned() };
        lanes(|i| f32::from_bits(u32::from(v[i]) << 16))
    }
    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> [f32; 16] {
        // SAFETY: the caller's.
        let v = unsafe { p.cast::<[u8; 16]>().read_unaligned() };
        lanes(|i| f32::from(v[i]))
    }
    #[inline(always)]
    unsafe fn load_u4(p: *const u8, shift: u32) -> [f32; 16] {
        // SAFETY: the caller's.
        let v = unsafe { p.cast::<[u8; 16]>().read_unaligned() };
        lanes(|i| f32::from(v[i] >> shift & 15))
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> [f32; 16] {
        // SAFETY: the caller's.
        let v = unsafe { p.cast::<[i8; 16]>().read_unaligned() };
        lanes(|i| f32::from(v[i]))
    }
    #[inline(always)]
    unsafe fn store_f32(p: *mut f32, v: [f32; 16]) {
        // SAFETY: the caller's.
        unsafe { p.cast::<[f32; 16]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn store_f16(p: *mut u16, v: [f32; 16]) {
        let h: [u16; 16] = std::array::from_fn(|i| half::f16::from_f32(v[i]).to_bits());
        // SAFETY: the caller's.
        unsafe { p.cast::<[u16; 16]>().write_unaligned(h) }
    }
    #[inline(always)]
    unsafe fn mul(a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        lanes(|i| a[i] * b[i])
    }
    #[inline(always)]
    unsafe fn fma(a: [f32; 16], b: [f32; 16], c: [f32; 16]) -> [f32; 16] {
        lanes(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    unsafe fn neg_mul(a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        lanes(|i| -(a[i] * b[i]))
    }
    #[inline(always)]
    unsafe fn amax(a: [f32; 16], b: [f32; 16]) -> f32 {
        // The bits of absolute values order as integers do, NaN above all.
        let top = |v: [f32; 16]| v.iter().fold(0u32, |m, x| m.max(x.to_bits() & 0x7fff_ffff));
        f32::from_bits(top(a).max(top(b)))
    }
    #[inline(always)]
    unsafe fn rounded(v: [f32; 16], d: f32, most: f32) -> [f32; 16] {
        lanes(|i| (v[i] / d).round_ties_even().clamp(-most, most))
    }
    #[inline(always)]
    unsafe fn codes(v: [f32; 16], out: *mut i8) -> ([f32; 16], i32) {
        let q: [i8; 16] = std::array::from_fn(|i| v[i].round_ties_even().clamp(-127.0, 127.0) as i8);
        // SAFETY: the caller's.
        unsafe { out.cast::<[i8; 16]>().write_unaligned(q) };
        (lanes(|i| f32::from(q[i])), q.iter().map(|q| i32::from(*q)).sum())
    }
}
