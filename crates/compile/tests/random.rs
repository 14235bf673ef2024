//! Random graphs compute the same before and after the passes, by the reference interpreter.

use std::collections::BTreeMap;

use frit_compile::testing::{difference, every_op, random_graph};
use frit_compile::{Activations, CompileOptions, Precision, Storage, fuse, optimize};
use frit_ops::cases::Numbers;
use frit_ops::interpret::interpret;

#[test]
fn optimized_graphs_compute_the_same() {
    let registry = frit_ops::registry();
    let target = every_op(&registry);
    let options = CompileOptions::default();
    let mut smaller = 0;
    let mut formed: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 0..150 {
        let x = random_graph(seed, 12).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(frit_ir::verify::verify(&x.graph, &registry), Ok(()), "seed {seed}");
        let after =
            optimize(&x.graph, &registry, &target, &options).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(after.fused.refused, [], "seed {seed}");
        for (name, n) in &after.fused.formed {
            *formed.entry(*name).or_default() += n;
        }
        let after = after.graph;
        smaller += usize::from(after.nodes().len() < x.graph.nodes().len());
        let text =
            || format!("seed {seed}\n{}\n{}", frit_ir::text::print(&x.graph), frit_ir::text::print(&after));
        let run = |g| {
            interpret(g, &registry, &x.bindings(), &x.values).unwrap_or_else(|e| panic!("{e}: {}", text()))
        };
        let (want, got) = (run(&x.graph), run(&after));
        for ((name, w), (_, g)) in want.outputs.iter().zip(&got.outputs) {
            assert_eq!(difference(g, w, 2e-3).unwrap(), None, "{name}: {}", text());
        }
        for ((name, w), (_, g)) in want.states.iter().zip(&got.states) {
            assert_eq!(difference(g, w, 2e-3).unwrap(), None, "state {name}: {}", text());
        }
    }
    // Every pattern but rotary, which no random graph holds.
    assert_eq!(formed.len(), 9, "{formed:?}");
    assert!(smaller > 140, "passes made only {smaller} graphs of 150 smaller");
}

#[test]
fn no_node_is_claimed_twice() {
    let registry = frit_ops::registry();
    let target = every_op(&registry);
    for seed in 0..300 {
        let x = random_graph(seed, 16).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let twice = fuse::ambiguities(&x.graph, &registry, &target, Default::default());
        assert_eq!(twice, [], "seed {seed}\n{}", frit_ir::text::print(&x.graph));
    }
}

#[test]
fn texts_of_random_graphs_read_back() {
    let registry = frit_ops::registry();
    for seed in 0..100 {
        let x = random_graph(seed, 20).unwrap();
        let text = frit_ir::text::print(&x.graph);
        assert_eq!(frit_ir::text::parse(&text, &registry).as_ref(), Ok(&x.graph), "{text}");
    }
}

#[test]
fn policies_keep_graphs_valid_and_near() {
    let registry = frit_ops::registry();
    let target = every_op(&registry);
    let half = |s| CompileOptions::default().precision(Precision::new(s).with_op("softmax", Storage::F32));
    let q8 = CompileOptions::default().activations(Activations::Q8);
    for options in [half(Storage::F16), half(Storage::BF16), q8] {
        let (mut near, mut all) = (0, 0);
        for seed in 0..60 {
            let x = random_graph(seed, 6).unwrap();
            let after = optimize(&x.graph, &registry, &target, &options)
                .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", frit_ir::text::print(&x.graph)));
            let run = |g| interpret(g, &registry, &x.bindings(), &x.values);
            let (want, got) = (run(&x.graph).unwrap(), run(&after.graph).unwrap());
            for ((_, w), (_, g)) in want.outputs.iter().zip(&got.outputs) {
                all += 1;
                near += usize::from(difference(g, w, 0.05).unwrap().is_none());
            }
        }
        // A softmax over large scores may carry a rounding anywhere.
        assert!(near * 20 >= all * 19, "{near} of {all} results are near: {options:?}");
    }
}

/// Damaged texts are refused or read; what reads and verifies compiles or is refused.
#[test]
fn damaged_texts_never_panic() {
    let registry = frit_ops::registry();
    let target = every_op(&registry);
    let mut n = Numbers::new(1);
    let mut read = 0;
    for seed in 0..1500 {
        let x = random_graph(seed % 50, 6).unwrap();
        let text = frit_ir::text::print(&x.graph);
        let mut bytes = text.into_bytes();
        for _ in 0..n.within(1, 4) {
            let at = n.within(0, bytes.len() as i64) as usize;
            match n.within(0, 3) {
                0 => bytes[at] = b"0123456789-,()[]{}%=\"eTx"[n.within(0, 24) as usize],
                1 => drop(bytes.remove(at)),
                _ => {
                    let end = (at + n.within(1, 40) as usize).min(bytes.len());
                    let piece = bytes[at..end].to_vec();
                    let to = n.within(0, bytes.len() as i64) as usize;
                    bytes.splice(to..to, piece);
                }
            }
        }
        let Ok(text) = String::from_utf8(bytes) else { continue };
        if let Ok(g) = frit_ir::text::parse(&text, &registry) {
            read += 1;
            let _ = optimize(&g, &registry, &target, &CompileOptions::default());
        }
    }
    assert!(read > 20, "only {read} texts were read");
}
