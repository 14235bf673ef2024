//! A driver around a driver: before a run, each of its launches runs by itself, every operand in a buffer of its own between
//! bytes that nothing may change. It fails where a kernel wrote one of them, or an operand that it only reads. For a checker of
//! accesses it does without guards: buffers end where operands end, so that every step out of them is seen, and one group does
//! the work of all, so that it comes round to what it wrote before.
//!
//! The memory of the run is then put back, and the run submitted as it came.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frit_gpu::GpuError;
use frit_gpu::driver::{
    BufferId, DeviceInfo, Driver, KernelId, KernelSource, SegmentId, StepTime, Submission, TicketId,
};
use frit_gpu::drivers::null::Layout;
use frit_gpu::launch::{Launch, Span};

/// What guards are made of. As an index or a number it is far from what kernels work on.
const GUARD: u8 = 0xa7;

/// Bytes before and behind each operand, unless there are none.
const GUARDS: u64 = 1024;

/// A driver whose runs fail when a kernel writes what it must not.
pub struct Guarded {
    inner: Arc<dyn Driver>,
    guards: u64,
    /// A text put in place of another in every kernel that has it.
    fault: Option<(String, String)>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Bytes of each buffer.
    buffers: BTreeMap<BufferId, u64>,
    kernels: BTreeMap<KernelId, Arc<Layout>>,
    segments: BTreeMap<SegmentId, Arc<Vec<Launch>>>,
}

/// Operands of a launch that share bytes, or are found from one pointer: they get one buffer.
struct Group {
    from: Span,
    written: bool,
    /// The buffer arguments that become this buffer.
    pointers: BTreeSet<usize>,
    names: String,
    /// Scratch: it holds nothing before or after.
    scratch: bool,
}

/// A buffer of a launch that runs by itself, and what was written there before it ran.
struct Copy {
    buffer: BufferId,
    /// Place of the operands' first byte.
    at: u64,
    before: Vec<u8>,
}

impl Guarded {
    /// Around `inner`, with guards.
    pub fn new(inner: Arc<dyn Driver>) -> Guarded {
        Guarded { inner, guards: GUARDS, fault: None, state: Mutex::default() }
    }

    /// Around `inner`, buffers as long as their operands, launches of one group.
    pub fn tight(inner: Arc<dyn Driver>) -> Guarded {
        Guarded { guards: 0, ..Guarded::new(inner) }
    }

    /// With a fault: `to` in place of `from` in every kernel whose text has it.
    pub fn with_fault(self, from: &str, to: &str) -> Guarded {
        Guarded { fault: Some((from.into(), to.into())), ..self }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The maps are whole after every call; a panic elsewhere does not make them wrong.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn invalid(&self, what: String) -> GpuError {
        GpuError::Invalid { device: self.info().name.clone(), what }
    }

    /// The text as it is built.
    fn text(&self, source: &KernelSource) -> KernelSource {
        let text = self.fault.as_ref().map(|(from, to)| source.text.replace(from, to));
        KernelSource { text: text.unwrap_or_else(|| source.text.clone()), ..source.clone() }
    }

    fn read(&self, span: Span) -> Result<Vec<u8>, GpuError> {
        let mut bytes = vec![0; span.bytes as usize];
        if span.bytes > 0 {
            self.inner.read(span.buffer, span.offset, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// Runs each launch of `run` by itself, in order, on the memory as the run would find it, which is then as before.
    fn rehearse(&self, run: &Submission) -> Result<(), GpuError> {
        let segments: Vec<_> =
            run.segments.iter().filter_map(|s| self.lock().segments.get(s).cloned()).collect();
        let launches = || segments.iter().flat_map(|s| s.iter());
        let written: BTreeSet<BufferId> = launches().flat_map(|l| &l.writes).map(|s| s.buffer).collect();
        let whole = |buffer: BufferId| {
            let bytes = self.lock().buffers.get(&buffer).copied().unwrap_or(0);
            Span { buffer, offset: 0, bytes }
        };
        let keep = |b: &BufferId| Ok((*b, self.read(whole(*b))?));
        let kept: Vec<(BufferId, Vec<u8>)> = written.iter().map(keep).collect::<Result<_, GpuError>>()?;
        if let Some(u) = run.upload {
            self.inner.write(u.buffer, u.offset, u.bytes)?;
        }
        let result = launches().try_for_each(|l| self.alone(l));
        for (buffer, bytes) in kept.iter().filter(|(_, bytes)| !bytes.is_empty()) {
            self.inner.write(*buffer, 0, bytes)?;
        }
        result
    }

    /// Runs one launch, its operands in buffers of their own, and brings its results to where they belong.
    fn alone(&self, l: &Launch) -> Result<(), GpuError> {
        let layout = self.lock().kernels.get(&l.kernel).cloned();
        let layout = layout.ok_or_else(|| self.invalid(format!("there is no kernel {}", l.kernel.0)))?;
        let bad = |what: String| self.invalid(format!("step {} (`{}`): {what}", l.step, layout.entry));
        let mut block = self.read(l.params)?;
        let decoded = layout.decode(&block, &l.buffers).map_err(bad)?;
        let groups = groups(l, &layout, &decoded.operands, decoded.scratch);
        let copies: Vec<Copy> = groups.iter().map(|g| self.copy(g)).collect::<Result<_, _>>()?;
        let mut buffers = l.buffers.clone();
        for (g, c) in groups.iter().zip(&copies) {
            g.pointers.iter().for_each(|p| buffers[*p] = c.buffer);
        }
        let mut put = |at: usize, v: u64| block[at..at + 8].copy_from_slice(&v.to_le_bytes());
        for ((pointer, at), o) in layout.places().zip(&decoded.operands) {
            let i = groups.iter().position(|g| g.pointers.contains(&pointer)).unwrap_or(0);
            put(at, copies[i].at + (o.offset - groups[i].from.offset));
        }
        if let Some(at) = layout.scratch() {
            put(at, copies[groups.len() - 1].at);
        }
        let params = self.inner.allocate("a block", block.len() as u64)?;
        self.inner.write(params, 0, &block)?;
        let span = |c: &Copy| Span { buffer: c.buffer, offset: 0, bytes: c.before.len() as u64 };
        let launch = Launch {
            buffers,
            params: Span { buffer: params, offset: 0, bytes: block.len() as u64 },
            reads: vec![],
            writes: copies.iter().map(span).collect(),
            // A kernel is right for any number of groups.
            grid: if self.guards == 0 { 1 } else { l.grid },
            ..l.clone()
        };
        let segment = self.inner.encode(&[launch])?;
        let run = Submission { upload: None, segments: &[segment], downloads: &[], timed: false };
        self.inner.wait(self.inner.submit(&run)?, &mut [])?;
        self.inner.release(segment);
        let check = |(g, c)| self.check(g, c);
        groups.iter().zip(&copies).try_for_each(check).map_err(bad)?;
        copies.iter().map(|c| c.buffer).chain([params]).for_each(|b| self.inner.free(b));
        Ok(())
    }

    /// A buffer with what `g` holds.
    fn copy(&self, g: &Group) -> Result<Copy, GpuError> {
        // A group of several operands keeps the alignment of each.
        let lead = if g.names.contains(' ') { g.from.offset % 16 } else { 0 };
        let at = self.guards + lead;
        let mut before = vec![GUARD; (at + g.from.bytes + self.guards) as usize];
        if !g.scratch {
            before[at as usize..][..g.from.bytes as usize].copy_from_slice(&self.read(g.from)?);
        }
        let buffer = self.inner.allocate("an operand", before.len() as u64)?;
        if !before.is_empty() {
            self.inner.write(buffer, 0, &before)?;
        }
        Ok(Copy { buffer, at, before })
    }

    /// Whether a launch wrote only what it may; its results go to their place.
    fn check(&self, g: &Group, c: &Copy) -> Result<(), String> {
        let whole = Span { buffer: c.buffer, offset: 0, bytes: c.before.len() as u64 };
        let after = self.read(whole).map_err(|e| e.to_string())?;
        let inside = c.at as usize..(c.at + g.from.bytes) as usize;
        let free = g.written || g.scratch;
        let changed = (0..after.len()).find(|i| after[*i] != c.before[*i] && !(free && inside.contains(i)));
        if let Some(i) = changed {
            let (n, at) = (g.from.bytes, i as i64 - c.at as i64);
            return Err(format!("byte {at} of `{}`, which has {n}, was written", g.names));
        }
        if g.written && !inside.is_empty() {
            let write = self.inner.write(g.from.buffer, g.from.offset, &after[inside]);
            write.map_err(|e| e.to_string())?;
        }
        Ok(())
    }
}

/// The operands of a launch in groups, scratch last.
fn groups(
    l: &Launch,
    layout: &Layout,
    operands: &[frit_gpu::drivers::null::Access],
    scratch: Option<u64>,
) -> Vec<Group> {
    let mut all: Vec<Group> = Vec::new();
    for (i, ((pointer, _), o)) in layout.places().zip(operands).enumerate() {
        let mut new = Group {
            from: o.hull(),
            written: i >= l.reads.len(),
            pointers: [pointer].into(),
            names: o.name.clone(),
            scratch: false,
        };
        // Joined, it may meet another that it did not meet before.
        while let Some(at) = all.iter().position(|g| meets(g, &new)) {
            let g = all.remove(at);
            let end = (g.from.offset + g.from.bytes).max(new.from.offset + new.from.bytes);
            let from = g.from.offset.min(new.from.offset);
            new.from = Span { buffer: g.from.buffer, offset: from, bytes: end - from };
            new.written |= g.written;
            new.pointers.extend(g.pointers);
            new.names = format!("{} {}", g.names, new.names);
        }
        all.push(new);
    }
    if let (Some(offset), Some(last), Some(to)) = (scratch, l.buffers.len().checked_sub(1), l.writes.last()) {
        let bytes = to.bytes.saturating_sub(offset - to.offset);
        let from = Span { buffer: to.buffer, offset, bytes };
        let (pointers, names) = ([last].into(), "scratch".into());
        all.push(Group { from, written: false, pointers, names, scratch: true });
    }
    all
}

fn meets(a: &Group, b: &Group) -> bool {
    a.from.overlaps(&b.from) || !a.pointers.is_disjoint(&b.pointers)
}

impl Driver for Guarded {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn allocated(&self) -> u64 {
        self.inner.allocated()
    }

    fn allocate(&self, what: &str, bytes: u64) -> Result<BufferId, GpuError> {
        let id = self.inner.allocate(what, bytes)?;
        self.lock().buffers.insert(id, bytes);
        Ok(id)
    }

    fn free(&self, buffer: BufferId) {
        self.lock().buffers.remove(&buffer);
        self.inner.free(buffer);
    }

    fn write(&self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<(), GpuError> {
        self.inner.write(buffer, offset, bytes)
    }

    fn read(&self, buffer: BufferId, offset: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.inner.read(buffer, offset, bytes)
    }

    fn zero(&self, span: Span) -> Result<(), GpuError> {
        self.inner.zero(span)
    }

    fn build(&self, source: &KernelSource) -> Result<KernelId, GpuError> {
        let layout = Layout::parse(source).map_err(|e| self.invalid(format!("`{}`: {e}", source.entry)))?;
        let id = self.inner.build(&self.text(source))?;
        self.lock().kernels.insert(id, Arc::new(layout));
        Ok(id)
    }

    fn load(&self, _: &KernelSource, _: &[u8]) -> Option<KernelId> {
        None
    }

    fn binary(&self, _: KernelId) -> Option<Vec<u8>> {
        None
    }

    fn encode(&self, launches: &[Launch]) -> Result<SegmentId, GpuError> {
        let id = self.inner.encode(launches)?;
        self.lock().segments.insert(id, Arc::new(launches.to_vec()));
        Ok(id)
    }

    fn release(&self, segment: SegmentId) {
        self.lock().segments.remove(&segment);
        self.inner.release(segment);
    }

    fn submit(&self, run: &Submission) -> Result<TicketId, GpuError> {
        self.rehearse(run)?;
        self.inner.submit(run)
    }

    fn wait(&self, ticket: TicketId, output: &mut [u8]) -> Result<Vec<StepTime>, GpuError> {
        self.inner.wait(ticket, output)
    }

    fn forget(&self, ticket: TicketId) {
        self.inner.forget(ticket);
    }
}
