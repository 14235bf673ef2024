//! `expr`: a scalar expression over strided operands that all have the result's extents (stride 0 repeats).

use frit_ir::target::{KernelRow, LayoutClass};

use super::lanes::Lanes;
use super::row::{Body, COMPUTE, CpuRow, PLAIN, kernel, rest};
use super::walk;
use crate::args::{Args, Operand};
use crate::expr::{Dst, MAX_OPERANDS, Src, TILE};

/// Rows of this file.
pub static ROWS: &[CpuRow] = &[CpuRow {
    row: KernelRow {
        name: "expr",
        op: "expr",
        inputs: &[rest("inputs", COMPUTE, LayoutClass::Strided)],
        outputs: &[rest("outputs", COMPUTE, LayoutClass::Dense)],
        alias: &[(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0), (7, 0)],
        ..PLAIN
    },
    kernel: kernel::<Region>,
}];

struct Region;

/// The operands' last two dimensions, and the ones before.
struct Split<'a> {
    lead: &'a [i64],
    rows: usize,
    cols: usize,
}

impl Split<'_> {
    fn of(dims: &[i64]) -> Split<'_> {
        match dims {
            [lead @ .., r, c] => Split { lead, rows: *r as usize, cols: *c as usize },
            [c] => Split { lead: &[], rows: 1, cols: *c as usize },
            [] => Split { lead: &[], rows: 1, cols: 1 },
        }
    }

    /// Pointer to (block, row, column) of `o`, and its row and column strides.
    fn at(&self, o: &Operand, block: usize, row: usize, col: usize) -> (*mut u8, isize, isize) {
        let s = o.strides();
        let (row_stride, stride) = match s {
            [.., r, c] => (*r as isize, *c as isize),
            [c] => (0, *c as isize),
            [] => (0, 0),
        };
        let lead = walk::offset(block, self.lead, &s[..self.lead.len()]);
        let at = lead + row as isize * row_stride + col as isize * stride;
        let size = o.dtype.info().unit_bytes as isize;
        // A single row has no next one: its stride must not keep rows from being joined.
        let row_stride = if self.rows == 1 { stride * self.cols as isize } else { row_stride };
        (o.ptr.wrapping_offset(at * size), row_stride, stride)
    }
}

impl Body for Region {
    #[inline(always)]
    unsafe fn run<L: Lanes>(args: &Args) {
        let Some(program) = args.programs.first() else { return };
        let (inputs, outputs) = args.operands.split_at(program.inputs().len());
        let Some(first) = outputs.first() else { return };
        let s = Split::of(first.dims());
        let all = walk::count(s.lead) * s.rows;
        // Many rows are split by rows (about a tile at a time), few by columns.
        let by_rows = all >= 4 * args.team.threads;
        let (mine, part) = match by_rows {
            true => (
                args.team.range(all, (TILE / s.cols.max(1)).clamp(1, all.div_ceil(args.team.threads))),
                0..s.cols,
            ),
            false => (0..all, args.team.range(s.cols, TILE)),
        };
        let none = std::ptr::null_mut();
        let mut src = [Src { ptr: none, row_stride: 0, stride: 0 }; MAX_OPERANDS];
        let mut dst = [Dst { ptr: none, row_stride: 0, stride: 0 }; MAX_OPERANDS];
        let mut row = mine.start;
        while row < mine.end {
            let (block, at) = (row / s.rows, row % s.rows);
            let n = (s.rows - at).min(mine.end - row);
            for (to, o) in src.iter_mut().zip(inputs) {
                let (ptr, row_stride, stride) = s.at(o, block, at, part.start);
                *to = Src { ptr, row_stride, stride };
            }
            for (to, o) in dst.iter_mut().zip(outputs) {
                let (ptr, row_stride, stride) = s.at(o, block, at, part.start);
                *to = Dst { ptr, row_stride, stride };
            }
            // SAFETY: the caller's: the operands hold these rows and columns. `Program::new` bounds their number.
            unsafe { program.run_rows(n, part.len(), &src[..inputs.len()], &dst[..outputs.len()]) };
            row += n;
        }
    }
}
