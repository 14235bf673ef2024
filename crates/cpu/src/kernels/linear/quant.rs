//! Activations quantized to 8 or 16 bits in blocks of 32 along k.
//!
//! Scale d = amax / L in f32; integers q = x / d rounded half to even, within ±L (0 where the quotient is NaN). A
//! block that holds NaN or infinity has such a scale, so that the product does too. With 8 bits L is 127. With 16 bits it
//! is 254 · 127 + 127, and q = 254 · high + low is kept as two levels of 8 bits.

use super::float::load;
use super::simd::Simd;
use super::tile::{CORRECTIONS, RADIX, XTile};

/// The planes that hold a step's quantized activations, laid out for tiles of `tile` rows.
#[derive(Clone, Copy)]
pub(crate) struct Quantized {
    /// Rows, and with padding to whole tiles.
    pub rows: usize,
    /// Columns, a multiple of 32.
    pub k: usize,
    /// Rows of a tile.
    pub tile: usize,
    /// Which planes of corrections are wanted.
    pub planes: [bool; CORRECTIONS.len()],
    /// Whether the sums of halves of 32 are wanted.
    pub halves: bool,
    /// Levels of 8 bits, 1 or 2.
    pub levels: usize,
    /// Start of the planes, which take at most 19/8 of a byte per element of whole tiles and level.
    pub base: *mut u8,
}

/// The largest code of 8 bits.
const MOST: f32 = 127.0;
/// The largest code of `bits` bits (8 or 16).
pub(crate) fn largest_code(bits: i64) -> f32 {
    if bits == 16 { RADIX as f32 * MOST + MOST } else { MOST }
}

/// A block of 32 at one level: the codes and the sum of each half.
#[derive(Clone, Copy)]
struct Codes {
    q: [i8; 32],
    sums: [i32; 2],
}

impl Quantized {
    /// Rows with padding.
    pub fn padded(&self) -> usize {
        self.rows.next_multiple_of(self.tile)
    }

    /// The tile with number `t`.
    pub fn tile(&self, t: usize) -> XTile {
        let all = self.padded() * self.k;
        let d = self.base.wrapping_add(all * self.levels);
        let dsum = d.wrapping_add(all / 8);
        let dhalf = dsum.wrapping_add(all / 8);
        let mut at = dhalf.wrapping_add(all / 4);
        let init = CORRECTIONS.map(|(_, group)| {
            let p = at.cast::<i32>().cast_const();
            at = at.wrapping_add(all / group * self.levels * 4);
            p
        });
        let (d, dsum, dhalf) = (d.cast(), dsum.cast(), dhalf.cast());
        let x = XTile { levels: self.levels, q: self.base.cast(), d, dsum, dhalf, init };
        // SAFETY: tile `t` lies inside the planes.
        unsafe { x.advance(t * self.tile * self.k) }
    }
}

/// Quantizes row `row` of `x`, whose `k` elements of type `W` start at `from`; a null `from` makes a padding row of
/// zeros.
#[inline(always)]
pub(super) unsafe fn quantize_row<S: Simd, const W: usize>(a: &Quantized, row: usize, from: *const u8) {
    let (x, r) = (a.tile(row / a.tile), row % a.tile);
    for b in 0..a.k / 32 {
        let mut codes = [Codes { q: [0; 32], sums: [0; 2] }; 2];
        // SAFETY: the caller's: `k` elements at `from`; the planes have room for every row of every tile.
        unsafe {
            let d = match from.is_null() {
                true => 0.0,
                false => {
                    let v = [load::<S, W>(from, b * 32), load::<S, W>(from, b * 32 + 16)];
                    block::<S>(v, a.levels, &mut codes)
                }
            };
            put(a, &x, b, r, d, &codes);
        }
    }
}

/// The codes of 32 elements, the higher level first; gives their scale.
#[inline(always)]
unsafe fn block<S: Simd>(v: [S::F; 2], levels: usize, codes: &mut [Codes; 2]) -> f32 {
    let [high, low] = codes;
    // SAFETY: the caller's instruction set; the halves of `q` hold sixteen each.
    unsafe {
        let amax = S::amax(v[0], v[1]);
        let most = if levels == 1 { MOST } else { largest_code(16) };
        let d = amax / most;
        for (i, v) in v.into_iter().enumerate() {
            let (hq, lq) = (high.q.as_mut_ptr().add(16 * i), low.q.as_mut_ptr().add(16 * i));
            let q = S::rounded(v, d, most);
            if levels == 1 {
                high.sums[i] = S::codes(q, hq).1;
                continue;
            }
            // Near a tie either neighbour will do, since the rest is taken exactly.
            let (h, sum) = S::codes(S::mul(q, S::splat(1.0 / RADIX as f32)), hq);
            high.sums[i] = sum;
            low.sums[i] = S::codes(S::fma(h, S::splat(-RADIX as f32), q), lq).1;
        }
        d
    }
}

/// Stores block `b` of row `r` of a tile into the planes.
#[inline(always)]
unsafe fn put(a: &Quantized, x: &XTile, b: usize, r: usize, d: f32, codes: &[Codes; 2]) {
    let t = a.tile;
    let mut halves = [0; 2];
    // SAFETY: the caller's.
    unsafe {
        for (level, c) in codes.iter().enumerate().take(a.levels) {
            let sum = c.sums[0] + c.sums[1];
            halves = [0, 1].map(|i| halves[i] * RADIX + c.sums[i]);
            let to = x.q.cast_mut().cast::<[i8; 4]>().add((b * a.levels + level) * 8 * t);
            for j in 0..8 {
                let four = [c.q[4 * j], c.q[4 * j + 1], c.q[4 * j + 2], c.q[4 * j + 3]];
                to.add(j * t + r).write_unaligned(four);
            }
            for (i, (fix, group)) in CORRECTIONS.into_iter().enumerate() {
                if !a.planes[i] {
                    continue;
                }
                let to = x.init[i].cast_mut();
                if group == 32 {
                    to.add((b * a.levels + level) * t + r).write(-fix * sum);
                } else {
                    to.add((2 * b * a.levels + level) * t + r).write(-fix * c.sums[0]);
                    to.add(((2 * b + 1) * a.levels + level) * t + r).write(-fix * c.sums[1]);
                }
            }
        }
        x.d.cast_mut().add(b * t + r).write(d);
        x.dsum.cast_mut().add(b * t + r).write(d * (halves[0] + halves[1]) as f32);
        for (i, half) in halves.into_iter().enumerate().filter(|_| a.halves) {
            x.dhalf.cast_mut().add((2 * b + i) * t + r).write(d * half as f32);
        }
    }
}
