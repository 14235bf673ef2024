//! CUDA objects that release themselves. Every call here is made with the device's context current on its thread
//! ([`Context::enter`]).

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::Arc;

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdeviceptr, CUevent, CUevent_flags_enum, CUfunction,
    CUfunction_attribute_enum, CUgraph, CUgraphExec, CUgraphNode, CUmodule, CUresult as Code, CUstream,
    CUstream_flags_enum,
};

use crate::drivers::common::object;

pub(super) fn ok(code: Code) -> Result<(), Code> {
    if code == Code::CUDA_SUCCESS { Ok(()) } else { Err(code) }
}

/// What `call` writes: a handle or a number, valid when it is all zeros.
pub(super) fn made<T: Copy>(call: impl FnOnce(*mut T) -> Code) -> Result<T, Code> {
    let mut v = MaybeUninit::<T>::zeroed();
    ok(call(v.as_mut_ptr()))?;
    // SAFETY: handles and numbers are valid as zeros, and the call has written one.
    Ok(unsafe { v.assume_init() })
}

/// The name of `code` and what it means.
pub(super) fn text_of(code: Code) -> String {
    // SAFETY: writes a pointer to a string that lives as long as the library.
    let meaning = made(|p| unsafe { sys::cuGetErrorString(code, p) });
    match meaning {
        // SAFETY: as above; null only if the code is unknown, which is an error already.
        Ok(p) if !p.is_null() => format!("{code:?}, {}", unsafe { CStr::from_ptr(p) }.to_string_lossy()),
        _ => format!("{code:?}"),
    }
}

/// A device's primary context: the one that the CUDA runtime and other libraries in this process use too.
pub(super) struct Context {
    device: CUdevice,
    handle: CUcontext,
}

// SAFETY: contexts may be used from any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// While it lives, the context is current on this thread; then what was before is again.
pub(super) struct Entered(PhantomData<*const ()>);

impl Context {
    pub fn new(device: CUdevice) -> Result<Arc<Context>, Code> {
        // SAFETY: the device is one of the driver's.
        let handle = made(|c| unsafe { sys::cuDevicePrimaryCtxRetain(c, device) })?;
        Ok(Arc::new(Context { device, handle }))
    }

    pub fn enter(&self) -> Result<Entered, Code> {
        // SAFETY: the context is retained; `Entered` takes it off this thread again.
        ok(unsafe { sys::cuCtxPushCurrent_v2(self.handle) })?;
        Ok(Entered(PhantomData))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: gives back what `new` took.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // SAFETY: takes off what `enter` put on this thread.
        let _ = made(|c| unsafe { sys::cuCtxPopCurrent_v2(c) });
    }
}

/// A stream: what is put into it happens in order.
pub(super) struct Stream {
    handle: CUstream,
    context: Arc<Context>,
    /// Whether memory is given out in stream order.
    pooled: bool,
}

// SAFETY: streams may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream of the context, which is current.
    pub fn new(context: &Arc<Context>, pooled: bool) -> Result<Stream, Code> {
        let flags = CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current.
        let handle = made(|s| unsafe { sys::cuStreamCreate(s, flags) })?;
        Ok(Stream { handle, context: context.clone(), pooled })
    }

    pub fn sync(&self) -> Result<(), Code> {
        // SAFETY: the stream is this value's own.
        ok(unsafe { sys::cuStreamSynchronize(self.handle) })
    }

    pub fn allocate(&self, bytes: usize) -> Result<CUdeviceptr, Code> {
        made(|p| match self.pooled {
            // SAFETY: the context is current and the stream this value's own.
            true => unsafe { sys::cuMemAllocAsync(p, bytes, self.handle) },
            // SAFETY: the context is current.
            false => unsafe { sys::cuMemAlloc_v2(p, bytes) },
        })
    }

    /// Gives memory back after everything put into the stream before.
    pub fn free(&self, memory: CUdeviceptr) -> Result<(), Code> {
        ok(match self.pooled {
            // SAFETY: `memory` is from `allocate` and given back once.
            true => unsafe { sys::cuMemFreeAsync(memory, self.handle) },
            // SAFETY: as above; this call waits for the device.
            false => unsafe { sys::cuMemFree_v2(memory) },
        })
    }

    /// Copies to the device.
    ///
    /// # Safety
    /// `to` has `bytes` bytes; `from` stays as it is until the copy has ended.
    pub unsafe fn upload(&self, to: CUdeviceptr, from: *const u8, bytes: usize) -> Result<(), Code> {
        // SAFETY: the caller's.
        ok(unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, self.handle) })
    }

    /// Copies from the device.
    ///
    /// # Safety
    /// `from` has `bytes` bytes; `to` is there and left alone until the copy has ended.
    pub unsafe fn download(&self, to: *mut u8, from: CUdeviceptr, bytes: usize) -> Result<(), Code> {
        // SAFETY: the caller's.
        ok(unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast(), from, bytes, self.handle) })
    }

    /// Sets memory to zero.
    ///
    /// # Safety
    /// `at` has `bytes` bytes.
    pub unsafe fn zero(&self, at: CUdeviceptr, bytes: usize) -> Result<(), Code> {
        // SAFETY: the caller's.
        ok(unsafe { sys::cuMemsetD8Async(at, 0, bytes, self.handle) })
    }

    pub fn record(&self, event: &Event) -> Result<(), Code> {
        // SAFETY: both are of the current context.
        ok(unsafe { sys::cuEventRecord(event.0, self.handle) })
    }

    /// Runs a graph.
    ///
    /// # Safety
    /// The memory that its kernels use is there, or given back in stream order.
    pub unsafe fn launch(&self, exec: &Exec) -> Result<(), Code> {
        // SAFETY: the caller's.
        ok(unsafe { sys::cuGraphLaunch(exec.0, self.handle) })
    }

    /// Brings a graph to the device ahead of its first run.
    pub fn prepare(&self, exec: &Exec) -> Result<(), Code> {
        // SAFETY: both are of the current context.
        ok(unsafe { sys::cuGraphUpload(exec.0, self.handle) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let entered = self.context.enter();
        // SAFETY: the stream is this value's own; what is in it still ends.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.handle) };
        drop(entered);
    }
}

object!(
    /// An event.
    Event CUevent, sys::cuEventDestroy_v2
);
object!(
    /// A loaded module.
    Module CUmodule, sys::cuModuleUnload
);
object!(
    /// A graph: kernels and what each waits for.
    Graph CUgraph, sys::cuGraphDestroy
);
object!(
    /// A graph that can run. One that runs is let go of when it has ended.
    Exec CUgraphExec, sys::cuGraphExecDestroy
);
object!(
    /// Host memory that the device copies from and to while the host goes on.
    Pinned *mut c_void, sys::cuMemFreeHost
);

impl Event {
    pub fn new(timed: bool) -> Result<Event, Code> {
        let flags = match timed {
            true => CUevent_flags_enum::CU_EVENT_DEFAULT,
            false => CUevent_flags_enum::CU_EVENT_DISABLE_TIMING,
        };
        // SAFETY: the context is current.
        made(|e| unsafe { sys::cuEventCreate(e, flags as u32) }).map(Event)
    }

    /// Whether what was recorded last has ended; so it is for an event never recorded.
    pub fn ended(&self) -> bool {
        // SAFETY: the event is this value's own.
        unsafe { sys::cuEventQuery(self.0) == Code::CUDA_SUCCESS }
    }

    pub fn wait(&self) -> Result<(), Code> {
        // SAFETY: as above.
        ok(unsafe { sys::cuEventSynchronize(self.0) })
    }

    /// Milliseconds from `start` to this event; both have ended.
    pub fn since(&self, start: &Event) -> Result<f32, Code> {
        // SAFETY: both are events of the current context.
        made(|t| unsafe { sys::cuEventElapsedTime_v2(t, start.0, self.0) })
    }
}

impl Pinned {
    pub fn new(bytes: usize) -> Result<Pinned, Code> {
        // SAFETY: the context is current.
        made(|p| unsafe { sys::cuMemAllocHost_v2(p, bytes) }).map(Pinned)
    }
}

impl Module {
    /// Loads machine code, which is whole.
    pub fn new(cubin: &[u8]) -> Result<Module, Code> {
        // SAFETY: the image is a whole ELF file, as NVRTC gave it.
        made(|m| unsafe { sys::cuModuleLoadData(m, cubin.as_ptr().cast()) }).map(Module)
    }

    pub fn function(&self, entry: &CStr) -> Result<CUfunction, Code> {
        // SAFETY: the module is this value's own.
        made(|f| unsafe { sys::cuModuleGetFunction(f, self.0, entry.as_ptr()) })
    }

    /// Lets launches of a function of this module bring `bytes` bytes of shared memory.
    pub fn allow_shared(&self, function: CUfunction, bytes: u32) -> Result<(), Code> {
        if bytes == 0 {
            return Ok(());
        }
        let what = CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function is of this module.
        ok(unsafe { sys::cuFuncSetAttribute(function, what, bytes as i32) })
    }
}

impl Graph {
    pub fn new() -> Result<Graph, Code> {
        // SAFETY: nothing but the place for the handle matters.
        made(|g| unsafe { sys::cuGraphCreate(g, 0) }).map(Graph)
    }

    /// Adds the record of an event after the nodes `after`.
    pub fn record(&self, after: &[CUgraphNode], event: &Event) -> Result<CUgraphNode, Code> {
        let (first, n) = (after.as_ptr(), after.len());
        // SAFETY: the nodes are of this graph; the event outlives its runs with the run that made the graph.
        made(|node| unsafe { sys::cuGraphAddEventRecordNode(node, self.0, first, n, event.0) })
    }

    pub fn instantiate(&self) -> Result<Exec, Code> {
        // SAFETY: the graph is this value's own and whole.
        made(|e| unsafe { sys::cuGraphInstantiateWithFlags(e, self.0, 0) }).map(Exec)
    }
}
