//! `softmax` and its logarithm along any axis. The largest value of a row is taken off first; a row whose largest value is
//! infinite gives NaN, as the formula does.

use frit_ir::DType;
use frit_ir::target::{KernelRow, LayoutClass};

use super::lanes::Lanes;
use super::real::Real;
use super::row::{Body, CpuRow, PLAIN, int, kernel, one};
use super::walk::Line;
use crate::args::{Args, Operand};
use crate::expr::TILE;
use crate::expr::io::{self, Rect};

const TYPES: &[DType] = &[DType::F32, DType::F16, DType::BF16, DType::F64];

/// Rows of this file.
pub static ROWS: &[CpuRow] = &[CpuRow {
    row: KernelRow {
        name: "softmax",
        op: "softmax",
        inputs: &[one("x", TYPES, LayoutClass::Rows)],
        outputs: &[one("out", TYPES, LayoutClass::Dense)],
        params: &[int("axis"), int("log")],
        alias: &[(0, 0)],
        ..PLAIN
    },
    kernel: kernel::<Softmax>,
}];

struct Softmax;

impl Body for Softmax {
    #[inline(always)]
    unsafe fn run<L: Lanes>(args: &Args) {
        let [x, out] = args.operands else { return };
        // SAFETY: the caller's.
        unsafe {
            match x.dtype {
                DType::F64 => rows::<L, f64>(args, x, out),
                _ => rows::<L, f32>(args, x, out),
            }
        }
    }
}

#[inline(always)]
unsafe fn rows<L: Lanes, T: Real>(args: &Args, x: &Operand, out: &Operand) {
    let (axis, log) = (args.params[0].int() as usize, args.params[1].int() != 0);
    let n = x.dims[axis] as usize;
    if n == 0 {
        return;
    }
    for row in args.team.range(x.len() as usize / n, 1) {
        // SAFETY: the caller's; rows of the result are this thread's.
        unsafe {
            line::<L, T>(x.dtype, &Line::of(x, axis, row), &Line::of(out, axis, row), n, log);
        }
    }
}

/// Calls `f` with every `TILE` elements of the row.
#[inline(always)]
unsafe fn tiles<L: Lanes, T: Real>(
    d: DType,
    x: &Line,
    n: usize,
    mut f: impl FnMut(usize, &mut [T; TILE], usize),
) {
    let size = d.info().unit_bytes;
    let mut tile = [T::ZERO; TILE];
    for i in (0..n).step_by(TILE) {
        let len = TILE.min(n - i);
        // SAFETY: the caller's: the row has `n` elements.
        unsafe { T::load::<L>(d, x.at(i, size), x.stride, len, &mut tile) };
        f(i, &mut tile, len);
    }
}

/// The sum of `acc` in a fixed order.
#[inline(always)]
fn total<T: Real>(acc: &[T]) -> T {
    acc.iter().fold(T::ZERO, |a, v| a.plus(*v))
}

#[inline(always)]
unsafe fn line<L: Lanes, T: Real>(d: DType, x: &Line, out: &Line, n: usize, log: bool) {
    let mut most = [T::LOWEST; 16];
    let mut sums = [T::ZERO; 16];
    // SAFETY: the caller's, for each pass. The last one reads a tile before it writes it, so rows may be the same.
    unsafe {
        tiles::<L, T>(d, x, n, |_, t, len| {
            t[len..].fill(T::LOWEST);
            for part in t.chunks_exact(16) {
                for (m, v) in most.iter_mut().zip(part) {
                    *m = if *v > *m { *v } else { *m };
                }
            }
        });
        let most = most.iter().fold(T::LOWEST, |a, v| if *v > a { *v } else { a });
        tiles::<L, T>(d, x, n, |_, t, len| {
            for v in t.iter_mut() {
                *v = v.minus(most).exp();
            }
            t[len..].fill(T::ZERO);
            for part in t.chunks_exact(16) {
                for (s, v) in sums.iter_mut().zip(part) {
                    *s = s.plus(*v);
                }
            }
        });
        let sum = total(&sums);
        let less = sum.ln();
        let size = d.info().unit_bytes;
        tiles::<L, T>(d, x, n, |i, t, len| {
            for v in t.iter_mut() {
                let a = v.minus(most);
                *v = if log { a.minus(less) } else { a.exp().divided(sum) };
            }
            let rect = Rect { row_stride: 0, stride: out.stride, rows: 1, cols: len };
            io::store::<L>(d, t.as_ptr().cast(), out.at(i, size), &rect);
        });
    }
}
