//! Every op case on the CPU backend, for every instruction set of this machine, against the reference.

use std::collections::BTreeMap;
use std::sync::Arc;

use frit_compile::CompileOptions;
use frit_cpu::isa::Isa;
use frit_cpu::pool::Pool;
use frit_ir::op::{Case, Registry};
use frit_tests::{case, cpu};

/// The least number of cases that must have run; it may only grow.
const CASES: usize = 7007;

fn check(registry: &Registry, op: &str, c: &Case, pools: &[Arc<Pool>], isas: &[Isa]) -> Result<(), String> {
    let reference =
        frit_ops::interpret::reference_of_case(registry, op, c).map_err(|e| format!("reference: {e}"))?;
    let g = case::build(registry, op, c).map_err(|e| format!("graph: {e}"))?;
    let mut options = CompileOptions::default();
    options.fuse = false;
    let mut first: Option<cpu::Outputs> = None;
    for isa in isas {
        for pool in pools {
            let got = cpu::run(&g.graph, registry, pool, *isa, &options, &[], &g.values)?;
            for ((name, got), want) in got.iter().zip(&reference) {
                if got.shape() != want.shape() || got.dtype() != want.dtype() {
                    return Err(format!(
                        "{name}: {}{:?}, expected {}{:?}",
                        got.dtype(),
                        got.shape(),
                        want.dtype(),
                        want.shape()
                    ));
                }
                let (g, w) =
                    (got.to_f64().map_err(|e| e.to_string())?, want.to_f64().map_err(|e| e.to_string())?);
                if let Some((i, a, b)) = case::differs(&g, &w, c.tolerance) {
                    return Err(format!(
                        "{isa:?}, {} threads: {name}[{i}] = {a}, expected {b}",
                        pool.threads()
                    ));
                }
            }
            // Within one instruction set the number of threads changes no bit.
            match &first {
                Some(f) if pool.threads() != pools[0].threads() => {
                    if f.iter().zip(&got).any(|(a, b)| a.1.bytes() != b.1.bytes()) {
                        return Err(format!(
                            "{isa:?}: {} threads give other bits than {}",
                            pool.threads(),
                            pools[0].threads()
                        ));
                    }
                }
                _ => first = Some(got),
            }
        }
    }
    Ok(())
}

#[test]
fn every_case_agrees_with_the_reference() {
    let registry = frit_ops::registry();
    let pools: Vec<_> = [1, 2, 3].into_iter().map(|n| Arc::new(Pool::new(n).unwrap())).collect();
    let isas: Vec<_> = Isa::ALL.into_iter().filter(|i| i.is_available()).collect();
    let mut ran = 0;
    let mut failures: BTreeMap<String, String> = BTreeMap::new();
    for op in registry.iter() {
        for c in (op.cases)() {
            ran += 1;
            let outcome = check(&registry, op.name, &c, &pools, &isas);
            if let Err(why) = outcome {
                failures.insert(format!("{}/{}", op.name, c.name), why);
            }
        }
    }
    println!("{ran} cases on {isas:?}");
    let list: Vec<_> = failures.iter().map(|(n, w)| format!("{n}: {w}")).collect();
    assert!(failures.is_empty(), "{} of {ran} cases failed:\n{}", failures.len(), list.join("\n"));
    assert!(ran >= CASES, "{ran} cases ran, fewer than the {CASES} there must be");
}
