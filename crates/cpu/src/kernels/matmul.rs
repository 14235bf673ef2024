//! `matmul`: products of matrices of activations, batch dimensions broadcast, any strides.
//!
//! Operands: `a` `[.., M, K]`, `b` `[.., K, N]`, the result `[.., M, N]`, all of one float type. f32, f16 and bf16 go through
//! the inner loops of [`super::linear`], `b` brought into panels piece by piece, so that both give the same bits; f64
//! stays f64. Sums run over k ascending.

use frit_ir::DType;
use frit_ir::target::{KernelRow, LayoutClass};

use super::linear::rows::Rows;
use super::linear::table::{self, Ops, float_index};
use super::linear::tile::TileF;
use super::row::{CpuRow, F32S, PLAIN, one};
use crate::args::{Args, Kernel, MAX_RANK, Operand};
use crate::isa::Isa;
use crate::pack::PANEL;

/// Rows of this file.
pub const ROWS: &[CpuRow] = &[
    CpuRow {
        row: KernelRow {
            name: "matmul",
            op: "matmul",
            inputs: &[one("a", F32S, LayoutClass::Strided), one("b", F32S, LayoutClass::Strided)],
            outputs: &[one("out", F32S, LayoutClass::Dense)],
            scratch: "threads*131072",
            ..PLAIN
        },
        kernel: matmul,
    },
    CpuRow {
        row: KernelRow {
            name: "matmul.f64",
            op: "matmul",
            inputs: &[
                one("a", &[DType::F64], LayoutClass::Strided),
                one("b", &[DType::F64], LayoutClass::Strided),
            ],
            outputs: &[one("out", &[DType::F64], LayoutClass::Dense)],
            ..PLAIN
        },
        kernel: |_| matmul_f64,
    },
];

/// Columns of a piece of the result: two panels.
const WIDTH: usize = 2 * PANEL;
/// Rows of a piece of the result, at most, where it does not go straight to the result.
const ROW_BLOCK: usize = 60;
/// Columns of `a` at a time.
const CHUNK: usize = 256;
/// Bytes of the panels of `b`.
const PANELS: usize = CHUNK * WIDTH * 4;
/// Bytes of rows of `a` as f32.
const WIDENED: usize = ROW_BLOCK * CHUNK * 4;
/// Bytes of scratch of a thread; the row's formula names it.
const THREAD_SCRATCH: usize = 128 << 10;

const _: () = assert!(PANELS + WIDENED + ROW_BLOCK * WIDTH * 4 + PANEL * CHUNK * 4 <= THREAD_SCRATCH);

/// Scratch bytes that [`matmul`] needs.
pub fn scratch_bytes(threads: usize) -> usize {
    threads * THREAD_SCRATCH
}

/// The kernel for `isa` (or for the best set that the machine has, if it lacks that one).
pub fn matmul(isa: Isa) -> Kernel {
    ENTRIES[table::fastest(isa)]
}

/// The kernel over each of [`table::SETS`].
pub(super) const ENTRIES: [Kernel; 4] = [entry::<0>, entry::<1>, entry::<2>, entry::<3>];

unsafe fn entry<const I: usize>(args: &Args) {
    // SAFETY: the caller's.
    unsafe { run(table::SETS[I].0, args) }
}

/// One matrix of a batched operand.
#[derive(Clone, Copy)]
struct Matrix {
    ptr: *mut u8,
    dtype: DType,
    /// Strides of rows and columns in elements.
    row: isize,
    column: isize,
}

impl Matrix {
    fn at(&self, row: usize, column: usize) -> *mut u8 {
        let offset = row as isize * self.row + column as isize * self.column;
        self.ptr.wrapping_offset(offset * self.dtype.info().unit_bytes as isize)
    }
}

/// An operand as a list of matrices over the result's batch dimensions.
struct Batch {
    matrices: Rows,
    row: isize,
    column: isize,
    dtype: DType,
}

impl Batch {
    fn of(o: &Operand, batch: &[i64]) -> Batch {
        let lead = o.dims().len() - 2;
        let mut flat =
            Operand { rank: batch.len() as u8 + 1, dims: [1; MAX_RANK], strides: [0; MAX_RANK], ..*o };
        flat.dims[..batch.len()].copy_from_slice(batch);
        for i in 0..lead.min(batch.len()) {
            if o.dims[lead - 1 - i] != 1 {
                flat.strides[batch.len() - 1 - i] = o.strides[lead - 1 - i];
            }
        }
        let (row, column) = (o.strides[lead] as isize, o.strides[lead + 1] as isize);
        Batch { matrices: Rows::of(&flat), row, column, dtype: o.dtype }
    }

    fn get(&self, i: usize) -> Matrix {
        Matrix { ptr: self.matrices.at(i, 0), dtype: self.dtype, row: self.row, column: self.column }
    }
}

/// The operands and their extents.
struct Problem {
    a: Batch,
    b: Batch,
    out: Batch,
    batch: usize,
    m: usize,
    k: usize,
    n: usize,
}

impl Problem {
    fn of(args: &Args) -> Option<Problem> {
        let [a, b, out] = args.operands else { return None };
        let [batch @ .., m, n] = out.dims() else { return None };
        let k = *a.dims().last()? as usize;
        Some(Problem {
            a: Batch::of(a, batch),
            b: Batch::of(b, batch),
            out: Batch::of(out, batch),
            batch: batch.iter().product::<i64>() as usize,
            m: *m as usize,
            k,
            n: *n as usize,
        })
    }
}

/// A thread's piece of one product: rows `row..row + rows`, columns `column..column + columns` (at most [`WIDTH`]).
#[derive(Clone, Copy)]
struct Piece {
    row: usize,
    rows: usize,
    column: usize,
    columns: usize,
}

/// A thread's scratch.
struct Scratch {
    panels: *mut f32,
    widened: *mut f32,
    product: *mut f32,
    /// Columns of `b` as f32, each in one piece.
    columns: *mut f32,
}

/// # Safety
/// As [`Kernel`]; the machine has the instruction set of `ops`.
unsafe fn run(ops: &Ops, args: &Args) {
    let Some(p) = Problem::of(args) else { return };
    let base = args.scratch.wrapping_add(args.team.thread * THREAD_SCRATCH);
    let widened = base.wrapping_add(PANELS);
    let product = widened.wrapping_add(WIDENED);
    let columns = product.wrapping_add(ROW_BLOCK * WIDTH * 4);
    let s = Scratch {
        panels: base.cast(),
        widened: widened.cast(),
        product: product.cast(),
        columns: columns.cast(),
    };
    // Pieces as tall as leaves some for every thread.
    let spans = p.n.div_ceil(WIDTH);
    let wanted = (4 * args.team.threads).div_ceil((p.batch * spans).max(1));
    let tall = p.m.div_ceil(wanted).next_multiple_of(12);
    let blocks = p.m.div_ceil(tall.max(1));
    for i in args.team.range(p.batch * spans * blocks, 1) {
        let (batch, span, block) = (i / (spans * blocks), i / blocks % spans, i % blocks);
        let (row, column) = (block * tall, span * WIDTH);
        let piece = Piece { row, rows: tall.min(p.m - row), column, columns: WIDTH.min(p.n - column) };
        // SAFETY: the piece lies inside the result and is this thread's.
        unsafe { multiply(ops, &s, p.k, p.a.get(batch), p.b.get(batch), p.out.get(batch), piece) };
    }
}

/// One piece: straight into the result where that is f32 and whole panels wide, else block by block of rows.
unsafe fn multiply(ops: &Ops, s: &Scratch, k: usize, a: Matrix, b: Matrix, out: Matrix, p: Piece) {
    let straight = out.dtype == DType::F32 && p.columns.is_multiple_of(PANEL);
    let as_is = a.dtype == DType::F32 && a.column == 1;
    let most = if straight && as_is { p.rows.max(1) } else { ROW_BLOCK };
    for row in (0..p.rows).step_by(most) {
        let rows = most.min(p.rows - row);
        let row = p.row + row;
        for from in (0..k.max(1)).step_by(CHUNK) {
            let count = (k - from).min(CHUNK);
            // SAFETY: the caller's; what is brought into scratch fits.
            unsafe {
                panels(ops, s, b, from, count, p);
                let (x, ldx) = if as_is {
                    (a.at(row, from).cast_const().cast(), a.row)
                } else {
                    for r in 0..rows {
                        line(ops, a.at(row + r, from), a.dtype, a.column, count, s.widened.add(r * CHUNK));
                    }
                    (s.widened.cast_const(), CHUNK as isize)
                };
                let (c, ldc) = if straight {
                    (out.at(row, p.column).cast(), out.row as usize)
                } else {
                    (s.product, WIDTH)
                };
                (ops.tile_f)(&TileF {
                    panel: s.panels,
                    stride: CHUNK * PANEL,
                    panels: p.columns.div_ceil(PANEL),
                    count,
                    x,
                    ldx,
                    rows,
                    c,
                    ldc,
                    first: from == 0,
                });
            }
        }
        for r in 0..if straight { 0 } else { rows } {
            // SAFETY: the row of the product is complete.
            unsafe {
                let values = std::slice::from_raw_parts(s.product.add(r * WIDTH), p.columns);
                ops.store(values, out.dtype, out.at(row + r, p.column));
            }
        }
    }
}

/// `count` elements, `stride` apart, as f32.
unsafe fn line(ops: &Ops, from: *const u8, dtype: DType, stride: isize, count: usize, to: *mut f32) {
    // SAFETY: the caller's.
    unsafe {
        if stride == 1 {
            return (ops.widen[float_index(dtype).unwrap_or(0)])(from, count, to);
        }
        for i in 0..count {
            let at = from.cast::<u16>().wrapping_offset(i as isize * stride);
            *to.add(i) = match dtype {
                DType::F16 => half::f16::from_bits(*at).to_f32(),
                DType::BF16 => half::bf16::from_bits(*at).to_f32(),
                _ => *from.cast::<f32>().offset(i as isize * stride),
            };
        }
    }
}

/// Rows `from..from + count` of `b` in the piece's columns as panels `[k][16]` of f32, short ones filled with zeros.
unsafe fn panels(ops: &Ops, s: &Scratch, b: Matrix, from: usize, count: usize, p: Piece) {
    // SAFETY: the caller's.
    unsafe {
        for (i, first) in (0..p.columns).step_by(PANEL).enumerate() {
            let (to, columns) = (s.panels.add(i * CHUNK * PANEL), PANEL.min(p.columns - first));
            if columns < PANEL {
                std::ptr::write_bytes(to, 0, count * PANEL);
            }
            if b.column == 1 || b.row != 1 {
                for k in 0..count {
                    let row = b.at(from + k, p.column + first);
                    line(ops, row, b.dtype, b.column, columns, to.add(k * PANEL));
                }
                continue;
            }
            for c in 0..columns {
                let to = s.columns.add(c * CHUNK);
                line(ops, b.at(from, p.column + first + c), b.dtype, 1, count, to);
            }
            turn(s.columns, columns, count, to);
        }
    }
}

/// Columns [`CHUNK`] apart, `count` elements each, into a panel `[k][16]`.
unsafe fn turn(from: *const f32, columns: usize, count: usize, to: *mut f32) {
    let whole = if columns == PANEL { count / 4 * 4 } else { 0 };
    // SAFETY: the caller's.
    unsafe {
        // Squares of four turn in registers.
        for k in (0..whole).step_by(4) {
            for c in (0..PANEL).step_by(4) {
                let v: [[f32; 4]; 4] = std::array::from_fn(|i| {
                    from.add((c + i) * CHUNK + k).cast::<[f32; 4]>().read_unaligned()
                });
                for j in 0..4 {
                    let line = to.add((k + j) * PANEL + c).cast::<[f32; 4]>();
                    line.write_unaligned(v.map(|row| row[j]));
                }
            }
        }
        for k in whole..count {
            for c in 0..columns {
                *to.add(k * PANEL + c) = *from.add(c * CHUNK + k);
            }
        }
    }
}

/// The same in f64, a row of the result at a time.
unsafe fn matmul_f64(args: &Args) {
    let Some(p) = Problem::of(args) else { return };
    const COLUMNS: usize = 64;
    for i in args.team.range(p.batch * p.m, 1) {
        let (a, b, out) = (p.a.get(i / p.m), p.b.get(i / p.m), p.out.get(i / p.m));
        for first in (0..p.n).step_by(COLUMNS) {
            let columns = COLUMNS.min(p.n - first);
            let mut sum = [0.0; COLUMNS];
            // SAFETY: indices are below the extents; the row is this thread's.
            unsafe {
                for k in 0..p.k {
                    let x = *a.at(i % p.m, k).cast::<f64>();
                    for (j, s) in sum[..columns].iter_mut().enumerate() {
                        *s += x * *b.at(k, first + j).cast::<f64>();
                    }
                }
                for (j, s) in sum[..columns].iter().enumerate() {
                    *out.at(i % p.m, first + j).cast::<f64>() = *s;
                }
            }
        }
    }
}
