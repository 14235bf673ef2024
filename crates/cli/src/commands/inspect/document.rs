//! The document of `frit inspect --json`, which the page of `--html` draws: plain data, formulas as text beside their values.

use std::collections::BTreeMap;

use frit::graph::{Symbols, Type};
use frit::schedule::{Formed, NodeName, Placed, Port, Schedule, WeightSource};
use frit::{Graph, Model};
use serde::Serialize;

use super::steps::{self, Size, StepDoc};
use super::{Summary, summary};

/// The whole document.
#[derive(Serialize)]
pub struct Document {
    #[serde(flatten)]
    summary: Summary,
    target: String,
    device: String,
    threads: usize,
    symbols: Vec<Symbol>,
    graph: Graphs,
    passes: Vec<Pass>,
    fusions: Fusions,
    schedule: Steps,
    memory: Memory,
}

impl Document {
    /// Where the model came from.
    pub fn model(&self) -> &str {
        &self.summary.model
    }
}

#[derive(Serialize)]
struct Symbol {
    name: String,
    min: i64,
    max: i64,
}

/// The graph as the model states it, and as it was legalized.
#[derive(Serialize)]
struct Graphs {
    before: Vec<Node>,
    after: Vec<Node>,
}

#[derive(Serialize)]
struct Node {
    names: Vec<String>,
    op: String,
    inputs: Vec<Option<String>>,
    types: Vec<String>,
    attributes: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct Pass {
    name: &'static str,
    nodes: usize,
    milliseconds: f64,
}

#[derive(Serialize)]
struct Fusions {
    sites: Vec<Site>,
    refused: Vec<Refused>,
}

#[derive(Serialize)]
struct Site {
    pattern: &'static str,
    before: Vec<Named>,
    after: Vec<Named>,
}

/// The results of a node and its op.
#[derive(Clone, Serialize)]
pub struct Named {
    /// Names of the results.
    pub names: Vec<String>,
    /// The op.
    pub op: String,
}

impl From<&NodeName> for Named {
    fn from(n: &NodeName) -> Named {
        Named { names: n.names.clone(), op: n.op.clone() }
    }
}

#[derive(Serialize)]
struct Refused {
    pattern: &'static str,
    value: String,
    why: String,
}

#[derive(Serialize)]
struct Steps {
    sizes: Vec<Size>,
    steps: Vec<StepDoc>,
}

#[derive(Serialize)]
struct Memory {
    /// Bytes in use at each step.
    live: Vec<u64>,
    values: Vec<Value>,
    weights: Vec<Buffer>,
    states: Vec<Buffer>,
    inputs: Vec<Buffer>,
    outputs: Vec<Buffer>,
}

/// A stretch of the arena.
#[derive(Serialize)]
struct Value {
    name: String,
    kind: &'static str,
    dtype: Option<String>,
    shape: Vec<String>,
    offset: u64,
    bytes: u64,
    first: u32,
    last: u32,
}

/// A buffer of another region; its bytes are those at the upper bounds of the symbols.
#[derive(Serialize)]
struct Buffer {
    name: String,
    dtype: String,
    shape: Vec<String>,
    bytes: u64,
    packing: Option<&'static str>,
}

/// The document of `model`.
pub fn of(model: &Model) -> Document {
    let c = model.compiled();
    let (report, schedule, target) = (c.report(), c.schedule(), c.target());
    let symbols =
        schedule.symbols.iter().map(|(s, r)| Symbol { name: s.name().into(), min: r.min, max: r.max });
    let pass = |p: &frit::schedule::PassRecord| Pass {
        name: p.name,
        nodes: p.nodes,
        milliseconds: p.time.as_secs_f64() * 1e3,
    };
    let refused = report.fused.refused.iter();
    Document {
        summary: summary(model),
        target: schedule.target.clone(),
        device: model.device().to_string(),
        threads: model.threads(),
        symbols: symbols.collect(),
        graph: Graphs { before: nodes(model.graph()), after: nodes(&report.graph) },
        passes: report.passes.iter().map(pass).collect(),
        fusions: Fusions {
            sites: report.fused.sites.iter().map(site).collect(),
            refused: refused
                .map(|(p, v, w)| Refused { pattern: p, value: v.clone(), why: w.clone() })
                .collect(),
        },
        schedule: Steps { sizes: steps::sizes(schedule), steps: steps::all(schedule, report, &target) },
        memory: memory(schedule, &report.memory, target.align),
    }
}

fn nodes(g: &Graph) -> Vec<Node> {
    let name = |v: &frit::graph::ValueId| g.value(*v).name.to_string();
    let node = |n: &frit::graph::Node| Node {
        names: n.outputs.iter().map(name).collect(),
        op: n.op.to_string(),
        inputs: n.inputs.iter().map(|v| (!v.is_none()).then(|| name(v))).collect(),
        types: n.outputs.iter().map(|v| g.ty(*v).to_string()).collect(),
        attributes: n.attrs.iter().map(|(k, a)| (k.to_owned(), a.to_string())).collect(),
    };
    g.nodes().iter().map(node).collect()
}

fn site(f: &Formed) -> Site {
    let named = |all: &[NodeName]| all.iter().map(Named::from).collect();
    Site { pattern: f.pattern, before: named(&f.before), after: named(&f.after) }
}

fn bytes(symbols: &Symbols, ty: &Type) -> u64 {
    symbols.upper(&ty.bytes()).max(0) as u64
}

/// Bytes of all states at the upper bounds of the symbols.
pub fn state_bytes(s: &Schedule) -> u64 {
    s.states.iter().map(|p| bytes(&s.symbols, &p.ty)).sum()
}

fn shape(ty: &Type) -> Vec<String> {
    ty.shape.iter().map(ToString::to_string).collect()
}

fn memory(s: &Schedule, placed: &[Placed], align: u64) -> Memory {
    let buffer = |name: &str, ty: &Type, packing| Buffer {
        name: name.into(),
        dtype: ty.dtype.to_string(),
        shape: shape(ty),
        bytes: bytes(&s.symbols, ty),
        packing,
    };
    let ports = |all: &[Port]| all.iter().map(|p| buffer(&p.name, &p.ty, None)).collect();
    let weight = |w: &frit::schedule::Weight| match &w.source {
        WeightSource::Param(name) => buffer(name, &w.ty, w.packing),
        WeightSource::Const(_) => buffer("constant", &w.ty, w.packing),
    };
    let value = |p: &Placed| Value {
        name: p.name.clone(),
        kind: if p.ty.is_some() { "value" } else { "scratch" },
        dtype: p.ty.as_ref().map(|t| t.dtype.to_string()),
        shape: p.ty.as_ref().map(shape).unwrap_or_default(),
        offset: p.offset,
        bytes: p.bytes,
        first: p.first,
        last: p.last,
    };
    Memory {
        live: (0..s.steps.len() as u32).map(|i| live(placed, i, align)).collect(),
        values: placed.iter().map(value).collect(),
        weights: s.weights.iter().map(weight).collect(),
        states: ports(&s.states),
        inputs: ports(&s.inputs),
        outputs: ports(&s.outputs),
    }
}

/// Bytes that are in use at a step; what two values share counts once.
fn live(placed: &[Placed], step: u32, align: u64) -> u64 {
    let here = placed.iter().filter(|p| p.first <= step && step <= p.last);
    let mut spans: Vec<(u64, u64)> =
        here.map(|p| (p.offset, p.offset + p.bytes.next_multiple_of(align))).collect();
    spans.sort_unstable();
    let (mut sum, mut end) = (0, 0);
    for (from, to) in spans {
        sum += to.saturating_sub(from.max(end));
        end = end.max(to);
    }
    sum
}
