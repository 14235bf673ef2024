//! Encoders: the golden BERT and the real MiniLM against a reference implementation, from both forms of file, alone and batched.

use frit::{DType, EmbedOptions, Embedder, Error, LoadOptions, Model, Options, Pooling, Task, Tensor};
use frit_tests::decoders::floats;
use frit_tests::encoders::{Golden, cosine, distance, minilm_texts};
use frit_tests::{gguf, golden};
use safetensors::SafeTensors;
use serde_json::Value;

/// The golden model from its folder and as a GGUF file.
fn forms() -> [Model; 2] {
    let folder = golden::folder("bert");
    let bytes = std::fs::read(folder.join("model.safetensors")).unwrap();
    let file = gguf::bert(&config(&folder), &SafeTensors::deserialize(&bytes).unwrap(), 1);
    [Model::load(folder).unwrap(), Model::from_bytes(file, &LoadOptions::default()).unwrap()]
}

fn config(folder: &std::path::Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder.join("config.json")).unwrap()).unwrap()
}

fn embedder(model: &Model) -> Embedder {
    model.embedder(EmbedOptions::default()).unwrap()
}

#[test]
fn hidden_states_agree_with_the_reference() {
    let g = Golden::read();
    let n = g.lengths.len();
    let width = g.hidden.len() / (n * g.tokens);
    for unfused in [false, true] {
        let mut options = LoadOptions::default();
        options.unfused = unfused;
        let model = Model::load_with(golden::folder("bert"), &options).unwrap();
        let mut session = model.compiled().session().unwrap();
        let lengths: Vec<i32> = g.lengths.iter().map(|n| *n as i32).collect();
        let tokens = Tensor::from_i32(&[n, g.tokens], &g.padded).unwrap();
        let lengths = Tensor::from_i32(&[n], &lengths).unwrap();
        let out = session.run(&[("tokens", &tokens), ("lengths", &lengths)]).unwrap();
        let hidden = out.get("hidden").unwrap();
        let rows = hidden.as_slice::<f32>().unwrap().chunks_exact(width * g.tokens);
        for (i, (got, want)) in rows.zip(g.hidden.chunks_exact(width * g.tokens)).enumerate() {
            let real = g.lengths[i] * width;
            let d = distance(&got[..real], &want[..real]);
            assert!(d < 1e-4, "row {i}, unfused {unfused}: {d:e}");
        }
    }
}

#[test]
fn embeddings_agree_alone_and_batched_from_both_forms() {
    let g = Golden::read();
    let texts = g.texts();
    assert!(texts.iter().any(|t| t.len() != texts[0].len()));
    for model in forms() {
        let mut e = embedder(&model);
        assert_eq!((e.pooling(), e.normalizes(), e.dimensions()), (Pooling::Mean, true, g.mean[0].len()));
        let together = e.embed_tokens(&texts).unwrap();
        for (i, want) in g.mean.iter().enumerate() {
            let alone = e.embed_tokens(&texts[i..=i]).unwrap();
            for (how, got) in [("alone", &alone[0]), ("batched", &together[i])] {
                let d = distance(got, want);
                assert!(d < 1e-4, "{} text {i} {how}: {d:e}", model.name());
            }
            assert!(distance(&alone[0], &together[i]) < 1e-6);
        }
    }
}

#[test]
fn every_pooling_is_what_its_name_says() {
    let g = Golden::read();
    let (texts, width) = (g.texts(), g.mean[0].len());
    let model = Model::load(golden::folder("bert")).unwrap();
    for pooling in [Pooling::Mean, Pooling::Cls, Pooling::Max, Pooling::Last] {
        let mut e = model.embedder(EmbedOptions::default().pooling(pooling).normalize(false)).unwrap();
        for (i, got) in e.embed_tokens(&texts).unwrap().iter().enumerate() {
            let hidden = &g.hidden[i * g.tokens * width..][..g.lengths[i] * width];
            let column = |c: usize| hidden.iter().skip(c).step_by(width).copied();
            let n = g.lengths[i];
            let want: Vec<f32> = (0..width)
                .map(|c| match pooling {
                    Pooling::Mean => column(c).sum::<f32>() / n as f32,
                    Pooling::Cls => hidden[c],
                    Pooling::Max => column(c).fold(f32::MIN, f32::max),
                    Pooling::Last => hidden[(n - 1) * width + c],
                })
                .collect();
            let d = distance(got, &want);
            assert!(d < 1e-4, "{pooling} text {i}: {d:e}");
        }
    }
}

/// Many texts of many lengths, in batches of all sizes: the order is kept, and company changes nothing but rounding.
#[test]
fn a_text_s_embedding_does_not_depend_on_its_company() {
    let folder = golden::folder("bert");
    let texts: Vec<Vec<u32>> =
        (0..60u32).map(|i| (0..1 + i * 37 % 90).map(|j| (i * 31 + j * 7) % 320).collect()).collect();
    let wide = Model::load(&folder).unwrap();
    let alone: Vec<Vec<f32>> =
        texts.iter().map(|t| embedder(&wide).embed_tokens(&[t]).unwrap().remove(0)).collect();
    for chunk in [1, 200, 4096] {
        let model = Model::load_with(&folder, &LoadOptions::default().chunk(chunk)).unwrap();
        for (i, (a, b)) in alone.iter().zip(embedder(&model).embed_tokens(&texts).unwrap()).enumerate() {
            let d = distance(a, &b);
            assert!(d < 1e-6, "text {i} in batches of {chunk}: {d:e}");
        }
    }
}

#[test]
fn what_cannot_be_embedded_is_refused() {
    let model = Model::load(golden::folder("bert")).unwrap();
    let mut e = embedder(&model);
    let none: [&[u32]; 0] = [];
    assert!(matches!(e.embed_tokens(&none), Err(Error::Value { message }) if message.contains("no texts")));
    let r = e.embed_tokens(&[&[1u32][..], &[]]);
    assert!(matches!(r, Err(Error::Value { message }) if message.contains("text 2 of 2")));
    let r = e.embed_tokens(&[vec![1u32; 10], vec![1; 129]]);
    assert!(matches!(r, Err(Error::TextTooLong { text: 1, tokens: 129, max: 128 })));
    let r = e.embed_tokens(&[[1u32, 320]]);
    assert!(matches!(r, Err(Error::Value { message }) if message.contains("320")));
    assert!(matches!(e.embed(&["text"]), Err(Error::WrongTask { .. })));
    for n in [0, 129] {
        let r = model.embedder(EmbedOptions::default().max_tokens(n));
        assert!(matches!(r, Err(Error::Value { message }) if message.contains("max_tokens")));
    }
    // After all of these it works as before.
    assert_eq!(e.embed_tokens(&[[1u32, 2, 3]]).unwrap()[0].len(), 64);
    e.cancel().cancel();
    assert!(matches!(e.embed_tokens(&[[1u32]]), Err(Error::Cancelled)));
    e.reset_cancel();
    assert!(e.embed_tokens(&[[1u32]]).is_ok());
    assert!(
        matches!("median".parse::<Pooling>().map_err(Error::from), Err(Error::Value { message }) if message.contains("median"))
    );
}

#[test]
fn a_model_does_what_it_is_for() {
    let encoder = Model::load(golden::folder("bert")).unwrap();
    assert_eq!((encoder.task(), encoder.architecture(), encoder.layers()), (Task::Embed, "bert", 3));
    assert!(
        matches!(encoder.generator(Options::default()), Err(Error::WrongTask { message }) if message.contains("encoder"))
    );
    let decoder = Model::load(golden::folder("llama")).unwrap();
    assert_eq!(decoder.task(), Task::Generate);
    assert!(
        matches!(decoder.embedder(EmbedOptions::default()), Err(Error::WrongTask { message }) if message.contains("encoder"))
    );
}

#[test]
fn embedders_move_between_threads_and_hold_their_model() {
    fn owned<T: Send + 'static>(t: T) -> T {
        t
    }
    let mut e = owned(embedder(&Model::load(golden::folder("bert")).unwrap()));
    let here = e.embed_tokens(&[[5u32, 6, 7]]).unwrap();
    let there = std::thread::spawn(move || e.embed_tokens(&[[5u32, 6, 7]]).unwrap()).join().unwrap();
    assert_eq!(here, there);
}

#[test]
fn minilm_tokens_are_the_reference_s() {
    let model = Model::load(golden::minilm()).unwrap();
    // The reference cuts at the 256 tokens that the model was published with; it reads 512.
    let e = model.embedder(EmbedOptions::default().max_tokens(256).truncate(true)).unwrap();
    for t in minilm_texts() {
        assert_eq!(e.encode(&t.text).unwrap(), t.ids, "{}", t.text);
    }
    let e = model.embedder(EmbedOptions::default().max_tokens(256)).unwrap();
    let long = "a ".repeat(300);
    assert!(matches!(e.encode(&long), Err(Error::TextTooLong { tokens: 302, max: 256, .. })));
    for empty in ["", "  \n "] {
        assert!(
            matches!(e.encode(empty), Err(Error::Value { message }) if message.contains("empty")),
            "{empty:?}"
        );
    }
}

#[test]
fn minilm_embeddings_are_the_reference_s_alone_and_batched() {
    let texts = minilm_texts();
    let model = Model::load(golden::minilm()).unwrap();
    let options = || EmbedOptions::default().max_tokens(256).truncate(true);
    let mut e = model.embedder(options()).unwrap();
    let all: Vec<&str> = texts.iter().map(|t| t.text.as_str()).collect();
    let together = e.embed(&all).unwrap();

    let bytes = std::fs::read(golden::minilm().join("model.safetensors")).unwrap();
    let file = gguf::bert(&config(&golden::minilm()), &SafeTensors::deserialize(&bytes).unwrap(), 1);
    let mut of_gguf =
        Model::from_bytes(file, &LoadOptions::default()).unwrap().embedder(EmbedOptions::default()).unwrap();
    for (i, t) in texts.iter().enumerate() {
        let alone = e.embed(&[&t.text]).unwrap().remove(0);
        let gguf = of_gguf.embed_tokens(&[&t.ids]).unwrap().remove(0);
        for (how, got) in [("alone", &alone), ("batched", &together[i]), ("from GGUF", &gguf)] {
            let c = cosine(got, &t.embedding);
            println!("{how}: cosine {c:.9}, off by {:.1e}: {:.30}", distance(got, &t.embedding), t.text);
            assert!(c >= 0.99999, "{how}: {c}: {}", t.text);
            assert!(distance(got, &t.embedding) < 1e-4, "{how}: {}", t.text);
        }
        assert_eq!(gguf, alone, "the same weights in another file");
    }
}

#[test]
fn f16_weights_stay_close() {
    let folder = golden::folder("bert");
    let bytes = std::fs::read(folder.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let half = file.tensors().into_iter().map(|(n, t)| {
        let v: Vec<f64> = floats(t.data()).into_iter().map(f64::from).collect();
        (format!("bert.{n}"), Tensor::from_f64(DType::F16, t.shape(), &v).unwrap())
    });
    let text = std::fs::read_to_string(folder.join("config.json")).unwrap();
    let model = Model::from_parts(&text, half.collect(), None, &LoadOptions::default()).unwrap();
    let g = Golden::read();
    let got = embedder(&model).embed_tokens(&g.texts()).unwrap();
    for (got, want) in got.iter().zip(&g.mean) {
        let d = distance(got, want);
        assert!(d > 1e-6 && d < 2e-3, "{d:e}");
    }
}
