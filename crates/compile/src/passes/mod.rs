//! The passes that rewrite a graph without forming fused ops. Every pass takes a graph and gives a new one that computes
//! the same.

mod cse;
mod dims;
mod elementwise;
mod fold;
mod precision;
mod views;

use frit_ir::graph::GraphError;
use frit_ir::{Graph, Registry};

pub use dims::simplify_dim;
pub use precision::{Precision, Storage};

pub(crate) use dims::simplify_dims;
pub(crate) use precision::apply as apply_precision;

use crate::work::{At, Work};

/// A local rewrite at one node; says whether it changed something.
type Rule = fn(&mut Work, At) -> Result<bool, GraphError>;

const RULES: &[Rule] = &[fold::fold, views::simplify, elementwise::simplify];

/// Each round sees what the one before made; graphs settle in two or three.
const MAX_ROUNDS: usize = 8;

/// Folds small constants, applies exact identities, merges equal nodes and drops unused ones, until nothing changes.
pub(crate) fn canonicalize(g: &Graph, registry: &Registry) -> Result<Graph, GraphError> {
    let mut w = Work::new(g, registry);
    for _ in 0..MAX_ROUNDS {
        let mut changed = false;
        for n in w.nodes() {
            for rule in RULES {
                if w.is_live(n) {
                    changed |= rule(&mut w, n)?;
                }
            }
        }
        changed |= cse::merge_equal(&mut w);
        if !changed {
            break;
        }
    }
    w.finish()
}
