//! `copy`: a strided operand made dense.

use frit_ir::target::{KernelRow, LayoutClass};

use super::row::{CpuRow, PLAIN, UNITS, WHOLE, one};
use super::walk::{self, Side};
use crate::args::{Args, MAX_RANK, Operand};

/// Rows of this file.
pub static ROWS: &[CpuRow] = &[
    CpuRow {
        row: KernelRow {
            name: "copy",
            op: "copy",
            inputs: &[one("x", WHOLE, LayoutClass::Strided)],
            outputs: &[one("out", WHOLE, LayoutClass::Dense)],
            ..PLAIN
        },
        kernel: |_| copy,
    },
    CpuRow {
        row: KernelRow {
            name: "copy.blocks",
            op: "copy",
            inputs: &[one("x", UNITS, LayoutClass::Rows)],
            outputs: &[one("out", UNITS, LayoutClass::Dense)],
            ..PLAIN
        },
        kernel: |_| copy,
    },
];

/// Extents and strides of an operand in units of `size` bytes.
struct Bytes {
    dims: [i64; MAX_RANK],
    strides: [i64; MAX_RANK],
    rank: usize,
    /// Bytes of a unit.
    size: usize,
}

impl Bytes {
    /// The operand by elements, or by bytes where elements share them.
    fn of(o: &Operand) -> Bytes {
        let info = o.dtype.info();
        let rank = o.rank as usize;
        let mut b = Bytes { dims: o.dims, strides: o.strides, rank, size: info.unit_bytes };
        if info.unit_elements == 1 {
            return b;
        }
        let (elements, bytes) = (info.unit_elements as i64, info.unit_bytes as i64);
        b.size = 1;
        for (i, s) in b.strides[..rank].iter_mut().enumerate() {
            *s = if i + 1 == rank { 1 } else { *s / elements * bytes };
        }
        if let Some(last) = b.dims[..rank].last_mut() {
            *last = (*last + elements - 1) / elements * bytes;
        }
        b
    }

    /// Extents.
    fn dims(&self) -> &[i64] {
        &self.dims[..self.rank]
    }

    /// Strides.
    fn strides(&self) -> &[i64] {
        &self.strides[..self.rank]
    }
}

unsafe fn copy(args: &Args) {
    let [x, out] = args.operands else { return };
    let (from, to) = (Bytes::of(x), Bytes::of(out));
    let (a, b) = (Side { ptr: x.ptr, strides: from.strides() }, Side { ptr: out.ptr, strides: to.strides() });
    // SAFETY: the caller's.
    unsafe { walk::copy(from.size, from.dims(), a, b, &args.team) }
}
