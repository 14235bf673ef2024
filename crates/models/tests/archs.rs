//! What the configurations of Qwen and Gemma say, and what of them is refused.

mod common;

use common::config;
use frit_ir::{DType, ScalarOp};
use frit_models::ModelError;
use frit_models::arch::{self, Form};
use frit_models::config::Config;
use frit_models::metadata::{MetaValue, Metadata};
use frit_models::weights::Weights;
use frit_ops::rope_scaling::RopeScaling;

const INT: fn(i64) -> MetaValue = MetaValue::Int;
const FLOAT: fn(f64) -> MetaValue = MetaValue::Float;

/// Reads the golden configuration of `model` with some keys replaced and some removed.
fn folder(model: &str, remove: &[&str], changes: &[(&str, MetaValue)]) -> Result<Config, ModelError> {
    let mut json: serde_json::Value = serde_json::from_str(&config(model)).unwrap();
    for key in remove {
        assert!(json.as_object_mut().unwrap().remove(*key).is_some(), "{key}");
    }
    let mut m = Metadata::from_json(&json.to_string()).unwrap();
    for (k, v) in changes {
        m.insert(*k, v.clone());
    }
    let table = [("model.embed_tokens.weight".to_string(), DType::BF16, vec![320, 640])];
    let arch = arch::find(Form::HuggingFace, model).unwrap();
    (arch.decoder().unwrap().config)(&m, &arch.weights(table).unwrap())
}

/// Reads GGUF metadata of a small Gemma with changes.
fn gemma(changes: &[(&str, MetaValue)]) -> Result<Config, ModelError> {
    gguf("gemma3", changes)
}

fn gguf(name: &str, changes: &[(&str, MetaValue)]) -> Result<Config, ModelError> {
    let mut m = Metadata::new();
    m.insert("general.architecture", MetaValue::Text(name.into()));
    let sizes = [
        ("embedding_length", 640),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 1),
        ("attention.key_length", 256),
        ("context_length", 32768),
        ("feed_forward_length", 96),
        ("block_count", 8),
    ];
    let epsilon = ("attention.layer_norm_rms_epsilon", FLOAT(1e-6));
    for (k, v) in sizes.map(|(k, v)| (k, INT(v))).iter().chain([&epsilon]).chain(changes) {
        m.insert(format!("{name}.{k}"), v.clone());
    }
    let arch = arch::find(Form::Gguf, name).unwrap();
    let weights = arch.weights([("token_embd.weight".into(), DType::Q8_0, vec![50, 640])]).unwrap();
    (arch.decoder().unwrap().config)(&m, &weights)
}

#[test]
fn gemma_folders_are_read_in_both_spellings() {
    let new = folder("gemma3_text", &[], &[]).unwrap();
    assert_eq!((new.rope.theta, new.local_rope.as_ref().unwrap().theta), (1e6, 1e4));
    assert_eq!(new.windows, [Some(8), Some(8), Some(8), Some(8), Some(8), None]);
    assert_eq!(
        (new.activation, new.norm_plus_one, new.qk_norm, new.tied),
        (ScalarOp::GeluTanh, true, true, true)
    );
    let old = folder(
        "gemma3_text",
        &["rope_parameters", "layer_types"],
        &[
            ("rope_theta", FLOAT(1e6)),
            ("rope_local_base_freq", FLOAT(1e4)),
            ("rope_scaling.rope_type", MetaValue::Text("linear".into())),
            ("rope_scaling.factor", FLOAT(8.0)),
            ("sliding_window_pattern", INT(6)),
        ],
    )
    .unwrap();
    assert_eq!((&old.windows, &old.local_rope), (&new.windows, &new.local_rope));
    assert_eq!(old.rope.scaling, RopeScaling::Linear { factor: 8.0 });
    assert_eq!(Config { rope: new.rope.clone(), ..old }, new);
}

/// What a published `text_config` says, and what it leaves to the reference's defaults.
#[test]
fn gemma_text_configs_have_defaults() {
    let json = r#"{"model_type": "gemma3", "eos_token_id": [1, 106], "text_config": {"hidden_size": 2560,
        "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34, "sliding_window": 1024,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}, "vision_config": {"hidden_size": 1152}}"#;
    let m = Metadata::from_json(json).unwrap();
    let read = arch::find(Form::HuggingFace, "gemma3").unwrap().decoder().unwrap().config;
    let c = read(&m, &Weights::default()).unwrap();
    assert_eq!((c.vocab, c.hidden, c.heads, c.kv_heads, c.head_dim), (262_208, 2560, 8, 4, 256));
    assert_eq!((c.rope.theta, c.local_rope.unwrap().theta, c.attention_scale), (1e6, 1e4, 1.0 / 16.0));
    assert_eq!(c.rope.scaling, RopeScaling::Linear { factor: 8.0 });
    assert_eq!((c.eos, c.tied, c.windows[4], c.windows[5]), (vec![1, 106], true, Some(1024), None));
}

#[test]
fn gemma_factors_are_the_reference_s() {
    // √640 = 25.298 is 25.25 in the bf16 of the table.
    let c = folder("gemma3_text", &[], &[("hidden_size", INT(640)), ("query_pre_attn_scalar", INT(168))])
        .unwrap();
    assert_eq!((c.embedding_scale, c.attention_scale), (25.25, 1.0 / 168f64.sqrt()));
    let c = gemma(&[]).unwrap();
    assert_eq!((c.embedding_scale, c.attention_scale), (640f64.sqrt(), 1.0 / 16.0));
    let c = gemma(&[("block_count", INT(62))]).unwrap();
    assert_eq!(c.attention_scale, 1.0 / 160f64.sqrt());
}

#[test]
fn gemma_files_have_every_sixth_layer_whole() {
    let c = gemma(&[]).unwrap();
    assert_eq!(c.windows, [None; 8]);
    let c = gemma(&[("attention.sliding_window", INT(512)), ("rope.freq_base", FLOAT(1e6))]).unwrap();
    let w = Some(512);
    assert_eq!(c.windows, [w, w, w, w, w, None, w, w]);
    assert_eq!((c.rope.theta, c.local_rope.unwrap().theta, c.norm_plus_one), (1e6, 1e4, false));
    let c = gemma(&[
        ("attention.sliding_window", INT(512)),
        ("attention.sliding_window_pattern", INT(3)),
        ("rope.freq_base_swa", FLOAT(2e4)),
        ("final_logit_softcapping", FLOAT(30.0)),
    ])
    .unwrap();
    assert_eq!(c.windows, [w, w, None, w, w, None, w, w]);
    assert_eq!((c.local_rope.unwrap().theta, c.logit_softcap), (2e4, Some(30.0)));
}

#[test]
fn qwen_windows_begin_behind_the_first_layers() {
    let on = ("use_sliding_window", MetaValue::Bool(true));
    let window = ("sliding_window", INT(7));
    assert_eq!(folder("qwen2", &[], std::slice::from_ref(&window)).unwrap().windows, [None; 3]);
    let some = folder("qwen2", &[], &[on.clone(), window.clone(), ("max_window_layers", INT(1))]).unwrap();
    assert_eq!(some.windows, [None, Some(7), Some(7)]);
    assert_eq!((some.qkv_bias, some.out_bias, some.qk_norm), (true, false, false));
    assert_eq!(folder("qwen2", &[], &[on]), Err(ModelError::MissingKey("sliding_window".into())));
    let c = folder("qwen3", &[], &[]).unwrap();
    assert_eq!((c.qkv_bias, c.qk_norm, c.head_dim, c.windows), (false, true, 24, vec![None; 3]));
}

#[test]
fn what_would_be_another_model_is_refused() {
    let r = folder("gemma3_text", &[], &[("use_bidirectional_attention", MetaValue::Bool(true))]);
    assert!(
        matches!(&r, Err(ModelError::Unsupported { key, .. }) if key == "use_bidirectional_attention"),
        "{r:?}"
    );
    let r = gguf("qwen2", &[("attention.sliding_window", INT(4))]);
    assert!(
        matches!(&r, Err(ModelError::Unsupported { key, .. }) if key == "qwen2.attention.sliding_window"),
        "{r:?}"
    );
    for model in ["qwen3", "gemma3_text"] {
        assert_eq!(folder(model, &["head_dim"], &[]), Err(ModelError::MissingKey("head_dim".into())));
    }
    let m = Metadata::new();
    let read = arch::find(Form::Gguf, "gemma3").unwrap().decoder().unwrap().config;
    assert_eq!(read(&m, &Weights::default()), Err(ModelError::MissingKey("general.architecture".into())));
    let sliding = MetaValue::List(vec![MetaValue::Text("sliding_attention".into()); 3]);
    let r = folder("qwen3", &[], &[("layer_types", sliding)]);
    assert_eq!(r, Err(ModelError::MissingKey("sliding_window".into())));
}
