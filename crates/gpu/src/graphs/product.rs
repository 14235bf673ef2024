//! Single products for MPS's matrix multiplication, which takes matrices where they lie.
//!
//! Of f32 only: MPS does not say in what it sums products of f16, and ours are sums of f32.

use frit_ir::DType;
use frit_ir::schedule::Region;

use super::Unsupported;
use super::steps::{Concrete, Window};
use super::table::Param;

/// A matrix of f32 in memory, row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Where it lies.
    pub region: Region,
    /// Buffer of the region.
    pub buffer: u32,
    /// First byte.
    pub offset: u64,
    /// Rows as they are stored.
    pub rows: usize,
    /// Columns as they are stored.
    pub columns: usize,
    /// From one row to the next in bytes.
    pub row_bytes: u64,
}

/// result = left · right, or left · rightᵀ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// Step of the schedule.
    pub step: usize,
    /// `[m, k]`.
    pub left: Matrix,
    /// `[k, n]`, or `[n, k]` if it is transposed.
    pub right: Matrix,
    /// `[m, n]`.
    pub result: Matrix,
    /// Whether `right` is read transposed.
    pub transposed: bool,
}

impl Matrix {
    /// Bytes from its first element to its last.
    pub fn bytes(&self) -> u64 {
        (self.rows as u64 - 1) * self.row_bytes + 4 * self.columns as u64
    }
}

/// The window as one matrix of its last extent by all others.
fn matrix(w: &Window) -> Result<Matrix, Unsupported> {
    let odd = || Unsupported("a product of other than matrices of f32".into());
    let rank = w.dims.len();
    if w.dtype != DType::F32 || rank < 2 || w.is_empty() || !w.offset.is_multiple_of(4) {
        return Err(odd());
    }
    let (columns, row) = (w.dims[rank - 1], w.strides[rank - 2]);
    let rows: usize = w.dims[..rank - 1].iter().product();
    // Rows of all leading extents lie at one distance.
    let mut next = row;
    let even = w.dims[..rank - 1].iter().zip(&w.strides).rev().all(|(n, s)| {
        let fits = *n == 1 || *s == next;
        next *= n;
        fits
    });
    let row = if rows == 1 { columns } else { row };
    if !even || (columns > 1 && w.strides[rank - 1] != 1) || row < columns {
        return Err(odd());
    }
    let (region, buffer, offset) = (w.region, w.buffer, w.offset);
    Ok(Matrix { region, buffer, offset, rows, columns, row_bytes: 4 * row as u64 })
}

/// Step `number` as one product, if it is nothing else.
pub(super) fn product(number: usize, c: &Concrete) -> Result<Product, Unsupported> {
    let other = |what: &str| Err(Unsupported(format!("a step that is no single product: {what}")));
    let operand = |i: usize| match c.operands.get(i) {
        Some(Some(w)) => Ok(w),
        _ => Err(Unsupported(format!("without operand {i}"))),
    };
    let transposed = match c.op {
        "matmul" => false,
        "linear" => {
            let plain = c.step.exprs.len() == 1 && c.step.exprs[0].is_identity();
            let rounds = c.params.iter().any(|(n, v)| *n == "bits" && *v != Param::Int(0));
            if !plain || rounds || c.step.inputs != 2 {
                return other("an expression or rounding");
            }
            true
        }
        op => return other(op),
    };
    let (a, b, out) = (operand(0)?, operand(1)?, operand(2)?);
    if b.dims.len() != 2 {
        return other("a batch on the right");
    }
    let (left, right, result) = (matrix(a)?, matrix(b)?, matrix(out)?);
    let (k, n) = if transposed { (right.columns, right.rows) } else { (right.rows, right.columns) };
    if left.columns != k || (result.rows, result.columns) != (left.rows, n) {
        return other("extents that do not fit");
    }
    Ok(Product { step: number, left, right, result, transposed })
}
