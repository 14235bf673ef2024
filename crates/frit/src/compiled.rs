//! One level below models: compiling a graph of your own and running it by name.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use frit_compile::Report;
use frit_cpu::executor::WeightData;
#[cfg(feature = "gpu")]
use frit_gpu::graphs::GraphOptions;
use frit_ir::schedule::{Port, Schedule, WeightSource};
use frit_ir::{DType, Dim, Graph, Registry, Tensor, Type};

use crate::backend::{Executable, Session as BackendSession};
use crate::custom::Kernels;
use crate::device::{self, DeviceSpec, Opened};
use crate::error::{Error, Result};
use crate::fnv::Fnv;
use crate::snapshot::{self, Part, Snapshot, Taker};
use crate::trace::Trace;
use crate::view::TensorView;

pub use frit_compile::{Activations, Precision, Storage};

/// How a graph is compiled. Start from `CompileOptions::default()` and set what differs.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CompileOptions {
    /// Where it runs.
    pub device: DeviceSpec,
    /// A folder for compiled kernels of GPUs and the results of their self-checks, made if it is missing; it may be deleted at
    /// any time. `None`: kernels are compiled anew by every process.
    pub cache: Option<PathBuf>,
    /// Threads of the CPU's pool; `None` shares one pool of all processors between every model of the process.
    pub threads: Option<usize>,
    /// How matmuls with quantized weights read their activations.
    pub activations: Activations,
    /// Precision of intermediate values.
    pub precision: Precision,
    /// Leave the graph as it is written: no fusion. For comparison; slower.
    pub unfused: bool,
    /// The ops that the graph may use; `None`: the built-in ones ([`graph::registry`](crate::graph::registry)). An op of your own needs an
    /// expansion into built-in ops, or kernels.
    pub registry: Option<Registry>,
    /// Kernels of your own.
    pub kernels: Kernels,
    /// What goes to the device's own graph compiler and library (MPSGraph and MPS on Metal); nothing unless it is asked for. It
    /// is an error on devices that have none.
    #[cfg(feature = "gpu")]
    pub graphs: GraphOptions,
}

impl CompileOptions {
    /// With a pool of its own of `n` threads.
    pub fn threads(mut self, n: usize) -> Self {
        self.threads = Some(n);
        self
    }

    /// On this device.
    pub fn device(mut self, d: DeviceSpec) -> Self {
        self.device = d;
        self
    }

    /// With compiled kernels kept in this folder.
    pub fn cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cache = Some(folder.into());
        self
    }

    /// With this activation mode.
    pub fn activations(mut self, a: Activations) -> Self {
        self.activations = a;
        self
    }

    /// With this precision.
    pub fn precision(mut self, p: Precision) -> Self {
        self.precision = p;
        self
    }

    /// Without fusion.
    pub fn unfused(mut self, yes: bool) -> Self {
        self.unfused = yes;
        self
    }

    /// With these ops.
    pub fn registry(mut self, r: Registry) -> Self {
        self.registry = Some(r);
        self
    }

    /// With these kernels of your own.
    pub fn kernels(mut self, k: Kernels) -> Self {
        self.kernels = k;
        self
    }

    /// With so much for the device's own graph compiler.
    #[cfg(feature = "gpu")]
    pub fn graphs(mut self, g: GraphOptions) -> Self {
        self.graphs = g;
        self
    }
}

/// Weights by name: tensors of yours, or bytes that stay where they are (a mapped file).
#[derive(Clone, Default)]
pub struct Weights {
    map: HashMap<String, Weight>,
}

#[derive(Clone)]
struct Weight {
    dtype: DType,
    /// Extents, where they are known.
    shape: Option<Vec<usize>>,
    data: WeightData,
}

struct TensorBytes(Tensor);

impl AsRef<[u8]> for TensorBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl Weights {
    /// No weights.
    pub fn new() -> Weights {
        Weights::default()
    }

    /// Adds a tensor under `name`; a later one of the same name replaces it.
    pub fn insert(&mut self, name: impl Into<String>, tensor: Tensor) {
        let (dtype, shape) = (tensor.dtype(), Some(tensor.shape().to_vec()));
        self.map.insert(name.into(), Weight { dtype, shape, data: Arc::new(TensorBytes(tensor)) });
    }

    /// Adds bytes of type `dtype` under `name` without copying them; they take the shape of the graph's parameter.
    pub fn insert_bytes(&mut self, name: impl Into<String>, dtype: DType, data: WeightData) {
        self.map.insert(name.into(), Weight { dtype, shape: None, data });
    }
}

impl<S: Into<String>> FromIterator<(S, Tensor)> for Weights {
    fn from_iter<I: IntoIterator<Item = (S, Tensor)>>(iter: I) -> Weights {
        let mut w = Weights::new();
        for (n, t) in iter {
            w.insert(n, t);
        }
        w
    }
}

/// Compiles `graph` for a device of this machine and loads `weights`, one for each parameter of the graph.
///
/// # Errors
/// [`Error::Name`] for a parameter that is not given or a weight that the graph does not have, [`Error::Shape`] for one of
/// another shape or size, [`Error::Value`] for one of another type, [`Error::Unsupported`] for what cannot be compiled,
/// [`Error::Device`] for a device that is not there or does not work.
pub fn compile(graph: &Graph, weights: Weights, options: &CompileOptions) -> Result<Compiled> {
    let opened = device::open(&options.device, options.cache.as_deref(), options.threads)?;
    compile_on(opened, graph, weights, options)
}

/// As [`compile`], on a device that is open already.
pub(crate) fn compile_on(
    opened: Opened,
    graph: &Graph,
    weights: Weights,
    options: &CompileOptions,
) -> Result<Compiled> {
    check_weights(graph, &weights)?;
    let mut o = frit_compile::CompileOptions::default();
    o.fuse = !options.unfused;
    o.activations = options.activations;
    o.precision = options.precision.clone();
    let registry = options.registry.clone().unwrap_or_else(frit_ops::registry);
    options.kernels.check(&registry, &opened.backend.target())?;
    let backend = opened.backend.with(&options.kernels);
    let compiled = frit_compile::compile(graph, &registry, &backend.target(), &o)?;
    let identity = identity(graph, &weights);
    // A weight is let go where it is asked for the last time: what was packed need not stay.
    let (mut map, mut uses) = (weights.map, uses(&compiled.schedule));
    let mut get = |name: &str| {
        let left = uses.get_mut(name)?;
        *left = left.checked_sub(1)?;
        if *left == 0 { map.remove(name).map(|w| w.data) } else { map.get(name).map(|w| w.data.clone()) }
    };
    let exe = backend.load(
        compiled.schedule,
        &mut get,
        #[cfg(feature = "gpu")]
        options.graphs,
    )?;
    let (report, device, passed_over) = (compiled.report, opened.spec, opened.passed_over);
    Ok(Compiled { inner: Arc::new(Inner { exe, report, identity, device, passed_over }) })
}

/// A number that differs between models whose states mean different things: the hash of the graph, the ranges of its symbols
/// aside, and of a few bytes of each weight.
fn identity(graph: &Graph, weights: &Weights) -> u64 {
    /// Bytes of a weight at its beginning, middle and end.
    const SAMPLE: usize = 64;
    let mut hash = Fnv::new();
    let text = frit_ir::text::print(graph);
    let lines = text.lines().filter(|l| !l.starts_with("symbol ") && !l.starts_with("bound "));
    lines.for_each(|l| hash.add(l.as_bytes()));
    let mut names: Vec<&String> = weights.map.keys().collect();
    names.sort();
    for name in names {
        let bytes: &[u8] = (*weights.map[name].data).as_ref();
        let last = bytes.len().saturating_sub(SAMPLE);
        for at in [0, last / 2, last] {
            hash.add(&bytes[at..bytes.len().min(at + SAMPLE)]);
        }
    }
    hash.value()
}

/// How often the schedule asks for each parameter.
fn uses(s: &Schedule) -> HashMap<String, usize> {
    let mut all = HashMap::new();
    for w in &s.weights {
        if let WeightSource::Param(name) = &w.source {
            *all.entry(name.clone()).or_default() += 1;
        }
    }
    all
}

fn check_weights(graph: &Graph, weights: &Weights) -> Result<()> {
    let params: HashMap<&str, &Type> = graph
        .sourced(|s| matches!(s, frit_ir::graph::Source::Param))
        .map(|v| (&*graph.value(v).name, graph.ty(v)))
        .collect();
    for (name, have) in &weights.map {
        let Some(want) = params.get(name.as_str()) else {
            return Err(Error::name(format!("the graph has no parameter `{name}`")));
        };
        if want.dtype != have.dtype {
            return Err(Error::value(format!("parameter `{name}` is {}, got {}", want.dtype, have.dtype)));
        }
        let fits = |shape: &Vec<usize>| {
            let same = |(d, n): (&Dim, &usize)| d.as_const().is_none_or(|d| d == *n as i64);
            shape.len() == want.rank() && want.shape.iter().zip(shape).all(same)
        };
        if let Some(shape) = have.shape.as_ref().filter(|s| !fits(s)) {
            return Err(Error::shape(format!("parameter `{name}` is {want}, got {}{shape:?}", have.dtype)));
        }
    }
    match params.keys().find(|p| !weights.map.contains_key(**p)) {
        Some(p) => Err(Error::name(format!("the parameter `{p}` was never set"))),
        None => Ok(()),
    }
}

struct Inner {
    exe: Executable,
    report: Report,
    identity: u64,
    device: DeviceSpec,
    passed_over: Vec<String>,
}

/// A compiled graph with its weights: cheap to clone, shared between threads.
#[derive(Clone)]
pub struct Compiled {
    inner: Arc<Inner>,
}

impl Compiled {
    /// A new session: its own state, arena, inputs and outputs.
    ///
    /// # Errors
    /// No memory; a state whose extents depend on a symbol (use [`Compiled::session_with`]).
    pub fn session(&self) -> Result<Session> {
        self.session_with(&[])
    }

    /// A new session in which the symbols `fixed` keep these values.
    ///
    /// # Errors
    /// A symbol that is unknown or out of range; no memory.
    pub fn session_with(&self, fixed: &[(&str, i64)]) -> Result<Session> {
        Ok(Session { inner: self.inner.exe.session(fixed)?, identity: self.inner.identity })
    }

    /// The schedule, its placement and its memory plan as data.
    pub fn report(&self) -> &Report {
        &self.inner.report
    }

    /// The schedule: steps over planned memory.
    pub fn schedule(&self) -> &frit_ir::schedule::Schedule {
        self.inner.exe.schedule()
    }

    /// The device as the compiler saw it: the kernel rows that the steps name.
    pub fn target(&self) -> frit_ir::target::Target {
        self.inner.exe.backend().target()
    }

    /// The device that it runs on; never [`DeviceSpec::Auto`].
    pub fn device(&self) -> &DeviceSpec {
        &self.inner.device
    }

    /// For [`DeviceSpec::Auto`]: a line for each device that would have been taken before but did not work, with the reason.
    pub fn passed_over(&self) -> &[String] {
        &self.inner.passed_over
    }

    /// The schedule as text, one step a line.
    pub fn print_schedule(&self) -> String {
        frit_ir::text::print_schedule(self.schedule(), &self.target())
    }

    /// Bytes of weights that this copy holds for itself (packed, aligned or on a GPU), and bytes that it shares with a mapped
    /// file or with the tensors it was given. Sessions add nothing to either.
    pub fn weight_bytes(&self) -> (usize, usize) {
        self.inner.exe.weight_bytes()
    }

    /// What tells its states from those of other models.
    pub(crate) fn identity(&self) -> u64 {
        self.inner.identity
    }

    /// The executable beneath.
    pub(crate) fn executable(&self) -> &Executable {
        &self.inner.exe
    }
}

/// One user of a [`Compiled`] graph.
pub struct Session {
    inner: BackendSession,
    identity: u64,
}

impl Session {
    /// Runs the graph on `inputs` by name, every input of the graph once. Symbols take their values from the extents.
    ///
    /// # Errors
    /// [`Error::Name`] for an input that is unknown, missing or given twice, [`Error::Value`] for a wrong type,
    /// [`Error::Shape`] for extents that do not fit, [`Error::Device`] when a kernel fails.
    pub fn run(&mut self, inputs: &[(&str, &Tensor)]) -> Result<Outputs<'_>> {
        self.set_inputs(inputs)?;
        self.inner.run()?;
        Ok(Outputs { session: &self.inner })
    }

    /// As [`Session::run`], noting when each step runs. Slower: on some devices steps then run one after the other.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_timed(&mut self, inputs: &[(&str, &Tensor)]) -> Result<(Outputs<'_>, Trace)> {
        self.set_inputs(inputs)?;
        let trace = self.inner.run_timed()?;
        Ok((Outputs { session: &self.inner }, trace))
    }

    /// Takes the sizes from the inputs and gives them to the backend.
    fn set_inputs(&mut self, inputs: &[(&str, &Tensor)]) -> Result<()> {
        let exe = self.inner.executable();
        let ports = &exe.schedule().inputs;
        for (i, (name, _)) in inputs.iter().enumerate() {
            if inputs[..i].iter().any(|(n, _)| n == name) {
                return Err(Error::name(format!("the input `{name}` is given twice")));
            }
            if !ports.iter().any(|p| p.name == *name) {
                let known = ports.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ");
                return Err(Error::name(format!("there is no input `{name}`; there are: {known}")));
            }
        }
        let given = |p: &Port| inputs.iter().find(|(n, _)| *n == p.name).map(|(_, t)| *t);
        for p in ports {
            let t = given(p).ok_or_else(|| Error::name(format!("the input `{}` was not given", p.name)))?;
            self.bind(&exe, p, t)?;
        }
        // Every symbol has its last value now: what an earlier extent made of it must be the same.
        for p in ports {
            for (axis, n) in given(p).iter().flat_map(|t| t.shape()).enumerate() {
                if let Some(name) = symbol_of(&p.ty.shape[axis])
                    && self.inner.size(exe.symbol(name)?) != *n as i64
                {
                    return Err(contradiction(name, (p, axis, *n), ports, &given));
                }
            }
        }
        for (slot, p) in ports.iter().enumerate() {
            if let Some(t) = given(p) {
                let want = self.inner.input_dims(slot)?;
                if want.as_slice() != t.shape() {
                    let (name, ty, got) = (&p.name, &p.ty, t.shape());
                    return Err(Error::shape(format!(
                        "input `{name}` takes {ty}, {want:?} at these sizes, got {got:?}"
                    )));
                }
                self.inner.set_input(slot, t.bytes())?;
            }
        }
        Ok(())
    }

    /// A copy of every state of the graph.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn snapshot(&self) -> Result<Snapshot> {
        let copy = |(slot, p): (usize, Part)| {
            let mut bytes = snapshot::buffer(&p)?;
            self.inner.read_state(slot, 0, &mut bytes)?;
            Ok((p, bytes))
        };
        let states = self.parts()?.into_iter().enumerate().map(copy).collect::<Result<_>>()?;
        Ok(Snapshot { identity: self.identity, tokens: None, kept: Vec::new(), states })
    }

    /// Goes on from a snapshot that any session of the same graph and weights made.
    ///
    /// # Errors
    /// [`Error::Value`] for another graph's, [`Error::WrongTask`] for a generator's, [`Error::Shape`] when other symbols were fixed;
    /// nothing is changed then.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<()> {
        snapshot.check(&self.taker())?;
        self.take(snapshot)
    }

    /// Another session with a copy of every state.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn fork(&self) -> Result<Session> {
        let mut session = Session { inner: self.inner.fresh()?, identity: self.identity };
        session.take(&self.snapshot()?)?;
        Ok(session)
    }

    /// Writes every state, to be read by [`Session::load`] of the same graph and weights.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::OutOfMemory`].
    pub fn save(&self, writer: impl Write) -> Result<()> {
        self.snapshot()?.write(writer)
    }

    /// Goes on from states that [`Session::save`] wrote. It reads in small pieces: wrap a file in a `BufReader`.
    ///
    /// # Errors
    /// As [`Session::restore`]; [`Error::Format`] for bytes that are no saved state, cut short or changed, [`Error::Unsupported`] for
    /// another version of the format, [`Error::Io`]. Nothing is changed then.
    pub fn load(&mut self, reader: impl Read) -> Result<()> {
        let snapshot = Snapshot::read(reader, &self.taker())?;
        self.take(&snapshot)
    }

    fn parts(&self) -> Result<Vec<Part>> {
        let states = self.inner.schedule().states.iter().enumerate();
        let part = |(i, p): (usize, &Port)| Ok(Part { dtype: p.ty.dtype, dims: self.inner.state_dims(i)? });
        states.map(part).collect()
    }

    fn taker(&self) -> Taker<'_> {
        Taker { identity: self.identity, limits: None, rings: 0, parts: Box::new(|_| self.parts()) }
    }

    /// Takes over a snapshot that was checked.
    fn take(&mut self, s: &Snapshot) -> Result<()> {
        for (slot, (_, bytes)) in s.states.iter().enumerate() {
            self.inner.write_state(slot, 0, bytes)?;
        }
        Ok(())
    }

    /// Sets the symbol `name`, for graphs whose inputs do not determine it.
    ///
    /// # Errors
    /// No such symbol; another value was fixed for the session.
    pub fn set_size(&mut self, name: &str, value: i64) -> Result<()> {
        let slot = self.inner.executable().symbol(name)?;
        self.inner.set_size(slot, value)
    }

    /// Checks `t` against the port and takes the values of plain symbols from its extents.
    fn bind(&mut self, exe: &Executable, p: &Port, t: &Tensor) -> Result<()> {
        if t.dtype() != p.ty.dtype {
            return Err(Error::value(format!("input `{}` takes {}, got {}", p.name, p.ty.dtype, t.dtype())));
        }
        let fits = t.shape().len() == p.ty.rank();
        let wrong = || Error::shape(format!("input `{}` takes {}, got {:?}", p.name, p.ty, t.shape()));
        if !fits {
            return Err(wrong());
        }
        for (d, n) in p.ty.shape.iter().zip(t.shape()) {
            match (d.as_const(), symbol_of(d)) {
                (Some(want), _) if want != *n as i64 => return Err(wrong()),
                (None, Some(name)) => self.inner.set_size(exe.symbol(name)?, *n as i64)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// The error of a symbol that two extents make different: extent `axis` of `port` makes it `n`, another extent something else.
fn contradiction<'a>(
    symbol: &str,
    (port, axis, n): (&Port, usize, usize),
    ports: &[Port],
    given: &dyn Fn(&Port) -> Option<&'a Tensor>,
) -> Error {
    let extents = ports.iter().flat_map(|p| {
        let shape = given(p).map_or(&[][..], Tensor::shape);
        p.ty.shape.iter().zip(shape).enumerate().map(move |(i, (d, n))| (p, i, d, *n))
    });
    let mut others = extents.filter(|(_, _, d, m)| symbol_of(d) == Some(symbol) && *m != n);
    let other = others.next().map_or_else(String::new, |(p, i, _, m)| {
        format!(" but {m} by extent {i} of input `{}`, which takes {}", p.name, p.ty)
    });
    Error::shape(format!(
        "`{symbol}` is {n} by extent {axis} of input `{}`, which takes {},{other}",
        port.name, port.ty
    ))
}

/// The name of the symbol that `d` is, if it is just that.
fn symbol_of(d: &Dim) -> Option<&str> {
    match d.terms() {
        [(m, 1)] => match m.as_slice() {
            [frit_ir::dim::Atom::Sym(s)] => Some(s.name()),
            _ => None,
        },
        _ => None,
    }
}

/// The outputs of a run, in the session's own memory.
pub struct Outputs<'a> {
    session: &'a BackendSession,
}

impl<'a> Outputs<'a> {
    /// The output called `name`.
    ///
    /// # Errors
    /// [`Error::Name`] when there is none.
    pub fn get(&self, name: &str) -> Result<TensorView<'a>> {
        let session = self.session;
        let ports = &session.schedule().outputs;
        let slot = ports.iter().position(|p| p.name == name).ok_or_else(|| {
            let known = ports.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ");
            Error::name(format!("there is no output `{name}`; there are: {known}"))
        })?;
        let p = &ports[slot];
        Ok(TensorView::new(&p.name, p.ty.dtype, session.output_dims(slot), session.output(slot)))
    }
}
