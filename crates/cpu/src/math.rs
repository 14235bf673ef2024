//! Elementary functions of f32 as branch-free code that compilers vectorise when it stands in a loop.
//!
//! Bounds are stated in units in the last place (ulp) against the exact value and tested against f64 over dense samples.
//! Most functions compute in f64 inside, which makes them right to the last bit but for rare ties. `mul_add` makes the
//! bits the same on every instruction set. Polynomials are Chebyshev fits made for this file.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI, LN_2, LOG2_E};

/// Adding and subtracting it rounds an f32 below 2^22 to an integer, which then stands in the low bits.
const ROUND_F32: f32 = 12_582_912.0;
/// The same for f64 below 2^51.
const ROUND_F64: f64 = 6_755_399_441_055_744.0;

/// `c[0] + c[1]·x + …`.
#[inline(always)]
fn poly<const N: usize>(x: f64, c: [f64; N]) -> f64 {
    let mut p = c[N - 1];
    for c in c.iter().rev().skip(1) {
        p = p.mul_add(x, *c);
    }
    p
}

/// e^x as a product of two factors, the first normal.
#[inline(always)]
fn exp_parts(x: f32) -> (f32, f32) {
    let x = if x < -120.0 { -120.0 } else { x };
    let x = if x > 90.0 { 90.0 } else { x };
    let t = x.mul_add(std::f32::consts::LOG2_E, ROUND_F32);
    let n = t - ROUND_F32;
    // ln 2 = 0.693359375 − 2.1219444e-4, the first (written short here) with few bits,
    // so that its product with n is exact.
    let r = n.mul_add(-0.693_359_4, x);
    let r = n.mul_add(2.121_944_4e-4, r);
    let q = 0.001_392_625_1f32;
    let q = q.mul_add(r, 0.008_363_233);
    let q = q.mul_add(r, 0.041_666_556);
    let q = q.mul_add(r, 0.166_665_77);
    let q = q.mul_add(r, 0.5);
    let p = (r * r).mul_add(q, r) + 1.0;
    // 2^n in two factors: n reaches −174 and 130.
    let n = (t.to_bits() as i32).wrapping_sub(ROUND_F32.to_bits() as i32);
    let (a, b) = (n >> 1, n.wrapping_sub(n >> 1));
    let power = |k: i32| f32::from_bits((k.wrapping_add(127) << 23) as u32);
    (p * power(a), power(b))
}

/// e^x; at most 2 ulp, subnormal results included.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let (a, b) = exp_parts(x);
    a * b
}

/// e^x in f64, relative error below 2e-12; 0 below −700, huge above 700.
#[inline(always)]
fn exp64(x: f64) -> f64 {
    let low = x < -700.0;
    let x = if low { -700.0 } else { x };
    let x = if x > 700.0 { 700.0 } else { x };
    let t = x.mul_add(LOG2_E, ROUND_F64);
    let n = t - ROUND_F64;
    let r = n.mul_add(-LN_2, x);
    let p = poly(
        r,
        [
            1.0,
            0.999_999_999_979_622_8,
            0.499_999_999_997_963_1,
            0.166_666_668_923_964_94,
            0.041_666_666_892_307_004,
            0.008_333_265_828_313_5,
            0.001_388_882_140_813_945_3,
            1.991_601_640_406_045e-4,
            2.487_631_345_479_937e-5,
        ],
    );
    let scale = f64::from_bits(t.to_bits().wrapping_add(1023) << 52);
    if low { 0.0 } else { p * scale }
}

/// 2·atanh(s) for |s| ≤ 1/3, relative error below 3e-12.
#[inline(always)]
fn two_atanh(s: f64) -> f64 {
    s * poly(
        s * s,
        [
            2.000_000_000_004_866,
            0.666_666_662_379_217_4,
            0.400_000_614_212_079_4,
            0.285_681_457_582_009_9,
            0.223_051_273_855_829_55,
            0.171_225_366_672_901_9,
            0.218_605_683_143_069_6,
        ],
    )
}

/// ln x in f64 for x ≥ 0, relative error below 5e-12.
#[inline(always)]
fn log64(x: f64) -> f64 {
    const SQRT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    let t = x.to_bits().wrapping_add(0x3ff0_0000_0000_0000 - SQRT_HALF);
    let e = f64::from_bits(t >> 52 | 0x4330_0000_0000_0000) - 4_503_599_627_371_519.0;
    let m = f64::from_bits((t & 0x000f_ffff_ffff_ffff) + SQRT_HALF);
    let r = e.mul_add(LN_2, two_atanh((m - 1.0) / (m + 1.0)));
    let r = if x == 0.0 { f64::NEG_INFINITY } else { r };
    if x == f64::INFINITY || x.is_nan() { x } else { r }
}

/// Natural logarithm; at most 1 ulp. NaN below 0, −inf at ±0.
#[inline(always)]
pub fn log(x: f32) -> f32 {
    let r = log64(f64::from(x.abs())) as f32;
    if x < 0.0 { f32::NAN } else { r }
}

/// tanh x; at most 3 ulp.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let z = x * x;
    let q = 0.002_269_501_7_f32;
    let q = q.mul_add(z, -0.008_323_187);
    let q = q.mul_add(z, 0.021_762_502);
    let q = q.mul_add(z, -0.053_958_46);
    let q = q.mul_add(z, 0.133_333);
    let q = q.mul_add(z, -0.333_333_34);
    let small = (x * z).mul_add(q, x);
    let large = (1.0 - 2.0 / (exp(2.0 * x.abs()) + 1.0)).copysign(x);
    if z < 0.4 { small } else { large }
}

/// 1/(1+e^−x); at most 3 ulp.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    let e = exp(-x.abs());
    (if x >= 0.0 { 1.0 } else { e }) / (1.0 + e)
}

/// x·sigmoid(x); at most 4 ulp. 0 at −inf.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    let (a, b) = exp_parts(-x.abs());
    let up = x >= 0.0;
    // The small factor comes last, so that a subnormal result is rounded once.
    let r = (if up { x } else { x * a }) / (1.0 + a * b) * if up { 1.0 } else { b };
    if x < -120.0 { 0.0 } else { r }
}

/// 1 − erf(x) for x ≥ 0 in f64, relative error below 2e-10: e^(−x²)·P/(1+2x), with the polynomial in (x−3)/(x+3)
/// (Shepherd and Laframboise, "Chebyshev approximation of (1+2x)exp(x²)erfc x", 1981).
#[inline(always)]
fn erfc64(x: f64) -> f64 {
    // Beyond 11 the result is below every f32.
    let x = if x > 11.0 { 11.0 } else { x };
    let p = poly(
        (x - 3.0) / (x + 3.0),
        [
            1.253_008_058_241_330_3,
            -0.135_621_107_160_013_86,
            -0.047_562_291_149_487_93,
            0.129_645_213_178_259_05,
            -0.119_273_695_467_295_56,
            0.068_307_207_942_529_2,
            -0.023_770_891_597_893_423,
            0.002_534_338_931_183_835_5,
            0.001_894_395_590_760_363_6,
            -7.913_684_710_237_42e-4,
            -1.277_800_840_805_051e-4,
            1.268_597_077_278_220_7e-4,
            3.334_858_268_661_946e-5,
        ],
    );
    exp64(-x * x) * p / x.mul_add(2.0, 1.0)
}

/// Error function; at most 1 ulp.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let x = f64::from(x);
    let small = x * poly(
        x * x,
        [
            1.128_379_167_061_543_4,
            -0.376_126_384_680_287_1,
            0.112_837_824_952_368_45,
            -0.026_865_430_727_670_243,
            0.005_221_031_807_858_023,
            -8.484_080_405_535_106e-4,
            1.126_595_902_560_660_9e-4,
            -9.667_044_571_486_997e-6,
        ],
    );
    let large = (1.0 - erfc64(x.abs())).copysign(x);
    (if x.abs() < 1.0 { small } else { large }) as f32
}

/// x·Φ(x) by the error function; at most 1 ulp. 0 at −inf.
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    let v = f64::from(x);
    let tail = erfc64((v * FRAC_1_SQRT_2).abs());
    let r = 0.5 * v * if v < 0.0 { tail } else { 2.0 - tail };
    if x < -15.0 { 0.0 } else { r as f32 }
}

/// GELU by the tanh approximation, as x·sigmoid(2u), u = √(2/π)·(x + 0.044715·x³); at most 1 ulp. 0 at −inf.
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    let v = f64::from(x);
    let u = 1.595_769_121_605_730_7 * v * (v * v).mul_add(0.044_715, 1.0);
    let e = exp64(-u.abs());
    let r = v * (if v >= 0.0 { 1.0 } else { e }) / (1.0 + e);
    if x == f32::NEG_INFINITY { 0.0 } else { r as f32 }
}

/// ln(1+e^x); at most 1 ulp.
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    let v = f64::from(x);
    let e = exp64(-v.abs());
    let r = (if v > 0.0 { v } else { 0.0 }) + two_atanh(e / (2.0 + e));
    if x.is_nan() { x } else { r as f32 }
}

/// The largest |x| that [`sin`], [`cos`] and [`tan`] take.
pub const TRIG_LIMIT: f32 = 1_125_899_906_842_624.0;

/// (sin x, cos x) in f64; absolute error below 1e-13 for |x| up to [`TRIG_LIMIT`].
#[inline(always)]
fn sin_cos64(x: f64) -> (f64, f64) {
    let t = x.mul_add(FRAC_2_PI, ROUND_F64);
    let n = t - ROUND_F64;
    // π/2 in two parts; the first product is exact inside the fused multiply-add.
    let r = n.mul_add(-std::f64::consts::FRAC_PI_2, x);
    let r = n.mul_add(-6.123_233_995_736_766e-17, r);
    let z = r * r;
    let s = r * poly(
        z,
        [
            0.999_999_999_999_995_2,
            -0.166_666_666_666_114_65,
            0.008_333_333_323_096_486,
            -1.984_126_289_700_560_3e-4,
            2.755_518_907_550_755e-6,
            -2.475_065_155_321_347e-8,
        ],
    );
    let c = poly(
        z,
        [
            0.999_999_999_999_937_4,
            -0.499_999_999_992_833_7,
            0.041_666_666_533_766_48,
            -0.001_388_887_987_285_499_3,
            2.479_882_127_519_233e-5,
            -2.716_576_361_099_319_6e-7,
        ],
    );
    let q = t.to_bits();
    let (a, b) = if q & 1 == 0 { (s, c) } else { (c, s) };
    let sign = |v: f64, bit: u64| f64::from_bits(v.to_bits() ^ (bit & 2) << 62);
    (sign(a, q), sign(b, q.wrapping_add(1)))
}

/// Sine of radians; at most 1 ulp for |x| up to [`TRIG_LIMIT`], unspecified beyond.
#[inline(always)]
pub fn sin(x: f32) -> f32 {
    let r = sin_cos64(f64::from(x)).0 as f32;
    // Keeps −0.
    if x == 0.0 { x } else { r }
}

/// Cosine of radians; as [`sin`].
#[inline(always)]
pub fn cos(x: f32) -> f32 {
    sin_cos64(f64::from(x)).1 as f32
}

/// (sin x, cos x); as [`sin`].
#[inline(always)]
pub fn sin_cos(x: f32) -> (f32, f32) {
    let (s, c) = sin_cos64(f64::from(x));
    (s as f32, c as f32)
}

/// Tangent of radians; as [`sin`].
#[inline(always)]
pub fn tan(x: f32) -> f32 {
    let (s, c) = sin_cos64(f64::from(x));
    if x == 0.0 { x } else { (s / c) as f32 }
}

/// Arc tangent; at most 1 ulp.
#[inline(always)]
pub fn atan(x: f32) -> f32 {
    let a = f64::from(x.abs());
    let inverse = a > 1.0;
    let a = if inverse { 1.0 / a } else { a };
    let p = a * poly(
        a * a,
        [
            0.999_999_999_929_303_7,
            -0.333_333_312_908_899_9,
            0.199_999_011_021_715_54,
            -0.142_838_132_557_431_94,
            0.110_919_229_636_833_02,
            -0.089_741_719_583_638_81,
            0.072_282_783_453_772_52,
            -0.053_956_680_571_371_72,
            0.033_826_218_952_786_87,
            -0.015_828_322_749_149_416,
            0.004_732_484_193_421_921,
            -6.633_954_571_104_787e-4,
        ],
    );
    let r = if inverse { std::f64::consts::FRAC_PI_2 - p } else { p };
    (r as f32).copysign(x)
}

/// a to the power b with the special values of IEEE 754; at most 1 ulp.
#[inline(always)]
pub fn pow(a: f32, b: f32) -> f32 {
    let magnitude = exp64(f64::from(b) * log64(f64::from(a.abs()))) as f32;
    // |a| = 1 and b = ±inf is 0·inf above.
    let magnitude = if a.abs() == 1.0 { b * 0.0 + 1.0 } else { magnitude };
    let magnitude = if a.abs() == 1.0 && b.is_infinite() { 1.0 } else { magnitude };
    // From 2^24 on every float is an even integer.
    let big = b.abs() >= 16_777_216.0;
    let k = if big || b.is_nan() { 0.0 } else { b };
    // SAFETY: |k| < 2^24 fits.
    let i = unsafe { k.to_int_unchecked::<i32>() };
    let whole = big || i as f32 == b;
    let odd = !big && whole && i & 1 != 0;
    let negative = a.is_sign_negative();
    let r = if negative && odd { -magnitude } else { magnitude };
    let r = if a < 0.0 && a != f32::NEG_INFINITY && !whole { f32::NAN } else { r };
    let r = if a.is_nan() || b.is_nan() { f32::NAN } else { r };
    if b == 0.0 || a == 1.0 { 1.0 } else { r }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frit_ir::ScalarOp;

    /// Distance in ulp of the f32 grid at `want`.
    fn ulp(got: f32, want: f64) -> f64 {
        if want.is_nan() || (want as f32).is_infinite() || got.is_nan() || got.is_infinite() {
            let same = got.is_nan() == want.is_nan() && (want.is_nan() || got == want as f32);
            return if same { 0.0 } else { f64::INFINITY };
        }
        let w = want.abs().max(f64::from(f32::MIN_POSITIVE));
        let unit = 2f64.powi(w.log2().floor() as i32 - 23);
        (f64::from(got) - want).abs() / unit
    }

    /// Every 4099th float and the special ones.
    fn samples() -> impl Iterator<Item = f32> {
        let special = [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN];
        let tiny = [1e-45, -1e-45, 1e-40, f32::MIN_POSITIVE, 88.72283, 88.72284, -87.33655, -103.97, -104.0];
        let dense = (-40_000..40_000).map(|i| i as f32 * 0.0031);
        (0..u32::MAX / 4099).map(|i| f32::from_bits(i * 4099)).chain(special).chain(tiny).chain(dense)
    }

    /// The table's form loses the tail to 1 + tanh; this one does not.
    fn exact_gelu_tanh(x: f64) -> f64 {
        let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
        if x == f64::NEG_INFINITY { 0.0 } else { x / (1.0 + (-2.0 * u).exp()) }
    }

    fn check(op: ScalarOp, f: fn(f32) -> f32, bound: f64, domain: fn(f32) -> bool) {
        let mut worst = (0.0, 0.0);
        for x in samples().filter(|x| domain(*x)) {
            let exact =
                if op == ScalarOp::GeluTanh { |a: &[f64]| exact_gelu_tanh(a[0]) } else { op.info().float };
            let e = ulp(f(x), exact(&[f64::from(x)]));
            if e > worst.0 {
                worst = (e, x);
            }
        }
        assert!(worst.0 <= bound, "{}: {} ulp at {:?}", op.name(), worst.0, worst.1);
    }

    #[test]
    fn functions_keep_their_bounds() {
        let all = |_: f32| true;
        let trig = |x: f32| x.is_nan() || x.abs() <= TRIG_LIMIT;
        check(ScalarOp::Exp, exp, 2.0, all);
        check(ScalarOp::Log, log, 1.0, all);
        check(ScalarOp::Tanh, tanh, 3.0, all);
        check(ScalarOp::Sigmoid, sigmoid, 3.0, all);
        check(ScalarOp::Silu, silu, 4.0, all);
        check(ScalarOp::Erf, erf, 1.0, all);
        check(ScalarOp::Gelu, gelu, 1.0, all);
        check(ScalarOp::GeluTanh, gelu_tanh, 1.0, all);
        check(ScalarOp::Softplus, softplus, 1.0, all);
        check(ScalarOp::Sin, sin, 1.0, trig);
        check(ScalarOp::Cos, cos, 1.0, trig);
        check(ScalarOp::Tan, tan, 1.0, trig);
        check(ScalarOp::Atan, atan, 1.0, all);
    }

    #[test]
    fn pow_keeps_its_bound_and_special_values() {
        let bases = samples().step_by(97).chain([2.0, -2.0, 0.5, -0.5, 10.0, -3.0]);
        let exponents = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            2.0,
            3.0,
            -3.0,
            0.5,
            -0.5,
            7.25,
            30.0,
            -41.0,
            1e-3,
            16_777_215.0,
            16_777_216.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            1e30,
        ];
        let mut n = 0;
        for a in bases {
            for b in exponents {
                let (got, want) = (pow(a, b), f64::from(a).powf(f64::from(b)));
                assert!(ulp(got, want) <= 1.0, "{a:?}^{b:?} = {got:?}, want {want:?}");
                n += 1;
            }
        }
        assert!(n > 100_000);
    }
}
