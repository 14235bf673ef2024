//! From token ids to vectors.

use frit_ir::{DType, ValueId};

use crate::error::ModelError;
use crate::net::Net;

/// The canonical name of the table.
pub const TABLE: &str = "model.embed_tokens.weight";

/// Rows of the table `[vocab, hidden]` for tokens `i32 [...]`: `f32 [..., hidden]`.
///
/// # Errors
/// The table is missing or has another shape.
pub fn embed(net: &mut Net, tokens: ValueId, vocab: usize, hidden: usize) -> Result<ValueId, ModelError> {
    let table = net.weight(TABLE, &[vocab, hidden])?;
    Ok(net.b.embed(table, tokens, DType::F32)?)
}
