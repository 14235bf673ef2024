//! Attention as calls, where what a query sees is a matter of the keys alone: without causal masks and windows, or for one
//! query. Keys and values that nobody sees may hold anything, NaN too; they are taken out before products. Where one query
//! sees a key and another does not, that would take a product for each, so such steps stay our own.

use frit_ir::DType;

use super::Unsupported;
use super::call::{Binary, Program, Reduction, Unary, Value};
use super::table::{Shown, float};

const KV_LEN: usize = 3;
const OFFSET: usize = 4;
const TABLE: usize = 5;
const BIAS: usize = 6;
const SINKS: usize = 7;
const KEY_MASK: usize = 8;

/// Offsets are brought into ±this, far outside of every position, so that sums fit 32 bits.
const FAR: f64 = (1 << 29) as f64;

/// Extents of q `[b, t, h, d]`, k `[b, kv, keys, d]` and v `[b, kv, keys, dv]`.
struct Sizes {
    b: usize,
    t: usize,
    h: usize,
    d: usize,
    kv: usize,
    keys: usize,
    dv: usize,
}

pub(super) fn attention(p: &mut Program, s: &Shown) -> Result<Vec<Value>, Unsupported> {
    let [q, k, v] = [float(p, s.input(0)?)?, float(p, s.input(1)?)?, float(p, s.input(2)?)?];
    let (of_q, of_k) = (p.shape(q).to_vec(), p.shape(k).to_vec());
    let n = Sizes {
        b: of_q[0],
        t: of_q[1],
        h: of_q[2],
        d: of_q[3],
        kv: of_k[1],
        keys: of_k[2],
        dv: p.shape(v)[3],
    };
    let seen = seen(p, s, &n)?;
    // [b, kv, rows, d] with the queries of a group of heads as rows.
    let rows = n.h / n.kv * n.t;
    let heads = p.transpose(q, &[0, 2, 1, 3]);
    let heads = p.reshape(heads, &[n.b, n.kv, rows, n.d]);
    let (k, v) = match seen {
        Some(seen) => {
            let zero = p.scalar(0.0, DType::F32);
            let by_key = p.reshape(seen, &[n.b, 1, n.keys, 1]);
            (p.select(by_key, k, zero), p.select(by_key, v, zero))
        }
        None => (k, v),
    };
    let scores = scores(p, s, heads, k, seen)?;
    let (weights, total, top) = weigh(p, s, &n, scores)?;
    let out = p.multiply(weights, v);
    let none = p.with(Binary::Equal, total, 0.0);
    let (one, zero) = (p.scalar(1.0, DType::F32), p.scalar(0.0, DType::F32));
    let divisor = p.select(none, one, total);
    let out = p.binary(Binary::Division, out, divisor);
    let out = p.select(none, zero, out);
    let out = p.reshape(out, &[n.b, n.h, n.t, n.dv]);
    let out = p.transpose(out, &[0, 2, 1, 3]);
    let mut results = vec![p.cast(out, s.stored(0)?)];
    if s.outputs.get(1).is_some_and(Option::is_some) {
        let log = p.unary(Unary::Logarithm, total);
        let lse = p.binary(Binary::Addition, top, log);
        let lse = p.reshape(lse, &[n.b, n.h, n.t]);
        results.push(p.transpose(lse, &[0, 2, 1]));
    }
    Ok(results)
}

/// The keys that are seen, bool `[b, keys]`; nothing if all are.
fn seen(p: &mut Program, s: &Shown, n: &Sizes) -> Result<Option<Value>, Unsupported> {
    let (causal, left, right) = (s.int("causal")? != 0, s.int("window_left")?, s.int("window_right")?);
    if (causal || left >= 0 || right >= 0) && n.t > 1 {
        return Err(Unsupported("attention whose queries see different keys".into()));
    }
    if s.optional(TABLE).is_some() || s.optional(BIAS).is_some() || s.int("ring")? != 0 {
        return Err(Unsupported("attention with pages, a ring or a bias".into()));
    }
    let key = p.coordinate(1, &[n.b, n.keys]);
    let column = |p: &mut Program, v: Value| {
        let rows = p.elements(v);
        p.reshape(v, &[rows, 1])
    };
    let mut all = Vec::new();
    let len = s.optional(KV_LEN).map(|len| {
        let len = column(p, len);
        let len = within(p, len, 0.0, n.keys as f64);
        all.push(p.binary(Binary::LessThan, key, len));
        len
    });
    if causal || left >= 0 || right >= 0 {
        // The one query stands at its offset; by default at the last key.
        let at = match (s.optional(OFFSET), len) {
            (Some(offset), _) => {
                let offset = column(p, offset);
                within(p, offset, -FAR, FAR)
            }
            (None, Some(len)) => p.with(Binary::Subtraction, len, 1.0),
            (None, None) => p.scalar(n.keys as f64 - 1.0, DType::I32),
        };
        let after = p.binary(Binary::Subtraction, key, at);
        let far = |w: i64| (w as f64).min(4.0 * FAR - 1.0);
        if causal {
            all.push(p.with(Binary::LessThanOrEqual, after, 0.0));
        }
        if left >= 0 {
            all.push(p.with(Binary::GreaterThanOrEqual, after, -far(left)));
        }
        if right >= 0 {
            all.push(p.with(Binary::LessThanOrEqual, after, far(right)));
        }
    }
    all.extend(s.optional(KEY_MASK));
    let joined = all.into_iter().reduce(|a, b| p.binary(Binary::And, a, b));
    Ok(joined.map(|v| p.broadcast(v, &[n.b, n.keys])))
}

/// An integer brought into a range. Maximum and minimum are stated for floats.
fn within(p: &mut Program, v: Value, low: f64, high: f64) -> Value {
    let (least, most) = (p.scalar(low, DType::I32), p.scalar(high, DType::I32));
    let below = p.binary(Binary::LessThan, v, least);
    let v = p.select(below, least, v);
    let above = p.binary(Binary::GreaterThan, v, most);
    p.select(above, most, v)
}

/// Scores `[b, kv, rows, keys]`, −∞ where a key is not seen.
fn scores(p: &mut Program, s: &Shown, q: Value, k: Value, seen: Option<Value>) -> Result<Value, Unsupported> {
    let turned = p.turned(k);
    let product = p.multiply(q, turned);
    let mut scores = p.with(Binary::Multiplication, product, f64::from(s.real("scale")? as f32));
    let cap = f64::from(s.real("softcap")? as f32);
    if cap != 0.0 {
        let part = p.with(Binary::Division, scores, cap);
        let part = p.unary(Unary::Tanh, part);
        scores = p.with(Binary::Multiplication, part, cap);
    }
    let Some(seen) = seen else { return Ok(scores) };
    let (b, keys) = (p.shape(seen)[0], p.shape(seen)[1]);
    let (by_key, none) = (p.reshape(seen, &[b, 1, 1, keys]), p.scalar(f64::NEG_INFINITY, DType::F32));
    Ok(p.select(by_key, scores, none))
}

/// Exponentials of the scores, their sums with the sink's, and what was subtracted before; the latter two `[b, kv, rows, 1]`.
fn weigh(p: &mut Program, s: &Shown, n: &Sizes, scores: Value) -> Result<(Value, Value, Value), Unsupported> {
    let rows = n.h / n.kv * n.t;
    let sink = s.optional(SINKS).map(|sinks| {
        let by_head = p.reshape(sinks, &[1, n.kv, n.h / n.kv, 1]);
        let by_row = p.broadcast(by_head, &[1, n.kv, n.h / n.kv, n.t]);
        p.reshape(by_row, &[1, n.kv, rows, 1])
    });
    let mut top = p.reduce(Reduction::Maximum, scores, &[3]);
    if let Some(sink) = sink {
        top = p.binary(Binary::Maximum, top, sink);
    }
    // Where nothing is seen −∞ is the largest: its difference to itself would be NaN.
    let (nothing, zero) = (p.with(Binary::Equal, top, f64::NEG_INFINITY), p.scalar(0.0, DType::F32));
    let top = p.select(nothing, zero, top);
    let below = p.binary(Binary::Subtraction, scores, top);
    let weights = p.unary(Unary::Exponent, below);
    let mut total = p.reduce(Reduction::Sum, weights, &[3]);
    if let Some(sink) = sink {
        let below = p.binary(Binary::Subtraction, sink, top);
        let own = p.unary(Unary::Exponent, below);
        total = p.binary(Binary::Addition, total, own);
    }
    Ok((weights, total, top))
}
