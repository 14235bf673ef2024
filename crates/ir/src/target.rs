//! The target: plain data that describes a device to the compiler, its kernel rows above all.

use crate::DType;
use crate::expr::ScalarOp;

/// The strides an operand may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LayoutClass {
    /// Row-major without gaps.
    Dense,
    /// Last stride 1, others free, 0 allowed.
    Rows,
    /// Any strides ≥ 0, at most 8 dimensions after merging.
    Strided,
}

/// How many operands stand at one place of a row's operand list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// One.
    One,
    /// One or none (a step then holds an absent operand).
    Optional,
    /// As many as the named parameter says (a constant).
    Param(&'static str),
    /// All that are left, inputs and results counted apart.
    Rest,
}

/// One place of a row's operand list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OperandSpec {
    /// Name, for messages and placement reports.
    pub name: &'static str,
    /// Types taken.
    pub dtypes: &'static [DType],
    /// Strides taken.
    pub layout: LayoutClass,
    /// How many.
    pub count: Count,
    /// Weights only: the packed layout that the kernel reads, by name. A value that is no parameter does not match.
    pub packing: Option<&'static str>,
}

/// Comparison of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cmp {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// At most.
    Le,
    /// At least.
    Ge,
    /// A multiple of.
    MultipleOf,
}

/// A condition on a named parameter of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The parameter, as the op's `lower` names it.
    pub param: &'static str,
    /// Comparison.
    pub cmp: Cmp,
    /// Compared with.
    pub value: i64,
}

/// Type of a kernel parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamType {
    /// 32-bit integer.
    I32,
    /// 64-bit integer.
    I64,
    /// 32-bit float.
    F32,
    /// A real number as the bits of the type of the step's first result.
    Stored,
}

/// One parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamSpec {
    /// Name, as the op's `lower` gives it.
    pub name: &'static str,
    /// Type.
    pub ty: ParamType,
}

/// Position of a row in its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowId(pub u32);

/// One kernel that a backend has, as data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelRow {
    /// Name, unique in the target.
    pub name: &'static str,
    /// The op it computes.
    pub op: &'static str,
    /// Inputs in the op's order.
    pub inputs: &'static [OperandSpec],
    /// Results in the op's order.
    pub outputs: &'static [OperandSpec],
    /// Conditions, all of which must hold.
    pub guards: &'static [Guard],
    /// Parameters.
    pub params: &'static [ParamSpec],
    /// Scratch bytes as a dimension expression over the parameters and `threads`; empty for none.
    pub scratch: &'static str,
    /// (input, output) pairs that may share memory, counted among a step's operands and among its results.
    pub alias: &'static [(usize, usize)],
}

/// A device as the compiler sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Name, e.g. `cpu`.
    pub name: String,
    /// Alignment of values in the arena, in bytes, a power of two.
    pub align: u64,
    /// Workers that share a step (the `threads` of scratch formulas).
    pub threads: i64,
    /// Kernel rows, the preferred first.
    pub rows: Vec<KernelRow>,
    /// Scalar ops that its expression kernels have.
    pub scalars: Vec<ScalarOp>,
    /// Compute types that its expression kernels have.
    pub compute: Vec<DType>,
    /// Types that no row takes on this device, whatever its table says.
    pub lacks: Vec<DType>,
}

impl Target {
    /// The row `id`, which must be of this target.
    pub fn row(&self, id: RowId) -> &KernelRow {
        &self.rows[id.0 as usize]
    }

    /// The row called `name`.
    pub fn find(&self, name: &str) -> Option<RowId> {
        self.rows.iter().position(|r| r.name == name).map(|i| RowId(i as u32))
    }

    /// Whether any row computes `op`.
    pub fn has_op(&self, op: &str) -> bool {
        self.rows.iter().any(|r| r.op == op)
    }
}
