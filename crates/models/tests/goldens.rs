//! Tiny models against logits and continuations of the reference implementation that made the golden data.

mod common;

use std::collections::HashMap;

use common::{Runner, config, error, ids, step, tensors};
use frit_ir::block::quantize;
use frit_ir::{DType, Tensor};
use frit_models::arch::{self, Form};
use frit_models::config::BuildOptions;
use frit_models::generate::{Cancel, GenerateOptions, Generation, StopReason};
use frit_models::metadata::{MetaValue, Metadata};

/// Largest difference of logits from the golden ones, in standard deviations.
const CLOSE: f64 = 1e-4;

fn options() -> BuildOptions {
    BuildOptions::default().kv_dtype(DType::F32)
}

/// The difference of all logits of both rows, each run in one pass.
fn logits_error(model: &str, runner: impl Fn() -> Runner) -> f64 {
    let golden = tensors(model, "golden.safetensors");
    let want = golden["logits"].to_f32().unwrap();
    let rows = ids(&golden["input_ids"]);
    let each = want.len() / rows.len();
    let all: Vec<i32> = (0..rows[0].len() as i32).collect();
    let one = |(i, row): (usize, &Vec<u32>)| {
        error(runner().step(row, 0, &all).unwrap(), &want[i * each..(i + 1) * each])
    };
    rows.iter().enumerate().map(one).fold(0.0, f64::max)
}

fn text(_: Option<u32>) -> Result<String, String> {
    Ok(String::new())
}

/// The greedy continuation in steps of at most `chunk` tokens equals the golden one.
fn continues(model: &str, chunk: usize) {
    let want = ids(&tensors(model, "golden.safetensors")["generated_ids"]).remove(0);
    let mut r = Runner::golden(model, &options().chunk(chunk));
    let o = GenerateOptions::new(r.decoder.sizes.context, chunk).max_tokens(want.len() - 11);
    let mut g = Generation::new(&want[..11], 0, o, Cancel::new()).unwrap();
    while g.advance(&mut r, step, text).unwrap().is_some() {}
    assert_eq!(g.generated(), &want[11..], "{model} in steps of {chunk}");
    assert_eq!(g.stop_reason(), Some(&StopReason::MaxTokens));
}

/// The golden continuation run again in pieces of `n` gives itself at every position.
fn repeats(model: &str, n: usize, o: BuildOptions) {
    let want = ids(&tensors(model, "golden.safetensors")["generated_ids"]).remove(0);
    let mut r = Runner::golden(model, &o);
    let vocab = r.decoder.config.vocab;
    let mut next = Vec::new();
    for (i, piece) in want.chunks(n).enumerate() {
        let rows: Vec<i32> = (0..piece.len() as i32).collect();
        for row in r.step(piece, i * n, &rows).unwrap().chunks(vocab) {
            let best = row.iter().copied().fold(f32::MIN, f32::max);
            next.push(row.iter().position(|l| *l == best).unwrap() as u32);
        }
    }
    assert_eq!(next[10..want.len() - 1], want[11..], "{model} in pieces of {n}");
}

/// Slots of the first layer's keys.
fn slots(o: BuildOptions) -> String {
    let g = Runner::golden("mistral", &o).decoder.graph;
    g.ty(g.find("model.layers.0.self_attn.keys").unwrap()).shape[2].to_string()
}

/// The golden models.
const MODELS: &[&str] = &["llama", "mistral", "qwen2", "qwen3", "gemma3_text"];

#[test]
fn logits_are_the_reference_s() {
    for model in MODELS {
        let e = logits_error(model, || Runner::golden(model, &options().rows(19)));
        assert!(e < CLOSE, "{model}: {e}");
        // Windows in rings as well: 19 tokens in one step.
        let e = logits_error(model, || Runner::golden(model, &options().rows(19).chunk(19)));
        assert!(e < CLOSE, "{model}: {e}");
    }
}

#[test]
fn models_continue_in_any_steps() {
    for model in MODELS {
        for chunk in [512, 1, 3, 7] {
            continues(model, chunk);
        }
    }
}

#[test]
fn a_continuation_repeats_in_pieces() {
    let o = || options().rows(35);
    for model in MODELS {
        for n in [35, 1, 3, 7] {
            repeats(model, n, o().chunk(n).rows(n));
        }
    }
    // The same window over plain storage of the whole context.
    assert_eq!(slots(o().chunk(3)), "9");
    assert_eq!(slots(o().chunk(40).context(40)), "C");
    for model in ["mistral", "gemma3_text"] {
        repeats(model, 3, o().chunk(40).context(40));
    }
}

/// The text model of a folder that reads images too, in the names of older and newer files.
#[test]
fn the_text_model_of_a_larger_one_is_the_same() {
    let arch = arch::find(Form::HuggingFace, "gemma3").unwrap();
    let text = config("gemma3_text");
    let json = format!(r#"{{"model_type": "gemma3", "eos_token_id": [2, 9], "text_config": {text}}}"#);
    let m = Metadata::from_json(&json).unwrap();
    for (prefix, images) in [("language_model.", ""), ("model.language_model.", "model.")] {
        let rename = |n: String| match prefix {
            "language_model." => format!("{prefix}{n}"),
            _ => n.replacen("model.", prefix, 1),
        };
        let file = tensors("gemma3_text", "model.safetensors").into_iter();
        let mut file: HashMap<String, Tensor> = file.map(|(n, t)| (rename(n), t)).collect();
        for name in ["vision_tower.post_layernorm.bias", "multi_modal_projector.mm_soft_emb_norm.weight"] {
            file.insert(format!("{images}{name}"), Tensor::from_f32(&[3], &[0.0; 3]).unwrap());
        }
        let e = logits_error("gemma3_text", || Runner::new(arch, &m, &file, &options().rows(19)));
        assert!(e < CLOSE, "{prefix}: {e}");
    }
}

/// The logits of Gemma with a cap are those without it, capped; a cap on the scores changes them.
#[test]
fn caps_are_applied() {
    let want = tensors("gemma3_text", "golden.safetensors");
    let rows = ids(&want["input_ids"]);
    let plain = want["logits"].to_f32().unwrap();
    let file = tensors("gemma3_text", "model.safetensors");
    let arch = arch::find(Form::HuggingFace, "gemma3_text").unwrap();
    let all: Vec<i32> = (0..19).collect();
    let run = |key: &str, cap: f64| {
        let mut m = Metadata::from_json(&config("gemma3_text")).unwrap();
        m.insert(key, MetaValue::Float(cap));
        Runner::new(arch, &m, &file, &options().rows(19)).step(&rows[0], 0, &all).unwrap().to_vec()
    };
    let capped: Vec<f32> = plain[..19 * 320].iter().map(|y| 0.3 * (y / 0.3).tanh()).collect();
    assert!(error(&capped, &plain[..19 * 320]) > 0.1);
    let e = error(&run("final_logit_softcapping", 0.3), &capped);
    assert!(e < CLOSE, "{e}");
    let e = error(&run("attn_logit_softcapping", 1e4), &plain[..19 * 320]);
    assert!(e < CLOSE, "{e}");
    let e = error(&run("attn_logit_softcapping", 0.1), &plain[..19 * 320]);
    assert!(e > 100.0 * CLOSE, "{e}");
}

#[test]
fn keys_and_values_in_half_precision_stay_close() {
    for (kv, bound) in [(DType::F16, 2e-3), (DType::BF16, 2e-2)] {
        let e = logits_error("llama", || Runner::golden("llama", &options().rows(19).kv_dtype(kv)));
        assert!(e > CLOSE && e < bound, "{kv}: {e}");
    }
}

/// The rows of a query or key matrix in the order of GGUF files: within a head of width d, row i of each half follows the
/// other's.
fn permuted(t: &Tensor, heads: usize) -> Tensor {
    let (n, k) = (t.shape()[0], t.shape()[1]);
    let d = n / heads;
    let v = t.to_f32().unwrap();
    let from = |row: usize| (row / d) * d + (row % d) / 2 + (row % 2) * (d / 2);
    let out: Vec<f32> = (0..n).flat_map(|row| v[from(row) * k..][..k].to_vec()).collect();
    Tensor::from_f32(&[n, k], &out).unwrap()
}

/// Sizes in a `config.json` and in GGUF metadata.
const SIZES: &[(&str, &str)] = &[
    ("hidden_size", "embedding_length"),
    ("num_attention_heads", "attention.head_count"),
    ("num_key_value_heads", "attention.head_count_kv"),
    ("max_position_embeddings", "context_length"),
    ("intermediate_size", "feed_forward_length"),
    ("num_hidden_layers", "block_count"),
    ("head_dim", "attention.key_length"),
    ("head_dim", "attention.value_length"),
    ("head_dim", "rope.dimension_count"),
    ("sliding_window", "attention.sliding_window"),
];

/// Stems of tensors in Gemma's folders and GGUF files, and of all others.
const GEMMA_NAMES: &[(&str, &str)] =
    &[("post_attention_layernorm", "post_attention_norm"), ("pre_feedforward_layernorm", "ffn_norm")];
const NAMES: &[(&str, &str)] = &[
    ("model.embed_tokens", "token_embd"),
    ("model.norm", "output_norm"),
    ("lm_head", "output"),
    ("model.layers", "blk"),
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// A golden model as a GGUF file of `architecture` would hold it.
fn as_gguf(model: &str, architecture: &str) -> (Metadata, HashMap<String, Tensor>) {
    let json = Metadata::from_json(&config(model)).unwrap();
    let mut m = Metadata::new();
    m.insert("general.architecture", MetaValue::Text(architecture.into()));
    for (hf, gguf) in SIZES {
        if let Some(v) = json.size(hf).unwrap() {
            m.insert(format!("{architecture}.{gguf}"), MetaValue::Int(v as i64));
        }
    }
    let theta = ["rope_parameters.rope_theta", "rope_parameters.full_attention.rope_theta"];
    let theta = theta.iter().find_map(|k| json.number(k).unwrap()).unwrap();
    m.insert(format!("{architecture}.rope.freq_base"), MetaValue::Float(theta));
    m.insert(format!("{architecture}.attention.layer_norm_rms_epsilon"), MetaValue::Float(1e-6));
    m.insert("tokenizer.ggml.eos_token_id", MetaValue::Int(2));
    m.insert("tokenizer.ggml.eot_token_id", MetaValue::Int(7));
    let gemma = architecture == "gemma3";
    let names = || GEMMA_NAMES.iter().filter(|_| gemma).chain(NAMES);
    let rename = |n: &str| names().fold(n.to_string(), |n, (from, to)| n.replace(from, to));
    let heads = |n: &str| [("q_proj", 4), ("k_proj", 2)].iter().find(|(p, _)| n.contains(p)).map(|p| p.1);
    let convert = |n: &str, t: Tensor| match heads(n) {
        Some(h) if architecture == "llama" => permuted(&t, h),
        None if gemma && n.ends_with("norm.weight") => {
            let v: Vec<f32> = t.to_f32().unwrap().iter().map(|v| 1.0 + v).collect();
            Tensor::from_f32(t.shape(), &v).unwrap()
        }
        _ => t,
    };
    let file = tensors(model, "model.safetensors").into_iter();
    (m, file.map(|(n, t)| (rename(&n), convert(&n, t))).collect())
}

#[test]
fn a_gguf_file_gives_the_same_model() {
    for (model, architecture) in
        [("llama", "llama"), ("qwen2", "qwen2"), ("qwen3", "qwen3"), ("gemma3_text", "gemma3")]
    {
        let (m, file) = as_gguf(model, architecture);
        let arch = arch::find(Form::Gguf, architecture).unwrap();
        let run = || Runner::new(arch, &m, &file, &options().rows(19));
        let e = logits_error(model, run);
        assert!(e < CLOSE, "{model}: {e}");
        let c = run().decoder.config;
        assert_eq!((c.tied, c.eos), (model != "llama", vec![2, 7]), "{model}");
    }
}

#[test]
fn frequency_divisors_of_one_change_nothing_and_others_do() {
    let (m, mut file) = as_gguf("llama", "llama");
    let arch = arch::find(Form::Gguf, "llama").unwrap();
    for (by, same) in [(1.0, true), (2.0, false)] {
        file.insert("rope_freqs.weight".into(), Tensor::from_f32(&[8], &[by; 8]).unwrap());
        let e = logits_error("llama", || Runner::new(arch, &m, &file, &options().rows(19)));
        assert_eq!(e < CLOSE, same, "{e}");
    }
    // Divisors of 2 are linear scaling by 2.
    let mut linear = m.clone();
    linear.insert("llama.rope.scaling.type", MetaValue::Text("linear".into()));
    linear.insert("llama.rope.scaling.factor", MetaValue::Float(2.0));
    let tokens = [5, 9, 200, 31, 77];
    let divided = Runner::new(arch, &m, &file, &options()).step(&tokens, 0, &[4]).unwrap().to_vec();
    file.remove("rope_freqs.weight");
    let scaled = Runner::new(arch, &linear, &file, &options()).step(&tokens, 0, &[4]).unwrap().to_vec();
    assert!(error(&divided, &scaled) < 1e-5);
}

/// Weights in other types give what the same values in f32 give.
#[test]
fn stored_types_are_read_as_they_are() {
    let (m, mut file) = as_gguf("llama", "llama");
    file.remove("output.weight");
    let mut plain = file.clone();
    let types = [DType::Q8_0, DType::Q4_1, DType::F16, DType::BF16];
    let mut names: Vec<String> = file.keys().cloned().collect();
    names.sort();
    for (i, name) in names.iter().enumerate() {
        let t = &file[name];
        let v = t.to_f32().unwrap();
        let whole_blocks = t.shape().len() == 2 && t.shape()[1] % 32 == 0;
        let dtype = types[if whole_blocks { i % 4 } else { 2 + i % 2 }];
        let stored = if dtype.is_block() {
            Tensor::new(dtype, t.shape(), quantize(dtype, &v).unwrap()).unwrap()
        } else {
            Tensor::from_f64(dtype, t.shape(), &t.to_f64().unwrap()).unwrap()
        };
        plain.insert(name.clone(), Tensor::from_f32(t.shape(), &stored.to_f32().unwrap()).unwrap());
        file.insert(name.clone(), stored);
    }
    assert!(file["token_embd.weight"].dtype().is_block());
    let arch = arch::find(Form::Gguf, "llama").unwrap();
    let run = |f| Runner::new(arch, &m, f, &options()).step(&[5, 9, 200], 0, &[2]).unwrap().to_vec();
    assert!(error(&run(&file), &run(&plain)) < 1e-5);
}

/// Zero biases change nothing; a bias of the values moves the output as it must.
#[test]
fn biases_are_added() {
    let json = config("llama").replace("\"attention_bias\": false", "\"attention_bias\": true");
    let m = Metadata::from_json(&json.replace("\"mlp_bias\": false", "\"mlp_bias\": true")).unwrap();
    let arch = arch::find(Form::HuggingFace, "llama").unwrap();
    let mut file = tensors("llama", "model.safetensors");
    let projections = [
        ("self_attn.q_proj", 64),
        ("self_attn.k_proj", 32),
        ("self_attn.v_proj", 32),
        ("self_attn.o_proj", 64),
        ("mlp.gate_proj", 112),
        ("mlp.up_proj", 112),
        ("mlp.down_proj", 64),
    ];
    for i in 0..3 {
        for (p, n) in projections {
            let zero = Tensor::from_f32(&[n], &vec![0.0; n]).unwrap();
            file.insert(format!("model.layers.{i}.{p}.bias"), zero);
        }
    }
    let run = |f: &HashMap<String, Tensor>| {
        Runner::new(arch, &m, f, &options()).step(&[5, 9, 200], 0, &[2]).unwrap().to_vec()
    };
    let zero = run(&file);
    let want = Runner::golden("llama", &options()).step(&[5, 9, 200], 0, &[2]).unwrap().to_vec();
    assert!(error(&zero, &want) < 1e-6);
    for (p, n) in projections {
        let mut f = file.clone();
        // A constant added to every key only shifts the scores, so one element is set.
        let mut b = vec![0.0; n];
        b[1] = 3.0;
        f.insert(format!("model.layers.1.{p}.bias"), Tensor::from_f32(&[n], &b).unwrap());
        assert!(error(&run(&f), &want) > 1e-3, "{p}");
    }
}
