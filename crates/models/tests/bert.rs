//! BERT by the reference interpreter against the golden data, and what its files may not say.

mod common;

use std::collections::HashMap;

use common::{config, describe, error, tensors};
use frit_ir::{DType, ScalarOp, Tensor};
use frit_models::ModelError;
use frit_models::arch::{self, Arch, Encoder, Form};
use frit_models::encoder::{EncoderConfig, EncoderOptions};
use frit_models::metadata::{MetaValue, Metadata};
use frit_ops::interpret::interpret;

fn bert(form: Form) -> &'static Arch {
    arch::find(form, "bert").unwrap()
}

fn build(file: &HashMap<String, Tensor>, o: &EncoderOptions) -> Result<Encoder, ModelError> {
    let arch = bert(Form::HuggingFace);
    let weights = describe(arch, file);
    let f = arch.encoder().unwrap();
    let c = (f.config)(&Metadata::from_json(&config("bert")).unwrap(), &weights)?;
    (f.build)(&c, &weights, o, &frit_ops::registry())
}

fn golden() -> HashMap<String, Tensor> {
    tensors("bert", "model.safetensors")
}

#[test]
fn hidden_states() {
    let g = tensors("bert", "golden.safetensors");
    let mut values = golden();
    let encoder = build(&values, &EncoderOptions::default()).unwrap();
    let (b, t) = (g["input_ids"].shape()[0], g["input_ids"].shape()[1]);
    let mask = g["attention_mask"].to_i64().unwrap();
    let lengths: Vec<i32> = mask.chunks(t).map(|m| m.iter().sum::<i64>() as i32).collect();
    assert!(lengths.iter().any(|n| *n < t as i32), "no row is padded");
    values.insert("tokens".into(), g["input_ids"].clone());
    values.insert("lengths".into(), Tensor::from_i32(&[b], &lengths).unwrap());
    values.retain(|n, _| encoder.graph.find(n).is_some());
    let sizes = [("B", b as i64), ("T", t as i64)];
    let r = interpret(&encoder.graph, &frit_ops::registry(), &sizes, &values).unwrap();
    let got = r.outputs[0].1.to_f32().unwrap();
    let want = g["last_hidden_state"].to_f32().unwrap();
    let row = want.len() / b;
    for (i, n) in lengths.iter().enumerate() {
        let real = i * row..i * row + *n as usize * (row / t);
        let e = error(&got[real.clone()], &want[real]);
        assert!(e < 1e-4, "row {i}: {e}");
    }
}

#[test]
fn both_spellings_of_names_are_read() {
    let old = |n: &str| {
        format!(
            "bert.{}",
            n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        )
    };
    let mut file: HashMap<String, Tensor> = golden().into_iter().map(|(n, t)| (old(&n), t)).collect();
    for unused in ["bert.pooler.dense.weight", "cls.predictions.bias", "bert.embeddings.position_ids"] {
        file.insert(unused.into(), Tensor::from_f32(&[1], &[0.0]).unwrap());
    }
    let graph = |file: &HashMap<String, Tensor>| build(file, &EncoderOptions::default()).unwrap().graph;
    assert_eq!(frit_ir::text::print(&graph(&file)), frit_ir::text::print(&graph(&golden())));
    // A head would change what the model gives.
    file.insert("classifier.weight".into(), Tensor::from_f32(&[1], &[0.0]).unwrap());
    let e = build(&file, &EncoderOptions::default()).unwrap_err();
    assert_eq!(e, ModelError::UnusedWeights { count: 1, first: "classifier.weight".into() });
    assert!(matches!(build(&HashMap::new(), &EncoderOptions::default()), Err(ModelError::MissingWeight(_))));
}

fn with(key: &str, v: MetaValue) -> Result<EncoderConfig, ModelError> {
    let mut m = Metadata::from_json(&config("bert")).unwrap();
    m.insert(key, v);
    (bert(Form::HuggingFace).encoder().unwrap().config)(&m, &Default::default())
}

#[test]
fn configurations_of_other_models_are_refused() {
    let text = |s: &str| MetaValue::Text(s.into());
    for (key, v) in [
        ("is_decoder", MetaValue::Bool(true)),
        ("add_cross_attention", MetaValue::Bool(true)),
        ("position_embedding_type", text("relative_key")),
        ("hidden_act", text("mish")),
        ("quantization_config.bits", MetaValue::Int(4)),
    ] {
        let e = with(key, v);
        assert!(matches!(&e, Err(ModelError::Unsupported { key: k, .. }) if k == key), "{key}: {e:?}");
    }
    assert!(with("num_attention_heads", MetaValue::Int(5)).is_err());
    assert!(with("num_hidden_layers", MetaValue::Int(5000)).is_err());
    assert_eq!(with("hidden_act", text("gelu_new")).unwrap().activation, ScalarOp::GeluTanh);
}

#[test]
fn a_gguf_file_is_read_by_its_keys_and_shapes() {
    let gguf = |extra: Option<(&str, MetaValue)>| {
        let mut m = Metadata::new();
        for (k, v) in [
            ("block_count", 6),
            ("context_length", 512),
            ("embedding_length", 384),
            ("feed_forward_length", 1536),
            ("attention.head_count", 12),
        ] {
            m.insert(format!("bert.{k}"), MetaValue::Int(v));
        }
        m.insert("bert.attention.layer_norm_epsilon", MetaValue::Float(1e-12));
        if let Some((k, v)) = extra {
            m.insert(k, v);
        }
        let arch = bert(Form::Gguf);
        let tables = [("token_embd.weight", 30522), ("token_types.weight", 2)];
        let weights = arch.weights(tables.map(|(n, rows)| (n.into(), DType::F32, vec![rows, 384]))).unwrap();
        (arch.encoder().unwrap().config)(&m, &weights)
    };
    let c = gguf(None).unwrap();
    assert_eq!((c.vocab, c.hidden, c.intermediate, c.heads, c.layers), (30522, 384, 1536, 12, 6));
    assert_eq!((c.context, c.types, c.norm_eps, c.activation), (512, 2, 1e-12, ScalarOp::Gelu));
    let e = gguf(Some(("bert.attention.causal", MetaValue::Bool(true))));
    assert!(matches!(e, Err(ModelError::Unsupported { .. })), "{e:?}");
    let names = bert(Form::Gguf).names;
    assert_eq!(names("blk.5.layer_output_norm.bias"), "encoder.layer.5.output.LayerNorm.bias");
    assert_eq!(names("cls.weight"), "cls.weight");
}

#[test]
fn options_out_of_range_are_refused() {
    for (o, option) in [
        (EncoderOptions::default().context(0), "context"),
        (EncoderOptions::default().context(129), "context"),
        (EncoderOptions::default().chunk(0), "chunk"),
        (EncoderOptions::default().chunk(1 << 40), "chunk"),
    ] {
        let e = build(&golden(), &o).unwrap_err();
        assert!(matches!(&e, ModelError::Option { option: o, .. } if *o == option), "{e}");
    }
    let sizes = build(&golden(), &EncoderOptions::default().chunk(5)).unwrap().sizes;
    assert_eq!((sizes.context, sizes.chunk), (128, 128));
}
