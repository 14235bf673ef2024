//! Runs small op cases that together reach every row that OpenCL devices have, with operands of all types, on the first OpenCL
//! device, which is a checker of accesses that writes what it finds to a file; each operand of a launch is in a buffer just as
//! long as it is. Then plants faults, which the checker must find. Prints the rows as a page, and to the standard error how it
//! gets on. Fails if a row is reached by no case, takes too long, gives a wrong result or makes the checker write.
//! Usage: `every_row LOG [NAME…]`: LOG is the checker's file, the names are rows or faults; all unless given.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use frit_gpu::catalog;
use frit_gpu::device::Device;
use frit_gpu::driver::{DeviceInfo, Driver};
use frit_gpu::drivers::opencl::OpenCl;
use frit_ir::op::{Case, ParamValue, Registry};
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
    /// What the way through the kernel depends on: types, parameters, how long loops run.
    traits: Vec<String>,
}

/// Elements of a case in which several items have work: of each trait of a row, the smallest such case runs.
const SOME: i64 = 64;

/// Extents from which on loops run more often: over the tiles of a product, the items of a group, the tiles of a sum.
const LONG: [i64; 3] = [65, 257, 2049];

/// Elements of the largest case that may run for that alone.
const LARGEST: i64 = 25_000;

/// Parameters from 0 up to here are choices, not extents.
const CHOICES: i64 = 8;

/// The longest that the cases of a row, or of a planted fault, may take.
const MOST: Duration = Duration::from_secs(1800);

/// Cases that take longer are named.
const SLOW: Duration = Duration::from_secs(20);

/// A fault for a kernel: the row whose smallest case runs, a text of the kernel and what stands in its place.
struct Fault {
    name: &'static str,
    /// What is wrong, in words.
    what: &'static str,
    row: &'static str,
    from: &'static str,
    to: &'static str,
    /// What the checker says of it.
    says: &'static str,
}

const FAULTS: &[Fault] = &[
    Fault {
        name: "race",
        what: "a barrier left out of `sort`",
        row: "sort",
        from: "part[id] = v;\n    BARRIER();",
        to: "part[id] = v;",
        says: "Read-write data race at local memory",
    },
    Fault {
        name: "bounds",
        what: "`flip` writes one element further",
        row: "flip",
        from: "STORE(out, i, ",
        to: "STORE(out, i + 1, ",
        says: "Invalid write",
    },
];

const HEAD: &str = "\
# Kernels under Oclgrind

`.ci/run oclgrind` writes this page and fails if the one checked in differs. It runs op cases that together reach every kernel
row of OpenCL devices: for each type of each operand, each choice among a row's parameters and three lengths of the longest
extent the smallest case in which several items have work. Oclgrind looks for accesses outside of buffers and shared arrays,
barriers that not all items reach, and data races, writes of equal values among them (`--data-races --uniform-writes`). Every
launch runs by itself, each operand in a buffer just as long as it is and one group doing the work of all, then with its run
as it came. A row is clean if Oclgrind found nothing and all results agree with the reference.

";

fn steps(s: &Schedule) -> impl Iterator<Item = &KernelStep> {
    s.steps.iter().filter_map(|s| if let Step::Kernel(k) = s { Some(k) } else { None })
}

/// Elements of the operands of a step; none if one of them is empty.
fn elements(k: &KernelStep) -> Option<i64> {
    let one = |dims: &[frit_ir::Dim]| dims.iter().try_fold(1, |n, d| Some(n * d.as_const()?));
    let mut all = k.operands.iter().flatten().map(|o| one(&o.dims).filter(|n| *n > 0));
    all.try_fold(0, |sum, n| Some(sum + n?))
}

/// The types of a step's operands, which lengths its longest extent reaches, the parameters that are choices and those that
/// are part of the text.
fn traits(k: &KernelStep, c: &Candidate, elements: i64, info: &DeviceInfo) -> Vec<String> {
    let types = k.operands.iter().map(|o| o.as_ref().map(|o| o.dtype));
    let types = types.enumerate().map(|(i, t)| format!("operand {i}: {t:?}"));
    let extents = k.operands.iter().flatten().flat_map(|o| &o.dims).filter_map(|d| d.as_const());
    let longest = if elements > LARGEST { 0 } else { extents.max().unwrap_or(0) };
    let lengths = LONG.iter().filter(|l| **l <= longest).map(|l| format!("as long as {l}"));
    let row = catalog::rows_of(info).nth(c.row.0 as usize);
    let counts = |name: &str, v: &ParamValue| match v {
        ParamValue::Dim(d) if d.as_const().is_some_and(|v| (0..CHOICES).contains(&v)) => true,
        _ => row.is_some_and(|r| r.constants.contains(&name)),
    };
    let named = row.iter().flat_map(|r| r.row.params).map(|p| p.name).zip(&c.params);
    let named = named.filter(|(name, v)| counts(name, v)).map(|(name, v)| format!("{name}: {v:?}"));
    types.chain(named).chain(lengths).collect()
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
                        traits: traits(k, c, elements, info),
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

/// The cases to run of a row, each once; for a trait without one that is large enough, the largest.
fn chosen(mut all: Vec<Reaching>) -> Vec<Reaching> {
    all.sort_by_key(|r| if r.elements < SOME { (1, -r.elements) } else { (0, r.elements) });
    let mut seen = BTreeSet::new();
    // Every trait is noted, so that the next case with it is none that is needed.
    all.retain(|r| r.traits.iter().filter(|t| seen.insert((*t).clone())).count() > 0);
    all
}

/// The file to which the checker writes.
struct Checker {
    log: PathBuf,
    read: usize,
}

impl Checker {
    /// What it has written since the last call.
    fn news(&mut self) -> Result<String> {
        let missing = |e| format!("{}, which the checker writes: {e}", self.log.display());
        let all = std::fs::read(&self.log).map_err(missing)?;
        let new = String::from_utf8_lossy(&all[self.read.min(all.len())..]).trim().to_owned();
        self.read = all.len();
        if new.contains("suppressing further errors") {
            return Err(format!("the checker stopped telling what it finds, after:\n{new}"));
        }
        Ok(new)
    }
}

/// Ends the program if what was named last takes too long.
fn watch() -> mpsc::Sender<&'static str> {
    let (begins, names) = mpsc::channel();
    std::thread::spawn(move || {
        let mut now = "";
        loop {
            match names.recv_timeout(MOST) {
                Ok(name) => now = name,
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    eprintln!("{now} takes more than {} s", MOST.as_secs());
                    std::process::exit(1);
                }
            }
        }
    });
    begins
}

/// What all runs share, and what they have shown.
struct Bench {
    registry: Registry,
    driver: Arc<dyn Driver>,
    checker: Checker,
    begins: mpsc::Sender<&'static str>,
    page: String,
    faults: Vec<String>,
}

impl Bench {
    /// Opens the device.
    fn new(log: PathBuf) -> Result<Bench> {
        let driver: Arc<dyn Driver> = OpenCl::open(0).map_err(|e| e.to_string())?;
        let mut checker = Checker { log, read: 0 };
        checker.news()?;
        let (page, faults) = (HEAD.to_owned(), Vec::new());
        Ok(Bench { registry: frit_ops::registry(), driver, checker, begins: watch(), page, faults })
    }

    /// What is found in the cases of a row: wrong results, and what the checker says.
    fn found(&mut self, row: &str, cases: &[Reaching]) -> Result<Vec<String>> {
        let device = Device::new(Arc::new(Guarded::tight(self.driver.clone())), None);
        let mut found = Vec::new();
        for r in cases {
            let fault = |why| format!("row {row}, {}/{}: {why}", r.op, r.case.name);
            let start = Instant::now();
            found.extend(run(&self.registry, r.op, &r.case, &device).err().map(fault));
            if start.elapsed() > SLOW {
                eprintln!("{row}: {}/{}, {:.1} s", r.op, r.case.name, start.elapsed().as_secs_f64());
            }
            let news = self.checker.news()?;
            found.extend((!news.is_empty()).then(|| fault(news)));
        }
        Ok(found)
    }

    /// Runs the cases of a row and adds it to the page. Whether it is clean.
    fn row(&mut self, row: &'static str, cases: &[Reaching]) -> Result<bool> {
        let (_, start) = (self.begins.send(row), Instant::now());
        let mut found = self.found(row, cases)?;
        if cases.is_empty() {
            found.push(format!("row {row} is reached by no case"));
        }
        let (n, clean) = (cases.len(), found.is_empty());
        let smallest = cases.first().map(|r| format!("`{}/{}`", r.op, r.case.name)).unwrap_or_default();
        let result = if clean { "clean" } else { "**at fault**" };
        let _ = writeln!(self.page, "| `{row}` | {n} | {smallest} | {result} |");
        eprintln!("{row}: {n} cases, {result}, {:.1} s", start.elapsed().as_secs_f64());
        self.faults.extend(found);
        Ok(clean)
    }

    /// Runs a case with `fault` and adds to the page that the checker finds it.
    fn plant(&mut self, fault: &Fault, r: &Reaching) -> Result<()> {
        let _ = self.begins.send(fault.name);
        let faulty = Guarded::tight(self.driver.clone()).with_fault(fault.from, fault.to);
        // Whatever it gives: the checker is to say what is wrong.
        let _ = run(&self.registry, r.op, &r.case, &Device::new(Arc::new(faulty), None));
        let found = self.checker.news()?.contains(fault.says);
        let result = if found { "found" } else { "**missed**" };
        let _ = writeln!(self.page, "| {} | `{}/{}` | {result} |", fault.what, r.op, r.case.name);
        eprintln!("{}: {result}", fault.name);
        self.faults.extend((!found).then(|| format!("the fault `{}` was not found", fault.name)));
        Ok(())
    }
}

/// The cases to run of each row of the device.
fn rows(registry: &Registry, info: &DeviceInfo) -> Vec<(&'static str, Vec<Reaching>)> {
    let target = catalog::target(info);
    let reaching = reaching(registry, &target, info);
    target.rows.iter().map(|r| r.name).zip(reaching.into_iter().map(chosen)).collect()
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut bench = Bench::new(args.next().ok_or("usage: every_row LOG [NAME…]")?.into())?;
    let names: Vec<String> = args.collect();
    let wanted = |name: &str| names.is_empty() || names.iter().any(|n| n == name);
    let info = bench.driver.info().clone();
    let rows = rows(&bench.registry, &info);
    let known = |name: &str| rows.iter().any(|r| r.0 == name) || FAULTS.iter().any(|f| f.name == name);
    if let Some(unknown) = names.iter().find(|n| !known(n)) {
        return Err(format!("there is no row or fault `{unknown}`"));
    }
    let _ = writeln!(bench.page, "On {}, {}.\n", info.name, info.driver);
    bench.page += "| row | cases | the smallest | result |\n|---|---|---|---|\n";
    let (mut run, mut clean, mut count) = (0, 0, 0);
    for (name, cases) in rows.iter().filter(|(name, _)| wanted(name)) {
        clean += usize::from(bench.row(name, cases)?);
        (run, count) = (run + 1, count + cases.len());
    }
    let _ = writeln!(bench.page, "\n{run} of {} rows run, {clean} clean, {count} cases.", rows.len());
    let lacking = catalog::rows().map(|r| r.row.name).filter(|n| rows.iter().all(|r| r.0 != *n));
    let lacking: Vec<String> = lacking.map(|n| format!("`{n}`")).collect();
    let _ = writeln!(bench.page, "Rows for other devices, which OpenCL lacks: {}.\n", lacking.join(", "));
    bench.page += "| planted fault | case | result |\n|---|---|---|\n";
    for fault in FAULTS.iter().filter(|f| wanted(f.name)) {
        let case = rows.iter().find(|r| r.0 == fault.row).and_then(|r| r.1.first());
        bench.plant(fault, case.ok_or_else(|| format!("no case reaches {}", fault.row))?)?;
    }
    print!("{}", bench.page);
    if bench.faults.is_empty() { Ok(()) } else { Err(bench.faults.join("\n")) }
}
