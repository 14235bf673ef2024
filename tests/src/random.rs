//! Random graphs on the CPU, as they are written and optimized, against the reference interpreter.

use std::sync::Arc;

use frit_compile::CompileOptions;
use frit_compile::testing::{difference, random_graph};
use frit_cpu::isa::Isa;
use frit_cpu::pool::Pool;
use frit_ir::Registry;

use crate::cpu;

/// Largest difference allowed, as a part of the largest value of the result.
const BOUND: f64 = 2e-3;

/// Runs the graph of `seed` unoptimized and optimized and compares every output with the reference; gives the number of
/// outputs compared.
///
/// # Errors
/// A line that says what failed, with the seed.
pub fn check(seed: u64, steps: usize, registry: &Registry, pool: &Arc<Pool>) -> Result<usize, String> {
    let at = |e: String| format!("seed {seed}: {e}");
    let g = random_graph(seed, steps).map_err(|e| at(e.to_string()))?;
    let want = frit_ops::interpret::interpret(&g.graph, registry, &g.bindings(), &g.values);
    let want = want.map_err(|e| at(format!("reference: {e}")))?;
    let mut compared = 0;
    for fuse in [false, true] {
        let options = CompileOptions::default().fuse(fuse);
        let isa = Isa::detect();
        let got = cpu::run(&g.graph, registry, pool, isa, &options, &g.bindings(), &g.values).map_err(at)?;
        if got.len() != want.outputs.len() {
            return Err(at(format!("{} outputs, expected {}", got.len(), want.outputs.len())));
        }
        for ((name, got), (_, want)) in got.iter().zip(&want.outputs) {
            if let Some(d) = difference(got, want, BOUND).map_err(|e| at(e.to_string()))? {
                return Err(at(format!("fuse {fuse}: {name}: {d}")));
            }
            compared += 1;
        }
    }
    Ok(compared)
}
