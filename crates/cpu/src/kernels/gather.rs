//! `gather`: slices of a table by index, and rows of a table in a block format, decoded. An index out of range gives
//! zeros. (Packed tables are read by the kernel beside `linear`.)

use frit_ir::DType;
use frit_ir::target::{KernelRow, LayoutClass};

use super::dequantize;
use super::row::{BLOCKS, CpuRow, F32S, PLAIN, WHOLE, int, one};
use super::walk::{self, Side};
use crate::args::{Args, Operand};
use crate::pool::Team;

const INDEX: &[DType] = &[DType::I32, DType::I64];

/// Rows of this file.
pub static ROWS: &[CpuRow] = &[
    CpuRow {
        row: KernelRow {
            name: "gather",
            op: "gather",
            inputs: &[one("table", WHOLE, LayoutClass::Strided), one("indices", INDEX, LayoutClass::Strided)],
            outputs: &[one("out", WHOLE, LayoutClass::Dense)],
            params: &[int("axis")],
            ..PLAIN
        },
        kernel: |_| gather,
    },
    CpuRow {
        row: KernelRow {
            name: "gather.blocks",
            op: "gather",
            inputs: &[one("table", BLOCKS, LayoutClass::Rows), one("indices", INDEX, LayoutClass::Strided)],
            outputs: &[one("out", F32S, LayoutClass::Dense)],
            ..PLAIN
        },
        kernel: |_| blocks,
    },
];

/// Index number `n`, if it is one of a table of `rows`.
unsafe fn index(o: &Operand, n: usize, rows: i64) -> Option<i64> {
    let at = walk::offset(n, o.dims(), o.strides());
    // SAFETY: the caller's: `n` is below the operand's length.
    let i = unsafe {
        match o.dtype {
            DType::I64 => *o.ptr.cast::<i64>().offset(at),
            _ => i64::from(*o.ptr.cast::<i32>().offset(at)),
        }
    };
    (0..rows).contains(&i).then_some(i)
}

unsafe fn gather(args: &Args) {
    let [table, indices, out] = args.operands else { return };
    let axis = args.params[0].int() as usize;
    let size = table.dtype.info().unit_bytes;
    let (dims, strides) = (table.dims(), table.strides());
    let (outer, inner) = (walk::count(&dims[..axis]), &dims[axis + 1..]);
    let (count, slice) = (indices.len() as usize, walk::count(inner));
    let dense = &out.strides()[out.rank as usize - inner.len()..];
    for n in args.team.range(outer * count, (1024 / slice.max(1)).max(1)) {
        // SAFETY: the caller's: the slice lies inside the table, and this part of the result is this thread's.
        unsafe {
            let to = out.ptr.add(n * slice * size);
            let Some(i) = index(indices, n % count, dims[axis]) else {
                std::ptr::write_bytes(to, 0, slice * size);
                continue;
            };
            let at = walk::offset(n / count, &dims[..axis], &strides[..axis]) + (i * strides[axis]) as isize;
            let from = Side { ptr: table.ptr.offset(at * size as isize), strides: &strides[axis + 1..] };
            walk::copy(size, inner, from, Side { ptr: to, strides: dense }, &Team::solo());
        }
    }
}

unsafe fn blocks(args: &Args) {
    let [table, indices, out] = args.operands else { return };
    let (&[rows, k], [row_stride, _]) = (table.dims(), table.strides()) else { return };
    let info = table.dtype.info();
    let (k, size) = (k as usize, out.dtype.info().unit_bytes);
    for n in args.team.range(indices.len() as usize, 1) {
        // SAFETY: the caller's: the row lies inside the table, and this part of the result is this thread's.
        unsafe {
            let to = out.ptr.add(n * k * size);
            match index(indices, n, rows) {
                Some(i) => {
                    let at = i * row_stride / info.unit_elements as i64 * info.unit_bytes as i64;
                    dequantize::decode(table.dtype, table.ptr.offset(at as isize), k, out.dtype, to);
                }
                None => std::ptr::write_bytes(to, 0, k * size),
            }
        }
    }
}
