//! `concat`: inputs one after another along an axis.

use frit_ir::target::{KernelRow, LayoutClass};

use super::copy::Bytes;
use super::row::{CpuRow, PLAIN, UNITS, WHOLE, int, one, rest};
use super::walk::{self, Side};
use crate::args::Args;

/// Rows of this file.
pub static ROWS: &[CpuRow] = &[
    CpuRow {
        row: KernelRow {
            name: "concat",
            op: "concat",
            inputs: &[rest("inputs", WHOLE, LayoutClass::Strided)],
            outputs: &[one("out", WHOLE, LayoutClass::Dense)],
            params: &[int("axis")],
            ..PLAIN
        },
        kernel: |_| concat,
    },
    CpuRow {
        row: KernelRow {
            name: "concat.blocks",
            op: "concat",
            inputs: &[rest("inputs", UNITS, LayoutClass::Rows)],
            outputs: &[one("out", UNITS, LayoutClass::Dense)],
            params: &[int("axis")],
            ..PLAIN
        },
        kernel: |_| concat,
    },
];

unsafe fn concat(args: &Args) {
    let Some((out, inputs)) = args.operands.split_last() else { return };
    let axis = args.params[0].int() as usize;
    let to = Bytes::of(out);
    let mut at = 0;
    for x in inputs {
        let from = Bytes::of(x);
        let start = at * to.strides()[axis] * to.size as i64;
        let a = Side { ptr: x.ptr, strides: from.strides() };
        let b = Side { ptr: out.ptr.wrapping_offset(start as isize), strides: to.strides() };
        // SAFETY: the caller's; the windows of the inputs are disjoint.
        unsafe { walk::copy(from.size, from.dims(), a, b, &args.team) };
        at += from.dims()[axis];
    }
}
