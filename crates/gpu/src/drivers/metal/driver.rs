//! The driver: [`Driver`] over one device and one command queue.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use objc2::rc::autoreleasepool;
use objc2_metal::MTLDevice;

use super::device;
use super::encode::{Part, Queue, Run, Segment, mover};
use super::objects::{self, Buffer, Committed, Counters, Device, Pipeline};
use super::plan::{self, Batch, Command, Layout, Way};
use super::times::{self, Samples};
use super::vendor;
use crate::driver::{
    BufferId, DeviceInfo, Driver, KernelId, KernelSource, SegmentId, StepTime, Submission, TicketId, Upload,
};
use crate::drivers::common::{self, invalid};
use crate::drivers::slots::{self, Slots};
use crate::error::GpuError;
use crate::launch::{Launch, Span, VendorCall};

pub(super) type State = common::State<Buffer, Pipeline, Arc<Segment>, Pending>;

/// Command buffers that may be in flight; `submit` waits for the first to end where there are more.
const MOST_IN_FLIGHT: usize = 256;

/// A Metal device.
pub struct Metal {
    pub(super) info: DeviceInfo,
    pub(super) device: Device,
    queue: Queue,
    way: Way,
    /// The kernel that moves single bytes, built when it is first needed.
    mover: OnceLock<Result<Pipeline, String>>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    state: State,
    slots: Slots<Slot>,
    /// What was committed and has not been seen to have ended.
    running: Vec<Running>,
    /// The first failure that was seen since the last read.
    fault: Option<String>,
}

/// Memory that host and device see, for what runs bring and leave.
struct Slot {
    memory: Buffer,
    /// The last command buffers that used it.
    used: Vec<Committed>,
}

impl Slot {
    fn ended(&self) -> bool {
        self.used.iter().all(Committed::ended)
    }
}

/// A command buffer in flight. Metal keeps what a command buffer names, but not what an indirect one names: that is held here.
struct Running {
    commands: Committed,
    _hold: Arc<Hold>,
}

/// What a run uses.
#[derive(Default)]
struct Hold {
    _segments: Vec<Arc<Segment>>,
    _buffers: Vec<Buffer>,
    _counters: Option<Counters>,
}

/// A submitted run.
pub(super) struct Pending {
    commands: Vec<Part>,
    slot: Slot,
    capacity: usize,
    /// Where its results lie in the slot.
    results: Vec<(u64, u64)>,
    timed: bool,
    samples: Option<Samples>,
}

/// The devices there are, by the numbers that [`Metal::open`] takes.
///
/// # Errors
/// [`GpuError::TooOld`] before macOS 12.
pub fn devices() -> Result<Vec<DeviceInfo>, GpuError> {
    autoreleasepool(|_| Ok(device::all()?.iter().map(device::info).collect()))
}

/// A run ready to be committed.
struct Work<'a> {
    batches: &'a [Batch],
    segments: &'a [(SegmentId, Arc<Segment>)],
    samples: Option<&'a Samples>,
}

impl Metal {
    /// Opens device `index` of [`devices`].
    ///
    /// # Errors
    /// [`GpuError::TooOld`] before macOS 12, [`GpuError::NoDevice`], [`GpuError::Device`] if it cannot be opened.
    pub fn open(index: usize) -> Result<Arc<Metal>, GpuError> {
        autoreleasepool(|_| {
            let mut all = device::all()?;
            if index >= all.len() {
                return Err(GpuError::NoDevice { api: "metal", index, count: all.len() });
            }
            let device = all.swap_remove(index);
            let (info, way) = (device::info(&device), plan::way(device::abilities(&device)));
            let Some(queue) = device.newCommandQueueWithMaxCommandBufferCount(MOST_IN_FLIGHT) else {
                return Err(failure(&info, "opening it", "there is no command queue"));
            };
            let (mover, inner) = (OnceLock::new(), Mutex::default());
            Ok(Arc::new(Metal { info, device, queue, way, mover, inner }))
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // The maps are whole after every call; a panic elsewhere does not make them wrong.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, what: &'static str) -> impl Fn(String) -> GpuError + '_ {
        move |why| failure(&self.info, what, &why)
    }

    /// A slot of at least `bytes` bytes that the device has finished with.
    fn slot(&self, inner: &mut Inner, bytes: u64) -> Result<(usize, Slot), GpuError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if let Some(found) = inner.slots.take(bytes, Slot::ended) {
            return Ok(found);
        }
        let capacity = slots::capacity(bytes);
        let memory = Buffer::new(&self.device, capacity as u64, true)
            .ok_or_else(|| inner.state.full(&self.info, "inputs and outputs in flight", capacity as u64))?;
        Ok((capacity, Slot { memory, used: Vec::new() }))
    }

    /// The kernel that moves single bytes, if one of the commands needs it.
    fn mover(&self, batches: &[Batch]) -> Result<Option<&Pipeline>, String> {
        if !batches.iter().flat_map(|b| &b.commands).any(|c| matches!(c, Command::Bytes { .. })) {
            return Ok(None);
        }
        let made = self.mover.get_or_init(|| objects::build(&self.device, &mover(), false));
        made.as_ref().map(Some).map_err(Clone::clone)
    }

    /// Commits the work and notes what it uses; the slot is then in use until it has ended. After a failure nothing of it is
    /// left that runs.
    fn commit(&self, inner: &mut Inner, slot: &mut Slot, work: &Work) -> Result<Vec<Part>, String> {
        inner.sweep();
        let segments: Vec<(SegmentId, &Segment)> = work.segments.iter().map(|(id, s)| (*id, &**s)).collect();
        let run = Run {
            queue: &self.queue,
            state: &inner.state,
            slot: &slot.memory,
            segments: &segments,
            mover: self.mover(work.batches)?,
            samples: work.samples,
        };
        let (commands, done) = run.commit(work.batches);
        let uses = segments.iter().flat_map(|(_, s)| &s.uses);
        let hold = Arc::new(Hold {
            _buffers: uses.filter_map(|u| inner.state.buffer(u.buffer).cloned()).collect(),
            _segments: work.segments.iter().map(|(_, s)| s.clone()).collect(),
            _counters: work.samples.map(Samples::counters),
        });
        let running = |(_, c): &Part| Running { commands: c.clone(), _hold: hold.clone() };
        inner.running.extend(commands.iter().map(running));
        slot.used = commands.iter().map(|(_, c)| c.clone()).collect();
        if let Err(why) = done {
            inner.drain();
            return Err(why);
        }
        Ok(commands)
    }

    /// Moves bytes between the host and a range that was checked, through a slot, piece by piece; waits for each.
    fn stage(&self, inner: &mut Inner, span: Span, mut each: Staged) -> Result<(), String> {
        let mut at = 0;
        while at < span.bytes {
            let bytes = plan::STAGE.min(span.bytes - at);
            let piece = Span { offset: span.offset + at, bytes, ..span };
            let (upload, downloads) = match each {
                Staged::Write(_) => (Some(piece), vec![]),
                Staged::Read(_) => (None, vec![piece]),
            };
            let layout = plan::layout(upload, &downloads);
            let (capacity, mut slot) = self.slot(inner, layout.bytes).map_err(|e| e.to_string())?;
            let range = at as usize..(at + bytes) as usize;
            if let Staged::Write(from) = &each {
                fill(&slot, layout.upload, &from[range.clone()]);
            }
            let batches = plan::run(upload, &[], &downloads, &layout, false);
            let work = Work { batches: &batches, segments: &[], samples: None };
            let committed = self.commit(inner, &mut slot, &work);
            let ended = committed.and_then(|all| all.iter().try_for_each(|(_, c)| c.finish()));
            if let (Ok(()), Staged::Read(to)) = (&ended, &mut each) {
                copy_out(&slot, &layout.results, &mut to[range]);
            }
            inner.give(capacity, slot);
            ended?;
            at += bytes;
        }
        Ok(())
    }

    /// The upload of a run, its downloads and its segments, all of which are there.
    #[allow(clippy::type_complexity)]
    fn check(
        &self,
        inner: &Inner,
        run: &Submission,
    ) -> Result<(Option<Span>, Vec<(SegmentId, Arc<Segment>)>), GpuError> {
        let span = |u: Upload| Span { buffer: u.buffer, offset: u.offset, bytes: u.bytes.len() as u64 };
        let upload = run.upload.filter(|u| !u.bytes.is_empty()).map(span);
        for s in run.downloads.iter().chain(&upload) {
            inner.state.memory(&self.info, *s)?;
        }
        let mut segments = Vec::with_capacity(run.segments.len());
        for id in run.segments {
            let segment = inner.state.segment(&self.info, *id)?;
            if let Some(u) = segment.uses.iter().find(|u| inner.state.buffer(u.buffer).is_none()) {
                let what = format!("segment {} uses the freed buffer {}", id.0, u.buffer.0);
                return Err(invalid(&self.info, what));
            }
            segments.push((*id, segment.clone()));
        }
        Ok((upload, segments))
    }

    /// Counters for a timed run on a device that has them, unless it has too many launches.
    fn samples(&self, batches: &[Batch]) -> Result<Option<Samples>, String> {
        let steps: Vec<u32> = batches.iter().filter_map(|b| b.step).collect();
        let theirs = |c: &Command| matches!(c, Command::Graph { .. } | Command::Product { .. });
        let vendor = batches.iter().flat_map(|b| &b.commands).any(theirs);
        match plan::sampled(self.way, steps.len(), vendor) {
            true => Samples::new(&self.device, steps).map(Some),
            false => Ok(None),
        }
    }

    /// A run whose spans and segments were checked.
    fn begin(
        &self,
        inner: &mut Inner,
        run: &Submission,
        upload: Option<Span>,
        segments: &[(SegmentId, Arc<Segment>)],
    ) -> Result<Pending, GpuError> {
        let failed = self.failed("a run");
        let layout: Layout = plan::layout(upload, run.downloads);
        let shapes: Vec<_> = segments.iter().map(|(id, s)| s.shape(*id)).collect();
        let batches = plan::run(upload, &shapes, run.downloads, &layout, run.timed);
        let samples = if run.timed { self.samples(&batches).map_err(&failed)? } else { None };
        let (capacity, mut slot) = self.slot(inner, layout.bytes)?;
        if let (Some(_), Some(u)) = (upload, run.upload) {
            fill(&slot, layout.upload, u.bytes);
        }
        let work = Work { batches: &batches, segments, samples: samples.as_ref() };
        match self.commit(inner, &mut slot, &work) {
            Ok(commands) => {
                let (results, timed) = (layout.results, run.timed);
                Ok(Pending { commands, slot, capacity, results, timed, samples })
            }
            Err(why) => {
                inner.give(capacity, slot);
                Err(failed(why))
            }
        }
    }

    /// Copies out what a run left that has ended, and gives its times.
    fn results(&self, p: &Pending, output: &mut [u8]) -> Result<Vec<StepTime>, GpuError> {
        let total: u64 = p.results.iter().map(|(_, n)| n).sum();
        if total != output.len() as u64 {
            let what = format!("{total} bytes of results do not fit {}", output.len());
            return Err(invalid(&self.info, what));
        }
        copy_out(&p.slot, &p.results, output);
        match (&p.samples, p.timed) {
            (Some(samples), _) => samples.read(&self.device).map_err(self.failed("timing a run")),
            (None, true) => Ok(times::of_buffers(&p.commands)),
            (None, false) => Ok(vec![]),
        }
    }
}

/// What moves between host and device.
enum Staged<'a> {
    Write(&'a [u8]),
    Read(&'a mut [u8]),
}

pub(super) fn failure(info: &DeviceInfo, what: &str, why: &str) -> GpuError {
    GpuError::Device { device: info.name.clone(), what: what.into(), why: why.into() }
}

/// Copies `bytes` into a slot that no run uses, which is large enough.
fn fill(slot: &Slot, at: u64, bytes: &[u8]) {
    // SAFETY: slots are memory that the host sees; this one holds the layout that gave `at`, and no run uses it yet.
    unsafe {
        let to = slot.memory.host().as_ptr().add(at as usize);
        to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
    }
}

/// Copies results, one behind the other, out of a slot whose run has ended; `to` has their length.
fn copy_out(slot: &Slot, results: &[(u64, u64)], to: &mut [u8]) {
    let mut rest = to;
    for (at, bytes) in results {
        let (these, next) = rest.split_at_mut(*bytes as usize);
        rest = next;
        // SAFETY: the slot holds the layout that gave the results, the host sees it, and its run has ended.
        unsafe {
            let from = slot.memory.host().as_ptr().add(*at as usize);
            these.as_mut_ptr().copy_from_nonoverlapping(from, these.len());
        }
    }
}

impl Inner {
    /// Lets go of what ended.
    fn sweep(&mut self) {
        let (running, fault) = (&mut self.running, &mut self.fault);
        running.retain(|r| {
            let ended = r.commands.ended();
            if ended && let Err(why) = r.commands.finish() {
                fault.get_or_insert(why);
            }
            !ended
        });
    }

    /// Waits for everything that was committed.
    fn drain(&mut self) {
        for r in std::mem::take(&mut self.running) {
            if let Err(why) = r.commands.finish() {
                self.fault.get_or_insert(why);
            }
        }
    }

    /// Takes the slot of a run back.
    fn give(&mut self, capacity: usize, slot: Slot) {
        let surplus = self.slots.give(capacity, slot, Slot::ended);
        drop(surplus);
    }
}

impl Driver for Metal {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocated(&self) -> u64 {
        self.inner().state.allocated()
    }

    fn allocate(&self, what: &str, bytes: u64) -> Result<BufferId, GpuError> {
        autoreleasepool(|_| {
            let mut inner = self.inner();
            inner.sweep();
            let size = inner.state.room(&self.info, what, bytes)?;
            let memory = Buffer::new(&self.device, size, self.way.shared);
            let memory = memory.ok_or_else(|| inner.state.full(&self.info, what, bytes))?;
            Ok(inner.state.add_buffer(memory, size))
        })
    }

    fn free(&self, buffer: BufferId) {
        autoreleasepool(|_| {
            let mut inner = self.inner();
            inner.sweep();
            // Runs in flight hold it.
            drop(inner.state.remove_buffer(buffer));
        });
    }

    fn write(&self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<(), GpuError> {
        autoreleasepool(|_| {
            let mut inner = self.inner();
            let span = Span { buffer, offset, bytes: bytes.len() as u64 };
            let memory = inner.state.memory(&self.info, span)?.clone();
            if bytes.is_empty() {
                return Ok(());
            }
            if !self.way.shared {
                return self.stage(&mut inner, span, Staged::Write(bytes)).map_err(self.failed("a write"));
            }
            inner.drain();
            // SAFETY: the range was checked, the host sees the buffer, and nothing runs while the lock is held.
            unsafe {
                let to = memory.host().as_ptr().add(offset as usize);
                to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            }
            Ok(())
        })
    }

    fn read(&self, buffer: BufferId, offset: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        autoreleasepool(|_| {
            let mut inner = self.inner();
            let span = Span { buffer, offset, bytes: bytes.len() as u64 };
            let memory = inner.state.memory(&self.info, span)?.clone();
            let failed = self.failed("a read");
            inner.drain();
            if let Some(why) = inner.fault.take() {
                return Err(failed(format!("a run before it failed: {why}")));
            }
            if !self.way.shared {
                return self.stage(&mut inner, span, Staged::Read(bytes)).map_err(failed);
            }
            // SAFETY: as in `write`.
            unsafe {
                let from = memory.host().as_ptr().add(offset as usize);
                bytes.as_mut_ptr().copy_from_nonoverlapping(from, bytes.len());
            }
            Ok(())
        })
    }

    fn zero(&self, span: Span) -> Result<(), GpuError> {
        autoreleasepool(|_| {
            let mut inner = self.inner();
            inner.state.memory(&self.info, span)?;
            let commands = plan::zero(span);
            if commands.is_empty() {
                return Ok(());
            }
            let (capacity, mut slot) = self.slot(&mut inner, plan::UNIT)?;
            fill(&slot, 0, &[0; plan::UNIT as usize]);
            let batches = [Batch { step: None, commands }];
            let work = Work { batches: &batches, segments: &[], samples: None };
            let done = self.commit(&mut inner, &mut slot, &work);
            inner.give(capacity, slot);
            done.map(drop).map_err(self.failed("clearing a buffer"))
        })
    }

    fn build(&self, source: &KernelSource) -> Result<KernelId, GpuError> {
        autoreleasepool(|_| {
            let pipeline = objects::build(&self.device, source, self.way.replay).map_err(|log| {
                let (device, kernel) = (self.info.name.clone(), source.entry.clone());
                GpuError::Build { device, kernel, log }
            })?;
            Ok(self.inner().state.add_kernel(pipeline, source))
        })
    }

    fn load(&self, _: &KernelSource, _: &[u8]) -> Option<KernelId> {
        None
    }

    /// None: Metal gives compiled kernels to a file of its own only (`MTLBinaryArchive`), not as bytes. The system keeps what
    /// it compiled, too.
    fn binary(&self, _: KernelId) -> Option<Vec<u8>> {
        None
    }

    fn encode(&self, launches: &[Launch]) -> Result<SegmentId, GpuError> {
        autoreleasepool(|_| {
            let mut inner = self.inner();
            inner.state.check(&self.info, launches)?;
            let segment = Segment::new(&self.device, &inner.state, launches, self.way.replay)
                .map_err(self.failed("encoding launches"))?;
            Ok(inner.state.add_segment(Arc::new(segment)))
        })
    }

    fn vendor(&self) -> Result<(), GpuError> {
        match autoreleasepool(|_| vendor::there()) {
            true => Ok(()),
            false => {
                let hint = "MPSGraph reads parts of buffers from macOS 15 on".into();
                Err(GpuError::NoGraphs { device: self.info.name.clone(), hint })
            }
        }
    }

    fn encode_vendor(&self, call: &VendorCall) -> Result<SegmentId, GpuError> {
        autoreleasepool(|_| {
            self.vendor()?;
            let copies = call.copies.iter().flat_map(|(from, to)| [from, to]);
            for span in call.reads.iter().chain(&call.writes).chain(copies) {
                self.inner().state.memory(&self.info, *span)?;
            }
            // Not under the lock: compiling a graph may take long.
            let segment = Segment::vendor(&self.device, call)
                .map_err(self.failed("compiling a graph of the vendor's"))?;
            Ok(self.inner().state.add_segment(Arc::new(segment)))
        })
    }

    fn release(&self, segment: SegmentId) {
        autoreleasepool(|_| {
            let mut inner = self.inner();
            inner.sweep();
            // Runs in flight hold it.
            drop(inner.state.remove_segment(segment));
        });
    }

    fn submit(&self, run: &Submission) -> Result<TicketId, GpuError> {
        autoreleasepool(|_| {
            let mut inner = self.inner();
            // Everything that the caller can get wrong is looked at before anything is committed.
            let (upload, segments) = self.check(&inner, run)?;
            let pending = self.begin(&mut inner, run, upload, &segments)?;
            Ok(inner.state.add_ticket(pending))
        })
    }

    fn wait(&self, ticket: TicketId, output: &mut [u8]) -> Result<Vec<StepTime>, GpuError> {
        autoreleasepool(|_| {
            // Not under the lock: others go on meanwhile.
            let pending = self.inner().state.take_ticket(&self.info, ticket)?;
            let ends: Vec<_> = pending.commands.iter().map(|(_, c)| c.finish()).collect();
            let ended = ends.into_iter().collect::<Result<(), String>>().map_err(self.failed("a run"));
            let times = ended.and_then(|()| self.results(&pending, output));
            let mut inner = self.inner();
            inner.sweep();
            inner.give(pending.capacity, pending.slot);
            times
        })
    }

    fn forget(&self, ticket: TicketId) {
        autoreleasepool(|_| {
            let mut inner = self.inner();
            if let Ok(pending) = inner.state.take_ticket(&self.info, ticket) {
                inner.give(pending.capacity, pending.slot);
            }
            inner.sweep();
        });
    }
}

impl Drop for Metal {
    fn drop(&mut self) {
        // What runs uses objects of this driver; an error here has nobody to go to.
        autoreleasepool(|_| {
            let mut inner = self.inner();
            inner.drain();
            drop(std::mem::take(&mut *inner));
        });
    }
}
