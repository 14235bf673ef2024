//! From vectors to logits, on chosen rows only.

use frit_ir::{Dim, ScalarOp, ValueId};

use crate::blocks::embedding::TABLE;
use crate::blocks::norm::rms;
use crate::config::Config;
use crate::error::ModelError;
use crate::net::Net;

/// Logits `f32 [R, vocab]` of `rows` `i32 [R]`, which index the `vectors` vectors of `x f32 [..., hidden]`; y becomes
/// cap·tanh(y / cap) where the configuration has a cap.
///
/// # Errors
/// A weight is missing or has another shape.
pub fn logits(
    net: &mut Net,
    x: ValueId,
    vectors: Dim,
    rows: ValueId,
    c: &Config,
) -> Result<ValueId, ModelError> {
    let x = net.b.reshape(x, [vectors, c.hidden.into()])?;
    let x = net.b.gather(x, rows, 0)?;
    let x = rms(net, x, "model.norm", c.hidden, c)?;
    let table = if c.tied { TABLE } else { "lm_head.weight" };
    let w = net.weight(table, &[c.vocab, c.hidden])?;
    let y = net.b.linear_weight(x, w)?;
    let Some(cap) = c.logit_softcap else { return Ok(y) };
    let y = net.b.scale(y, 1.0 / cap)?;
    let y = net.b.unary(ScalarOp::Tanh, y)?;
    Ok(net.b.scale(y, cap)?)
}
