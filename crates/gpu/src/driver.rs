//! What a device gives to the executor: memory, kernels built from text, launches encoded once, runs submitted and waited
//! for. A driver knows no op, no step and no schedule; it never decides what runs, only how.
//!
//! All work of a driver goes through one queue in the order of the calls: a write to a buffer comes before a run submitted
//! later and after a run submitted before. Host memory handed to a call may be reused as soon as the call returns.

use std::sync::Arc;

use crate::error::GpuError;
use crate::launch::{Launch, Span, VendorCall};

pub use frit_ir::times::StepTime;

/// The language that a driver's compiler reads; each has a header of its own in `kernels/compat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenCL C 1.2.
    OpenCl,
    /// CUDA C++, by NVRTC.
    Cuda,
    /// Metal Shading Language.
    Metal,
}

/// What a device can do beyond the least that every device must.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Arithmetic in f64.
    pub f64: bool,
    /// The device reads the host's memory: weights need no copy.
    pub unified_memory: bool,
    /// The device is the host's processors, which the CPU backend knows better.
    pub host: bool,
    /// The matrix units and thread-block clusters of NVIDIA's Hopper, in CUDA.
    pub hopper: bool,
}

/// A device in facts.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    /// How it is reached: `opencl`, `cuda`, `metal` or `null`. The name of its [`Target`](frit_ir::target::Target).
    pub api: &'static str,
    /// Its name, as its maker gives it.
    pub name: String,
    /// Its maker.
    pub vendor: String,
    /// Version of its driver and compiler; a part of the key of compiled kernels.
    pub driver: String,
    /// Language of its kernels.
    pub dialect: Dialect,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of the largest buffer.
    pub max_buffer: u64,
    /// Bytes of memory shared by a group.
    pub shared_memory: u32,
    /// Most items of a group.
    pub max_group: u32,
    /// Compute units; a few groups for each keep the device busy.
    pub units: u32,
    /// Alignment of values in a buffer in bytes, a power of two.
    pub align: u64,
    /// What else it can do.
    pub features: Features,
}

/// A buffer of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u64);

/// A built kernel of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelId(pub u64);

/// A sequence of launches that a driver has encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId(pub u64);

/// A submitted run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TicketId(pub u64);

/// The text of one kernel, ready for the device's compiler.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelSource {
    /// Name of the kernel function.
    pub entry: String,
    /// The whole text, header included.
    pub text: String,
    /// Items of a group; the text is written for exactly this many.
    pub group: u32,
    /// Number of buffer arguments before the parameter block.
    pub buffers: u32,
    /// Bytes of memory shared by a group that the launch must bring, beside what the text declares.
    pub shared: u32,
}

/// Bytes to be written into a device buffer before a run.
#[derive(Clone, Copy, Debug)]
pub struct Upload<'a> {
    /// The buffer.
    pub buffer: BufferId,
    /// First byte.
    pub offset: u64,
    /// What to write; copied before [`Driver::submit`] returns.
    pub bytes: &'a [u8],
}

/// One run: upload, segments in order, downloads.
#[derive(Clone, Copy, Debug)]
pub struct Submission<'a> {
    /// Parameters and inputs that changed, in one piece.
    pub upload: Option<Upload<'a>>,
    /// What runs, in order.
    pub segments: &'a [SegmentId],
    /// Results to be copied for the ticket, one behind the other, so that later runs cannot change them.
    pub downloads: &'a [Span],
    /// Whether each launch is timed. A timed run may be slower.
    pub timed: bool,
}

/// Memory of the host that is copied to a device. Holding it keeps the file mapped.
pub type HostData = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A device. Every method may be called from any thread.
pub trait Driver: Send + Sync {
    /// The device in facts.
    fn info(&self) -> &DeviceInfo;

    /// Bytes of the buffers that are allocated now.
    fn allocated(&self) -> u64;

    /// A buffer of `bytes` bytes (of one byte for none), contents undefined.
    ///
    /// # Errors
    /// [`GpuError::BufferTooLarge`], [`GpuError::OutOfMemory`].
    fn allocate(&self, what: &str, bytes: u64) -> Result<BufferId, GpuError>;

    /// Gives a buffer back once the runs that were submitted before have ended. An unknown one is ignored.
    fn free(&self, buffer: BufferId);

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// An unknown buffer or a range outside it; a lost device.
    fn write(&self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<(), GpuError>;

    /// Copies from `offset` into `bytes`; waits for what was submitted before.
    ///
    /// # Errors
    /// As [`Driver::write`], and what went wrong in the runs before.
    fn read(&self, buffer: BufferId, offset: u64, bytes: &mut [u8]) -> Result<(), GpuError>;

    /// Sets a range to zero.
    ///
    /// # Errors
    /// As [`Driver::write`].
    fn zero(&self, span: Span) -> Result<(), GpuError>;

    /// Builds a kernel from its text.
    ///
    /// # Errors
    /// [`GpuError::Build`] with the compiler's log.
    fn build(&self, source: &KernelSource) -> Result<KernelId, GpuError>;

    /// Makes a kernel of what [`Driver::binary`] gave, whole and unchanged, for the same text on the same device and driver
    /// version; `None` if the driver refuses it.
    fn load(&self, source: &KernelSource, binary: &[u8]) -> Option<KernelId>;

    /// The compiled form of a kernel, for a cache; `None` where the driver has none.
    fn binary(&self, kernel: KernelId) -> Option<Vec<u8>>;

    /// Encodes launches, to be submitted any number of times. Launches whose spans do not conflict may overlap
    /// ([`crate::launch::dependencies`]); parameters are read when a run executes, not now.
    ///
    /// # Errors
    /// An unknown kernel or buffer, a group or grid that the device does not take.
    fn encode(&self, launches: &[Launch]) -> Result<SegmentId, GpuError>;

    /// Whether it takes work for its vendor's graph compiler and library ([`Driver::encode_vendor`]); else what it would take.
    ///
    /// # Errors
    /// [`GpuError::NoGraphs`].
    fn vendor(&self) -> Result<(), GpuError> {
        let hint = "it comes with Metal on macOS 15".into();
        Err(GpuError::NoGraphs { device: self.info().name.clone(), hint })
    }

    /// Compiles work for the vendor's graph compiler or library, to be submitted any number of times as a segment of its own.
    ///
    /// # Errors
    /// As [`Driver::vendor`] and [`Driver::encode`]; what the vendor's compiler says.
    fn encode_vendor(&self, _: &VendorCall) -> Result<SegmentId, GpuError> {
        Err(self.vendor().err().unwrap_or_else(|| GpuError::Invalid {
            device: self.info().name.clone(),
            what: "a driver that promises graphs must take them".into(),
        }))
    }

    /// Lets go of a segment once the runs that were submitted before have ended. An unknown one is ignored.
    fn release(&self, segment: SegmentId);

    /// Submits a run and returns without waiting for it.
    ///
    /// # Errors
    /// An unknown segment or buffer, a lost device. What goes wrong on the device shows at [`Driver::wait`].
    fn submit(&self, run: &Submission) -> Result<TicketId, GpuError>;

    /// Waits for a run, copies its downloads into `output` (which has their length) and, if it was timed, says when each of its
    /// launches ([`Launch::step`]) ran. Every ticket is waited for once; dropping one unwaited for is [`Driver::forget`].
    ///
    /// # Errors
    /// An unknown ticket; whatever went wrong on the device since it was submitted.
    fn wait(&self, ticket: TicketId, output: &mut [u8]) -> Result<Vec<StepTime>, GpuError>;

    /// Lets go of a ticket that nobody will wait for. An unknown one is ignored.
    fn forget(&self, ticket: TicketId);
}
