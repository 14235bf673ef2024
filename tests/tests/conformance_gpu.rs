//! Every op case on the GPU devices of this machine against the reference, op by op: on each OpenCL device, and with the
//! feature `cuda` on each CUDA device. What a device cannot run stands in `tests/data/unsupported`, a list for each way of
//! reaching devices that may only shrink: a listed case that runs is a failure too. Nothing is read at run time, so that
//! this program can be carried to another machine.

use std::sync::{Arc, LazyLock};

use frit_gpu::device::Device;
use frit_gpu::driver::Driver;
use frit_gpu::drivers::opencl::{self, OpenCl};
use frit_ir::op::{Case, Registry};
use frit_tests::check::{self, Checked};
use frit_tests::gpu;

/// Most distinct kernels that the cases of all ops may take on one device.
const MOST_BUILDS: usize = 800;

/// The unsupported cases: `op/*` for all of an op, or `op/case`.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("opencl", include_str!("../data/unsupported/opencl.txt")),
    ("cuda", include_str!("../data/unsupported/cuda.txt")),
];

/// The devices. There must be one of those that this build is for: a machine without is no place for this test.
static DEVICES: LazyLock<Vec<Arc<Device>>> = LazyLock::new(|| {
    let mut all = cuda_devices();
    match opencl::devices() {
        Ok(found) => all.extend((0..found.len()).map(|i| opened(OpenCl::open(i)))),
        // Beside CUDA, OpenCL need not be there.
        Err(e) if cfg!(feature = "cuda") => println!("{e}"),
        Err(e) => panic!("{e}"),
    }
    assert!(!all.is_empty(), "no OpenCL device; for the CPU, install pocl-opencl-icd");
    all
});

fn opened<D: Driver + 'static>(driver: Result<Arc<D>, frit_gpu::GpuError>) -> Arc<Device> {
    Device::new(driver.unwrap_or_else(|e| panic!("{e}")), None)
}

#[cfg(feature = "cuda")]
fn cuda_devices() -> Vec<Arc<Device>> {
    use frit_gpu::drivers::cuda::{Cuda, devices};
    let n = devices().unwrap_or_else(|e| panic!("{e}")).len();
    assert!(n > 0, "no CUDA device");
    (0..n).map(|i| opened(Cuda::open(i))).collect()
}

#[cfg(not(feature = "cuda"))]
fn cuda_devices() -> Vec<Arc<Device>> {
    Vec::new()
}

fn unsupported(api: &str, op: &str, case: &str) -> bool {
    let lists = UNSUPPORTED.iter().filter(|(a, _)| *a == api);
    let mut lines = lists.flat_map(|(_, text)| text.lines());
    lines.any(|l| l.split_once('/').is_some_and(|(o, c)| o == op && (c == "*" || c == case)))
}

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
    let mut failures = Vec::new();
    for device in DEVICES.iter() {
        let info = device.info();
        let on = format!("{} by {}", info.name, info.api);
        let before = failures.len();
        for c in &cases {
            let listed = unsupported(info.api, op, &c.name);
            match run(&registry, op, c, device) {
                Err(why) if listed && why.starts_with("unsupported") => {}
                Ok(()) if listed => {
                    failures.push(format!("{op}/{} on {on}: listed as unsupported, but runs", c.name));
                }
                Ok(()) => {}
                Err(why) => failures.push(format!("{op}/{} on {on}: {why}", c.name)),
            }
        }
        let builds = device.builds();
        let failed = &failures[before..];
        println!("{op}: {} cases on {on}, {} fail, {builds} kernels so far", cases.len(), failed.len());
        if builds > MOST_BUILDS {
            failures.push(format!("{builds} distinct kernels on {on}, at most {MOST_BUILDS} are allowed"));
        }
    }
    let n = failures.len();
    assert!(n == 0, "{n} failures of {} cases of {op}:\n{}", cases.len(), failures.join("\n"));
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
