//! Models on the null driver: golden models without their weights' values, and what a run there must have done.

use std::collections::HashMap;
use std::sync::Arc;

use frit_compile::memory::Placed;
use frit_compile::{Activations, CompileOptions, Compiled, compile};
use frit_gpu::device::Device;
use frit_gpu::driver::{BufferId, Driver, HostData};
use frit_gpu::drivers::null::{Access, Null, Ran, info};
use frit_gpu::executor::Executable;
use frit_gpu::session::Session;
use frit_ir::schedule::{Candidate, KernelStep, Operand, Region, Schedule, Step, WeightSource};
use frit_ir::{DType, Dim, Graph, Sym};
use frit_models::arch::{self, Form, Kind};
use frit_models::config::BuildOptions;
use frit_models::encoder::EncoderOptions;
use frit_models::metadata::Metadata;
use safetensors::SafeTensors;

use crate::golden;

/// A result, or a line that says what was wrong.
pub type Result<T> = std::result::Result<T, String>;

fn line(e: impl std::fmt::Display) -> String {
    e.to_string()
}

/// The graph of the golden model `name`, as if it had been trained for as many positions as `options` asks for and its
/// projections (those whose rows are whole blocks) were stored as `stored`.
///
/// # Errors
/// What reading or building it gives.
pub fn graph(name: &str, stored: DType, options: &BuildOptions) -> Result<Graph> {
    let folder = golden::folder(name);
    let text = std::fs::read_to_string(folder.join("config.json")).map_err(line)?;
    let bytes = std::fs::read(folder.join("model.safetensors")).map_err(line)?;
    let (metadata, registry) = (Metadata::from_json(&text).map_err(line)?, frit_ops::registry());
    let architecture = metadata.text("model_type").map_err(line)?.unwrap_or_default();
    let arch = arch::find(Form::HuggingFace, architecture).map_err(line)?;
    let file = SafeTensors::deserialize(&bytes).map_err(line)?;
    let fits = |shape: &[usize]| shape.last().is_some_and(|n| n.is_multiple_of(stored.info().unit_elements));
    let tensors = file.tensors().into_iter().map(|(n, t)| {
        let dtype = if n.ends_with("_proj.weight") && fits(t.shape()) { stored } else { DType::F32 };
        (n, dtype, t.shape().to_vec())
    });
    let weights = arch.weights(tensors).map_err(line)?;
    match &arch.kind {
        Kind::Decoder(f) => {
            let mut config = (f.config)(&metadata, &weights).map_err(line)?;
            config.context = config.context.max(options.context.unwrap_or(0));
            Ok((f.build)(&config, &weights, options, &registry).map_err(line)?.graph)
        }
        Kind::Encoder(f) => {
            let config = (f.config)(&metadata, &weights).map_err(line)?;
            let options = EncoderOptions::default().chunk(options.chunk);
            Ok((f.build)(&config, &weights, &options, &registry).map_err(line)?.graph)
        }
    }
}

/// A graph on a null device.
pub struct Loaded {
    /// The driver.
    pub null: Arc<Null>,
    /// The loaded schedule.
    pub exe: Arc<Executable>,
    /// What lies where in the arena.
    pub placed: Vec<Placed>,
}

/// Compiles and loads `graph` for `null`, each weight filled with a number of its own.
///
/// # Errors
/// What compiling or loading it gives.
pub fn load(graph: &Graph, null: Null, activations: Activations) -> Result<Loaded> {
    let options = CompileOptions::default().activations(activations);
    let target = frit_gpu::catalog::target(null.info());
    load_compiled(compile(graph, &frit_ops::registry(), &target, &options).map_err(line)?, null)
}

/// As [`load`] for what is compiled already.
///
/// # Errors
/// What loading it gives.
pub fn load_compiled(compiled: Compiled, null: Null) -> Result<Loaded> {
    let null = Arc::new(null);
    let device = Device::new(null.clone(), None);
    let sources = compiled.schedule.weights.iter().filter_map(|w| match &w.source {
        WeightSource::Param(n) => Some((n.clone(), w.ty.bytes().as_const()? as usize)),
        WeightSource::Const(_) => None,
    });
    let sizes: HashMap<String, usize> = sources.collect();
    let mut weights = |n: &str| {
        let number = n.bytes().fold(7u8, |h, b| h.wrapping_mul(31).wrapping_add(b));
        sizes.get(n).map(|bytes| Arc::new(vec![number; *bytes]) as HostData)
    };
    let exe = Executable::load(compiled.schedule, &mut weights, &device).map_err(line)?;
    Ok(Loaded { null, exe, placed: compiled.report.memory })
}

/// The golden decoder `name` on a null device of the usual facts.
///
/// # Errors
/// As [`graph`] and [`load`].
pub fn decoder(name: &str, options: &BuildOptions, digests: bool) -> Result<Loaded> {
    let null = Null::new(info());
    let null = if digests { null.with_digests() } else { null };
    load(&graph(name, DType::F32, options)?, null, Activations::F32)
}

fn bytes(v: &[i32]) -> Vec<u8> {
    v.iter().flat_map(|i| i.to_le_bytes()).collect()
}

/// Sets the sizes and inputs of a decoder's next run: `tokens` of its one sequence at `start`, logits for the last `rows`.
/// Gives what it set, by the schedule's inputs.
///
/// # Errors
/// What the session gives.
pub fn set(s: &mut Session, tokens: &[i32], start: usize, rows: usize) -> Result<Vec<Vec<u8>>> {
    let exe = s.executable().clone();
    let n = tokens.len();
    let positions: Vec<i32> = (start..start + n).map(|p| p as i32).collect();
    let chosen: Vec<i32> = (n - rows..n).map(|r| r as i32).collect();
    for (symbol, value) in [("T", n), ("R", rows)] {
        s.set_size(exe.symbol(symbol).map_err(line)?, value as i64).map_err(line)?;
    }
    let mut all = Vec::new();
    for (i, p) in exe.schedule().inputs.iter().enumerate() {
        let value = match p.name.as_str() {
            "tokens" => bytes(tokens),
            "positions" => bytes(&positions),
            "kv_len" => bytes(&[(start + n) as i32]),
            "rows" => bytes(&chosen),
            other => return Err(format!("there is no value for the input `{other}`")),
        };
        s.set_input(i, &value).map_err(line)?;
        all.push(value);
    }
    Ok(all)
}

fn kernel(s: &Schedule, step: u32) -> Option<&KernelStep> {
    match s.steps.get(step as usize)? {
        Step::Kernel(k) => Some(k),
        _ => None,
    }
}

/// The launches with the operand of the schedule that each access stands for.
fn pairs<'a>(s: &'a Schedule, ran: &'a [Ran]) -> Result<Vec<(u32, &'a Operand, &'a Access, bool)>> {
    let mut all = Vec::new();
    for r in ran {
        let k = kernel(s, r.step).ok_or("a launch of a step that is not there")?;
        let reads = k.operands[..k.inputs].iter().flatten().count();
        let count = k.operands.iter().flatten().count();
        if (reads, count) != (r.reads.len(), r.reads.len() + r.writes.len()) {
            return Err(format!("step {} (`{}`): other operands than the schedule's", r.step, k.name));
        }
        let accesses = r.reads.iter().map(|a| (a, false)).chain(r.writes.iter().map(|a| (a, true)));
        all.extend(k.operands.iter().flatten().zip(accesses).map(|(o, (a, write))| (r.step, o, a, write)));
    }
    Ok(all)
}

/// Whether the launches are the steps of the schedule at these sizes, every operand where it must be: arena and states at
/// the schedule's offsets, every other buffer of a region at one aligned place of its own.
///
/// # Errors
/// The first that is not.
pub fn follows_schedule(s: &Schedule, sizes: &[(&str, i64)], ran: &[Ran], align: u64) -> Result<()> {
    let bind = |n: &Sym| sizes.iter().find(|(name, _)| *name == n.name()).map(|(_, v)| *v);
    let eval = |d: &Dim| d.eval(&bind).map_err(line);
    let steps: Vec<u32> = ran.iter().map(|r| r.step).collect();
    if steps != (0..s.steps.len() as u32).collect::<Vec<_>>() {
        return Err(format!("the steps {steps:?} ran"));
    }
    let mut places: HashMap<(Region, u32), (BufferId, u64)> = HashMap::new();
    for (step, o, a, _) in pairs(s, ran)? {
        let bad = |what: &str| Err(format!("step {step}, `{}`: {what}: {a:?} for {o:?}", a.name));
        let all = |dims: &[Dim]| dims.iter().map(eval).collect::<Result<Vec<_>>>();
        if all(&o.dims)? != a.dims || all(&o.strides)? != a.strides {
            return bad("other extents or strides");
        }
        let info = o.dtype.info();
        if info.unit_bytes as u64 * a.unit_elements as u64 != a.unit_bytes * info.unit_elements as u64 {
            return bad("another element type");
        }
        let Some(base) = a.offset.checked_sub(eval(&o.offset)?.unsigned_abs()) else {
            return bad("it is before its buffer");
        };
        let fixed = matches!(o.region, Region::Arena | Region::State);
        if fixed && base != 0 || !base.is_multiple_of(align) {
            return bad("another offset");
        }
        if *places.entry((o.region, o.buffer)).or_insert((a.buffer, base)) != (a.buffer, base) {
            return bad("its buffer lies elsewhere for another step");
        }
    }
    let mut taken: Vec<_> = places.values().collect();
    taken.sort_unstable();
    taken.dedup();
    if taken.len() != places.len() { Err(format!("buffers share a place: {places:?}")) } else { Ok(()) }
}

/// Whether no launch writes over a value that a later step reads: each result in the arena lies in its own place, and places
/// in use at one step have no byte in common, but for a result in place of an operand.
///
/// # Errors
/// The first that does.
pub fn keeps_values(s: &Schedule, placed: &[Placed], ran: &[Ran]) -> Result<()> {
    let end = |p: &Placed| p.offset + p.bytes;
    for (i, p) in placed.iter().enumerate() {
        for q in &placed[..i] {
            let apart = end(p) <= q.offset || end(q) <= p.offset;
            if !apart && p.first < q.last && q.first < p.last {
                return Err(format!("{p:?} and {q:?} overlap while both are in use"));
            }
        }
    }
    for r in ran {
        let alias = |c: &Candidate| frit_gpu::catalog::row(c.row).is_some_and(|r| !r.row.alias.is_empty());
        let may = kernel(s, r.step).is_some_and(|k| k.candidates.iter().all(alias));
        let over = |w: &Access| r.reads.iter().any(|a| a.hull().overlaps(&w.hull()));
        if !may && r.writes.iter().any(over) {
            return Err(format!(
                "step {} (`{}`) writes over what it reads, which it may not",
                r.step, r.entry
            ));
        }
    }
    for (step, o, a, write) in pairs(s, ran)? {
        if o.region != Region::Arena {
            continue;
        }
        let (h, name) = (a.hull(), &kernel(s, step).ok_or("no step")?.name);
        let (from, to) = (h.offset, h.offset + h.bytes);
        let live = |p: &&Placed| p.ty.is_some() && p.first <= step && step <= p.last;
        let mut mine = placed.iter().filter(live).filter(|p| p.offset <= from && to <= end(p));
        // A step is named after the value that it makes, where that has a place.
        let named = write && placed.iter().filter(live).any(|p| p.name == *name);
        let single = kernel(s, step).is_some_and(|k| k.operands.iter().skip(k.inputs).flatten().count() == 1);
        if !mine.any(|p| !(named && single) || p.name == *name) {
            return Err(format!("step {step} (`{name}`): `{}` at {from}..{to} is not in its place", a.name));
        }
    }
    Ok(())
}
