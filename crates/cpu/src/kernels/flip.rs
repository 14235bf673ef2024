//! `flip`: the order of elements reversed along axes.

use frit_ir::target::{KernelRow, LayoutClass};

use super::row::{CpuRow, PLAIN, WHOLE, int, one};
use super::walk::{self, Side};
use crate::args::Args;

/// Rows of this file.
pub static ROWS: &[CpuRow] = &[CpuRow {
    row: KernelRow {
        name: "flip",
        op: "flip",
        inputs: &[one("x", WHOLE, LayoutClass::Strided)],
        outputs: &[one("out", WHOLE, LayoutClass::Dense)],
        params: &[int("axes")],
        ..PLAIN
    },
    kernel: |_| flip,
}];

unsafe fn flip(args: &Args) {
    let [x, out] = args.operands else { return };
    if x.is_empty() {
        return;
    }
    let axes = args.params[0].int();
    let mut strides = x.strides;
    let mut start = 0;
    for (i, s) in strides.iter_mut().enumerate().take(x.rank as usize) {
        if axes >> i & 1 == 1 {
            start += (x.dims[i] - 1) * *s;
            *s = -*s;
        }
    }
    let size = x.dtype.info().unit_bytes;
    let a = Side {
        ptr: x.ptr.wrapping_offset(start as isize * size as isize),
        strides: &strides[..x.rank as usize],
    };
    // SAFETY: the caller's; the first element lies at the end of the flipped axes.
    unsafe { walk::copy(size, x.dims(), a, Side { ptr: out.ptr, strides: out.strides() }, &args.team) }
}
