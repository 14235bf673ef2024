//! A device that computes nothing: it stands in for devices that are not at hand. It keeps a journal of the calls and
//! checks all that a real device would take on trust: that calls come in an order that makes sense, that every range lies in
//! its buffer, that a parameter block was uploaded and what it says lies inside what the launch declares, that nothing is
//! read which was never written, and that launches which touch the same bytes are ordered.
//!
//! What is wrong makes the call fail with [`GpuError::Invalid`] and stands in [`Null::faults`]; for calls that cannot fail,
//! only there. It must never pass over a fault in silence, and never look at anything but what a driver is handed.
//!
//! A launch writes, in place of results, bytes that depend on all that the results would depend on
//! ([`Null::with_digests`]): equal outputs mean that the same kernels read the same bytes by the same parameters.

mod journal;
mod known;
mod layout;
mod run;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::common::{self, invalid};
use crate::driver::{
    BufferId, DeviceInfo, Dialect, Driver, Features, KernelId, KernelSource, SegmentId, StepTime, Submission,
    TicketId,
};
use crate::error::GpuError;
use crate::launch::{Launch, Span};

pub use journal::{Call, Held, Ran};
pub use layout::{Access, Decoded, Layout};

use journal::Journal;
use known::Known;
use run::Segment;

/// Buffer arguments of a kernel that every device takes: Metal's are the fewest.
pub const MAX_BUFFERS: u32 = 31;

/// The device. See the module's page.
pub struct Null {
    info: DeviceInfo,
    digests: bool,
    inner: Mutex<Inner>,
}

type State = common::State<Memory, Layout, Arc<Segment>, Pending>;

#[derive(Default)]
struct Inner {
    state: State,
    journal: Journal,
}

/// A buffer: what the host wrote there, or a launch in place of results.
struct Memory {
    what: String,
    data: Vec<u8>,
    known: Known,
}

/// A run that is not waited for yet.
struct Pending {
    downloads: Vec<u8>,
    times: Vec<StepTime>,
}

/// The facts of a device with the tightest limits of all: Metal's on the smallest machine.
pub fn info() -> DeviceInfo {
    DeviceInfo {
        api: "null",
        name: "no device".into(),
        vendor: "Frit".into(),
        driver: env!("CARGO_PKG_VERSION").into(),
        dialect: Dialect::Metal,
        memory: 8 << 30,
        max_buffer: 2 << 30,
        shared_memory: 32 << 10,
        max_group: 1024,
        units: 8,
        align: 256,
        features: Features::default(),
    }
}

impl Null {
    /// A device with these facts; [`info`] has the usual ones.
    pub fn new(info: DeviceInfo) -> Null {
        Null { info, digests: false, inner: Mutex::default() }
    }

    /// With results made of a digest of what each launch reads. Slower.
    pub fn with_digests(self) -> Null {
        Null { digests: true, ..self }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // The maps are whole after every call; a panic elsewhere does not make them wrong.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that was wrong so far.
    pub fn faults(&self) -> Vec<String> {
        self.lock().journal.faults.clone()
    }

    /// The calls since this was asked last.
    pub fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.lock().journal.calls)
    }

    /// The launches of the last run.
    pub fn last_run(&self) -> Vec<Ran> {
        self.lock().journal.last.clone()
    }

    /// What nobody has given back yet.
    pub fn held(&self) -> Held {
        let [buffers, segments, tickets] = self.lock().state.held();
        Held { buffers, segments, tickets }
    }

    /// Makes what lies in the buffers that were allocated for `what` unknown, as memory that holds nothing from one run to
    /// the next may be.
    pub fn scramble(&self, what: &str) {
        for m in self.lock().state.buffers_mut().filter(|m| m.what == what) {
            m.known.clear();
            m.data.fill(0xa5);
        }
    }
}

impl Inner {
    /// Notes a fault of the caller. What a device may refuse of itself is none.
    fn noted<T>(&mut self, result: Result<T, GpuError>) -> Result<T, GpuError> {
        if let Err(e @ GpuError::Invalid { .. }) = &result {
            self.journal.faults.push(e.to_string());
        }
        result
    }

    /// The buffer of `span`, which lies inside it.
    fn memory(&mut self, info: &DeviceInfo, span: Span) -> Result<&mut Memory, GpuError> {
        self.state.memory(info, span)?;
        let none = || invalid(info, format!("there is no buffer {}", span.buffer.0));
        self.state.buffer_mut(span.buffer).ok_or_else(none)
    }

    /// Writes what `bytes` gives to `span`.
    fn fill(&mut self, info: &DeviceInfo, span: Span, bytes: Option<&[u8]>) -> Result<(), GpuError> {
        let m = self.memory(info, span)?;
        let (from, to) = (span.offset, span.offset + span.bytes);
        let place = &mut m.data[from as usize..to as usize];
        match bytes {
            Some(b) => place.copy_from_slice(b),
            None => place.fill(0),
        }
        m.known.add(from, to);
        Ok(())
    }

    /// The bytes of `span`, all of which something has written.
    fn written(&self, info: &DeviceInfo, span: Span, who: &str) -> Result<&[u8], GpuError> {
        let m = self.state.memory(info, span)?;
        let to = span.offset + span.bytes;
        match m.known.lacks(span.offset, to) {
            None => Ok(&m.data[span.offset as usize..to as usize]),
            Some(at) => {
                let (what, from) = (&m.what, span.offset);
                let why = format!("{who} reads {from}..{to} of {what}, where nothing has written byte {at}");
                Err(invalid(info, why))
            }
        }
    }
}

impl Driver for Null {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocated(&self) -> u64 {
        self.lock().state.allocated()
    }

    fn allocate(&self, what: &str, bytes: u64) -> Result<BufferId, GpuError> {
        let mut inner = self.lock();
        let size = inner.state.room(&self.info, what, bytes)?;
        let memory = Memory { what: what.into(), data: vec![0xa5; size as usize], known: Known::default() };
        let buffer = inner.state.add_buffer(memory, size);
        inner.journal.calls.push(Call::Allocate { what: what.into(), buffer, bytes });
        Ok(buffer)
    }

    fn free(&self, buffer: BufferId) {
        let mut inner = self.lock();
        let mut users = inner.state.segments().filter(|(_, s)| s.uses(buffer));
        if let Some((id, _)) = users.next() {
            let why = format!("buffer {} is freed, but segment {} still uses it", buffer.0, id.0);
            drop(users);
            inner.journal.faults.push(why);
        } else {
            drop(users);
        }
        if inner.state.remove_buffer(buffer).is_some() {
            inner.journal.calls.push(Call::Free(buffer));
        }
    }

    fn write(&self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<(), GpuError> {
        let (mut inner, span) = (self.lock(), Span { buffer, offset, bytes: bytes.len() as u64 });
        inner.journal.calls.push(Call::Write(span));
        let result = inner.fill(&self.info, span, Some(bytes));
        inner.noted(result)
    }

    fn read(&self, buffer: BufferId, offset: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        let (mut inner, span) = (self.lock(), Span { buffer, offset, bytes: bytes.len() as u64 });
        inner.journal.calls.push(Call::Read(span));
        let result = inner.written(&self.info, span, "the host").map(|from| bytes.copy_from_slice(from));
        inner.noted(result)
    }

    fn zero(&self, span: Span) -> Result<(), GpuError> {
        let mut inner = self.lock();
        inner.journal.calls.push(Call::Zero(span));
        let result = inner.fill(&self.info, span, None);
        inner.noted(result)
    }

    fn build(&self, source: &KernelSource) -> Result<KernelId, GpuError> {
        let mut inner = self.lock();
        let result = self.check_text(source);
        let layout = inner.noted(result)?;
        inner.journal.calls.push(Call::Build(source.entry.clone()));
        Ok(inner.state.add_kernel(layout, source))
    }

    fn load(&self, _: &KernelSource, _: &[u8]) -> Option<KernelId> {
        None
    }

    fn binary(&self, _: KernelId) -> Option<Vec<u8>> {
        None
    }

    fn encode(&self, launches: &[Launch]) -> Result<SegmentId, GpuError> {
        let mut inner = self.lock();
        let result = Segment::new(&self.info, &inner.state, launches);
        let new = Arc::new(inner.noted(result)?);
        let segment = inner.state.add_segment(new);
        inner.journal.calls.push(Call::Encode { segment, launches: launches.len() });
        Ok(segment)
    }

    fn release(&self, segment: SegmentId) {
        let mut inner = self.lock();
        if inner.state.remove_segment(segment).is_some() {
            inner.journal.calls.push(Call::Release(segment));
        }
    }

    fn submit(&self, run: &Submission) -> Result<TicketId, GpuError> {
        let mut inner = self.lock();
        let result = inner.execute(&self.info, self.digests, run);
        let pending = inner.noted(result)?;
        let downloads = pending.downloads.len() as u64;
        let ticket = inner.state.add_ticket(pending);
        let span = |u: crate::driver::Upload| Span {
            buffer: u.buffer,
            offset: u.offset,
            bytes: u.bytes.len() as u64,
        };
        let (upload, segments) = (run.upload.map(span), run.segments.to_vec());
        inner.journal.calls.push(Call::Submit { ticket, upload, segments, downloads });
        Ok(ticket)
    }

    fn wait(&self, ticket: TicketId, output: &mut [u8]) -> Result<Vec<StepTime>, GpuError> {
        let mut inner = self.lock();
        inner.journal.calls.push(Call::Wait(ticket));
        let result = inner.state.take_ticket(&self.info, ticket);
        let pending = inner.noted(result)?;
        let result = common::copy_results(&self.info, &pending.downloads, output);
        inner.noted(result).map(|()| pending.times)
    }

    fn forget(&self, ticket: TicketId) {
        let mut inner = self.lock();
        if inner.state.take_ticket(&self.info, ticket).is_ok() {
            inner.journal.calls.push(Call::Forget(ticket));
        }
    }
}

impl Null {
    /// Whether a kernel keeps to the limits of the device; what its text says of its parameters.
    fn check_text(&self, source: &KernelSource) -> Result<Layout, GpuError> {
        let bad = |what: String| invalid(&self.info, format!("kernel `{}`: {what}", source.entry));
        if source.buffers >= MAX_BUFFERS {
            return Err(bad(format!(
                "it takes {} buffers and a block, at most {MAX_BUFFERS} can be",
                source.buffers
            )));
        }
        if source.group == 0 || !source.group.is_multiple_of(32) || source.group > self.info.max_group {
            return Err(bad(format!("groups of {} items cannot run", source.group)));
        }
        if !source.text.contains(&format!("#define GROUP_SIZE {}\n", source.group)) {
            return Err(bad(format!("its text is not written for groups of {}", source.group)));
        }
        Layout::parse(source).map_err(bad)
    }
}

/// A time for the launch number `n` of a run: launches end one after another.
fn time(step: u32, n: usize) -> StepTime {
    let at = |n| Duration::from_micros(n as u64);
    StepTime { step, start: at(n), end: at(n + 1) }
}
