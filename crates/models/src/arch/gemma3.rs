//! Gemma 3, the text model: norms before and after attention and MLP, norms on queries and keys, windowed layers with a rotary
//! base of their own between layers that see everything, scaled embeddings.

use frit_ir::{DType, Registry, ScalarOp, Tensor};

use crate::arch::{Decoder, decoder, gguf, hf, rope};
use crate::blocks::embedding::TABLE;
use crate::blocks::layer::sandwich;
use crate::config::{BuildOptions, Config, Rope, RopeStyle};
use crate::error::ModelError;
use crate::metadata::{MetaValue, Metadata};
use crate::weights::Weights;

/// Bases of the rotary frequencies of layers that see everything and of windowed ones, and every how many layers one sees
/// everything, where the file says nothing.
const THETA: f64 = 1_000_000.0;
const LOCAL_THETA: f64 = 10_000.0;
const PATTERN: usize = 6;

/// Layers of the one size whose queries are not scaled by the width of a head, as GGUF files leave it to be known:
/// google/gemma-3-27b, with `query_pre_attn_scalar` = hidden / heads.
const LAYERS_27B: usize = 62;

/// The hyperparameters of a `gemma3_text` folder.
///
/// # Errors
/// Keys missing, out of range, or with a value that is not supported.
pub fn from_hf(m: &Metadata, weights: &Weights) -> Result<Config, ModelError> {
    if m.flag("use_bidirectional_attention")? == Some(true) {
        return Err(m.unsupported("use_bidirectional_attention", "false"));
    }
    m.need_size("head_dim")?;
    let c = hf::common(m)?;
    let bias = m.flag("attention_bias")?.unwrap_or(false);
    let window = Some(m.need_size("sliding_window")?);
    let windows = match hf::windows(m, c.layers(), window)? {
        Some(all) => all,
        None => every(m.size("sliding_window_pattern")?.unwrap_or(PATTERN), c.layers(), window),
    };
    let (rope, local) = rope::two_from_hf(m, c.head_dim, c.context, [THETA, LOCAL_THETA])?;
    let table = weights.get(TABLE).map(|w| w.dtype).filter(|d| d.is_float()).unwrap_or(DType::F32);
    Config {
        norm_plus_one: true,
        activation: hf::activation(m, "hidden_activation")?.unwrap_or(ScalarOp::GeluTanh),
        rope,
        local_rope: Some(local),
        windows,
        qkv_bias: bias,
        out_bias: bias,
        attention_scale: m.positive("query_pre_attn_scalar")?.unwrap_or(256.0).powf(-0.5),
        attention_softcap: m.positive("attn_logit_softcapping")?,
        logit_softcap: m.positive("final_logit_softcapping")?,
        embedding_scale: rounded((c.hidden as f64).sqrt(), table)?,
        tied: m.flag("tie_word_embeddings")?.unwrap_or(true),
        qk_norm: true,
        ..c
    }
    .checked()
}

/// `v` in the type `t`: the reference multiplies in the type in which it holds the table.
fn rounded(v: f64, t: DType) -> Result<f64, ModelError> {
    Ok(Tensor::from_f64(t, &[1], &[v])?.to_f64()?[0])
}

/// Sizes that a `text_config` leaves out where they are the reference's defaults.
const DEFAULTS: &[(&str, i64)] = &[
    ("vocab_size", 262_208),
    ("num_attention_heads", 8),
    ("num_key_value_heads", 4),
    ("head_dim", 256),
    ("max_position_embeddings", 131_072),
];

/// The hyperparameters of the text model of a `gemma3` folder, which also reads images.
///
/// # Errors
/// As [`from_hf`].
pub fn from_multimodal(m: &Metadata, weights: &Weights) -> Result<Config, ModelError> {
    let mut text = m.merged("text_config.");
    for (key, value) in DEFAULTS {
        if text.get(key).is_none() {
            text.insert(*key, MetaValue::Int(*value));
        }
    }
    from_hf(&text, weights)
}

/// The hyperparameters of a GGUF file whose architecture is `gemma3`. Its norms' weights have the 1 added already.
///
/// # Errors
/// As [`from_hf`].
pub fn from_gguf(m: &Metadata, weights: &Weights) -> Result<Config, ModelError> {
    let key = |name: &str| gguf::key(m, name);
    let c = gguf::common(m, weights, RopeStyle::Half)?;
    let window = m.size(&key("attention.sliding_window")?)?.filter(|w| *w > 0);
    let pattern = m.size(&key("attention.sliding_window_pattern")?)?.unwrap_or(PATTERN);
    let theta = m.positive(&key("rope.freq_base_swa")?)?.unwrap_or(LOCAL_THETA);
    let scalar = if c.layers() == LAYERS_27B { c.hidden as f64 / c.heads as f64 } else { c.head_dim as f64 };
    Config {
        activation: ScalarOp::GeluTanh,
        local_rope: Some(Rope::plain(theta, c.rope.dims, RopeStyle::Half)),
        windows: every(pattern, c.layers(), window),
        attention_scale: scalar.powf(-0.5),
        attention_softcap: m.positive(&key("attn_logit_softcapping")?)?,
        logit_softcap: m.positive(&key("final_logit_softcapping")?)?,
        embedding_scale: (c.hidden as f64).sqrt(),
        qk_norm: true,
        ..c
    }
    .checked()
}

/// `window` in all layers but every `pattern`-th; in all if `pattern` is 0.
fn every(pattern: usize, layers: usize, window: Option<usize>) -> Vec<Option<usize>> {
    (1..=layers).map(|i| window.filter(|_| pattern == 0 || !i.is_multiple_of(pattern))).collect()
}

/// Builds the graph that [`Decoder`] describes.
///
/// # Errors
/// Options out of range; weights that are missing, of another shape or type, or not used.
pub fn build(c: &Config, w: &Weights, o: &BuildOptions, registry: &Registry) -> Result<Decoder, ModelError> {
    decoder::build(c, w, o, registry, sandwich)
}
