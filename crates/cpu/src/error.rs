//! What can go wrong between a schedule and its results.

use crate::pool::PoolError;
use frit_ir::DType;
use frit_ir::sizes::SizeError;

/// An error of the CPU backend. Messages name the symbol, weight, input or state concerned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The schedule was made for another target.
    #[error("the schedule was compiled for target `{0}`, this is the CPU backend")]
    Target(String),
    /// The schedule names a kernel row that this build does not have.
    #[error("step `{step}` uses kernel row {row}, but this backend has {rows} rows")]
    Row {
        /// The step.
        step: String,
        /// Row number.
        row: u32,
        /// Rows there are.
        rows: usize,
    },
    /// A kind of step that this backend does not run.
    #[error("step {0} is of a kind that this backend does not run; it runs kernels")]
    Step(usize),
    /// A scalar expression that cannot run here.
    #[error("step `{step}`: {why}")]
    Expr {
        /// The step.
        step: String,
        /// Why not.
        why: String,
    },
    /// A weight was not given.
    #[error("the parameter `{0}` was never set")]
    WeightMissing(String),
    /// A weight has the wrong size.
    #[error("the parameter `{name}` takes {want} bytes ({ty}), got {got}")]
    WeightBytes {
        /// The parameter.
        name: String,
        /// Its type.
        ty: String,
        /// Bytes it takes.
        want: usize,
        /// Bytes given.
        got: usize,
    },
    /// A weight cannot be packed.
    #[error("the parameter `{name}` cannot be packed as `{packing}`: {why}")]
    Pack {
        /// The parameter.
        name: String,
        /// The layout.
        packing: String,
        /// Why not.
        why: String,
    },
    /// Sizes that the schedule does not take.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// No kernel of a step takes these sizes.
    #[error("step `{0}`: no kernel takes these sizes")]
    NoKernel(String),
    /// An operand would leave its buffer: a fault of the compiler, caught before anything runs.
    #[error("step `{step}`: operand {operand} needs {need} bytes of a buffer of {have}")]
    Bounds {
        /// The step.
        step: String,
        /// Operand number.
        operand: usize,
        /// Bytes it would reach.
        need: i128,
        /// Bytes there are.
        have: usize,
    },
    /// An input or output that does not exist.
    #[error("there is no {what} `{name}`; there are: {known}")]
    Name {
        /// `input`, `output` or `state`.
        what: &'static str,
        /// Name asked for.
        name: String,
        /// Names there are.
        known: String,
    },
    /// An input was not set.
    #[error("the input `{0}` was not given")]
    InputMissing(String),
    /// An input of the wrong length.
    #[error("the input `{name}` takes {want} bytes for these sizes, got {got}")]
    InputBytes {
        /// The input.
        name: String,
        /// Bytes it takes.
        want: usize,
        /// Bytes given.
        got: usize,
    },
    /// A value read as another type than it has.
    #[error("`{name}` holds {have}, not {want}")]
    DType {
        /// The value.
        name: String,
        /// Its type.
        have: DType,
        /// Type asked for.
        want: DType,
    },
    /// The system refused memory.
    #[error("no memory for {what} ({bytes} bytes)")]
    OutOfMemory {
        /// What it was for.
        what: String,
        /// How much.
        bytes: usize,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A thread of the pool failed.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A kernel of the user's failed, or asks for what it cannot have.
    #[error("step `{step}`: kernel `{kernel}` of `{op}`: {why}")]
    Host {
        /// The step.
        step: String,
        /// The kernel row.
        kernel: &'static str,
        /// What it computes.
        op: &'static str,
        /// What is wrong.
        why: String,
    },
    /// A kernel stopped with a panic.
    #[error("a run failed in step `{step}`: {source}")]
    Kernel {
        /// The step.
        step: String,
        /// The pool's report.
        source: PoolError,
    },
}
