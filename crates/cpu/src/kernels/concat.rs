//! `concat`: inputs one after another along an axis.

use frit_ir::target::{KernelRow, LayoutClass};

use super::row::{CpuRow, PLAIN, WHOLE, int, one, rest};
use super::walk::{self, Side};
use crate::args::Args;

/// Rows of this file.
pub static ROWS: &[CpuRow] = &[CpuRow {
    row: KernelRow {
        name: "concat",
        op: "concat",
        inputs: &[rest("inputs", WHOLE, LayoutClass::Strided)],
        outputs: &[one("out", WHOLE, LayoutClass::Dense)],
        params: &[int("axis")],
        ..PLAIN
    },
    kernel: |_| concat,
}];

unsafe fn concat(args: &Args) {
    let Some((out, inputs)) = args.operands.split_last() else { return };
    let (axis, size) = (args.params[0].int() as usize, out.dtype.info().unit_bytes);
    let mut at = 0;
    for x in inputs {
        let start = at * out.strides[axis] * size as i64;
        let a = Side { ptr: x.ptr, strides: x.strides() };
        let b = Side { ptr: out.ptr.wrapping_offset(start as isize), strides: out.strides() };
        // SAFETY: the caller's; the windows of the inputs are disjoint.
        unsafe { walk::copy(size, x.dims(), a, b, &args.team) };
        at += x.dims[axis];
    }
}
