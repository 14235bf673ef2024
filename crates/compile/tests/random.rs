//! Random graphs compute the same before and after the passes, by the reference interpreter.

use std::collections::BTreeMap;

use frit_compile::testing::{difference, every_op, random_graph};
use frit_compile::{CompileOptions, fuse, optimize};
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
