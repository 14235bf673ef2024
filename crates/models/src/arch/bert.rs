//! BERT (Devlin et al., 2018) and the sentence encoders made of it, such as MiniLM: learned positions, attention in both
//! directions, layer norms behind each residual addition.

use frit_ir::{DType, Dim, Registry, ScalarOp, ValueId};
use frit_ops::build::Attention;

use crate::arch::{Encoder, hf};
use crate::blocks::linear::linear;
use crate::blocks::norm::layer;
use crate::encoder::{EncoderConfig, EncoderOptions};
use crate::error::ModelError;
use crate::metadata::Metadata;
use crate::names::{Table, translate};
use crate::net::Net;
use crate::weights::Weights;

const WORDS: &str = "embeddings.word_embeddings.weight";
const POSITIONS: &str = "embeddings.position_embeddings.weight";
const TYPES: &str = "embeddings.token_type_embeddings.weight";

/// Tensors that a `BertModel` or a pre-training checkpoint has beside the encoder: they do not touch the hidden states.
const UNUSED: &[&str] = &["pooler.", "cls.", "embeddings.position_ids"];

/// Stems of GGUF tensors outside the layers.
static GLOBAL: Table = &[
    ("token_embd", "embeddings.word_embeddings"),
    ("position_embd", "embeddings.position_embeddings"),
    ("token_types", "embeddings.token_type_embeddings"),
    ("token_embd_norm", "embeddings.LayerNorm"),
];

/// Stems of a layer's GGUF tensors, behind `blk.N.` and `encoder.layer.N.`.
static LAYER: Table = &[
    ("attn_q", "attention.self.query"),
    ("attn_k", "attention.self.key"),
    ("attn_v", "attention.self.value"),
    ("attn_output", "attention.output.dense"),
    ("attn_output_norm", "attention.output.LayerNorm"),
    ("ffn_up", "intermediate.dense"),
    ("ffn_down", "output.dense"),
    ("layer_output_norm", "output.LayerNorm"),
];

/// The canonical name of a GGUF tensor.
pub fn gguf_name(name: &str) -> String {
    translate(name, GLOBAL, &[LAYER], "encoder.layer")
}

/// The canonical name of a tensor of a Hugging Face file: without the prefix of models with a head, and with the names that
/// norms have today (the first files call them gamma and beta).
pub fn folder_name(name: &str) -> String {
    let name = name.strip_prefix("bert.").unwrap_or(name);
    match name.rsplit_once('.') {
        Some((stem, "gamma")) => format!("{stem}.weight"),
        Some((stem, "beta")) => format!("{stem}.bias"),
        _ => name.into(),
    }
}

/// The hyperparameters of a `bert` folder.
///
/// # Errors
/// Keys missing, out of range, or with a value that is not supported.
pub fn from_folder(m: &Metadata, _: &Weights) -> Result<EncoderConfig, ModelError> {
    if let Some((key, _)) = m.any_under("quantization_config.") {
        return Err(m.unsupported(key, "unquantized weights, or the model as a GGUF file"));
    }
    for key in ["is_decoder", "add_cross_attention"] {
        if m.flag(key)? == Some(true) {
            return Err(m.unsupported(key, "false (an encoder)"));
        }
    }
    if m.text("position_embedding_type")?.is_some_and(|t| t != "absolute") {
        return Err(m.unsupported("position_embedding_type", "absolute"));
    }
    let c = EncoderConfig {
        vocab: m.need_size("vocab_size")?,
        hidden: m.need_size("hidden_size")?,
        intermediate: m.need_size("intermediate_size")?,
        heads: m.need_size("num_attention_heads")?,
        layers: m.need_size("num_hidden_layers")?,
        context: m.need_size("max_position_embeddings")?,
        types: m.need_size("type_vocab_size")?,
        norm_eps: m.positive("layer_norm_eps")?.unwrap_or(1e-12),
        activation: hf::activation(m, "hidden_act")?.unwrap_or(ScalarOp::Gelu),
    };
    c.check()?;
    Ok(c)
}

/// The hyperparameters of a GGUF file whose architecture is `bert`. No key tells the activation: it is what BERT was trained with,
/// the exact GELU.
///
/// # Errors
/// As [`from_folder`].
pub fn from_gguf(m: &Metadata, weights: &Weights) -> Result<EncoderConfig, ModelError> {
    let key = |k: &str| format!("bert.{k}");
    if m.flag(&key("attention.causal"))? == Some(true) {
        return Err(m.unsupported(&key("attention.causal"), "false (an encoder)"));
    }
    let rows = |name: &str| weights.get(name).and_then(|w| w.shape.first().copied());
    let eps = key("attention.layer_norm_epsilon");
    let c = EncoderConfig {
        vocab: rows(WORDS).ok_or_else(|| ModelError::MissingWeight(WORDS.into()))?,
        hidden: m.need_size(&key("embedding_length"))?,
        intermediate: m.need_size(&key("feed_forward_length"))?,
        heads: m.need_size(&key("attention.head_count"))?,
        layers: m.need_size(&key("block_count"))?,
        context: m.need_size(&key("context_length"))?,
        types: rows(TYPES).unwrap_or(0),
        norm_eps: m.positive(&eps)?.ok_or(ModelError::MissingKey(eps))?,
        activation: ScalarOp::Gelu,
    };
    c.check()?;
    Ok(c)
}

/// Builds the graph that [`Encoder`] describes.
///
/// # Errors
/// Options out of range; weights that are missing, of another shape or type, or not used.
pub fn build(
    c: &EncoderConfig,
    weights: &Weights,
    options: &EncoderOptions,
    registry: &Registry,
) -> Result<Encoder, ModelError> {
    c.check()?;
    let sizes = options.resolve(c)?;
    let mut net = Net::new("bert", registry, weights);
    let texts = net.b.symbol("B", 1, sizes.chunk as i64)?;
    let tokens = net.b.symbol("T", 1, sizes.context as i64)?;
    net.b.bound(texts.clone() * tokens.clone(), sizes.chunk as i64);
    let ids = net.b.input("tokens", DType::I32, [texts.clone(), tokens.clone()])?;
    let lengths = net.b.input("lengths", DType::I32, [texts.clone()])?;
    let io = Inputs { texts, tokens, lengths };

    let mut x = embeddings(&mut net, ids, c, &io)?;
    for i in 0..c.layers {
        let part = |p: &str| format!("encoder.layer.{i}.{p}");
        let y = attention(&mut net, x, &part("attention"), c, &io)?;
        x = net.b.add(y, x)?;
        x = layer(&mut net, x, &part("attention.output.LayerNorm"), c.hidden, c.norm_eps)?;
        let y = linear(&mut net, x, &part("intermediate.dense"), c.intermediate, c.hidden, true)?;
        let y = net.b.unary(c.activation, y)?;
        let y = linear(&mut net, y, &part("output.dense"), c.hidden, c.intermediate, true)?;
        x = net.b.add(y, x)?;
        x = layer(&mut net, x, &part("output.LayerNorm"), c.hidden, c.norm_eps)?;
    }
    net.b.output("hidden", x)?;
    let graph = net.b.finish();
    weights.all_used(&graph, |n| UNUSED.iter().any(|u| n.starts_with(u)))?;
    Ok(Encoder { graph, config: c.clone(), sizes })
}

/// What the layers read besides the hidden states.
struct Inputs {
    texts: Dim,
    tokens: Dim,
    lengths: ValueId,
}

/// The sum of the embeddings of each token's word, position and type (0), normed: `f32 [B, T, hidden]`.
fn embeddings(net: &mut Net, ids: ValueId, c: &EncoderConfig, io: &Inputs) -> Result<ValueId, ModelError> {
    let words = net.weight(WORDS, &[c.vocab, c.hidden])?;
    let mut x = net.b.embed(words, ids, DType::F32)?;
    let positions = net.float_weight(POSITIONS, &[c.context, c.hidden])?;
    let positions = net.b.narrow(positions, 0, 0i64, io.tokens.clone())?;
    let positions = net.b.cast(positions, DType::F32)?;
    x = net.b.add(x, positions)?;
    if c.types > 0 {
        let types = net.float_weight(TYPES, &[c.types, c.hidden])?;
        let first = net.b.narrow(types, 0, 0i64, 1i64)?;
        let first = net.b.cast(first, DType::F32)?;
        x = net.b.add(x, first)?;
    }
    layer(net, x, "embeddings.LayerNorm", c.hidden, c.norm_eps)
}

/// Attention of each token over all tokens of its text, with projections below `{name}.`: `[B, T, hidden]` to the same.
fn attention(
    net: &mut Net,
    x: ValueId,
    name: &str,
    c: &EncoderConfig,
    io: &Inputs,
) -> Result<ValueId, ModelError> {
    let (width, heads) = (c.hidden, c.heads);
    let split = [io.texts.clone(), io.tokens.clone(), heads.into(), (width / heads).into()];
    let project = |net: &mut Net, p: &str| {
        let y = linear(net, x, &format!("{name}.self.{p}"), width, width, true)?;
        Ok::<_, ModelError>(net.b.reshape(y, split.clone())?)
    };
    let q = project(net, "query")?;
    let k = project(net, "key")?;
    let v = project(net, "value")?;
    let k = net.b.transpose(k, &[0, 2, 1, 3])?;
    let v = net.b.transpose(v, &[0, 2, 1, 3])?;
    let options = Attention { kv_len: Some(io.lengths), ..Attention::default() };
    let y = net.b.attention(q, k, v, options)?;
    let y = net.b.reshape(y, [io.texts.clone(), io.tokens.clone(), width.into()])?;
    linear(net, y, &format!("{name}.output.dense"), width, width, true)
}
