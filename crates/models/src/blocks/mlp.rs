//! Feed-forward blocks.

use frit_ir::ValueId;

use crate::blocks::linear::linear;
use crate::config::Config;
use crate::error::ModelError;
use crate::net::Net;

/// down(activation(gate(x)) · up(x)), with projections below `{name}.`.
///
/// # Errors
/// A weight is missing or has another shape.
pub fn gated(net: &mut Net, x: ValueId, name: &str, c: &Config) -> Result<ValueId, ModelError> {
    let part = |p: &str| format!("{name}.{p}");
    let gate = linear(net, x, &part("gate_proj"), c.intermediate, c.hidden, c.mlp_bias)?;
    let up = linear(net, x, &part("up_proj"), c.intermediate, c.hidden, c.mlp_bias)?;
    let gate = net.b.unary(c.activation, gate)?;
    let both = net.b.mul(gate, up)?;
    linear(net, both, &part("down_proj"), c.hidden, c.intermediate, c.mlp_bias)
}
