//! Model architectures of Frit: reading a configuration, building the graph, and generating text or embedding texts with it.
//!
//! Nothing here opens a file or runs a graph. A caller finds the [`arch::Arch`], describes the file's tensors to it
//! ([`arch::Arch::weights`]), reads the [`config::Config`], builds the [`arch::Decoder`], gives the weights to a runtime by the names of
//! the graph's parameters, and drives a [`generate::Generation`]; or does the same with an [`encoder::EncoderConfig`] and an
//! [`arch::Encoder`], and makes embeddings of its output ([`embed`]).

pub mod arch;
pub mod blocks;
pub mod config;
pub mod embed;
pub mod encoder;
pub mod error;
pub mod generate;
pub mod metadata;
pub mod names;
pub mod net;
pub mod philox;
pub mod sampling;
pub mod stop;
pub mod weights;

pub use error::ModelError;
