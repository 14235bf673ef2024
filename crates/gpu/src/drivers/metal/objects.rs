//! Metal's objects as the driver keeps them, and making them.

use std::ffi::c_void;
use std::ops::Deref;
use std::ptr::NonNull;

use objc2::rc::Retained;
use objc2::runtime::{NSObjectProtocol, ProtocolObject};
use objc2::sel;
use objc2_foundation::{NSError, NSString};
use objc2_metal::{
    MTLBuffer, MTLCommandBuffer, MTLCommandBufferStatus, MTLCompileOptions, MTLComputePipelineDescriptor,
    MTLComputePipelineState, MTLCounterSampleBuffer, MTLDevice, MTLIndirectCommandBuffer, MTLLanguageVersion,
    MTLLibrary, MTLMathFloatingPointFunctions, MTLMathMode, MTLPipelineOption, MTLResourceOptions,
};

use super::plan;
use crate::driver::KernelSource;

/// A device.
pub(super) type Device = Retained<ProtocolObject<dyn MTLDevice>>;

/// A kernel ready to run.
pub(super) type Pipeline = Retained<ProtocolObject<dyn MTLComputePipelineState>>;

/// An object that the bindings do not let other threads see, though Metal does. Only the kinds named below are made.
pub(super) struct Object<P: ?Sized>(Retained<ProtocolObject<P>>);

// SAFETY: references are counted atomically. Of the kinds below, buffers, indirect command buffers and buffers of counters
// have no state of the host's but what was set before they came here; command buffers come here when they have been
// committed, after which their status, error and times may be asked for, and their end waited for, from any thread.
unsafe impl<P: ?Sized> Send for Object<P> {}
// SAFETY: as above.
unsafe impl<P: ?Sized> Sync for Object<P> {}

impl<P: ?Sized> Clone for Object<P> {
    fn clone(&self) -> Self {
        Object(self.0.clone())
    }
}

impl<P: ?Sized> Deref for Object<P> {
    type Target = ProtocolObject<P>;
    fn deref(&self) -> &ProtocolObject<P> {
        &self.0
    }
}

/// Memory of the device.
pub(super) type Buffer = Object<dyn MTLBuffer>;

/// A command buffer that has been committed.
pub(super) type Committed = Object<dyn MTLCommandBuffer>;

/// An encoded piece of a segment.
pub(super) type Indirect = Object<dyn MTLIndirectCommandBuffer>;

/// Times that the device notes.
pub(super) type Counters = Object<dyn MTLCounterSampleBuffer>;

impl Buffer {
    /// `bytes` bytes, at least, of memory that the host sees or does not; `None` if there is not that much.
    pub fn new(device: &Device, bytes: u64, shared: bool) -> Option<Buffer> {
        let options = match shared {
            true => MTLResourceOptions::StorageModeShared,
            false => MTLResourceOptions::StorageModePrivate,
        };
        // Blits read whole units.
        let bytes = usize::try_from(bytes.max(1)).ok()?.checked_next_multiple_of(plan::UNIT as usize)?;
        device.newBufferWithLength_options(bytes, options).map(Object)
    }

    /// Its first byte, for the host.
    ///
    /// # Safety
    /// The buffer is one that the host sees. What the pointer is used for lies inside it, and no run that the device may be
    /// carrying out uses the same bytes, but for both reading.
    pub unsafe fn host(&self) -> NonNull<u8> {
        self.contents().cast::<u8>()
    }
}

impl Committed {
    /// Hands a command buffer to the queue.
    pub fn commit(commands: Retained<ProtocolObject<dyn MTLCommandBuffer>>) -> Committed {
        commands.commit();
        Object(commands)
    }

    /// One that was handed to the queue already.
    pub fn committed(commands: Retained<ProtocolObject<dyn MTLCommandBuffer>>) -> Committed {
        Object(commands)
    }

    /// Whether it has ended, well or not.
    pub fn ended(&self) -> bool {
        let status = self.status();
        status == MTLCommandBufferStatus::Completed || status == MTLCommandBufferStatus::Error
    }

    /// Waits for its end; the error says what went wrong on the device.
    pub fn finish(&self) -> Result<(), String> {
        self.waitUntilCompleted();
        match self.status() {
            MTLCommandBufferStatus::Completed => Ok(()),
            _ => Err(self.why()),
        }
    }

    /// What went wrong.
    fn why(&self) -> String {
        match self.error() {
            Some(e) => format!("{}: {}", plan::fault(e.code()), text(&e)),
            None => "it ended without a reason".into(),
        }
    }
}

impl Indirect {
    pub fn new(object: Retained<ProtocolObject<dyn MTLIndirectCommandBuffer>>) -> Indirect {
        Object(object)
    }
}

impl Counters {
    pub fn new(object: Retained<ProtocolObject<dyn MTLCounterSampleBuffer>>) -> Counters {
        Object(object)
    }
}

/// The reason that Metal gives.
pub(super) fn text(e: &NSError) -> String {
    e.localizedDescription().to_string()
}

/// Language and arithmetic of kernels: nothing is rounded or reordered in another way than the text says.
fn options() -> Retained<MTLCompileOptions> {
    let options = MTLCompileOptions::new();
    options.setLanguageVersion(MTLLanguageVersion::Version2_4);
    // From macOS 15 on there are modes; before, there is a switch.
    if options.respondsToSelector(sel!(setMathMode:)) {
        options.setMathMode(MTLMathMode::Safe);
        options.setMathFloatingPointFunctions(MTLMathFloatingPointFunctions::Precise);
    } else {
        #[allow(deprecated, reason = "older systems have nothing else")]
        options.setFastMathEnabled(false);
    }
    options
}

/// Builds a kernel; `replay`: for indirect command buffers, too. The error is the compiler's log.
pub(super) fn build(device: &Device, source: &KernelSource, replay: bool) -> Result<Pipeline, String> {
    if source.shared > 0 {
        return Err("shared memory that launches bring is not there on Metal".into());
    }
    let log = |e: Retained<NSError>| text(&e);
    let library = device
        .newLibraryWithSource_options_error(&NSString::from_str(&source.text), Some(&options()))
        .map_err(log)?;
    let function = library
        .newFunctionWithName(&NSString::from_str(&source.entry))
        .ok_or_else(|| format!("there is no kernel function `{}`", source.entry))?;
    let wanted = MTLComputePipelineDescriptor::new();
    wanted.setLabel(Some(&NSString::from_str(&source.entry)));
    wanted.setComputeFunction(Some(&function));
    wanted.setSupportIndirectCommandBuffers(replay);
    let pipeline = device
        .newComputePipelineStateWithDescriptor_options_reflection_error(
            &wanted,
            MTLPipelineOption::None,
            None,
        )
        .map_err(log)?;
    let (most, group) = (pipeline.maxTotalThreadsPerThreadgroup(), source.group as usize);
    match most < group {
        true => Err(format!("it runs in groups of at most {most} items, {group} are needed")),
        false => Ok(pipeline),
    }
}

/// Bytes as Metal takes them.
pub(super) fn bytes_of(words: &[u64]) -> (NonNull<c_void>, usize) {
    (NonNull::from(words).cast(), size_of_val(words))
}
