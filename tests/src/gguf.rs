//! Writing a BERT model as a GGUF file, with the names and keys that llama.cpp's converter gives it.

use safetensors::SafeTensors;
use serde_json::Value;

/// Tensors of a Hugging Face file by stem: what the GGUF file calls them. `N` is the layer.
const STEMS: &[(&str, &str)] = &[
    ("embeddings.word_embeddings", "token_embd"),
    ("embeddings.position_embeddings", "position_embd"),
    ("embeddings.token_type_embeddings", "token_types"),
    ("embeddings.LayerNorm", "token_embd_norm"),
    ("encoder.layer.N.attention.self.query", "blk.N.attn_q"),
    ("encoder.layer.N.attention.self.key", "blk.N.attn_k"),
    ("encoder.layer.N.attention.self.value", "blk.N.attn_v"),
    ("encoder.layer.N.attention.output.dense", "blk.N.attn_output"),
    ("encoder.layer.N.attention.output.LayerNorm", "blk.N.attn_output_norm"),
    ("encoder.layer.N.intermediate.dense", "blk.N.ffn_up"),
    ("encoder.layer.N.output.dense", "blk.N.ffn_down"),
    ("encoder.layer.N.output.LayerNorm", "blk.N.layer_output_norm"),
];

const ALIGN: usize = 32;

fn gguf_name(name: &str) -> Option<String> {
    let (stem, kind) = name.rsplit_once('.')?;
    let layer = stem.strip_prefix("encoder.layer.").and_then(|s| s.split('.').next());
    let generic = match layer {
        Some(n) => stem.replacen(&format!("layer.{n}."), "layer.N.", 1),
        None => stem.to_owned(),
    };
    let to = STEMS.iter().find(|(s, _)| *s == generic)?.1;
    Some(format!("{}.{kind}", to.replace('N', layer.unwrap_or("N"))))
}

fn text(out: &mut Vec<u8>, s: &str) {
    out.extend((s.len() as u64).to_le_bytes());
    out.extend(s.as_bytes());
}

/// The f32 model of `tensors` with the configuration `config` (a `config.json`), pooled by `pooling` (1: mean).
///
/// # Panics
/// A key is missing; a tensor is not f32.
pub fn bert(config: &Value, tensors: &SafeTensors, pooling: u32) -> Vec<u8> {
    const U32: u32 = 4;
    const F32: u32 = 6;
    const BOOL: u32 = 7;
    const STRING: u32 = 8;
    let mut keys: Vec<(String, u32, Vec<u8>)> = Vec::new();
    let mut name = Vec::new();
    text(&mut name, "bert");
    keys.push(("general.architecture".into(), STRING, name));
    for (key, from) in [
        ("block_count", "num_hidden_layers"),
        ("context_length", "max_position_embeddings"),
        ("embedding_length", "hidden_size"),
        ("feed_forward_length", "intermediate_size"),
        ("attention.head_count", "num_attention_heads"),
    ] {
        let n = config[from].as_u64().unwrap_or_else(|| panic!("no {from}")) as u32;
        keys.push((format!("bert.{key}"), U32, n.to_le_bytes().into()));
    }
    let eps = config["layer_norm_eps"].as_f64().expect("layer_norm_eps") as f32;
    keys.push(("bert.attention.layer_norm_epsilon".into(), F32, eps.to_le_bytes().into()));
    keys.push(("bert.attention.causal".into(), BOOL, vec![0]));
    keys.push(("bert.pooling_type".into(), U32, pooling.to_le_bytes().into()));

    let named: Vec<_> =
        tensors.tensors().into_iter().filter_map(|(n, t)| Some((gguf_name(&n)?, t))).collect();
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend((named.len() as u64).to_le_bytes());
    out.extend((keys.len() as u64).to_le_bytes());
    for (key, kind, value) in keys {
        text(&mut out, &key);
        out.extend(kind.to_le_bytes());
        out.extend(value);
    }
    let mut data = Vec::new();
    for (name, t) in named {
        assert_eq!(t.dtype(), safetensors::Dtype::F32, "{name}");
        text(&mut out, &name);
        out.extend((t.shape().len() as u32).to_le_bytes());
        // Innermost first, and 0 is f32.
        t.shape().iter().rev().for_each(|n| out.extend((*n as u64).to_le_bytes()));
        out.extend(0u32.to_le_bytes());
        out.extend((data.len() as u64).to_le_bytes());
        data.extend(t.data());
        data.resize(data.len().next_multiple_of(ALIGN), 0);
    }
    out.resize(out.len().next_multiple_of(ALIGN), 0);
    out.extend(data);
    out
}
