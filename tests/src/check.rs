//! Op cases on a device against the reference: what the conformance tests of all devices share.

use std::sync::Arc;

use frit_compile::CompileOptions;
use frit_ir::expr::{Expr, Output, Ref, Step};
use frit_ir::op::{Case, Registry, Tolerance};
use frit_ir::{Attrs, Tensor};

use frit_ops::case_graph::{self, CaseGraph, compare};

/// Outputs by name.
pub type Outputs = Vec<(String, Tensor)>;

/// How cases are compiled: as they are written.
pub fn options() -> CompileOptions {
    let mut options = CompileOptions::default();
    options.fuse = false;
    options
}

/// A case, or several in one, with what it must give.
pub struct Checked {
    /// As a graph.
    pub graph: CaseGraph,
    reference: Vec<Tensor>,
    tolerances: Vec<Tolerance>,
}

impl Checked {
    /// Builds the graph of `case` and computes its reference.
    ///
    /// # Errors
    /// What the op says of its operands.
    pub fn new(registry: &Registry, op: &str, case: &Case) -> Result<Checked, String> {
        let reference = frit_ops::interpret::reference_of_case(registry, op, case);
        let reference = reference.map_err(|e| format!("reference: {e}"))?;
        let graph = case_graph::build(registry, op, case).map_err(|e| format!("graph: {e}"))?;
        let tolerances = vec![case.tolerance; reference.len()];
        Ok(Checked { graph, reference, tolerances })
    }

    /// Several cases of `expr` in one: a kernel that computes all of them. Results come in the order of the cases.
    ///
    /// # Errors
    /// As [`Checked::new`]; a case without an expression.
    pub fn joined(registry: &Registry, cases: &[&Case]) -> Result<Checked, String> {
        let mut all = Expr::default();
        let (mut inputs, mut tolerances) = (Vec::new(), Vec::new());
        let exprs = cases.iter().map(|c| c.attrs.expr("expr")).collect::<Result<Vec<_>, _>>();
        let exprs = exprs.map_err(|e| e.to_string())?;
        // Values are numbered inputs first, then steps, over all cases.
        let total: usize = exprs.iter().map(|e| e.inputs.len()).sum();
        let (mut first_input, mut first_step) = (0, total);
        for (c, e) in cases.iter().zip(&exprs) {
            let n = e.inputs.len();
            let at = |r: Ref| match (r as usize).checked_sub(n) {
                None => (first_input + r as usize) as Ref,
                Some(step) => (first_step + step) as Ref,
            };
            all.inputs.extend(e.inputs.iter().copied());
            let moved = |s: &Step| Step { args: s.args.iter().map(|a| at(*a)).collect(), ..s.clone() };
            all.steps.extend(e.steps.iter().map(moved));
            all.outputs.extend(e.outputs.iter().map(|o| Output { value: at(o.value), ..*o }));
            inputs.extend(c.inputs.iter().cloned());
            tolerances.extend(e.outputs.iter().map(|_| c.tolerance));
            (first_input, first_step) = (first_input + n, first_step + e.steps.len());
        }
        let names: Vec<&str> = cases.iter().map(|c| c.name.as_str()).collect();
        let attrs = Attrs::new().with("expr", Arc::new(all));
        let (name, tolerance) = (names.join("; "), Tolerance::EXACT);
        let case = Case { name, attrs, inputs, tolerance, expect: None };
        Ok(Checked { tolerances, ..Checked::new(registry, "expr", &case)? })
    }

    /// Whether `got` is what it must be.
    ///
    /// # Errors
    /// A line that says what differs.
    pub fn compare(&self, got: &Outputs) -> Result<(), String> {
        if got.len() != self.reference.len() {
            return Err(format!("{} results, expected {}", got.len(), self.reference.len()));
        }
        let pairs = got.iter().zip(&self.reference).zip(&self.tolerances);
        pairs.into_iter().try_for_each(|(((name, got), want), t)| compare(name, got, want, *t))
    }
}

/// A test for each op, which calls the function given with its name; with `@names` the names. A test is an item, and only
/// a macro makes items from a list.
#[macro_export]
macro_rules! test_each_op {
    ($what:tt $($names:ident)?) => {
        $crate::test_each_op! {
            $what $($names)? =>
            attention broadcast concat copy cumsum dequantize expr flip gather layer_norm linear matmul pad quantize reduce
            reshape residual_norm rms_norm rotary rotary_write_kv slice softmax sort top_k transpose write_kv
        }
    };
    (@ names => $($op:ident)*) => {
        &[$(stringify!($op)),*]
    };
    ($check:ident => $($op:ident)*) => {
        $(#[test]
        fn $op() {
            $check(stringify!($op));
        })*
    };
}
