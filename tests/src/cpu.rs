//! Running a graph on the CPU backend by name, without the facade.

use std::collections::HashMap;
use std::sync::Arc;

use frit_compile::{CompileOptions, compile};
use frit_cpu::executor::{Executable, Session, WeightData};
use frit_cpu::isa::Isa;
use frit_cpu::pool::Pool;
use frit_ir::op::Registry;
use frit_ir::{Graph, Tensor};

struct Bytes(Tensor);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

pub use crate::check::Outputs;

/// Compiles `graph` for the CPU and runs it once with `sizes` and `values` (inputs, parameters and states by name).
///
/// # Errors
/// A line that says at which stage it failed.
pub fn run(
    graph: &Graph,
    registry: &Registry,
    pool: &Arc<Pool>,
    isa: Isa,
    options: &CompileOptions,
    sizes: &[(&str, i64)],
    values: &HashMap<String, Tensor>,
) -> Result<Outputs, String> {
    let target = frit_cpu::target::target(pool.threads());
    let compiled = compile(graph, registry, &target, options).map_err(|e| format!("compile: {e}"))?;
    let mut weights = |n: &str| values.get(n).map(|t| Arc::new(Bytes(t.clone())) as WeightData);
    let exe = Executable::load(compiled.schedule, &mut weights, pool.clone(), isa)
        .map_err(|e| format!("load: {e}"))?;
    let mut s = Session::new(&exe, sizes).map_err(|e| format!("session: {e}"))?;
    for (i, p) in exe.schedule().states.iter().enumerate() {
        let t = values.get(&p.name).ok_or_else(|| format!("no value for state {}", p.name))?;
        s.state_mut(i).copy_from_slice(t.bytes());
    }
    for (i, p) in exe.schedule().inputs.iter().enumerate() {
        let t = values.get(&p.name).ok_or_else(|| format!("no value for input {}", p.name))?;
        s.set_input(i, t.bytes()).map_err(|e| format!("input: {e}"))?;
    }
    s.run().map_err(|e| format!("run: {e}"))?;
    let one = |(i, p): (usize, &frit_ir::schedule::Port)| {
        let dims: Vec<usize> = s.output_dims(i).collect();
        let t = Tensor::new(p.ty.dtype, &dims, s.output(i).to_vec()).map_err(|e| format!("output: {e}"))?;
        Ok((p.name.clone(), t))
    };
    exe.schedule().outputs.iter().enumerate().map(one).collect()
}
