//! `quantize`: each 32 elements of a row rounded to 8- or 16-bit codes with a common scale, given back as f32.

use frit_ir::DType;
use frit_ir::target::{KernelRow, LayoutClass, ParamSpec, ParamType};

use super::lanes::{Floats, LANES, Lanes};
use super::row::{Body, CpuRow, F32S, PLAIN, kernel, one};
use super::walk;
use crate::args::Args;

/// Rows of this file.
pub static ROWS: &[CpuRow] = &[CpuRow {
    row: KernelRow {
        name: "quantize",
        op: "quantize",
        inputs: &[one("x", F32S, LayoutClass::Rows)],
        outputs: &[one("out", &[DType::F32], LayoutClass::Dense)],
        params: &[ParamSpec { name: "bits", ty: ParamType::I64 }],
        alias: &[(0, 0)],
        ..PLAIN
    },
    kernel: kernel::<Quantize>,
}];

/// Elements that share a scale.
const BLOCK: usize = 32;

struct Quantize;

#[inline(always)]
fn block(x: &mut [f32; BLOCK], largest: f32) {
    let mut amax = 0f32;
    for v in x.iter() {
        // NaN stays: nothing is larger.
        amax = if v.abs() > amax || v.is_nan() { v.abs() } else { amax };
    }
    let d = amax / largest;
    for v in x.iter_mut() {
        let q = (*v / d).round_ties_even().clamp(-largest, largest);
        *v = if d == 0.0 { 0.0 } else { q * d };
    }
}

impl Body for Quantize {
    #[inline(always)]
    unsafe fn run<L: Lanes>(args: &Args) {
        let [x, out] = args.operands else { return };
        let Some((k, lead)) = x.dims().split_last() else { return };
        let largest = super::linear::largest_code(args.params[0].int());
        let (rows, blocks) = (walk::count(lead), *k as usize / BLOCK);
        for unit in args.team.range(rows * blocks, 4) {
            let (row, at) = (unit / blocks, unit % blocks * BLOCK);
            let from = Floats { ptr: x.ptr, dtype: x.dtype };
            let from = from.skip(walk::offset(row, lead, &x.strides()[..lead.len()]) + at as isize);
            let mut v = [0f32; BLOCK];
            // SAFETY: the caller's: the block lies inside the row, and its result is this thread's.
            unsafe {
                for i in (0..BLOCK).step_by(LANES) {
                    L::store(v.as_mut_ptr().add(i), from.load::<L>(i, LANES));
                }
                block(&mut v, largest);
                out.ptr.cast::<[f32; BLOCK]>().add(unit).write_unaligned(v);
            }
        }
    }
}
