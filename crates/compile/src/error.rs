//! What can go wrong in the compiler.

use frit_ir::graph::GraphError;
use frit_ir::op::OpError;
use frit_ir::verify::VerifyError;

use crate::memory::Overlap;

/// Why a graph could not be compiled.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// A node's op is not in the registry.
    #[error("node `{node}`: there is no op `{op}` in the registry")]
    UnknownOp {
        /// Name of the node's first result.
        node: String,
        /// The op.
        op: String,
    },
    /// The target has no kernel for a node, and the op has no expansion that would help.
    #[error(transparent)]
    NoRow(Box<NoRow>),
    /// An op refused its own node.
    #[error("node `{node}`: `{op}`: {source}")]
    Op {
        /// Name of the node's first result.
        node: String,
        /// The op.
        op: String,
        /// Why.
        source: OpError,
    },
    /// A kernel row asks for a parameter that the op does not give, or gives in another form.
    #[error("kernel row `{row}` wants parameter `{param}` of `{op}`, {why}")]
    Param {
        /// The op.
        op: String,
        /// The row.
        row: String,
        /// The parameter.
        param: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A row's scratch formula cannot be read.
    #[error("kernel row `{row}` has the scratch formula `{formula}`: {why}")]
    Scratch {
        /// The row.
        row: String,
        /// The formula.
        formula: String,
        /// What is wrong.
        why: String,
    },
    /// A view that strides cannot express, even of a dense copy.
    #[error(
        "node `{node}`: `{op}` of {operand} cannot be expressed by strides; block formats and sub-byte types are \
         viewed by whole rows and whole blocks only"
    )]
    View {
        /// Name of the node's result.
        node: String,
        /// The op.
        op: String,
        /// Type of the operand.
        operand: String,
    },
    /// An operand has more dimensions than a step can hold.
    #[error(
        "node `{node}`: an operand of `{op}` has {rank} dimensions that do not merge; a step holds at most 8"
    )]
    Rank {
        /// Name of the node's first result.
        node: String,
        /// The op.
        op: String,
        /// Dimensions left after merging.
        rank: usize,
    },
    /// Expansions go on without end.
    #[error("`{op}` is still being expanded after {rounds} rounds; an expansion must end in core ops")]
    Expansion {
        /// An op that is left.
        op: String,
        /// Rounds done.
        rounds: usize,
    },
    /// A size that does not fit the address space at the upper bounds of the symbols.
    #[error(
        "{what} takes `{bytes}` bytes, more than can be addressed when the symbols are at their upper bounds; declare smaller ranges"
    )]
    TooLarge {
        /// What is too large.
        what: String,
        /// Its size.
        bytes: String,
    },
    /// The graph refused a node that the compiler built.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A graph, as given or after a pass, does not verify.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// The memory plan did not pass its checker.
    #[error("the memory plan is wrong: {0}")]
    Plan(#[from] Overlap),
}

/// A node that no kernel row of the target takes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "node `{node}`: target `{target}` has no kernel for `{op}` on ({operands}) -> ({results}); {}",
    closest(.rows)
)]
pub struct NoRow {
    /// Name of the node's first result.
    pub node: String,
    /// The op.
    pub op: String,
    /// Types of the operands.
    pub operands: String,
    /// Types of the results.
    pub results: String,
    /// The target.
    pub target: String,
    /// The closest rows and why each does not fit, nearest first.
    pub rows: Vec<String>,
}

fn closest(rows: &[String]) -> String {
    if rows.is_empty() {
        return "it has no row for this op at all".into();
    }
    format!("closest rows: {}", rows.join("; "))
}
