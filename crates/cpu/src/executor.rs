//! Running a schedule: a loaded model with its weights ([`Executable`]) and its users ([`Session`]).
//!
//! Inside a run nothing is allocated: sizes that changed since the last run are bound into tables made when the session
//! was, then the threads of the pool walk the steps with a barrier between them.

mod steps;

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use frit_ir::schedule::{Region, Schedule, Weight, WeightSource};
use frit_ir::sizes::SessionSizes;
use frit_ir::times::RunTimes;

use crate::args::{MAX_RANK, Operand, Param};
use crate::bind::{Bound, Code, Slot, Tables, Window};
use crate::buffer::Buffer;
use crate::clock::Clock;
use crate::error::ExecError;
use crate::host::HostKernel;
use crate::isa::Isa;
use crate::pack;
use crate::pool::Pool;
use steps::Steps;

/// The bytes of a weight. Holding it keeps the file mapped.
pub type WeightData = Arc<dyn AsRef<[u8]> + Send + Sync>;

enum WeightBuffer {
    /// As it lies in the file or in the graph.
    Shared(WeightData),
    /// Our own aligned copy.
    Owned(Buffer),
    /// Packed, in the buffer that all packed weights share.
    Packed(Range<usize>),
}

/// A schedule with its weights, ready to run. Sessions share it.
pub struct Executable {
    schedule: Schedule,
    tables: Tables,
    host: Vec<&'static HostKernel>,
    weights: Vec<WeightBuffer>,
    /// The packed weights, one behind the other: one large block can have huge pages, many small ones cannot.
    packed: Buffer,
    pool: Arc<Pool>,
}

impl Executable {
    /// Loads `schedule`: resolves its kernels for `isa`, asks `weights` for every parameter by name, packs what the
    /// schedule wants packed.
    ///
    /// # Errors
    /// A schedule for another target; a weight that is missing or has the wrong size; no memory.
    pub fn load(
        schedule: Schedule,
        weights: &mut dyn FnMut(&str) -> Option<WeightData>,
        pool: Arc<Pool>,
        isa: Isa,
    ) -> Result<Arc<Executable>, ExecError> {
        Executable::with_host(schedule, weights, pool, isa, &[])
    }

    /// As [`Executable::load`], for a schedule that was compiled with rows of its user's
    /// ([`target::with_host`](crate::target::with_host)).
    ///
    /// # Errors
    /// As [`Executable::load`]; a row of the user's that asks for too much.
    pub fn with_host(
        schedule: Schedule,
        weights: &mut dyn FnMut(&str) -> Option<WeightData>,
        pool: Arc<Pool>,
        isa: Isa,
        host: &[&'static HostKernel],
    ) -> Result<Arc<Executable>, ExecError> {
        if schedule.target != "cpu" {
            return Err(ExecError::Target(schedule.target));
        }
        let tables = Tables::new(&schedule, isa, host)?;
        let mut total = 0usize;
        let mut places = Vec::with_capacity(schedule.weights.len());
        for w in &schedule.weights {
            let place = Packed::of(w, total)?;
            total = place.as_ref().map_or(total, |p| p.range.end);
            places.push(place);
        }
        let mut packed = allocate("the packed weights", total)?;
        let mut all = Vec::with_capacity(places.len());
        for (w, place) in schedule.weights.iter().zip(places) {
            all.push(load_weight(w, weights, place, &mut packed, &pool)?);
        }
        let host = host.to_vec();
        Ok(Arc::new(Executable { schedule, tables, host, weights: all, packed, pool }))
    }

    fn weight(&self, i: usize) -> &[u8] {
        match &self.weights[i] {
            WeightBuffer::Shared(d) => (**d).as_ref(),
            WeightBuffer::Owned(b) => b.bytes(),
            WeightBuffer::Packed(r) => &self.packed.bytes()[r.clone()],
        }
    }

    /// The schedule.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// The rows of its user's.
    pub fn host(&self) -> &[&'static HostKernel] {
        &self.host
    }

    /// The pool that runs it.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Position of the symbol `name` in the sizes of a run.
    ///
    /// # Errors
    /// No such symbol.
    pub fn symbol(&self, name: &str) -> Result<usize, ExecError> {
        Ok(self.tables.sizes.position(name)?)
    }

    /// Bytes of weights that this copy owns (packed or aligned), and bytes that it shares with files.
    pub fn weight_bytes(&self) -> (usize, usize) {
        let mut sum = (self.packed.len(), 0);
        for w in &self.weights {
            match w {
                WeightBuffer::Packed(_) => {}
                WeightBuffer::Owned(b) => sum.0 += b.len(),
                WeightBuffer::Shared(d) => sum.1 += (**d).as_ref().len(),
            }
        }
        sum
    }
}

/// A weight `[…, N, K]` that is brought into panels.
struct Packed {
    n: usize,
    k: usize,
    /// Its bytes in the buffer of packed weights.
    range: Range<usize>,
}

impl Packed {
    /// Where `w` goes if all before end at `end`; `None` if it is not packed.
    fn of(w: &Weight, end: usize) -> Result<Option<Packed>, ExecError> {
        let Some(packing) = w.packing else { return Ok(None) };
        let dims: Option<Vec<usize>> =
            w.ty.shape.iter().map(|d| usize::try_from(d.as_const()?).ok()).collect();
        let dims = dims.ok_or_else(|| unpackable(w, "its extents are not constant"))?;
        let (Some((k, lead)), true) = (dims.split_last(), packing == pack::NAME) else {
            return Err(unpackable(w, "there is no such layout"));
        };
        let bytes = lead
            .iter()
            .try_fold(1usize, |n, d| n.checked_mul(*d))
            .map(|n| (n, pack::packed_bytes(w.ty.dtype, n, *k)));
        match bytes {
            Some((n, Ok(bytes))) if end.checked_add(bytes).is_some() => {
                Ok(Some(Packed { n, k: *k, range: end..end + bytes }))
            }
            Some((_, Err(e))) => Err(unpackable(w, &e.to_string())),
            _ => Err(unpackable(w, "it is too large")),
        }
    }
}

fn weight_name(w: &Weight) -> String {
    match &w.source {
        WeightSource::Param(n) => n.clone(),
        WeightSource::Const(_) => "a constant".into(),
    }
}

fn unpackable(w: &Weight, why: &str) -> ExecError {
    ExecError::Pack { name: weight_name(w), packing: w.packing.unwrap_or("").into(), why: why.into() }
}

fn load_weight(
    w: &Weight,
    get: &mut dyn FnMut(&str) -> Option<WeightData>,
    place: Option<Packed>,
    packed: &mut Buffer,
    pool: &Pool,
) -> Result<WeightBuffer, ExecError> {
    let name = weight_name(w);
    let data: WeightData = match &w.source {
        WeightSource::Param(n) => get(n).ok_or_else(|| ExecError::WeightMissing(n.clone()))?,
        WeightSource::Const(t) => Arc::new(t.bytes().to_vec()),
    };
    let bytes: &[u8] = (*data).as_ref();
    let want = w.ty.bytes().as_const().and_then(|v| usize::try_from(v).ok()).unwrap_or(usize::MAX);
    if bytes.len() != want {
        return Err(ExecError::WeightBytes { name, ty: w.ty.to_string(), want, got: bytes.len() });
    }
    if let Some(place) = place {
        pack_weight(w, &place, bytes, &mut packed.bytes_mut()[place.range.clone()], pool)?;
        return Ok(WeightBuffer::Packed(place.range));
    }
    let align = if w.ty.dtype.is_block() { 2 } else { w.ty.dtype.info().unit_bytes };
    if (bytes.as_ptr() as usize).is_multiple_of(align) {
        return Ok(WeightBuffer::Shared(data));
    }
    let mut copy = allocate(&name, bytes.len())?;
    copy.bytes_mut().copy_from_slice(bytes);
    Ok(WeightBuffer::Owned(copy))
}

/// Brings a matrix into panels, the threads of the pool sharing the work.
fn pack_weight(w: &Weight, p: &Packed, from: &[u8], to: &mut [u8], pool: &Pool) -> Result<(), ExecError> {
    let (n, k) = (p.n, p.k);
    if to.is_empty() {
        return Ok(());
    }
    // Shares are whole panels, so that each thread reads whole rows and writes a stretch of its own.
    let panels = n.div_ceil(pack::PANEL);
    let share = panels.div_ceil(4 * pool.threads()).max(1);
    let (rows, panel) = (share * pack::PANEL, to.len() / panels);
    let jobs: Vec<_> = from
        .chunks(rows * (from.len() / n))
        .zip(to.chunks_mut(share * panel))
        .map(|job| Mutex::new(Some(job)))
        .collect();
    let failure = Mutex::new(None);
    pool.run(&|team| {
        for i in team.range(jobs.len(), 1) {
            let job = jobs[i].lock().ok().and_then(|mut j| j.take());
            let Some((from, to)) = job else { continue };
            if let Err(e) = pack::pack(w.ty.dtype, rows.min(n - i * rows), k, from, to)
                && let Ok(mut f) = failure.lock()
            {
                f.get_or_insert(e.to_string());
            }
        }
    })?;
    drop(jobs);
    match failure.into_inner() {
        Ok(Some(why)) => Err(unpackable(w, &why)),
        _ => Ok(()),
    }
}

fn allocate(what: &str, bytes: usize) -> Result<Buffer, ExecError> {
    Buffer::zeroed(bytes).map_err(|source| ExecError::OutOfMemory { what: what.into(), bytes, source })
}

/// A step bound to the sizes of a run.
#[derive(Clone, Copy)]
struct Ready {
    code: Code,
    operands: (u32, u32),
    params: (u32, u32),
    scratch: usize,
    scratch_bytes: usize,
}

/// One user of an [`Executable`]: its own state, arena, inputs and outputs.
pub struct Session {
    exe: Arc<Executable>,
    sizes: SessionSizes,
    bound: bool,
    /// How long binding took for the run to come.
    binding: Duration,
    values: Vec<i64>,
    ready: Vec<Ready>,
    operands: Vec<Operand>,
    params: Vec<Param>,
    arena: Buffer,
    states: Vec<Buffer>,
    inputs: Vec<Buffer>,
    given: Vec<bool>,
    outputs: Vec<Buffer>,
}

// SAFETY: the raw pointers in `operands` lead into buffers that this session (or the shared executable, read only) owns.
unsafe impl Send for Session {}

impl Session {
    /// A session with its states zeroed. `fixed` gives the symbols that stay the same for its life, in any order; those that
    /// the extents of a state hold must be among them.
    ///
    /// # Errors
    /// A symbol that is unknown, out of range or missing; a state with a negative extent; no memory.
    pub fn new(exe: &Arc<Executable>, fixed: &[(&str, i64)]) -> Result<Session, ExecError> {
        let t = &exe.tables;
        let sizes = t.sizes.session(fixed)?;
        let s = &exe.schedule;
        let states = s.states.iter().map(|p| {
            let (_, bytes) = t.sizes.state(&sizes, p)?;
            allocate(&format!("state `{}`", p.name), bytes)
        });
        let states = states.collect::<Result<Vec<_>, ExecError>>()?;
        let pin = |n: &frit_ir::Sym| t.sizes.fixed_value(&sizes, n);
        let ports = |all: &[frit_ir::schedule::Port], what: &str| -> Result<Vec<Buffer>, ExecError> {
            all.iter()
                .map(|p| allocate(&format!("{what} `{}`", p.name), size(s.symbols.most_bytes(&p.ty, &pin))))
                .collect()
        };
        let (inputs, outputs) = (ports(&s.inputs, "input")?, ports(&s.outputs, "output")?);
        let arena = allocate("the arena", usize::try_from(s.memory.arena).unwrap_or(usize::MAX))?;
        let operands = t.steps.iter().map(|b| b.operands.len()).sum();
        let params = t.steps.iter().map(most_params).sum();
        Ok(Session {
            sizes,
            bound: false,
            binding: Duration::ZERO,
            values: Vec::with_capacity(t.sizes.len()),
            ready: Vec::with_capacity(t.steps.len()),
            operands: Vec::with_capacity(operands),
            params: Vec::with_capacity(params),
            arena,
            states,
            given: vec![false; inputs.len()],
            inputs,
            outputs,
            exe: exe.clone(),
        })
    }

    /// Another session with the same fixed symbols, its states zeroed.
    ///
    /// # Errors
    /// No memory.
    pub fn fresh(&self) -> Result<Session, ExecError> {
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
    pub fn set_size(&mut self, slot: usize, value: i64) -> Result<(), ExecError> {
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
    pub fn input_dims(&mut self, slot: usize) -> Result<impl Iterator<Item = usize> + '_, ExecError> {
        self.bind()?;
        Ok(self.exe.tables.inputs[slot].dims.iter().map(|d| size(self.values[*d as usize])))
    }

    /// Copies `bytes` into input `slot` (the order of the schedule's inputs). How many there must be follows from the sizes
    /// and is checked by [`Session::run`].
    ///
    /// # Errors
    /// More bytes than the input can ever take.
    pub fn set_input(&mut self, slot: usize, bytes: &[u8]) -> Result<(), ExecError> {
        self.bind()?;
        let want = size(self.values[self.exe.tables.inputs[slot].bytes as usize]);
        let buffer = &mut self.inputs[slot];
        if bytes.len() != want {
            let name = self.exe.schedule.inputs[slot].name.clone();
            return Err(ExecError::InputBytes { name, want, got: bytes.len() });
        }
        buffer.bytes_mut()[..want].copy_from_slice(bytes);
        self.given[slot] = true;
        Ok(())
    }

    /// Extents of output `slot` at the sizes of the last run; zeros before the first.
    pub fn output_dims(&self, slot: usize) -> impl Iterator<Item = usize> + '_ {
        let value = |d: &u32| self.values.get(*d as usize).map_or(0, |v| size(*v));
        self.exe.tables.outputs[slot].dims.iter().map(value)
    }

    /// The bytes of output `slot` that the last run left; empty before the first.
    pub fn output(&self, slot: usize) -> &[u8] {
        let n = self.exe.tables.outputs[slot].bytes as usize;
        let bytes = self.values.get(n).map_or(0, |v| size(*v));
        &self.outputs[slot].bytes()[..bytes]
    }

    /// Extents of state `slot`, outermost first.
    ///
    /// # Errors
    /// An extent that overflows.
    pub fn state_dims(&self, slot: usize) -> Result<Vec<usize>, ExecError> {
        Ok(self.exe.tables.sizes.state(&self.sizes, &self.exe.schedule.states[slot])?.0)
    }

    /// The bytes of state `slot`.
    pub fn state(&self, slot: usize) -> &[u8] {
        self.states[slot].bytes()
    }

    /// The bytes of state `slot`, to write.
    pub fn state_mut(&mut self, slot: usize) -> &mut [u8] {
        self.states[slot].bytes_mut()
    }

    /// Bytes this session holds: (arena, states, inputs and outputs).
    pub fn memory(&self) -> (usize, usize, usize) {
        let sum = |b: &[Buffer]| b.iter().map(Buffer::len).sum::<usize>();
        (self.arena.len(), sum(&self.states), sum(&self.inputs) + sum(&self.outputs))
    }

    /// Runs every step once. Inputs stay as they were set.
    ///
    /// # Errors
    /// An input that was never set, sizes that do not fit, a kernel that failed.
    pub fn run(&mut self) -> Result<(), ExecError> {
        self.run_steps(None).map(drop)
    }

    /// As [`Session::run`], noting when each step ran.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_timed(&mut self) -> Result<RunTimes, ExecError> {
        self.bind()?;
        let clock = Clock::start(self.ready.len());
        let encode = self.run_steps(Some(&clock))?;
        let wait = clock.now();
        Ok(RunTimes { encode, submit: Duration::ZERO, wait, steps: clock.steps() })
    }

    /// Runs every step once, and gives how long binding took for it.
    fn run_steps(&mut self, clock: Option<&Clock>) -> Result<Duration, ExecError> {
        self.bind()?;
        if let Some(i) = self.given.iter().position(|g| !g) {
            return Err(ExecError::InputMissing(self.exe.schedule.inputs[i].name.clone()));
        }
        let (exe, binding) = (self.exe.clone(), std::mem::take(&mut self.binding));
        let steps = Steps { session: self, exe: &exe, clock, failure: Mutex::new(None) };
        let mut from = 0;
        while from < steps.session.ready.len() {
            let stop = AtomicUsize::new(usize::MAX);
            let at = AtomicUsize::new(from);
            exe.pool.run(&|team| steps.walk(from, &stop, &at, team)).map_err(|source| {
                let step = at.load(Ordering::Relaxed).min(exe.tables.steps.len() - 1);
                ExecError::Kernel { step: exe.tables.steps[step].name.clone(), source }
            })?;
            from = stop.into_inner();
        }
        match steps.failure.into_inner() {
            Ok(Some(e)) => Err(e),
            _ => Ok(binding),
        }
    }

    /// Evaluates every extent for the current sizes, picks kernels and fills the operand tables. Does nothing while the sizes
    /// are the same.
    fn bind(&mut self) -> Result<(), ExecError> {
        if self.bound {
            return Ok(());
        }
        let (exe, begin) = (self.exe.clone(), Instant::now());
        let t = &exe.tables;
        // A failed bind must not leave half-filled tables behind as if they were whole.
        self.ready.clear();
        self.operands.clear();
        self.params.clear();
        self.given.fill(false);
        if let Err(e) = t.sizes.evaluate(self.sizes.next(), &mut self.values) {
            self.values.clear();
            return Err(e.into());
        }
        for step in &t.steps {
            self.bind_step(step)?;
        }
        self.binding = begin.elapsed();
        self.bound = true;
        Ok(())
    }

    fn bind_step(&mut self, step: &Bound) -> Result<(), ExecError> {
        let v = &self.values;
        let fits = |g: &[(u32, frit_ir::schedule::SizeGuard)]| g.iter().all(|(d, g)| g.holds(v[*d as usize]));
        let Some(c) = step.candidates.iter().find(|c| fits(&c.guards)) else {
            return Err(ExecError::NoKernel(step.name.clone()));
        };
        let params = self.params.len() as u32;
        self.params.extend(c.params.iter().map(|p| match p {
            Slot::Dim(d) => Param::Int(v[*d as usize]),
            Slot::Float(f) => Param::Float(*f),
        }));
        let operands = self.operands.len() as u32;
        for (i, w) in step.operands.iter().enumerate() {
            let o = match w {
                Some(w) => self.operand(step, i, w)?,
                None => Operand::ABSENT,
            };
            self.operands.push(o);
        }
        self.ready.push(Ready {
            code: c.code,
            operands: (operands, self.operands.len() as u32),
            params: (params, self.params.len() as u32),
            scratch: step.scratch as usize,
            scratch_bytes: size(self.values[c.scratch as usize]),
        });
        Ok(())
    }

    /// The operand `w` at the current sizes, proved to lie inside its buffer.
    fn operand(&self, step: &Bound, index: usize, w: &Window) -> Result<Operand, ExecError> {
        let b = w.buffer as usize;
        let (base, have) = match w.region {
            Region::Weights => {
                let bytes = self.exe.weight(b);
                (bytes.as_ptr().cast_mut(), bytes.len())
            }
            Region::State => (self.states[b].ptr(), self.states[b].len()),
            Region::Arena => (self.arena.ptr(), self.arena.len()),
            Region::Input => (self.inputs[b].ptr(), self.inputs[b].len()),
            Region::Output => (self.outputs[b].ptr(), self.outputs[b].len()),
        };
        let value = |d: &u32| self.values[*d as usize];
        let (mut dims, mut strides) = ([1; MAX_RANK], [0; MAX_RANK]);
        let mut last = 0i128;
        for (i, (d, s)) in w.dims.iter().zip(&w.strides).enumerate() {
            (dims[i], strides[i]) = (value(d), value(s));
            last += (dims[i] as i128 - 1) * strides[i] as i128;
        }
        let rank = w.dims.len();
        let empty = dims[..rank].contains(&0);
        let offset = value(&w.offset);
        if !empty && !w.packed {
            let unit = w.dtype.info();
            let units = (last + 1 + unit.unit_elements as i128 - 1) / unit.unit_elements as i128;
            let need = offset as i128 + units * unit.unit_bytes as i128;
            if need > have as i128 || offset < 0 || strides[..rank].iter().any(|s| *s < 0) {
                return Err(ExecError::Bounds { step: step.name.clone(), operand: index, need, have });
            }
        }
        let offset = if empty || w.packed { 0 } else { offset as usize };
        Ok(Operand { ptr: base.wrapping_add(offset), dtype: w.dtype, rank: rank as u8, dims, strides })
    }
}

/// An extent or a byte count of a session, which [`Tables::evaluate`] proved to be at least 0.
fn size(v: i64) -> usize {
    usize::try_from(v).unwrap_or(0)
}

fn most_params(b: &Bound) -> usize {
    b.candidates.iter().map(|c| c.params.len()).max().unwrap_or(0)
}
