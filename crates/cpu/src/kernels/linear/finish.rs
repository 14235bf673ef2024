//! From products to results: the epilogue of a group over the products that one thread has just made.

use super::rows::Rows;
use super::{Group, PRODUCT, Step};
use crate::args::{MAX_RANK, Operand};
use crate::expr::{Dst, MAX_OPERANDS, Src};

/// `o` repeated over the extents `dims`, aligned at the last one.
fn broadcast(o: &Operand, dims: &[i64]) -> Operand {
    let mut out = Operand { rank: dims.len() as u8, dims: [1; MAX_RANK], strides: [0; MAX_RANK], ..*o };
    out.dims[..dims.len()].copy_from_slice(dims);
    for (i, (d, s)) in o.dims().iter().zip(o.strides()).rev().enumerate() {
        if *d != 1 && i < dims.len() {
            out.strides[dims.len() - 1 - i] = *s;
        }
    }
    out
}

/// Finishes columns from `column` on, `width` of them at most (padding columns fall away), of `rows` rows from `row` on.
///
/// # Safety
/// As [`crate::args::Kernel`]; the products of the group are complete and `width` apart.
pub(super) unsafe fn finish(s: &Step, g: &Group, row: usize, rows: usize, column: usize, width: usize) {
    let Some(first) = g.outs.first() else { return };
    let columns = width.min(g.n() - column);
    let mut src = [Src { ptr: std::ptr::null(), row_stride: 0, stride: 0 }; MAX_OPERANDS];
    let mut dst = [Dst { ptr: std::ptr::null_mut(), row_stride: 0, stride: 0 }; MAX_OPERANDS];
    let (arity, inputs) = (g.weights.len(), g.weights.len() + g.extras.len());
    let rows_of = |o: &Operand| Rows::of(&broadcast(o, first.dims()));
    // Operands whose rows do not step evenly are taken one row at a time.
    let even = g.extras.iter().chain(g.outs).all(|o| rows_of(o).step.is_some());
    let block = if even { rows } else { 1 };
    for from in (0..rows).step_by(block) {
        for (i, p) in src.iter_mut().take(arity).enumerate() {
            let ptr = s.products.wrapping_add(i * PRODUCT + from * width).cast_const().cast();
            *p = Src { ptr, row_stride: width as isize, stride: 1 };
        }
        for (p, o) in src[arity..inputs].iter_mut().zip(g.extras) {
            let r = rows_of(o);
            let (row_stride, stride) = (r.step.unwrap_or(0) as isize, r.column as isize);
            *p = Src { ptr: r.at(row + from, column), row_stride, stride };
        }
        for (p, o) in dst.iter_mut().zip(g.outs) {
            let r = rows_of(o);
            let (row_stride, stride) = (r.step.unwrap_or(0) as isize, r.column as isize);
            *p = Dst { ptr: r.at(row + from, column), row_stride, stride };
        }
        // SAFETY: the caller's; each operand has one entry.
        unsafe { g.program.run_rows(block, columns, &src[..inputs], &dst[..g.outs.len()]) };
    }
}
