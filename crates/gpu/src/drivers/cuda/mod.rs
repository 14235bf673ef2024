//! CUDA, its libraries opened at run time. One stream; a segment is a graph made once, and a run is one copy in, a graph
//! launch for each segment and the copies out. Kernels read their parameters from device memory, so that one graph serves
//! all sizes.

mod device;
mod graph;
mod nvrtc;
mod objects;

use std::collections::HashMap;
use std::ffi::CString;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{CUdevice_attribute_enum as A, CUdeviceptr, CUfunction, CUresult as Code};

use super::common;
use super::slots::{self, Slots};
use crate::driver::{
    BufferId, DeviceInfo, Driver, KernelId, KernelSource, SegmentId, StepTime, Submission, TicketId,
};
use crate::error::GpuError;
use crate::launch::{self, Launch, Span};
pub use nvrtc::Compiler;

use graph::{Prepared, Segment, Timed};
use objects::{Context, Entered, Event, Module, Pinned, Stream, text_of};

/// Alignment of a run's results in its slot: what copies like.
const SLOT_ALIGN: usize = 256;

/// A CUDA device.
pub struct Cuda {
    info: DeviceInfo,
    compiler: nvrtc::Compiler,
    arch: String,
    /// Whether kernels may start while those before them run.
    early: bool,
    context: Arc<Context>,
    stream: Stream,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    state: common::State<CUdeviceptr, Kernel, Segment, Pending>,
    slots: Slots<Slot>,
    /// How many buffers were freed.
    freed: u64,
}

/// A kernel; its module is held for it.
struct Kernel {
    function: CUfunction,
    /// Bytes of shared memory that a launch brings.
    shared: u32,
    cubin: Vec<u8>,
    _module: Module,
}

impl Kernel {
    /// The kernel of `source` in the machine code `cubin`; the context is current.
    fn new(source: &KernelSource, cubin: Vec<u8>) -> Result<Kernel, Code> {
        let entry = CString::new(source.entry.as_str()).map_err(|_| Code::CUDA_ERROR_INVALID_VALUE)?;
        let module = Module::new(&cubin)?;
        let function = module.function(&entry)?;
        module.allow_shared(function, source.shared)?;
        Ok(Kernel { function, shared: source.shared, cubin, _module: module })
    }
}

// SAFETY: a function's handle may be used from any thread.
unsafe impl Send for Kernel {}

/// Host memory of one run, and the event that ends it.
struct Slot {
    memory: Pinned,
    event: Event,
}

/// A submitted run.
struct Pending {
    slot: Slot,
    capacity: usize,
    /// Where its results lie in the slot, and how many bytes there are.
    results: (usize, usize),
    timed: Vec<Timed>,
}

/// The driver's state, with the device's context current on this thread.
struct Guard<'a> {
    inner: MutexGuard<'a, Inner>,
    /// Let go of after the state.
    _entered: Entered,
}

impl Deref for Guard<'_> {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }
}

/// The devices there are, by the numbers that [`Cuda::open`] takes.
///
/// # Errors
/// [`GpuError::Library`] or [`GpuError::TooOld`] without a driver or NVRTC.
pub fn devices() -> Result<Vec<DeviceInfo>, GpuError> {
    let all = device::all()?;
    let compiler = nvrtc::Compiler::new()?;
    Ok(all.into_iter().map(|d| device::info(d, &compiler)).collect())
}

fn failure(info: &DeviceInfo, what: &str, code: Code) -> GpuError {
    GpuError::Device { device: info.name.clone(), what: what.into(), why: text_of(code) }
}

impl Cuda {
    /// Opens device `index` of [`devices`].
    ///
    /// # Errors
    /// [`GpuError::Library`] or [`GpuError::TooOld`] without a driver or NVRTC, [`GpuError::NoDevice`],
    /// [`GpuError::Device`] if it cannot be opened.
    pub fn open(index: usize) -> Result<Arc<Cuda>, GpuError> {
        let all = device::all()?;
        let compiler = nvrtc::Compiler::new()?;
        let Some(device) = all.get(index).copied() else {
            return Err(GpuError::NoDevice { api: "cuda", index, count: all.len() });
        };
        let info = device::info(device, &compiler);
        let capability = device::capability(device);
        let (arch, early) = (compiler.arch(capability)?, capability >= 90);
        let failed = |code| failure(&info, "opening it", code);
        let context = Context::new(device).map_err(failed)?;
        let entered = context.enter().map_err(failed)?;
        let pooled = device::number(device, A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) != 0;
        let stream = Stream::new(&context, pooled).map_err(failed)?;
        drop(entered);
        Ok(Arc::new(Cuda { compiler, arch, early, context, stream, inner: Mutex::default(), info }))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // The maps are whole after every call; a panic elsewhere does not make them wrong.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self) -> Result<Entered, GpuError> {
        self.context.enter().map_err(self.failed("making it current"))
    }

    fn lock(&self) -> Result<Guard<'_>, GpuError> {
        let entered = self.enter()?;
        Ok(Guard { inner: self.inner(), _entered: entered })
    }

    fn failed(&self, what: &'static str) -> impl Fn(Code) -> GpuError + '_ {
        move |code| failure(&self.info, what, code)
    }

    /// Address of the first byte of `span`, which lies inside its buffer.
    fn address(&self, inner: &Inner, span: Span) -> Result<CUdeviceptr, GpuError> {
        Ok(*inner.state.memory(&self.info, span)? + span.offset)
    }

    /// A launch with its kernel and buffers looked up; they are there.
    fn prepare(&self, inner: &Inner, l: &Launch) -> Result<Prepared, GpuError> {
        let Some(kernel) = inner.state.kernel(l.kernel) else {
            return Err(common::invalid(&self.info, format!("there is no kernel {}", l.kernel.0)));
        };
        let start = |b: &BufferId| self.address(inner, Span { buffer: *b, offset: 0, bytes: 0 });
        let pointers = l.buffers.iter().chain([&l.params.buffer]).map(start).collect::<Result<_, _>>()?;
        let (function, shared, at) = (kernel.function, kernel.shared, l.params.offset as u32);
        Ok(Prepared { step: l.step, function, shared, grid: l.grid, group: l.group, pointers, at })
    }

    /// Refuses a segment that uses a buffer which is gone: its graph holds addresses.
    fn check_segment(&self, inner: &mut Inner, id: SegmentId) -> Result<(), GpuError> {
        let segment = inner.state.segment(&self.info, id)?;
        if segment.checked == inner.freed {
            return Ok(());
        }
        if let Some(b) = segment.buffers.iter().find(|b| inner.state.buffer(**b).is_none()) {
            return Err(common::invalid(
                &self.info,
                format!("segment {} uses the freed buffer {}", id.0, b.0),
            ));
        }
        let freed = inner.freed;
        if let Some(s) = inner.state.segment_mut(id) {
            s.checked = freed;
        }
        Ok(())
    }

    /// A slot for `bytes` bytes whose run, if it had one, has ended.
    fn slot(&self, inner: &mut Inner, bytes: usize) -> Result<(usize, Slot), Code> {
        if let Some(found) = inner.slots.take(bytes, |s| s.event.ended()) {
            return Ok(found);
        }
        let capacity = slots::capacity(bytes);
        Ok((capacity, Slot { memory: Pinned::new(capacity)?, event: Event::new(false)? }))
    }

    /// Puts a run into the stream: its upload from the slot, its segments, its downloads into the slot, the event.
    fn enqueue(
        &self,
        inner: &Inner,
        run: &Submission,
        slot: &Slot,
        upload: Option<CUdeviceptr>,
        downloads: &[(CUdeviceptr, usize)],
        results: usize,
    ) -> Result<Vec<Timed>, Code> {
        let host = slot.memory.0.cast::<u8>();
        if let (Some(to), Some(u)) = (upload, &run.upload) {
            // SAFETY: the slot is this run's own and large enough; the range of the buffer was checked.
            unsafe {
                host.copy_from_nonoverlapping(u.bytes.as_ptr(), u.bytes.len());
                self.stream.upload(to, host, u.bytes.len())?;
            }
        }
        let mut timed = Vec::new();
        for id in run.segments {
            let segment = inner.state.segment(&self.info, *id).map_err(|_| Code::CUDA_ERROR_INVALID_VALUE)?;
            if run.timed && !segment.launches.is_empty() {
                let t = Timed::new(&segment.launches)?;
                // SAFETY: the buffers are there; the graph lives until the run has been waited for or has ended.
                unsafe { self.stream.launch(&t.exec)? };
                timed.push(t);
            } else {
                // SAFETY: the buffers are there.
                unsafe { graph::run(&self.stream, segment)? };
            }
        }
        let mut at = results;
        for (from, bytes) in downloads {
            // SAFETY: the slot is this run's own and large enough; the range of the buffer was checked.
            unsafe { self.stream.download(host.add(at), *from, *bytes)? };
            at += bytes;
        }
        self.stream.record(&slot.event)?;
        Ok(timed)
    }

    /// Takes the slot of a run back.
    fn give(inner: &mut Inner, capacity: usize, slot: Slot) {
        let surplus = inner.slots.give(capacity, slot, |s| s.event.ended());
        drop(surplus);
    }
}

impl Driver for Cuda {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocated(&self) -> u64 {
        self.inner().state.allocated()
    }

    fn allocate(&self, what: &str, bytes: u64) -> Result<BufferId, GpuError> {
        let info = &self.info;
        let mut inner = self.lock()?;
        let size = inner.state.room(info, what, bytes)?;
        let memory = self.stream.allocate(size as usize).map_err(|code| match code {
            Code::CUDA_ERROR_OUT_OF_MEMORY => inner.state.full(info, what, bytes),
            code => failure(info, "allocating a buffer", code),
        })?;
        Ok(inner.state.add_buffer(memory, size))
    }

    fn free(&self, buffer: BufferId) {
        let Ok(mut inner) = self.lock() else { return };
        if let Some(memory) = inner.state.remove_buffer(buffer) {
            inner.freed += 1;
            // A failure leaks it, or the device is lost and all memory with it.
            let _ = self.stream.free(memory);
        }
    }

    fn write(&self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<(), GpuError> {
        let inner = self.lock()?;
        let to = self.address(&inner, Span { buffer, offset, bytes: bytes.len() as u64 })?;
        // SAFETY: the range was checked, and the call returns only when the copy has ended.
        let copied = unsafe { self.stream.upload(to, bytes.as_ptr(), bytes.len()) };
        copied.and(self.stream.sync()).map_err(self.failed("a write"))
    }

    fn read(&self, buffer: BufferId, offset: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        let inner = self.lock()?;
        let from = self.address(&inner, Span { buffer, offset, bytes: bytes.len() as u64 })?;
        // SAFETY: as in `write`.
        let copied = unsafe { self.stream.download(bytes.as_mut_ptr(), from, bytes.len()) };
        copied.and(self.stream.sync()).map_err(self.failed("a read"))
    }

    fn zero(&self, span: Span) -> Result<(), GpuError> {
        let inner = self.lock()?;
        let at = self.address(&inner, span)?;
        if span.bytes == 0 {
            return Ok(());
        }
        // SAFETY: the range was checked.
        unsafe { self.stream.zero(at, span.bytes as usize) }.map_err(self.failed("clearing a buffer"))
    }

    fn build(&self, source: &KernelSource) -> Result<KernelId, GpuError> {
        let bad = |log: String| {
            let (device, kernel) = (self.info.name.clone(), source.entry.clone());
            GpuError::Build { device, kernel, log }
        };
        let _entered = self.enter()?;
        let cubin = self.compiler.build(&self.arch, &source.entry, &source.text).map_err(bad)?;
        let kernel = Kernel::new(source, cubin).map_err(|code| bad(text_of(code)))?;
        Ok(self.inner().state.add_kernel(kernel, source))
    }

    fn load(&self, source: &KernelSource, binary: &[u8]) -> Option<KernelId> {
        let _entered = self.enter().ok()?;
        let kernel = Kernel::new(source, binary.to_vec()).ok()?;
        Some(self.inner().state.add_kernel(kernel, source))
    }

    fn binary(&self, kernel: KernelId) -> Option<Vec<u8>> {
        self.inner().state.kernel(kernel).map(|k| k.cubin.clone())
    }

    fn encode(&self, launches: &[Launch]) -> Result<SegmentId, GpuError> {
        let mut inner = self.lock()?;
        inner.state.check(&self.info, launches)?;
        let prepared = launches.iter().map(|l| self.prepare(&inner, l)).collect::<Result<Vec<_>, _>>()?;
        let failed = self.failed("encoding launches");
        let exec = graph::encode(&prepared, &launch::dependencies(launches), self.early).map_err(&failed)?;
        if let Some(exec) = &exec {
            self.stream.prepare(exec).map_err(&failed)?;
        }
        let of = |l: &Launch| l.buffers.iter().copied().chain([l.params.buffer]).collect::<Vec<_>>();
        let unique: HashMap<BufferId, ()> = launches.iter().flat_map(of).map(|b| (b, ())).collect();
        let (buffers, checked) = (unique.into_keys().collect(), inner.freed);
        Ok(inner.state.add_segment(Segment { exec, launches: prepared, buffers, checked }))
    }

    fn release(&self, segment: SegmentId) {
        let Ok(mut inner) = self.lock() else { return };
        // The driver keeps what runs until it has ended.
        let segment = inner.state.remove_segment(segment);
        drop(segment);
    }

    fn submit(&self, run: &Submission) -> Result<TicketId, GpuError> {
        let failed = self.failed("a run");
        let mut inner = self.lock()?;
        // Everything that the caller can get wrong is looked at before anything is put into the stream.
        let given = run.upload.filter(|u| !u.bytes.is_empty());
        let span = |u: crate::driver::Upload| {
            self.address(&inner, Span { buffer: u.buffer, offset: u.offset, bytes: u.bytes.len() as u64 })
        };
        let upload = given.map(span).transpose()?;
        let full = run.downloads.iter().filter(|s| s.bytes > 0);
        let place = |s: &Span| Ok((self.address(&inner, *s)?, s.bytes as usize));
        let downloads = full.map(place).collect::<Result<Vec<_>, GpuError>>()?;
        for id in run.segments {
            self.check_segment(&mut inner, *id)?;
        }
        let from = given.map_or(0, |u| u.bytes.len().next_multiple_of(SLOT_ALIGN));
        let results = (from, downloads.iter().map(|(_, n)| n).sum::<usize>());
        let (capacity, slot) = self.slot(&mut inner, from + results.1).map_err(&failed)?;
        match self.enqueue(&inner, run, &slot, upload, &downloads, from) {
            Ok(timed) => Ok(inner.state.add_ticket(Pending { slot, capacity, results, timed })),
            Err(code) => {
                // The slot may go only when nothing that was put into the stream uses it.
                let _ = self.stream.sync();
                Err(failed(code))
            }
        }
    }

    fn wait(&self, ticket: TicketId, output: &mut [u8]) -> Result<Vec<StepTime>, GpuError> {
        let failed = self.failed("a run");
        let _entered = self.enter()?;
        // Not under the lock: others go on meanwhile.
        let pending = self.inner().state.take_ticket(&self.info, ticket)?;
        pending.slot.event.wait().map_err(&failed)?;
        let (from, bytes) = pending.results;
        // SAFETY: the run has ended, and the slot holds its results there.
        let results =
            unsafe { std::slice::from_raw_parts(pending.slot.memory.0.cast::<u8>().add(from), bytes) };
        let copied = common::copy_results(&self.info, results, output);
        let times = graph::times(&pending.timed).map_err(&failed);
        Cuda::give(&mut self.inner(), pending.capacity, pending.slot);
        copied.and(times)
    }

    fn forget(&self, ticket: TicketId) {
        let Ok(mut inner) = self.lock() else { return };
        if let Ok(pending) = inner.state.take_ticket(&self.info, ticket) {
            if !pending.timed.is_empty() {
                // Its events are in a graph that runs.
                let _ = pending.slot.event.wait();
            }
            Cuda::give(&mut inner, pending.capacity, pending.slot);
        }
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // What runs uses objects of this driver; an error here has nobody to go to.
        let entered = self.context.enter();
        let _ = self.stream.sync();
        let inner = std::mem::take(&mut *self.inner());
        for memory in inner.state.buffers() {
            let _ = self.stream.free(*memory);
        }
        drop(inner);
        drop(entered);
    }
}
