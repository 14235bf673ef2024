//! OpenCL 1.2 and later, its loader opened at run time. One in-order queue; a segment is its launches, enqueued anew by
//! every run.

mod device;
mod objects;

use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cl3::command_queue as queue;
use cl3::error_codes::{
    CL_INVALID_KERNEL, CL_INVALID_MEM_OBJECT, CL_INVALID_VALUE, CL_MEM_OBJECT_ALLOCATION_FAILURE,
    CL_OUT_OF_RESOURCES, error_text,
};
use cl3::kernel::set_kernel_arg;
use cl3::types::{CL_FALSE, CL_TRUE, cl_device_id, cl_int, cl_uint};

use super::common;
use crate::driver::{
    BufferId, DeviceInfo, Driver, KernelId, KernelSource, SegmentId, StepTime, Submission, TicketId,
};
use crate::error::GpuError;
use crate::launch::{Launch, Span};
use objects::{Context, Event, Kernel, Memory, Program, Queue};

/// An OpenCL device.
pub struct OpenCl {
    info: DeviceInfo,
    device: cl_device_id,
    context: Context,
    queue: Queue,
    state: Mutex<State>,
}

// SAFETY: a device id is a handle of the OpenCL runtime, which is thread-safe but for setting arguments of one kernel;
// that happens under the lock of `state`.
unsafe impl Send for OpenCl {}
// SAFETY: as above.
unsafe impl Sync for OpenCl {}

type State = common::State<Memory, (Program, Kernel), Vec<Launch>, Pending>;

/// A submitted run: host memory that the device may still read or write, and the events that end it.
struct Pending {
    done: Event,
    launches: Vec<(u32, Event)>,
    downloads: Vec<u8>,
    /// Held until the run has ended: the upload is read from it.
    _upload: Vec<u8>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        // The device must not touch memory that is gone. What failed has been reported, or nobody wants to know.
        let _ = self.done.wait();
    }
}

/// The names of the devices there are, by the numbers that [`OpenCl::open`] takes.
///
/// # Errors
/// [`GpuError::Library`] without an OpenCL loader.
pub fn devices() -> Result<Vec<DeviceInfo>, GpuError> {
    Ok(device::all()?.into_iter().map(|(_, d)| device::info(d)).collect())
}

impl OpenCl {
    /// Opens device `index` of [`devices`].
    ///
    /// # Errors
    /// [`GpuError::Library`], [`GpuError::NoDevice`], [`GpuError::Device`] if it cannot be opened.
    pub fn open(index: usize) -> Result<Arc<OpenCl>, GpuError> {
        let all = device::all()?;
        let Some((platform, device)) = all.get(index).copied() else {
            return Err(GpuError::NoDevice { api: "opencl", index, count: all.len() });
        };
        let info = device::info(device);
        let failed = |code| failure(&info, "opening it", code);
        let context = Context::new(platform, device).map_err(failed)?;
        let queue = Queue::new(&context, device).map_err(failed)?;
        Ok(Arc::new(OpenCl { device, context, queue, state: Mutex::default(), info }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The maps are whole after every call; a panic elsewhere does not make them wrong.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, what: &'static str) -> impl Fn(cl_int) -> GpuError + '_ {
        move |code| failure(&self.info, what, code)
    }

    /// Sets the arguments of a launch and enqueues it.
    fn enqueue(&self, state: &State, l: &Launch) -> Result<Event, cl_int> {
        let Some((_, kernel)) = state.kernel(l.kernel) else {
            return Err(CL_INVALID_KERNEL);
        };
        let argument = |i: usize, size: usize, value: *const std::ffi::c_void| {
            // SAFETY: `value` points to `size` bytes, a buffer handle or a number, as the kernel's signature has it.
            unsafe { set_kernel_arg(kernel.0, i as cl_uint, size, value) }
        };
        for (i, b) in l.buffers.iter().chain([&l.params.buffer]).enumerate() {
            let Some(memory) = state.buffer(*b) else {
                return Err(CL_INVALID_MEM_OBJECT);
            };
            argument(i, size_of_val(&memory.0), (&raw const memory.0).cast())?;
        }
        let at = l.params.offset as u32;
        argument(l.buffers.len() + 1, size_of::<u32>(), (&raw const at).cast())?;
        let (group, items) = (l.group as usize, l.grid as usize * l.group as usize);
        let none = std::ptr::null();
        // SAFETY: the kernel has all its arguments; the arrays have one entry each.
        unsafe {
            queue::enqueue_nd_range_kernel(
                self.queue.0,
                kernel.0,
                1,
                none,
                &items,
                &group,
                0,
                std::ptr::null(),
            )
        }
        .map(Event)
    }
}

fn failure(info: &DeviceInfo, what: &str, code: cl_int) -> GpuError {
    let why = error_text(code).to_owned();
    GpuError::Device { device: info.name.clone(), what: what.into(), why }
}

impl Driver for OpenCl {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocated(&self) -> u64 {
        self.lock().allocated()
    }

    fn allocate(&self, what: &str, bytes: u64) -> Result<BufferId, GpuError> {
        let info = &self.info;
        let mut state = self.lock();
        let size = state.room(info, what, bytes)?;
        let memory = Memory::new(&self.context, size as usize).map_err(|code| match code {
            CL_MEM_OBJECT_ALLOCATION_FAILURE | CL_OUT_OF_RESOURCES => state.full(info, what, bytes),
            code => failure(info, "allocating a buffer", code),
        })?;
        Ok(state.add_buffer(memory, size))
    }

    fn free(&self, buffer: BufferId) {
        // The runtime keeps the memory until the commands that were enqueued before have ended.
        let memory = self.lock().remove_buffer(buffer);
        drop(memory);
    }

    fn write(&self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<(), GpuError> {
        let state = self.lock();
        let memory = state.memory(&self.info, Span { buffer, offset, bytes: bytes.len() as u64 })?;
        let (at, n) = (offset as usize, bytes.len());
        // SAFETY: a blocking write of `n` bytes from `bytes` into a range that was checked.
        unsafe {
            let from = bytes.as_ptr().cast();
            queue::enqueue_write_buffer(self.queue.0, memory.0, CL_TRUE, at, n, from, 0, std::ptr::null())
        }
        .map(|e| drop(Event(e)))
        .map_err(self.failed("a write"))
    }

    fn read(&self, buffer: BufferId, offset: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        let state = self.lock();
        let memory = state.memory(&self.info, Span { buffer, offset, bytes: bytes.len() as u64 })?;
        let (at, n) = (offset as usize, bytes.len());
        // SAFETY: a blocking read of `n` bytes into `bytes` from a range that was checked.
        unsafe {
            let to = bytes.as_mut_ptr().cast();
            queue::enqueue_read_buffer(self.queue.0, memory.0, CL_TRUE, at, n, to, 0, std::ptr::null())
        }
        .map(|e| drop(Event(e)))
        .map_err(self.failed("a read"))
    }

    fn zero(&self, span: Span) -> Result<(), GpuError> {
        let state = self.lock();
        let memory = state.memory(&self.info, span)?;
        if span.bytes == 0 {
            return Ok(());
        }
        let (at, n, zero) = (span.offset as usize, span.bytes as usize, 0u8);
        // SAFETY: the pattern is copied by the call; the range was checked.
        unsafe {
            let pattern = (&raw const zero).cast();
            queue::enqueue_fill_buffer(self.queue.0, memory.0, pattern, 1, at, n, 0, std::ptr::null())
        }
        .map(|e| drop(Event(e)))
        .map_err(self.failed("clearing a buffer"))
    }

    fn build(&self, source: &KernelSource) -> Result<KernelId, GpuError> {
        let bad = |log: String| GpuError::Build {
            device: self.info.name.clone(),
            kernel: source.entry.clone(),
            log,
        };
        let entry = CString::new(source.entry.as_str()).map_err(|e| bad(e.to_string()))?;
        let program = Program::from_source(&self.context, self.device, &source.text).map_err(bad)?;
        let kernel = Kernel::new(&program, &entry).map_err(self.failed("making a kernel"))?;
        Ok(self.lock().add_kernel((program, kernel), source))
    }

    fn load(&self, source: &KernelSource, binary: &[u8]) -> Option<KernelId> {
        let entry = CString::new(source.entry.as_str()).ok()?;
        let program = Program::from_binary(&self.context, self.device, binary).ok()?;
        let kernel = Kernel::new(&program, &entry).ok()?;
        Some(self.lock().add_kernel((program, kernel), source))
    }

    fn binary(&self, kernel: KernelId) -> Option<Vec<u8>> {
        self.lock().kernel(kernel)?.0.binary()
    }

    fn encode(&self, launches: &[Launch]) -> Result<SegmentId, GpuError> {
        let mut state = self.lock();
        state.check(&self.info, launches)?;
        Ok(state.add_segment(launches.to_vec()))
    }

    fn release(&self, segment: SegmentId) {
        let launches = self.lock().remove_segment(segment);
        drop(launches);
    }

    fn submit(&self, run: &Submission) -> Result<TicketId, GpuError> {
        let failed = self.failed("a run");
        let mut state = self.lock();
        let mut upload = Vec::new();
        let total: u64 = run.downloads.iter().map(|s| s.bytes).sum();
        let mut downloads = vec![0u8; total as usize];
        let mut launches = Vec::new();
        let none = std::ptr::null();
        if let Some(u) = run.upload {
            upload.extend_from_slice(u.bytes);
            let memory = state.memory(
                &self.info,
                Span { buffer: u.buffer, offset: u.offset, bytes: upload.len() as u64 },
            )?;
            let (at, n, from) = (u.offset as usize, upload.len(), upload.as_ptr().cast());
            // SAFETY: `upload` lives, unmoved on the heap, until the run has ended; the range was checked.
            unsafe { queue::enqueue_write_buffer(self.queue.0, memory.0, CL_FALSE, at, n, from, 0, none) }
                .map(|e| drop(Event(e)))
                .map_err(&failed)?;
        }
        let result = self.enqueue_rest(&state, run, &mut launches, &mut downloads);
        // Whatever was enqueued must end before the memory it uses may go, so the marker comes even after a failure.
        // SAFETY: no wait list: the marker waits for everything before it.
        let done = unsafe { queue::enqueue_marker_with_wait_list(self.queue.0, 0, none) }
            .map(Event)
            .map_err(&failed)?;
        let pending = Pending { done, launches, downloads, _upload: upload };
        result.map_err(&failed)?;
        queue::flush(self.queue.0).map_err(&failed)?;
        Ok(state.add_ticket(pending))
    }

    fn wait(&self, ticket: TicketId, output: &mut [u8]) -> Result<Vec<StepTime>, GpuError> {
        let pending = self.lock().take_ticket(&self.info, ticket)?;
        pending.done.wait().map_err(self.failed("a run"))?;
        common::copy_results(&self.info, &pending.downloads, output)?;
        let start = pending.launches.first().map_or(0, |(_, e)| e.times().0);
        let time = |(step, e): &(u32, Event)| {
            let at = |t: u64| Duration::from_nanos(t.saturating_sub(start));
            let (from, to) = e.times();
            StepTime { step: *step, start: at(from), end: at(to) }
        };
        Ok(pending.launches.iter().map(time).collect())
    }

    fn forget(&self, ticket: TicketId) {
        let pending = self.lock().take_ticket(&self.info, ticket);
        drop(pending);
    }
}

impl OpenCl {
    /// The launches and downloads of a run.
    fn enqueue_rest(
        &self,
        state: &State,
        run: &Submission,
        launches: &mut Vec<(u32, Event)>,
        downloads: &mut [u8],
    ) -> Result<(), cl_int> {
        for id in run.segments {
            let all = state.segment(&self.info, *id).map_err(|_| CL_INVALID_VALUE)?;
            for l in all {
                let event = self.enqueue(state, l)?;
                if run.timed {
                    launches.push((l.step, event));
                }
            }
        }
        let mut rest = downloads;
        for s in run.downloads {
            let (to, next) = rest.split_at_mut(s.bytes as usize);
            rest = next;
            if to.is_empty() {
                continue;
            }
            let memory = state.memory(&self.info, *s).map_err(|_| CL_INVALID_VALUE)?;
            let (at, n, to) = (s.offset as usize, to.len(), to.as_mut_ptr().cast());
            // SAFETY: the run's host memory lives, unmoved on the heap, until it has ended; the range was checked.
            unsafe {
                queue::enqueue_read_buffer(self.queue.0, memory.0, CL_FALSE, at, n, to, 0, std::ptr::null())
            }
            .map(|e| drop(Event(e)))?;
        }
        Ok(())
    }
}

impl Drop for OpenCl {
    fn drop(&mut self) {
        // Commands in flight use objects of this driver; an error here has nobody to go to.
        let _ = queue::finish(self.queue.0);
    }
}
