//! One user of a loaded model ([`Session`]), and its runs: sizes are bound into the run's block of parameters on the host,
//! the launches of each outcome are encoded once, and a run is one upload, one submission and its downloads.

mod vendor;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frit_ir::Sym;
use frit_ir::schedule::{Port, Region};
use frit_ir::sizes::SessionSizes;
use frit_ir::times::RunTimes;

use crate::bind::{Bound, Candidate, Slot, Window};
use crate::catalog;
use crate::driver::{BufferId, SegmentId, Submission, TicketId, Upload};
use crate::error::GpuError;
use crate::executor::Executable;
use crate::graphs::GraphMode;
use crate::launch::{Launch, Span};
use crate::memory::Buffer;
use crate::render::params::{MAX_RANK, OperandValue, Value};

/// Encoded outcomes that a session keeps; the oldest goes first.
const MOST_SEGMENTS: usize = 64;

/// What decides the launches of a run: the candidate of each step and its number of groups.
type Outcome = Vec<(u32, u32)>;

/// What decides the segments of a run: its outcome, and where a vendor's graphs are used, which are compiled for their
/// shapes, the sizes too.
type Key = (Outcome, Vec<i64>);

/// Buffers of a region that lie in one device buffer: where each begins, and how many bytes it has at most.
struct Places {
    at: Vec<u64>,
    most: Vec<u64>,
    end: u64,
}

impl Places {
    fn new(exe: &Executable, ports: &[Port], from: u64, pin: &dyn Fn(&Sym) -> Option<i64>) -> Places {
        let (symbols, align) = (&exe.schedule().symbols, exe.device.info().align);
        let mut p = Places { at: Vec::new(), most: Vec::new(), end: from };
        for port in ports {
            let n = symbols.most_bytes(&port.ty, pin).max(0).unsigned_abs();
            p.at.push(p.end);
            p.most.push(n);
            p.end += n.next_multiple_of(align);
        }
        p
    }
}

/// The segments of a key, in order, and the memory that only they use.
struct Encoded {
    key: Key,
    ids: Vec<SegmentId>,
    _staging: Option<Buffer>,
}

/// One user of an [`Executable`]: its own state, arena, inputs and outputs.
pub struct Session {
    exe: Arc<Executable>,
    sizes: SessionSizes,
    bound: bool,
    values: Vec<i64>,
    arena: Buffer,
    states: Vec<Buffer>,
    /// Parameters, then inputs, as the device has or will have them.
    block: Vec<u8>,
    /// The part of `block` that the device does not have yet.
    dirty: Option<(u64, u64)>,
    inputs: Places,
    outputs: Places,
    device_block: Buffer,
    device_outputs: Buffer,
    given: Vec<bool>,
    segments: Vec<Encoded>,
    /// Those of the run to come.
    current: Vec<SegmentId>,
    encoded: usize,
    /// How long binding took for the run to come.
    binding: Duration,
    last: Outputs,
    /// Memory for the outputs of the next run.
    spare: Outputs,
}

impl Session {
    /// A session with its states zeroed. `fixed` gives the symbols that stay the same for its life, in any order; those that
    /// the extents of a state hold must be among them.
    ///
    /// # Errors
    /// A symbol that is unknown, out of range or missing; no memory.
    pub fn new(exe: &Arc<Executable>, fixed: &[(&str, i64)]) -> Result<Session, GpuError> {
        let (s, device, table) = (exe.schedule(), &exe.device, &exe.tables.sizes);
        let sizes = table.session(fixed)?;
        let pin = |n: &Sym| table.fixed_value(&sizes, n);
        let state = |p: &Port| {
            let (_, bytes) = table.state(&sizes, p)?;
            Buffer::zeroed(device, &format!("the state `{}`", p.name), bytes as u64)
        };
        let states = s.states.iter().map(state).collect::<Result<_, GpuError>>()?;
        let inputs = Places::new(exe, &s.inputs, exe.tables.block, &pin);
        let outputs = Places::new(exe, &s.outputs, 0, &pin);
        let block = usize::try_from(inputs.end).unwrap_or(usize::MAX);
        Ok(Session {
            sizes,
            bound: false,
            values: Vec::with_capacity(exe.tables.sizes.len()),
            arena: Buffer::new(device, "the arena", s.memory.arena)?,
            states,
            block: vec![0; block],
            dirty: None,
            device_block: Buffer::new(device, "the inputs", inputs.end)?,
            device_outputs: Buffer::new(device, "the outputs", outputs.end)?,
            given: vec![false; s.inputs.len()],
            inputs,
            outputs,
            segments: Vec::new(),
            current: Vec::new(),
            encoded: 0,
            binding: Duration::ZERO,
            last: Outputs::default(),
            spare: Outputs::default(),
            exe: exe.clone(),
        })
    }

    /// Another session with the same fixed symbols, its states zeroed.
    ///
    /// # Errors
    /// No memory.
    pub fn fresh(&self) -> Result<Session, GpuError> {
        Session::new(&self.exe, &self.exe.tables.sizes.fixed(&self.sizes))
    }

    /// The loaded model that this session uses.
    pub fn executable(&self) -> &Arc<Executable> {
        &self.exe
    }

    /// Sets the symbol at `slot` (see [`Executable::symbol`]) for the next runs.
    ///
    /// # Errors
    /// The session fixed it to another value.
    pub fn set_size(&mut self, slot: usize, value: i64) -> Result<(), GpuError> {
        if self.exe.tables.sizes.set(&mut self.sizes, slot, value)? {
            self.bound = false;
        }
        Ok(())
    }

    /// The value of the symbol at `slot` for the next runs.
    pub fn size(&self, slot: usize) -> i64 {
        self.sizes.next()[slot]
    }

    /// Extents of input `slot` at the sizes of the next run.
    ///
    /// # Errors
    /// Sizes that do not fit.
    pub fn input_dims(&mut self, slot: usize) -> Result<impl Iterator<Item = usize> + '_, GpuError> {
        self.bind()?;
        Ok(self.exe.tables.inputs[slot].dims.iter().map(|d| self.values[*d as usize].max(0) as usize))
    }

    /// Copies `bytes` into input `slot` (the order of the schedule's inputs), for the runs submitted from now on.
    ///
    /// # Errors
    /// Another number of bytes than the input takes at these sizes; sizes that do not fit.
    pub fn set_input(&mut self, slot: usize, bytes: &[u8]) -> Result<(), GpuError> {
        self.bind()?;
        let want = self.values[self.exe.tables.inputs[slot].bytes as usize].max(0) as usize;
        if bytes.len() != want {
            let name = self.exe.schedule().inputs[slot].name.clone();
            return Err(GpuError::Bytes { what: "input", name, want, got: bytes.len() });
        }
        let at = self.inputs.at[slot] as usize;
        self.block[at..at + want].copy_from_slice(bytes);
        self.touch(at as u64, (at + want) as u64);
        self.given[slot] = true;
        Ok(())
    }

    /// Notes that the device lacks these bytes of the block.
    fn touch(&mut self, from: u64, to: u64) {
        let (a, b) = self.dirty.unwrap_or((from, to));
        self.dirty = Some((a.min(from), b.max(to)));
    }

    /// Extents of output `slot` at the sizes of the last run.
    pub fn output_dims(&self, slot: usize) -> impl Iterator<Item = usize> + '_ {
        self.last.dims(slot).iter().copied()
    }

    /// The bytes of output `slot` that the last [`Session::run`] left; empty before the first.
    pub fn output(&self, slot: usize) -> &[u8] {
        self.last.bytes(slot)
    }

    /// Extents of state `slot`, outermost first.
    ///
    /// # Errors
    /// An extent that overflows.
    pub fn state_dims(&self, slot: usize) -> Result<Vec<usize>, GpuError> {
        Ok(self.exe.tables.sizes.state(&self.sizes, &self.exe.schedule().states[slot])?.0)
    }

    /// Copies the bytes of state `slot` from `offset` on from the device, after the runs submitted before.
    ///
    /// # Errors
    /// A range outside the state; a lost device.
    pub fn read_state(&self, slot: usize, offset: usize, bytes: &mut [u8]) -> Result<(), GpuError> {
        let id = self.state_range(slot, offset, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.exe.device.driver().read(id, offset as u64, bytes)
    }

    /// Copies `bytes` into state `slot` from `offset` on, after the runs submitted before.
    ///
    /// # Errors
    /// A range outside the state; a lost device.
    pub fn write_state(&mut self, slot: usize, offset: usize, bytes: &[u8]) -> Result<(), GpuError> {
        let id = self.state_range(slot, offset, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.exe.device.driver().write(id, offset as u64, bytes)
    }

    /// The buffer of state `slot`, if it has these bytes.
    fn state_range(&self, slot: usize, offset: usize, bytes: usize) -> Result<BufferId, GpuError> {
        let b = &self.states[slot];
        match offset.checked_add(bytes) {
            Some(end) if end as u64 <= b.bytes => Ok(b.id),
            end => {
                let name = self.exe.schedule().states[slot].name.clone();
                let (want, got) = (b.bytes as usize, end.unwrap_or(usize::MAX));
                Err(GpuError::Bytes { what: "state", name, want, got })
            }
        }
    }

    /// Bytes of state `slot`.
    pub fn state_bytes(&self, slot: usize) -> usize {
        self.states[slot].bytes as usize
    }

    /// Bytes this session holds on the device: (arena, states, parameters with inputs and outputs).
    pub fn memory(&self) -> (u64, u64, u64) {
        let states = self.states.iter().map(|b| b.bytes).sum();
        (self.arena.bytes, states, self.device_block.bytes + self.device_outputs.bytes)
    }

    /// How often launches were encoded.
    pub fn encoded(&self) -> usize {
        self.encoded
    }

    /// Runs every step once and waits. Inputs stay as they were set.
    ///
    /// # Errors
    /// As [`Session::submit`] and [`Ticket::wait`].
    pub fn run(&mut self) -> Result<(), GpuError> {
        let outputs = std::mem::take(&mut self.spare);
        let outputs = self.submit_into(outputs, false)?.wait()?;
        self.spare = std::mem::replace(&mut self.last, outputs);
        Ok(())
    }

    /// As [`Session::run`], noting when each step ran. Slower: on some devices launches then run one after the other.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_timed(&mut self) -> Result<RunTimes, GpuError> {
        self.last = self.submit(true)?.wait()?;
        Ok(std::mem::take(&mut self.last.times))
    }

    /// Submits a run without waiting for it; `timed` notes when each step runs. The results belong to the ticket: later
    /// runs do not change them. Runs of a session execute in the order they were submitted.
    ///
    /// # Errors
    /// An input that was never set, sizes that do not fit, a lost device.
    pub fn submit(&mut self, timed: bool) -> Result<Ticket, GpuError> {
        self.submit_into(Outputs::default(), timed)
    }

    /// As [`Session::submit`]; the results go into the memory of `outputs`.
    fn submit_into(&mut self, mut outputs: Outputs, timed: bool) -> Result<Ticket, GpuError> {
        outputs.clear();
        self.bind()?;
        let begin = Instant::now();
        if let Some(i) = self.given.iter().position(|g| !g) {
            return Err(GpuError::InputMissing(self.exe.schedule().inputs[i].name.clone()));
        }
        let mut downloads = Vec::with_capacity(self.exe.tables.outputs.len());
        for (i, p) in self.exe.tables.outputs.iter().enumerate() {
            let bytes = self.values[p.bytes as usize].max(0) as u64;
            downloads.push(self.device_outputs.span(self.outputs.at[i], bytes));
            let dims = p.dims.iter().map(|d| self.values[*d as usize].max(0) as usize).collect();
            outputs.push(bytes as usize, dims);
        }
        let upload = self.dirty.map(|(from, to)| Upload {
            buffer: self.device_block.id,
            offset: from,
            bytes: &self.block[from as usize..to as usize],
        });
        let segments = self.current.as_slice();
        let run = Submission { upload, segments, downloads: &downloads, timed };
        let id = self.exe.device.driver().submit(&run)?;
        self.dirty = None;
        outputs.times.encode = std::mem::take(&mut self.binding);
        outputs.times.submit = begin.elapsed();
        Ok(Ticket { exe: self.exe.clone(), id: Some(id), outputs })
    }

    /// Evaluates every extent for the current sizes, picks kernels, fills the parameter blocks and finds the segment. Does
    /// nothing while the sizes are the same.
    fn bind(&mut self) -> Result<(), GpuError> {
        if self.bound {
            return Ok(());
        }
        let (exe, begin) = (self.exe.clone(), Instant::now());
        self.given.fill(false);
        self.current.clear();
        if let Err(e) = exe.tables.sizes.evaluate(self.sizes.next(), &mut self.values) {
            self.values.clear();
            return Err(e.into());
        }
        // Groups follow the sizes rounded up, so that a few outcomes serve all sizes.
        let up = |v: &i64| (*v).clamp(1, 1 << 62).unsigned_abs().next_power_of_two() as i64;
        let rounded: Vec<i64> = self.sizes.next().iter().map(up).collect();
        let mut outcome = Outcome::with_capacity(exe.tables.steps.len());
        for step in &exe.tables.steps {
            let fits = |c: &&Candidate| c.guards.iter().all(|(d, g)| g.holds(self.values[*d as usize]));
            let Some(at) = step.candidates.iter().position(|c| fits(&c)) else {
                return Err(GpuError::NoKernel(step.name.clone()));
            };
            let c = &step.candidates[at];
            self.write_block(step, c)?;
            let groups = exe.tables.sizes.value(c.grid, &rounded).unwrap_or(i64::MAX);
            let most = u64::from(catalog::most_groups(exe.device.info()));
            let held = u64::from(catalog::held_groups(exe.device.info(), c.row));
            let groups = groups.max(1).unsigned_abs().min(most).next_power_of_two().min(held);
            outcome.push((at as u32, groups as u32));
        }
        if exe.tables.block > 0 {
            self.touch(0, exe.tables.block);
        }
        self.find_segments(outcome)?;
        self.binding = begin.elapsed();
        self.bound = true;
        Ok(())
    }

    /// Writes the parameter block of a step.
    fn write_block(&mut self, step: &Bound, c: &Candidate) -> Result<(), GpuError> {
        let mut operands = Vec::with_capacity(step.operands.len());
        for (i, w) in step.operands.iter().enumerate() {
            operands.push(self.operand(step, i, w)?);
        }
        let value = |p: &Slot| match p {
            Slot::Dim(d) => Value::Int(self.values[*d as usize]),
            Slot::Float(v) => Value::Float(*v),
            Slot::Bits(v) => Value::Int(*v),
        };
        let params: Vec<Value> = c.params.iter().map(value).collect();
        let scratch = step.scratch;
        let (at, n) = (step.block as usize, c.block.bytes());
        c.block.write(&operands, scratch, &params, &mut self.block[at..at + n]);
        Ok(())
    }

    /// The device buffer that holds a buffer of a region, the first byte in it, and how many there are.
    fn place(&self, region: Region, buffer: u32) -> Span {
        let b = buffer as usize;
        match region {
            Region::Weights => self.exe.weight(b),
            Region::State => self.states[b].span(0, self.states[b].bytes),
            Region::Arena => self.arena.span(0, self.arena.bytes),
            Region::Input => self.device_block.span(self.inputs.at[b], self.inputs.most[b]),
            Region::Output => self.device_outputs.span(self.outputs.at[b], self.outputs.most[b]),
        }
    }

    /// The operand `w` at the current sizes, proved to lie inside its buffer.
    fn operand(&self, step: &Bound, index: usize, w: &Window) -> Result<OperandValue, GpuError> {
        let place = self.place(w.region, w.buffer);
        let value = |d: &u32| self.values[*d as usize];
        let rank = w.dims.len();
        let (dims, strides) = ([1; MAX_RANK], [0; MAX_RANK]);
        let mut o = OperandValue { offset: place.offset, rank, dims, strides, aligned: false };
        let mut last = 0i128;
        for (i, (d, s)) in w.dims.iter().zip(&w.strides).enumerate() {
            (o.dims[i], o.strides[i]) = (value(d), value(s));
            last += (o.dims[i] as i128 - 1) * o.strides[i] as i128;
        }
        if o.dims[..rank].iter().any(|d| *d <= 0) {
            return Ok(o);
        }
        let (offset, unit) = (value(&w.offset), w.dtype.info());
        let units = (last + 1 + unit.unit_elements as i128 - 1) / unit.unit_elements as i128;
        let need = offset as i128 + units * unit.unit_bytes as i128;
        if need > place.bytes as i128 || offset < 0 || o.strides[..rank].iter().any(|s| *s < 0) {
            let (step, have) = (step.name.clone(), place.bytes);
            return Err(GpuError::Bounds { step, operand: index, need, have });
        }
        o.offset += offset.unsigned_abs();
        // Kernels read block formats by words of this many bytes.
        let word = 1 << unit.unit_bytes.trailing_zeros().min(4);
        if w.dtype.is_block() && !o.offset.is_multiple_of(word) {
            let why =
                format!("operand {index} ({}) begins at byte {}, no multiple of {word}", w.dtype, o.offset);
            return Err(GpuError::Step { step: step.name.clone(), why });
        }
        o.aligned = o.rows_are_aligned(unit.unit_elements as i64, unit.unit_bytes as i64);
        Ok(o)
    }

    /// Makes the segments of an outcome the current ones; none if there is nothing to launch.
    fn find_segments(&mut self, outcome: Outcome) -> Result<(), GpuError> {
        if outcome.is_empty() {
            return Ok(());
        }
        let graphs = self.exe.graphs().mode != GraphMode::Off;
        let key = (outcome, if graphs { self.sizes.next().to_vec() } else { Vec::new() });
        if let Some(known) = self.segments.iter().find(|e| e.key == key) {
            self.current.extend(&known.ids);
            return Ok(());
        }
        let (ids, _staging) = match graphs {
            true => self.encode_plan(&key.0)?,
            false => (vec![self.encode_steps(&key.0, 0..key.0.len())?], None),
        };
        self.encoded += 1;
        if self.segments.len() == MOST_SEGMENTS {
            let old = self.segments.remove(0);
            old.ids.into_iter().for_each(|id| self.exe.device.driver().release(id));
        }
        self.current.extend(&ids);
        self.segments.push(Encoded { key, ids, _staging });
        Ok(())
    }

    /// The launches of some steps as a segment.
    fn encode_steps(&self, outcome: &Outcome, steps: Range<usize>) -> Result<SegmentId, GpuError> {
        let launches: Vec<Launch> =
            steps.map(|i| self.launch(i, &self.exe.tables.steps[i], outcome[i])).collect();
        self.exe.device.driver().encode(&launches)
    }

    fn launch(&self, number: usize, step: &Bound, (candidate, grid): (u32, u32)) -> Launch {
        let c = &step.candidates[candidate as usize];
        let buffers = step.pointers[..c.buffers].iter().map(|(r, b)| self.place(*r, *b).buffer).collect();
        let (inputs, outputs) = step.operands.split_at(step.inputs);
        let reads = inputs.iter().map(|w| self.reach(w)).collect();
        let mut writes: Vec<Span> = outputs.iter().map(|w| self.reach(w)).collect();
        if !c.row.row.scratch.is_empty() {
            // What other sizes need may be more, and these may need none: up to the end of the arena is always enough.
            let from = step.scratch.min(self.arena.bytes);
            writes.push(self.arena.span(from, self.arena.bytes - from));
        }
        let params = self.device_block.span(step.block, c.block.bytes() as u64);
        let (step, group) = (number as u32, c.row.group);
        Launch { step, kernel: c.kernel, buffers, params, grid, group, reads, writes }
    }

    /// The bytes that an operand may touch for any sizes.
    fn reach(&self, w: &Window) -> Span {
        let whole = self.place(w.region, w.buffer);
        match w.reach {
            Some((from, to)) if w.region == Region::Arena => {
                let to = to.min(whole.bytes);
                let from = from.min(to);
                Span { offset: whole.offset + from, bytes: to - from, ..whole }
            }
            _ => whole,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for id in self.segments.iter().flat_map(|e| &e.ids) {
            self.exe.device.driver().release(*id);
        }
    }
}

/// A submitted run. Dropping it lets go of its results, not of the run.
pub struct Ticket {
    exe: Arc<Executable>,
    id: Option<TicketId>,
    outputs: Outputs,
}

impl Ticket {
    /// Waits for the run and gives its results.
    ///
    /// # Errors
    /// Whatever went wrong on the device since the run was submitted.
    pub fn wait(mut self) -> Result<Outputs, GpuError> {
        let mut outputs = std::mem::take(&mut self.outputs);
        if let Some(id) = self.id.take() {
            let begin = Instant::now();
            outputs.times.steps = self.exe.device.driver().wait(id, outputs.packed_mut())?;
            outputs.times.wait = begin.elapsed();
            outputs.align();
        }
        Ok(outputs)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.exe.device.driver().forget(id);
        }
    }
}

/// Alignment of each result in bytes: that of the largest element type.
const ALIGN: usize = 16;

/// The results of a run, by the schedule's outputs. Each is aligned for its element type.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    /// At least as long as `ports` says.
    data: Vec<u128>,
    /// First byte, number of bytes, extents.
    ports: Vec<(usize, usize, Vec<usize>)>,
    /// How long the run took; its steps, if it was timed.
    pub times: RunTimes,
}

impl Outputs {
    /// Forgets the results and keeps their memory.
    fn clear(&mut self) {
        self.ports.clear();
        self.times = RunTimes::default();
    }

    fn push(&mut self, bytes: usize, dims: Vec<usize>) {
        let at = self.ports.last().map_or(0, |(at, n, _)| (at + n).next_multiple_of(ALIGN));
        self.ports.push((at, bytes, dims));
        let end = (at + bytes).div_ceil(ALIGN);
        if self.data.len() < end {
            self.data.resize(end, 0);
        }
    }

    /// All results one behind the other, as a driver gives them.
    fn packed_mut(&mut self) -> &mut [u8] {
        let bytes = self.ports.iter().map(|p| p.1).sum();
        &mut bytemuck::cast_slice_mut(&mut self.data)[..bytes]
    }

    /// Brings packed results to their places, the last one first: each moves to where nothing is left that is needed.
    fn align(&mut self) {
        let data: &mut [u8] = bytemuck::cast_slice_mut(&mut self.data);
        let mut end: usize = self.ports.iter().map(|p| p.1).sum();
        for (at, bytes, _) in self.ports.iter().rev() {
            if end - bytes != *at {
                data.copy_within(end - bytes..end, *at);
            }
            end -= bytes;
        }
    }

    /// The bytes of output `slot`; empty if there is none.
    pub fn bytes(&self, slot: usize) -> &[u8] {
        let data: &[u8] = bytemuck::cast_slice(&self.data);
        self.ports.get(slot).map_or(&[], |(at, n, _)| &data[*at..at + n])
    }

    /// Its extents.
    pub fn dims(&self, slot: usize) -> &[usize] {
        self.ports.get(slot).map_or(&[], |p| &p.2)
    }
}

#[cfg(test)]
mod tests {
    use super::Outputs;

    #[test]
    fn results_that_come_packed_are_aligned() {
        let mut o = Outputs::default();
        let all: [&[u8]; 4] = [b"abc", b"", b"0123456789abcdefgh", b"xy"];
        all.iter().for_each(|b| o.push(b.len(), vec![b.len()]));
        o.packed_mut().copy_from_slice(&all.concat());
        o.align();
        for (i, want) in all.iter().enumerate() {
            assert_eq!(o.bytes(i), *want);
            assert!(o.bytes(i).as_ptr().addr().is_multiple_of(16));
        }
    }
}
