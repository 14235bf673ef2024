//! A decoder of the Llama family written in unfused ops, as models build it.

use frit_ir::graph::{Graph, GraphError, ValueId};
use frit_ir::{DType, Dim};
use frit_ops::build::{Attention, Builder, Built, Rotary};

/// Sizes of [`llama`].
#[derive(Clone, Copy, Debug)]
pub struct Llama {
    /// Layers.
    pub layers: usize,
    /// Length of the residual stream.
    pub width: i64,
    /// Query heads and key heads, of `width / heads` elements.
    pub heads: (i64, i64),
    /// Length of the hidden layer of the gated unit.
    pub hidden: i64,
    /// Tokens known.
    pub vocabulary: i64,
    /// Positions kept.
    pub context: i64,
    /// Type of the weight matrices.
    pub weights: DType,
}

impl Llama {
    /// The sizes of SmolLM2 135M.
    pub const SMALL: Llama = Llama {
        layers: 30,
        width: 576,
        heads: (9, 3),
        hidden: 1536,
        vocabulary: 49152,
        context: 2048,
        weights: DType::Q8_0,
    };

    /// Two layers of 32 elements.
    pub const TINY: Llama = Llama {
        layers: 2,
        width: 32,
        heads: (4, 2),
        hidden: 64,
        vocabulary: 16,
        context: 8,
        weights: DType::Q8_0,
    };
}

/// The graph: `tokens` i32 `[1, T]`, `positions` i32 `[1, T]` and `kv_len` i32 `[1]` to `logits` f32 `[1, T, vocabulary]`, with
/// states for keys and values.
///
/// # Errors
/// Sizes that do not fit together.
pub fn llama(c: Llama) -> Result<Graph, GraphError> {
    let mut b = Builder::new("llama");
    let t = b.symbol("T", 1, c.context.min(512)).unwrap_or_else(|_| Dim::from(1i64));
    let tokens = b.input("tokens", DType::I32, [Dim::from(1i64), t.clone()])?;
    let positions = b.input("positions", DType::I32, [Dim::from(1i64), t.clone()])?;
    let kv_len = b.input("kv_len", DType::I32, [1i64])?;
    let table = b.param("embedding", c.weights, [c.vocabulary, c.width])?;
    let inv_freq = b.param("inv_freq", DType::F32, [c.width / c.heads.0 / 2])?;
    let mut x = b.embed(table, tokens, DType::F32)?;
    for i in 0..c.layers {
        x = layer(&mut b, c, i, &t, x, (positions, kv_len, inv_freq))?;
    }
    let norm = b.param("norm", DType::F32, [c.width])?;
    let y = b.rms_norm(x, Some(norm), 1e-5, false)?;
    let logits = b.linear_weight(y, table)?;
    b.output("logits", logits)?;
    Ok(b.finish())
}

fn layer(
    b: &mut Builder,
    c: Llama,
    i: usize,
    t: &Dim,
    x: ValueId,
    (positions, kv_len, inv_freq): (ValueId, ValueId, ValueId),
) -> Built {
    let (heads, kv_heads) = c.heads;
    let d = c.width / heads;
    let project = |b: &mut Builder, x: ValueId, name: &str, n: i64, k: i64| -> Built {
        let w = b.param(&format!("{i}.{name}"), c.weights, [n, k])?;
        b.linear_weight(x, w)
    };
    let split = |b: &mut Builder, x: ValueId, n: i64| b.reshape(x, [1.into(), t.clone(), n.into(), d.into()]);
    let norm = b.param(&format!("{i}.attn_norm"), DType::F32, [c.width])?;
    let h = b.rms_norm(x, Some(norm), 1e-5, false)?;
    let q = project(b, h, "q", c.width, c.width)?;
    let k = project(b, h, "k", kv_heads * d, c.width)?;
    let v = project(b, h, "v", kv_heads * d, c.width)?;
    let (q, k, v) = (split(b, q, heads)?, split(b, k, kv_heads)?, split(b, v, kv_heads)?);
    let q = b.rotary(q, positions, inv_freq, Rotary::default())?;
    let k = b.rotary(k, positions, inv_freq, Rotary::default())?;
    let mut cached = |name: &str, v: ValueId| -> Built {
        let state = b.state(&format!("{i}.{name}"), DType::F16, [1, kv_heads, c.context, d])?;
        let next = b.write_kv(state, v, positions, None, false)?;
        b.update(state, next)?;
        Ok(next)
    };
    let (k, v) = (cached("keys", k)?, cached("values", v)?);
    let options = Attention {
        scale: Some(1.0 / (d as f64).sqrt()),
        causal: true,
        kv_len: Some(kv_len),
        ..Attention::default()
    };
    let a = b.attention(q, k, v, options)?;
    let a = b.reshape(a, [1.into(), t.clone(), c.width.into()])?;
    let o = project(b, a, "o", c.width, c.width)?;
    let x = b.add(x, o)?;
    let norm = b.param(&format!("{i}.ffn_norm"), DType::F32, [c.width])?;
    let h = b.rms_norm(x, Some(norm), 1e-5, false)?;
    let g = project(b, h, "gate", c.hidden, c.width)?;
    let u = project(b, h, "up", c.hidden, c.width)?;
    let g = b.silu(g)?;
    let y = b.mul(g, u)?;
    let y = project(b, y, "down", c.width, c.hidden)?;
    b.add(x, y)
}
