//! `rotary`: pairs of elements turned by an angle proportional to the position.

use frit_ir::DType;
use frit_ir::target::{KernelRow, LayoutClass};

use super::lanes::{Floats, Lanes};
use super::row::{Body, CpuRow, F32S, PLAIN, int, kernel, one, real};
use crate::args::{Args, Operand};
use crate::math;

/// Rows of this file.
pub static ROWS: &[CpuRow] = &[CpuRow {
    row: KernelRow {
        name: "rotary",
        op: "rotary",
        inputs: &[
            one("x", F32S, LayoutClass::Rows),
            one("positions", &[DType::I32], LayoutClass::Rows),
            one("inv_freq", &[DType::F32], LayoutClass::Dense),
        ],
        outputs: &[one("out", F32S, LayoutClass::Dense)],
        params: &[int("dims"), int("interleaved"), real("factor")],
        alias: &[(0, 0)],
        ..PLAIN
    },
    kernel: kernel::<Rotary>,
}];

/// Pairs whose sines are held at a time.
const CHUNK: usize = 128;

struct Rotary;

/// Offset of [b, t, h, 0].
fn at(o: &Operand, b: usize, t: usize, h: usize) -> isize {
    (b as i64 * o.strides[0] + t as i64 * o.strides[1] + h as i64 * o.strides[2]) as isize
}

/// Sines and cosines, times `factor`, of `n ≤ CHUNK` angles `position · frequency`.
#[inline(always)]
unsafe fn turn(position: f32, freq: *const f32, n: usize, factor: f32, sin: &mut [f32], cos: &mut [f32]) {
    let (sin, cos) = (&mut sin[..n], &mut cos[..n]);
    for i in 0..n {
        // SAFETY: the caller's: `n` frequencies.
        let (s, c) = math::sin_cos(position * unsafe { *freq.add(i) });
        sin[i] = s * factor;
        cos[i] = c * factor;
    }
}

impl Body for Rotary {
    #[inline(always)]
    unsafe fn run<L: Lanes>(args: &Args) {
        let [x, positions, freq, out] = args.operands else { return };
        let [dims, interleaved, factor] = [0, 1, 2].map(|i| args.params[i]);
        let (half, interleaved, factor) =
            (dims.int() as usize / 2, interleaved.int() != 0, factor.float() as f32);
        let &[_, t, h, d] = x.dims() else { return };
        let (t, h, d) = (t as usize, h as usize, d as usize);
        let mine = args.team.range(x.dims[0] as usize * t * h, 1);
        let mut unit = mine.start;
        while unit < mine.end {
            // The heads of one token that are this thread's.
            let (token, head) = (unit / h, unit % h);
            let heads = head..h.min(head + mine.end - unit);
            unit += heads.len();
            let (b, t) = (token / t, token % t);
            let row = if positions.dims[0] == 1 { 0 } else { b as i64 };
            let place = (row * positions.strides[0] + t as i64 * positions.strides[1]) as isize;
            // SAFETY: the caller's, here and below: indices are inside the extents.
            let position = unsafe { *positions.ptr.cast::<i32>().offset(place) } as f32;
            let (mut sin, mut cos) = ([0.0; CHUNK], [0.0; CHUNK]);
            for from in (0..half).step_by(CHUNK) {
                let n = CHUNK.min(half - from);
                // SAFETY: as above.
                unsafe {
                    turn(position, freq.ptr.cast::<f32>().add(from), n, factor, &mut sin, &mut cos);
                    for h in heads.clone() {
                        let x = Floats { ptr: x.ptr, dtype: x.dtype }.skip(at(x, b, t, h));
                        let out = Floats { ptr: out.ptr, dtype: out.dtype }.skip(at(out, b, t, h));
                        let (sin, cos) = (&sin[..n], &cos[..n]);
                        match interleaved {
                            true => pairs(x, out, from, sin, cos),
                            false => halves::<L>(x, out, from, half, sin, cos),
                        }
                    }
                }
            }
            for h in heads {
                // SAFETY: as above.
                unsafe { tail(x, out, (b, t, h), 2 * half, d) };
            }
        }
    }
}

/// Elements beyond the rotated ones stay as they are.
#[inline(always)]
unsafe fn tail(x: &Operand, out: &Operand, (b, t, h): (usize, usize, usize), from: usize, d: usize) {
    let size = x.dtype.info().unit_bytes;
    let (p, q) = (at(x, b, t, h) + from as isize, at(out, b, t, h) + from as isize);
    // SAFETY: the caller's; in place the two are the same.
    unsafe {
        std::ptr::copy(x.ptr.offset(p * size as isize), out.ptr.offset(q * size as isize), (d - from) * size);
    }
}

/// Pairs (i, i + half) for `i` from `from` on.
#[inline(always)]
unsafe fn halves<L: Lanes>(x: Floats, out: Floats, from: usize, half: usize, sin: &[f32], cos: &[f32]) {
    let (sin, cos) = (as_floats(sin), as_floats(cos));
    // SAFETY: the caller's.
    unsafe {
        for (i, n) in super::lanes::steps(sin.1) {
            let (s, c) = (sin.0.load::<L>(i, n), cos.0.load::<L>(i, n));
            let (a, b) = (x.load::<L>(from + i, n), x.load::<L>(from + half + i, n));
            let minus = L::mul(b, L::mul(s, L::splat(-1.0)));
            out.store::<L>(from + i, n, L::fma(a, c, minus));
            out.store::<L>(from + half + i, n, L::fma(b, c, L::mul(a, s)));
        }
    }
}

fn as_floats(v: &[f32]) -> (Floats, usize) {
    (Floats { ptr: v.as_ptr().cast_mut().cast(), dtype: DType::F32 }, v.len())
}

/// Pairs (2i, 2i + 1) for `i` from `from` on.
#[inline(always)]
unsafe fn pairs(x: Floats, out: Floats, from: usize, sin: &[f32], cos: &[f32]) {
    for (i, (s, c)) in sin.iter().zip(cos).enumerate() {
        let at = 2 * (from + i);
        // SAFETY: the caller's.
        unsafe {
            let (a, b) = (x.get(at), x.get(at + 1));
            out.put(at, a.mul_add(*c, -(b * s)));
            out.put(at + 1, b.mul_add(*c, a * s));
        }
    }
}
