//! Compiler and runtime for machine-learning graphs: load a language model and generate text, load an encoder and embed texts,
//! or compile and run a graph of your own.
//!
//! ```no_run
//! let model = frit::Model::load("model.gguf")?; // a GGUF file or a Hugging Face folder
//! let mut generator = model.generator(frit::Options::default())?;
//! let mut reply = generator.complete("The capital of France is")?;
//! for piece in &mut reply {
//!     print!("{}", piece?.text);
//! }
//! let end = reply.finish()?; // stop reason, token counts, times
//! # Ok::<(), frit::Error>(())
//! ```
//!
//! ```no_run
//! let model = frit::Model::load("all-MiniLM-L6-v2")?;
//! let mut embedder = model.embedder(frit::EmbedOptions::default())?;
//! let vectors = embedder.embed(&["The cat sits outside", "A feline rests in the garden"])?;
//! # Ok::<(), frit::Error>(())
//! ```
//!
//! * [`Model`] and [`Compiled`] are cheap clones that threads share; weights are held once.
//! * [`Generator`], [`Embedder`] and [`Session`] are one user each: they own their state, move between threads, and run by
//!   `&mut self`. State can be copied ([`Snapshot`]), forked, cut back, saved and loaded.
//! * [`Batch`] generates several texts in the same steps.
//! * [`Reply`] is an iterator of [`Piece`]s; [`Cancel`] stops it within one step from any thread.
//! * Every failure is an [`Error`], whose variants say what a caller can do about it.
//!
//! The library prints nothing, reads no environment variable, sets no handlers and never ends the process.

mod backend;
mod batch;
mod cache;
mod cases;
#[cfg(feature = "text")]
mod chat;
mod compiled;
pub mod custom;
mod decoder;
mod device;
mod embedder;
mod error;
mod fnv;
mod generator;
#[cfg_attr(not(feature = "gpu"), path = "no_gpu.rs")]
mod gpu;
mod model;
#[cfg(feature = "gpu")]
mod selfcheck;
mod snapshot;
mod trace;
mod view;

pub use batch::{Batch, BatchReply, Request};
#[cfg(feature = "text")]
pub use chat::{Message, Role};
pub use compiled::{
    Activations, CompileOptions, Compiled, Outputs, Precision, Session, Storage, Weights, compile,
};
pub use device::{Device, DeviceKind, DeviceSpec, Missing, devices, missing_devices};
pub use embedder::{EmbedOptions, Embedder, Pooling};
pub use error::{Error, Result};
pub use frit_cpu::pool::MAX_THREADS;
#[cfg(feature = "text")]
pub use frit_formats::tokenizer::{EncodeOptions, Tokenizer};
#[cfg(feature = "gpu")]
pub use frit_gpu::graphs::{GraphMode, GraphOptions};
pub use frit_ir::element::Element;
pub use frit_ir::{DType, Dim, Graph, Tensor};
pub use frit_ops::build::Builder;
pub use generator::{Cancel, End, Generator, Options, Piece, Reply, SamplingOptions, Stats, StopReason};
pub use model::{Limits, LoadOptions, Model, Task};
pub use snapshot::Snapshot;
pub use trace::{Total, Trace, TraceRun, TraceStep};
pub use view::TensorView;

/// Graphs in depth: types, expressions, ops of your own, the text format. Less stable than the rest of this crate.
pub mod graph {
    pub use frit_ir::graph::{GraphError, Node};
    pub use frit_ir::op::{
        Case, Cost, Expand, InferCtx, Layout, Lowered, NodeCtx, OpError, RefCtx, Reference, RegistryError,
        View, Vjp,
    };
    pub use frit_ir::text::{parse, print};
    pub use frit_ir::{Attr, Attrs, Expr, OpDef, Registry, ScalarOp, Symbols, Type, ValueId};
    pub use frit_ops::registry;
}

/// What the compiler makes of a graph, as data: see [`Compiled::report`] and [`Compiled::schedule`]. Less stable than the rest of
/// this crate.
pub mod schedule {
    pub use frit_compile::fuse::{Formed, NodeName};
    pub use frit_compile::legalize::Placement;
    pub use frit_compile::memory::Placed;
    pub use frit_compile::{FuseReport, PassRecord, PlacementReport, Report};
    pub use frit_ir::op::ParamValue;
    pub use frit_ir::schedule::{
        Candidate, KernelStep, MemoryReport, Operand, Port, Region, Schedule, SizeGuard, Step, Weight,
        WeightSource,
    };
    pub use frit_ir::target::{KernelRow, Target};
}

/// The README's Rust blocks, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
