//! Every op case on the OpenCL devices of this machine against the reference, op by op. What a device cannot run stands in
//! `tests/data/unsupported/opencl.txt`, a list that may only shrink: a listed case that runs is a failure too.

use std::sync::{Arc, LazyLock};

use frit_gpu::device::Device;
use frit_gpu::drivers::opencl::{OpenCl, devices};
use frit_ir::op::{Case, Registry};
use frit_tests::check::{self, Checked};
use frit_tests::{golden, gpu};

/// Most distinct kernels that the cases of all ops may take on one device.
const MOST_BUILDS: usize = 400;

/// The devices. There must be one: a machine without is no place for this test.
static DEVICES: LazyLock<Vec<Arc<Device>>> = LazyLock::new(|| {
    let n = devices().expect("an OpenCL loader").len();
    assert!(n > 0, "no OpenCL device; for the CPU, install pocl-opencl-icd");
    let open = |i| OpenCl::open(i).unwrap_or_else(|e| panic!("device {i}: {e}"));
    (0..n).map(|i| Device::new(open(i), None)).collect()
});

/// The unsupported cases: `op/*` for all of an op, or `op/case`.
static UNSUPPORTED: LazyLock<Vec<String>> = LazyLock::new(|| {
    let path = golden::root().join("tests/data/unsupported/opencl.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).map(str::to_owned).collect()
});

fn run(registry: &Registry, op: &str, c: &Case, device: &Arc<Device>) -> Result<(), String> {
    let checked = Checked::new(registry, op, c)?;
    let g = &checked.graph;
    let got = gpu::run(&g.graph, registry, device, &check::options(), &[], &g.values)?;
    checked.compare(&got)
}

/// Runs every case of `op` on every device and names all that fail.
fn check_op(op: &str) {
    let registry = frit_ops::registry();
    let cases = (registry.get(op).expect("an op of the registry").cases)();
    let whole = UNSUPPORTED.iter().any(|l| *l == format!("{op}/*"));
    for device in DEVICES.iter() {
        let fails = |c: &Case| {
            let name = format!("{op}/{}", c.name);
            let listed = whole || UNSUPPORTED.contains(&name);
            match run(&registry, op, c, device) {
                Err(why) if listed && why.starts_with("unsupported") => None,
                Ok(()) if listed => Some(format!("{name} is listed as unsupported, but runs")),
                Ok(()) => None,
                Err(why) => Some(format!("{name}: {why}")),
            }
        };
        let failures: Vec<String> = cases.iter().filter_map(fails).collect();
        let builds = device.builds();
        println!("{op}: {} cases on {}, {builds} kernels so far", cases.len(), device.info().name);
        let (n, all) = (failures.len(), cases.len());
        assert!(n == 0, "{n} of {all} cases of {op} fail:\n{}", failures.join("\n"));
        assert!(builds <= MOST_BUILDS, "{builds} distinct kernels, at most {MOST_BUILDS} are allowed");
    }
}

// A test is an item, and only a macro makes items from a list.
macro_rules! test_each {
    ($($op:ident)*) => {
        const TESTED: &[&str] = &[$(stringify!($op)),*];
        $(#[test]
        fn $op() {
            check_op(stringify!($op));
        })*
    };
}

test_each! {
    attention broadcast concat copy dequantize expr flip gather layer_norm linear matmul pad quantize reduce reshape
    residual_norm rms_norm rotary slice softmax transpose write_kv
}

#[test]
fn every_op_has_a_test() {
    let registry = frit_ops::registry();
    let mut ops: Vec<&str> = registry.iter().map(|d| d.name).collect();
    ops.sort_unstable();
    assert_eq!(ops, TESTED, "the ops, by name, and those that `test_each` lists");
}
