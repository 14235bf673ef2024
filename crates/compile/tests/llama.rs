//! What fusion makes of a decoder: a fixed number of steps a layer, and the same results.

use std::collections::BTreeMap;

use frit_compile::testing::{Llama, difference, every_op, llama, random_values};
use frit_compile::{Activations, CompileOptions, optimize};
use frit_ops::interpret::interpret;

#[test]
fn a_layer_becomes_seven_steps() {
    let registry = frit_ops::registry();
    let target = every_op(&registry);
    let g = llama(Llama::SMALL).unwrap();
    let options = CompileOptions::default().activations(Activations::Q8);
    let after = optimize(&g, &registry, &target, &options).unwrap().graph;
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for n in after.nodes().iter().filter(|n| registry.get(&n.op).is_some_and(|d| d.view.is_none())) {
        *count.entry(&n.op).or_default() += 1;
    }
    let layers = Llama::SMALL.layers;
    // Queries, keys and values are one linear, their way into the cache one step; output, gate with up, and down are three
    // linears; then the head.
    let want = BTreeMap::from([
        ("attention", layers),
        ("gather", 1),
        ("linear", 4 * layers + 1),
        ("residual_norm", 2 * layers),
        ("rms_norm", 1),
        ("rotary_write_kv", layers),
    ]);
    assert_eq!(count, want);
}

#[test]
fn a_small_decoder_computes_the_same() {
    let registry = frit_ops::registry();
    let g = llama(Llama::TINY).unwrap();
    let after = optimize(&g, &registry, &every_op(&registry), &CompileOptions::default()).unwrap().graph;
    let sizes = [("T", 3)];
    let mut values = random_values(&g, &sizes, 3);
    values.insert("kv_len".into(), frit_ir::Tensor::from_i32(&[1], &[3]).unwrap());
    values.insert("positions".into(), frit_ir::Tensor::from_i32(&[1, 3], &[0, 1, 2]).unwrap());
    let want = interpret(&g, &registry, &sizes, &values).unwrap();
    let got = interpret(&after, &registry, &sizes, &values).unwrap();
    let all =
        |r: &frit_ops::interpret::Results| -> Vec<_> { r.outputs.iter().chain(&r.states).cloned().collect() };
    for ((name, w), (_, g)) in all(&want).iter().zip(all(&got)) {
        assert_eq!(difference(&g, w, 1e-4).unwrap(), None, "{name}");
    }
}

#[test]
fn a_deep_decoder_compiles_with_names_that_stay_short() {
    let registry = frit_ops::registry();
    let g = llama(Llama { layers: 80, ..Llama::TINY }).unwrap();
    let after = optimize(&g, &registry, &every_op(&registry), &CompileOptions::default()).unwrap().graph;
    for (graph, values) in [(&g, g.values().len()), (&after, after.values().len())] {
        // A number behind a name counts values, so it is never longer than their count.
        let digits = values.to_string().len();
        let number = |n: &str| n.rsplit_once('.').map_or(0, |(_, n)| n.parse::<u64>().map_or(0, |_| n.len()));
        let longest = graph.values().iter().map(|v| number(&v.name)).max();
        assert!(longest <= Some(digits), "{longest:?} digits among {values} values");
    }
}
