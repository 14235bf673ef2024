//! Rounding of f64 to the narrow floats, once and to the nearest, halves to even.

use half::{bf16, f16};

/// `v` as f16.
pub fn to_f16(v: f64) -> f16 {
    f16::from_f32(odd(v))
}

/// `v` as bf16.
pub fn to_bf16(v: f64) -> bf16 {
    bf16::from_f32(odd(v))
}

/// `v` as f32, rounded so that rounding the result further gives what rounding `v` gives: what does not fit is cut off and
/// leaves the last bit set ("round to odd", Boldo and Melquiond 2008). An f32 has more than two bits beyond those of the
/// narrow floats, so this holds for both.
fn odd(v: f64) -> f32 {
    let near = v as f32;
    let back = f64::from(near);
    if back == v || v.is_nan() {
        return near;
    }
    let cut = if back.abs() > v.abs() { near.to_bits() - 1 } else { near.to_bits() };
    f32::from_bits(cut | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nearest of the narrow values around `v`, by distance, then even bits. `all` holds the finite ones of one sign.
    fn nearest(v: f64, all: &[(u16, f64)]) -> u16 {
        let i = all.partition_point(|x| x.1 < v.abs());
        let candidates = &all[i.saturating_sub(1)..(i + 1).min(all.len())];
        let key = |c: &&(u16, f64)| ((c.1 - v.abs()).abs(), c.0 & 1);
        let best = candidates.iter().min_by(|a, b| key(a).partial_cmp(&key(b)).unwrap()).unwrap();
        best.0 | if v.is_sign_negative() { 0x8000 } else { 0 }
    }

    fn check(to: fn(f64) -> u16, from: fn(u16) -> f64) {
        let all: Vec<(u16, f64)> = (0..0x8000).map(|b| (b, from(b))).filter(|(_, v)| v.is_finite()).collect();
        for w in all.windows(2) {
            let (low, high) = (w[0].1, w[1].1);
            let tie = low + (high - low) / 2.0;
            // At the tie, and by the least and by more than an f32 sees to both sides.
            for v in [low, tie, tie * (1.0 - 1e-9), tie.next_down(), tie.next_up(), tie * (1.0 + 1e-9)] {
                for v in [v, -v] {
                    assert_eq!(to(v), nearest(v, &all), "{v:e}");
                }
            }
        }
        assert_eq!((to(0.0), to(-0.0)), (0, 0x8000));
        assert!(from(to(f64::NAN)).is_nan());
        assert_eq!((from(to(f64::MAX)), from(to(-1e300))), (f64::INFINITY, f64::NEG_INFINITY));
        assert_eq!((to(1e-300), to(-f64::from_bits(1))), (0, 0x8000));
    }

    #[test]
    fn every_tie_and_its_neighbours_round_to_the_nearest() {
        check(|v| to_f16(v).to_bits(), |b| f16::from_bits(b).to_f64());
        check(|v| to_bf16(v).to_bits(), |b| bf16::from_bits(b).to_f64());
    }
}
