//! Norms over the last dimension.

use frit_ir::ValueId;

use crate::config::Config;
use crate::error::ModelError;
use crate::net::Net;

/// RMS norm of `x [..., d]` with the weight `{name}.weight` `[d]`, or 1 + weight where the configuration says so.
///
/// # Errors
/// The weight is missing or has another shape.
pub fn rms(net: &mut Net, x: ValueId, name: &str, d: usize, c: &Config) -> Result<ValueId, ModelError> {
    let w = net.weight(&format!("{name}.weight"), &[d])?;
    Ok(net.b.rms_norm(x, Some(w), c.norm_eps, c.norm_plus_one)?)
}

/// Layer norm of `x [..., d]` with the weight `{name}.weight` `[d]` and the bias `{name}.bias` `[d]`.
///
/// # Errors
/// A weight is missing or has another shape.
pub fn layer(net: &mut Net, x: ValueId, name: &str, d: usize, eps: f64) -> Result<ValueId, ModelError> {
    let w = net.weight(&format!("{name}.weight"), &[d])?;
    let b = net.weight(&format!("{name}.bias"), &[d])?;
    Ok(net.b.layer_norm(x, Some(w), Some(b), eps)?)
}
