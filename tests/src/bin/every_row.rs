//! Runs small op cases that together reach every row of the GPU catalog, with operands of all types, on the first OpenCL
//! device, each operand of a launch in a buffer just as long as it is: what to run under a checker of accesses. Prints the rows;
//! fails if a row is reached by none or a result is wrong.
//! Usage: `every_row` or `every_row race`, `every_row bounds` for one case with that fault planted in its kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use frit_gpu::catalog;
use frit_gpu::device::Device;
use frit_gpu::driver::{DeviceInfo, Driver};
use frit_gpu::drivers::opencl::OpenCl;
use frit_ir::op::{Case, Registry};
use frit_ir::schedule::{Candidate, KernelStep, Schedule, Step};
use frit_ir::target::Target;
use frit_ops::case_graph;
use frit_tests::check::{self, Checked};
use frit_tests::gpu;
use frit_tests::guarded::Guarded;

type Result<T> = std::result::Result<T, String>;

/// A case that reaches a row, and the elements of the operands of its step there.
struct Reaching {
    op: &'static str,
    case: Case,
    elements: i64,
    /// What the kernel's text depends on, expressions aside.
    form: String,
}

/// Elements of a case in which several items have work: of each form of a row, the smallest such case runs.
const SOME: i64 = 64;

/// Elements of a case in which loops run more than once: of each row, the smallest such case runs, too.
const MORE: i64 = 2048;

/// A fault for a kernel: the op whose case runs, and a text of the kernel in place of another.
const FAULTS: &[(&str, &str, &str, &str)] = &[
    ("race", "sort", "part[id] = v;\n    BARRIER();", "part[id] = v;"),
    ("bounds", "flip", "STORE(out, i, ", "STORE(out, i + 1, "),
];

fn steps(s: &Schedule) -> impl Iterator<Item = &KernelStep> {
    s.steps.iter().filter_map(|s| if let Step::Kernel(k) = s { Some(k) } else { None })
}

/// Elements of the operands of a step; none if one of them is empty.
fn elements(k: &KernelStep) -> Option<i64> {
    let one = |dims: &[frit_ir::Dim]| dims.iter().try_fold(1, |n, d| Some(n * d.as_const()?));
    let mut all = k.operands.iter().flatten().map(|o| one(&o.dims).filter(|n| *n > 0));
    all.try_fold(0, |sum, n| Some(sum + n?))
}

/// The types of a step's operands, and the parameters that are part of its text.
fn form(k: &KernelStep, c: &Candidate, info: &DeviceInfo) -> String {
    let types = k.operands.iter().map(|o| o.as_ref().map(|o| o.dtype));
    let Some(row) = catalog::rows_of(info).nth(c.row.0 as usize) else { return String::new() };
    let named = row.row.params.iter().zip(&c.params).filter(|(p, _)| row.constants.contains(&p.name));
    format!("{:?} {:?}", types.collect::<Vec<_>>(), named.map(|(_, v)| v).collect::<Vec<_>>())
}

/// For each row of `target`, the cases that reach it.
fn reaching(registry: &Registry, target: &Target, info: &DeviceInfo) -> Vec<Vec<Reaching>> {
    let mut out: Vec<Vec<Reaching>> = target.rows.iter().map(|_| Vec::new()).collect();
    for op in registry.iter() {
        for case in (op.cases)() {
            let Ok(g) = case_graph::build(registry, op.name, &case) else { continue };
            let compiled = frit_compile::compile(&g.graph, registry, target, &check::options());
            let Ok(compiled) = compiled else { continue };
            for k in steps(&compiled.schedule) {
                let runs = |g: &frit_ir::schedule::SizeGuard| g.dim.as_const().is_some_and(|v| g.holds(v));
                let picked = k.candidates.iter().find(|c| c.guards.iter().all(runs));
                if let (Some(c), Some(elements)) = (picked, elements(k)) {
                    out[c.row.0 as usize].push(Reaching {
                        op: op.name,
                        case: case.clone(),
                        elements,
                        form: form(k, c, info),
                    });
                }
            }
        }
    }
    out
}

/// Runs the case on `driver`, each operand alone.
fn run(registry: &Registry, op: &str, case: &Case, device: &Arc<Device>) -> Result<()> {
    let checked = Checked::new(registry, op, case)?;
    let g = &checked.graph;
    checked.compare(&gpu::run(&g.graph, registry, device, &check::options(), &[], &g.values)?)
}

/// The cases to run of a row, each once; of a form without one that is large enough, the largest.
fn chosen(mut all: Vec<Reaching>) -> Vec<Reaching> {
    all.sort_by_key(|r| r.elements);
    let mut at = BTreeMap::<&str, usize>::new();
    for (i, r) in all.iter().enumerate() {
        let best = at.entry(&r.form).or_insert(i);
        if all[*best].elements < SOME {
            *best = i;
        }
    }
    let more = all.iter().position(|r| r.elements >= MORE);
    let at: BTreeSet<usize> = at.into_values().chain(more).collect();
    all.into_iter().enumerate().filter_map(|(i, r)| at.contains(&i).then_some(r)).collect()
}

fn main() -> Result<()> {
    let driver: Arc<dyn Driver> = OpenCl::open(0).map_err(|e| e.to_string())?;
    let registry = frit_ops::registry();
    let info = driver.info().clone();
    let target = catalog::target(&info);
    println!("on {}", info.name);
    if let Some(name) = std::env::args().nth(1) {
        let fault = FAULTS.iter().find(|f| f.0 == name);
        let (_, op, from, to) = fault.ok_or_else(|| format!("there is no fault `{name}`"))?;
        let at = target.rows.iter().position(|r| r.name == *op).ok_or("no row")?;
        let one = reaching(&registry, &target, &info).swap_remove(at);
        let one = chosen(one).into_iter().next().ok_or("no case")?;
        let device = Device::new(Arc::new(Guarded::tight(driver).with_fault(from, to)), None);
        // Whatever it gives: the checker is to say what is wrong.
        let result = run(&registry, one.op, &one.case, &device);
        println!("{op}/{} with the fault `{name}`: {result:?}", one.case.name);
        return Ok(());
    }
    let device = Device::new(Arc::new(Guarded::tight(driver)), None);
    let mut faults = Vec::new();
    for (row, all) in target.rows.iter().zip(reaching(&registry, &target, &info)) {
        if all.is_empty() {
            faults.push(format!("row {} is reached by no case", row.name));
        }
        let (start, cases) = (Instant::now(), chosen(all));
        for r in &cases {
            let fault = |e| format!("row {}, {}/{}: {e}", row.name, r.op, r.case.name);
            faults.extend(run(&registry, r.op, &r.case, &device).err().map(fault));
        }
        println!("{}: {} cases, {:.1} s", row.name, cases.len(), start.elapsed().as_secs_f64());
    }
    println!("{} rows, {} at fault", target.rows.len(), faults.len());
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}
