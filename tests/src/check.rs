//! Op cases on a device against the reference: what the conformance tests of all devices share.

use frit_compile::CompileOptions;
use frit_ir::Tensor;
use frit_ir::op::{Case, Registry};

use crate::case::{self, CaseGraph};

/// Outputs by name.
pub type Outputs = Vec<(String, Tensor)>;

/// How cases are compiled: as they are written.
pub fn options() -> CompileOptions {
    let mut options = CompileOptions::default();
    options.fuse = false;
    options
}

/// A case with what it must give.
pub struct Checked<'a> {
    /// The case.
    pub case: &'a Case,
    /// As a graph.
    pub graph: CaseGraph,
    reference: Vec<Tensor>,
}

impl<'a> Checked<'a> {
    /// Builds the graph of `case` and computes its reference.
    ///
    /// # Errors
    /// What the op says of its operands.
    pub fn new(registry: &Registry, op: &str, case: &'a Case) -> Result<Checked<'a>, String> {
        let reference = frit_ops::interpret::reference_of_case(registry, op, case);
        let reference = reference.map_err(|e| format!("reference: {e}"))?;
        let graph = case::build(registry, op, case).map_err(|e| format!("graph: {e}"))?;
        Ok(Checked { case, graph, reference })
    }

    /// Whether `got` is what it must be.
    ///
    /// # Errors
    /// A line that says what differs.
    pub fn compare(&self, got: &Outputs) -> Result<(), String> {
        if got.len() != self.reference.len() {
            return Err(format!("{} results, expected {}", got.len(), self.reference.len()));
        }
        for ((name, got), want) in got.iter().zip(&self.reference) {
            if got.shape() != want.shape() || got.dtype() != want.dtype() {
                let one = |t: &Tensor| format!("{}{:?}", t.dtype(), t.shape());
                return Err(format!("{name}: {}, expected {}", one(got), one(want)));
            }
            let (g, w) = (numbers(got)?, numbers(want)?);
            if let Some((i, a, b)) = case::differs(&g, &w, self.case.tolerance) {
                return Err(format!("{name}[{i}] = {a}, expected {b}"));
            }
        }
        Ok(())
    }
}

/// The elements, or the bytes of types that are only moved.
fn numbers(t: &Tensor) -> Result<Vec<f64>, String> {
    if frit_ops::cases::is_storage(t.dtype()) {
        return Ok(t.bytes().iter().map(|b| f64::from(*b)).collect());
    }
    t.to_f64().map_err(|e| e.to_string())
}
