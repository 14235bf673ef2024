//! The table: which ops become which calls. An op that is not here stays a step of our own.
//!
//! Not there, since MPSGraph has no call that is stated to mean the same: blocks of quantized weights, `quantize`, sorting,
//! writing into a state, `cumsum`.

use std::sync::Arc;

use frit_ir::DType;
use frit_ir::expr::Expr;

use super::Unsupported;
use super::attention::attention;
use super::call::{Binary, Call, Padding, Program, Reduction, Value};
use super::scalar::{expr, reciprocal_root, wide};

/// A parameter of a step at the sizes at hand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Param {
    Int(i64),
    Real(f64),
}

/// A step as the table sees it: its operands as values, its results' types and extents.
pub(super) struct Shown<'a> {
    pub inputs: &'a [Option<Value>],
    pub outputs: &'a [Option<(DType, Vec<usize>)>],
    pub params: &'a [(&'static str, Param)],
    pub exprs: &'a [Arc<Expr>],
}

impl Shown<'_> {
    /// Input `i`.
    pub fn input(&self, i: usize) -> Result<Value, Unsupported> {
        self.optional(i).ok_or_else(|| Unsupported(format!("without operand {i}")))
    }

    /// Input `i`, if it is there.
    pub fn optional(&self, i: usize) -> Option<Value> {
        self.inputs.get(i).copied().flatten()
    }

    /// The integer parameter `name`.
    pub fn int(&self, name: &str) -> Result<i64, Unsupported> {
        match self.params.iter().find(|(n, _)| *n == name) {
            Some((_, Param::Int(v))) => Ok(*v),
            _ => Err(Unsupported(format!("without the parameter `{name}`"))),
        }
    }

    /// An extent or an axis.
    pub fn size(&self, name: &str) -> Result<usize, Unsupported> {
        usize::try_from(self.int(name)?).map_err(|_| Unsupported(format!("with a negative `{name}`")))
    }

    /// The real parameter `name`.
    pub fn real(&self, name: &str) -> Result<f64, Unsupported> {
        match self.params.iter().find(|(n, _)| *n == name) {
            Some((_, Param::Real(v))) => Ok(*v),
            _ => Err(Unsupported(format!("without the parameter `{name}`"))),
        }
    }

    /// Type of result `i`.
    pub fn stored(&self, i: usize) -> Result<DType, Unsupported> {
        let present = self.outputs.get(i).and_then(Option::as_ref);
        present.map(|(d, _)| *d).ok_or_else(|| Unsupported(format!("without result {i}")))
    }
}

/// Appends the calls of a step and gives its results, one for each that it has.
type Lower = fn(&mut Program, &Shown) -> Result<Vec<Value>, Unsupported>;

/// The table.
const TABLE: &[(&str, Lower)] = &[
    ("expr", |p, s| {
        let inputs: Vec<Value> = s.inputs.iter().copied().flatten().collect();
        let e = s.exprs.first().ok_or_else(|| Unsupported("without an expression".into()))?;
        expr(p, e, &inputs)
    }),
    ("copy", |_, s| Ok(vec![s.input(0)?])),
    ("matmul", matmul),
    ("linear", linear),
    ("attention", attention),
    ("softmax", softmax),
    ("rms_norm", |p, s| norm(p, s, 0)),
    ("layer_norm", |p, s| norm(p, s, 0)),
    ("residual_norm", |p, s| norm(p, s, 1)),
    ("reduce", reduce),
    ("rotary", rotary),
    ("gather", gather),
    ("concat", |p, s| {
        let all: Vec<Value> = s.inputs.iter().copied().flatten().collect();
        Ok(vec![p.concat(&all, s.size("axis")?)])
    }),
    ("flip", |p, s| {
        let x = s.input(0)?;
        let (dtype, shape) = (p.dtype(x), p.shape(x).to_vec());
        let axes = bits(s.int("axes")?, shape.len());
        Ok(vec![if axes.is_empty() { x } else { p.push(Call::Reverse(x, axes), dtype, &shape) }])
    }),
    ("pad", pad),
];

/// The ops that are worth a graph of their own: those that multiply matrices.
pub(super) const HEAVY: &[&str] = &["linear", "matmul", "attention"];

/// How `op` becomes calls.
///
/// # Errors
/// The table does not have it.
pub(super) fn find(op: &str) -> Result<Lower, Unsupported> {
    let found = TABLE.iter().find(|(name, _)| *name == op);
    found.map(|(_, lower)| *lower).ok_or_else(|| Unsupported(format!("the op `{op}`")))
}

/// The ops of the table.
pub fn ops() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|(name, _)| *name)
}

/// The dimensions whose bit is set.
fn bits(mask: i64, rank: usize) -> Vec<usize> {
    (0..rank).filter(|i| mask >> i & 1 == 1).collect()
}

/// `v` as f32; floats of other types than those of 16 and 32 bits are not there.
pub(super) fn float(p: &mut Program, v: Value) -> Result<Value, Unsupported> {
    let v = wide(p, v);
    match p.dtype(v) {
        DType::F32 => Ok(v),
        d => Err(Unsupported(format!("arithmetic on {d}"))),
    }
}

/// `v` with dimensions of 1 before its own, `rank` in all.
fn at_rank(p: &mut Program, v: Value, rank: usize) -> Value {
    let mut shape = vec![1; rank - p.shape(v).len()];
    shape.extend(p.shape(v));
    p.reshape(v, &shape)
}

fn matmul(p: &mut Program, s: &Shown) -> Result<Vec<Value>, Unsupported> {
    let (a, b) = (float(p, s.input(0)?)?, float(p, s.input(1)?)?);
    let rank = p.shape(a).len().max(p.shape(b).len());
    let (a, b) = (at_rank(p, a, rank), at_rank(p, b, rank));
    let product = p.multiply(a, b);
    Ok(vec![p.cast(product, s.stored(0)?)])
}

const ARITIES: [&str; 8] = ["arity0", "arity1", "arity2", "arity3", "arity4", "arity5", "arity6", "arity7"];

/// x·Wᵀ for each weight, then the expression of each group.
fn linear(p: &mut Program, s: &Shown) -> Result<Vec<Value>, Unsupported> {
    if s.int("bits")? != 0 {
        return Err(Unsupported("rounded activations".into()));
    }
    let x = float(p, s.input(0)?)?;
    let (weights, groups) = (s.size("weights")?, s.size("groups")?);
    let shape = p.shape(x).to_vec();
    let (k, lead) = (shape[shape.len() - 1], &shape[..shape.len() - 1]);
    let rows = p.reshape(x, &[lead.iter().product(), k]);
    let (mut weight, mut extra, mut results) = (1, 1 + weights, Vec::new());
    for (name, e) in ARITIES.iter().take(groups).zip(s.exprs) {
        let arity = s.size(name)?;
        let mut inputs = Vec::with_capacity(e.inputs.len());
        for i in weight..weight + arity {
            let w = float(p, s.input(i)?)?;
            let turned = p.turned(w);
            let product = p.multiply(rows, turned);
            let all: Vec<usize> = lead.iter().copied().chain([p.shape(product)[1]]).collect();
            inputs.push(p.reshape(product, &all));
        }
        for i in extra..extra + e.inputs.len() - arity {
            inputs.push(s.input(i)?);
        }
        (weight, extra) = (weight + arity, extra + e.inputs.len() - arity);
        results.extend(expr(p, e, &inputs)?);
    }
    Ok(results)
}

fn softmax(p: &mut Program, s: &Shown) -> Result<Vec<Value>, Unsupported> {
    let (x, axis) = (float(p, s.input(0)?)?, s.size("axis")?);
    let shape = p.shape(x).to_vec();
    let y = if s.int("log")? == 0 {
        p.push(Call::SoftMax(x, axis), DType::F32, &shape)
    } else {
        let top = p.reduce(Reduction::Maximum, x, &[axis]);
        let d = p.binary(Binary::Subtraction, x, top);
        let e = p.unary(super::call::Unary::Exponent, d);
        let sum = p.reduce(Reduction::Sum, e, &[axis]);
        let log = p.unary(super::call::Unary::Logarithm, sum);
        p.binary(Binary::Subtraction, d, log)
    };
    Ok(vec![p.cast(y, s.stored(0)?)])
}

/// Norms of rows, with the variance in two passes. With `residual` operand 1 is added first, and the sum is a result: the
/// norm reads it as it is stored.
fn norm(p: &mut Program, s: &Shown, residual: usize) -> Result<Vec<Value>, Unsupported> {
    let (mut x, mut results) = (float(p, s.input(0)?)?, Vec::new());
    if residual == 1 {
        let r = float(p, s.input(1)?)?;
        let sum = p.binary(Binary::Addition, x, r);
        let stored = p.cast(sum, s.stored(0)?);
        results.push(stored);
        x = float(p, stored)?;
    }
    let last = p.shape(x).len() - 1;
    let n = p.shape(x)[last] as f64;
    let mean = |p: &mut Program, v| {
        let sum = p.reduce(Reduction::Sum, v, &[last]);
        p.with(Binary::Division, sum, n)
    };
    if s.int("rms")? == 0 {
        let middle = mean(p, x);
        x = p.binary(Binary::Subtraction, x, middle);
    }
    let square = p.binary(Binary::Multiplication, x, x);
    let square = mean(p, square);
    let square = p.with(Binary::Addition, square, f64::from(s.real("eps")? as f32));
    let scale = reciprocal_root(p, square);
    let mut y = p.binary(Binary::Multiplication, x, scale);
    if let Some(w) = s.optional(1 + residual) {
        let mut w = float(p, w)?;
        if s.int("plus_one")? != 0 {
            w = p.with(Binary::Addition, w, 1.0);
        }
        y = p.binary(Binary::Multiplication, y, w);
    }
    if let Some(b) = s.optional(2 + residual) {
        let b = float(p, b)?;
        y = p.binary(Binary::Addition, y, b);
    }
    results.push(p.cast(y, s.stored(residual)?));
    Ok(results)
}

/// The kinds of `reduce` by their kernel code; the second is the mean.
const KINDS: [Reduction; 7] = [
    Reduction::Sum,
    Reduction::Sum,
    Reduction::Maximum,
    Reduction::Minimum,
    Reduction::Product,
    Reduction::Or,
    Reduction::And,
];

fn reduce(p: &mut Program, s: &Shown) -> Result<Vec<Value>, Unsupported> {
    let (x, code) = (s.input(0)?, s.size("op")?);
    let x = if p.dtype(x) == DType::Bool { x } else { float(p, x)? };
    let axes = bits(s.int("axes")?, p.shape(x).len());
    let n: usize = axes.iter().map(|a| p.shape(x)[*a]).product();
    let how = *KINDS.get(code).ok_or_else(|| Unsupported(format!("reduction {code}")))?;
    let mut y = if axes.is_empty() { x } else { p.reduce(how, x, &axes) };
    if code == 1 {
        y = p.with(Binary::Division, y, n as f64);
    }
    Ok(vec![p.cast(y, s.stored(0)?)])
}

/// Pairs turned by the angle position · frequency, which is rounded to f32 first.
fn rotary(p: &mut Program, s: &Shown) -> Result<Vec<Value>, Unsupported> {
    let x = float(p, s.input(0)?)?;
    let positions = p.cast(s.input(1)?, DType::F32);
    let (dims, shape) = (s.size("dims")?, p.shape(x).to_vec());
    let (half, d) = (dims / 2, shape[3]);
    let at = p.shape(positions).to_vec();
    let positions = p.reshape(positions, &[at[0], at[1], 1, 1]);
    let angle = p.binary(Binary::Multiplication, positions, s.input(2)?);
    let mut turns = [super::call::Unary::Cos, super::call::Unary::Sin].map(|f| {
        let v = p.unary(f, angle);
        p.with(Binary::Multiplication, v, f64::from(s.real("factor").unwrap_or(1.0) as f32))
    });
    let whole = [shape[0], shape[1], shape[2]];
    let with = |more: &[usize]| -> Vec<usize> { whole.iter().chain(more).copied().collect() };
    // Pairs stand in two halves, or next to each other.
    let (a, b, axis) = if s.int("interleaved")? == 0 {
        let part = with(&[half]);
        (p.slice(x, &[0; 4], &part), p.slice(x, &[0, 0, 0, half], &part), 3)
    } else {
        let turned = p.slice(x, &[0; 4], &with(&[dims]));
        let pairs = p.reshape(turned, &with(&[half, 2]));
        turns = turns.map(|t| {
            let mut shape = p.shape(t).to_vec();
            shape.push(1);
            p.reshape(t, &shape)
        });
        let part = with(&[half, 1]);
        (p.slice(pairs, &[0; 5], &part), p.slice(pairs, &[0, 0, 0, 0, 1], &part), 4)
    };
    let [cos, sin] = turns;
    let mut product = |v, w| p.binary(Binary::Multiplication, v, w);
    let (ac, bs, bc, r#as) = (product(a, cos), product(b, sin), product(b, cos), product(a, sin));
    let first = p.binary(Binary::Subtraction, ac, bs);
    let second = p.binary(Binary::Addition, bc, r#as);
    let pairs = p.concat(&[first, second], axis);
    let mut y = p.reshape(pairs, &with(&[dims]));
    if dims < d {
        let rest = p.slice(x, &[0, 0, 0, dims], &with(&[d - dims]));
        y = p.concat(&[y, rest], 3);
    }
    Ok(vec![p.cast(y, s.stored(0)?)])
}

/// Indices out of range give zeros, which MPSGraph does not say of its gather: they are brought into range, and zeros put
/// in place of what they fetched.
fn gather(p: &mut Program, s: &Shown) -> Result<Vec<Value>, Unsupported> {
    let (table, indices, axis) =
        (s.input(0)?, s.input(1)?, s.int("axis").unwrap_or(0).unsigned_abs() as usize);
    let indices = p.flat(indices);
    let (of, at) = (p.shape(table).to_vec(), p.elements(indices));
    let rows = of[axis];
    let (zero, end) = (p.scalar(0.0, p.dtype(indices)), p.scalar((rows - 1) as f64, p.dtype(indices)));
    let low = p.binary(Binary::LessThan, indices, zero);
    let high = p.binary(Binary::GreaterThan, indices, end);
    let outside = p.binary(Binary::Or, low, high);
    let inside = p.select(outside, zero, indices);
    // In range it fits 32 bits.
    let inside = p.cast(inside, DType::I32);
    let shape: Vec<usize> = of[..axis].iter().chain([&at]).chain(&of[axis + 1..]).copied().collect();
    let fetched = p.push(Call::Gather(table, inside, axis), p.dtype(table), &shape);
    let place: Vec<usize> = (0..shape.len()).map(|i| if i == axis { at } else { 1 }).collect();
    let outside = p.reshape(outside, &place);
    let nothing = p.scalar(0.0, p.dtype(table));
    Ok(vec![p.select(outside, nothing, fetched)])
}

fn pad(p: &mut Program, s: &Shown) -> Result<Vec<Value>, Unsupported> {
    const BEFORE: [&str; 8] =
        ["before0", "before1", "before2", "before3", "before4", "before5", "before6", "before7"];
    let x = s.input(0)?;
    if !matches!(p.dtype(x), DType::F32 | DType::F16 | DType::BF16) {
        return Err(Unsupported(format!("padding of {}", p.dtype(x))));
    }
    let (dtype, of) = (s.stored(0)?, p.shape(x).to_vec());
    let shape = s.outputs[0].as_ref().map(|(_, d)| d.clone()).unwrap_or_default();
    let before = BEFORE.iter().take(of.len()).map(|n| s.size(n)).collect::<Result<Vec<_>, _>>()?;
    let after: Vec<usize> = shape.iter().zip(&of).zip(&before).map(|((n, m), b)| n - m - b).collect();
    let padding = match s.int("mode")? {
        0 => Padding::Constant(s.real("value")?),
        1 => Padding::Reflect,
        _ => Padding::ClampToEdge,
    };
    Ok(vec![p.push(Call::Pad(x, before, after, padding), dtype, &shape)])
}
