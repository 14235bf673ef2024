//! Tiny models of public architectures against a reference implementation (see the metadata of `golden.safetensors`).

use std::collections::BTreeMap;

use frit::{Activations, DType, Generator, LoadOptions, Model, Options};
use frit_tests::golden;
use safetensors::SafeTensors;

const MODELS: &[&str] = &["llama", "mistral", "qwen2", "qwen3", "gemma3_text"];

struct Golden {
    ids: Vec<Vec<u32>>,
    logits: Vec<Vec<f32>>,
    generated: Vec<u32>,
}

fn ints(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn read(name: &str) -> Golden {
    let bytes = std::fs::read(golden::folder(name).join("golden.safetensors")).unwrap();
    let all = SafeTensors::deserialize(&bytes).unwrap();
    let ids = all.tensor("input_ids").unwrap();
    let logits = all.tensor("logits").unwrap();
    let rows = ids.shape()[0];
    let (i, l) = (ints(ids.data()), floats(logits.data()));
    Golden {
        ids: i.chunks_exact(i.len() / rows).map(<[u32]>::to_vec).collect(),
        logits: l.chunks_exact(l.len() / rows).map(<[f32]>::to_vec).collect(),
        generated: ints(all.tensor("generated_ids").unwrap().data()),
    }
}

fn load(name: &str, options: LoadOptions) -> Model {
    Model::load_with(golden::folder(name), &options).unwrap()
}

fn exact() -> LoadOptions {
    LoadOptions::default().rows(32).kv_dtype(DType::F32).activations(Activations::F32)
}

/// Largest |got − want| over the standard deviation of `want`.
fn distance(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let n = want.len() as f64;
    let mean = want.iter().map(|v| *v as f64).sum::<f64>() / n;
    let std = (want.iter().map(|v| (*v as f64 - mean).powi(2)).sum::<f64>() / n).sqrt();
    got.iter().zip(want).map(|(g, w)| (*g as f64 - *w as f64).abs()).fold(0.0, f64::max) / std
}

fn argmax(row: &[f32]) -> u32 {
    let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap();
    best.0 as u32
}

/// Greedy continuation of the first 11 ids to the golden's length, the prompt fed in pieces.
fn continue_greedily(g: &mut Generator, want: &[u32], piece: usize) -> Vec<u32> {
    g.clear();
    let mut ids = want[..11].to_vec();
    let mut next = 0;
    for part in want[..11].chunks(piece) {
        next = argmax(g.feed(part).unwrap());
    }
    while ids.len() < want.len() {
        ids.push(next);
        next = argmax(g.feed(&[next]).unwrap());
    }
    ids
}

#[test]
fn logits_agree_with_the_reference() {
    for name in MODELS {
        let golden = read(name);
        for unfused in [false, true] {
            let mut options = exact();
            options.unfused = unfused;
            let mut g = load(name, options).generator(Options::default()).unwrap();
            for (ids, want) in golden.ids.iter().zip(&golden.logits) {
                g.clear();
                let d = distance(g.feed_all(ids).unwrap(), want);
                assert!(d < 1e-4, "{name} unfused {unfused}: {d:e}");
            }
        }
    }
}

#[test]
fn generated_ids_agree_however_the_prompt_is_fed() {
    for name in MODELS {
        let golden = read(name);
        for chunk in [512, 4] {
            let model = load(name, exact().chunk(chunk));
            let mut g = model.generator(Options::default()).unwrap();
            for piece in [11, 1, 3, 7] {
                assert_eq!(
                    continue_greedily(&mut g, &golden.generated, piece),
                    golden.generated,
                    "{name} piece {piece}"
                );
            }
            // In one pass over the whole text, each token is the most likely one after those before it.
            if chunk == 512 {
                let model = load(name, exact().rows(64));
                let mut g = model.generator(Options::default()).unwrap();
                let rows = g.feed_all(&golden.generated).unwrap();
                let n = rows.len() / golden.generated.len();
                for (i, row) in rows.chunks_exact(n).enumerate().take(golden.generated.len() - 1).skip(10) {
                    assert_eq!(argmax(row), golden.generated[i + 1], "{name} at {i}");
                }
            }
        }
    }
}

#[test]
fn the_stream_of_a_generator_is_the_greedy_continuation() {
    for name in MODELS {
        let golden = read(name);
        let model = load(name, exact());
        let options = Options::default().max_tokens(24).ignore_end(true);
        let mut g = model.generator(options).unwrap();
        let end = g.tokens(&golden.generated[..11]).unwrap().finish().unwrap();
        assert_eq!(end.tokens, golden.generated[11..]);
        assert_eq!(end.reason, frit::StopReason::MaxTokens);
    }
}

/// What fusion leaves of the ops of a model, views not counted, and how many layers it has.
fn steps(name: &str) -> (BTreeMap<String, usize>, usize) {
    let registry = frit_ops::registry();
    let model = load(name, exact());
    let (target, options) = (frit_cpu::target::target(2), frit_compile::CompileOptions::default());
    let after = frit_compile::optimize(model.graph(), &registry, &target, &options).unwrap().graph;
    let mut count = BTreeMap::new();
    for n in after.nodes().iter().filter(|n| registry.get(&n.op).is_some_and(|d| d.view.is_none())) {
        *count.entry(n.op.to_string()).or_default() += 1;
    }
    (count, model.layers())
}

/// Queries, keys and values are one linear, gate and up another that multiplies them; each residual sum takes the norm behind
/// it along.
#[test]
fn layers_are_fused() {
    // Norms of a layer besides; steps that are elementwise (the scaled embedding, the last sum, which its norm is not next to).
    for (name, norms, scaled) in
        [("llama", 0, 0), ("mistral", 0, 0), ("qwen2", 0, 0), ("qwen3", 2, 0), ("gemma3_text", 4, 2)]
    {
        let (count, layers) = steps(name);
        let want = [
            ("attention", layers),
            ("expr", scaled),
            // Tokens and rows.
            ("gather", 2),
            ("linear", 4 * layers + 1),
            // The sum behind the last layer is gathered before the norm.
            ("residual_norm", 2 * layers - 1),
            ("rms_norm", 2 + norms * layers),
            ("rotary", 2 * layers),
            ("write_kv", 2 * layers),
        ];
        let want: BTreeMap<String, usize> =
            want.into_iter().filter(|(_, n)| *n > 0).map(|(op, n)| (op.into(), n)).collect();
        assert_eq!(count, want, "{name}");
    }
}
