//! Which steps become graphs: maximal stretches of steps that the table has, the memory that each reads and writes, the
//! weights that become its constants, and what stays with our own kernels. Pieces run in the order of the plan; what a piece
//! reads and writes is declared as for launches, so that drivers order them by the same rules.

use std::fmt;
use std::ops::Range;

use frit_ir::schedule::Region;

use super::call::{Call, Line, Program, Unary, Value};
use super::product::{Product, product};
use super::steps::{Concrete, Window};
use super::table::{HEAVY, Shown, find};
use super::window::Tiling;
use super::{GraphMode, GraphOptions, Unsupported, has_type};
use crate::error::GpuError;

/// Most elements of a value: MPS's arrays hold fewer than 2³¹.
const MOST_ELEMENTS: usize = 1 << 31;

/// Most dimensions of a value.
const MOST_DIMS: usize = 16;

/// A line of memory that a graph reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Region.
    pub region: Region,
    /// Buffer of the region.
    pub buffer: u32,
    /// First byte.
    pub offset: u64,
    /// What lies there.
    pub line: Line,
    /// Of a result that lies over memory which the graph reads: its first byte in memory of the run's own, from where it is
    /// copied when the graph has ended. A graph orders its calls as it likes.
    pub staged: Option<u64>,
}

impl Binding {
    /// Whether these bytes of a buffer are among those that a graph looks at.
    fn is_read(&self, region: Region, buffer: u32, (from, to): (u64, u64)) -> bool {
        (self.region, self.buffer) == (region, buffer)
            && from < self.offset + self.line.bytes()
            && self.offset + self.line.skipped() < to
    }
}

/// Steps as one graph.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphPiece {
    /// The steps.
    pub steps: Range<usize>,
    /// The calls.
    pub program: Program,
    /// Where its feeds lie.
    pub feeds: Vec<Binding>,
    /// Where its results go; no two have a byte in common.
    pub results: Vec<Binding>,
    /// Bytes of the memory for staged results.
    pub staging: u64,
    /// The weights that are its constants.
    pub constants: Vec<u32>,
}

/// A part of a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Steps of our own.
    Steps(Range<usize>),
    /// A graph.
    Graph(Box<GraphPiece>),
    /// A matrix multiplication of the vendor's library.
    Product(Product),
}

/// What runs how, in order; every step of the schedule is in one piece.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The pieces.
    pub pieces: Vec<Piece>,
}

/// What a plan is made from.
pub(crate) struct Frame<'a> {
    pub options: GraphOptions,
    /// Alignment of feeds in bytes.
    pub align: u64,
    /// Bytes of a buffer of a region.
    pub capacity: &'a dyn Fn(Region, u32) -> u64,
}

/// A value that a step of the stretch has written.
struct Record {
    window: Window,
    value: Value,
}

/// A stretch in the making.
struct Stretch<'a> {
    frame: &'a Frame<'a>,
    /// Bytes of constants that are left.
    room: u64,
    program: Program,
    feeds: Vec<(Binding, Value)>,
    constants: Vec<(u32, Value)>,
    records: Vec<Record>,
    /// What its steps have written and written over.
    gone: Vec<Window>,
}

impl Stretch<'_> {
    /// Appends a step.
    fn add(&mut self, c: &Concrete) -> Result<(), Unsupported> {
        if c.is_empty() {
            return Ok(());
        }
        let lower = find(c.op)?;
        let mut inputs = Vec::with_capacity(c.step.inputs);
        for w in &c.operands[..c.step.inputs] {
            inputs.push(w.as_ref().map(|w| self.read(w)).transpose()?);
        }
        let outputs = &c.operands[c.step.inputs..];
        let shown: Vec<_> = outputs.iter().map(|w| w.as_ref().map(|w| (w.dtype, w.dims.clone()))).collect();
        let step = Shown { inputs: &inputs, outputs: &shown, params: &c.params, exprs: &c.step.exprs };
        let results = lower(&mut self.program, &step)?;
        let present: Vec<&Window> = c.outputs().collect();
        if results.len() != present.len() {
            return Err(Unsupported(format!("{} of {} results", results.len(), present.len())));
        }
        for (v, w) in results.into_iter().zip(present) {
            self.write(v, w)?;
        }
        let large = |n: &super::call::Node| {
            n.shape.len() > MOST_DIMS
                || n.shape
                    .iter()
                    .try_fold(1usize, |a, b| a.checked_mul(*b))
                    .is_none_or(|n| n >= MOST_ELEMENTS)
        };
        match self.program.nodes.iter().any(large) {
            true => Err(Unsupported("a value of too many elements or dimensions".into())),
            false => Ok(()),
        }
    }

    /// The value of an operand: part of what the stretch has written, of a constant, or of memory.
    fn read(&mut self, w: &Window) -> Result<Value, Unsupported> {
        if !has_type(w.dtype) || w.is_empty() {
            return Err(Unsupported(format!("an operand of {} with extents {:?}", w.dtype, w.dims)));
        }
        let size = w.dtype.info().unit_bytes as u64;
        let (from, to) = w.reach();
        if let Some(r) = self.records.iter().rev().find(|r| r.window.overlaps(w.region, w.buffer, (from, to)))
        {
            let (begin, end) = r.window.reach();
            let inside = begin <= from
                && to <= end
                && r.window.dtype == w.dtype
                && (from - begin).is_multiple_of(size);
            if !inside {
                return Err(Unsupported("an operand of which another step has written a part".into()));
            }
            let (value, start) = (r.value, ((from - begin) / size) as usize);
            let tiling = Tiling::of(r.window.elements(), start, &w.dims, &w.strides)?;
            return Ok(tiling.emit(&mut self.program, value, 0));
        }
        if self.gone.iter().any(|g| g.overlaps(w.region, w.buffer, (from, to))) {
            return Err(Unsupported("an operand that another step has written over".into()));
        }
        let capacity = (self.frame.capacity)(w.region, w.buffer);
        if !from.is_multiple_of(size) || to > capacity {
            return Err(Unsupported("an operand at an odd place".into()));
        }
        let total = (capacity / size) as usize;
        let tiling = Tiling::of(total, (from / size) as usize, &w.dims, &w.strides)?;
        if let Some(v) = self.constant(w, capacity) {
            return Ok(tiling.emit(&mut self.program, v, 0));
        }
        let (v, first) = self.feed(w, &tiling, size);
        Ok(tiling.emit(&mut self.program, v, first))
    }

    /// The weight that the window lies in as a constant, if there is room for it.
    fn constant(&mut self, w: &Window, bytes: u64) -> Option<Value> {
        if w.region != Region::Weights {
            return None;
        }
        if let Some((_, v)) =
            self.constants.iter().find(|(n, v)| *n == w.buffer && self.program.dtype(*v) == w.dtype)
        {
            return Some(*v);
        }
        if bytes == 0 || bytes > self.room {
            return None;
        }
        self.room -= bytes;
        let elements = bytes as usize / w.dtype.info().unit_bytes;
        let number = self.program.constants.len();
        self.program.constants.push(Line { dtype: w.dtype, elements, skip: 0 });
        let v = self.program.push(Call::Constant(number), w.dtype, &[elements]);
        self.constants.push((w.buffer, v));
        Some(v)
    }

    /// The memory that a tiling wants, and the element of the buffer that the feed begins with.
    fn feed(&mut self, w: &Window, tiling: &Tiling, size: u64) -> (Value, usize) {
        let begin = tiling.first as u64 * size;
        let aligned = begin / self.frame.align * self.frame.align;
        let skip = ((begin - aligned) / size) as usize;
        let line = Line { dtype: w.dtype, elements: tiling.count + skip, skip };
        let binding = Binding { region: w.region, buffer: w.buffer, offset: aligned, line, staged: None };
        let first = tiling.first - skip;
        if let Some((_, v)) = self.feeds.iter().find(|(b, _)| *b == binding) {
            return (*v, first);
        }
        let number = self.program.feeds.len();
        self.program.feeds.push(line);
        let v = self.program.push(Call::Placeholder(number), w.dtype, &[line.elements]);
        self.feeds.push((binding, v));
        (v, first)
    }

    /// Notes what a step has written, in place of what lay there.
    fn write(&mut self, v: Value, w: &Window) -> Result<(), Unsupported> {
        if w.is_empty() {
            return Ok(());
        }
        if self.program.dtype(v) != w.dtype || !w.is_dense() || !w.offset.is_multiple_of(self.frame.align) {
            return Err(Unsupported("a result that is no dense, aligned value".into()));
        }
        let whole =
            if self.program.elements(v) == w.elements() { v } else { self.program.broadcast(v, &w.dims) };
        let value = self.program.flat(whole);
        let (from, to) = w.reach();
        // Values of which a part is written over are not in use any more: the memory planner has proved it.
        let over = |r: &mut Record| r.window.overlaps(w.region, w.buffer, (from, to));
        self.gone.extend(self.records.extract_if(.., over).map(|r| r.window));
        self.records.push(Record { window: w.clone(), value });
        Ok(())
    }

    /// The piece of these steps: what later steps, or whoever comes after the run, read of it goes to memory.
    fn finish(mut self, all: &[Concrete], steps: Range<usize>) -> GraphPiece {
        let later = &all[steps.end..];
        let (mut results, mut staging) = (Vec::new(), 0u64);
        for r in std::mem::take(&mut self.records) {
            if !is_read(&r.window, later) {
                continue;
            }
            let (region, buffer, reach) = (r.window.region, r.window.buffer, r.window.reach());
            let line = Line { dtype: r.window.dtype, elements: r.window.elements(), skip: 0 };
            let staged = self.feeds.iter().any(|(b, _)| b.is_read(region, buffer, reach)).then_some(staging);
            if staged.is_some() {
                staging += line.bytes().next_multiple_of(self.frame.align);
            }
            results.push(Binding { region, buffer, offset: r.window.offset, line, staged });
            // A result is the target of a call of its own.
            let taken = self.program.results.contains(&r.value);
            let given = matches!(self.program.nodes[r.value].call, Call::Placeholder(_) | Call::Constant(_));
            let v = if taken || given { self.program.unary(Unary::Identity, r.value) } else { r.value };
            self.program.results.push(v);
        }
        let feeds = self.feeds.into_iter().map(|(b, _)| b).collect();
        let constants = self.constants.into_iter().map(|(n, _)| n).collect();
        GraphPiece { steps, program: self.program, feeds, results, staging, constants }
    }
}

/// Whether something after the stretch reads what it wrote to `w`: a later step before it is written over, or, outside of the
/// arena, whoever comes after the run.
fn is_read(w: &Window, later: &[Concrete]) -> bool {
    if w.region != Region::Arena {
        return true;
    }
    let reach = w.reach();
    for c in later {
        if c.inputs().any(|i| i.overlaps(w.region, w.buffer, reach)) {
            return true;
        }
        let over = |o: &Window| {
            let (from, to) = o.reach();
            o.overlaps(w.region, w.buffer, reach) && from <= reach.0 && reach.1 <= to && o.is_dense()
        };
        if c.outputs().any(over) {
            return false;
        }
    }
    false
}

/// The graph of these steps, with at most `room` bytes of constants; the error is the first step that has no place in it.
fn graph(
    all: &[Concrete],
    steps: Range<usize>,
    frame: &Frame,
    room: u64,
) -> Result<GraphPiece, (usize, Unsupported)> {
    let mut s = Stretch {
        frame,
        room,
        program: Program::default(),
        feeds: Vec::new(),
        constants: Vec::new(),
        records: Vec::new(),
        gone: Vec::new(),
    };
    for i in steps.clone() {
        s.add(&all[i]).map_err(|why| (i, why))?;
    }
    Ok(s.finish(all, steps))
}

/// The longest graph that begins with step `from`.
fn longest(all: &[Concrete], from: usize, frame: &Frame, room: u64) -> Option<GraphPiece> {
    let mut to = all.len();
    while to > from {
        match graph(all, from..to, frame, room) {
            Ok(piece) => return Some(piece),
            Err((at, _)) => to = at,
        }
    }
    None
}

/// Operations of the steps that are worth a graph.
fn heavy(steps: &[Concrete]) -> u64 {
    steps.iter().filter(|c| HEAVY.contains(&c.op)).map(|c| c.flops).sum()
}

/// The steps that do something.
fn busy(steps: &[Concrete]) -> usize {
    steps.iter().filter(|c| !c.is_empty()).count()
}

impl Plan {
    /// Appends steps of our own.
    fn own(&mut self, steps: Range<usize>) {
        match self.pieces.last_mut() {
            Some(Piece::Steps(last)) if last.end == steps.start => last.end = steps.end,
            _ if !steps.is_empty() => self.pieces.push(Piece::Steps(steps)),
            _ => {}
        }
    }

    /// Bytes of weights that are constants of its graphs.
    pub fn constant_bytes(&self) -> u64 {
        self.graphs().flat_map(|g| &g.program.constants).map(Line::bytes).sum()
    }

    /// Its graphs.
    pub fn graphs(&self) -> impl Iterator<Item = &GraphPiece> {
        self.pieces.iter().filter_map(|p| if let Piece::Graph(g) = p { Some(&**g) } else { None })
    }
}

/// The plan for the steps at hand.
///
/// # Errors
/// [`GpuError::NotAGraph`] if all steps are to be one graph and one of them cannot.
pub(crate) fn plan(all: &[Concrete], frame: &Frame) -> Result<Plan, GpuError> {
    let (mut plan, options) = (Plan::default(), frame.options);
    match options.mode {
        GraphMode::Off => plan.own(0..all.len()),
        GraphMode::Whole => {
            let piece = graph(all, 0..all.len(), frame, options.constants).map_err(|(i, why)| {
                let (step, op) = (all[i].step.name.clone(), all[i].op.to_string());
                GpuError::NotAGraph { step, op, why: why.0 }
            })?;
            match busy(all) {
                0 => plan.own(0..all.len()),
                _ => plan.pieces.push(Piece::Graph(Box::new(piece))),
            }
        }
        GraphMode::Products => {
            for i in 0..all.len() {
                single(&mut plan, all, i, options);
            }
        }
        GraphMode::Hybrid => hybrid(&mut plan, all, frame),
    }
    Ok(plan)
}

/// Step `i` as a product, if it is one that is worth it, or as our own.
fn single(plan: &mut Plan, all: &[Concrete], i: usize, options: GraphOptions) {
    match product(i, &all[i]) {
        Ok(p) if all[i].flops >= options.least_flops => plan.pieces.push(Piece::Product(p)),
        _ => plan.own(i..i + 1),
    }
}

fn hybrid(plan: &mut Plan, all: &[Concrete], frame: &Frame) {
    let (mut at, mut room) = (0, frame.options.constants);
    while at < all.len() {
        let Some(piece) = longest(all, at, frame, room) else {
            plan.own(at..at + 1);
            at += 1;
            continue;
        };
        let steps = piece.steps.clone();
        at = steps.end;
        let these = &all[steps.clone()];
        let mut working = steps.clone().filter(|i| !all[*i].is_empty());
        if busy(these) <= 1 && working.next().is_none_or(|i| product(i, &all[i]).is_ok()) {
            steps.for_each(|i| single(plan, all, i, frame.options));
        } else if heavy(these) >= frame.options.least_flops {
            room -= piece.program.constants.iter().map(Line::bytes).sum::<u64>();
            plan.pieces.push(Piece::Graph(Box::new(piece)));
        } else {
            plan.own(steps);
        }
    }
}

/// A line a piece: `graph 0..5: 12 calls, feeds x y, results z, 0 bytes of constants`.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |all: &[Binding]| {
            let one = |b: &Binding| {
                let staged = if b.staged.is_some() { " staged" } else { "" };
                let place = format!("{:?} {}+{}", b.region, b.buffer, b.offset).to_lowercase();
                format!("{place} {}x{}{staged}", b.line.dtype, b.line.elements)
            };
            all.iter().map(one).collect::<Vec<_>>().join(", ")
        };
        for p in &self.pieces {
            match p {
                Piece::Steps(s) => writeln!(f, "steps {s:?}")?,
                Piece::Product(p) => writeln!(f, "product {}", p.step)?,
                Piece::Graph(g) => {
                    let (calls, feeds, results) = (g.program.nodes.len(), list(&g.feeds), list(&g.results));
                    writeln!(
                        f,
                        "graph {:?}: {calls} calls, reads [{feeds}], writes [{results}], constants {:?}",
                        g.steps, g.constants
                    )?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
