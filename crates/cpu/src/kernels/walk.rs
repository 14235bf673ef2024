//! Walking strided operands: where the n-th element lies, and copies between any two layouts.

use crate::args::Operand;
use crate::pool::Team;

/// Number of elements of `dims`.
pub(crate) fn count(dims: &[i64]) -> usize {
    dims.iter().map(|d| *d as usize).product()
}

/// Offset, in units of `strides`, of element `n` of `dims` in row-major order.
pub(crate) fn offset(mut n: usize, dims: &[i64], strides: &[i64]) -> isize {
    let mut at = 0;
    for (d, s) in dims.iter().zip(strides).rev() {
        let d = *d as usize;
        at += (n % d) as isize * *s as isize;
        n /= d;
    }
    at
}

/// A row of an operand along one axis: its elements lie `stride` apart.
pub(crate) struct Line {
    pub ptr: *mut u8,
    pub stride: isize,
}

impl Line {
    /// Row number `row` of `o`, whose extent along the axis counts as 1.
    pub fn of(o: &Operand, axis: usize, row: usize) -> Line {
        let mut dims = o.dims;
        dims[axis] = 1;
        let rank = o.rank as usize;
        let size = o.dtype.info().unit_bytes as isize;
        let at = offset(row, &dims[..rank], o.strides());
        Line { ptr: o.ptr.wrapping_offset(at * size), stride: o.strides[axis] as isize }
    }

    /// Element `i`, where elements have `size` bytes.
    pub fn at(&self, i: usize, size: usize) -> *mut u8 {
        self.ptr.wrapping_offset(i as isize * self.stride * size as isize)
    }
}

/// One side of a copy: first byte and strides in elements, which may be negative.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub ptr: *mut u8,
    pub strides: &'a [i64],
}

/// Rows that are walked together, so that a source whose neighbours lie in neighbouring rows is read by cache lines.
const BLOCK: usize = 16;

/// This thread's share of a copy of `dims` elements of `size` bytes (1, 2, 4 or 8).
///
/// # Safety
/// Both sides are valid for every element; they do not overlap.
pub(crate) unsafe fn copy(size: usize, dims: &[i64], from: Side, to: Side, team: &Team) {
    // SAFETY: the caller's.
    unsafe {
        match size {
            8 => copy_as::<u64>(dims, from, to, team),
            4 => copy_as::<u32>(dims, from, to, team),
            2 => copy_as::<u16>(dims, from, to, team),
            _ => copy_as::<u8>(dims, from, to, team),
        }
    }
}

unsafe fn copy_as<T: Copy>(dims: &[i64], from: Side, to: Side, team: &Team) {
    let Some((cols, lead)) = dims.split_last() else {
        if team.thread == 0 {
            // SAFETY: the caller's: one element.
            unsafe { to.ptr.cast::<T>().write_unaligned(from.ptr.cast::<T>().read_unaligned()) };
        }
        return;
    };
    let (rows, cols) = (count(lead), *cols as usize);
    if rows * cols == 0 {
        return;
    }
    // Few rows are split by columns, many by rows.
    let by_rows = rows >= 4 * team.threads;
    let (mine, part) = match by_rows {
        true => (team.range(rows, BLOCK.min(rows.div_ceil(team.threads))), 0..cols),
        false => (0..rows, team.range(cols, 4096 / size_of::<T>())),
    };
    let (from_step, to_step) = (from.strides[lead.len()] as isize, to.strides[lead.len()] as isize);
    let at = |s: &Side, row: usize| {
        let o = offset(row, lead, &s.strides[..lead.len()])
            + part.start as isize * s.strides[lead.len()] as isize;
        s.ptr.cast::<T>().wrapping_offset(o)
    };
    let mut row = mine.start;
    while row < mine.end {
        let n = if from_step == 1 { 1 } else { BLOCK.min(mine.end - row) };
        let mut sides = [(std::ptr::null_mut(), std::ptr::null_mut()); BLOCK];
        for (i, s) in sides.iter_mut().enumerate().take(n) {
            *s = (at(&from, row + i), at(&to, row + i));
        }
        // SAFETY: the caller's; offsets are those of elements.
        unsafe {
            if from_step == 1 && to_step == 1 {
                std::ptr::copy_nonoverlapping::<T>(sides[0].0, sides[0].1, part.len());
            } else {
                for c in 0..part.len() as isize {
                    for (f, t) in &sides[..n] {
                        t.offset(c * to_step).write_unaligned(f.offset(c * from_step).read_unaligned());
                    }
                }
            }
        }
        row += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_row_major() {
        assert_eq!(offset(0, &[], &[]), 0);
        assert_eq!(
            (0..6).map(|n| offset(n, &[2, 3], &[100, 7])).collect::<Vec<_>>(),
            [0, 7, 14, 100, 107, 114]
        );
    }

    #[test]
    fn copies_turn_and_reverse() {
        let x: Vec<u16> = (0..35 * 33).collect();
        let mut y = vec![0u16; 35 * 33];
        // [33, 35] of the transposed, rows from the last.
        let (from, to) = (x.as_ptr().wrapping_add(32).cast_mut().cast(), y.as_mut_ptr().cast());
        let (a, b) = (Side { ptr: from, strides: &[-1, 33] }, Side { ptr: to, strides: &[35, 1] });
        // SAFETY: both buffers hold 33 × 35 elements.
        unsafe { copy(2, &[33, 35], a, b, &Team::solo()) };
        assert!((0..33 * 35).all(|i| y[i] as usize == (i % 35) * 33 + 32 - i / 35));
    }
}
