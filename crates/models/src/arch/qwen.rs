//! Qwen2 and Qwen3, dense: Llama with biases on queries, keys and values (2), or with norms on queries and keys (3). Their graph is
//! that of [`super::llama`].

use crate::arch::{gguf, hf};
use crate::config::{Config, RopeStyle};
use crate::error::ModelError;
use crate::metadata::Metadata;
use crate::weights::Weights;

/// The hyperparameters of a `qwen2` folder.
///
/// # Errors
/// Keys missing, out of range, or with a value that is not supported.
pub fn from_qwen2(m: &Metadata, _: &Weights) -> Result<Config, ModelError> {
    Config { qkv_bias: true, ..folder(m)? }.checked()
}

/// The hyperparameters of a `qwen3` folder.
///
/// # Errors
/// As [`from_qwen2`].
pub fn from_qwen3(m: &Metadata, _: &Weights) -> Result<Config, ModelError> {
    // Without this key the width is not `hidden / heads` here.
    m.need_size("head_dim")?;
    let bias = m.flag("attention_bias")?.unwrap_or(false);
    Config { qkv_bias: bias, out_bias: bias, qk_norm: true, ..folder(m)? }.checked()
}

/// What both have in common. The first `max_window_layers` layers have no window, the others only if `use_sliding_window`.
fn folder(m: &Metadata) -> Result<Config, ModelError> {
    let c = hf::common(m)?;
    let window = match m.flag("use_sliding_window")? {
        Some(true) => Some(m.need_size("sliding_window")?),
        _ => None,
    };
    let windows = match (hf::windows(m, c.layers(), window)?, window) {
        (Some(all), _) => all,
        (None, None) => c.windows,
        (None, Some(_)) => {
            let full = m.need_size("max_window_layers")?;
            (0..c.windows.len()).map(|i| window.filter(|_| i >= full)).collect()
        }
    };
    Ok(Config { windows, ..c })
}

/// The hyperparameters of a GGUF file whose architecture is `qwen2`.
///
/// # Errors
/// As [`from_qwen2`].
pub fn from_gguf2(m: &Metadata, weights: &Weights) -> Result<Config, ModelError> {
    Config { qkv_bias: true, ..file(m, weights)? }.checked()
}

/// The hyperparameters of a GGUF file whose architecture is `qwen3`.
///
/// # Errors
/// As [`from_qwen2`].
pub fn from_gguf3(m: &Metadata, weights: &Weights) -> Result<Config, ModelError> {
    Config { qk_norm: true, ..file(m, weights)? }.checked()
}

fn file(m: &Metadata, weights: &Weights) -> Result<Config, ModelError> {
    let window = gguf::key(m, "attention.sliding_window")?;
    // These files do not say which layers it would be for.
    if m.size(&window)?.is_some_and(|n| n > 0) {
        return Err(m.unsupported(&window, "no window"));
    }
    gguf::common(m, weights, RopeStyle::Half)
}
