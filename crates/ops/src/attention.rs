//! Scaled dot-product attention over a cache of keys and values: grouped heads, every mask at once, pages, rings and sinks.

use frit_ir::dim::Dim;
use frit_ir::graph::{Shape, Type};
use frit_ir::op::{Cost, InferCtx, Lowered, NodeCtx, OpError, RefCtx};
use frit_ir::{Attrs, DType, OpDef, Tensor};

use crate::shapes::{broadcasts, multiple, operand, optional};
use crate::util::{FLOATS, broadcast_strides, elements, moved, offset};

const Q: usize = 0;
const K: usize = 1;
const V: usize = 2;
const KV_LEN: usize = 3;
const OFFSET: usize = 4;
const TABLE: usize = 5;
const BIAS: usize = 6;
const SINKS: usize = 7;
const KEY_MASK: usize = 8;

/// The op `attention` {scale, causal, window_left, window_right, softcap, ring, lse}.
///
/// Operands: q `[B, T, H, D]`; k `[P, KVH, S, D]` and v `[P, KVH, S, Dv]` of one float type, H a multiple of KVH, head h reads
/// head h / (H / KVH) of them; then, each optional: kv_len i32 `[B]` (keys in use, default all), offset i32 `[B]` or `[1]`
/// (default kv_len − T), page table i32 `[B, pages]`, bias (float, broadcasts to `[B, H, T, keys]`), sinks f32 `[H]`, key mask
/// bool `[B, keys]` (true: may be seen). Results: `[B, T, H, Dv]` in q's type, and with `lse` f32 `[B, T, H]`.
///
/// Keys: row b reads page b, slots 0.. of it, and P = B. With a table key j lies in page `table[b, j / S]`, slot j mod S. With
/// `ring` key j lies in slot j mod S of page b, and the last S keys exist. `keys` is S, or pages·S with a table; a ring has
/// no table, bias or key mask. A key does not exist beyond `keys` or in a page that is out of range; kv_len counts as
/// at least 0 and, but in a ring, at most `keys`.
///
/// Query i sees key j < kv_len if j ≤ i + offset (`causal`), i + offset − j ≤ window_left, j − (i + offset) ≤ window_right
/// (each unless −1), the key mask holds and the bias is not −∞. Its score is scale·q·k, then softcap·tanh(score/softcap)
/// unless softcap is 0, then plus bias. A sink is the score of one more key, whose value is zero. The result is the sum of
/// the values weighted by the softmax of the scores, `lse` the logarithm of the softmax's denominator. A query that sees
/// nothing gives zeros, and without a sink an lse of −∞. Keys and values that a query does not see may hold anything,
/// NaN and infinities too; a score of NaN that it sees makes its result NaN.
pub fn def() -> OpDef {
    OpDef {
        name: "attention",
        summary: "scaled dot-product attention over cached keys and values",
        infer,
        reference: Some(reference),
        expand: None,
        vjp: None,
        cost,
        lower,
        view: None,
        updates: &[],
        cases: crate::attention_cases::cases,
    }
}

/// The attributes.
struct Spec {
    scale: f64,
    causal: bool,
    left: i64,
    right: i64,
    softcap: f64,
    ring: bool,
    lse: bool,
}

impl Spec {
    fn read(attrs: &Attrs) -> Result<Spec, OpError> {
        attrs.only(&["scale", "causal", "window_left", "window_right", "softcap", "ring", "lse"])?;
        let s = Spec {
            scale: attrs.float("scale")?,
            causal: attrs.bool("causal")?,
            left: attrs.int("window_left")?,
            right: attrs.int("window_right")?,
            softcap: attrs.float("softcap")?,
            ring: attrs.bool("ring")?,
            lse: attrs.bool("lse")?,
        };
        if !s.scale.is_finite() {
            return Err(OpError::Value(format!("attribute `scale` is {}; it must be finite", s.scale)));
        }
        if !(s.softcap >= 0.0 && s.softcap.is_finite()) {
            let why = format!("attribute `softcap` is {}; it must be finite, and 0 or more", s.softcap);
            return Err(OpError::Value(why));
        }
        for (name, w) in [("window_left", s.left), ("window_right", s.right)] {
            if !(-1..=i64::from(i32::MAX)).contains(&w) {
                let why = format!("attribute `{name}` is {w}; it must be −1 (open) or 0 to 2^31−1");
                return Err(OpError::Value(why));
            }
        }
        Ok(s)
    }
}

/// How many keys a row can have: S, or pages·S with a table.
fn keys(s: &Dim, table: Option<&Type>) -> Dim {
    table.map_or_else(|| s.clone(), |t| t.shape[1].clone() * s.clone())
}

fn infer(ctx: &mut InferCtx) -> Result<Vec<Type>, OpError> {
    let spec = Spec::read(ctx.attrs)?;
    ctx.arity(3, 9)?;
    let q = operand(ctx, Q, FLOATS, &["B", "T", "H", "D"])?;
    let k = operand(ctx, K, FLOATS, &["P", "KVH", "S", "D"])?;
    let v = operand(ctx, V, FLOATS, &["P", "KVH", "S", "Dv"])?;
    if k.dtype != v.dtype {
        return Err(OpError::DType(format!("keys are {} and values {}; they must agree", k.dtype, v.dtype)));
    }
    if (q.dtype == DType::F64) != (k.dtype == DType::F64) {
        return Err(OpError::DType(format!(
            "queries are {}, keys {}; f64 goes only with f64",
            q.dtype, k.dtype
        )));
    }
    for (i, what) in ["pages", "heads", "length"].into_iter().enumerate() {
        ctx.require_equal(&k.shape[i], &v.shape[i], &format!("keys and values, {what}"))?;
    }
    ctx.require_equal(&q.shape[3], &k.shape[3], "queries and keys, head dimension")?;
    multiple(ctx, &q.shape[2], &k.shape[1], "query heads of key heads")?;
    infer_options(ctx, &spec, q, k)?;
    let [b, t, h] = [0, 1, 2].map(|i| q.shape[i].clone());
    let mut out = vec![Type::new(q.dtype, [b.clone(), t.clone(), h.clone(), v.shape[3].clone()])];
    if spec.lse {
        out.push(Type::new(DType::F32, [b, t, h]));
    }
    Ok(out)
}

/// Checks the optional operands.
fn infer_options(ctx: &mut InferCtx, spec: &Spec, q: &Type, k: &Type) -> Result<(), OpError> {
    let (b, i32s) = (&q.shape[0], &[DType::I32]);
    if let Some(t) = optional(ctx, KV_LEN, i32s, &["B"])? {
        ctx.require_equal(&t.shape[0], b, "kv_len, B")?;
    }
    if let Some(t) = optional(ctx, OFFSET, i32s, &["B or 1"])? {
        broadcasts(ctx, &t.shape, std::slice::from_ref(b), "offset")?;
    }
    let table = optional(ctx, TABLE, i32s, &["B", "pages"])?;
    match table {
        Some(t) => ctx.require_equal(&t.shape[0], b, "page table, B")?,
        None => ctx.require_equal(&k.shape[0], b, "keys without a page table, pages and B")?,
    }
    if spec.ring && [TABLE, BIAS, KEY_MASK].iter().any(|i| ctx.optional(*i).is_some()) {
        return Err(OpError::Value("a ring has no page table, bias or key mask".into()));
    }
    let keys = keys(&k.shape[2], table);
    if let Some(t) = ctx.optional(BIAS) {
        crate::util::dtype_of(ctx, BIAS, FLOATS)?;
        let want = [b.clone(), q.shape[2].clone(), q.shape[1].clone(), keys.clone()];
        broadcasts(ctx, &t.shape, &want, "bias")?;
    }
    if let Some(t) = optional(ctx, SINKS, &[DType::F32], &["H"])? {
        ctx.require_equal(&t.shape[0], &q.shape[2], "sinks, H")?;
    }
    if let Some(t) = optional(ctx, KEY_MASK, &[DType::Bool], &["B", "keys"])? {
        ctx.require_equal(&t.shape[0], b, "key mask, B")?;
        ctx.require_equal(&t.shape[1], &keys, "key mask, keys")?;
    }
    Ok(())
}

/// The shapes of q, k and v.
fn shapes(ctx: &NodeCtx) -> [Shape; 3] {
    [Q, K, V].map(|i| ctx.inputs[i].map(|t| t.shape.clone()).unwrap_or_default())
}

fn cost(ctx: &NodeCtx) -> Cost {
    let [q, k, v] = shapes(ctx);
    let keys = keys(&k[2], ctx.inputs.get(TABLE).copied().flatten());
    let pairs = q[0].clone() * q[1].clone() * q[2].clone() * keys;
    Cost { flops: pairs * (q[3].clone() + v[3].clone()) * Dim::from(2i64), bytes: moved(ctx) }
}

fn lower(ctx: &NodeCtx) -> Result<Lowered, OpError> {
    let s = Spec::read(ctx.attrs)?;
    let [q, k, v] = shapes(ctx);
    let shared = if k[1].is(0) { Dim::from(0i64) } else { q[2].floor_div(&k[1]) };
    Ok(Lowered::default()
        .float("scale", s.scale)
        .int("causal", i64::from(s.causal))
        .int("window_left", s.left)
        .int("window_right", s.right)
        .float("softcap", s.softcap)
        .int("ring", i64::from(s.ring))
        .int("lse", i64::from(s.lse))
        .int("t", q[1].clone())
        .int("s", k[2].clone())
        .int("keys", keys(&k[2], ctx.inputs.get(TABLE).copied().flatten()))
        .int("h", q[2].clone())
        .int("shared", shared)
        .int("d", q[3].clone())
        .int("dv", v[3].clone())
        .int("elements", elements(ctx)))
}

/// The operands that say which keys there are and what they weigh.
struct Masks {
    spec: Spec,
    tokens: usize,
    /// Extents of k: P, KVH, S.
    cache: [usize; 3],
    kv_len: Option<Vec<i64>>,
    offset: Option<Vec<i64>>,
    table: Option<(Vec<i64>, usize)>,
    bias: Option<(Vec<f64>, Vec<usize>)>,
    key_mask: Option<Vec<i64>>,
}

impl Masks {
    fn read(ctx: &RefCtx) -> Result<Masks, OpError> {
        let (q, k) = (ctx.input(Q)?.shape(), ctx.input(K)?.shape());
        let ints = |i: usize| ctx.optional(i).map(Tensor::to_i64).transpose();
        let table = ints(TABLE)?.zip(ctx.optional(TABLE).map(|t| t.shape()[1]));
        let keys = table.as_ref().map_or(k[2], |t| t.1 * k[2]);
        let bias = ctx.optional(BIAS).map(|t| {
            let strides = broadcast_strides(t.shape(), &[q[0], q[2], q[1], keys]);
            t.to_f64().map(|v| (v, strides))
        });
        Ok(Masks {
            spec: Spec::read(ctx.attrs)?,
            tokens: q[1],
            cache: [k[0], k[1], k[2]],
            kv_len: ints(KV_LEN)?,
            offset: ints(OFFSET)?,
            table,
            bias: bias.transpose()?,
            key_mask: ints(KEY_MASK)?,
        })
    }

    fn keys(&self) -> i64 {
        self.table.as_ref().map_or(self.cache[2], |t| t.1 * self.cache[2]) as i64
    }

    fn kv_len(&self, b: usize) -> i64 {
        let n = self.kv_len.as_ref().map_or(self.keys(), |v| v[b].max(0));
        if self.spec.ring { n } else { n.min(self.keys()) }
    }

    /// The keys that exist for row b, as far as their number goes.
    fn range(&self, b: usize) -> std::ops::Range<i64> {
        let n = self.kv_len(b);
        if self.spec.ring { (n - self.keys()).max(0)..n } else { 0..n }
    }

    /// Page and slot of key j of row b, if its page is in range.
    fn place(&self, b: usize, j: i64) -> Option<(usize, usize)> {
        let [pages, _, slots] = self.cache;
        let (j, ring) = (j as usize, self.spec.ring);
        match &self.table {
            Some((t, per_row)) => {
                let page = usize::try_from(t[b * per_row + j / slots]).ok()?;
                (page < pages).then_some((page, j % slots))
            }
            None => Some((b, if ring { j % slots } else { j })),
        }
    }

    /// Whether query i of row b may see key j, the bias aside.
    fn sees(&self, b: usize, i: usize, j: i64) -> bool {
        let default = self.kv_len(b) - self.tokens as i64;
        let offset = self.offset.as_ref().map_or(default, |o| if o.len() == 1 { o[0] } else { o[b] });
        let (at, s) = (i as i64 + offset, &self.spec);
        let masked = self.key_mask.as_ref().is_some_and(|m| m[b * self.keys() as usize + j as usize] == 0);
        !masked
            && (!s.causal || j <= at)
            && (s.left < 0 || at - j <= s.left)
            && (s.right < 0 || j - at <= s.right)
    }

    fn bias(&self, b: usize, h: usize, i: usize, j: i64) -> f64 {
        self.bias.as_ref().map_or(0.0, |(v, strides)| v[offset(&[b, h, i, j as usize], strides)])
    }
}

fn reference(ctx: &RefCtx) -> Result<Vec<Tensor>, OpError> {
    let masks = Masks::read(ctx)?;
    let (qt, kt, vt) = (ctx.input(Q)?, ctx.input(K)?, ctx.input(V)?);
    let (q, k, v) = (qt.to_f64()?, kt.to_f64()?, vt.to_f64()?);
    let sinks = ctx.optional(SINKS).map(Tensor::to_f64).transpose()?;
    let [batch, tokens, heads, d] = [0, 1, 2, 3].map(|i| qt.shape()[i]);
    let ([_, kv_heads, slots], dv) = (masks.cache, vt.shape()[3]);
    let (mut out, mut lse) = (Vec::new(), Vec::new());
    for b in 0..batch {
        for i in 0..tokens {
            for h in 0..heads {
                let query = &q[((b * tokens + i) * heads + h) * d..][..d];
                let row_of =
                    |(page, slot): (usize, usize)| (page * kv_heads + h / (heads / kv_heads)) * slots + slot;
                // Scores of the keys that are seen, with the place of each.
                let mut scores = Vec::new();
                for j in masks.range(b).filter(|j| masks.sees(b, i, *j)) {
                    let Some(row) = masks.place(b, j).map(row_of) else { continue };
                    let dot: f64 = query.iter().zip(&k[row * d..][..d]).map(|(a, b)| a * b).sum();
                    let bias = masks.bias(b, h, i, j);
                    if bias != f64::NEG_INFINITY {
                        scores.push((capped(masks.spec.scale * dot, masks.spec.softcap) + bias, row));
                    }
                }
                let sink = sinks.as_ref().map_or(f64::NEG_INFINITY, |s| s[h]);
                lse.push(weigh(&scores, sink, &v, dv, &mut out));
            }
        }
    }
    let mut results = vec![ctx.result(0, &out)?];
    if masks.spec.lse {
        results.push(ctx.result(1, &lse)?);
    }
    Ok(results)
}

fn capped(score: f64, cap: f64) -> f64 {
    if cap == 0.0 { score } else { cap * (score / cap).tanh() }
}

/// Appends the mean of the rows of `v` `[.., dv]` weighted by the softmax of the scores, and gives the logarithm of the
/// denominator. A score that is NaN makes all of it NaN.
fn weigh(scores: &[(f64, usize)], sink: f64, v: &[f64], dv: usize, out: &mut Vec<f64>) -> f64 {
    let top = scores.iter().map(|s| s.0).fold(sink, f64::max);
    let start = out.len();
    out.resize(start + dv, 0.0);
    if top == f64::NEG_INFINITY && !scores.iter().any(|s| s.0.is_nan()) {
        return top;
    }
    let sum = scores.iter().map(|s| (s.0 - top).exp()).sum::<f64>() + (sink - top).exp();
    for (score, row) in scores {
        let p = (score - top).exp() / sum;
        for (o, x) in out[start..].iter_mut().zip(&v[row * dv..]) {
            *o += p * x;
        }
    }
    top + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention_cases::attrs;
    use crate::cases::{random, values};
    use crate::interpret::run_node;
    use crate::registry;

    fn run(attrs: &Attrs, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        run_node(&registry(), &def(), attrs, inputs)
    }

    /// The rows `b` of a tensor whose first extent is the batch.
    fn row(t: &Tensor, b: usize) -> Tensor {
        let mut shape = t.shape().to_vec();
        let n = t.bytes().len() / shape[0];
        shape[0] = 1;
        Tensor::new(t.dtype(), &shape, t.bytes()[b * n..(b + 1) * n].to_vec()).unwrap()
    }

    #[test]
    fn a_row_of_a_batch_gets_what_it_gets_alone() {
        let (q, k) = (random(DType::F32, &[3, 4, 2, 16], 1), random(DType::F32, &[3, 1, 20, 16], 2));
        let (v, len) = (random(DType::F32, &[3, 1, 20, 16], 3), values(DType::I32, &[3], &[9.0; 3]));
        for a in [attrs(0.25, true, -1, -1), attrs(0.25, false, 3, 0), attrs(0.25, true, 2, -1)] {
            let all = run(&a, &[Some(&q), Some(&k), Some(&v), Some(&len)]).unwrap();
            for b in 0..3 {
                let [q, k, v, len] = [&q, &k, &v, &len].map(|t| row(t, b));
                let alone = run(&a, &[Some(&q), Some(&k), Some(&v), Some(&len)]).unwrap();
                assert_eq!(row(&all[0], b), alone[0]);
            }
        }
    }

    #[test]
    fn a_table_and_a_ring_are_other_orders_of_the_same_keys() {
        let q = random(DType::F32, &[1, 2, 2, 8], 1);
        let (k, v) = (random(DType::F32, &[1, 1, 8, 8], 2), random(DType::F32, &[1, 1, 8, 8], 3));
        let a = attrs(0.5, true, -1, -1);
        let plain = run(&a, &[Some(&q), Some(&k), Some(&v)]).unwrap();
        // Two pages of four slots, the second first.
        let swap = |t: &Tensor| {
            let n = t.bytes().len() / 2;
            let bytes = [&t.bytes()[n..], &t.bytes()[..n]].concat();
            Tensor::new(DType::F32, &[2, 1, 4, 8], bytes).unwrap()
        };
        let table = values(DType::I32, &[1, 2], &[1.0, 0.0]);
        let (k2, v2) = (swap(&k), swap(&v));
        let paged = run(&a, &[Some(&q), Some(&k2), Some(&v2), None, None, Some(&table)]).unwrap();
        assert_eq!(plain, paged);
        // A ring of eight slots in which keys 4 to 11 stand, so that slots 0 to 3 hold the newer half.
        let turned = |t: &Tensor| swap(t).reshaped(&[1, 1, 8, 8]).unwrap();
        let (k3, v3, len) = (turned(&k), turned(&v), values(DType::I32, &[1], &[12.0]));
        let ring = a.with("ring", true);
        assert_eq!(plain, run(&ring, &[Some(&q), Some(&k3), Some(&v3), Some(&len)]).unwrap());
    }

    #[test]
    fn faults_are_named() {
        let t = |shape: &[usize]| random(DType::F32, shape, 1);
        let (q, k) = (t(&[2, 1, 4, 8]), t(&[2, 2, 5, 8]));
        let a = attrs(1.0, false, -1, -1);
        let fault = |a: &Attrs, i: &[Option<&Tensor>]| run(a, i).unwrap_err().to_string();
        let e = fault(&a, &[Some(&q), Some(&t(&[2, 3, 5, 8])), Some(&t(&[2, 3, 5, 8]))]);
        assert!(e.contains("multiple of 3"), "{e}");
        let e = fault(&a, &[Some(&q), Some(&t(&[3, 2, 5, 8])), Some(&t(&[3, 2, 5, 8]))]);
        assert!(e.contains("page table"), "{e}");
        let e = fault(&a, &[Some(&q), Some(&k), Some(&random(DType::F16, &[2, 2, 5, 8], 1))]);
        assert!(e.contains("must agree"), "{e}");
        let e = fault(&a, &[Some(&q), Some(&k), Some(&t(&[2, 2, 6, 8]))]);
        assert!(e.contains("length"), "{e}");
        let bad = a.clone().with("window_left", -2i64);
        assert!(fault(&bad, &[Some(&q), Some(&k), Some(&k)]).contains("window_left"));
        let ring = a.with("ring", true);
        let mask = random(DType::Bool, &[2, 5], 1);
        let e = fault(&ring, &[Some(&q), Some(&k), Some(&k), None, None, None, None, None, Some(&mask)]);
        assert!(e.contains("a ring has no"), "{e}");
    }
}
