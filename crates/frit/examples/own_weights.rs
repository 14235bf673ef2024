//! A Llama-shaped model from a configuration and tensors of your own, driven by token ids: no file, no tokenizer.
//! `cargo run --release --example own_weights`.

use std::collections::HashMap;

use frit::{LoadOptions, Model, Options, Tensor};

const CONFIG: &str = r#"{
    "model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": true
}"#;

/// Reproducible small values.
fn tensor(seed: &mut u32, shape: &[usize]) -> Result<Tensor, Box<dyn std::error::Error>> {
    let n = shape.iter().product();
    let mut next = || {
        *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (*seed >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    let values: Vec<f32> = (0..n).map(|_| next()).collect();
    Ok(Tensor::from_f32(shape, &values)?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut seed, mut weights) = (7, HashMap::new());
    weights.insert("model.embed_tokens.weight".to_owned(), tensor(&mut seed, &[64, 32])?);
    weights.insert("model.norm.weight".to_owned(), tensor(&mut seed, &[32])?);
    let matrices: [(&str, &[usize]); 9] = [
        ("input_layernorm", &[32]),
        ("self_attn.q_proj", &[32, 32]),
        ("self_attn.k_proj", &[16, 32]),
        ("self_attn.v_proj", &[16, 32]),
        ("self_attn.o_proj", &[32, 32]),
        ("post_attention_layernorm", &[32]),
        ("mlp.gate_proj", &[48, 32]),
        ("mlp.up_proj", &[48, 32]),
        ("mlp.down_proj", &[32, 48]),
    ];
    for layer in 0..2 {
        for (name, shape) in matrices {
            weights.insert(format!("model.layers.{layer}.{name}.weight"), tensor(&mut seed, shape)?);
        }
    }
    let model = Model::from_parts(CONFIG, weights, None, &LoadOptions::default())?;
    let mut generator = model.generator(Options::default().max_tokens(12))?;
    let end = generator.tokens(&[1, 2, 3])?.finish()?;
    println!("{:?} ({:?})", end.tokens, end.reason);
    assert_eq!(end.tokens.len(), 12);
    Ok(())
}
