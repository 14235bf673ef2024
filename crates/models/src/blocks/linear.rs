//! x·Wᵀ + b, unfused; the compiler makes one step of it and of what follows.

use frit_ir::ValueId;

use crate::error::ModelError;
use crate::net::Net;

/// `x f32 [..., k]` times the weight `{name}.weight` `[n, k]` transposed, plus `{name}.bias` `[n]` if `bias`: `f32 [..., n]`.
///
/// # Errors
/// A weight is missing or has another shape or an unsupported type.
pub fn linear(
    net: &mut Net,
    x: ValueId,
    name: &str,
    n: usize,
    k: usize,
    bias: bool,
) -> Result<ValueId, ModelError> {
    let w = net.weight(&format!("{name}.weight"), &[n, k])?;
    let y = net.b.linear_weight(x, w)?;
    if !bias {
        return Ok(y);
    }
    let b = net.vector(&format!("{name}.bias"), n)?;
    Ok(net.b.add(y, b)?)
}
