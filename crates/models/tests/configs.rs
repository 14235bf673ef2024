//! Reading configurations, and what is refused.

mod common;

use common::{config, describe, tensors};
use frit_ir::{DType, ScalarOp};
use frit_models::ModelError;
use frit_models::arch::{self, Decoder, Form};
use frit_models::config::{BuildOptions, Config, RopeStyle};
use frit_models::metadata::{MetaValue, Metadata};
use frit_models::weights::Weights;
use frit_ops::rope_scaling::{RopeScaling, Yarn};

/// The configuration of the golden `llama` with `extra` keys put in front.
fn llama(extra: &str) -> Result<Config, ModelError> {
    let m = Metadata::from_json(&config("llama").replacen('{', &format!("{{{extra}"), 1)).unwrap();
    (arch::find(Form::HuggingFace, "llama").unwrap().decoder().unwrap().config)(&m, &Weights::default())
}

/// The golden `llama` with some keys replaced.
fn with(changes: &[(&str, MetaValue)]) -> Result<Config, ModelError> {
    let mut m = Metadata::from_json(&config("llama")).unwrap();
    for (k, v) in changes {
        m.insert(*k, v.clone());
    }
    (arch::find(Form::HuggingFace, "llama").unwrap().decoder().unwrap().config)(&m, &Weights::default())
}

fn text(s: &str) -> MetaValue {
    MetaValue::Text(s.into())
}

fn scaling(changes: &[(&str, f64)], kind: &str) -> Result<RopeScaling, ModelError> {
    let mut all = vec![("rope_parameters.rope_type", text(kind))];
    all.extend(changes.iter().map(|(k, v)| (*k, MetaValue::Float(*v))));
    Ok(with(&all)?.rope.scaling)
}

#[test]
fn a_plain_configuration_is_read() {
    let c = llama("").unwrap();
    assert_eq!((c.vocab, c.hidden, c.intermediate, c.layers()), (320, 64, 112, 3));
    assert_eq!((c.heads, c.kv_heads, c.head_dim, c.context), (4, 2, 16, 256));
    assert_eq!((c.bos, c.eos.as_slice(), c.tied), (Some(1), &[2u32][..], false));
    assert_eq!((c.activation, c.rope.style, c.rope.dims), (ScalarOp::Silu, RopeStyle::Half, 16));
    assert_eq!(c.rope.scaling, RopeScaling::None);
    assert_eq!(c.windows, [None; 3]);
}

#[test]
fn rotary_scaling_is_read_in_both_spellings() {
    assert_eq!(
        scaling(&[("rope_parameters.factor", 4.0)], "linear"),
        Ok(RopeScaling::Linear { factor: 4.0 })
    );
    let three = [
        ("rope_parameters.factor", 8.0),
        ("rope_parameters.low_freq_factor", 1.0),
        ("rope_parameters.high_freq_factor", 4.0),
        ("rope_parameters.original_max_position_embeddings", 8192.0),
    ];
    let want = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 8192.0,
    };
    assert_eq!(scaling(&three, "llama3"), Ok(want));
    let yarn = [("rope_parameters.factor", 4.0), ("rope_parameters.attention_factor", 1.25)];
    let want = Yarn {
        factor: 4.0,
        original_context: 256.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        truncate: true,
        attention_factor: Some(1.25),
        mscale: None,
        mscale_all_dim: None,
    };
    assert_eq!(scaling(&yarn, "yarn"), Ok(RopeScaling::Yarn(want)));
    assert_eq!(scaling(&[], "dynamic"), Ok(RopeScaling::None));

    // The older spelling: a group of its own, the base beside it.
    let json = r#"{"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 32, "vocab_size": 9,
        "intermediate_size": 7, "num_hidden_layers": 2, "rope_theta": 500000,
        "rope_scaling": {"type": "linear", "factor": 2}, "eos_token_id": [3, 4], "hidden_act": "gelu"}"#;
    let m = Metadata::from_json(json).unwrap();
    let c =
        (arch::find(Form::HuggingFace, "llama").unwrap().decoder().unwrap().config)(&m, &Weights::default())
            .unwrap();
    assert_eq!((c.rope.theta, c.rope.scaling), (500_000.0, RopeScaling::Linear { factor: 2.0 }));
    assert_eq!((c.head_dim, c.kv_heads, c.eos), (16, 4, vec![3, 4]));
    assert_eq!(c.activation, ScalarOp::Gelu);
}

#[test]
fn what_is_not_supported_is_named_with_its_value() {
    let unsupported = |r: Result<Config, ModelError>| match r {
        Err(ModelError::Unsupported { key, value, supported }) => {
            assert!(!supported.is_empty());
            (key, value)
        }
        r => panic!("{r:?}"),
    };
    let pair = |k: &str, v: &str| (k.to_string(), v.to_string());
    let one = |k: &str, v: MetaValue| unsupported(with(&[(k, v)]));
    assert_eq!(one("hidden_act", text("mish")), pair("hidden_act", "\"mish\""));
    assert_eq!(
        one("rope_parameters.rope_type", text("longrope")),
        pair("rope_parameters.rope_type", "\"longrope\"")
    );
    assert_eq!(one("partial_rotary_factor", MetaValue::Float(0.5)), pair("partial_rotary_factor", "0.5"));
    assert_eq!(
        unsupported(llama("\"quantization_config\": {\"quant_method\": \"awq\"},")),
        pair("quantization_config.quant_method", "\"awq\"")
    );
    assert!(matches!(
        arch::find(Form::Gguf, "warp"),
        Err(ModelError::UnknownArch { name, known, .. }) if name == "warp" && known.contains("llama")
    ));
    let known = arch::find(Form::HuggingFace, "warp").unwrap_err().to_string();
    assert!(known.contains("llama, mistral"), "{known}");
}

#[test]
fn impossible_values_are_refused() {
    let int = MetaValue::Int;
    for (k, v) in [
        ("num_key_value_heads", int(3)),
        ("num_key_value_heads", int(0)),
        ("num_hidden_layers", int(5000)),
        ("num_hidden_layers", int(0)),
        ("head_dim", int(15)),
        ("head_dim", int(0)),
        ("hidden_size", int(-64)),
        ("hidden_size", int(1 << 40)),
        ("rms_norm_eps", MetaValue::Float(-1.0)),
        ("rope_parameters.rope_theta", int(0)),
        ("vocab_size", text("many")),
        ("max_position_embeddings", int(0)),
    ] {
        let r = with(&[(k, v.clone())]);
        assert!(matches!(r, Err(ModelError::BadValue { .. })), "{k} = {v}: {r:?}");
    }
    let m = Metadata::from_json("{}").unwrap();
    let r = (arch::find(Form::HuggingFace, "mistral").unwrap().decoder().unwrap().config)(
        &m,
        &Weights::default(),
    );
    assert_eq!(r, Err(ModelError::MissingKey("hidden_size".into())));
}

#[test]
fn mistral_windows_follow_the_layer_types() {
    let read = |change: &str| {
        let json = config("mistral").replacen('{', &format!("{{{change}"), 1);
        let m = Metadata::from_json(&json).unwrap();
        (arch::find(Form::HuggingFace, "mistral").unwrap().decoder().unwrap().config)(&m, &Weights::default())
    };
    assert_eq!(read("").unwrap().windows, [Some(6); 3]);
    let mixed = r#""layer_types": ["full_attention", "sliding_attention", "full_attention"],"#;
    assert_eq!(read(mixed).unwrap().windows, [None, Some(6), None]);
    for bad in [r#""layer_types": ["full_attention"],"#, r#""layer_types": ["a", "b", "c"],"#] {
        assert!(matches!(read(bad), Err(ModelError::Unsupported { .. })));
    }
}

/// GGUF metadata of a small model, with changes.
fn gguf(changes: &[(&str, MetaValue)]) -> Result<Config, ModelError> {
    let mut m = Metadata::new();
    m.insert("general.architecture", text("llama"));
    for (k, v) in [
        ("embedding_length", 64),
        ("attention.head_count", 4),
        ("context_length", 128),
        ("feed_forward_length", 96),
        ("block_count", 2),
    ] {
        m.insert(format!("llama.{k}"), MetaValue::Int(v));
    }
    m.insert("llama.attention.layer_norm_rms_epsilon", MetaValue::Float(1e-5));
    for (k, v) in changes {
        m.insert(format!("llama.{k}"), v.clone());
    }
    let arch = arch::find(Form::Gguf, "llama").unwrap();
    let weights = arch.weights([("token_embd.weight".into(), DType::Q8_0, vec![50, 64])]).unwrap();
    (arch.decoder().unwrap().config)(&m, &weights)
}

#[test]
fn gguf_keys_are_read() {
    let int = MetaValue::Int;
    let c = gguf(&[]).unwrap();
    assert_eq!((c.vocab, c.kv_heads, c.head_dim, c.tied), (50, 4, 16, true));
    assert_eq!((c.rope.style, c.rope.theta, c.rope.dims), (RopeStyle::Interleaved, 10_000.0, 16));
    let c = gguf(&[
        ("attention.head_count_kv", MetaValue::List(vec![int(2), int(2)])),
        ("attention.key_length", int(24)),
        ("attention.value_length", int(24)),
        ("attention.sliding_window", int(32)),
        ("rope.dimension_count", int(12)),
        ("rope.freq_base", MetaValue::Float(5e5)),
    ])
    .unwrap();
    assert_eq!((c.kv_heads, c.head_dim, c.rope.dims, c.rope.theta), (2, 24, 12, 5e5));
    assert_eq!(c.windows, [Some(32); 2]);
    let yarn = gguf(&[
        ("rope.scaling.type", text("yarn")),
        ("rope.scaling.factor", MetaValue::Float(4.0)),
        ("rope.scaling.original_context_length", int(64)),
    ]);
    assert!(matches!(yarn.unwrap().rope.scaling, RopeScaling::Yarn(y) if y.original_context == 64.0));
    let old = gguf(&[("rope.scale_linear", MetaValue::Float(2.0))]).unwrap();
    assert_eq!(old.rope.scaling, RopeScaling::Linear { factor: 2.0 });
}

#[test]
fn gguf_values_that_mean_another_model_are_refused() {
    let int = MetaValue::Int;
    for (k, v) in [
        ("expert_count", int(8)),
        ("attention.value_length", int(8)),
        ("rope.scaling.type", text("longrope")),
    ] {
        let r = gguf(&[(k, v)]);
        assert!(
            matches!(&r, Err(ModelError::Unsupported { key, .. }) if *key == format!("llama.{k}")),
            "{r:?}"
        );
    }
    let heads = MetaValue::List(vec![int(2), int(4)]);
    assert!(matches!(gguf(&[("attention.head_count_kv", heads)]), Err(ModelError::BadValue { .. })));
    let r = gguf(&[("rope.scaling.type", text("linear"))]);
    assert_eq!(r, Err(ModelError::MissingKey("llama.rope.scaling.factor".into())));
}

/// The golden `llama` built with its tensors changed.
fn build(
    change: impl Fn(&mut Vec<(String, DType, Vec<usize>)>),
    o: BuildOptions,
) -> Result<Decoder, ModelError> {
    let arch = arch::find(Form::HuggingFace, "llama").unwrap();
    let weights = describe(arch, &tensors("llama", "model.safetensors"));
    let mut all: Vec<_> = weights.iter().map(|(n, w)| (n.to_string(), w.dtype, w.shape.clone())).collect();
    change(&mut all);
    let weights = arch.weights(all)?;
    (arch.decoder().unwrap().build)(&llama("")?, &weights, &o, &frit_ops::registry())
}

#[test]
fn weights_must_be_those_of_the_configuration() {
    let key = "model.layers.1.self_attn.k_proj.weight";
    let o = BuildOptions::default;
    assert!(build(|_| (), o()).is_ok());
    let r = build(|all| all.retain(|w| w.0 != key), o());
    assert_eq!(r.err(), Some(ModelError::MissingWeight(key.into())));
    let r = build(|all| all.iter_mut().filter(|w| w.0 == key).for_each(|w| w.2 = vec![64, 64]), o());
    let want = ModelError::WeightShape { name: key.into(), want: vec![32, 64], got: vec![64, 64] };
    assert_eq!(r.err(), Some(want));
    let r = build(|all| all.iter_mut().filter(|w| w.0 == key).for_each(|w| w.1 = DType::I8), o());
    assert!(matches!(r.err(), Some(ModelError::WeightType { .. })));
    let norm = |all: &mut Vec<(String, DType, Vec<usize>)>| {
        all.iter_mut().filter(|w| w.0 == "model.norm.weight").for_each(|w| w.1 = DType::Q8_0);
    };
    assert!(matches!(build(norm, o()).err(), Some(ModelError::WeightType { .. })));
    let extra = |all: &mut Vec<(String, DType, Vec<usize>)>| {
        all.push(("model.layers.0.self_attn.q_norm.weight".into(), DType::F32, vec![16]));
        all.push(("model.layers.0.self_attn.rotary_emb.inv_freq".into(), DType::F32, vec![8]));
    };
    let want = ModelError::UnusedWeights { count: 1, first: "model.layers.0.self_attn.q_norm.weight".into() };
    assert_eq!(build(extra, o()).err(), Some(want));
    let twice = |all: &mut Vec<(String, DType, Vec<usize>)>| all.push((key.into(), DType::F32, vec![1]));
    assert_eq!(build(twice, o()).err(), Some(ModelError::WeightTwice(key.into())));
}

#[test]
fn build_options_are_checked() {
    let o = BuildOptions::default;
    for (o, name) in [
        (o().context(0), "context"),
        (o().context(257), "context"),
        (o().chunk(0), "chunk"),
        (o().rows(0), "rows"),
        (o().kv_dtype(DType::Q8_0), "kv_dtype"),
    ] {
        let r = build(|_| (), o).err();
        assert!(matches!(&r, Some(ModelError::Option { option, .. }) if *option == name), "{name}: {r:?}");
    }
    let s = build(|_| (), o().context(40).rows(99)).unwrap().sizes;
    assert_eq!((s.context, s.chunk, s.rows), (40, 40, 40));
}
