//! The compiler of Frit: graph to schedule.
//!
//! `Graph → dimensions → canonicalize → fuse → canonicalize → precision → legalize → memory plan → Schedule`. The compiler
//! knows devices only as [`Target`] data, allocates no device memory and runs nothing but constant folding.

pub mod error;
mod exprs;
pub mod fuse;
pub mod legalize;
pub mod memory;
mod order;
pub mod pass;
pub mod passes;
pub mod testing;
mod work;

use std::time::{Duration, Instant};

use frit_ir::graph::Graph;
use frit_ir::op::Registry;
use frit_ir::schedule::Schedule;
use frit_ir::target::Target;

pub use error::CompileError;
pub use fuse::FuseReport;
pub use legalize::PlacementReport;
pub use pass::PassRecord;
pub use passes::{Precision, Storage};

/// How linears over weights in block formats read their activations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activations {
    /// As they are.
    #[default]
    F32,
    /// Rounded to 8 bits with a scale for 32 consecutive elements; the products are then exact integer sums. The fastest.
    Q8,
    /// Rounded to 16 bits (two times 8) with a scale for 32 consecutive elements: nearly exact, and faster than f32.
    Q16,
}

impl Activations {
    /// The value of the attribute `activations` of `linear`.
    pub fn name(self) -> &'static str {
        match self {
            Activations::F32 => "f32",
            Activations::Q8 => "q8",
            Activations::Q16 => "q16",
        }
    }
}

/// How a graph is compiled. Start from `CompileOptions::default()` and set what differs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CompileOptions {
    /// Canonicalize and fuse. Without it every node becomes a step as it is written.
    pub fuse: bool,
    /// Storage of values between nodes.
    pub precision: Precision,
    /// Activations of quantized linears.
    pub activations: Activations,
    /// Keep the text of the graph after every pass in the report.
    pub keep_text: bool,
}

impl Default for CompileOptions {
    fn default() -> CompileOptions {
        CompileOptions {
            fuse: true,
            precision: Precision::default(),
            activations: Activations::default(),
            keep_text: false,
        }
    }
}

impl CompileOptions {
    /// With or without fusion.
    pub fn fuse(mut self, yes: bool) -> CompileOptions {
        self.fuse = yes;
        self
    }

    /// With this storage of values between nodes.
    pub fn precision(mut self, precision: Precision) -> CompileOptions {
        self.precision = precision;
        self
    }

    /// With these activations of quantized linears.
    pub fn activations(mut self, activations: Activations) -> CompileOptions {
        self.activations = activations;
        self
    }

    /// With the text of the graph after every pass.
    pub fn keep_text(mut self, yes: bool) -> CompileOptions {
        self.keep_text = yes;
        self
    }
}

/// What the passes made of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimized {
    /// The graph that is legalized.
    pub graph: Graph,
    /// Every pass over the graph, in order.
    pub passes: Vec<PassRecord>,
    /// What fusion formed.
    pub fused: FuseReport,
}

/// What the compiler did.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The graph that was legalized.
    pub graph: Graph,
    /// Every pass over the graph, in order.
    pub passes: Vec<PassRecord>,
    /// What fusion formed.
    pub fused: FuseReport,
    /// The kernels chosen.
    pub placement: PlacementReport,
    /// What lies where in the arena, and when.
    pub memory: Vec<memory::Placed>,
    /// Time of legalization and memory planning.
    pub lowering: Duration,
}

/// A compiled graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Compiled {
    /// The schedule.
    pub schedule: Schedule,
    /// How it came about.
    pub report: Report,
}

/// Optimizes `graph` for `target` by the passes alone, without choosing kernels.
///
/// # Errors
/// As [`compile`].
pub fn optimize(
    graph: &Graph,
    registry: &Registry,
    target: &Target,
    options: &CompileOptions,
) -> Result<Optimized, CompileError> {
    pass::run(graph, registry, target, options)
}

/// Compiles `graph` for `target`.
///
/// # Errors
/// The graph does not verify; the target lacks a kernel; a size is beyond what can be addressed. See [`CompileError`].
pub fn compile(
    graph: &Graph,
    registry: &Registry,
    target: &Target,
    options: &CompileOptions,
) -> Result<Compiled, CompileError> {
    let Optimized { graph, passes, fused } = optimize(graph, registry, target, options)?;
    let start = Instant::now();
    let legalized = legalize::legalize(&graph, registry, target)?;
    let schedule = memory::plan(&legalized, target)?;
    let lowering = start.elapsed();
    let memory = memory::map(&legalized, &schedule)?;
    let report = Report { graph, passes, fused, placement: legalized.report, memory, lowering };
    Ok(Compiled { schedule, report })
}
