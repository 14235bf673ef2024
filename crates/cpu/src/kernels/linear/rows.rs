//! Operands seen as a list of rows: every dimension but the last walked in order.

use crate::args::{MAX_RANK, Operand};

/// The rows of an operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    ptr: *mut u8,
    /// Bytes of an element.
    size: isize,
    rank: usize,
    dims: [i64; MAX_RANK],
    strides: [i64; MAX_RANK],
    /// Elements from row to row, if that is one number.
    pub step: Option<i64>,
    /// Elements from column to column.
    pub column: i64,
}

impl Rows {
    /// The rows of `o`, a scalar counting as one row of one.
    pub fn of(o: &Operand) -> Rows {
        let lead = o.dims().len().saturating_sub(1);
        let mut r = Rows {
            ptr: o.ptr,
            size: o.dtype.info().unit_bytes as isize,
            rank: 0,
            dims: [1; MAX_RANK],
            strides: [0; MAX_RANK],
            step: Some(0),
            column: o.strides().last().copied().unwrap_or(0),
        };
        // Neighbouring dimensions that step evenly become one.
        for i in 0..lead {
            let (d, s) = (o.dims[i], o.strides[i]);
            if d == 1 {
                continue;
            }
            if r.rank > 0 && r.strides[r.rank - 1] == s * d {
                r.dims[r.rank - 1] *= d;
                r.strides[r.rank - 1] = s;
            } else {
                r.dims[r.rank] = d;
                r.strides[r.rank] = s;
                r.rank += 1;
            }
        }
        r.step = match r.rank {
            0 => Some(0),
            1 => Some(r.strides[0]),
            _ => None,
        };
        r
    }

    /// Column `column` of row `row`.
    pub fn at(&self, row: usize, column: usize) -> *mut u8 {
        let mut offset = column as i64 * self.column;
        match self.step {
            Some(s) => offset += row as i64 * s,
            None => {
                let mut left = row as i64;
                for i in (0..self.rank).rev() {
                    offset += left % self.dims[i] * self.strides[i];
                    left /= self.dims[i];
                }
            }
        }
        self.ptr.wrapping_offset(offset as isize * self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frit_ir::DType;

    #[test]
    fn rows_follow_the_strides() {
        let dims = [2, 3, 1, 4, 0, 0, 0, 0];
        for (strides, step) in [([12, 4, 99, 1], Some(4)), ([40, 5, 0, 1], None), ([0, 0, 0, 1], Some(0))] {
            let mut s = [0; MAX_RANK];
            s[..4].copy_from_slice(&strides);
            let base = 1000 as *mut u8;
            let o = Operand { ptr: base, dtype: DType::F32, rank: 4, dims, strides: s };
            let r = Rows::of(&o);
            assert_eq!(r.step, step);
            for row in 0..6 {
                let want = (row as i64 / 3 * strides[0] + row as i64 % 3 * strides[1] + 2) * 4;
                assert_eq!(r.at(row, 2) as i64 - 1000, want);
            }
        }
    }
}
