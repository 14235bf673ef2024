//! What the configurations of Hugging Face folders have in common.

use frit_ir::ScalarOp;

use crate::arch::rope;
use crate::config::{Config, even_share, layers};
use crate::error::ModelError;
use crate::metadata::Metadata;

/// What an activation may be called.
const ACTIVATIONS: &[(&str, ScalarOp)] = &[
    ("silu", ScalarOp::Silu),
    ("swish", ScalarOp::Silu),
    ("gelu", ScalarOp::Gelu),
    ("gelu_new", ScalarOp::GeluTanh),
    ("gelu_pytorch_tanh", ScalarOp::GeluTanh),
    ("relu", ScalarOp::Relu),
];

/// The activation that `key` names.
pub(super) fn activation(m: &Metadata, key: &str) -> Result<Option<ScalarOp>, ModelError> {
    let Some(name) = m.text(key)? else { return Ok(None) };
    match ACTIVATIONS.iter().find(|(n, _)| *n == name) {
        Some((_, op)) => Ok(Some(*op)),
        None => {
            let all: Vec<&str> = ACTIVATIONS.iter().map(|(n, _)| *n).collect();
            Err(m.unsupported(key, &all.join(", ")))
        }
    }
}

/// What decoders have in common: no biases, no windows, no norms on queries and keys.
pub(super) fn common(m: &Metadata) -> Result<Config, ModelError> {
    if let Some((key, _)) = m.any_under("quantization_config.") {
        return Err(m.unsupported(key, "unquantized weights, or the model as a GGUF file"));
    }
    let (hidden, heads) = (m.need_size("hidden_size")?, m.need_size("num_attention_heads")?);
    let context = m.need_size("max_position_embeddings")?;
    let head_dim = match m.size("head_dim")? {
        Some(d) => d,
        None => even_share("hidden_size", hidden, heads)?,
    };
    Ok(Config {
        vocab: m.need_size("vocab_size")?,
        hidden,
        intermediate: m.need_size("intermediate_size")?,
        heads,
        kv_heads: m.size("num_key_value_heads")?.unwrap_or(heads),
        head_dim,
        context,
        norm_eps: m.positive("rms_norm_eps")?.unwrap_or(1e-6),
        norm_plus_one: false,
        activation: activation(m, "hidden_act")?.unwrap_or(ScalarOp::Silu),
        rope: rope::from_hf(m, head_dim, context)?,
        local_rope: None,
        windows: vec![None; layers(m, "num_hidden_layers")?],
        qk_norm: false,
        attention_scale: 1.0 / (head_dim as f64).sqrt(),
        attention_softcap: None,
        qkv_bias: false,
        out_bias: false,
        mlp_bias: false,
        embedding_scale: 1.0,
        tied: m.flag("tie_word_embeddings")?.unwrap_or(false),
        logit_softcap: None,
        bos: m.tokens("bos_token_id")?.first().copied(),
        eos: m.tokens("eos_token_id")?,
    })
}

/// The windows of `layers` layers that `layer_types` gives, where the file has it: `window` for each `sliding_attention`.
pub(super) fn windows(
    m: &Metadata,
    layers: usize,
    window: Option<usize>,
) -> Result<Option<Vec<Option<usize>>>, ModelError> {
    let key = "layer_types";
    let Some(types) = m.texts(key)? else { return Ok(None) };
    if types.len() != layers {
        return Err(m.unsupported(key, "one entry per layer"));
    }
    let one = |kind: &str| match (kind, window) {
        ("full_attention", _) => Ok(None),
        ("sliding_attention", Some(w)) => Ok(Some(w)),
        ("sliding_attention", None) => Err(ModelError::MissingKey("sliding_window".into())),
        _ => Err(m.unsupported(key, "full_attention, sliding_attention")),
    };
    types.into_iter().map(one).collect::<Result<_, _>>().map(Some)
}
