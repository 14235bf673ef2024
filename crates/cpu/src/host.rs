//! Kernels from outside this crate: a safe function over slices in place of one over pointers. What a function sees is checked at
//! every call, so that no row and no schedule can give it memory that is not its own.

use std::fmt;
use std::ops::Range;

use frit_ir::element::Element;
use frit_ir::target::{KernelRow, LayoutClass};

use crate::args::{Args, Operand, Param};

/// How the threads of the pool share a kernel's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// One thread does all of it.
    Whole,
    /// Each thread takes some rows of the results: all results have as many rows (elements over the last extent) as the first.
    Rows,
}

/// A row of the CPU target with a function of its user's. Its operands are [`LayoutClass::Dense`]; it takes no scratch, no packed
/// weights, and no result lies in the memory of an operand.
#[derive(Clone, Copy)]
pub struct HostKernel {
    /// What the compiler sees.
    pub row: KernelRow,
    /// How its work is shared.
    pub split: Split,
    /// The kernel: it writes its rows of every result. It may run on several threads at once, each with its own rows; results must
    /// not depend on how many there are. An error ends the run, with its text.
    pub run: fn(&mut Call) -> Result<(), String>,
}

impl fmt::Debug for HostKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostKernel")
            .field("row", &self.row)
            .field("split", &self.split)
            .finish_non_exhaustive()
    }
}

impl HostKernel {
    /// What its row asks for that a host kernel cannot have.
    ///
    /// # Errors
    /// The first such thing.
    pub fn check(&self) -> Result<(), String> {
        let mut operands = self.row.inputs.iter().chain(self.row.outputs);
        if let Some(o) = operands.find(|o| o.layout != LayoutClass::Dense || o.packing.is_some()) {
            return Err(format!("a host kernel takes dense operands, `{}` is none", o.name));
        }
        match (self.row.scratch.is_empty(), self.row.alias.is_empty()) {
            (true, true) => Ok(()),
            (false, _) => Err("a host kernel takes no scratch".into()),
            (_, false) => Err("a host kernel writes to no operand's memory; leave `alias` empty".into()),
        }
    }

    /// This thread's part of a call; the first `inputs` operands are those of the op, the others its results.
    pub(crate) fn call(&self, args: &Args, inputs: usize) -> Result<(), String> {
        let (from, to) = args.operands.split_at(inputs.min(args.operands.len()));
        if let Some((i, _)) = from.iter().enumerate().find(|(_, a)| to.iter().any(|b| overlap(a, b))) {
            return Err(format!(
                "operand {i} lies in the memory of a result, which a host kernel cannot take"
            ));
        }
        if let Some((i, _)) = to.iter().enumerate().find(|(i, a)| to[..*i].iter().any(|b| overlap(a, b))) {
            return Err(format!("result {i} lies in the memory of another"));
        }
        let all = to.first().map_or(0, rows_of);
        let rows = match (self.split, args.team.thread) {
            (Split::Rows, _) => args.team.range(all, 1),
            (Split::Whole, 0) => 0..all,
            (Split::Whole, _) => 0..0,
        };
        if rows.is_empty() {
            return Ok(());
        }
        (self.run)(&mut Call { inputs: from, outputs: to, params: args.params, all, rows, taken: 0 })
    }
}

/// Elements over the last extent; 1 for rank 0.
fn rows_of(o: &Operand) -> usize {
    o.dims().split_last().map_or(1, |(_, lead)| lead.iter().product::<i64>().max(0) as usize)
}

/// Elements of a dense operand; `None` if it is not dense or its elements share bytes.
fn dense(o: &Operand) -> Option<usize> {
    let mut want = 1;
    for (d, s) in o.dims().iter().zip(o.strides()).rev() {
        if *d != 1 && *s != want {
            return if o.is_empty() { Some(0) } else { None };
        }
        want *= *d;
    }
    (o.dtype.info().unit_elements == 1).then_some(want.max(0) as usize)
}

/// The addresses of an operand from the first to one past the last.
fn addresses(o: &Operand) -> Range<usize> {
    let units = (o.len().max(0) as usize).div_ceil(o.dtype.info().unit_elements);
    let at = o.ptr.addr();
    if o.is_absent() { 0..0 } else { at..at + units * o.dtype.info().unit_bytes }
}

fn overlap(a: &Operand, b: &Operand) -> bool {
    let (a, b) = (addresses(a), addresses(b));
    a.start < b.end && b.start < a.end && !a.is_empty() && !b.is_empty()
}

/// What a host kernel is given: operands as slices, and the rows that are its own.
pub struct Call<'a> {
    inputs: &'a [Operand],
    outputs: &'a [Operand],
    params: &'a [Param],
    all: usize,
    rows: Range<usize>,
    /// A bit for each result that was handed out.
    taken: u64,
}

impl<'a> Call<'a> {
    /// The rows of the results that this call writes, counted over all of the row-major order.
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// The integer parameter number `i` of the row's table; 0 if there is none.
    pub fn int(&self, i: usize) -> i64 {
        self.params.get(i).map_or(0, |p| p.int())
    }

    /// The parameter number `i` of the row's table as a real number; 0 if there is none.
    pub fn float(&self, i: usize) -> f64 {
        self.params.get(i).map_or(0.0, |p| p.float())
    }

    /// Extents of operand `i`, outermost first; none for one that is not there.
    pub fn input_dims(&self, i: usize) -> &'a [i64] {
        self.inputs.get(i).map_or(&[], |o| o.dims())
    }

    /// Extents of result `i`, all its rows counted.
    pub fn output_dims(&self, i: usize) -> &'a [i64] {
        self.outputs.get(i).map_or(&[], |o| o.dims())
    }

    /// Whether operand `i` was given.
    pub fn has_input(&self, i: usize) -> bool {
        self.inputs.get(i).is_some_and(|o| !o.is_absent())
    }

    /// The elements of operand `i`, row-major.
    ///
    /// # Errors
    /// It is not there, or of another type.
    pub fn input<T: Element>(&self, i: usize) -> Result<&'a [T], String> {
        let o = self.inputs.get(i).filter(|o| !o.is_absent());
        let o = o.ok_or_else(|| format!("there is no operand {i}"))?;
        let n = elements::<T>(o, "operand", i)?;
        // SAFETY: the executor proved the operand inside its buffer and aligned for its type; it is dense, nobody writes to it
        // while the step runs (`HostKernel::call` refuses results that overlap it), and any bits are a value of `T`.
        Ok(if n == 0 { &[] } else { unsafe { std::slice::from_raw_parts(o.ptr.cast::<T>(), n) } })
    }

    /// This call's rows of result `i`, to be written; each result is handed out once.
    ///
    /// # Errors
    /// It is not there, of another type, handed out already, or it has other rows than the first result.
    pub fn output<T: Element>(&mut self, i: usize) -> Result<&'a mut [T], String> {
        let o = self.outputs.get(i).ok_or_else(|| format!("there is no result {i}"))?;
        let bit = 1u64.checked_shl(i as u32).unwrap_or(0);
        if bit == 0 || self.taken & bit != 0 {
            return Err(format!("result {i} was handed out already"));
        }
        let n = elements::<T>(o, "result", i)?;
        if n == 0 {
            return Ok(&mut []);
        }
        if rows_of(o) != self.all {
            return Err(format!("result {i} has {} rows, the first result {}", rows_of(o), self.all));
        }
        self.taken |= bit;
        let row = n / self.all;
        let (at, len) = (self.rows.start * row, self.rows.len() * row);
        // SAFETY: as `input`; results lie apart, which `HostKernel::call` sees to, the rows of each thread are its own, and they
        // are handed out once.
        Ok(unsafe { std::slice::from_raw_parts_mut(o.ptr.cast::<T>().add(at), len) })
    }
}

/// The number of elements of a dense operand of `T`.
fn elements<T: Element>(o: &Operand, what: &str, i: usize) -> Result<usize, String> {
    if o.dtype != T::DTYPE {
        return Err(format!("{what} {i} holds {}, it cannot be read as {}", o.dtype, T::DTYPE));
    }
    if size_of::<T>() != o.dtype.info().unit_bytes {
        return Err(format!("an element of {what} {i} takes {} bytes", o.dtype.info().unit_bytes));
    }
    let n = dense(o).ok_or_else(|| format!("{what} {i} is not dense"))?;
    match n == 0 || o.ptr.addr().is_multiple_of(align_of::<T>()) {
        true => Ok(n),
        false => Err(format!("{what} {i} is not aligned")),
    }
}

#[cfg(test)]
mod tests {
    use frit_ir::DType;
    use frit_ir::rows::PLAIN;

    use super::*;
    use crate::args::MAX_RANK;
    use crate::pool::Team;

    fn operand(at: *mut u8, dims: [i64; 2], strides: [i64; 2]) -> Operand {
        let (mut d, mut s) = ([1; MAX_RANK], [0; MAX_RANK]);
        d[..2].copy_from_slice(&dims);
        s[..2].copy_from_slice(&strides);
        Operand { ptr: at, dtype: DType::F32, rank: 2, dims: d, strides: s }
    }

    fn double(c: &mut Call) -> Result<(), String> {
        let (x, out) = (c.input::<f32>(0)?, c.output::<f32>(0)?);
        out.iter_mut().zip(x).for_each(|(o, x)| *o = 2.0 * x);
        Ok(())
    }

    fn run(operands: &[Operand]) -> Result<(), String> {
        let (scratch, team) = (std::ptr::null_mut(), Team::solo());
        let args = Args { operands, params: &[], programs: &[], scratch, scratch_bytes: 0, team };
        HostKernel { row: PLAIN, split: Split::Rows, run: double }.call(&args, 1)
    }

    /// No element type is as large, whatever it says.
    #[derive(Clone, Copy)]
    #[repr(transparent)]
    struct Pair([f32; 2]);
    // SAFETY: two floats.
    unsafe impl bytemuck::Zeroable for Pair {}
    // SAFETY: two floats.
    unsafe impl bytemuck::Pod for Pair {}
    impl Element for Pair {
        const DTYPE: DType = DType::F32;
    }

    #[test]
    fn a_type_of_another_size_is_refused() {
        let mut memory = [1f32; 6];
        let o = operand(memory.as_mut_ptr().cast(), [2, 3], [3, 1]);
        assert_eq!(elements::<Pair>(&o, "operand", 0), Err("an element of operand 0 takes 4 bytes".into()));
        assert_eq!(elements::<f32>(&o, "operand", 0), Ok(6));
    }

    #[test]
    fn memory_that_is_shared_strided_or_unaligned_is_refused() {
        let mut memory = [1f32; 16];
        let at = memory.as_mut_ptr();
        let place = |i: usize| at.wrapping_add(i).cast::<u8>();
        let plain = |i: usize| operand(place(i), [2, 3], [3, 1]);
        let overlaps = run(&[plain(0), plain(5)]).unwrap_err();
        assert!(overlaps.starts_with("operand 0 lies in the memory of a result"), "{overlaps}");
        let strided = run(&[operand(place(0), [2, 3], [4, 1]), plain(8)]).unwrap_err();
        assert_eq!(strided, "operand 0 is not dense");
        let repeated = run(&[plain(0), operand(place(8), [2, 3], [0, 1])]).unwrap_err();
        assert_eq!(repeated, "result 0 is not dense");
        let odd = run(&[operand(place(0).wrapping_add(2), [2, 3], [3, 1]), plain(8)]).unwrap_err();
        assert_eq!(odd, "operand 0 is not aligned");
        let twice = run(&[plain(0), plain(6), plain(11)]).unwrap_err();
        assert_eq!(twice, "result 1 lies in the memory of another");
        assert_eq!(memory, [1.0; 16]);
        // Right beside one another is apart; nothing at all may lie anywhere.
        run(&[plain(0), plain(6)]).unwrap();
        run(&[operand(place(0), [0, 3], [3, 1]), operand(place(0), [0, 3], [3, 1])]).unwrap();
        assert_eq!((memory[5], memory[6], memory[11], memory[12]), (1.0, 2.0, 2.0, 1.0));
    }
}
