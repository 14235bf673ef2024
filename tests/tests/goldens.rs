//! Tiny models of public architectures against a reference implementation (see the metadata of `golden.safetensors`).

use std::collections::BTreeMap;

use frit::Options;
use frit_tests::decoders::{MODELS, continue_greedily, distance, exact, load, read};
use frit_tests::reference::argmax;

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
                g.clear();
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
