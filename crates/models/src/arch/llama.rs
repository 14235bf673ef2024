//! The Llama family: RMS norms before attention and a gated MLP, rotary positions, grouped key/value heads; with a sliding
//! window, Mistral.

use frit_ir::{DType, Dim, Registry, ScalarOp, ValueId};

use crate::arch::{Decoder, rope};
use crate::blocks::attention::{Inputs, attention};
use crate::blocks::embedding::{TABLE, embed};
use crate::blocks::norm::rms;
use crate::blocks::rope::Rotation;
use crate::blocks::{head, mlp};
use crate::config::{BuildOptions, Config, MAX_LAYERS, RopeStyle, Sizes};
use crate::error::ModelError;
use crate::metadata::Metadata;
use crate::net::Net;
use crate::weights::Weights;

/// What `hidden_act` may be.
const ACTIVATIONS: &[(&str, ScalarOp)] = &[
    ("silu", ScalarOp::Silu),
    ("swish", ScalarOp::Silu),
    ("gelu", ScalarOp::Gelu),
    ("gelu_new", ScalarOp::GeluTanh),
    ("gelu_pytorch_tanh", ScalarOp::GeluTanh),
    ("relu", ScalarOp::Relu),
];

/// The hyperparameters of a `llama` folder.
///
/// # Errors
/// Keys missing, out of range, or with a value that is not supported.
pub fn from_llama(m: &Metadata, _: &Weights) -> Result<Config, ModelError> {
    let bias = m.flag("attention_bias")?.unwrap_or(false);
    let c = Config {
        qkv_bias: bias,
        out_bias: bias,
        mlp_bias: m.flag("mlp_bias")?.unwrap_or(false),
        ..common(m)?
    };
    c.check()?;
    Ok(c)
}

/// The hyperparameters of a `mistral` folder.
///
/// # Errors
/// As [`from_llama`].
pub fn from_mistral(m: &Metadata, _: &Weights) -> Result<Config, ModelError> {
    let mut c = common(m)?;
    let window = m.size("sliding_window")?;
    match m.texts("layer_types")? {
        None => c.windows.fill(window),
        Some(types) => {
            if types.len() != c.layers() {
                return Err(m.unsupported("layer_types", "one entry per layer"));
            }
            for (w, kind) in c.windows.iter_mut().zip(types) {
                *w = match kind {
                    "full_attention" => None,
                    "sliding_attention" => window,
                    _ => return Err(m.unsupported("layer_types", "full_attention, sliding_attention")),
                };
            }
        }
    }
    c.check()?;
    Ok(c)
}

/// What all folders of the family have in common: no biases, no window.
fn common(m: &Metadata) -> Result<Config, ModelError> {
    if let Some((key, _)) = m.any_under("quantization_config.") {
        return Err(m.unsupported(key, "unquantized weights, or the model as a GGUF file"));
    }
    let (hidden, heads) = (m.need_size("hidden_size")?, m.need_size("num_attention_heads")?);
    let context = m.need_size("max_position_embeddings")?;
    let head_dim = match m.size("head_dim")? {
        Some(d) => d,
        None => even_share("hidden_size", hidden, heads)?,
    };
    let activation = match m.text("hidden_act")? {
        None => ScalarOp::Silu,
        Some(name) => match ACTIVATIONS.iter().find(|(n, _)| *n == name) {
            Some((_, op)) => *op,
            None => {
                let all: Vec<&str> = ACTIVATIONS.iter().map(|(n, _)| *n).collect();
                return Err(m.unsupported("hidden_act", &all.join(", ")));
            }
        },
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
        activation,
        rope: rope::from_hf(m, head_dim, context)?,
        windows: vec![None; layers(m, "num_hidden_layers")?],
        qkv_bias: false,
        out_bias: false,
        mlp_bias: false,
        tied: m.flag("tie_word_embeddings")?.unwrap_or(false),
        bos: m.tokens("bos_token_id")?.first().copied(),
        eos: m.tokens("eos_token_id")?,
    })
}

/// The hyperparameters of a GGUF file whose architecture is `llama` (Mistral files are among them). Queries and keys of these files
/// are permuted for the interleaved rotary style.
///
/// # Errors
/// As [`from_llama`].
pub fn from_gguf(m: &Metadata, weights: &Weights) -> Result<Config, ModelError> {
    let key = |k: &str| format!("llama.{k}");
    for k in [key("expert_count"), key("expert_used_count")] {
        if m.size(&k)?.is_some_and(|n| n > 0) {
            return Err(m.unsupported(&k, "0 (no experts)"));
        }
    }
    let (hidden, heads) =
        (m.need_size(&key("embedding_length"))?, m.need_size(&key("attention.head_count"))?);
    let context = m.need_size(&key("context_length"))?;
    let head_dim = match m.size(&key("attention.key_length"))? {
        Some(d) => d,
        None => even_share(&key("embedding_length"), hidden, heads)?,
    };
    if m.size(&key("attention.value_length"))?.is_some_and(|v| v != head_dim) {
        let want = format!("{head_dim}, the width of a key");
        return Err(m.unsupported(&key("attention.value_length"), &want));
    }
    let vocab = weights.get(TABLE).and_then(|w| w.shape.first().copied());
    let has = |part: &str| weights.has(&format!("model.layers.0.{part}.bias"));
    let layers = layers(m, &key("block_count"))?;
    let divisors = weights.has("rope_freqs.weight");
    let special = |name: &str| m.tokens(&format!("tokenizer.ggml.{name}_token_id"));
    let mut eos = [special("eos")?, special("eot")?, special("eom")?].concat();
    eos.sort_unstable();
    eos.dedup();
    let c = Config {
        vocab: vocab.ok_or_else(|| ModelError::MissingWeight(TABLE.into()))?,
        hidden,
        intermediate: m.need_size(&key("feed_forward_length"))?,
        heads,
        kv_heads: m.size(&key("attention.head_count_kv"))?.unwrap_or(heads),
        head_dim,
        context,
        norm_eps: m
            .positive(&key("attention.layer_norm_rms_epsilon"))?
            .ok_or_else(|| ModelError::MissingKey(key("attention.layer_norm_rms_epsilon")))?,
        activation: ScalarOp::Silu,
        rope: rope::from_gguf(m, "llama", head_dim, context, RopeStyle::Interleaved, divisors)?,
        windows: vec![m.size(&key("attention.sliding_window"))?; layers],
        qkv_bias: has("self_attn.q_proj"),
        out_bias: has("self_attn.o_proj"),
        mlp_bias: has("mlp.gate_proj"),
        tied: !weights.has("lm_head.weight"),
        bos: special("bos")?.first().copied(),
        eos,
    };
    c.check()?;
    Ok(c)
}

fn layers(m: &Metadata, key: &str) -> Result<usize, ModelError> {
    let n = m.need_size(key)?;
    let bad = || ModelError::BadValue {
        key: key.into(),
        value: n.to_string(),
        want: format!("at most {MAX_LAYERS}"),
    };
    if n > MAX_LAYERS { Err(bad()) } else { Ok(n) }
}

/// `whole / parts`, which must be exact where no key says the width of a head.
fn even_share(key: &str, whole: usize, parts: usize) -> Result<usize, ModelError> {
    if whole.is_multiple_of(parts) {
        return Ok(whole / parts);
    }
    let want = format!("a multiple of the {parts} heads");
    Err(ModelError::BadValue { key: key.into(), value: whole.to_string(), want })
}

/// Builds the graph that [`Decoder`] describes.
///
/// # Errors
/// Options out of range; weights that are missing, of another shape or type, or not used.
pub fn build(
    c: &Config,
    weights: &Weights,
    options: &BuildOptions,
    registry: &Registry,
) -> Result<Decoder, ModelError> {
    c.check()?;
    let sizes = options.resolve(c)?;
    let mut net = Net::new("llama", registry, weights);
    let (mut x, rows, io) = inputs(&mut net, c, &sizes)?;
    for (i, window) in c.windows.iter().enumerate() {
        let part = |p: &str| format!("model.layers.{i}.{p}");
        let y = rms(&mut net, x, &part("input_layernorm"), c.hidden, c.norm_eps)?;
        let y = attention(&mut net, y, &part("self_attn"), c, &sizes, *window, &io)?;
        x = net.b.add(x, y)?;
        let y = rms(&mut net, x, &part("post_attention_layernorm"), c.hidden, c.norm_eps)?;
        let y = mlp::gated(&mut net, y, &part("mlp"), c)?;
        x = net.b.add(x, y)?;
    }
    let vectors = io.batch.clone() * io.tokens.clone();
    let y = head::logits(&mut net, x, vectors, rows, c)?;
    net.b.output("logits", y)?;
    let graph = net.b.finish();
    weights.all_used(&graph, |n| n.ends_with(".rotary_emb.inv_freq") || c.tied && n == "lm_head.weight")?;
    Ok(Decoder { graph, config: c.clone(), sizes })
}

/// Declares symbols and inputs: the embedded tokens, the rows, and what attention reads.
fn inputs(net: &mut Net, c: &Config, sizes: &Sizes) -> Result<(ValueId, ValueId, Inputs), ModelError> {
    let b = &mut net.b;
    let tokens = b.symbol("T", 1, sizes.chunk as i64)?;
    let capacity = b.symbol("C", 1, sizes.context as i64)?;
    let chosen = b.symbol("R", 1, sizes.rows as i64)?;
    let batch = Dim::from(1i64);
    let ids = b.input("tokens", DType::I32, [batch.clone(), tokens.clone()])?;
    let positions = b.input("positions", DType::I32, [batch.clone(), tokens.clone()])?;
    let kv_len = b.input("kv_len", DType::I32, [batch.clone()])?;
    let rows = b.input("rows", DType::I32, [chosen])?;
    let x = embed(net, ids, c.vocab, c.hidden)?;
    let rotation = Rotation::new(net, &c.rope)?;
    Ok((x, rows, Inputs { batch, tokens, capacity, positions, kv_len, rotation }))
}
