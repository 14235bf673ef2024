//! Damaged and hostile `config.json` files: each gives a configuration that holds together or a typed error that names the
//! key, never a panic.

mod common;

use common::config;
use frit_models::ModelError;
use frit_models::arch::{ARCHS, Form, Kind};
use frit_models::config::MAX_LAYERS;
use frit_models::metadata::Metadata;
use frit_models::weights::Weights;
use serde_json::{Value, json};

/// Values that no key of a configuration has, or only some keys.
fn hostile() -> Vec<Value> {
    let mut all = vec![
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(1),
        json!(3),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(1u64 << 31),
        json!((1u64 << 32) + 1),
        json!(0.5),
        json!(-0.0),
        json!(1e308),
        json!(1e-320),
        json!(""),
        json!("x".repeat(10_000)),
        json!([]),
        json!([1, "a", null, [2]]),
        json!([4096, 4096]),
        json!({}),
        json!({"rope_type": 7, "factor": "x"}),
    ];
    all.push((0..100).fold(json!(1), |inner, _| json!([inner])));
    all.push((0..100).fold(json!(1), |inner, _| json!({ "a": inner })));
    all
}

/// Every key of `v`, as a path.
fn paths(v: &Value, prefix: &[String], into: &mut Vec<Vec<String>>) {
    for (k, inner) in v.as_object().into_iter().flatten() {
        let path = [prefix, std::slice::from_ref(k)].concat();
        paths(inner, &path, into);
        into.push(path);
    }
}

fn set(v: &mut Value, path: &[String], to: Value) {
    match path {
        [] => *v = to,
        [first, rest @ ..] => set(&mut v[first.as_str()], rest, to),
    }
}

fn check(text: &str) {
    let metadata = match Metadata::from_json(text) {
        Ok(m) => m,
        Err(e) => return one_line(&e),
    };
    for arch in ARCHS.iter().filter(|a| a.form == Form::HuggingFace) {
        let none = Weights::default();
        let read = match &arch.kind {
            Kind::Decoder(f) => (f.config)(&metadata, &none).map(|c| assert!(c.layers() <= MAX_LAYERS)),
            Kind::Encoder(f) => (f.config)(&metadata, &none).map(|c| assert!(c.layers <= MAX_LAYERS)),
        };
        read.unwrap_or_else(|e| one_line(&e));
    }
}

fn one_line(e: &ModelError) {
    let text = e.to_string();
    assert!(!text.contains('\n') && text.len() < 2000, "{text:?}");
}

#[test]
fn every_key_with_every_hostile_value() {
    for model in ["llama", "mistral", "gemma3_text", "qwen3", "bert"] {
        let whole: Value = serde_json::from_str(&config(model)).unwrap();
        let mut all = Vec::new();
        paths(&whole, &[], &mut all);
        assert!(all.len() > 15, "{all:?}");
        for path in &all {
            for to in hostile() {
                let mut changed = whole.clone();
                set(&mut changed, path, to);
                check(&changed.to_string());
            }
        }
    }
}

#[test]
fn texts_that_are_no_configuration() {
    let deep = |open: &str| open.repeat(100_000);
    let many: String = (0..50_000).map(|i| format!(r#""k{i}":{i},"#)).collect();
    for text in [
        "",
        "{",
        "null",
        "7",
        "[]",
        "{}",
        r#"{"hidden_size":1e999}"#,
        r#"{"hidden_size":123456789012345678901234567890}"#,
        r#"{"model_type":"llama","model_type":"mistral"}"#,
        "\u{feff}{}",
        &deep("["),
        &deep(r#"{"a":"#),
        &format!("{{{many}\"z\":0}}"),
    ] {
        check(text);
    }
    assert!(matches!(Metadata::from_json(&deep("{\"a\":")), Err(ModelError::Json(_))));
}

#[test]
fn every_truncation_is_refused() {
    let whole = config("llama");
    let whole = whole.trim_end();
    for len in (0..whole.len()).filter(|n| whole.is_char_boundary(*n)) {
        assert!(Metadata::from_json(&whole[..len]).is_err(), "{len}");
    }
}
