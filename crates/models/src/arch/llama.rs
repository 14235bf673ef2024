//! The Llama family: RMS norms before attention and a gated MLP, rotary positions, grouped key/value heads; with a sliding
//! window, Mistral.

use frit_ir::Registry;

use crate::arch::{Decoder, decoder, gguf, hf};
use crate::blocks::layer::pre_norm;
use crate::config::{BuildOptions, Config, RopeStyle};
use crate::error::ModelError;
use crate::metadata::Metadata;
use crate::weights::Weights;

/// The hyperparameters of a `llama` folder.
///
/// # Errors
/// Keys missing, out of range, or with a value that is not supported.
pub fn from_llama(m: &Metadata, _: &Weights) -> Result<Config, ModelError> {
    let bias = m.flag("attention_bias")?.unwrap_or(false);
    let mlp_bias = m.flag("mlp_bias")?.unwrap_or(false);
    Config { qkv_bias: bias, out_bias: bias, mlp_bias, ..hf::common(m)? }.checked()
}

/// The hyperparameters of a `mistral` folder.
///
/// # Errors
/// As [`from_llama`].
pub fn from_mistral(m: &Metadata, _: &Weights) -> Result<Config, ModelError> {
    let c = hf::common(m)?;
    let window = m.size("sliding_window")?;
    let windows = hf::windows(m, c.layers(), window)?.unwrap_or_else(|| vec![window; c.layers()]);
    Config { windows, ..c }.checked()
}

/// The hyperparameters of a GGUF file whose architecture is `llama` (Mistral files are among them). Queries and keys of these files
/// are permuted for the interleaved rotary style.
///
/// # Errors
/// As [`from_llama`].
pub fn from_gguf(m: &Metadata, weights: &Weights) -> Result<Config, ModelError> {
    let c = gguf::common(m, weights, RopeStyle::Interleaved)?;
    let window = m.size(&gguf::key(m, "attention.sliding_window")?)?;
    Config { windows: vec![window; c.layers()], ..c }.checked()
}

/// Builds the graph that [`Decoder`] describes.
///
/// # Errors
/// Options out of range; weights that are missing, of another shape or type, or not used.
pub fn build(c: &Config, w: &Weights, o: &BuildOptions, registry: &Registry) -> Result<Decoder, ModelError> {
    decoder::build(c, w, o, registry, pre_norm)
}
