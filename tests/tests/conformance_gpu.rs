//! Every op case on the GPU devices of this machine against the reference, op by op: by OpenCL, CUDA and Metal, as the
//! features `opencl`, `cuda` and `metal` say. What a device cannot run stands in `tests/data/unsupported`, a list for each way of
//! reaching devices that may only shrink: a listed case that runs is a failure too. Every launch runs with guards around its
//! operands first. Nothing is read at run time, so that
//! this program can be carried to another machine.

use std::sync::{Arc, LazyLock};

use frit_gpu::device::Device;
use frit_ir::op::{Case, Registry};
use frit_ir::{DType, Dim};
use frit_ops::case_graph;
use frit_tests::check::{self, Checked};
use frit_tests::gpu;
use frit_tests::guarded::Guarded;

/// Most distinct kernels that the cases of all ops may take on one device.
const MOST_BUILDS: usize = 400;

/// What the usual run leaves out to keep the number of kernels down (`--features every-case` runs all): cases of an op whose
/// name has the second part and none of the third.
const LEFT_OUT: &[(&str, &str, &[&str])] = &[
    ("linear", "-q8", &["Q8_0-q8-f32", "rounded", "ones"]),
    ("linear", "-q16", &["Q6_K-q16-f32", "gated-same"]),
    ("linear", "-f32-f16-", &["Q4_K-"]),
    ("linear", "-f32-bf16-", &["Q6_K-"]),
    ("linear", "arity-", &["in-group-0"]),
    ("linear", "three-groups-", &["-k-"]),
    // Hopper's own kernels are what both types are for.
    ("linear", "halves-f16-", &[]),
    ("linear", "halves-bf16-two-results", &[]),
    ("linear", "halves-bf16-bias", &[]),
    ("rotary_write_kv", "-to-", &["bf16-to-bf16", "f32-to-f16"]),
    ("rms_norm", "-weight-bias-f16", &[]),
    ("rms_norm", "-weight-bias-bf16", &[]),
    ("layer_norm", "-weight-bias-f16", &[]),
    ("layer_norm", "-weight-bias-bf16", &[]),
    ("dequantize", " to f16", &["Q4_K"]),
    ("dequantize", " to bf16", &["Q6_K"]),
    ("gather", " to f16", &["Q4_K"]),
    ("gather", " to bf16", &["Q6_K"]),
];

fn left_out(op: &str, case: &str) -> bool {
    let matches = |(o, part, but): &(&str, &str, &[&str])| {
        *o == op && case.contains(part) && !but.iter().any(|b| case.contains(b))
    };
    !cfg!(feature = "every-case") && LEFT_OUT.iter().any(matches)
}

/// Most cases of `expr` in one kernel.
const TOGETHER: usize = 24;

/// The unsupported cases: `op/*` for all of an op, or `op/case`.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("opencl", include_str!("../data/unsupported/opencl.txt")),
    ("cuda", include_str!("../data/unsupported/cuda.txt")),
    ("metal", include_str!("../data/unsupported/metal.txt")),
];

static DEVICES: LazyLock<Vec<Arc<Device>>> = LazyLock::new(|| {
    let guarded = |d: Arc<Device>| Device::new(Arc::new(Guarded::new(d.driver().clone())), None);
    gpu::devices().into_iter().map(guarded).collect()
});

fn unsupported(api: &str, op: &str, case: &str) -> bool {
    let lists = UNSUPPORTED.iter().filter(|(a, _)| *a == api);
    let mut lines = lists.flat_map(|(_, text)| text.lines());
    lines.any(|l| l.split_once('/').is_some_and(|(o, c)| o == op && (c == "*" || c == case)))
}

fn run(registry: &Registry, checked: &Checked, device: &Arc<Device>) -> Result<(), String> {
    let g = &checked.graph;
    let got = gpu::run(&g.graph, registry, device, &check::options(), &[], &g.values)?;
    checked.compare(&got)
}

/// The cases of `op` as they are run: those of `expr` whose results have one shape together, so that a few kernels serve
/// them all.
fn groups<'a>(registry: &Registry, op: &str, cases: &'a [Case]) -> Vec<Vec<&'a Case>> {
    if op != "expr" {
        return cases.iter().map(|c| vec![c]).collect();
    }
    let mut out: Vec<(Vec<Dim>, Vec<&Case>)> = Vec::new();
    for c in cases {
        let Ok(g) = case_graph::build(registry, op, c) else {
            out.push((vec![], vec![c]));
            continue;
        };
        let shape = g.graph.outputs().first().map_or(vec![], |(_, v)| g.graph.ty(*v).shape.to_vec());
        match out.iter_mut().find(|(s, group)| *s == shape && group.len() < TOGETHER) {
            Some((_, group)) => group.push(c),
            None => out.push((shape, vec![c])),
        }
    }
    out.into_iter().map(|g| g.1).collect()
}

fn check(registry: &Registry, op: &str, cases: &[&Case], device: &Arc<Device>) -> Vec<String> {
    let api = device.info().api;
    let on = format!("on {} by {api}", device.info().name);
    let checked = match cases {
        [c] => Checked::new(registry, op, c),
        all => Checked::joined(registry, all),
    };
    let name = cases.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join("; ");
    let listed = cases.iter().any(|c| unsupported(api, op, &c.name));
    let f64s = |c: &Checked| c.graph.graph.values().iter().any(|v| v.ty.dtype == DType::F64);
    let without = listed || !device.info().features.f64 && checked.as_ref().is_ok_and(f64s);
    match checked.and_then(|c| run(registry, &c, device)) {
        Ok(()) if listed => vec![format!("{op}/{name} {on}: listed as unsupported, but runs")],
        Ok(()) => vec![],
        // One by one, so that the message names the one at fault.
        Err(_) if cases.len() > 1 => cases.iter().flat_map(|c| check(registry, op, &[c], device)).collect(),
        Err(why) if without && why.starts_with("unsupported") => vec![],
        Err(why) => vec![format!("{op}/{name} {on}: {why}")],
    }
}

/// Runs every case of `op` on every device and names all that fail.
fn check_op(op: &str) {
    let registry = frit_ops::registry();
    let mut cases = (registry.get(op).expect("an op of the registry").cases)();
    let all = cases.len();
    cases.retain(|c| !left_out(op, &c.name));
    let groups = groups(&registry, op, &cases);
    let mut failures = Vec::new();
    for device in DEVICES.iter() {
        let before = failures.len();
        failures.extend(groups.iter().flat_map(|g| check(&registry, op, g, device)));
        let (builds, failed) = (device.builds(), failures.len() - before);
        let on = format!("{} by {}", device.info().name, device.info().api);
        println!("{op}: {} of {all} cases on {on}, {failed} fail, {builds} kernels so far", cases.len());
        if builds > MOST_BUILDS && !cfg!(feature = "every-case") {
            failures.push(format!("{builds} distinct kernels on {on}, at most {MOST_BUILDS} are allowed"));
        }
    }
    let n = failures.len();
    assert!(n == 0, "{n} failures of {} cases of {op}:\n{}", cases.len(), failures.join("\n"));
}

/// Kernels of `flip` with `to` in place of `from`: what the first case with work says on the first device.
fn with_fault(from: &str, to: &str) -> Result<(), String> {
    let driver = DEVICES[0].driver().clone();
    let device = Device::new(Arc::new(Guarded::new(driver).with_fault(from, to)), None);
    let registry = frit_ops::registry();
    let cases = (registry.get("flip").expect("an op of the registry").cases)();
    let checked = cases.iter().map(|c| Checked::new(&registry, "flip", c).expect("a case"));
    let mut some =
        checked.filter(|c| c.graph.values.values().any(|t| t.shape().iter().product::<usize>() > 1));
    run(&registry, &some.next().expect("a case with elements"), &device)
}

#[test]
fn writes_out_of_place_are_seen() {
    let store = "STORE(out, i, ";
    assert!(include_str!("../../crates/gpu/kernels/flip.k").contains(store));
    assert_eq!(with_fault(store, store), Ok(()));
    for (place, says) in [("LEN(out)", "behind"), ("-1", "before")] {
        let also = format!("STORE(out, {place}, 0); {store}");
        let got = with_fault(store, &also).expect_err(says);
        assert!(got.contains("of `out`") && got.contains("was written"), "{says}: {got}");
    }
    let got = with_fault(store, "STORE(x, i, 0); STORE(out, i, ").expect_err("an input");
    assert!(got.contains("byte 0 of `x`"), "{got}");
}

frit_tests::test_each_op!(check_op);
