//! Activations quantized to 8 bits in blocks of 32 along k.
//!
//! Scale d = amax / 127 in f32; integers q = x / d rounded half to even, within ±127 (0 where the quotient is NaN). A
//! block that holds NaN or infinity has such a scale, so that the product does too.

use super::float::load;
use super::simd::Simd;
use super::tile::{CORRECTIONS, XTile};

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
    /// Start of the planes, which take 15/8 of a byte per element of whole tiles.
    pub base: *mut u8,
}

impl Quantized {
    /// Rows with padding.
    pub fn padded(&self) -> usize {
        self.rows.next_multiple_of(self.tile)
    }

    /// The tile with number `t`.
    pub fn tile(&self, t: usize) -> XTile {
        let all = self.padded() * self.k;
        let d = self.base.wrapping_add(all);
        let dsum = d.wrapping_add(all / 8);
        let mut at = dsum.wrapping_add(all / 8);
        let init = CORRECTIONS.map(|(_, group)| {
            let p = at.cast::<i32>().cast_const();
            at = at.wrapping_add(all / group * 4);
            p
        });
        let x = XTile { q: self.base.cast(), d: d.cast(), dsum: dsum.cast(), init };
        // SAFETY: tile `t` lies inside the planes.
        unsafe { x.advance(t * self.tile * self.k) }
    }
}

/// Quantizes row `row` of `x`, whose `k` elements of type `W` start at `from`; a null `from` makes a padding row of
/// zeros.
#[inline(always)]
pub(super) unsafe fn quantize_row<S: Simd, const W: usize>(a: &Quantized, row: usize, from: *const u8) {
    let (t, r) = (a.tile, row % a.tile);
    let x = a.tile(row / t);
    let mut q = [0i8; 32];
    for b in 0..a.k / 32 {
        // SAFETY: the caller's: `k` elements at `from`; the planes have room for every row of every tile.
        unsafe {
            let (mut d, mut sums) = (0.0, [0, 0]);
            if !from.is_null() {
                let v = [load::<S, W>(from, b * 32), load::<S, W>(from, b * 32 + 16)];
                d = S::amax(v[0], v[1]) / 127.0;
                sums = [S::quantize(v[0], d, q.as_mut_ptr()), S::quantize(v[1], d, q.as_mut_ptr().add(16))];
            }
            let to = x.q.cast_mut().cast::<[i8; 4]>();
            for j in 0..8 {
                let four = [q[4 * j], q[4 * j + 1], q[4 * j + 2], q[4 * j + 3]];
                to.add((b * 8 + j) * t + r).write_unaligned(four);
            }
            x.d.cast_mut().add(b * t + r).write(d);
            x.dsum.cast_mut().add(b * t + r).write(d * (sums[0] + sums[1]) as f32);
            for (i, (fix, group)) in CORRECTIONS.into_iter().enumerate() {
                if !a.planes[i] {
                    continue;
                }
                let to = x.init[i].cast_mut();
                if group == 32 {
                    to.add(b * t + r).write(-fix * (sums[0] + sums[1]));
                } else {
                    to.add(2 * b * t + r).write(-fix * sums[0]);
                    to.add((2 * b + 1) * t + r).write(-fix * sums[1]);
                }
            }
        }
    }
}
