//! The golden models and the real ones on every GPU of this machine, and on the CPU as an OpenCL device where there is no
//! other: there, where a token takes a second, less of each. Feature `gemma` adds Gemma 3 270M.

use std::sync::LazyLock;

use frit::{Activations, DType, Device, DeviceKind, EmbedOptions, LoadOptions, Model, Options};
use frit_tests::reference::{self, Measured, measure};
use frit_tests::{decoders, encoders, golden, gpu};

/// The devices. There must be one: a machine without is no place for this test.
static DEVICES: LazyLock<Vec<Device>> = LazyLock::new(|| {
    let all: Vec<Device> =
        frit::devices().into_iter().filter(|d| matches!(d.kind, DeviceKind::Gpu { .. })).collect();
    let cards: Vec<Device> = all.iter().filter(|d| !slow(d)).cloned().collect();
    let devices = if cards.is_empty() { all.clone() } else { cards };
    for api in gpu::required() {
        let by = |d: &Device| d.spec.to_string().starts_with(api);
        assert!(all.iter().any(by), "no GPU by {api}: {:?}", frit::missing_devices());
    }
    assert!(!devices.is_empty(), "no GPU: {:?}", frit::missing_devices());
    devices
});

/// Whether it is the CPU by another way.
fn slow(d: &Device) -> bool {
    matches!(d.kind, DeviceKind::Gpu { host: true, .. })
}

fn on(d: &Device, options: LoadOptions) -> LoadOptions {
    options.device(d.spec.clone())
}

#[test]
fn golden_decoders_agree_with_the_reference() {
    for (d, name) in DEVICES.iter().flat_map(|d| decoders::MODELS.iter().map(move |m| (d, m))) {
        let golden = decoders::read(name);
        let model = decoders::load(name, on(d, decoders::exact()));
        let mut g = model.generator(Options::default()).unwrap();
        for (ids, want) in golden.ids.iter().zip(&golden.logits) {
            g.clear();
            let off = decoders::distance(g.feed_all(ids).unwrap(), want);
            println!("{name} on {}: logits off by {off:.1e}", d.spec);
            assert!(off < 1e-4, "{name} on {}: {off:e}", d.spec);
        }
        for piece in if slow(d) { &[3][..] } else { &[11, 1, 3, 7] } {
            g.clear();
            let got = decoders::continue_greedily(&mut g, &golden.generated, *piece);
            assert_eq!(got, golden.generated, "{name} on {}, piece {piece}", d.spec);
        }
    }
}

#[test]
fn the_golden_encoder_agrees_with_the_reference() {
    let golden = encoders::Golden::read();
    let texts = golden.texts();
    for d in DEVICES.iter() {
        let model = Model::load_with(golden::folder("bert"), &on(d, LoadOptions::default())).unwrap();
        let mut e = model.embedder(EmbedOptions::default()).unwrap();
        let together = e.embed_tokens(&texts).unwrap();
        for (i, want) in golden.mean.iter().enumerate() {
            let alone = e.embed_tokens(&texts[i..=i]).unwrap().remove(0);
            for (how, got) in [("alone", &alone), ("batched", &together[i])] {
                let off = encoders::distance(got, want);
                assert!(off < 1e-4, "text {i} {how} on {}: {off:e}", d.spec);
            }
        }
    }
}

#[test]
fn minilm_embeddings_are_the_reference_s() {
    let mut texts = encoders::minilm_texts();
    for d in DEVICES.iter() {
        if slow(d) {
            texts.retain(|t| t.ids.len() <= 64);
        }
        let model = Model::load_with(golden::minilm(), &on(d, LoadOptions::default())).unwrap();
        let mut e = model.embedder(EmbedOptions::default().max_tokens(256).truncate(true)).unwrap();
        let all: Vec<&str> = texts.iter().map(|t| t.text.as_str()).collect();
        let together = e.embed(&all).unwrap();
        for (t, got) in texts.iter().zip(&together) {
            let alone = e.embed(&[&t.text]).unwrap().remove(0);
            for (how, got) in [("alone", &alone), ("batched", got)] {
                let c = encoders::cosine(got, &t.embedding);
                println!("{how} on {}: cosine {c:.9}: {:.30}", d.spec, t.text);
                assert!(c >= 0.99999, "{how} on {}: {c}: {}", d.spec, t.text);
            }
        }
    }
}

#[test]
fn smollm2_is_nearly_the_reference() {
    real("smollm2", &golden::smollm2());
}

#[cfg(feature = "gemma")]
#[test]
fn gemma3_is_nearly_the_reference() {
    real("gemma3", &golden::gemma3());
}

/// Prompts of `{name}.json` through the model in the file `path`: all of them on cards, two elsewhere.
fn real(name: &str, path: &std::path::Path) {
    for d in DEVICES.iter() {
        let exact = LoadOptions::default().activations(Activations::F32).kv_dtype(DType::F32).context(512);
        let model = Model::load_with(path, &on(d, exact.rows(128))).unwrap();
        let mut g = model.generator(Options::default().max_tokens(20).ignore_end(true)).unwrap();
        let prompts = reference::prompts(name);
        for p in prompts.iter().take(if slow(d) { 2 } else { usize::MAX }) {
            let Measured { rms, nll, top } = measure(&mut g, p);
            let (on, text) = (&d.spec, &p.text);
            println!("{name} on {on}: rms {rms:.6}, nll {nll:.5} (reference {:.5}): {text:?}", p.nll);
            assert!(rms < 0.01, "{name} on {on}: rms {rms}: {text}");
            assert!((nll - p.nll).abs() <= 0.001, "{name} on {on}: nll {nll}, reference {}: {text}", p.nll);
            assert_eq!(top, p.top.0, "{name} on {on}: {text}");
        }
        let p = &prompts[0];
        g.clear();
        if !slow(d) {
            let text: String = g.complete(&p.text).unwrap().map(|piece| piece.unwrap().text).collect();
            assert_eq!(text, p.greedy_text, "{name} on {}", d.spec);
        }
    }
}
