//! Cases of ops on a device against the reference.

use std::sync::Arc;

use frit_ir::DType;
use frit_ir::op::{Case, Registry};
use frit_ir::target::Target;
use frit_ir::tensor::Tensor;
use frit_ops::{case_graph, interpret};

use crate::backend::Backend;
use crate::error::Result;

/// Runs one case, compiled and run as graphs are, and compares its results.
///
/// # Errors
/// A line that says what failed or differs.
pub(crate) fn run(
    registry: &Registry,
    backend: &Backend,
    target: &Target,
    op: &str,
    case: &Case,
) -> std::result::Result<(), String> {
    let want = interpret::reference_of_case(registry, op, case).map_err(|e| e.to_string())?;
    stated(case, &want).map_err(|why| format!("the reference: {why}"))?;
    let g = case_graph::build(registry, op, case).map_err(|e| e.to_string())?;
    let got = (|| -> Result<Vec<Tensor>> {
        let mut options = frit_compile::CompileOptions::default();
        options.fuse = false;
        let compiled = frit_compile::compile(&g.graph, registry, target, &options)?;
        let mut weights = |n: &str| g.values.get(n).map(|t| Arc::new(t.bytes().to_vec()) as _);
        let exe = backend.load(
            compiled.schedule,
            &mut weights,
            #[cfg(feature = "gpu")]
            frit_gpu::graphs::GraphOptions::default(),
        )?;
        let mut s = exe.session(&[])?;
        let value = |n: &str| g.values.get(n).map_or(&[][..], Tensor::bytes);
        for (i, p) in exe.schedule().states.iter().enumerate() {
            s.write_state(i, 0, value(&p.name))?;
        }
        for (i, p) in exe.schedule().inputs.iter().enumerate() {
            s.set_input(i, value(&p.name))?;
        }
        s.run()?;
        let output = |(i, p): (usize, &frit_ir::schedule::Port)| {
            Ok(Tensor::new(p.ty.dtype, &s.output_dims(i), s.output(i).to_vec())?)
        };
        exe.schedule().outputs.iter().enumerate().map(output).collect()
    })()
    .map_err(|e| e.to_string())?;
    if got.len() != want.len() {
        return Err(format!("{} results, expected {}", got.len(), want.len()));
    }
    let mut pairs = got.iter().zip(&want).enumerate();
    pairs.try_for_each(|(i, (g, w))| case_graph::compare(&format!("y{i}"), g, w, case.tolerance))
}

/// Holds the reference against the results that the case states.
fn stated(case: &Case, want: &[Tensor]) -> std::result::Result<(), String> {
    let Some(expect) = &case.expect else { return Ok(()) };
    if expect.len() != want.len() {
        return Err(format!("{} results, {} are stated", want.len(), expect.len()));
    }
    let mut pairs = want.iter().zip(expect).enumerate();
    let exact = |t: &Tensor, values: &[f64]| Tensor::from_f64(DType::F64, t.shape(), values);
    pairs.try_for_each(|(i, (t, values))| {
        let values = exact(t, values).map_err(|e| e.to_string())?;
        let t = t.to_f64().and_then(|v| exact(t, &v)).map_err(|e| e.to_string())?;
        case_graph::compare(&format!("y{i}"), &t, &values, case.tolerance)
    })
}
