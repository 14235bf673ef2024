//! The inner loops, written once over [`Simd`] and the block formats (an index into [`BLOCKS`]).
//!
//! One formula serves every path, so results are equal bit by bit whatever the instruction set, the number of rows and
//! the tile. With activations quantized in blocks of 32 (scale `d`, integers `q`), for each group of a weight row:
//! `acc = fma(scale · d, Σ (code − offset)·q, acc)`, the sum an exact integer rounded to f32 once, then for each 32 (or group of 16) with a
//! minimum `acc = fma(min, d · Σ q, acc)`.
//! With f32 activations, for each k ascending: `acc = fma(w, x, acc)`, `w` the exact dequantized value.

use super::simd::Simd;
use crate::pack::{Layout, Scales};
use frit_ir::rows::BLOCKS;

/// The layout of block format `D`.
pub(super) const fn layout(format: usize) -> Layout {
    match Layout::of(BLOCKS[format]) {
        Some(l) => l,
        None => panic!("every block format in the list has a layout"),
    }
}

/// What is added to `Σ code·q` in units of `−Σ q`: the offset of the format, or the bias that signed codes get.
pub(super) const fn correction(l: &Layout, bias: i32) -> i32 {
    if l.signed { bias } else { l.offset }
}

/// The planes of corrections, one for each (correction, group) that occurs.
pub(super) const CORRECTIONS: [(i32, usize); 5] = [(8, 32), (16, 32), (128, 32), (32, 16), (4, 16)];

/// The plane of a correction.
pub(super) const fn plane(correction: i32) -> usize {
    match correction {
        8 => 0,
        16 => 1,
        128 => 2,
        32 => 3,
        _ => 4,
    }
}

/// What a code of the higher level counts where activations have two: q = RADIX · high + low.
pub(super) const RADIX: i32 = 254;

/// Quantized activations of a tile of `T` rows, from some k on; the rows of a tile alternate.
#[derive(Clone, Copy)]
pub(crate) struct XTile {
    /// Levels of 8 bits, 1 or 2.
    pub levels: usize,
    /// Integers, the higher level first, `[k / 32][levels][8][T][4]`.
    pub q: *const i8,
    /// Scales, `[k / 32][T]`.
    pub d: *const f32,
    /// Scale times sum of the integers, `[k / 32][T]`.
    pub dsum: *const f32,
    /// The same for each half of 32, `[k / 16][T]`.
    pub dhalf: *const f32,
    /// −correction · sum of a level, `[k / group][levels][T]`, for each plane.
    pub init: [*const i32; CORRECTIONS.len()],
}

impl XTile {
    /// The same, `elements` (rows × k, a multiple of 32 times the rows of a tile) further on.
    #[inline(always)]
    pub unsafe fn advance(self, elements: usize) -> XTile {
        // SAFETY: the caller stays inside the planes.
        unsafe {
            let mut init = self.init;
            for (p, (_, group)) in init.iter_mut().zip(CORRECTIONS) {
                *p = p.add(elements / group * self.levels);
            }
            XTile {
                levels: self.levels,
                q: self.q.add(elements * self.levels),
                d: self.d.add(elements / 32),
                dsum: self.dsum.add(elements / 32),
                dhalf: self.dhalf.add(elements / 16),
                init,
            }
        }
    }
}

/// One panel against one tile of a few rows, straight from the packed weights.
pub(crate) struct Direct {
    /// The panel.
    pub panel: *const u8,
    /// Columns.
    pub k: usize,
    /// Activations.
    pub x: XTile,
    /// Results, 16 per row.
    pub c: *mut f32,
    /// Floats from row to row of the results.
    pub ldc: usize,
}

/// What is brought from a packed panel into a form quick to read again and again.
pub(crate) struct Expand {
    /// The panel.
    pub panel: *const u8,
    /// Its columns.
    pub k: usize,
    /// First column wanted, a multiple of the block.
    pub from: usize,
    /// Columns wanted, whole blocks.
    pub count: usize,
    /// Where to.
    pub to: *mut u8,
}

/// Expanded panels against tiles of quantized rows.
pub(crate) struct TileQ {
    /// Expanded panel.
    pub panel: *const u8,
    /// Bytes to the second panel.
    pub stride: usize,
    /// Panels, 1 or 2.
    pub panels: usize,
    /// Columns in the expanded panels.
    pub count: usize,
    /// The first tile.
    pub x: XTile,
    /// Elements (rows × k) from tile to tile.
    pub step: usize,
    /// Tiles.
    pub tiles: usize,
    /// Results.
    pub c: *mut f32,
    /// Floats from row to row of the results.
    pub ldc: usize,
    /// Whether results start at zero; else they go on from what `c` holds.
    pub first: bool,
}

/// f32 panels against rows of f32.
pub(crate) struct TileF {
    /// Panel, `[k][16]`.
    pub panel: *const f32,
    /// Floats to the second panel.
    pub stride: usize,
    /// Panels, 1 or 2.
    pub panels: usize,
    /// Columns.
    pub count: usize,
    /// First row.
    pub x: *const f32,
    /// Floats from row to row; may be 0.
    pub ldx: isize,
    /// Rows.
    pub rows: usize,
    /// Results.
    pub c: *mut f32,
    /// Floats from row to row of the results.
    pub ldc: usize,
    /// Whether results start at zero; else they go on from what `c` holds.
    pub first: bool,
}

/// Up to four packed panels against one row of f32.
pub(crate) struct DirectF {
    /// First panel.
    pub panel: *const u8,
    /// Bytes from panel to panel.
    pub stride: usize,
    /// Panels, 1, 2 or 4.
    pub panels: usize,
    /// Columns.
    pub k: usize,
    /// The row.
    pub x: *const f32,
    /// Results, 16 per panel.
    pub c: *mut f32,
}

/// Code vector `j` of 32 columns, ready for `dot`.
#[inline(always)]
pub(super) unsafe fn code<S: Simd, const D: usize>(p: *const u8, j: usize) -> S::B {
    let l = const { layout(D) };
    // SAFETY: the caller's: 32 columns of codes at `p`.
    unsafe {
        if l.bits == 8 {
            return S::signed(S::load(p.add(j * 64)));
        }
        if l.bits < 4 {
            let low = S::shr(S::load(p.add(j / 4 * 64)), 2 * (j as u32 % 4), 3);
            if l.bits == 2 {
                return low;
            }
            let (h, j) = (S::load(p.add(128)), j as u32);
            return S::or(low, if j < 2 { S::shl(h, 2 - j, 4) } else { S::shr(h, j - 2, 4) });
        }
        let v = S::load(p.add(j % 4 * 64));
        let low = if j < 4 { S::and(v, 15) } else { S::shr(v, 4, 15) };
        match l.bits {
            4 => low,
            5 => {
                let (h, j) = (S::load(p.add(256)), j as u32);
                S::or(low, if j < 4 { S::shl(h, 4 - j, 16) } else { S::shr(h, j - 4, 16) })
            }
            _ => {
                let (h, bit) = (S::load(p.add(256 + j / 4 * 64)), 2 * (j as u32 % 4));
                S::or(low, if bit <= 4 { S::shl(h, 4 - bit, 48) } else { S::shr(h, bit - 4, 48) })
            }
        }
    }
}

/// The eight code vectors of 32 columns.
#[inline(always)]
pub(super) unsafe fn codes<S: Simd, const D: usize>(p: *const u8) -> [S::B; 8] {
    // SAFETY: the caller's.
    unsafe {
        [
            code::<S, D>(p, 0),
            code::<S, D>(p, 1),
            code::<S, D>(p, 2),
            code::<S, D>(p, 3),
            code::<S, D>(p, 4),
            code::<S, D>(p, 5),
            code::<S, D>(p, 6),
            code::<S, D>(p, 7),
        ]
    }
}

/// Scale of group `g` of a block, and its minimum (or that of its 32 columns) where there is one. `p` is the block's scales.
#[inline(always)]
pub(super) unsafe fn scales<S: Simd, const D: usize>(p: *const u8, g: usize) -> (S::F, S::F) {
    // SAFETY: the caller's: the scales of a whole block at `p`.
    unsafe {
        let d = S::load_f16(p.cast());
        match const { layout(D) }.scales {
            Scales::Scale => (d, d),
            Scales::ScaleMin => (d, S::load_f16(p.add(32).cast())),
            Scales::Super => {
                let m = S::load_f16(p.add(32).cast());
                let scale = S::mul(d, S::load_u8(p.add(64 + g * 16)));
                (scale, S::neg_mul(m, S::load_u8(p.add(192 + g * 16))))
            }
            Scales::SuperSigned => (S::mul(d, S::load_i8(p.add(32 + g * 16).cast())), d),
            Scales::SuperPairs => {
                let (m, pair) = (S::load_f16(p.add(32).cast()), p.add(64 + g * 16));
                (S::mul(d, S::load_u4(pair, 0)), S::neg_mul(m, S::load_u4(pair, 4)))
            }
        }
    }
}

/// How far ahead weights are asked for: panels lie one behind the other, and so both streams of a panel, codes and scales,
/// run into the next one.
const AHEAD: usize = 6144;

/// `R` rows against one packed panel.
#[inline(always)]
pub(super) unsafe fn direct<S: Simd, const D: usize, const R: usize>(a: &Direct) {
    let l = const { layout(D) };
    let fix = const { correction(&layout(D), S::BIAS) };
    let (sub, per) = (32 / l.group(), l.group() / 4);
    // SAFETY: the caller's: a whole panel of `k` columns and `R` rows of activations.
    unsafe {
        let mut acc = [S::splat(0.0); R];
        let mut x = a.x;
        let mut p = a.panel;
        let mut s = a.panel.add(l.scales_at(a.k));
        for block in 0..a.k / l.block() {
            for line in 0..l.scale_bytes().div_ceil(64) {
                S::prefetch(s.wrapping_add(AHEAD + line * 64));
            }
            for b in 0..l.block() / 32 {
                for line in 0..l.code_bytes() / 64 {
                    S::prefetch(p.wrapping_add(AHEAD + line * 64));
                }
                let c = codes::<S, D>(p);
                let at = block * l.block() / 32 + b;
                let mut min = S::splat(0.0);
                for g in 0..sub {
                    let (scale, m) = scales::<S, D>(s, b * sub + g);
                    min = m;
                    for (r, acc) in acc.iter_mut().enumerate() {
                        let init = |level: usize| match fix {
                            0 => 0,
                            _ => *x.init[plane(fix)].add(((at * sub + g) * x.levels + level) * R + r),
                        };
                        // Two chains, so that the dots of one block overlap.
                        let (mut even, mut odd) = (S::splat_i(init(0)), S::splat_i(0));
                        for level in 0..x.levels {
                            if level > 0 {
                                let high = S::mul_i(S::add_i(even, odd), RADIX);
                                (even, odd) = (S::add_i(high, S::splat_i(init(level))), S::splat_i(0));
                            }
                            let q = x.q.add(level * 32 * R);
                            for j in 0..per / 2 {
                                let j = g * per + 2 * j;
                                even = S::dot(l.signed, even, c[j], q.add((j * R + r) * 4));
                                odd = S::dot(l.signed, odd, c[j + 1], q.add(((j + 1) * R + r) * 4));
                            }
                        }
                        let d = S::splat(*x.d.add(at * R + r));
                        *acc = S::fma(S::mul(scale, d), S::to_f(S::add_i(even, odd)), *acc);
                        if l.has_min() && sub > 1 {
                            *acc = S::fma(m, S::splat(*x.dhalf.add((at * sub + g) * R + r)), *acc);
                        }
                    }
                }
                if l.has_min() && sub == 1 {
                    for (r, acc) in acc.iter_mut().enumerate() {
                        *acc = S::fma(min, S::splat(*x.dsum.add(at * R + r)), *acc);
                    }
                }
                x.q = x.q.add(32 * R * x.levels);
                p = p.add(l.code_bytes());
            }
            s = s.add(l.scale_bytes());
        }
        for (r, acc) in acc.into_iter().enumerate() {
            S::store_f32(a.c.add(r * a.ldc), acc);
        }
    }
}

/// Where the scales and minimums stand in an expanded panel of `count` columns: codes come first, a byte each.
const fn expanded(l: &Layout, count: usize) -> (usize, usize) {
    (count * 16, count * 16 + count / l.group() * 64)
}

/// Bytes of the largest expanded panel of `count` columns.
pub(super) const fn expanded_bytes(count: usize) -> usize {
    count * 16 + 2 * (count / 16 * 64)
}

/// Brings columns of a panel into code bytes `[k / 4][16][4]`, then scales and minimums `[k / group][16]` as f32.
#[inline(always)]
pub(super) unsafe fn expand<S: Simd, const D: usize>(a: &Expand) {
    let l = const { layout(D) };
    let sub = 32 / l.group();
    let (scales_at, mins_at) = expanded(&l, a.count);
    // SAFETY: the caller's: a whole panel, and room for the expanded columns.
    unsafe {
        let p = a.panel.add(a.from / 32 * l.code_bytes());
        for b in 0..a.count / 32 {
            let c = codes::<S, D>(p.add(b * l.code_bytes()));
            for (j, c) in c.into_iter().enumerate() {
                S::store(a.to.add(b * 512 + j * 64), c);
            }
        }
        let s = a.panel.add(l.scales_at(a.k) + a.from / l.block() * l.scale_bytes());
        for block in 0..a.count / l.block() {
            for b in 0..l.block() / 32 {
                let at = block * l.block() / 32 + b;
                for g in 0..sub {
                    let (scale, min) = scales::<S, D>(s.add(block * l.scale_bytes()), b * sub + g);
                    S::store_f32(a.to.add(scales_at + (at * sub + g) * 64).cast(), scale);
                    if l.has_min() {
                        S::store_f32(a.to.add(mins_at + (at * sub + g) * 64).cast(), min);
                    }
                }
            }
        }
    }
}

/// The integer sums of group `g` of 32 columns; `w` is the first panel's codes of them, `x.init` that of the group.
#[inline(always)]
unsafe fn tile_dots<S: Simd, const D: usize, const R: usize, const P: usize, const L: usize>(
    w: *const u8,
    stride: usize,
    x: &XTile,
    g: usize,
) -> [[S::I; P]; R] {
    let l = const { layout(D) };
    let fix = const { correction(&layout(D), S::BIAS) };
    let per = l.group() / 4;
    // SAFETY: the caller's.
    unsafe {
        let mut sum = [[S::splat_i(0); P]; R];
        for level in 0..L {
            for (r, sum) in sum.iter_mut().enumerate() {
                if level > 0 {
                    *sum = sum.map(|s| S::mul_i(s, RADIX));
                }
                if fix != 0 {
                    let init = S::splat_i(*x.init[plane(fix)].add(level * R + r));
                    *sum = sum.map(|s| S::add_i(s, init));
                }
            }
            let (mut w, mut q) = (w.add(g * per * 64), x.q.add((level * 8 + g * per) * 4 * R));
            for _ in 0..per {
                for p in 0..P {
                    let code = S::load(w.add(p * stride));
                    for (r, sum) in sum.iter_mut().enumerate() {
                        sum[p] = S::dot(l.signed, sum[p], code, q.add(r * 4));
                    }
                }
                w = w.add(64);
                q = q.add(4 * R);
            }
        }
        sum
    }
}

/// Tiles of `R` rows, in `L` levels, by `P` expanded panels.
#[inline(always)]
unsafe fn tile_panels<S: Simd, const D: usize, const R: usize, const P: usize, const L: usize>(a: &TileQ) {
    let l = const { layout(D) };
    let fix = const { correction(&layout(D), S::BIAS) };
    let sub = 32 / l.group();
    let (scales_at, mins_at) = expanded(&l, a.count);
    // SAFETY: the caller's: whole expanded panels, whole tiles of activations, room for whole tiles of results.
    unsafe {
        for t in 0..a.tiles {
            let mut x = a.x.advance(t * a.step);
            let c = a.c.add(t * R * a.ldc);
            let mut acc = [[S::splat(0.0); P]; R];
            if !a.first {
                for (r, acc) in acc.iter_mut().enumerate() {
                    for (p, acc) in acc.iter_mut().enumerate() {
                        *acc = S::load_f32(c.add(r * a.ldc + p * 16));
                    }
                }
            }
            let (mut w, mut s) = (a.panel, a.panel.add(scales_at).cast::<f32>());
            let mut m = a.panel.add(mins_at).cast::<f32>();
            for _ in 0..a.count / 32 {
                for g in 0..sub {
                    let sum = tile_dots::<S, D, R, P, L>(w, a.stride, &x, g);
                    for p in 0..P {
                        let scale = S::load_f32(s.byte_add(p * a.stride));
                        for (r, (acc, sum)) in acc.iter_mut().zip(&sum).enumerate() {
                            let scale = S::mul(scale, S::splat(*x.d.add(r)));
                            acc[p] = S::fma(scale, S::to_f(sum[p]), acc[p]);
                        }
                    }
                    s = s.add(16);
                    if fix != 0 {
                        x.init[plane(fix)] = x.init[plane(fix)].add(R * L);
                    }
                    if l.has_min() {
                        let sums = if sub > 1 { x.dhalf.add(g * R) } else { x.dsum };
                        for p in 0..P {
                            let min = S::load_f32(m.byte_add(p * a.stride));
                            for (r, acc) in acc.iter_mut().enumerate() {
                                acc[p] = S::fma(min, S::splat(*sums.add(r)), acc[p]);
                            }
                        }
                        m = m.add(16);
                    }
                }
                w = w.add(512);
                x.q = x.q.add(32 * R * L);
                x.d = x.d.add(R);
                x.dsum = x.dsum.add(R);
                x.dhalf = x.dhalf.add(2 * R);
            }
            for (r, acc) in acc.iter().enumerate() {
                for (p, acc) in acc.iter().enumerate() {
                    S::store_f32(c.add(r * a.ldc + p * 16), *acc);
                }
            }
        }
    }
}

/// Tiles of `R` rows against one or two expanded panels, `P` at a time.
#[inline(always)]
pub(super) unsafe fn tile_q<S: Simd, const D: usize, const R: usize, const P: usize>(a: &TileQ) {
    // SAFETY: the caller's.
    unsafe {
        match (a.panels == P, a.x.levels) {
            (true, 1) => tile_panels::<S, D, R, P, 1>(a),
            (true, _) => tile_panels::<S, D, R, P, 2>(a),
            (_, levels) => {
                for p in 0..a.panels {
                    let one = TileQ { panel: a.panel.add(p * a.stride), panels: 1, c: a.c.add(16 * p), ..*a };
                    match levels {
                        1 => tile_panels::<S, D, R, 1, 1>(&one),
                        _ => tile_panels::<S, D, R, 1, 2>(&one),
                    }
                }
            }
        }
    }
}
