//! The part of the builder that language models use: norms, rotary positions, attention and its cache.

use frit_ir::Attrs;
use frit_ir::dim::Dim;
use frit_ir::graph::{GraphError, ValueId};
use frit_ir::op::OpError;

use super::{Builder, Built, refuse};

/// Options of [`Builder::attention`]. The default is unmasked attention over every key, scaled by 1/√D.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Attention {
    /// Factor on the scores; 1/√D if not given.
    pub scale: Option<f64>,
    /// Query i sees keys up to i + offset.
    pub causal: bool,
    /// Keys seen before i + offset at most; open if not given.
    pub window_left: Option<i64>,
    /// Keys seen after i + offset at most; open if not given.
    pub window_right: Option<i64>,
    /// Scores become c·tanh(s/c); no cap if not given.
    pub softcap: Option<f64>,
    /// Key j lives in slot j mod S of its row: only the last S keys exist.
    pub ring: bool,
    /// Keys in use, i32 `[B]`; S if not given.
    pub kv_len: Option<ValueId>,
    /// Position of query 0 among the keys, i32 `[B]` or `[1]`; kv_len − T if not given.
    pub offset: Option<ValueId>,
    /// Pages of each row, i32 `[B, pages]`.
    pub table: Option<ValueId>,
    /// Added to the scores; float, broadcasts to `[B, H, T, S]`.
    pub bias: Option<ValueId>,
    /// One more logit per head in the denominator, f32 `[H]`.
    pub sinks: Option<ValueId>,
    /// Keys that may be seen, bool `[B, S]`.
    pub key_mask: Option<ValueId>,
}

/// Options of [`Builder::rotary`]. The default rotates every element in halves, unscaled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rotary {
    /// Leading elements of D that rotate; all if not given.
    pub dims: Option<i64>,
    /// Pairs (2i, 2i+1) instead of (i, i + dims/2).
    pub interleaved: bool,
    /// Factor on cos and sin; 1 if not given.
    pub factor: Option<f64>,
}

fn or_none(v: Option<ValueId>) -> ValueId {
    v.unwrap_or(ValueId::NONE)
}

impl Builder {
    /// `x·rsqrt(mean(x²) + eps)` over the last dimension, times `weight` (1 + weight with `plus_one`).
    ///
    /// # Errors
    /// A weight that does not fit the last dimension.
    pub fn rms_norm(&mut self, x: ValueId, weight: Option<ValueId>, eps: f64, plus_one: bool) -> Built {
        let attrs = Attrs::new().with("eps", eps).with("plus_one", plus_one);
        self.node("rms_norm", attrs, &[x, or_none(weight), ValueId::NONE])
    }

    /// `(x − mean)/√(variance + eps)` over the last dimension, times `weight`, plus `bias`.
    ///
    /// # Errors
    /// A weight or bias that does not fit the last dimension.
    pub fn layer_norm(
        &mut self,
        x: ValueId,
        weight: Option<ValueId>,
        bias: Option<ValueId>,
        eps: f64,
    ) -> Built {
        let attrs = Attrs::new().with("eps", eps);
        self.node("layer_norm", attrs, &[x, or_none(weight), or_none(bias)])
    }

    /// `x [B, T, H, D]` rotated by its `positions` (i32 `[B, T]` or `[1, T]`) times `inv_freq` (f32 `[dims/2]`).
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn rotary(&mut self, x: ValueId, positions: ValueId, inv_freq: ValueId, options: Rotary) -> Built {
        let last = self.ty(x)?.shape.last().and_then(Dim::as_const);
        let dims = options.dims.or(last).ok_or_else(|| {
            refuse("rotary", OpError::Value("the last extent is not constant; state `dims`".into()))
        })?;
        let style = if options.interleaved { "interleaved" } else { "half" };
        let attrs = Attrs::new()
            .with("dims", dims)
            .with("style", style)
            .with("factor", options.factor.unwrap_or(1.0));
        self.node("rotary", attrs, &[x, positions, inv_freq])
    }

    /// Attention of `q [B, T, H, D]` over `k [P, KVH, S, D]` and `v [P, KVH, S, Dv]`: `[B, T, H, Dv]` in q's type.
    ///
    /// # Errors
    /// Shapes or types that do not fit.
    pub fn attention(&mut self, q: ValueId, k: ValueId, v: ValueId, options: Attention) -> Built {
        Ok(self.attend(q, k, v, options, false)?[0])
    }

    /// [`Builder::attention`] and the log-sum-exp of its scores, f32 `[B, T, H]`.
    ///
    /// # Errors
    /// As [`Builder::attention`].
    pub fn attention_with_lse(
        &mut self,
        q: ValueId,
        k: ValueId,
        v: ValueId,
        options: Attention,
    ) -> Result<(ValueId, ValueId), GraphError> {
        let all = self.attend(q, k, v, options, true)?;
        Ok((all[0], all[1]))
    }

    fn attend(
        &mut self,
        q: ValueId,
        k: ValueId,
        v: ValueId,
        o: Attention,
        lse: bool,
    ) -> Result<Vec<ValueId>, GraphError> {
        let d = self.ty(q)?.shape.last().and_then(Dim::as_const);
        let scale = o.scale.or(d.map(|d| 1.0 / (d as f64).sqrt())).ok_or_else(|| {
            refuse("attention", OpError::Value("the head extent is not constant; state `scale`".into()))
        })?;
        let attrs = Attrs::new()
            .with("scale", scale)
            .with("causal", o.causal)
            .with("window_left", o.window_left.unwrap_or(-1))
            .with("window_right", o.window_right.unwrap_or(-1))
            .with("softcap", o.softcap.unwrap_or(0.0))
            .with("ring", o.ring)
            .with("lse", lse);
        let optional = [o.kv_len, o.offset, o.table, o.bias, o.sinks, o.key_mask];
        let inputs: Vec<ValueId> = [q, k, v].into_iter().chain(optional.into_iter().map(or_none)).collect();
        self.push("attention", attrs, &inputs)
    }

    /// The next version of `state [P, KVH, S, D]` with `value [B, T, KVH, D]` written at `positions` (i32 `[B, T]`), through
    /// the page table `table` (i32 `[B, pages]`) if given. Declare it with [`Builder::update`].
    ///
    /// # Errors
    /// Shapes or types that do not fit.
    pub fn write_kv(
        &mut self,
        state: ValueId,
        value: ValueId,
        positions: ValueId,
        table: Option<ValueId>,
        ring: bool,
    ) -> Built {
        let attrs = Attrs::new().with("ring", ring);
        self.node("write_kv", attrs, &[state, value, positions, or_none(table)])
    }
}
