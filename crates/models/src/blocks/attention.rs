//! Self-attention over stored keys and values.

use frit_ir::{Dim, ValueId};
use frit_ops::build::Attention;

use crate::blocks::linear::linear;
use crate::blocks::norm::rms;
use crate::blocks::rope::Rotation;
use crate::config::{Config, Sizes};
use crate::error::ModelError;
use crate::net::Net;

/// What every layer's attention reads.
pub struct Inputs {
    /// Sequences.
    pub batch: Dim,
    /// Tokens of each sequence in this step.
    pub tokens: Dim,
    /// Positions that a session holds.
    pub capacity: Dim,
    /// `i32 [batch, tokens]`.
    pub positions: ValueId,
    /// `i32 [batch]`: positions in use after this step.
    pub kv_len: ValueId,
    /// How queries and keys turn.
    pub rotation: Rotation,
    /// The same in layers that have a window.
    pub local: Rotation,
}

impl Inputs {
    /// The extents batch, tokens and `inner`.
    pub fn rows(&self, inner: &[usize]) -> Vec<Dim> {
        let inner = inner.iter().map(|n| Dim::from(*n));
        [self.batch.clone(), self.tokens.clone()].into_iter().chain(inner).collect()
    }
}

/// Attention of `x f32 [batch, tokens, hidden]` in layer `layer`, with projections below `{name}.`: f32, same shape.
/// Keys and values are kept in the states `{name}.keys` and `{name}.values`, `[batch, kv_heads, positions, head_dim]`.
///
/// A windowed layer keeps a ring of window + chunk positions where that is less than the whole context: a step writes all of its
/// keys before it reads, so that many must fit besides the window of its first token.
///
/// # Errors
/// A weight is missing or has another shape.
pub fn attention(
    net: &mut Net,
    x: ValueId,
    name: &str,
    layer: usize,
    c: &Config,
    sizes: &Sizes,
    io: &Inputs,
) -> Result<ValueId, ModelError> {
    let part = |p: &str| format!("{name}.{p}");
    let (d, hidden, window) = (c.head_dim, c.hidden, c.windows[layer]);
    let project = |net: &mut Net, p: &str, heads: usize| {
        let y = linear(net, x, &part(p), heads * d, hidden, c.qkv_bias)?;
        Ok::<_, ModelError>(net.b.reshape(y, io.rows(&[heads, d]))?)
    };
    let q = project(net, "q_proj", c.heads)?;
    let k = project(net, "k_proj", c.kv_heads)?;
    let v = project(net, "v_proj", c.kv_heads)?;
    let rotation = if window.is_some() { &io.local } else { &io.rotation };
    let turn = |net: &mut Net, p: &str, x: ValueId| {
        let x = if c.qk_norm { rms(net, x, &part(p), d, c)? } else { x };
        rotation.turn(net, x, io.positions)
    };
    let q = turn(net, "q_norm", q)?;
    let k = turn(net, "k_norm", k)?;

    let ring = window.map(|w| w + sizes.chunk).filter(|n| *n < sizes.context);
    let slots = ring.map_or(io.capacity.clone(), Dim::from);
    let shape = [io.batch.clone(), c.kv_heads.into(), slots, d.into()];
    let keep = |net: &mut Net, p: &str, new: ValueId| {
        let first = net.b.state(&part(p), sizes.kv_dtype, shape.clone())?;
        let last = net.b.write_kv(first, new, io.positions, None, ring.is_some())?;
        net.b.update(first, last)?;
        Ok::<_, ModelError>(last)
    };
    let keys = keep(net, "keys", k)?;
    let values = keep(net, "values", v)?;

    let options = Attention {
        scale: Some(c.attention_scale),
        causal: true,
        softcap: c.attention_softcap,
        window_left: window.map(|w| w as i64 - 1),
        ring: ring.is_some(),
        kv_len: Some(io.kv_len),
        ..Attention::default()
    };
    let y = net.b.attention(q, keys, values, options)?;
    let width = c.heads * d;
    let y = net.b.reshape(y, io.rows(&[width]))?;
    linear(net, y, &part("o_proj"), hidden, width, c.out_bias)
}
