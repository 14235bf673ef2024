//! Segments and runs: what encoding and submitting must hold.

use std::sync::Arc;

use super::layout::Decoded;
use super::{Access, Inner, Layout, Pending, Ran, State, time};
use crate::driver::{BufferId, DeviceInfo, KernelId, Submission};
use crate::drivers::common::invalid;
use crate::error::GpuError;
use crate::launch::{Launch, Span, dependencies};

/// Encoded launches, and which come after which.
pub(super) struct Segment {
    launches: Vec<Launch>,
    /// Bit j of row i: launch i comes after launch j.
    after: Vec<Vec<u64>>,
}

/// A launch as it is about to run.
struct Ready<'a> {
    launch: &'a Launch,
    layout: Layout,
    block: Decoded,
}

impl Ready<'_> {
    fn reads(&self) -> &[Access] {
        &self.block.operands[..self.launch.reads.len()]
    }

    fn writes(&self) -> &[Access] {
        &self.block.operands[self.launch.reads.len()..]
    }
}

impl Ready<'_> {
    /// A result and another operand that share bytes without being in one place, element by element.
    fn meeting(&self) -> Option<(&Access, &Access)> {
        let first = self.launch.reads.len();
        let results = self.block.operands.iter().enumerate().skip(first);
        // Of two results, each pair once.
        let mut pairs =
            results.flat_map(|(i, w)| self.block.operands[..i].iter().enumerate().map(move |o| (w, o)));
        let same = |a: &Access, b: &Access| {
            (a.offset, &a.dims, &a.strides, a.unit_bytes) == (b.offset, &b.dims, &b.strides, b.unit_bytes)
        };
        let meet = pairs.find(|(w, (j, o))| w.hull().overlaps(&o.hull()) && (*j >= first || !same(w, o)));
        meet.map(|(w, (_, o))| (w, o))
    }
}

/// The bytes of `inner` are all in one of `outer`.
fn inside(inner: &Span, outer: &[Span]) -> bool {
    let end = |s: &Span| s.offset.saturating_add(s.bytes);
    inner.bytes == 0
        || outer.iter().any(|o| o.buffer == inner.buffer && o.offset <= inner.offset && end(inner) <= end(o))
}

/// A byte that one of two launches writes and the other touches: the first range of those that have it.
fn conflict(a: (&[Span], &[Span]), b: (&[Span], &[Span])) -> Option<Span> {
    let common = |x: &[Span], y: &[Span]| {
        let shares = |s: &&Span| {
            y.iter().any(|t| {
                let (from, to) = (s.offset.max(t.offset), (s.offset + s.bytes).min(t.offset + t.bytes));
                s.buffer == t.buffer && from < to
            })
        };
        x.iter().find(shares).copied()
    };
    common(a.1, b.1).or_else(|| common(a.1, b.0)).or_else(|| common(a.0, b.1))
}

impl Segment {
    /// Takes launches as a device would, and a little less.
    pub fn new(info: &DeviceInfo, state: &State, launches: &[Launch]) -> Result<Segment, GpuError> {
        state.check(info, launches)?;
        for l in launches {
            let bad = |what: String| Err(invalid(info, format!("step {}: {what}", l.step)));
            if !l.params.offset.is_multiple_of(16) {
                return bad(format!("its parameters at {} are not aligned to 16", l.params.offset));
            }
            let want = state.kernel(l.kernel).map_or(0, |k| k.bytes as u64);
            if l.params.bytes != want {
                return bad(format!("{} bytes of parameters for a kernel of {want}", l.params.bytes));
            }
            if let Some(s) = l.reads.iter().chain(&l.writes).find(|s| !l.buffers.contains(&s.buffer)) {
                return bad(format!("buffer {} is touched, but not handed over", s.buffer.0));
            }
        }
        let words = launches.len().div_ceil(64);
        let mut after: Vec<Vec<u64>> = Vec::with_capacity(launches.len());
        for (i, direct) in dependencies(launches).iter().enumerate() {
            let mut row = vec![0u64; words];
            for j in direct.iter().map(|j| *j as usize) {
                if j >= i {
                    let step = launches[i].step;
                    return Err(invalid(info, format!("step {step} waits for one that is not before it")));
                }
                row.iter_mut().zip(&after[j]).for_each(|(a, b)| *a |= b);
                row[j / 64] |= 1 << (j % 64);
            }
            after.push(row);
        }
        let segment = Segment { launches: launches.to_vec(), after };
        let spans: Vec<(Vec<Span>, Vec<Span>)> =
            launches.iter().map(|l| (l.reads.clone(), l.writes.clone())).collect();
        segment.ordered(info, &spans)?;
        Ok(segment)
    }

    /// Launches without any order, for tests.
    #[cfg(test)]
    pub fn unordered(launches: &[Launch]) -> Segment {
        Segment {
            launches: launches.to_vec(),
            after: vec![vec![0; launches.len().div_ceil(64)]; launches.len()],
        }
    }

    /// Whether a launch of it has anything to do with `buffer`.
    pub fn uses(&self, buffer: BufferId) -> bool {
        self.launches.iter().any(|l| l.params.buffer == buffer || l.buffers.contains(&buffer))
    }

    /// Whether launches that touch the same bytes, by what each reads and writes, are ordered.
    pub fn ordered(&self, info: &DeviceInfo, spans: &[(Vec<Span>, Vec<Span>)]) -> Result<(), GpuError> {
        for (i, b) in spans.iter().enumerate() {
            for (j, a) in spans[..i].iter().enumerate() {
                if self.after[i][j / 64] >> (j % 64) & 1 == 1 {
                    continue;
                }
                if let Some(s) = conflict((&a.0, &a.1), (&b.0, &b.1)) {
                    let (first, second) = (self.launches[j].step, self.launches[i].step);
                    let why = format!(
                        "steps {first} and {second} both touch bytes of {}..{} of buffer {}, and nothing orders them",
                        s.offset,
                        s.offset + s.bytes,
                        s.buffer.0
                    );
                    return Err(invalid(info, why));
                }
            }
        }
        Ok(())
    }
}

impl Inner {
    /// Runs what `run` says.
    pub fn execute(
        &mut self,
        info: &DeviceInfo,
        digests: bool,
        run: &Submission,
    ) -> Result<Pending, GpuError> {
        if let Some(u) = run.upload {
            let span = Span { buffer: u.buffer, offset: u.offset, bytes: u.bytes.len() as u64 };
            self.fill(info, span, Some(u.bytes))?;
        }
        self.journal.last.clear();
        let mut times = Vec::new();
        for id in run.segments {
            let segment: Arc<_> = self.state.segment(info, *id)?.clone();
            self.run_segment(info, digests, &segment)?;
            if run.timed {
                times.extend(segment.launches.iter().enumerate().map(|(n, l)| time(l.step, n)));
            }
        }
        let mut downloads = Vec::new();
        for span in run.downloads {
            downloads.extend_from_slice(self.written(info, *span, "a download")?);
        }
        Ok(Pending { downloads, times })
    }

    fn run_segment(&mut self, info: &DeviceInfo, digests: bool, s: &Segment) -> Result<(), GpuError> {
        // Things may have gone since the launches were encoded.
        self.state.check(info, &s.launches)?;
        let ready = s.launches.iter().map(|l| self.ready(info, l)).collect::<Result<Vec<_>, _>>()?;
        let hulls = |all: &[Access]| all.iter().map(Access::hull).collect::<Vec<_>>();
        let spans: Vec<_> = ready.iter().map(|r| (hulls(r.reads()), hulls(r.writes()))).collect();
        s.ordered(info, &spans)?;
        for r in &ready {
            self.launch(info, digests, r)?;
        }
        Ok(())
    }

    /// Reads the parameter block of a launch and holds it against what the launch declares.
    fn ready<'a>(&self, info: &DeviceInfo, launch: &'a Launch) -> Result<Ready<'a>, GpuError> {
        let layout = self.layout(info, launch.kernel)?;
        let who = format!("step {} (`{}`)", launch.step, layout.entry);
        let bad = |what: String| invalid(info, format!("{who}: {what}"));
        let bytes = self.written(info, launch.params, &format!("{who}, its parameters,"))?;
        let block = layout.decode(bytes, &launch.buffers).map_err(bad)?;
        if block.operands.len() < launch.reads.len() {
            return Err(bad(format!("{} operands, but {} reads", block.operands.len(), launch.reads.len())));
        }
        let ready = Ready { launch, layout, block };
        let outside = |a: &&Access, spans: &[Span]| !inside(&a.hull(), spans);
        let astray = ready.reads().iter().find(|a| outside(a, &launch.reads));
        if let Some(a) = astray.or_else(|| ready.writes().iter().find(|a| outside(a, &launch.writes))) {
            let (h, name) = (a.hull(), &a.name);
            let what =
                format!("`{name}` is at {}..{}, outside of what it declares", h.offset, h.offset + h.bytes);
            return Err(bad(what));
        }
        if let Some((a, b)) = ready.meeting() {
            return Err(bad(format!("`{}` is written over a part of `{}`", a.name, b.name)));
        }
        if let (Some(offset), Some(last)) = (ready.block.scratch, launch.buffers.last()) {
            // Declared behind the results, even if these sizes need none: the launch serves other sizes, too.
            let declared = launch.writes.get(ready.writes().len());
            if declared.is_none_or(|s| s.buffer != *last || s.offset != offset) {
                return Err(bad(format!("its scratch at {offset} is not what it declares")));
            }
        }
        Ok(ready)
    }

    fn layout(&self, info: &DeviceInfo, kernel: KernelId) -> Result<Layout, GpuError> {
        let none = || invalid(info, format!("there is no kernel {}", kernel.0));
        self.state.kernel(kernel).cloned().ok_or_else(none)
    }

    /// Reads what the launch reads and writes what it writes.
    fn launch(&mut self, info: &DeviceInfo, digests: bool, r: &Ready) -> Result<(), GpuError> {
        let mut digest = Digest(r.layout.text);
        digest.add(&r.block.numbers);
        for a in r.reads() {
            let who = format!("step {} (`{}`), `{}`,", r.launch.step, r.layout.entry, a.name);
            a.dims.iter().for_each(|d| digest.word(*d as u64));
            for s in a.stretches() {
                let bytes = self.written(info, s, &who)?;
                if digests {
                    digest.add(bytes);
                }
            }
        }
        for a in r.writes() {
            digest.word(a.dims.iter().fold(1, |h, d| h * 31 + *d as u64));
            for s in a.stretches() {
                let m = self.memory(info, s)?;
                m.known.add(s.offset, s.offset + s.bytes);
                if digests {
                    digest.fill(&mut m.data[s.offset as usize..(s.offset + s.bytes) as usize]);
                }
            }
        }
        let (reads, writes) = (r.reads().to_vec(), r.writes().to_vec());
        let (entry, step, grid) = (r.layout.entry.clone(), r.launch.step, r.launch.grid);
        self.journal.last.push(Ran { step, entry, grid, reads, writes });
        Ok(())
    }
}

/// A running hash.
struct Digest(u64);

impl Digest {
    fn word(&mut self, w: u64) {
        self.0 = (self.0.rotate_left(23) ^ w).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn add(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|w| self.word(u64::from_le_bytes(*w)));
        rest.iter().for_each(|b| self.word((*b).into()));
        self.word(bytes.len() as u64);
    }

    /// Bytes that follow from all that was added.
    fn fill(&mut self, to: &mut [u8]) {
        for part in to.chunks_mut(8) {
            self.word(1);
            let h = (self.0 ^ (self.0 >> 29)).to_le_bytes();
            part.copy_from_slice(&h[..part.len()]);
        }
    }
}
