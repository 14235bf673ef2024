//! Layers of decoders: attention and a gated MLP, each with a residual around it.

use frit_ir::ValueId;

use crate::blocks::attention::{Inputs, attention};
use crate::blocks::mlp;
use crate::blocks::norm::rms;
use crate::config::{Config, Sizes};
use crate::error::ModelError;
use crate::net::Net;

/// Layer `.2` over `x f32 [batch, tokens, hidden]`; gives the same shape. Its weights are below `model.layers.{.2}.`.
pub type Layer = fn(&mut Net, ValueId, usize, &Config, &Sizes, &Inputs) -> Result<ValueId, ModelError>;

/// x + attention(norm(x)), then x + mlp(norm(x)).
///
/// # Errors
/// A weight is missing or has another shape.
pub fn pre_norm(
    net: &mut Net,
    x: ValueId,
    i: usize,
    c: &Config,
    sizes: &Sizes,
    io: &Inputs,
) -> Result<ValueId, ModelError> {
    let part = |p: &str| format!("model.layers.{i}.{p}");
    let y = rms(net, x, &part("input_layernorm"), c.hidden, c)?;
    let y = attention(net, y, &part("self_attn"), i, c, sizes, io)?;
    let x = net.b.add(x, y)?;
    let y = rms(net, x, &part("post_attention_layernorm"), c.hidden, c)?;
    let y = mlp::gated(net, y, &part("mlp"), c)?;
    Ok(net.b.add(x, y)?)
}

/// x + norm(attention(norm(x))), then x + norm(mlp(norm(x))).
///
/// # Errors
/// A weight is missing or has another shape.
pub fn sandwich(
    net: &mut Net,
    x: ValueId,
    i: usize,
    c: &Config,
    sizes: &Sizes,
    io: &Inputs,
) -> Result<ValueId, ModelError> {
    let part = |p: &str| format!("model.layers.{i}.{p}");
    let y = rms(net, x, &part("input_layernorm"), c.hidden, c)?;
    let y = attention(net, y, &part("self_attn"), i, c, sizes, io)?;
    let y = rms(net, y, &part("post_attention_layernorm"), c.hidden, c)?;
    let x = net.b.add(x, y)?;
    let y = rms(net, x, &part("pre_feedforward_layernorm"), c.hidden, c)?;
    let y = mlp::gated(net, y, &part("mlp"), c)?;
    let y = rms(net, y, &part("post_feedforward_layernorm"), c.hidden, c)?;
    Ok(net.b.add(x, y)?)
}
