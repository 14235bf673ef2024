//! Norms over the last dimension.

use frit_ir::ValueId;

use crate::error::ModelError;
use crate::net::Net;

/// RMS norm of `x [..., d]` with the weight `{name}.weight` `[d]`.
///
/// # Errors
/// The weight is missing or has another shape.
pub fn rms(net: &mut Net, x: ValueId, name: &str, d: usize, eps: f64) -> Result<ValueId, ModelError> {
    let w = net.weight(&format!("{name}.weight"), &[d])?;
    Ok(net.b.rms_norm(x, Some(w), eps, false)?)
}
