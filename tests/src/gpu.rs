//! Running a graph on a GPU device by name, without the facade.

use std::collections::HashMap;
use std::sync::Arc;

use frit_compile::{CompileOptions, compile};
use frit_gpu::GpuError;
use frit_gpu::device::Device;
use frit_gpu::driver::HostData;
use frit_gpu::drivers::APIS;
use frit_gpu::executor::Executable;
use frit_gpu::graphs::GraphOptions;
use frit_gpu::session::Session;
use frit_ir::op::Registry;
use frit_ir::{Graph, Tensor};

use crate::check::Outputs;

/// The APIs by which there must be a device, by the features of this build: a machine without is no place for tests on GPUs.
/// Beside CUDA, OpenCL need have none.
pub fn required() -> Vec<&'static str> {
    let all = [
        ("metal", cfg!(feature = "metal")),
        ("cuda", cfg!(feature = "cuda")),
        ("opencl", cfg!(feature = "opencl") && !cfg!(feature = "cuda")),
    ];
    all.iter().filter(|(_, wanted)| *wanted).map(|(name, _)| *name).collect()
}

/// Opens every device of every API of this build.
///
/// # Panics
/// An API of [`required`] without a device, or a device that does not open.
pub fn devices() -> Vec<Arc<Device>> {
    let (mut all, mut reasons) = (Vec::new(), String::new());
    for api in APIS {
        let found = (api.devices)().unwrap_or_else(|e| {
            reasons += &format!("\n{}: {e}", api.name);
            vec![]
        });
        let open = |i| Device::new((api.open)(i).unwrap_or_else(|e| panic!("{e}")), None);
        all.extend((0..found.len()).map(open));
    }
    for name in required() {
        assert!(all.iter().any(|d| d.info().api == name), "there is no device by {name}{reasons}");
    }
    assert!(!all.is_empty(), "there is no device{reasons}");
    all
}

/// Compiles `graph` for `device` and runs it once with `sizes` and `values` (inputs, parameters and states by name).
///
/// # Errors
/// A line that says at which stage it failed; `unsupported: …` where the device has no kernel for it.
pub fn run(
    graph: &Graph,
    registry: &Registry,
    device: &Arc<Device>,
    options: &CompileOptions,
    sizes: &[(&str, i64)],
    values: &HashMap<String, Tensor>,
) -> Result<Outputs, String> {
    run_graphs(graph, registry, device, (options, GraphOptions::default()), sizes, values)
}

/// As [`run`], with parts of it done by the vendor's graph compiler and library.
///
/// # Errors
/// As [`run`]; `refused: …` where all was to be one graph and cannot.
pub fn run_graphs(
    graph: &Graph,
    registry: &Registry,
    device: &Arc<Device>,
    (options, graphs): (&CompileOptions, GraphOptions),
    sizes: &[(&str, i64)],
    values: &HashMap<String, Tensor>,
) -> Result<Outputs, String> {
    let compiled = compile(graph, registry, &device.target(), options).map_err(|e| match e {
        frit_compile::CompileError::NoRow(_) => format!("unsupported: {e}"),
        e => format!("compile: {e}"),
    })?;
    let mut weights = |n: &str| values.get(n).map(|t| Arc::new(t.bytes().to_vec()) as HostData);
    let exe = Executable::load_with(compiled.schedule, &mut weights, device, graphs);
    let exe = exe.map_err(|e| match e {
        GpuError::NotAGraph { .. } => format!("refused: {e}"),
        e => format!("load: {e}"),
    })?;
    let mut s = Session::new(&exe, sizes).map_err(|e| format!("session: {e}"))?;
    let value = |what: &str, n: &str| values.get(n).ok_or_else(|| format!("no value for {what} {n}"));
    for (i, p) in exe.schedule().states.iter().enumerate() {
        s.write_state(i, 0, value("state", &p.name)?.bytes()).map_err(|e| format!("state: {e}"))?;
    }
    for (i, p) in exe.schedule().inputs.iter().enumerate() {
        s.set_input(i, value("input", &p.name)?.bytes()).map_err(|e| format!("input: {e}"))?;
    }
    s.run().map_err(|e| format!("run: {e}"))?;
    let one = |(i, p): (usize, &frit_ir::schedule::Port)| {
        let dims: Vec<usize> = s.output_dims(i).collect();
        let t = Tensor::new(p.ty.dtype, &dims, s.output(i).to_vec()).map_err(|e| format!("output: {e}"))?;
        Ok((p.name.clone(), t))
    };
    exe.schedule().outputs.iter().enumerate().map(one).collect()
}
