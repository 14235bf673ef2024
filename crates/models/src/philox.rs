//! The counter-based generator Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
//! 1, 2, 3", SC 2011): a draw is a function of a key and a counter, so it is the same on every device and in any order.

const MUL: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Four 32-bit words for a counter of four words under a key of two, after ten rounds.
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let (mut c, mut k) = (counter, key);
    for _ in 0..10 {
        let a = u64::from(MUL[0]) * u64::from(c[0]);
        let b = u64::from(MUL[1]) * u64::from(c[2]);
        c = [(b >> 32) as u32 ^ c[1] ^ k[0], b as u32, (a >> 32) as u32 ^ c[3] ^ k[1], a as u32];
        k = [k[0].wrapping_add(WEYL[0]), k[1].wrapping_add(WEYL[1])];
    }
    c
}

/// Draw number `n` of `seed`: uniform in [0, 1), a multiple of 2⁻⁵³.
pub fn uniform(seed: u64, n: u64) -> f64 {
    let w = philox4x32([n as u32, (n >> 32) as u32, 0, 0], [seed as u32, (seed >> 32) as u32]);
    let bits = (u64::from(w[1]) << 32 | u64::from(w[0])) >> 11;
    bits as f64 * (1.0 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, want) in cases {
            assert_eq!(philox4x32(counter, key), want);
        }
    }

    #[test]
    fn uniform_fills_the_unit_interval() {
        let n = 20_000;
        let mut bins = [0u32; 20];
        for i in 0..n {
            let u = uniform(7, i);
            assert!((0.0..1.0).contains(&u));
            bins[(u * 20.0) as usize] += 1;
        }
        let want = n as f64 / 20.0;
        let chi2: f64 = bins.iter().map(|b| (f64::from(*b) - want).powi(2) / want).sum();
        // 19 degrees of freedom: 43.8 is exceeded once in a thousand.
        assert!(chi2 < 43.8, "chi-square {chi2}");
    }
}
