//! Floats of 8 bits and less: the value of each code, and the code nearest to a value.
//!
//! A format is the list of its values. Encoding looks for the nearest one, so rounding to nearest even and saturation need
//! no rules of their own; that is slow, and meant for references and for tests of kernels.
//!
//! Sources: OCP 8-bit Floating Point Specification 1.0 (`f8e4m3fn`, `f8e5m2`), OCP Microscaling Formats 1.0 (`f8e8m0`,
//! `f4e2m1`), Noune et al., arXiv 2206.02915 (`fnuz`).

use crate::DType;

/// Which codes are not finite numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Special {
    /// As in IEEE 754: the highest exponent holds infinity and NaN.
    Ieee,
    /// All bits but the sign set is NaN.
    Ones,
    /// What would be negative zero is NaN.
    NegativeZero,
    /// None.
    Finite,
}

struct Format {
    dtype: DType,
    signed: bool,
    exponent: u32,
    mantissa: u32,
    bias: i32,
    special: Special,
}

const fn format(dtype: DType, exponent: u32, mantissa: u32, bias: i32, special: Special) -> Format {
    Format { dtype, signed: true, exponent, mantissa, bias, special }
}

const FORMATS: &[Format] = &[
    format(DType::F8E4M3FN, 4, 3, 7, Special::Ones),
    format(DType::F8E5M2, 5, 2, 15, Special::Ieee),
    format(DType::F8E4M3FNUZ, 4, 3, 8, Special::NegativeZero),
    format(DType::F8E5M2FNUZ, 5, 2, 16, Special::NegativeZero),
    Format { signed: false, ..format(DType::F8E8M0, 8, 0, 127, Special::Ones) },
    format(DType::F4E2M1, 2, 1, 1, Special::Finite),
];

impl Format {
    /// The codes without the sign bit.
    fn magnitudes(&self) -> u8 {
        (1u32 << (self.exponent + self.mantissa)).wrapping_sub(1) as u8
    }

    /// The code of the greatest finite number.
    fn greatest(&self) -> u8 {
        match self.special {
            Special::Ieee => self.infinity() - 1,
            Special::Ones => self.magnitudes() - 1,
            Special::NegativeZero | Special::Finite => self.magnitudes(),
        }
    }

    fn infinity(&self) -> u8 {
        self.magnitudes() >> self.mantissa << self.mantissa
    }

    fn sign(&self) -> u8 {
        if self.signed { 1 << (self.exponent + self.mantissa) } else { 0 }
    }

    fn nan(&self) -> Option<u8> {
        match self.special {
            Special::Ieee | Special::Ones => Some(self.magnitudes()),
            Special::NegativeZero => Some(self.sign()),
            Special::Finite => None,
        }
    }

    fn decode(&self, code: u8) -> f64 {
        let (magnitude, negative) = (code & self.magnitudes(), code & self.sign() != 0);
        let nan = match self.special {
            Special::Ieee => magnitude > self.infinity(),
            Special::Ones => magnitude == self.magnitudes(),
            Special::NegativeZero => code == self.sign(),
            Special::Finite => false,
        };
        let value = match (nan, self.special) {
            (true, _) => f64::NAN,
            (_, Special::Ieee) if magnitude == self.infinity() => f64::INFINITY,
            _ => self.finite(magnitude),
        };
        if negative { -value } else { value }
    }

    /// The value of a code without its sign: `f · 2^(e − bias)`, with a leading one unless the exponent field is 0.
    fn finite(&self, magnitude: u8) -> f64 {
        let field = i32::from(magnitude >> self.mantissa);
        let fraction = f64::from(magnitude & ((1u8 << self.mantissa) - 1)) / f64::from(1u8 << self.mantissa);
        // A scale has neither zero nor subnormal numbers.
        let normal = field > 0 || self.mantissa == 0;
        let exponent = if normal { field } else { 1 } - self.bias;
        (f64::from(u8::from(normal)) + fraction) * 2f64.powi(exponent)
    }

    fn encode(&self, v: f64) -> Option<u8> {
        if v.is_nan() {
            return self.nan();
        }
        let sign = if v.is_sign_negative() { self.sign() } else { 0 };
        let v = if self.signed { v.abs() } else { v.max(0.0) };
        if v.is_infinite() && self.special == Special::Ieee {
            return Some(sign | self.infinity());
        }
        let v = v.min(self.finite(self.greatest()));
        let (mut code, mut least) = (0, f64::INFINITY);
        for c in 0..=self.greatest() {
            let distance = (self.finite(c) - v).abs();
            if distance < least || (distance == least && c % 2 == 0) {
                (code, least) = (c, distance);
            }
        }
        Some(if code == 0 && self.special == Special::NegativeZero { 0 } else { sign | code })
    }
}

fn find(dtype: DType) -> Option<&'static Format> {
    FORMATS.iter().find(|f| f.dtype == dtype)
}

/// The value of `code`; `None` if `dtype` is no small float. Bits above the format's are not looked at.
pub fn decode(dtype: DType, code: u8) -> Option<f64> {
    find(dtype).map(|f| f.decode(code))
}

/// The code of the value nearest to `v`, of two equally near ones the even code; values beyond the greatest become the
/// greatest, infinity stays where the format has it. `None` if `dtype` is no small float, or has no NaN and `v` is one.
pub fn encode(dtype: DType, v: f64) -> Option<u8> {
    find(dtype).and_then(|f| f.encode(v))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(dtype: DType, v: f64) -> f64 {
        decode(dtype, encode(dtype, v).unwrap()).unwrap()
    }

    #[test]
    fn values_beyond_the_greatest_saturate_and_nan_stays() {
        use DType::*;
        for (dtype, v, want) in [
            (F8E4M3FN, 464.0, 448.0),
            (F8E4M3FN, -1e9, -448.0),
            (F8E4M3FN, f64::INFINITY, 448.0),
            (F8E4M3FN, 256.0, 256.0),
            (F8E5M2, 58000.0, 57344.0),
            (F8E5M2, 1e9, 57344.0),
            (F8E5M2, f64::INFINITY, f64::INFINITY),
            (F8E5M2, f64::NEG_INFINITY, f64::NEG_INFINITY),
            (F8E4M3FNUZ, 1e9, 240.0),
            (F8E5M2FNUZ, f64::NEG_INFINITY, -57344.0),
            (F4E2M1, 100.0, 6.0),
            (F8E8M0, 1e300, 2f64.powi(127)),
            (F8E8M0, -3.0, 2f64.powi(-127)),
        ] {
            assert_eq!(round(dtype, v), want, "{dtype} {v}");
        }
        for dtype in [F8E4M3FN, F8E5M2, F8E4M3FNUZ, F8E5M2FNUZ, F8E8M0] {
            assert!(round(dtype, f64::NAN).is_nan(), "{dtype}");
        }
        assert_eq!(encode(F4E2M1, f64::NAN), None);
        assert_eq!((decode(F32, 0), encode(F32, 0.0)), (None, None));
    }

    #[test]
    fn ties_go_to_the_even_code() {
        use DType::*;
        // Between 16 and 18, 18 and 20; between 0 and the least subnormal 2^-9; halves of f4e2m1.
        for (dtype, v, want) in [
            (F8E4M3FN, 17.0, 16.0),
            (F8E4M3FN, 19.0, 20.0),
            (F8E4M3FN, 2f64.powi(-10), 0.0),
            (F8E4M3FN, 3.0 * 2f64.powi(-10), 2f64.powi(-8)),
            (F4E2M1, 2.5, 2.0),
            (F4E2M1, 5.0, 4.0),
            (F4E2M1, 0.25, 0.0),
            (F4E2M1, 0.75, 1.0),
        ] {
            assert_eq!(round(dtype, v), want, "{dtype} {v}");
        }
    }

    #[test]
    fn codes_round_trip() {
        for f in FORMATS {
            for code in 0..=f.magnitudes() | f.sign() {
                let v = decode(f.dtype, code).unwrap();
                if v.is_nan() {
                    continue;
                }
                assert_eq!(encode(f.dtype, v), Some(code), "{} {code} {v}", f.dtype);
            }
        }
        let values: Vec<f64> = (0..8).map(|c| decode(DType::F4E2M1, c).unwrap()).collect();
        assert_eq!(values, [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
        assert_eq!(decode(DType::F8E8M0, 0), Some(2f64.powi(-127)));
        assert_eq!(decode(DType::F8E5M2, 1), Some(2f64.powi(-16)));
        assert!(encode(DType::F8E4M3FN, -0.0) == Some(0x80) && encode(DType::F8E4M3FNUZ, -0.0) == Some(0));
    }
}
