//! The self-check of a GPU: op cases against the reference, before the device's results are trusted. Drivers have bugs, and
//! a wrong result is worse than a device that is not used.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frit_gpu::device::Device as Gpu;
use frit_ir::DType;
use frit_ir::op::{Case, Registry};
use frit_ir::target::Target;
use frit_ir::tensor::Tensor;

use crate::backend::Backend;
use crate::cases;
use crate::fnv::Fnv;

/// Elements of the inputs of a case at most.
const MOST: usize = 4096;

/// The ops that are checked, and with how many types of their first operand.
const OPS: &[(&str, usize)] = &[
    ("expr", 2),
    ("copy", 1),
    ("concat", 1),
    ("pad", 1),
    ("flip", 1),
    ("gather", 2),
    ("reduce", 2),
    ("softmax", 1),
    ("dequantize", 2),
    ("quantize", 1),
    ("matmul", 2),
    ("linear", 3),
    ("rms_norm", 2),
    ("layer_norm", 1),
    ("residual_norm", 1),
    ("rotary", 2),
    ("attention", 2),
    ("write_kv", 1),
];

/// Whether `gpu` computes what it should. The answer is kept in the folder `cache` for this device, driver and version of
/// Frit, and in this process; `anew` asks again.
///
/// # Errors
/// The cases that fail, in one line.
pub(crate) fn check(gpu: &Arc<Gpu>, cache: Option<&Path>, anew: bool) -> std::result::Result<(), String> {
    let info = gpu.info();
    let name = file_name(info.api, &info.vendor, &info.name, &info.driver);
    // Held while the cases run, so that a second user of the device waits for the answer.
    let mut known = answers();
    let failures = match stored(&known, &name, cache).filter(|_| !anew) {
        Some(failures) => failures,
        None => {
            let failures = run(gpu).join("; ").replace(['\n', '\r'], " ");
            if let Some(folder) = cache {
                // Without the file the next process asks again.
                let _ = std::fs::create_dir_all(folder)
                    .and_then(|()| std::fs::write(folder.join(&name), seal(&failures)));
            }
            failures
        }
    };
    known.retain(|k| k.0 != name);
    known.push((name, failures.clone()));
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}

/// What [`check`] found last for a device of these names, if that is known.
pub(crate) fn last(
    api: &str,
    vendor: &str,
    name: &str,
    driver: &str,
    cache: Option<&Path>,
) -> Option<std::result::Result<(), String>> {
    let failures = stored(&answers(), &file_name(api, vendor, name, driver), cache)?;
    Some(if failures.is_empty() { Ok(()) } else { Err(failures) })
}

/// Names and what failed.
type Answers = Vec<(String, String)>;

/// The answers of this process.
fn answers() -> MutexGuard<'static, Answers> {
    static KNOWN: Mutex<Answers> = Mutex::new(Vec::new());
    // The list is whole after every call; a panic elsewhere does not make it wrong.
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stored(known: &Answers, name: &str, cache: Option<&Path>) -> Option<String> {
    match known.iter().find(|k| k.0 == name) {
        Some((_, failures)) => Some(failures.clone()),
        None => unseal(&std::fs::read_to_string(cache?.join(name)).ok()?),
    }
}

/// A name that another device, driver or version does not have.
fn file_name(api: &str, vendor: &str, name: &str, driver: &str) -> String {
    let mut hash = Fnv::new();
    for part in [env!("CARGO_PKG_VERSION"), api, vendor, name, driver] {
        hash.add(part.as_bytes());
        hash.add(&[0xff]);
    }
    format!("check-{:016x}.txt", hash.value())
}

/// First line of a stored answer; the second is empty or says what failed, the third shows that nothing is cut off.
const MAGIC: &str = "frit check 1";
const END: &str = "end";

fn seal(failures: &str) -> String {
    format!("{MAGIC}\n{failures}\n{END}\n")
}

fn unseal(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    match lines[..] {
        [MAGIC, failures, END] => Some(failures.into()),
        _ => None,
    }
}

/// Runs the cases on as many threads as there are processors, since most of the time goes into compiling kernels, and says
/// what failed.
fn run(gpu: &Arc<Gpu>) -> Vec<String> {
    let (registry, backend) = (frit_ops::registry(), Backend::Gpu(gpu.clone()));
    let target = backend.target();
    let all = cases(&registry, &target);
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((op, case)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(why) = cases::run(&registry, &backend, &target, op, case) {
                let line = format!("{op}/{}: {why}", case.name);
                failures.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(all.len());
    std::thread::scope(|s| (0..threads).for_each(|_| drop(s.spawn(work))));
    let mut failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    failures.sort();
    failures
}

/// For each op and each of so many types of its first operand, its largest case that is not too large: it reaches most of a
/// kernel.
fn cases(registry: &Registry, target: &Target) -> Vec<(&'static str, Case)> {
    let mut out = Vec::new();
    for (op, types) in OPS {
        let Some(def) = registry.get(op) else { continue };
        let mut all: Vec<(usize, Case)> =
            (def.cases)().into_iter().filter_map(|c| Some((size(&c, target)?, c))).collect();
        all.sort_by_key(|(n, _)| std::cmp::Reverse(*n));
        let mut seen: Vec<Option<DType>> = Vec::new();
        for (_, c) in all {
            let first = c.inputs.iter().flatten().next().map(|i| i.tensor.dtype());
            if seen.len() < *types && !seen.contains(&first) {
                seen.push(first);
                out.push((*op, c));
            }
        }
    }
    out
}

/// Elements of the inputs of a case; `None` for one that is too large or that the device cannot run.
fn size(c: &Case, target: &Target) -> Option<usize> {
    let tensors = || c.inputs.iter().flatten().map(|i| &i.tensor);
    let n = tensors().map(Tensor::len).sum();
    let lacks = tensors().any(|t| target.lacks.contains(&t.dtype()));
    (n <= MOST && !lacks).then_some(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_thirty_cases_that_the_cpu_passes() {
        let registry = frit_ops::registry();
        let pool = Arc::new(frit_cpu::pool::Pool::new(1).unwrap());
        let backend = Backend::Cpu(pool, Vec::new());
        let target = backend.target();
        let all = cases(&registry, &target);
        assert!((25..=35).contains(&all.len()), "{}", all.len());
        let ops: Vec<&str> = OPS.iter().map(|o| o.0).collect();
        assert!(ops.iter().all(|o| all.iter().any(|c| c.0 == *o)));
        for (op, case) in &all {
            cases::run(&registry, &backend, &target, op, case)
                .unwrap_or_else(|e| panic!("{op}/{}: {e}", case.name));
        }
    }

    #[test]
    fn an_answer_that_is_not_whole_is_none() {
        for failures in ["", "add/x: y[0] = 1, expected 2"] {
            let text = seal(failures);
            assert_eq!(unseal(&text).as_deref(), Some(failures));
            (0..text.len() - 1).for_each(|n| assert_eq!(unseal(&text[..n]), None, "{n}"));
        }
    }
}
