//! The architectures: a table of what each form of file calls them and of the functions that read and build them.
//!
//! A new architecture is a file with these functions and a row in [`ARCHS`] for each form of file. A row is a decoder, which
//! generates text, or an encoder, which makes vectors of texts.

pub mod bert;
mod decoder;
pub mod gemma3;
mod gguf;
mod hf;
pub mod llama;
pub mod qwen;
mod rope;

use frit_ir::{DType, Graph, Registry};

use crate::config::{BuildOptions, Config, Sizes};
use crate::encoder::{EncoderConfig, EncoderOptions, EncoderSizes};
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

/// The two functions of an architecture: configuration `C`, options `O`, model `M`.
#[derive(Debug)]
pub struct Functions<C, O, M> {
    /// Reads the hyperparameters; shapes of weights tell what the keys leave open.
    pub config: fn(&Metadata, &Weights) -> Result<C, ModelError>,
    /// Builds the graph.
    pub build: fn(&C, &Weights, &O, &Registry) -> Result<M, ModelError>,
}

/// The functions of a decoder.
pub type DecoderFunctions = Functions<Config, BuildOptions, Decoder>;

/// The functions of an encoder.
pub type EncoderFunctions = Functions<EncoderConfig, EncoderOptions, Encoder>;

/// What an architecture is.
#[derive(Debug)]
pub enum Kind {
    /// A language model that generates text token by token.
    Decoder(DecoderFunctions),
    /// A model that reads whole texts and gives a vector for each token.
    Encoder(EncoderFunctions),
}

/// An architecture in one form of file.
#[derive(Debug)]
pub struct Arch {
    /// What the form calls it.
    pub name: &'static str,
    /// The form.
    pub form: Form,
    /// The canonical name of a tensor of the file.
    pub names: fn(&str) -> String,
    /// Decoder or encoder, with its functions.
    pub kind: Kind,
}

/// Every architecture in every form.
pub const ARCHS: &[Arch] = &[
    decoder("llama", Form::Gguf, llama::from_gguf, llama::build),
    decoder("llama", Form::HuggingFace, llama::from_llama, llama::build),
    decoder("mistral", Form::HuggingFace, llama::from_mistral, llama::build),
    decoder("qwen2", Form::Gguf, qwen::from_gguf2, llama::build),
    decoder("qwen2", Form::HuggingFace, qwen::from_qwen2, llama::build),
    decoder("qwen3", Form::Gguf, qwen::from_gguf3, llama::build),
    decoder("qwen3", Form::HuggingFace, qwen::from_qwen3, llama::build),
    Arch { names: names::from_gguf_gemma, ..decoder("gemma3", Form::Gguf, gemma3::from_gguf, gemma3::build) },
    decoder("gemma3_text", Form::HuggingFace, gemma3::from_hf, gemma3::build),
    Arch {
        names: names::text_part,
        ..decoder("gemma3", Form::HuggingFace, gemma3::from_multimodal, gemma3::build)
    },
    encoder("bert", Form::Gguf, bert::gguf_name, bert::from_gguf, bert::build),
    encoder("bert", Form::HuggingFace, bert::folder_name, bert::from_folder, bert::build),
];

/// A row for a decoder whose tensors have the usual names of the form ([`names`]).
const fn decoder(
    name: &'static str,
    form: Form,
    config: fn(&Metadata, &Weights) -> Result<Config, ModelError>,
    build: fn(&Config, &Weights, &BuildOptions, &Registry) -> Result<Decoder, ModelError>,
) -> Arch {
    let names: fn(&str) -> String = match form {
        Form::Gguf => names::from_gguf,
        Form::HuggingFace => names::unchanged,
    };
    Arch { name, form, names, kind: Kind::Decoder(Functions { config, build }) }
}

/// A row for an encoder.
const fn encoder(
    name: &'static str,
    form: Form,
    names: fn(&str) -> String,
    config: fn(&Metadata, &Weights) -> Result<EncoderConfig, ModelError>,
    build: fn(&EncoderConfig, &Weights, &EncoderOptions, &Registry) -> Result<Encoder, ModelError>,
) -> Arch {
    Arch { name, form, names, kind: Kind::Encoder(Functions { config, build }) }
}

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
    /// Its functions, if it is a decoder.
    pub fn decoder(&self) -> Option<&DecoderFunctions> {
        if let Kind::Decoder(f) = &self.kind { Some(f) } else { None }
    }

    /// Its functions, if it is an encoder.
    pub fn encoder(&self) -> Option<&EncoderFunctions> {
        if let Kind::Encoder(f) = &self.kind { Some(f) } else { None }
    }

    /// The weights of a file, given as (name in the file, element type, extents outermost first).
    ///
    /// # Errors
    /// Two tensors have one canonical name.
    pub fn weights(
        &self,
        tensors: impl IntoIterator<Item = (String, DType, Vec<usize>)>,
    ) -> Result<Weights, ModelError> {
        Weights::new(tensors, self.names)
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

/// An encoder as a graph.
///
/// Symbols: `B` texts in a run, `T` tokens of the longest. Inputs: `tokens` `i32 [B, T]`, each text from the left, what follows it
/// any token; `lengths` `i32 [B]`, the tokens of each text. Output: `hidden` `f32 [B, T, width]`, unspecified behind a text's end.
#[derive(Clone, Debug)]
pub struct Encoder {
    /// The graph, of unfused ops.
    pub graph: Graph,
    /// The hyperparameters.
    pub config: EncoderConfig,
    /// What it was built with.
    pub sizes: EncoderSizes,
}
