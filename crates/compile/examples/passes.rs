//! Prints the time of every pass over a decoder of 30 layers, the best of ten runs.

use std::time::{Duration, Instant};

use frit_compile::testing::{Llama, every_op, llama};
use frit_compile::{CompileOptions, optimize};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let registry = frit_ops::registry();
    let target = every_op(&registry);
    let start = Instant::now();
    let g = llama(Llama::SMALL)?;
    println!("build: {:?}, {} nodes", start.elapsed(), g.nodes().len());
    let mut best: Vec<(&str, Duration, usize)> = Vec::new();
    for _ in 0..10 {
        let start = Instant::now();
        let o = optimize(&g, &registry, &target, &CompileOptions::default())?;
        let total = start.elapsed();
        let passes = o.passes.iter().map(|p| (p.name, p.time, p.nodes));
        let nodes = o.graph.nodes().len();
        let all: Vec<_> = passes.chain([("all, with verification", total, nodes)]).collect();
        if best.is_empty() {
            best = all;
        } else {
            best.iter_mut().zip(all).for_each(|(b, a)| b.1 = b.1.min(a.1));
        }
    }
    for (name, time, nodes) in best {
        println!("{name}: {time:?}, {nodes} nodes");
    }
    Ok(())
}
