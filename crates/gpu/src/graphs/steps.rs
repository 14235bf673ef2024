//! The steps of a schedule at the sizes of a run: every expression a number.

use frit_ir::DType;
use frit_ir::dim::{Dim, DimError, Sym};
use frit_ir::op::ParamValue;
use frit_ir::schedule::{KernelStep, Operand, Region, Schedule, Step};
use frit_ir::target::RowId;

use super::table::Param;
use crate::error::GpuError;
use crate::row::GpuRow;

/// An operand as numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub region: Region,
    pub buffer: u32,
    pub dtype: DType,
    /// First byte in the buffer.
    pub offset: u64,
    pub dims: Vec<usize>,
    pub strides: Vec<usize>,
}

impl Window {
    pub fn is_empty(&self) -> bool {
        self.dims.contains(&0)
    }

    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// The bytes between its first element and its last: the first, and one past the last.
    pub fn reach(&self) -> (u64, u64) {
        let last: usize = self.dims.iter().zip(&self.strides).map(|(n, s)| n.saturating_sub(1) * s).sum();
        let unit = self.dtype.info();
        let end = (last / unit.unit_elements + 1) * unit.unit_bytes;
        (self.offset, self.offset + end as u64)
    }

    /// Whether its elements lie one behind the other in order.
    pub fn is_dense(&self) -> bool {
        let mut next = 1;
        self.dims.iter().zip(&self.strides).rev().all(|(n, s)| {
            let fits = *n == 1 || *s == next;
            next *= n;
            fits
        })
    }

    /// Whether the two have a byte in common.
    pub fn overlaps(&self, region: Region, buffer: u32, (from, to): (u64, u64)) -> bool {
        let (a, b) = self.reach();
        (self.region, self.buffer) == (region, buffer) && !self.is_empty() && a < to && from < b
    }
}

/// A step at the sizes of a run, with the kernel that would run it.
pub(crate) struct Concrete<'a> {
    pub step: &'a KernelStep,
    /// What it computes.
    pub(super) op: &'static str,
    pub(super) params: Vec<(&'static str, Param)>,
    /// Inputs, then results.
    pub(super) operands: Vec<Option<Window>>,
    pub(super) flops: u64,
}

impl Concrete<'_> {
    /// The results that are there.
    pub(super) fn outputs(&self) -> impl Iterator<Item = &Window> {
        self.operands[self.step.inputs..].iter().flatten()
    }

    /// The inputs that are there.
    pub(super) fn inputs(&self) -> impl Iterator<Item = &Window> {
        self.operands[..self.step.inputs].iter().flatten()
    }

    /// Whether it has no result of any element: then it does nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.outputs().all(Window::is_empty)
    }
}

/// What decides the steps of a run: the sizes, the rows of the device, and the candidate of each step.
pub(crate) struct Sight<'a> {
    /// The value of a symbol.
    pub bind: &'a dyn Fn(&Sym) -> Option<i64>,
    /// The row of a number.
    pub row: &'a dyn Fn(RowId) -> Option<&'static GpuRow>,
    /// The candidate of step `i`.
    pub choice: &'a dyn Fn(usize) -> usize,
}

/// The steps of `s`.
///
/// # Errors
/// A step that is no kernel or has no such candidate or row, an extent that cannot be evaluated.
pub(crate) fn concrete<'a>(s: &'a Schedule, sight: &Sight) -> Result<Vec<Concrete<'a>>, GpuError> {
    let one = |(i, step): (usize, &'a Step)| {
        let bad = |why: &str| GpuError::Step { step: i.to_string(), why: why.into() };
        let Step::Kernel(step) = step else { return Err(bad("this backend runs kernels only")) };
        let c = step.candidates.get((sight.choice)(i)).ok_or_else(|| bad("it has no such candidate"))?;
        let row = (sight.row)(c.row).ok_or_else(|| bad("there is no such kernel row"))?;
        let params = row.row.params.iter().zip(&c.params).map(|(spec, v)| {
            Ok((
                spec.name,
                match v {
                    ParamValue::Dim(d) => Param::Int(d.eval(sight.bind)?),
                    ParamValue::Float(v) => Param::Real(*v),
                },
            ))
        });
        let operands = step.operands.iter().map(|o| o.as_ref().map(|o| window(o, sight)).transpose());
        Ok(Concrete {
            step,
            op: row.row.op,
            params: params.collect::<Result<_, DimError>>()?,
            operands: operands.collect::<Result<_, DimError>>()?,
            flops: step.flops.eval(sight.bind)?.max(0).unsigned_abs(),
        })
    };
    s.steps.iter().enumerate().map(one).collect()
}

fn window(o: &Operand, sight: &Sight) -> Result<Window, DimError> {
    let size = |d: &Dim| Ok(d.eval(sight.bind)?.max(0) as usize);
    let mut w = Window {
        region: o.region,
        buffer: o.buffer,
        dtype: o.dtype,
        offset: size(&o.offset)? as u64,
        dims: o.dims.iter().map(size).collect::<Result<_, DimError>>()?,
        strides: o.strides.iter().map(size).collect::<Result<_, DimError>>()?,
    };
    if w.dims.is_empty() {
        // One element is a line of one: nothing depends on what values of no dimension are to MPSGraph.
        (w.dims, w.strides) = (vec![1], vec![1]);
    }
    Ok(w)
}
