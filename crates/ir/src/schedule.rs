//! The schedule: the compiler's output, a flat list of steps over regions of memory. A printable value; backends start
//! from it and see no graph.

use std::sync::Arc;

use crate::DType;
use crate::dim::Dim;
use crate::expr::Expr;
use crate::graph::Type;
use crate::op::ParamValue;
use crate::symbols::{DimGuard, Symbols};
use crate::target::{Cmp, RowId};
use crate::tensor::Tensor;

/// Kind of memory. A region is a list of buffers; no value spans two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Region {
    /// Weights and constants: one buffer each, shared by sessions.
    Weights,
    /// State: one buffer each, owned by a session.
    State,
    /// Transient values: buffer 0, offsets planned at the bounds of the symbols.
    Arena,
    /// Inputs of a run: one buffer each.
    Input,
    /// Outputs of a run: one buffer each.
    Output,
}

/// An operand of a step: a strided window onto a buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// Region.
    pub region: Region,
    /// Buffer within the region.
    pub buffer: u32,
    /// Offset of the first element in bytes.
    pub offset: Dim,
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first, at most 8.
    pub dims: Vec<Dim>,
    /// Strides in elements.
    pub strides: Vec<Dim>,
}

/// A condition on the sizes of a run that selects a kernel row.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeGuard {
    /// Left side.
    pub dim: Dim,
    /// Comparison.
    pub cmp: Cmp,
    /// Right side.
    pub value: i64,
}

impl SizeGuard {
    /// Whether it holds for the value `v` of its left side.
    pub fn holds(&self, v: i64) -> bool {
        match self.cmp {
            Cmp::Eq => v == self.value,
            Cmp::Ne => v != self.value,
            Cmp::Le => v <= self.value,
            Cmp::Ge => v >= self.value,
            Cmp::MultipleOf => v % self.value == 0,
        }
    }
}

/// One candidate of a step: the row runs if every guard holds and no earlier candidate did.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Conditions on the sizes.
    pub guards: Vec<SizeGuard>,
    /// The kernel row.
    pub row: RowId,
    /// Its parameters, in the order of the row's table.
    pub params: Vec<ParamValue>,
    /// Scratch bytes it needs.
    pub scratch: Dim,
}

/// A kernel-sized unit of work.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelStep {
    /// Name of the value it makes, for reports.
    pub name: String,
    /// Candidates; exactly one runs.
    pub candidates: Vec<Candidate>,
    /// Inputs in the op's order, then results; `None` for an optional one left out.
    pub operands: Vec<Option<Operand>>,
    /// Number of inputs among the operands.
    pub inputs: usize,
    /// Scalar expressions.
    pub exprs: Vec<Arc<Expr>>,
    /// Arena offset of the scratch, which is as large as the largest candidate needs.
    pub scratch: u64,
    /// Operations, for reports.
    pub flops: Dim,
    /// Bytes moved, for reports.
    pub bytes: Dim,
}

/// A step. Loops and conditionals with body schedules will stand beside `Kernel`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Step {
    /// A kernel.
    Kernel(KernelStep),
}

/// Where a weight comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum WeightSource {
    /// A parameter of the model, by name.
    Param(String),
    /// A constant of the graph.
    Const(Tensor),
}

/// A buffer of the weights region.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    /// Where its values come from.
    pub source: WeightSource,
    /// Type as the graph states it.
    pub ty: Type,
    /// The packed layout it is brought into at load, or `None` for dense as it is.
    pub packing: Option<&'static str>,
}

/// A named value at the border: an input, output or state with its type.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Name.
    pub name: String,
    /// Type.
    pub ty: Type,
}

/// What the memory planner did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryReport {
    /// Bytes of the arena at the bounds of the symbols.
    pub arena: u64,
    /// The largest sum of bytes that live at one step: the lower bound.
    pub live: u64,
    /// The largest values: name, bytes, first and last step.
    pub largest: Vec<(String, u64, u32, u32)>,
}

/// The compiler's output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    /// Name of the graph.
    pub name: String,
    /// Name of the target it was made for.
    pub target: String,
    /// Symbols and ranges.
    pub symbols: Symbols,
    /// Conditions on the sizes, checked when they are bound.
    pub guards: Vec<DimGuard>,
    /// Weight buffers.
    pub weights: Vec<Weight>,
    /// State buffers.
    pub states: Vec<Port>,
    /// Input buffers.
    pub inputs: Vec<Port>,
    /// Output buffers.
    pub outputs: Vec<Port>,
    /// Steps in order.
    pub steps: Vec<Step>,
    /// The memory plan in figures.
    pub memory: MemoryReport,
}
