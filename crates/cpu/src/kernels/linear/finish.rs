//! From products to results: the epilogue of a group over the products that one thread has just made.

use super::rows::Rows;
use super::{Group, PRODUCT, Step};

/// Finishes columns from `column` on, `width` of them at most (padding columns fall away), of `rows` rows from `row` on.
///
/// # Safety
/// As [`crate::args::Kernel`]; the products of the group are complete and `width` apart.
pub(super) unsafe fn finish(s: &Step, g: &Group, row: usize, rows: usize, column: usize, width: usize) {
    let columns = width.min(g.n() - column);
    let out = &g.outs[0];
    let to = Rows::of(out);
    for r in 0..rows {
        let from = s.products.wrapping_add(r * width).cast_const();
        // SAFETY: the caller's.
        unsafe {
            let from = std::slice::from_raw_parts(from, columns);
            s.ops.store(from, out.dtype, to.at(row + r, column));
        }
    }
    let _ = PRODUCT;
}
