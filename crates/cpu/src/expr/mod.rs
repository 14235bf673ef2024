//! Compiled scalar expressions: an [`Expr`] as a list of vector steps over tiles that stay in the first-level cache.
//!
//! A [`Program`] is built once at load and run by any number of threads; running allocates nothing. Values are f32 inside
//! (f64 for f64, integers and bool exactly) and are rounded where the expression says so: at casts and outputs. The
//! result of an element depends on its inputs alone, never on where a tile begins.

pub(crate) mod io;
pub(crate) mod steps;

use std::mem::MaybeUninit;

use frit_ir::dtype::Kind;
use frit_ir::expr::{ExprError, Ref, compute_type};
use frit_ir::{DType, Expr, ScalarOp};

use crate::isa::Isa;
use io::Rect;
use steps::{Functions, Spec, StepFn};

/// The most elements of a tile.
pub const TILE: usize = 256;

/// The most inputs, and the most outputs, of an expression.
pub const MAX_OPERANDS: usize = 128;

/// Bytes of working memory on the stack of a run.
const BUFFER: usize = 32 << 10;

/// Why an expression could not be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// The expression is not well formed.
    #[error(transparent)]
    Expr(#[from] ExprError),
    /// Too many values live at once.
    #[error("an expression that keeps {0} values at a time; the CPU keeps at most {max}", max = BUFFER / 8)]
    Values(usize),
    /// Too many inputs or outputs.
    #[error("an expression with {0} inputs or outputs; the CPU takes at most {MAX_OPERANDS}")]
    Operands(usize),
}

/// An input of a run: a matrix of elements of the input's type.
#[derive(Clone, Copy, Debug)]
pub struct Src {
    /// First element.
    pub ptr: *const u8,
    /// Elements from one row to the next; 0 repeats the row.
    pub row_stride: isize,
    /// Elements from one column to the next; 1 is the fast case, 0 repeats the element.
    pub stride: isize,
}

/// An output of a run: a matrix of elements of the output's type.
#[derive(Clone, Copy, Debug)]
pub struct Dst {
    /// First element.
    pub ptr: *mut u8,
    /// Elements from one row to the next.
    pub row_stride: isize,
    /// Elements from one column to the next; 1 is the fast case.
    pub stride: isize,
}

/// Where a value is while a tile is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    /// In a slot of the working memory.
    Slot(u32),
    /// An input: where it lies, if it lies there as the steps want it, else in the slot of its number.
    Input(u32),
}

struct Instruction {
    run: StepFn,
    spec: Spec,
    args: [Place; 3],
    dst: u32,
    /// The output that this step may write itself: its value is stored there unchanged and read by nothing else.
    direct: Option<u32>,
}

struct Input {
    dtype: DType,
    size: usize,
    /// Whether the steps read it as it lies in memory (else it is widened).
    as_is: bool,
}

struct Output {
    dtype: DType,
    size: usize,
    value: Place,
    /// Whether a step may write it directly.
    direct: bool,
}

/// A compiled [`Expr`].
pub struct Program {
    functions: Functions,
    inputs: Vec<Input>,
    constants: Vec<(u32, DType, u64)>,
    code: Vec<Instruction>,
    outputs: Vec<Output>,
    slot_bytes: usize,
    tile: usize,
}

#[repr(align(64))]
struct Buffer(#[allow(dead_code)] [MaybeUninit<u8>; BUFFER]);

/// The rows and columns of a run and its operands.
struct Run<'a> {
    src: &'a [Src],
    dst: &'a [Dst],
    base: *mut u8,
    /// Whether steps may write outputs directly (no output overlaps an input).
    disjoint: bool,
}

/// A tile: rows `row..row + rows` and columns `col..col + cols`.
#[derive(Clone, Copy)]
struct Tile {
    row: usize,
    col: usize,
    rows: usize,
    cols: usize,
}

impl Program {
    /// Compiles `e` for `isa` (or for the best set that the machine has, if it lacks that one).
    ///
    /// # Errors
    /// The expression is not well formed, has too many inputs or outputs, or keeps more values at a time than a tile of one
    /// element has room for.
    pub fn new(e: &Expr, isa: Isa) -> Result<Program, ProgramError> {
        e.check()?;
        let operands = e.inputs.len().max(e.outputs.len());
        if operands > MAX_OPERANDS {
            return Err(ProgramError::Operands(operands));
        }
        let functions = Functions::of(isa);
        let size = |d: DType| d.info().unit_bytes;
        let input = |d: &DType| Input { dtype: *d, size: size(*d), as_is: compute_type(*d) == *d };
        let mut p = Program {
            functions,
            inputs: e.inputs.iter().map(input).collect(),
            constants: Vec::new(),
            code: Vec::new(),
            outputs: Vec::new(),
            slot_bytes: 0,
            tile: 0,
        };
        let slots = p.place(e);
        let wide = (0..e.inputs.len() + e.steps.len()).any(|v| size(e.value_type(v as Ref)) == 8);
        let width = if wide { 8 } else { 4 };
        let fit = BUFFER / (width * slots.max(1));
        if fit == 0 {
            return Err(ProgramError::Values(slots));
        }
        p.tile = if fit >= 16 { (fit - fit % 16).min(TILE) } else { 1 };
        // Slots start on cache lines where there is room for that.
        p.slot_bytes = if fit >= 16 { p.tile * width } else { 8 };
        if p.slot_bytes * slots > BUFFER {
            return Err(ProgramError::Values(slots));
        }
        Ok(p)
    }

    /// Types of the inputs.
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = DType> {
        self.inputs.iter().map(|i| i.dtype)
    }

    /// Types of the outputs.
    pub fn outputs(&self) -> impl ExactSizeIterator<Item = DType> {
        self.outputs.iter().map(|o| o.dtype)
    }

    /// Gives every value a slot by its last use and writes the code; the number of slots.
    fn place(&mut self, e: &Expr) -> usize {
        let ni = e.inputs.len();
        let total = ni + e.steps.len();
        // Last step that reads each value; `usize::MAX` for outputs.
        let mut last: Vec<Option<usize>> = vec![None; total];
        for o in &e.outputs {
            last[o.value as usize] = Some(usize::MAX);
        }
        let mut read = vec![false; total];
        for (i, s) in e.steps.iter().enumerate().rev() {
            if last[ni + i].is_some() {
                for a in &s.args {
                    last[*a as usize].get_or_insert(i);
                    read[*a as usize] = true;
                }
            }
        }
        let mut slots = ni as u32;
        let mut free: Vec<u32> = Vec::new();
        let mut at: Vec<Place> = (0..ni as u32).map(Place::Input).collect();
        for (i, s) in e.steps.iter().enumerate() {
            let used = last[ni + i].is_some();
            let constant = s.op == ScalarOp::Const;
            if !used {
                at.push(Place::Slot(0));
                continue;
            }
            let reused = if constant { None } else { free.pop() };
            let slot = reused.unwrap_or(slots);
            slots = slots.max(slot + 1);
            at.push(Place::Slot(slot));
            if constant {
                self.constants.push((slot, s.dtype, s.imm));
                continue;
            }
            let mut args = [Place::Slot(slot); 3];
            for (to, a) in args.iter_mut().zip(&s.args) {
                *to = at[*a as usize];
            }
            let spec = Spec { op: s.op, from: e.value_type(*s.args.last().unwrap_or(&0)), to: s.dtype };
            let run = self.functions.step(&spec);
            let direct = direct(e, (ni + i) as Ref).filter(|_| !read[ni + i]);
            self.code.push(Instruction { run, spec, args, dst: slot, direct });
            // Freed after the result has its slot, so that a step never writes what it reads.
            for (j, a) in s.args.iter().enumerate() {
                let again = s.args[..j].contains(a);
                let of_step = (*a as usize) >= ni && e.steps[*a as usize - ni].op != ScalarOp::Const;
                if let (Place::Slot(f), true) =
                    (at[*a as usize], of_step && !again && last[*a as usize] == Some(i))
                {
                    free.push(f);
                }
            }
        }
        for (i, o) in e.outputs.iter().enumerate() {
            let direct = self.code.iter().any(|c| c.direct == Some(i as u32));
            let size = o.dtype.info().unit_bytes;
            self.outputs.push(Output { dtype: o.dtype, size, value: at[o.value as usize], direct });
        }
        slots as usize
    }

    /// Computes `rows × cols` elements: one [`Src`] an input, one [`Dst`] an output. The usual epilogue of a matrix product
    /// passes its f32 tile (row stride = its width, stride 1), a bias (row stride 0, stride 1) and a residual (row stride of
    /// the tensor, stride 1).
    ///
    /// An output may be the same memory as an input of the same element size and strides; it must not overlap one otherwise.
    ///
    /// # Safety
    /// Every pointer is valid for `rows × cols` elements of its type at its strides, and `src` and `dst` have one entry for
    /// each input and output.
    pub unsafe fn run_rows(&self, rows: usize, cols: usize, src: &[Src], dst: &[Dst]) {
        if rows == 0 || cols == 0 {
            return;
        }
        debug_assert!(src.len() == self.inputs.len() && dst.len() == self.outputs.len());
        let mut buffer = MaybeUninit::<Buffer>::uninit();
        let run =
            Run { src, dst, base: buffer.as_mut_ptr().cast(), disjoint: self.disjoint(rows, cols, src, dst) };
        // Rows that follow one another without a gap in every operand are one row.
        let flat = |row: isize, stride: isize| row == stride * cols as isize;
        let flat = src.iter().all(|s| flat(s.row_stride, s.stride))
            && dst.iter().all(|d| flat(d.row_stride, d.stride));
        let (rows, cols) = if flat { (1, rows * cols) } else { (rows, cols) };
        // SAFETY: the caller's; tiles stay inside the matrix.
        unsafe {
            self.prepare(&run, self.tile.min(rows * cols));
            if rows == 1 || cols >= self.tile {
                for row in 0..rows {
                    for col in (0..cols).step_by(self.tile) {
                        let cols = self.tile.min(cols - col);
                        self.tile(&run, Tile { row, col, rows: 1, cols });
                    }
                }
            } else {
                let step = self.tile / cols;
                for row in (0..rows).step_by(step) {
                    self.tile(&run, Tile { row, col: 0, rows: step.min(rows - row), cols });
                }
            }
        }
    }

    /// Whether no output overlaps an input.
    fn disjoint(&self, rows: usize, cols: usize, src: &[Src], dst: &[Dst]) -> bool {
        let end = |p: usize, row: isize, stride: isize, size: usize| {
            p + ((rows - 1) * row.unsigned_abs() + (cols - 1) * stride.unsigned_abs() + 1) * size
        };
        dst.iter().zip(&self.outputs).all(|(d, o)| {
            let (a, b) = (d.ptr as usize, end(d.ptr as usize, d.row_stride, d.stride, o.size));
            src.iter().zip(&self.inputs).all(|(s, i)| {
                let c = s.ptr as usize;
                b <= c || end(c, s.row_stride, s.stride, i.size) <= a
            })
        })
    }

    /// Fills the slots that stay the same for the whole run: constants and inputs that repeat one element.
    ///
    /// # Safety
    /// As [`Program::run_rows`]; `n ≤ tile`.
    unsafe fn prepare(&self, run: &Run, n: usize) {
        for (slot, dtype, imm) in &self.constants {
            // SAFETY: a slot holds a tile of any compute type of the program.
            unsafe { steps::constant(*dtype, *imm, self.slot(run, *slot), n) };
        }
        for (i, (s, input)) in run.src.iter().zip(&self.inputs).enumerate() {
            if s.stride == 0 && s.row_stride == 0 {
                let rect = Rect { row_stride: 0, stride: 0, rows: 1, cols: n };
                // SAFETY: the caller's; input `i` owns slot `i`.
                unsafe { (self.functions.load)(input.dtype, s.ptr, &rect, self.slot(run, i as u32)) };
            }
        }
    }

    fn slot(&self, run: &Run, slot: u32) -> *mut u8 {
        run.base.wrapping_add(slot as usize * self.slot_bytes)
    }

    /// Input `i` at the tile's first element, and whether the steps can read it there.
    fn at_input(&self, run: &Run, t: &Tile, i: usize) -> (*const u8, bool) {
        let (s, input) = (&run.src[i], &self.inputs[i]);
        let offset = t.row as isize * s.row_stride + t.col as isize * s.stride;
        let in_row = s.stride == 1 && (t.rows == 1 || s.row_stride == t.cols as isize);
        (s.ptr.wrapping_offset(offset * input.size as isize), in_row && input.as_is)
    }

    /// Output `i` at the tile's first element, and whether a step writes it there.
    fn at_output(&self, run: &Run, t: &Tile, i: usize) -> (*mut u8, bool) {
        let (d, output) = (&run.dst[i], &self.outputs[i]);
        let offset = t.row as isize * d.row_stride + t.col as isize * d.stride;
        let in_row = d.stride == 1 && (t.rows == 1 || d.row_stride == t.cols as isize);
        let direct = in_row && output.direct && run.disjoint;
        (d.ptr.wrapping_offset(offset * output.size as isize), direct)
    }

    fn at(&self, run: &Run, t: &Tile, place: Place) -> *const u8 {
        match place {
            Place::Slot(s) => self.slot(run, s),
            Place::Input(i) => match self.at_input(run, t, i as usize) {
                (p, true) => p,
                _ => self.slot(run, i),
            },
        }
    }

    /// # Safety
    /// As [`Program::run_rows`]; the tile lies inside and has at most `self.tile` elements.
    unsafe fn tile(&self, run: &Run, t: Tile) {
        let n = t.rows * t.cols;
        for (i, (s, input)) in run.src.iter().zip(&self.inputs).enumerate() {
            let (ptr, as_is) = self.at_input(run, &t, i);
            if !as_is && (s.stride != 0 || s.row_stride != 0) {
                let rect = Rect { row_stride: s.row_stride, stride: s.stride, rows: t.rows, cols: t.cols };
                // SAFETY: the caller's.
                unsafe { (self.functions.load)(input.dtype, ptr, &rect, self.slot(run, i as u32)) };
            }
        }
        for c in &self.code {
            let dst = match c.direct.map(|o| self.at_output(run, &t, o as usize)) {
                Some((p, true)) => p,
                _ => self.slot(run, c.dst),
            };
            let args = c.args.map(|a| self.at(run, &t, a));
            // SAFETY: slots hold a tile each; a step's result has another slot than its arguments, and memory that it
            // writes directly overlaps no input.
            unsafe { (c.run)(&c.spec, args, dst, n) };
        }
        for (i, o) in self.outputs.iter().enumerate() {
            let (ptr, direct) = self.at_output(run, &t, i);
            if !direct {
                let d = &run.dst[i];
                let rect = Rect { row_stride: d.row_stride, stride: d.stride, rows: t.rows, cols: t.cols };
                // SAFETY: the caller's.
                unsafe { (self.functions.store)(o.dtype, self.at(run, &t, o.value), ptr, &rect) };
            }
        }
    }
}

/// The one output that stores `value` unchanged.
fn direct(e: &Expr, value: Ref) -> Option<u32> {
    let mut outputs = e.outputs.iter().enumerate().filter(|(_, o)| o.value == value);
    let (i, o) = outputs.next()?;
    (outputs.next().is_none() && compute_type(o.dtype) == o.dtype).then_some(i as u32)
}

/// Whether the value arithmetic of `d` is that of floats (bool counts: 0 and 1).
fn float_like(d: DType) -> bool {
    matches!(d.info().kind, Kind::Float | Kind::Bool)
}

#[cfg(test)]
mod tests;
