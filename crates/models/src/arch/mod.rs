//! The architectures: a table of what each form of file calls them and of the functions that read and build them.
//!
//! A new architecture is a file with these functions and a row in [`ARCHS`] for each form of file.

mod decoder;
pub mod gemma3;
mod gguf;
mod hf;
pub mod llama;
pub mod qwen;
mod rope;

use frit_ir::{DType, Graph, Registry};

use crate::config::{BuildOptions, Config, Sizes};
use crate::error::ModelError;
use crate::metadata::Metadata;
use crate::names;
use crate::weights::Weights;

/// The form of a model's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One GGUF file; the architecture is its `general.architecture`.
    Gguf,
    /// A Hugging Face folder; the architecture is `model_type` in `config.json`.
    HuggingFace,
}

impl Form {
    /// As people call it.
    pub fn name(self) -> &'static str {
        match self {
            Form::Gguf => "GGUF",
            Form::HuggingFace => "Hugging Face",
        }
    }
}

/// An architecture in one form of file.
#[derive(Debug)]
pub struct Arch {
    /// What the form calls it.
    pub name: &'static str,
    /// The form.
    pub form: Form,
    /// Reads the hyperparameters; shapes of weights tell what the keys leave open.
    pub config: fn(&Metadata, &Weights) -> Result<Config, ModelError>,
    /// Builds the graph.
    pub build: fn(&Config, &Weights, &BuildOptions, &Registry) -> Result<Decoder, ModelError>,
}

/// Every architecture in every form.
pub const ARCHS: &[Arch] = &[
    Arch { name: "llama", form: Form::Gguf, config: llama::from_gguf, build: llama::build },
    Arch { name: "llama", form: Form::HuggingFace, config: llama::from_llama, build: llama::build },
    Arch { name: "mistral", form: Form::HuggingFace, config: llama::from_mistral, build: llama::build },
    Arch { name: "qwen2", form: Form::Gguf, config: qwen::from_gguf2, build: llama::build },
    Arch { name: "qwen2", form: Form::HuggingFace, config: qwen::from_qwen2, build: llama::build },
    Arch { name: "qwen3", form: Form::Gguf, config: qwen::from_gguf3, build: llama::build },
    Arch { name: "qwen3", form: Form::HuggingFace, config: qwen::from_qwen3, build: llama::build },
    Arch { name: "gemma3", form: Form::Gguf, config: gemma3::from_gguf, build: gemma3::build },
    Arch { name: "gemma3_text", form: Form::HuggingFace, config: gemma3::from_hf, build: gemma3::build },
];

/// The architecture that a file of this form calls `name`.
///
/// # Errors
/// There is none; the message lists those there are.
pub fn find(form: Form, name: &str) -> Result<&'static Arch, ModelError> {
    let of_form = || ARCHS.iter().filter(|a| a.form == form);
    of_form().find(|a| a.name == name).ok_or_else(|| ModelError::UnknownArch {
        name: name.into(),
        source_kind: form.name(),
        known: of_form().map(|a| a.name).collect::<Vec<_>>().join(", "),
    })
}

impl Arch {
    /// The canonical name of a tensor of the file.
    pub fn canonical(&self, name: &str) -> String {
        match self.form {
            Form::Gguf if self.name == "gemma3" => names::from_gguf_gemma(name),
            Form::Gguf => names::from_gguf(name),
            Form::HuggingFace => name.into(),
        }
    }

    /// The weights of a file, given as (name in the file, element type, extents outermost first).
    ///
    /// # Errors
    /// Two tensors have one canonical name.
    pub fn weights(
        &self,
        tensors: impl IntoIterator<Item = (String, DType, Vec<usize>)>,
    ) -> Result<Weights, ModelError> {
        Weights::new(tensors, |n| self.canonical(n))
    }
}

/// A decoder-only language model as a graph.
///
/// Symbols: `T` tokens in a step, `C` positions that a session holds, `R` rows of logits, `B` sequences (just 1 unless built for more).
/// Inputs: `tokens` `i32 [B, T]`; `positions` `i32 [B, T]`; `kv_len` `i32 [B]`, the positions in use after the step; `rows` `i32 [R]`,
/// which of the B·T tokens of the step to give logits for. A sequence with fewer than `T` tokens is padded on the left, with position
/// −1. Output: `logits` `f32 [R, vocab]`. Parameters have the canonical names of the weights, states hold keys and values.
#[derive(Clone, Debug)]
pub struct Decoder {
    /// The graph, of unfused ops.
    pub graph: Graph,
    /// The hyperparameters.
    pub config: Config,
    /// What it was built with.
    pub sizes: Sizes,
}
