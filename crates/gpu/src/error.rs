//! What can go wrong on a device, and between a schedule and its results.

use frit_ir::dim::DimError;
use frit_ir::sizes::SizeError;

/// An error of the GPU layer. Messages name the device, buffer, kernel or step concerned.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// A library that the driver needs is not installed.
    #[error("{library} was not found: {hint}")]
    Library {
        /// The library.
        library: &'static str,
        /// How to get it.
        hint: String,
    },
    /// The driver is older than what is needed.
    #[error("{api}: the driver is version {have}, at least {want} is needed: {hint}")]
    TooOld {
        /// How the device is reached.
        api: &'static str,
        /// Version found.
        have: String,
        /// Version needed.
        want: String,
        /// How to get it.
        hint: String,
    },
    /// There is no such device.
    #[error("{api}: there is no device {index}; there are {count}")]
    NoDevice {
        /// How it would be reached.
        api: &'static str,
        /// Number asked for.
        index: usize,
        /// Devices there are.
        count: usize,
    },
    /// The device's compiler refused a kernel.
    #[error("{device}: kernel `{kernel}` does not build: {log}")]
    Build {
        /// The device.
        device: String,
        /// The kernel.
        kernel: String,
        /// The compiler's log.
        log: String,
    },
    /// A value is larger than the device's largest buffer.
    #[error("{what} takes {bytes} bytes, but the largest buffer of {device} is {max} bytes")]
    BufferTooLarge {
        /// What it was for.
        what: String,
        /// Bytes needed.
        bytes: u64,
        /// Bytes of the largest buffer.
        max: u64,
        /// The device.
        device: String,
    },
    /// The device's memory does not hold it.
    #[error("{device}: no memory for {what} ({bytes} bytes): {used} of {total} bytes are in use")]
    OutOfMemory {
        /// The device.
        device: String,
        /// What it was for.
        what: String,
        /// Bytes needed.
        bytes: u64,
        /// Bytes that this process allocated before.
        used: u64,
        /// Bytes there are.
        total: u64,
    },
    /// The device failed or was reset; what it held is lost.
    #[error("{device}: {what} failed: {why}")]
    Device {
        /// The device.
        device: String,
        /// What was being done.
        what: String,
        /// The driver's reason.
        why: String,
    },
    /// A buffer, kernel, segment, ticket or range that the driver does not have: a fault of the caller.
    #[error("{device}: {what}")]
    Invalid {
        /// The device.
        device: String,
        /// What is wrong.
        what: String,
    },
    /// The schedule was made for another target.
    #[error("the schedule was compiled for target `{schedule}`, this device is `{device}`")]
    Target {
        /// The schedule's target.
        schedule: String,
        /// The device's.
        device: String,
    },
    /// A step that cannot be brought into a kernel.
    #[error("step `{step}`: {why}")]
    Step {
        /// The step.
        step: String,
        /// Why not.
        why: String,
    },
    /// A step that the vendor's graph compiler cannot run, where it was to run all of them.
    #[error("step `{step}` (`{op}`) cannot be a part of one graph: {why}")]
    NotAGraph {
        /// The step.
        step: String,
        /// Its op.
        op: String,
        /// Why not.
        why: String,
    },
    /// The device has no graph compiler of its vendor's.
    #[error("{device} has no graph compiler: {hint}")]
    NoGraphs {
        /// The device.
        device: String,
        /// What would have one.
        hint: String,
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
        have: u64,
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
    /// An input was not set.
    #[error("the input `{0}` was not given")]
    InputMissing(String),
    /// An input or state of the wrong length.
    #[error("the {what} `{name}` takes {want} bytes for these sizes, got {got}")]
    Bytes {
        /// `input` or `state`.
        what: &'static str,
        /// Its name.
        name: String,
        /// Bytes it takes.
        want: usize,
        /// Bytes given.
        got: usize,
    },
    /// Sizes that the schedule does not take.
    #[error(transparent)]
    Size(#[from] SizeError),
}

impl From<DimError> for GpuError {
    fn from(e: DimError) -> GpuError {
        GpuError::Size(e.into())
    }
}
