//! From token ids to vectors.

use frit_ir::{DType, ValueId};

use crate::config::Config;
use crate::error::ModelError;
use crate::net::Net;

/// The canonical name of the table.
pub const TABLE: &str = "model.embed_tokens.weight";

/// Rows of the table `[vocab, hidden]` for tokens `i32 [...]`, times `embedding_scale`: `f32 [..., hidden]`.
///
/// # Errors
/// The table is missing or has another shape.
pub fn embed(net: &mut Net, tokens: ValueId, c: &Config) -> Result<ValueId, ModelError> {
    let table = net.weight(TABLE, &[c.vocab, c.hidden])?;
    let x = net.b.embed(table, tokens, DType::F32)?;
    if c.embedding_scale == 1.0 {
        return Ok(x);
    }
    Ok(net.b.scale(x, c.embedding_scale)?)
}
