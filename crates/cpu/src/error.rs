//! What can go wrong between a schedule and its results.

use crate::pool::PoolError;
use frit_ir::DType;
use frit_ir::dim::DimError;
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
    /// A symbol is not bound.
    #[error(transparent)]
    Dim(#[from] DimError),
    /// A symbol that the schedule does not have.
    #[error("there is no symbol `{name}`; there are: {known}")]
    Symbol {
        /// Name asked for.
        name: String,
        /// Names there are.
        known: String,
    },
    /// A size outside its declared range.
    #[error("`{name}` = {value} is outside {min}..={max}")]
    Range {
        /// The symbol.
        name: String,
        /// Value given.
        value: i64,
        /// Least value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// Sizes that do not fit each other.
    #[error("{why}: {left} and {right} do not fit")]
    Guard {
        /// What the guard is for.
        why: String,
        /// Left side.
        left: i64,
        /// Right side.
        right: i64,
    },
    /// An extent that the sizes make negative.
    #[error("{place}: extent {extent} is {value} at {sizes}; extents must be at least 0")]
    Extent {
        /// Whose: a port or an operand of a step.
        place: String,
        /// The extent.
        extent: String,
        /// Its value.
        value: i64,
        /// The symbols in it and their values.
        sizes: String,
    },
    /// A symbol that was fixed when the session was made has another value now.
    #[error("`{name}` was fixed to {fixed} when the session was made, this run asks for {value}")]
    Fixed {
        /// The symbol.
        name: String,
        /// The session's value.
        fixed: i64,
        /// The run's value.
        value: i64,
    },
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
    /// A kernel stopped with a panic.
    #[error("a run failed in step `{step}`: {source}")]
    Kernel {
        /// The step.
        step: String,
        /// The pool's report.
        source: PoolError,
    },
}

impl From<SizeError> for ExecError {
    fn from(e: SizeError) -> ExecError {
        match e {
            SizeError::Dim(e) => ExecError::Dim(e),
            SizeError::Range { name, value, min, max } => ExecError::Range { name, value, min, max },
            SizeError::Guard { why, left, right } => ExecError::Guard { why, left, right },
            SizeError::Extent { place, extent, value, sizes } => {
                ExecError::Extent { place, extent, value, sizes }
            }
        }
    }
}
