//! Every op case on the CPU backend, for every instruction set of this machine, against the reference: one test for each op,
//! which lists all of its cases that fail. `cargo test -p frit-tests --test conformance attention` runs one of them.

use std::sync::{Arc, LazyLock};

use frit_cpu::isa::Isa;
use frit_cpu::pool::Pool;
use frit_ir::op::{Case, Registry};
use frit_tests::check::{self, Checked};
use frit_tests::cpu;

/// The least number of cases that there must be, all ops together; it may only grow.
const CASES: usize = 10295;

/// Pools of one, two and three threads, which the tests share.
static POOLS: LazyLock<Vec<Arc<Pool>>> =
    LazyLock::new(|| [1, 2, 3].into_iter().map(|n| Arc::new(Pool::new(n).unwrap())).collect());

fn check(registry: &Registry, op: &str, c: &Case, pools: &[Arc<Pool>], isas: &[Isa]) -> Result<(), String> {
    let checked = Checked::new(registry, op, c)?;
    let (g, options) = (&checked.graph, check::options());
    let mut first: Option<check::Outputs> = None;
    for isa in isas {
        for pool in pools {
            let got = cpu::run(&g.graph, registry, pool, *isa, &options, &[], &g.values)?;
            let place = |e| format!("{isa:?}, {} threads: {e}", pool.threads());
            checked.compare(&got).map_err(place)?;
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

/// Runs every case of `op` and names all that fail.
fn check_op(op: &str) {
    let registry = frit_ops::registry();
    let isas: Vec<_> = Isa::ALL.into_iter().filter(|i| i.is_available()).collect();
    let cases = (registry.get(op).expect("an op of the registry").cases)();
    let fails = |c: &Case| {
        let why = check(&registry, op, c, &POOLS, &isas).err()?;
        Some(format!("{op}/{}: {why}", c.name))
    };
    let failures: Vec<String> = cases.iter().filter_map(fails).collect();
    println!("{op}: {} cases on {isas:?}", cases.len());
    let list = failures.join("\n");
    assert!(failures.is_empty(), "{} of {} cases of {op} fail:\n{list}", failures.len(), cases.len());
}

frit_tests::test_each_op!(check_op);

#[test]
fn every_op_has_a_test_and_no_case_is_lost() {
    let registry = frit_ops::registry();
    let mut ops: Vec<&str> = registry.iter().map(|d| d.name).collect();
    ops.sort_unstable();
    let tested: &[&str] = frit_tests::test_each_op!(@names);
    assert_eq!(ops, tested, "the ops, by name, and those that `test_each_op` lists");
    let cases: usize = registry.iter().map(|d| (d.cases)().len()).sum();
    println!("{cases} cases");
    assert!(cases >= CASES, "there are {cases} cases, fewer than the {CASES} that there must be");
}
