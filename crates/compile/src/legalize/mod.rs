//! Legalization: every node becomes a step that the target can run, or is expanded into nodes that do, or vanishes into
//! the strides of its readers; or compilation fails and says what is missing. Nothing is decided later than here but
//! where transient values lie.

mod build;
mod emit;
mod expand;
mod finish;
mod rows;
mod state;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod views;

use std::fmt;

use frit_ir::graph::{Graph, Type};
use frit_ir::op::Registry;
use frit_ir::schedule::Schedule;
use frit_ir::target::Target;

use crate::CompileError;

pub(crate) use finish::scratch_bytes;

/// A transient value, to which the planner gives an offset.
#[derive(Clone, Debug, PartialEq)]
pub struct ArenaValue {
    /// Name of the graph's value, or of the copy made of one.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// Bytes at the upper bounds of the symbols.
    pub bytes: u64,
}

/// What legalization gives: a schedule in which the buffer of an arena operand is the number of its value in `arena` and
/// its offset counts from the value's start. [`crate::memory::plan`] turns it into the final schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Legalized {
    /// The steps, in order.
    pub schedule: Schedule,
    /// The transient values.
    pub arena: Vec<ArenaValue>,
    /// For each step, the (operand, operand) pairs, input and result, that every candidate row lets share memory.
    pub aliases: Vec<Vec<(usize, usize)>>,
    /// What was decided.
    pub report: PlacementReport,
}

/// What became of one node (views are left out: they cost nothing).
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// Name of the node's first result.
    pub node: String,
    /// Its op.
    pub op: String,
    /// Rows in the order they are tried, each with the condition under which it runs (empty: always).
    pub rows: Vec<(String, String)>,
    /// Values copied for it because of their layout or because it would overwrite them.
    pub copies: Vec<String>,
    /// The node that it was expanded from, as `name = op`.
    pub expanded_from: Option<String>,
}

/// The decisions of legalization, in the order of the graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlacementReport {
    /// One entry a step.
    pub nodes: Vec<Placement>,
}

/// One line a step: `h = linear: vnni_gemv if m <= 4 | vnni_gemm; copies x; from h = qkv`.
impl fmt::Display for PlacementReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for p in &self.nodes {
            write!(f, "{} = {}:", p.node, p.op)?;
            for (i, (row, when)) in p.rows.iter().enumerate() {
                write!(f, "{} {row}", if i > 0 { " |" } else { "" })?;
                if !when.is_empty() {
                    write!(f, " if {when}")?;
                }
            }
            if !p.copies.is_empty() {
                write!(f, "; copies {}", p.copies.join(", "))?;
            }
            if let Some(from) = &p.expanded_from {
                write!(f, "; from {from}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Chooses kernels for `graph` on `target`.
///
/// # Errors
/// A node that the target cannot run, a row that asks for what an op does not give, a view that strides cannot express, a
/// size beyond the address space.
pub fn legalize(graph: &Graph, registry: &Registry, target: &Target) -> Result<Legalized, CompileError> {
    let mut rows = rows::Rows::new(target, &graph.symbols);
    let expanded = expand::expand(graph, registry, &rows)?;
    let built = build::build(&expanded, registry, &mut rows)?;
    finish::finish(&expanded.graph, target, built)
}
