//! What the Metal driver does, decided as plain data: which commands a run consists of and in what order, which of them
//! share an encoder, where a launch waits for the ones before it, which buffers a segment uses. Nothing here touches a
//! device, so that all of it is tested on every platform.
//!
//! Metal orders encoders of a queue among themselves by the buffers that each uses (hazard tracking, which also covers
//! buffers declared by `useResource`). Inside a compute encoder launches overlap unless a barrier stands between them.
//! On macOS a blit takes offsets and sizes that are multiples of 4 only; the bytes that are left over go by a kernel.

use std::ops::Range;

use crate::driver::{BufferId, SegmentId};
use crate::launch::{self, Launch, Span};

/// What offsets and sizes of blits are multiples of.
pub(super) const UNIT: u64 = 4;

/// Most launches of one indirect command buffer: what Metal runs at once.
pub(super) const MOST_COMMANDS: usize = 1 << 14;

/// Where the results of a run begin in its slot.
const SLOT_ALIGN: u64 = 256;

/// Bytes that a write or a read moves at a time where the host does not see buffers; a multiple of [`UNIT`].
pub(super) const STAGE: u64 = 64 << 20;

/// The first of Apple's families on which segments become indirect command buffers. Earlier ones have them too, but there it
/// has not been shown that a launch from one costs less than a launch encoded anew, which has fewer ways to go wrong.
const FIRST_REPLAY: u32 = 9;

/// Most launches that counters time in one run: a buffer of counters takes 32 KiB, two counters of 8 bytes a launch.
const MOST_SAMPLED: usize = (32 << 10) / 16;

/// What a device tells of itself, as far as it decides how the driver works.
#[derive(Clone, Copy, Debug)]
pub(super) struct Abilities {
    /// The device reads the host's memory.
    pub unified: bool,
    /// The latest of Apple's families that it belongs to; 0 for devices of others.
    pub apple: u32,
    /// It notes times where encoders begin and end.
    pub samples: bool,
}

/// How the driver works on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// The host reads and writes buffers where they lie; else through a slot and a blit.
    pub shared: bool,
    /// Segments are encoded once, into indirect command buffers; else anew by every run.
    pub replay: bool,
    /// Counters time the launches of a timed run; else the command buffer that each then has.
    pub samples: bool,
}

/// How the driver works on a device of these abilities.
pub(super) fn way(a: Abilities) -> Way {
    Way { shared: a.unified, replay: a.apple >= FIRST_REPLAY, samples: a.samples }
}

/// Whether counters time a timed run of `launches` launches; `vendor`: it has work of the vendor's, whose encoders they do not
/// see.
pub(super) fn sampled(way: Way, launches: usize, vendor: bool) -> bool {
    way.samples && !vendor && (1..=MOST_SAMPLED).contains(&launches)
}

/// Compute units by words of a device's name, the first that is in it: Metal does not tell. Those of the largest chip of each
/// name up to the M4, by Apple's data sheets.
const UNITS: &[(&str, u32)] = &[("Ultra", 80), ("Max", 40), ("Pro", 20), ("Apple", 10), ("Intel", 10)];

/// Compute units of a device of this name; what a card is likely to have if nothing is known.
pub(super) fn units(name: &str) -> u32 {
    UNITS.iter().find(|(word, _)| name.split(' ').any(|w| w.contains(word))).map_or(40, |(_, units)| *units)
}

/// What the codes of `MTLCommandBufferError` mean, by number.
const FAULTS: &[(isize, &str)] = &[
    (1, "an error inside Metal"),
    (2, "it took too long and was stopped"),
    (3, "a kernel left its buffers"),
    (4, "the process may not use the device, after too many faults"),
    (7, "the process may not use the device now"),
    (8, "the device has no memory left for it"),
    (9, "a buffer in use was gone"),
    (11, "the device was removed"),
    (12, "a kernel's stack overflowed"),
];

/// What the code of a command buffer's error means.
pub(super) fn fault(code: isize) -> &'static str {
    FAULTS.iter().find(|(c, _)| *c == code).map_or("an error that Metal does not name", |(_, text)| text)
}

/// Times of the host in nanoseconds and of the device in its own unit, taken at the same moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moment {
    pub host: u64,
    pub device: u64,
}

/// Nanoseconds from `origin` to `at`, both of the device, by two moments around them. Nothing if the moments are one.
pub(super) fn nanoseconds(at: u64, origin: u64, before: Moment, after: Moment) -> u64 {
    let (host, device) =
        (after.host.saturating_sub(before.host), after.device.saturating_sub(before.device).max(1));
    let n = u128::from(at.saturating_sub(origin)) * u128::from(host) / u128::from(device);
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// A byte that commands move: of the run's slot of host memory, or of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Slot(u64),
    Buffer(BufferId, u64),
}

impl Place {
    fn plus(self, n: u64) -> Place {
        match self {
            Place::Slot(at) => Place::Slot(at + n),
            Place::Buffer(b, at) => Place::Buffer(b, at + n),
        }
    }
}

/// One command of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// A blit; all three numbers are multiples of [`UNIT`].
    Copy { from: Place, to: Place, bytes: u64 },
    /// Zeros by a blit; offset and size are multiples of [`UNIT`].
    Fill(Span),
    /// Fewer than [`UNIT`] bytes, moved by a kernel.
    Bytes { from: Place, to: Place, bytes: u64 },
    /// An indirect command buffer of a segment, by number.
    Replay { segment: SegmentId, piece: u32 },
    /// One launch of a segment, encoded anew; `barrier`: after all before it in its encoder.
    Launch { segment: SegmentId, index: u32, barrier: bool },
    /// A graph of the vendor's compiler, alone in its batch: it fills command buffers of its own.
    Graph { segment: SegmentId },
    /// A matrix multiplication of the vendor's library, which has encoders of its own.
    Product { segment: SegmentId },
}

/// Commands of one Metal command buffer; `step` for one that is timed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    pub step: Option<u32>,
    pub commands: Vec<Command>,
}

/// What a segment is to a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape<'a> {
    pub id: SegmentId,
    /// Step of each launch.
    pub steps: &'a [u32],
    /// Where launches wait.
    pub barriers: &'a [bool],
    /// Whether it was encoded into indirect command buffers.
    pub replay: bool,
    /// Of work for the vendor's compiler or library, which has one step.
    pub vendor: Option<Vendor<'a>>,
}

/// What work for the vendor is to a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vendor<'a> {
    /// A graph, else a product.
    pub graph: bool,
    /// What is copied when it has ended, from and to, at the same offset modulo [`UNIT`].
    pub copies: &'a [(Span, Span)],
}

/// Where a run's bytes lie in its slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    /// First byte of the upload.
    pub upload: u64,
    /// The results: first byte and size of each.
    pub results: Vec<(u64, u64)>,
    /// Bytes of the slot.
    pub bytes: u64,
}

/// How a buffer is used by a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Use {
    pub buffer: BufferId,
    pub reads: bool,
    pub writes: bool,
}

/// For each launch whether it waits for those before it: it does if it depends on one since the last that waited.
pub(super) fn barriers(launches: &[Launch]) -> Vec<bool> {
    let mut since = 0;
    let wait = |(i, waits): (usize, &Vec<u32>)| {
        let wait = waits.iter().any(|j| *j as usize >= since);
        if wait {
            since = i;
        }
        wait
    };
    launch::dependencies(launches).iter().enumerate().map(wait).collect()
}

/// The buffers that work for the vendor uses, each once.
pub(super) fn vendor_uses(reads: &[Span], writes: &[Span], copies: &[(Span, Span)]) -> Vec<Use> {
    let spans = reads.iter().chain(writes).chain(copies.iter().flat_map(|(from, to)| [from, to]));
    let mut all: Vec<BufferId> = spans.map(|s| s.buffer).collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter().map(|buffer| Use { buffer, reads: true, writes: true }).collect()
}

/// The buffers of a segment, each once, in the order of first use. An argument that no span speaks of counts as both read
/// and written.
pub(super) fn uses(launches: &[Launch]) -> Vec<Use> {
    let mut all: Vec<Use> = Vec::new();
    let mut note = |buffer, reads, writes| match all.iter_mut().find(|u| u.buffer == buffer) {
        Some(u) => (u.reads, u.writes) = (u.reads || reads, u.writes || writes),
        None => all.push(Use { buffer, reads, writes }),
    };
    for l in launches {
        l.reads.iter().chain([&l.params]).for_each(|s| note(s.buffer, true, false));
        l.writes.iter().for_each(|s| note(s.buffer, false, true));
        for b in &l.buffers {
            let spoken = l.reads.iter().chain(&l.writes).any(|s| s.buffer == *b);
            note(*b, !spoken, !spoken);
        }
    }
    all
}

/// The launches of each indirect command buffer of a segment of `launches`.
pub(super) fn pieces(launches: usize) -> Vec<Range<usize>> {
    (0..launches).step_by(MOST_COMMANDS).map(|from| from..launches.min(from + MOST_COMMANDS)).collect()
}

/// Where upload and results lie in the slot: each at the offset modulo [`UNIT`] that it has in its buffer, so that blits
/// can move all but its ends.
pub(super) fn layout(upload: Option<Span>, downloads: &[Span]) -> Layout {
    let upload = upload.filter(|u| u.bytes > 0);
    let mut l = Layout { upload: upload.map_or(0, |u| u.offset % UNIT), ..Layout::default() };
    let mut end = upload.map_or(0, |u| l.upload + u.bytes);
    for d in downloads {
        let at = end.next_multiple_of(SLOT_ALIGN) + d.offset % UNIT;
        l.results.push((at, d.bytes));
        end = if d.bytes > 0 { (at + d.bytes).next_multiple_of(UNIT) } else { end };
    }
    l.bytes = end.next_multiple_of(UNIT);
    l
}

/// The whole units of `bytes` bytes at `at`: bytes before them, bytes of them. Without any, all bytes are before them.
fn whole(at: u64, bytes: u64) -> (u64, u64) {
    let head = (at.next_multiple_of(UNIT) - at).min(bytes);
    (head, (bytes - head) / UNIT * UNIT)
}

/// Moves that write exactly `bytes` bytes; both places lie at the same offset modulo [`UNIT`].
fn copy_exactly(from: Place, to: Place, at: u64, bytes: u64, out: &mut Vec<Command>) {
    let (head, middle) = whole(at, bytes);
    if middle > 0 {
        out.push(Command::Copy { from: from.plus(head), to: to.plus(head), bytes: middle });
    }
    for (skip, n) in [(0, head), (head + middle, bytes - head - middle)] {
        if n > 0 {
            out.push(Command::Bytes { from: from.plus(skip), to: to.plus(skip), bytes: n });
        }
    }
}

/// Zeros into exactly `span`; the slot holds [`UNIT`] zeros at its begin.
pub(super) fn zero(span: Span) -> Vec<Command> {
    let (head, middle) = whole(span.offset, span.bytes);
    let mut out = Vec::new();
    if middle > 0 {
        out.push(Command::Fill(Span { offset: span.offset + head, bytes: middle, ..span }));
    }
    for (skip, bytes) in [(0, head), (head + middle, span.bytes - head - middle)] {
        if bytes > 0 {
            let to = Place::Buffer(span.buffer, span.offset + skip);
            out.push(Command::Bytes { from: Place::Slot(0), to, bytes });
        }
    }
    out
}

/// The command buffers of a run: one, or if it is timed, one for each launch between those for upload and downloads. Each graph
/// of the vendor's stands between command buffers.
pub(super) fn run(
    upload: Option<Span>,
    segments: &[Shape],
    downloads: &[Span],
    layout: &Layout,
    timed: bool,
) -> Vec<Batch> {
    let mut all = vec![Batch::default()];
    let graph = |c: &Command| matches!(c, Command::Graph { .. });
    let mut add = |step: Option<u32>, command: Command| {
        let step = step.filter(|_| timed);
        match all.last_mut() {
            Some(last) if graph(&command) || last.commands.iter().any(graph) => {
                match last.commands.is_empty() {
                    true => *last = Batch { step, commands: vec![command] },
                    false => all.push(Batch { step, commands: vec![command] }),
                }
            }
            Some(last) if !timed || (step.is_none() && last.step.is_none()) => last.commands.push(command),
            _ => all.push(Batch { step, commands: vec![command] }),
        }
    };
    let mut moves = Vec::new();
    if let Some(u) = upload.filter(|u| u.bytes > 0) {
        let (from, to) = (Place::Slot(layout.upload), Place::Buffer(u.buffer, u.offset));
        copy_exactly(from, to, u.offset, u.bytes, &mut moves);
    }
    moves.drain(..).for_each(|c| add(None, c));
    for s in segments {
        if let Some(v) = s.vendor {
            let (step, segment) = (s.steps.first().copied(), s.id);
            add(step, if v.graph { Command::Graph { segment } } else { Command::Product { segment } });
            for (from, to) in v.copies {
                let (a, b) = (Place::Buffer(from.buffer, from.offset), Place::Buffer(to.buffer, to.offset));
                copy_exactly(a, b, to.offset, to.bytes, &mut moves);
            }
            moves.drain(..).for_each(|c| add(None, c));
            continue;
        }
        if s.replay && !timed {
            let n = pieces(s.steps.len()).len() as u32;
            (0..n).for_each(|piece| add(None, Command::Replay { segment: s.id, piece }));
            continue;
        }
        for (index, (step, barrier)) in (0u32..).zip(s.steps.iter().zip(s.barriers)) {
            add(Some(*step), Command::Launch { segment: s.id, index, barrier: *barrier });
        }
    }
    for (d, (at, _)) in downloads.iter().zip(&layout.results).filter(|(d, _)| d.bytes > 0) {
        // Reading a few bytes more than asked for is harmless: buffers and slots end at whole units.
        let before = d.offset % UNIT;
        let bytes = (before + d.bytes).next_multiple_of(UNIT);
        let (from, to) = (Place::Buffer(d.buffer, d.offset - before), Place::Slot(at - before));
        add(None, Command::Copy { from, to, bytes });
    }
    // A run without anything to do still has an end to wait for.
    if all.len() > 1 && all[0].commands.is_empty() {
        all.remove(0);
    }
    all
}

/// Which kind of encoder takes a run of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoder {
    Blit,
    Compute,
    /// None of ours: the vendor's library makes its own.
    Vendor,
}

/// The encoders of a command buffer with the commands of each. Commands that Metal must order among themselves never share
/// one, but for launches of one segment, which have barriers.
pub(super) fn encoders(commands: &[Command]) -> Vec<(Encoder, Range<usize>)> {
    let mut out: Vec<(Encoder, Range<usize>)> = Vec::new();
    for (i, c) in commands.iter().enumerate() {
        let kind = match c {
            Command::Copy { .. } | Command::Fill(_) => Encoder::Blit,
            Command::Graph { .. } | Command::Product { .. } => Encoder::Vendor,
            _ => Encoder::Compute,
        };
        let joins = i > 0
            && match (&commands[i - 1], c) {
                (Command::Copy { .. } | Command::Fill(_), Command::Copy { .. } | Command::Fill(_)) => true,
                (Command::Bytes { .. }, Command::Bytes { .. }) => true,
                (Command::Launch { segment: a, .. }, Command::Launch { segment: b, index, .. }) => {
                    a == b && *index > 0
                }
                _ => false,
            };
        match out.last_mut() {
            Some((_, range)) if joins => range.end = i + 1,
            _ => out.push((kind, i..i + 1)),
        }
    }
    out
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
