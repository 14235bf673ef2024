//! The pass list, and what is recorded of each pass.

use std::time::{Duration, Instant};

use frit_ir::graph::Graph;
use frit_ir::op::Registry;
use frit_ir::target::Target;

use crate::fuse::{self, FuseReport};
use crate::{CompileError, CompileOptions, Optimized, passes};

/// What was recorded of a pass.
#[derive(Clone, Debug, PartialEq)]
pub struct PassRecord {
    /// Name.
    pub name: &'static str,
    /// Time spent.
    pub time: Duration,
    /// Nodes of the graph afterwards.
    pub nodes: usize,
    /// The graph afterwards as text, if [`CompileOptions::keep_text`] asks for it.
    pub text: Option<String>,
}

/// What passes see and leave beside the graph.
struct Scope<'a> {
    registry: &'a Registry,
    target: &'a Target,
    options: &'a CompileOptions,
    fused: FuseReport,
}

type Pass = fn(&Graph, &mut Scope) -> Result<Graph, CompileError>;

const DIMENSIONS: (&str, Pass) = ("dimensions", |g, s| Ok(passes::simplify_dims(g, s.registry)?));
const CANONICALIZE: (&str, Pass) = ("canonicalize", |g, s| Ok(passes::canonicalize(g, s.registry)?));
const PRECISION: (&str, Pass) =
    ("precision", |g, s| Ok(passes::apply_precision(g, s.registry, &s.options.precision)?));
const FUSE: (&str, Pass) = ("fuse", |g, s| {
    let c = fuse::Context { target: s.target, activations: s.options.activations };
    let (g, report) = fuse::fuse(g, s.registry, &c)?;
    s.fused = report;
    Ok(g)
});

/// The passes for these options, in order.
fn list(options: &CompileOptions) -> Vec<(&'static str, Pass)> {
    let mut all = vec![DIMENSIONS];
    if options.fuse {
        // Fusion leaves views between fused ops that cancel.
        all.extend([CANONICALIZE, FUSE, CANONICALIZE]);
    }
    if !options.precision.is_plain() {
        all.push(PRECISION);
    }
    all
}

/// Runs every pass before legalization. In debug builds every graph between is verified.
pub(crate) fn run(
    graph: &Graph,
    registry: &Registry,
    target: &Target,
    options: &CompileOptions,
) -> Result<Optimized, CompileError> {
    frit_ir::verify::verify(graph, registry)?;
    let mut scope = Scope { registry, target, options, fused: FuseReport::default() };
    let mut g: Option<Graph> = None;
    let mut records = Vec::new();
    for (name, pass) in list(options) {
        let start = Instant::now();
        let next = pass(g.as_ref().unwrap_or(graph), &mut scope)?;
        let time = start.elapsed();
        tracing::debug!(pass = name, nodes = next.nodes().len(), ?time);
        let text = options.keep_text.then(|| frit_ir::text::print(&next));
        records.push(PassRecord { name, time, nodes: next.nodes().len(), text });
        if cfg!(debug_assertions) {
            frit_ir::verify::verify(&next, registry)?;
        }
        g = Some(next);
    }
    let g = g.unwrap_or_else(|| graph.clone());
    frit_ir::verify::verify(&g, registry)?;
    Ok(Optimized { graph: g, passes: records, fused: scope.fused })
}
