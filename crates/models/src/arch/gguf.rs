//! What the metadata of GGUF files has in common. Keys begin with the name of the architecture that the file states.

use frit_ir::ScalarOp;

use crate::arch::rope;
use crate::blocks::embedding::TABLE;
use crate::config::{Config, DIVISORS, RopeStyle, even_share, layers};
use crate::error::ModelError;
use crate::metadata::Metadata;
use crate::weights::Weights;

/// The key `{architecture}.{name}`.
pub(super) fn key(m: &Metadata, name: &str) -> Result<String, ModelError> {
    let architecture = "general.architecture";
    let prefix = m.text(architecture)?.ok_or_else(|| ModelError::MissingKey(architecture.into()))?;
    Ok(format!("{prefix}.{name}"))
}

/// What decoders have in common: no windows, no norms on queries and keys, biases where the first layer has them.
pub(super) fn common(m: &Metadata, weights: &Weights, style: RopeStyle) -> Result<Config, ModelError> {
    let key = |name: &str| key(m, name);
    for k in [key("expert_count")?, key("expert_used_count")?] {
        if m.size(&k)?.is_some_and(|n| n > 0) {
            return Err(m.unsupported(&k, "0 (no experts)"));
        }
    }
    let hidden = m.need_size(&key("embedding_length")?)?;
    let heads = m.need_size(&key("attention.head_count")?)?;
    let context = m.need_size(&key("context_length")?)?;
    let head_dim = match m.size(&key("attention.key_length")?)? {
        Some(d) => d,
        None => even_share(&key("embedding_length")?, hidden, heads)?,
    };
    let value_length = key("attention.value_length")?;
    if m.size(&value_length)?.is_some_and(|v| v != head_dim) {
        return Err(m.unsupported(&value_length, &format!("{head_dim}, the width of a key")));
    }
    let epsilon = key("attention.layer_norm_rms_epsilon")?;
    let vocab = weights.get(TABLE).and_then(|w| w.shape.first().copied());
    let has = |part: &str| weights.has(&format!("model.layers.0.{part}.bias"));
    let special = |name: &str| m.tokens(&format!("tokenizer.ggml.{name}_token_id"));
    let mut eos = [special("eos")?, special("eot")?, special("eom")?].concat();
    eos.sort_unstable();
    eos.dedup();
    Ok(Config {
        vocab: vocab.ok_or_else(|| ModelError::MissingWeight(TABLE.into()))?,
        hidden,
        intermediate: m.need_size(&key("feed_forward_length")?)?,
        heads,
        kv_heads: m.size(&key("attention.head_count_kv")?)?.unwrap_or(heads),
        head_dim,
        context,
        norm_eps: m.positive(&epsilon)?.ok_or(ModelError::MissingKey(epsilon))?,
        norm_plus_one: false,
        activation: ScalarOp::Silu,
        rope: rope::from_gguf(m, &key("rope")?, head_dim, context, style, weights.has(DIVISORS))?,
        local_rope: None,
        windows: vec![None; layers(m, &key("block_count")?)?],
        qk_norm: false,
        attention_scale: 1.0 / (head_dim as f64).sqrt(),
        attention_softcap: None,
        qkv_bias: has("self_attn.q_proj"),
        out_bias: has("self_attn.o_proj"),
        mlp_bias: has("mlp.gate_proj"),
        embedding_scale: 1.0,
        tied: !weights.has("lm_head.weight"),
        logit_softcap: None,
        bos: special("bos")?.first().copied(),
        eos,
    })
}
