//! Rows of packed weights by index: the embedding lookup of a table that `linear` may read too.
//!
//! Operands: the packed table `[N, .., K]`, indices (i32 or i64, any strides), the slices `[.., K]` (f32, f16 or bf16). An
//! index outside `0..N` reads nothing and gives zeros.

use frit_ir::DType;

use super::rows::Rows;
use super::table::{self, Ops};
use crate::args::{Args, Kernel, Operand};
use crate::isa::Isa;
use crate::pack::{PANEL, decode_panel_row, panel_bytes};

/// The kernel for `isa` (or for the best set that the machine has, if it lacks that one).
pub fn gather(isa: Isa) -> Kernel {
    ENTRIES[table::fastest(isa)]
}

/// The kernel over each of [`table::SETS`].
const ENTRIES: [Kernel; 4] = [entry::<0>, entry::<1>, entry::<2>, entry::<3>];

unsafe fn entry<const I: usize>(args: &Args) {
    // SAFETY: the caller's.
    unsafe { run(table::SETS[I].0, args) }
}

/// Columns decoded at a time; whole blocks of every format.
const CHUNK: usize = 256;

unsafe fn run(ops: &Ops, args: &Args) {
    let [table, indices, out] = args.operands else { return };
    let [n, inner @ .., k] = table.dims() else { return };
    let (k, inner) = (*k as usize, inner.iter().product::<i64>() as usize);
    let bytes = panel_bytes(table.dtype, k).unwrap_or(0);
    // An index is a row of one element.
    let mut each = *indices;
    each.dims[each.rank as usize] = 1;
    each.strides[each.rank as usize] = 0;
    each.rank += 1;
    let (at, to) = (Rows::of(&each), Rows::of(out));
    for i in args.team.range(indices.len() as usize * inner, 1) {
        // SAFETY: there is an index for every `inner` rows of the result; rows of the table lie in its panels; row `i`
        // of the result is this thread's.
        unsafe {
            let chosen = index(indices, at.at(i / inner, 0));
            if chosen < 0 || chosen >= *n {
                std::ptr::write_bytes(to.at(i, 0), 0, k * out.dtype.info().unit_bytes);
                continue;
            }
            let row = chosen as usize * inner + i % inner;
            let panel = std::slice::from_raw_parts(table.ptr.add(row / PANEL * bytes), bytes);
            let mut values = [0.0; CHUNK];
            for from in (0..k).step_by(CHUNK) {
                let values = &mut values[..CHUNK.min(k - from)];
                decode_panel_row(table.dtype, k, panel, row % PANEL, from, values);
                ops.store(values, out.dtype, to.at(i, from));
            }
        }
    }
}

unsafe fn index(o: &Operand, p: *mut u8) -> i64 {
    // SAFETY: the caller's.
    unsafe {
        match o.dtype {
            DType::I64 => p.cast::<i64>().read_unaligned(),
            _ => i64::from(p.cast::<i32>().read_unaligned()),
        }
    }
}
