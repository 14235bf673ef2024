//! Tensor names: from those of GGUF files to the canonical ones.

/// Stems of GGUF names with the canonical ones.
pub type Table = &'static [(&'static str, &'static str)];

/// Stems of tensors outside the layers.
static GLOBAL: Table =
    &[("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")];

/// Stems of a layer's tensors, behind `blk.N.` and `model.layers.N.`.
static LAYER: Table = &[
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// Stems of Gemma's layers that mean something else than in [`LAYER`], or are not there.
static GEMMA: Table = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

/// The canonical name of the GGUF tensor `name`. A name that no table has stays as it is, and is then found to be unused.
pub fn from_gguf(name: &str) -> String {
    translate(name, GLOBAL, &[LAYER], "model.layers")
}

/// As [`from_gguf`], for Gemma 3.
pub fn from_gguf_gemma(name: &str) -> String {
    translate(name, GLOBAL, &[GEMMA, LAYER], "model.layers")
}

/// The GGUF tensor `name` with its stem looked up: in `global`, or behind `blk.N.`, which becomes `{layers}.N.`, in the tables
/// `layer`, the first first. A name that no table has stays as it is.
pub fn translate(name: &str, global: Table, layer: &[Table], layers: &str) -> String {
    let look = |table: Table, s: &str| table.iter().find(|(g, _)| *g == s).map(|(_, c)| *c);
    let translated = name.rsplit_once('.').and_then(|(stem, kind)| {
        match stem.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
            Some((i, stem)) => {
                let i: u32 = i.parse().ok()?;
                let stem = layer.iter().find_map(|table| look(table, stem))?;
                Some(format!("{layers}.{i}.{stem}.{kind}"))
            }
            None => Some(format!("{}.{kind}", look(global, stem)?)),
        }
    });
    translated.unwrap_or_else(|| name.into())
}

/// The canonical name of a tensor in a folder of a model that reads images as well: that of its text model, if it is of that.
pub fn text_part(name: &str) -> String {
    let text = name.strip_prefix("language_model.");
    let inner = name.strip_prefix("model.language_model.").map(|rest| format!("model.{rest}"));
    text.map(str::to_string).or(inner).unwrap_or_else(|| name.into())
}

/// Whether a tensor is of the part that reads images, which stands beside the text model.
pub fn reads_images(name: &str) -> bool {
    let name = name.strip_prefix("model.").unwrap_or(name);
    ["vision_tower.", "multi_modal_projector."].iter().any(|p| name.starts_with(p))
}

/// The name itself, for files whose names are the canonical ones.
pub fn unchanged(name: &str) -> String {
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gguf_names_become_canonical() {
        for (gguf, want) in [
            ("token_embd.weight", "model.embed_tokens.weight"),
            ("output.weight", "lm_head.weight"),
            ("blk.12.attn_q.weight", "model.layers.12.self_attn.q_proj.weight"),
            ("blk.0.attn_k.bias", "model.layers.0.self_attn.k_proj.bias"),
            ("blk.3.ffn_down.weight", "model.layers.3.mlp.down_proj.weight"),
            ("rope_freqs.weight", "rope_freqs.weight"),
            ("blk.x.attn_q.weight", "blk.x.attn_q.weight"),
            ("blk.1.ffn_gate_exps.weight", "blk.1.ffn_gate_exps.weight"),
            ("", ""),
        ] {
            assert_eq!(from_gguf(gguf), want);
        }
        for (gguf, want) in [
            ("blk.2.ffn_norm.weight", "model.layers.2.pre_feedforward_layernorm.weight"),
            ("blk.2.post_attention_norm.weight", "model.layers.2.post_attention_layernorm.weight"),
            ("blk.2.attn_k_norm.weight", "model.layers.2.self_attn.k_norm.weight"),
            ("output_norm.weight", "model.norm.weight"),
        ] {
            assert_eq!(from_gguf_gemma(gguf), want);
        }
    }
}
