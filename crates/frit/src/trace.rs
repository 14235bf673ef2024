//! Where the time of runs goes: a [`Trace`] of timed runs, as totals and as a file for a trace viewer.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use frit_ir::Dim;
use frit_ir::schedule::{Candidate, KernelStep, Step};
use frit_ir::target::Target;
use frit_ir::times::{RunTimes, StepTime};
use serde_json::{Value, json};

use crate::backend::{Executable, Session};

/// Timed runs, one after another.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    runs: Vec<TraceRun>,
}

/// A timed run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TraceRun {
    /// What ran: the graph and the sizes of the run.
    pub name: String,
    /// Where: `cpu`, `cuda`, `metal`, `opencl`.
    pub target: String,
    /// Binding the run's sizes: extents, choice of kernels, parameters, on a GPU the encoding of launches. Zero if the sizes
    /// were those of the run before.
    pub encode: Duration,
    /// Handing the run to the device; zero on the CPU.
    pub submit: Duration,
    /// From then on until the results were there.
    pub wait: Duration,
    /// Every step of the schedule, in the order in which they ran.
    pub steps: Vec<TraceStep>,
    begin: Instant,
}

/// A step of a timed run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceStep {
    /// Name of the value that it makes.
    pub name: String,
    /// What it computes.
    pub op: &'static str,
    /// The kernel row that ran.
    pub kernel: &'static str,
    /// Its begin. On the CPU counted from when the run had its sizes; on a GPU from the begin of the first step, by the
    /// device's clock.
    pub start: Duration,
    /// Its end.
    pub end: Duration,
    /// Floating-point operations at the sizes of the run, as the op states its cost: attention counts every position of its
    /// cache, in use or not.
    pub flops: u64,
    /// Bytes read and written if nothing is cached, the same way.
    pub bytes: u64,
}

/// All steps of a trace that ran one kernel.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Total {
    /// What they compute.
    pub op: &'static str,
    /// The kernel row.
    pub kernel: &'static str,
    /// How many.
    pub count: usize,
    /// The sum of their times.
    pub time: Duration,
    /// Its share of that of all steps, 0 to 1.
    pub share: f64,
    /// The sum of their floating-point operations.
    pub flops: u64,
    /// The sum of the bytes that they read and write.
    pub bytes: u64,
}

impl Total {
    /// Floating-point operations per second; 0 for no time.
    pub fn flops_per_second(&self) -> f64 {
        per_second(self.flops, self.time)
    }

    /// Bytes per second; 0 for no time.
    pub fn bytes_per_second(&self) -> f64 {
        per_second(self.bytes, self.time)
    }
}

fn per_second(n: u64, time: Duration) -> f64 {
    let s = time.as_secs_f64();
    if s > 0.0 { n as f64 / s } else { 0.0 }
}

impl TraceStep {
    /// How long it ran.
    pub fn time(&self) -> Duration {
        self.end.saturating_sub(self.start)
    }
}

impl TraceRun {
    /// How long it took from sizes to results.
    pub fn time(&self) -> Duration {
        self.encode + self.submit + self.wait
    }
}

impl Trace {
    /// The run that `session` has just made. It ended now.
    pub(crate) fn of(session: &Session, times: RunTimes) -> Trace {
        let (now, exe) = (Instant::now(), session.executable());
        let RunTimes { encode, submit, wait, .. } = times;
        let begin = now.checked_sub(encode + submit + wait).unwrap_or(now);
        let (schedule, target) = (exe.schedule(), exe.backend().target());
        let sizes = schedule.symbols.iter().filter_map(|(s, _)| {
            let value = session.size(exe.symbol(s.name()).ok()?);
            Some(format!(" {}={value}", s.name()))
        });
        let name = format!("{}{}", schedule.name, sizes.collect::<String>());
        let kernel = |t: &StepTime| match schedule.steps.get(t.step as usize)? {
            Step::Kernel(k) => Some((k, *t)),
            _ => None,
        };
        let steps = times.steps.iter().filter_map(kernel);
        let steps = steps.map(|(k, t)| step(k, t, session, &exe, &target)).collect();
        Trace { runs: vec![TraceRun { name, target: target.name, encode, submit, wait, steps, begin }] }
    }

    /// The runs, in order.
    pub fn runs(&self) -> &[TraceRun] {
        &self.runs
    }

    /// Adds the runs of `other`, which came later.
    pub fn append(&mut self, other: Trace) {
        self.runs.extend(other.runs);
    }

    /// The steps summed up by kernel, the longest first.
    pub fn totals(&self) -> Vec<Total> {
        let mut all: Vec<Total> = Vec::new();
        let mut places = HashMap::new();
        for s in self.runs.iter().flat_map(|r| &r.steps) {
            let at = *places.entry(s.kernel).or_insert_with(|| {
                let (time, share, flops, bytes) = (Duration::ZERO, 0.0, 0, 0);
                all.push(Total { op: s.op, kernel: s.kernel, count: 0, time, share, flops, bytes });
                all.len() - 1
            });
            let t = &mut all[at];
            t.count += 1;
            t.time += s.time();
            t.flops = t.flops.saturating_add(s.flops);
            t.bytes = t.bytes.saturating_add(s.bytes);
        }
        let whole: Duration = all.iter().map(|t| t.time).sum();
        for t in all.iter_mut().filter(|_| !whole.is_zero()) {
            t.share = t.time.as_secs_f64() / whole.as_secs_f64();
        }
        all.sort_by(|a, b| b.time.cmp(&a.time).then(a.kernel.cmp(b.kernel)));
        all
    }

    /// Writes the trace in the Trace Event Format (a JSON object), which Perfetto and Chrome's `about:tracing` open: the parts
    /// of each run on one track, its steps on another. The steps of a GPU begin where the run is handed to it: its clock is not
    /// the host's. It writes in small pieces: wrap a file in a `BufWriter`.
    ///
    /// # Errors
    /// What `w` gives.
    pub fn write_chrome(&self, mut w: impl Write) -> io::Result<()> {
        w.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")?;
        let mut lanes = 1;
        for r in &self.runs {
            let at = self.runs.first().map_or(Duration::ZERO, |f| r.begin.saturating_duration_since(f.begin));
            event(&mut w, &span(&r.name, "run", HOST, at, r.time(), json!({ "steps": r.steps.len() })))?;
            let mut from = at;
            for (name, time) in [("encode", r.encode), ("submit", r.submit), ("wait", r.wait)] {
                event(&mut w, &span(name, "host", HOST, from, time, json!({})))?;
                from += time;
            }
            lanes = lanes.max(write_steps(&mut w, r, at + r.encode)?);
        }
        let target = self.runs.first().map_or("", |r| &r.target);
        let track = |lane| (HOST + 1 + lane, format!("{target}, steps {}", lane + 1));
        let tracks = (0..lanes).map(track);
        for (tid, name) in [(HOST, "host".to_owned())].into_iter().chain(tracks) {
            let args = json!({ "name": name });
            event(&mut w, &json!({ "ph": "M", "name": "thread_name", "pid": 1, "tid": tid, "args": args }))?;
        }
        let last = json!({ "ph": "M", "name": "process_name", "pid": 1, "args": { "name": "frit" } });
        serde_json::to_writer(&mut w, &last)?;
        w.write_all(b"\n]}\n")?;
        w.flush()
    }
}

/// The track of the host; those of the device follow.
const HOST: usize = 1;

/// Writes the steps of `r`, whose first begins at `at`. Events of one track may not overlap: steps that do go to tracks of their
/// own. Gives the number of tracks.
fn write_steps(w: &mut impl Write, r: &TraceRun, at: Duration) -> io::Result<usize> {
    let mut lanes = vec![Duration::ZERO];
    for s in &r.steps {
        let free = lanes.iter().position(|end| *end <= s.start);
        let lane = free.unwrap_or_else(|| {
            lanes.push(Duration::ZERO);
            lanes.len() - 1
        });
        lanes[lane] = s.end;
        let args = json!({
            "value": s.name,
            "kernel": s.kernel,
            "flops": s.flops,
            "bytes": s.bytes,
            "GFLOP/s": per_second(s.flops, s.time()) / 1e9,
            "GB/s": per_second(s.bytes, s.time()) / 1e9,
        });
        event(w, &span(s.op, "step", HOST + 1 + lane, at + s.start, s.time(), args))?;
    }
    Ok(lanes.len())
}

/// A complete event. The format counts in microseconds; digits behind the point are nanoseconds.
fn span(name: &str, category: &str, tid: usize, at: Duration, time: Duration, args: Value) -> Value {
    let micros = |d: Duration| d.as_nanos() as f64 / 1e3;
    json!({
        "ph": "X", "name": name, "cat": category, "pid": 1, "tid": tid, "ts": micros(at), "dur": micros(time), "args": args,
    })
}

fn event(w: &mut impl Write, e: &Value) -> io::Result<()> {
    serde_json::to_writer(&mut *w, e)?;
    w.write_all(b",\n")
}

fn step(k: &KernelStep, t: StepTime, session: &Session, exe: &Executable, target: &Target) -> TraceStep {
    let value = |d: &Dim| d.eval(&|s| Some(session.size(exe.symbol(s.name()).ok()?))).ok();
    // The candidate that ran, by the rule that the schedule states.
    let fits = |c: &&Candidate| c.guards.iter().all(|g| value(&g.dim).is_some_and(|v| g.holds(v)));
    let row = k.candidates.iter().find(fits).map(|c| target.row(c.row));
    let work = |d: &Dim| value(d).map_or(0, |v| v.max(0).unsigned_abs());
    TraceStep {
        name: k.name.clone(),
        op: row.map_or("", |r| r.op),
        kernel: row.map_or("", |r| r.name),
        start: t.start,
        end: t.end,
        flops: work(&k.flops),
        bytes: work(&k.bytes),
    }
}
