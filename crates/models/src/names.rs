//! Tensor names: from those of GGUF files to the canonical ones.

/// Stems of tensors outside the layers.
static GLOBAL: &[(&str, &str)] =
    &[("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")];

/// Stems of a layer's tensors, behind `blk.N.` and `model.layers.N.`.
static LAYER: &[(&str, &str)] = &[
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// The canonical name of the GGUF tensor `name`. A name that no table has stays as it is, and is then found to be unused.
pub fn from_gguf(name: &str) -> String {
    let translated = name.rsplit_once('.').and_then(|(stem, kind)| {
        let look =
            |table: &'static [(&str, &str)], s: &str| table.iter().find(|(g, _)| *g == s).map(|(_, c)| *c);
        match stem.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
            Some((layer, stem)) => {
                let layer: u32 = layer.parse().ok()?;
                Some(format!("model.layers.{layer}.{}.{kind}", look(LAYER, stem)?))
            }
            None => Some(format!("{}.{kind}", look(GLOBAL, stem)?)),
        }
    });
    translated.unwrap_or_else(|| name.into())
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
    }
}
