//! The two products of attention over a tile: scores = q·kᵀ and out += p·v.

use super::TILE;
use crate::kernels::lanes::{Element, LANES, Lanes, steps, sum};

/// Rows up to which scores are dot products; with more, keys are transposed first.
const DOT_ROWS: usize = 8;

/// Scores of `rows` query rows (f32, `stride` apart, zero beyond `d` up to a multiple of 16) with `n ≤ TILE` keys (`k_stride`
/// apart): row `r` at `out + r·TILE`. `turned` has room for a transposed tile. Lanes past `n` are unspecified.
///
/// # Safety
/// The pointers are valid for that.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn scores<L: Lanes, E: Element>(
    q: *const f32,
    stride: usize,
    rows: usize,
    d: usize,
    k: *const E,
    k_stride: isize,
    n: usize,
    turned: *mut f32,
    out: *mut f32,
) {
    // SAFETY: the caller's.
    unsafe {
        if rows > DOT_ROWS {
            turn::<L, E>(k, k_stride, n, d, turned);
            let depth = d.next_multiple_of(LANES);
            let cols = n.next_multiple_of(LANES);
            product::<L, f32, false>([rows, depth, cols], q, stride, turned, TILE as isize, out, TILE);
            return;
        }
        let mut r = 0;
        while r < rows {
            let left = if L::REGISTERS > 24 { rows - r } else { 1 };
            let (q, out) = (q.add(r * stride), out.add(r * TILE));
            match left {
                1 => dots::<L, E, 1>(q, stride, d, k, k_stride, n, out),
                2 => dots::<L, E, 2>(q, stride, d, k, k_stride, n, out),
                3 => dots::<L, E, 3>(q, stride, d, k, k_stride, n, out),
                _ => dots::<L, E, 4>(q, stride, d, k, k_stride, n, out),
            }
            r += left.min(4);
        }
    }
}

/// `n ≤ 16` elements.
#[inline(always)]
unsafe fn load<L: Lanes, E: Element>(p: *const E, n: usize) -> L::F {
    // SAFETY: the caller's.
    unsafe { if n < LANES { E::floats(p).load::<L>(0, n) } else { E::load::<L>(p) } }
}

/// One step of [`dots`]: `n ≤ 16` elements of `R` rows and `K` keys.
#[inline(always)]
unsafe fn dot_step<L: Lanes, E: Element, const R: usize, const K: usize>(
    q: *const f32,
    stride: usize,
    k: *const E,
    k_stride: isize,
    n: usize,
    acc: &mut [[L::F; K]; R],
) {
    // SAFETY: the caller's.
    unsafe {
        let mut keys = [L::splat(0.0); K];
        for (c, key) in keys.iter_mut().enumerate() {
            *key = load::<L, E>(k.offset(c as isize * k_stride), n);
        }
        for (r, acc) in acc.iter_mut().enumerate() {
            let q = L::load(q.add(r * stride));
            for (a, k) in acc.iter_mut().zip(keys) {
                *a = L::fma(q, k, *a);
            }
        }
    }
}

/// The lanes of `R × K` dot products.
#[inline(always)]
unsafe fn dot<L: Lanes, E: Element, const R: usize, const K: usize>(
    q: *const f32,
    stride: usize,
    d: usize,
    k: *const E,
    k_stride: isize,
) -> [[L::F; K]; R] {
    // SAFETY: the caller's.
    unsafe {
        let mut acc = [[L::splat(0.0); K]; R];
        let whole = d - d % LANES;
        let mut i = 0;
        while i < whole {
            dot_step::<L, E, R, K>(q.add(i), stride, k.add(i), k_stride, LANES, &mut acc);
            i += LANES;
        }
        if whole < d {
            dot_step::<L, E, R, K>(q.add(whole), stride, k.add(whole), k_stride, d - whole, &mut acc);
        }
        acc
    }
}

/// Dot products of `R` rows with keys, four at a time.
#[inline(always)]
unsafe fn dots<L: Lanes, E: Element, const R: usize>(
    q: *const f32,
    stride: usize,
    d: usize,
    k: *const E,
    k_stride: isize,
    n: usize,
    out: *mut f32,
) {
    // SAFETY: the caller's.
    unsafe {
        let mut j = 0;
        while j + 4 <= n {
            let acc = dot::<L, E, R, 4>(q, stride, d, k.offset(j as isize * k_stride), k_stride);
            for (r, acc) in acc.into_iter().enumerate() {
                out.add(r * TILE + j).cast::<[f32; 4]>().write_unaligned(L::sum4(acc));
            }
            j += 4;
        }
        for j in j..n {
            let acc = dot::<L, E, R, 1>(q, stride, d, k.offset(j as isize * k_stride), k_stride);
            for (r, [acc]) in acc.into_iter().enumerate() {
                out.add(r * TILE + j).write(sum::<L>(acc));
            }
        }
    }
}

/// `n` keys of `d` elements transposed to f32: element `i` of key `j` at `to[i·TILE + j]`, zero for the keys up to a multiple
/// of four and the elements up to a multiple of 16.
#[inline(always)]
unsafe fn turn<L: Lanes, E: Element>(k: *const E, k_stride: isize, n: usize, d: usize, to: *mut f32) {
    // SAFETY: the caller's.
    unsafe {
        for j in (0..n).step_by(4) {
            let mut i = 0;
            while i < d {
                let part = LANES.min(d - i);
                let mut keys = [L::splat(0.0); 4];
                for (c, key) in keys.iter_mut().enumerate().take(n - j) {
                    *key = load::<L, E>(k.offset((j + c) as isize * k_stride).add(i), part);
                }
                L::turn4(keys, to.add(i * TILE + j), TILE);
                i += LANES;
            }
        }
    }
}

/// Whether the rows of `v` (`v_stride` apart, `dv` elements each) whose bits are set are finite throughout.
///
/// # Safety
/// The pointer is valid for them.
#[inline(always)]
pub(super) unsafe fn are_finite<L: Lanes, E: Element>(
    v: *const E,
    v_stride: isize,
    set: u64,
    dv: usize,
) -> bool {
    // SAFETY: the caller's.
    unsafe {
        // NaN and infinity times zero are NaN, and stay that in a sum.
        let mut acc = L::splat(0.0);
        for j in (0..TILE).filter(|j| set >> j & 1 != 0) {
            let row = v.offset(j as isize * v_stride);
            for (i, n) in steps(dv) {
                acc = L::fma(load::<L, E>(row.add(i), n), L::splat(0.0), acc);
            }
        }
        sum::<L>(acc) == 0.0
    }
}

/// `out += p · v`: `rows` rows of `n` weights (`TILE` apart), `n` rows of `dv` values, rows of `out` `dv` apart.
///
/// # Safety
/// The pointers are valid for that.
#[inline(always)]
pub(super) unsafe fn weigh<L: Lanes, E: Element>(
    [rows, n, dv]: [usize; 3],
    p: *const f32,
    v: *const E,
    v_stride: isize,
    out: *mut f32,
) {
    // SAFETY: the caller's.
    unsafe {
        let whole = dv - dv % LANES;
        product::<L, E, true>([rows, n, whole], p, TILE, v, v_stride, out, dv);
        for r in 0..rows {
            for c in whole..dv {
                let o = out.add(r * dv + c);
                for j in 0..n {
                    *o = (*p.add(r * TILE + j)).mul_add((*v.offset(j as isize * v_stride).add(c)).get(), *o);
                }
            }
        }
    }
}

/// c = a · b, or c += a · b with `ADD`: a [m, k] f32, b [k, n], c [m, n] f32, `n` a multiple of 16.
#[inline(always)]
unsafe fn product<L: Lanes, E: Element, const ADD: bool>(
    [m, k, n]: [usize; 3],
    a: *const f32,
    a_stride: usize,
    b: *const E,
    b_stride: isize,
    c: *mut f32,
    c_stride: usize,
) {
    // SAFETY: the caller's.
    unsafe {
        let mut col = 0;
        while col < n {
            let wide = L::REGISTERS > 24 && col + 4 * LANES <= n;
            let (b, c) = (b.add(col), c.add(col));
            let mut row = 0;
            while row < m {
                let (a, c) = (a.add(row * a_stride), c.add(row * c_stride));
                let left = (m - row).min(if L::REGISTERS > 0 { 4 } else { 1 });
                match (left, wide) {
                    (1, true) => block::<L, E, ADD, 1, 4>(k, a, a_stride, b, b_stride, c, c_stride),
                    (2, true) => block::<L, E, ADD, 2, 4>(k, a, a_stride, b, b_stride, c, c_stride),
                    (3, true) => block::<L, E, ADD, 3, 4>(k, a, a_stride, b, b_stride, c, c_stride),
                    (_, true) => block::<L, E, ADD, 4, 4>(k, a, a_stride, b, b_stride, c, c_stride),
                    (4, false) => block::<L, E, ADD, 4, 1>(k, a, a_stride, b, b_stride, c, c_stride),
                    (_, false) => block::<L, E, ADD, 1, 1>(k, a, a_stride, b, b_stride, c, c_stride),
                }
                row += if wide || left == 4 { left } else { 1 };
            }
            col += if wide { 4 * LANES } else { LANES };
        }
    }
}

/// `M × 16·N` elements of [`product`] in registers.
#[inline(always)]
unsafe fn block<L: Lanes, E: Element, const ADD: bool, const M: usize, const N: usize>(
    k: usize,
    a: *const f32,
    a_stride: usize,
    b: *const E,
    b_stride: isize,
    c: *mut f32,
    c_stride: usize,
) {
    // SAFETY: the caller's.
    unsafe {
        let mut acc = [[L::splat(0.0); N]; M];
        if ADD {
            for (r, acc) in acc.iter_mut().enumerate() {
                for (s, x) in acc.iter_mut().enumerate() {
                    *x = L::load(c.add(r * c_stride + s * LANES));
                }
            }
        }
        for i in 0..k {
            let b = b.offset(i as isize * b_stride);
            let mut row = [L::splat(0.0); N];
            for (s, x) in row.iter_mut().enumerate() {
                *x = E::load::<L>(b.add(s * LANES));
            }
            for (r, acc) in acc.iter_mut().enumerate() {
                let a = L::splat(*a.add(r * a_stride + i));
                for (x, b) in acc.iter_mut().zip(row) {
                    *x = L::fma(a, b, *x);
                }
            }
        }
        for (r, acc) in acc.into_iter().enumerate() {
            for (s, x) in acc.into_iter().enumerate() {
                L::store(c.add(r * c_stride + s * LANES), x);
            }
        }
    }
}
