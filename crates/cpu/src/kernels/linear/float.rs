//! The inner loops with f32 activations, written once over [`Simd`] and the weight types: block formats decoded to
//! their exact values, and float weights. The formula is that of [`super::tile`].

use super::simd::Simd;
use super::tile::{DirectF, Expand, TileF, code, codes, correction, layout, scales};

/// A float weight type: f32, f16, bf16.
pub(super) const F32: usize = 0;
/// See [`F32`].
pub(super) const F16: usize = 1;
/// See [`F32`].
pub(super) const BF16: usize = 2;

/// Sixteen floats of type `W` at element `at`.
#[inline(always)]
pub(super) unsafe fn load<S: Simd, const W: usize>(p: *const u8, at: usize) -> S::F {
    // SAFETY: the caller's.
    unsafe {
        match W {
            F32 => S::load_f32(p.cast::<f32>().add(at)),
            F16 => S::load_f16(p.cast::<u16>().add(at)),
            _ => S::load_bf16(p.cast::<u16>().add(at)),
        }
    }
}

/// The four weight vectors of one code vector.
#[inline(always)]
unsafe fn weights<S: Simd, const D: usize>(c: S::B, scale: S::F, min: S::F) -> [S::F; 4] {
    let signed = const { layout(D) }.signed && S::BIAS == 0;
    // SAFETY: the caller's.
    unsafe {
        let f = [S::byte(signed, c, 0), S::byte(signed, c, 1), S::byte(signed, c, 2), S::byte(signed, c, 3)];
        [
            S::fma(scale, f[0], min),
            S::fma(scale, f[1], min),
            S::fma(scale, f[2], min),
            S::fma(scale, f[3], min),
        ]
    }
}

/// Scale and what is added to `scale · code`: the minimum, or the offset taken back. Both are exact, and so is the
/// product; the sum rounds once, to the dequantized value.
#[inline(always)]
unsafe fn line<S: Simd, const D: usize>(p: *const u8, g: usize) -> (S::F, S::F) {
    let l = const { layout(D) };
    // SAFETY: the caller's.
    unsafe {
        let (scale, min) = scales::<S, D>(p, g);
        match (l.has_min(), correction(&l, S::BIAS)) {
            (true, _) => (scale, min),
            (_, 0) => (scale, S::splat(0.0)),
            (_, fix) => (scale, S::neg_mul(scale, S::splat(fix as f32))),
        }
    }
}

/// One row of f32 against `P` packed block-format panels.
#[inline(always)]
unsafe fn direct_panels<S: Simd, const D: usize, const P: usize>(a: &DirectF) {
    let l = const { layout(D) };
    let (sub, per) = (32 / l.group(), l.group() / 4);
    // SAFETY: the caller's: whole panels of `k` columns and a row of `k` floats.
    unsafe {
        let mut acc = [S::splat(0.0); P];
        let mut x = a.x;
        for at in 0..a.k / 32 {
            let (block, b) = (at / (l.block() / 32), at % (l.block() / 32));
            let c = a.panel.add(at * l.code_bytes());
            let s = a.panel.add(l.scales_at(a.k) + block * l.scale_bytes());
            // The panels that come next are asked for while these are read.
            for p in P..2 * P {
                for line in 0..l.code_bytes() / 64 {
                    S::prefetch(c.wrapping_add(p * a.stride + line * 64));
                }
                for line in 0..l.scale_bytes().div_ceil(64) * usize::from(b == 0) {
                    S::prefetch(s.wrapping_add(p * a.stride + line * 64));
                }
            }
            for g in 0..sub {
                let mut lines = [(S::splat(0.0), S::splat(0.0)); P];
                for (p, line) in lines.iter_mut().enumerate() {
                    *line = self::line::<S, D>(s.add(p * a.stride), b * sub + g);
                }
                for j in g * per..(g + 1) * per {
                    for (p, acc) in acc.iter_mut().enumerate() {
                        let c = code::<S, D>(c.add(p * a.stride), j);
                        for (i, w) in weights::<S, D>(c, lines[p].0, lines[p].1).into_iter().enumerate() {
                            *acc = S::fma(w, S::splat(*x.add(i)), *acc);
                        }
                    }
                    x = x.add(4);
                }
            }
        }
        for (p, acc) in acc.into_iter().enumerate() {
            S::store_f32(a.c.add(p * 16), acc);
        }
    }
}

/// One row of f32 against block-format panels.
#[inline(always)]
pub(super) unsafe fn direct_block<S: Simd, const D: usize>(a: &DirectF) {
    // SAFETY: the caller's.
    unsafe {
        let mut p = 0;
        while p + 4 <= a.panels {
            direct_panels::<S, D, 4>(&at_panel(a, p));
            p += 4;
        }
        while p < a.panels {
            direct_panels::<S, D, 1>(&at_panel(a, p));
            p += 1;
        }
    }
}

fn at_panel(a: &DirectF, p: usize) -> DirectF {
    DirectF { panel: a.panel.wrapping_add(p * a.stride), c: a.c.wrapping_add(16 * p), ..*a }
}

/// One row of f32 against `P` panels of float weights; the panels keep as many chains of sums busy.
#[inline(always)]
unsafe fn direct_float_panels<S: Simd, const W: usize, const P: usize>(a: &DirectF) {
    // SAFETY: the caller's: whole panels of `k` columns and a row of `k` floats.
    unsafe {
        let mut acc = [S::splat(0.0); P];
        for k in 0..a.k {
            let x = S::splat(*a.x.add(k));
            for (p, acc) in acc.iter_mut().enumerate() {
                *acc = S::fma(load::<S, W>(a.panel.add(p * a.stride), k * 16), x, *acc);
            }
        }
        for (p, acc) in acc.into_iter().enumerate() {
            S::store_f32(a.c.add(p * 16), acc);
        }
    }
}

/// One row of f32 against panels of float weights.
#[inline(always)]
pub(super) unsafe fn direct_float<S: Simd, const W: usize>(a: &DirectF) {
    // SAFETY: the caller's.
    unsafe {
        let mut p = 0;
        while p + 4 <= a.panels {
            direct_float_panels::<S, W, 4>(&at_panel(a, p));
            p += 4;
        }
        while p < a.panels {
            direct_float_panels::<S, W, 1>(&at_panel(a, p));
            p += 1;
        }
    }
}

/// Columns of a block-format panel as f32 `[k][16]`.
#[inline(always)]
pub(super) unsafe fn decode_block<S: Simd, const D: usize>(a: &Expand) {
    let l = const { layout(D) };
    let (sub, per) = (32 / l.group(), l.group() / 4);
    // SAFETY: the caller's: a whole panel, and room for the decoded columns.
    unsafe {
        for i in 0..a.count / 32 {
            let at = a.from / 32 + i;
            let c = codes::<S, D>(a.panel.add(at * l.code_bytes()));
            let (block, b) = (at / (l.block() / 32), at % (l.block() / 32));
            let s = a.panel.add(l.scales_at(a.k) + block * l.scale_bytes());
            for g in 0..sub {
                let (scale, min) = line::<S, D>(s, b * sub + g);
                for (j, c) in c.into_iter().enumerate().skip(g * per).take(per) {
                    let w = weights::<S, D>(c, scale, min);
                    for (q, w) in w.into_iter().enumerate() {
                        S::store_f32(a.to.cast::<f32>().add((i * 32 + j * 4 + q) * 16), w);
                    }
                }
            }
        }
    }
}

/// Columns of a panel of float weights as f32 `[k][16]`.
#[inline(always)]
pub(super) unsafe fn decode_float<S: Simd, const W: usize>(a: &Expand) {
    // SAFETY: the caller's: a whole panel, and room for the decoded columns.
    unsafe {
        for k in 0..a.count {
            S::store_f32(a.to.cast::<f32>().add(k * 16), load::<S, W>(a.panel, (a.from + k) * 16));
        }
    }
}

/// Sixteen floats at a time of type `W` to f32, `count` in all.
#[inline(always)]
pub(super) unsafe fn widen<S: Simd, const W: usize>(from: *const u8, count: usize, to: *mut f32) {
    // SAFETY: the caller's.
    unsafe {
        let mut i = 0;
        while i + 16 <= count {
            S::store_f32(to.add(i), load::<S, W>(from, i));
            i += 16;
        }
        for i in i..count {
            *to.add(i) = match W {
                F32 => from.cast::<f32>().add(i).read_unaligned(),
                F16 => half::f16::from_bits(from.cast::<u16>().add(i).read_unaligned()).to_f32(),
                _ => half::bf16::from_bits(from.cast::<u16>().add(i).read_unaligned()).to_f32(),
            };
        }
    }
}

/// `count` floats to type `W`, rounded to nearest even.
#[inline(always)]
pub(super) unsafe fn narrow<S: Simd, const W: usize>(from: *const f32, count: usize, to: *mut u8) {
    // SAFETY: the caller's.
    unsafe {
        if W == F32 {
            return std::ptr::copy_nonoverlapping(from.cast::<u8>(), to, count * 4);
        }
        let to = to.cast::<u16>();
        let mut i = 0;
        while W == F16 && i + 16 <= count {
            S::store_f16(to.add(i), S::load_f32(from.add(i)));
            i += 16;
        }
        for i in i..count {
            let v = *from.add(i);
            let bits =
                if W == F16 { half::f16::from_f32(v).to_bits() } else { half::bf16::from_f32(v).to_bits() };
            to.add(i).write_unaligned(bits);
        }
    }
}

/// `R` rows (the last repeated where there are fewer) against `P` panels, from row `row` on.
#[inline(always)]
unsafe fn rows_panels<S: Simd, const R: usize, const P: usize>(a: &TileF, row: usize) {
    // SAFETY: the caller's: `count` columns of panels and rows, room for the results.
    unsafe {
        let have = (a.rows - row).min(R);
        let mut x = [a.x; R];
        for (r, x) in x.iter_mut().enumerate() {
            *x = a.x.offset((row + r.min(have - 1)) as isize * a.ldx);
        }
        let c = a.c.add(row * a.ldc);
        let mut acc = [[S::splat(0.0); P]; R];
        if !a.first {
            for (r, acc) in acc.iter_mut().enumerate() {
                for (p, acc) in acc.iter_mut().enumerate() {
                    *acc = S::load_f32(c.add(r.min(have - 1) * a.ldc + p * 16));
                }
            }
        }
        for k in 0..a.count {
            for p in 0..P {
                let w = S::load_f32(a.panel.add(p * a.stride + k * 16));
                for (r, acc) in acc.iter_mut().enumerate() {
                    acc[p] = S::fma(w, S::splat(*x[r].add(k)), acc[p]);
                }
            }
        }
        for (r, acc) in acc.iter().enumerate().take(have) {
            for (p, acc) in acc.iter().enumerate() {
                S::store_f32(c.add(r * a.ldc + p * 16), *acc);
            }
        }
    }
}

/// All rows, `R` at a time, against one or two f32 panels, `P` at a time.
#[inline(always)]
pub(super) unsafe fn tile_f<S: Simd, const R: usize, const P: usize>(a: &TileF) {
    // SAFETY: the caller's.
    unsafe {
        for row in (0..a.rows).step_by(R) {
            if a.panels == P {
                rows_panels::<S, R, P>(a, row);
                continue;
            }
            for p in 0..a.panels {
                let one = TileF { panel: a.panel.add(p * a.stride), panels: 1, c: a.c.add(16 * p), ..*a };
                rows_panels::<S, R, 1>(&one, row);
            }
        }
    }
}
