//! Every kernel that the op cases ask of a Metal device, type-checked by clang, and planted faults that it must find.

use std::collections::HashSet;
use std::sync::Arc;

use frit_compile::compile;
use frit_gpu::catalog;
use frit_gpu::device::Device;
use frit_gpu::driver::{HostData, KernelSource};
use frit_gpu::executor::Executable;
use frit_ir::schedule::Step;
use frit_ir::target::RowId;
use frit_ops::case_graph;
use frit_tests::check;
use frit_tests::msl::Checker;
use frit_tests::recorder::Recorder;

/// What all cases of all ops ask for; cases that the target has no kernel for ask for nothing.
#[derive(Default)]
struct Asked {
    /// The texts, each once.
    texts: Vec<KernelSource>,
    /// The rows that they are of. Rows may share texts.
    rows: HashSet<RowId>,
    /// Ops that gave no new text.
    without: Vec<String>,
}

fn asked() -> Asked {
    let (registry, recorder) = (frit_ops::registry(), Recorder::metal());
    let device = Device::new(recorder.clone(), None);
    let target = catalog::target(device.info());
    let mut all = Asked::default();
    for op in registry.iter() {
        let before = device.builds();
        for c in (op.cases)() {
            let built = case_graph::build(&registry, op.name, &c)
                .unwrap_or_else(|e| panic!("{}/{}: {e}", op.name, c.name));
            let Ok(compiled) = compile(&built.graph, &registry, &target, &check::options()) else { continue };
            let steps = compiled.schedule.steps.iter();
            let kernels = steps.filter_map(|s| if let Step::Kernel(k) = s { Some(k) } else { None });
            all.rows.extend(kernels.flat_map(|k| &k.candidates).map(|c| c.row));
            let mut weights = |n: &str| built.values.get(n).map(|t| Arc::new(t.bytes().to_vec()) as HostData);
            Executable::load(compiled.schedule, &mut weights, &device)
                .unwrap_or_else(|e| panic!("{}/{}: {e}", op.name, c.name));
        }
        if device.builds() == before {
            all.without.push(op.name.to_owned());
        }
        all.texts.extend(recorder.take());
    }
    all
}

/// Checks all of `texts` on as many threads as there are cores; the faults.
fn faults(checker: &Checker, texts: &[KernelSource]) -> Vec<String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let check = |part: &[KernelSource]| {
        let fault = |s: &KernelSource| checker.check(&s.text).err().map(|e| format!("{}: {e}", s.entry));
        part.iter().filter_map(fault).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let parts = texts.chunks(texts.len().div_ceil(threads).max(1));
        let running: Vec<_> = parts.map(|p| scope.spawn(move || check(p))).collect();
        running.into_iter().flat_map(|r| r.join().expect("a checking thread")).collect()
    })
}

#[test]
fn every_kernel_of_the_cases_is_metal() {
    let checker = Checker::new().unwrap();
    let Asked { texts, rows, without } = asked();
    let numbered = catalog::rows().enumerate();
    let missing = numbered.filter(|(i, _)| !rows.contains(&RowId(*i as u32))).map(|(_, r)| r.row.name);
    let missing: Vec<&str> = missing.collect();
    let faults = faults(&checker, &texts);
    println!("{} kernel texts of {} rows, {} at fault", texts.len(), rows.len(), faults.len());
    println!("ops without a text of their own: {}", without.join(", "));
    let shown: Vec<&str> = faults.iter().map(String::as_str).take(5).collect();
    assert!(faults.is_empty(), "{} faults, the first of them:\n{}", faults.len(), shown.join("\n"));
    assert!(missing.is_empty(), "no case asks for a kernel of these rows: {}", missing.join(", "));
}

/// What the driver itself runs, beside the rows.
#[test]
fn the_driver_s_own_kernel_is_metal() {
    let header = include_str!("../../crates/gpu/kernels/compat/metal.h");
    let body = include_str!("../../crates/gpu/src/drivers/metal/move_bytes.k");
    let text = format!("#define GROUP_SIZE 32\n{header}\n{body}");
    assert_eq!(Checker::new().unwrap().check(&text), Ok(()));
    assert!(Checker::new().unwrap().check(&text.replace("= (CONSTANT u64 *)", "= (GLOBAL u64 *)")).is_err());
}

/// A small kernel with everything that a fault is planted in.
fn sample() -> String {
    let header = include_str!("../../crates/gpu/kernels/compat/metal.h");
    let body = "
HELPER float frit_first(GLOBAL const float *p) { return p[0]; }
HELPER float frit_shared(SHARED_PTR float *p) { return p[0]; }
HELPER float frit_own(PRIVATE float *p) { return exp_f32(p[0]); }
ENTRY(frit_sample)(BUFFER(0), BUFFER(1), BLOCK(2)) {
    GLOBAL float *out = (GLOBAL float *)(frit_b0 + 16);
    SHARED(float, part, 16 * (64 + 1));
    CONSTANT i32 *n = (CONSTANT i32 *)BLOCK_PTR;
    float own[2] = { 1, 2 };
    part[LOCAL_ID] = frit_first(out) + frit_own(own) * n[0];
    BARRIER();
    out[GROUP_ID] = frit_shared(part) + GROUP_COUNT;
}
";
    format!("#define GROUP_SIZE 256\n{header}{body}")
}

#[test]
fn planted_faults_are_found() {
    let checker = Checker::new().unwrap();
    let sample = sample();
    assert_eq!(checker.check(&sample), Ok(()));
    let faults: &[(&str, &str, &str)] = &[
        ("GLOBAL const float *p", "const float *p", "without an address space"),
        ("GLOBAL const float *p", "SHARED_PTR const float *p", "no matching function"),
        ("PRIVATE float *p", "float *p", "without an address space"),
        ("PRIVATE float *p", "GLOBAL float *p", "no matching function"),
        ("GLOBAL float *out", "PRIVATE float *out", "address space"),
        ("float own[2]", "double own[2]", "`double`"),
        ("BUFFER(1)", "BUFFER(30), BUFFER(1)", ""),
        ("BUFFER(1)", "BUFFER(31), BUFFER(1)", "buffer(31)"),
        ("BUFFER(1)", "BUFFER(0)", "buffer(0)"),
        ("16 * (64 + 1)", "33 * 256", "33792 bytes of threadgroup memory"),
        ("16 * (64 + 1)", "n[0]", "no constant"),
        ("GROUP_SIZE 256", "GROUP_SIZE 2048", "groups of 2048"),
        ("exp_f32(p[0])", "erf(p[0])", "undeclared"),
        ("part[LOCAL_ID] =", "n[0] = 1; part[LOCAL_ID] =", "read-only"),
        ("frit_own", "matrix", "ambiguous"),
        ("thread_index_in_threadgroup", "thread_index", "no attribute"),
        ("mem_flags::mem_threadgroup", "mem_flags::mem_local", "mem_local"),
    ];
    for (from, to, says) in faults {
        assert!(sample.contains(from), "{from}");
        let got = checker.check(&sample.replace(from, to));
        match got {
            Ok(()) => assert!(says.is_empty(), "{from} as {to} passed"),
            Err(e) => assert!(!says.is_empty() && e.contains(says), "{from} as {to}: {e}"),
        }
    }
}
