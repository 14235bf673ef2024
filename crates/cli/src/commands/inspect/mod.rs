//! `frit inspect`: what becomes of a model.

mod document;
mod page;
mod steps;

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;

use frit::{Compiled, Model};

use crate::args::{InspectArgs, Show};
use crate::failure::Failure;
use crate::models;
use crate::output::{self, megabytes};

/// The summary.
#[derive(Serialize)]
struct Summary {
    schema: u32,
    model: String,
    architecture: String,
    layers: usize,
    context: usize,
    chunk: usize,
    nodes: usize,
    fused_nodes: usize,
    steps: usize,
    fused: BTreeMap<String, usize>,
    steps_by_op: BTreeMap<String, usize>,
    copies: usize,
    weights_by_dtype: BTreeMap<String, usize>,
    arena_bytes: u64,
    live_bytes: u64,
    kv_bytes: u64,
    compile_seconds: f64,
}

/// Runs the command.
pub fn run(a: &InspectArgs) -> Result<(), Failure> {
    let model = models::load(&a.model, &models::options(&a.model))?;
    if a.json {
        return Ok(output::json(&document::of(&model))?);
    }
    if let Some(file) = &a.html {
        return html(&page::render(&document::of(&model)), file);
    }
    let c = model.compiled();
    let text = match a.show {
        Show::Graph => frit::graph::print(model.graph()),
        Show::Fused => frit::graph::print(&c.report().graph),
        Show::Placement => c.report().placement.to_string(),
        Show::Schedule => c.print_schedule(),
        Show::Memory => memory(c),
        Show::Passes => passes(c),
        Show::Summary => in_words(&summary(&model)),
    };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Writes the page to `file`, or to standard output for `-`.
fn html(page: &str, file: &str) -> Result<(), Failure> {
    if file == "-" {
        let mut out = std::io::stdout().lock();
        out.write_all(page.as_bytes())?;
        return Ok(out.flush()?);
    }
    output::file(file, page.as_bytes())
}

fn summary(model: &Model) -> Summary {
    let c = model.compiled();
    let (report, schedule, limits) = (c.report(), c.schedule(), model.limits());
    let mut by_op = BTreeMap::new();
    let mut copies = 0;
    for p in &report.placement.nodes {
        *by_op.entry(p.op.to_string()).or_insert(0) += 1;
        copies += p.copies.len();
    }
    let mut by_dtype = BTreeMap::new();
    for w in &schedule.weights {
        *by_dtype.entry(w.ty.dtype.to_string()).or_insert(0) += 1;
    }
    Summary {
        schema: output::SCHEMA,
        model: model.name().into(),
        architecture: model.architecture().into(),
        layers: model.layers(),
        context: limits.context,
        chunk: limits.chunk,
        nodes: model.graph().nodes().len(),
        fused_nodes: report.graph.nodes().len(),
        steps: schedule.steps.len(),
        fused: report.fused.formed.iter().map(|(n, c)| ((*n).to_owned(), *c)).collect(),
        steps_by_op: by_op,
        copies,
        weights_by_dtype: by_dtype,
        arena_bytes: schedule.memory.arena,
        live_bytes: schedule.memory.live,
        kv_bytes: document::state_bytes(schedule),
        compile_seconds: model.compile_time().as_secs_f64(),
    }
}

fn list(all: &BTreeMap<String, usize>) -> String {
    all.iter().map(|(n, c)| format!("{n} ×{c}")).collect::<Vec<_>>().join(", ")
}

fn in_words(s: &Summary) -> String {
    let rows = [
        ("model", format!("{} ({}, {} layers)", s.model, s.architecture, s.layers)),
        ("context", format!("{} positions, {} tokens a step", s.context, s.chunk)),
        ("graph", format!("{} nodes, {} after fusion, {} steps", s.nodes, s.fused_nodes, s.steps)),
        ("fused", list(&s.fused)),
        ("steps", list(&s.steps_by_op)),
        ("copies", format!("{} inserted", s.copies)),
        ("weights", list(&s.weights_by_dtype)),
        ("arena", format!("{}, largest live set {}", megabytes(s.arena_bytes), megabytes(s.live_bytes))),
        ("KV cache", megabytes(s.kv_bytes)),
        ("compiled in", format!("{:.1} ms", s.compile_seconds * 1e3)),
    ];
    rows.iter().map(|(n, v)| format!("{n:<12} {v}\n")).collect()
}

fn memory(c: &Compiled) -> String {
    let m = &c.schedule().memory;
    let ratio = if m.live > 0 { m.arena as f64 / m.live as f64 } else { 1.0 };
    let mut t = format!(
        "arena {} at the bounds of the symbols, largest live set {}, ratio {ratio:.3}\n",
        megabytes(m.arena),
        megabytes(m.live)
    );
    for (name, bytes, first, last) in &m.largest {
        t += &format!("{:>12} bytes  steps {first}..={last}  {name}\n", bytes);
    }
    t
}

fn passes(c: &Compiled) -> String {
    let r = c.report();
    let mut t = String::new();
    for p in &r.passes {
        t += &format!("{:<14} {:8.2} ms  {} nodes\n", p.name, p.time.as_secs_f64() * 1e3, p.nodes);
    }
    t += &format!(
        "{:<14} {:8.2} ms  {} steps\n",
        "lowering",
        r.lowering.as_secs_f64() * 1e3,
        c.schedule().steps.len()
    );
    for (pattern, n) in &r.fused.formed {
        t += &format!("formed {pattern} ×{n}\n");
    }
    for (pattern, value, why) in &r.fused.refused {
        t += &format!("left {pattern} at {value}: {why}\n");
    }
    t
}
