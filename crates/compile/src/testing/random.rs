//! Random graphs: small, always valid, with a symbol, and rich in what fusion looks for.

use std::collections::HashMap;

use frit_ir::graph::{GraphError, Type, ValueId};
use frit_ir::{DType, Dim, Graph, ScalarOp, Tensor};
use frit_ops::build::{Attention, Builder, Built, Reduce};
use frit_ops::cases::{Numbers, random, values};

/// A graph with everything that a run of it needs.
#[derive(Clone, Debug)]
pub struct Generated {
    /// The graph. Its outputs are f32; small changes of its inputs change them little.
    pub graph: Graph,
    /// Values of its symbols.
    pub sizes: Vec<(String, i64)>,
    /// Inputs, parameters and first states by name.
    pub values: HashMap<String, Tensor>,
}

impl Generated {
    /// The symbols as the reference interpreter takes them.
    pub fn bindings(&self) -> Vec<(&str, i64)> {
        self.sizes.iter().map(|(n, v)| (n.as_str(), *v)).collect()
    }
}

/// Row length of most values; a multiple of the small block formats.
const WIDTH: i64 = 32;

/// Values grow no larger than this many elements at T's bound.
const MAX_ELEMENTS: i64 = 4096;

const MAX_T: i64 = 6;

/// Ops of continuous functions: near-equal operands give near-equal results.
const UNARY: &[ScalarOp] = &[
    ScalarOp::Neg,
    ScalarOp::Abs,
    ScalarOp::Relu,
    ScalarOp::Sigmoid,
    ScalarOp::Silu,
    ScalarOp::Gelu,
    ScalarOp::GeluTanh,
    ScalarOp::Tanh,
    ScalarOp::Sin,
    ScalarOp::Softplus,
];

const BINARY: &[ScalarOp] = &[ScalarOp::Add, ScalarOp::Sub, ScalarOp::Mul, ScalarOp::Max, ScalarOp::Min];

struct Maker {
    b: Builder,
    n: Numbers,
    t: i64,
    values: HashMap<String, Tensor>,
    pool: Vec<ValueId>,
    rows: Dim,
}

type Step = fn(&mut Maker) -> Built;

const STEPS: &[Step] = &[
    unary,
    binary,
    row_vector,
    number,
    half,
    reshape,
    transpose,
    slice,
    broadcast,
    concat,
    reduce,
    softmax,
    norm,
    rms_parts,
    layer_parts,
    projection,
    projections,
    gated,
    residual,
    product,
    attention_parts,
    cache,
];

/// The graph of this seed: up to `steps` nodes or groups of nodes, then one that sums or orders.
///
/// # Errors
/// An op refused what the generator is sure of: a mistake here or in the op.
pub fn random_graph(seed: u64, steps: usize) -> Result<Generated, GraphError> {
    let mut b = Builder::new(&format!("random {seed}"));
    let rows = b.symbol("T", 1, MAX_T).unwrap_or_else(|_| Dim::from(1i64));
    let mut n = Numbers::new(seed);
    let t = n.within(1, MAX_T + 1);
    let mut m = Maker { b, n, t, values: HashMap::new(), pool: Vec::new(), rows };
    for shape in [[None, Some(WIDTH)], [None, Some(WIDTH)], [Some(4), Some(WIDTH)]] {
        let v = m.input(&shape)?;
        m.pool.push(v);
    }
    for i in 0..=steps {
        // The last is no choice, so that graphs of known seeds begin as they did.
        let step = if i == steps { ordered } else { STEPS[m.n.within(0, STEPS.len() as i64) as usize] };
        let v = step(&mut m)?;
        if m.elements(v)? <= MAX_ELEMENTS {
            m.pool.push(v);
        }
    }
    m.finish()
}

impl Maker {
    fn finish(mut self) -> Result<Generated, GraphError> {
        let used = self.b.graph().use_counts();
        let mut last: Vec<ValueId> = self.pool.iter().copied().filter(|v| used[v.0 as usize] == 0).collect();
        last.dedup();
        for (i, v) in last.into_iter().enumerate() {
            self.b.output(&format!("out{i}"), v)?;
        }
        Ok(Generated { graph: self.b.finish(), sizes: vec![("T".into(), self.t)], values: self.values })
    }

    fn elements(&self, v: ValueId) -> Result<i64, GraphError> {
        Ok(self.b.graph().symbols.upper(&self.b.ty(v)?.elements()))
    }

    /// An input; `None` is T.
    fn input(&mut self, shape: &[Option<i64>]) -> Built {
        let name = format!("x{}", self.values.len());
        let sizes: Vec<usize> = shape.iter().map(|d| d.unwrap_or(self.t) as usize).collect();
        let dims: Vec<Dim> = shape.iter().map(|d| d.map_or(self.rows.clone(), Dim::from)).collect();
        self.values.insert(name.clone(), random(DType::F32, &sizes, self.n.bits()));
        self.b.input(&name, DType::F32, dims)
    }

    fn param(&mut self, dtype: DType, shape: &[i64]) -> Built {
        let name = format!("w{}", self.values.len());
        let sizes: Vec<usize> = shape.iter().map(|d| *d as usize).collect();
        self.values.insert(name.clone(), random(dtype, &sizes, self.n.bits()));
        self.b.param(&name, dtype, shape.iter().copied())
    }

    fn index(&mut self, len: usize) -> usize {
        self.n.within(0, len as i64) as usize
    }

    /// A value of the pool, the younger the likelier.
    fn any(&mut self) -> ValueId {
        let (a, b) = (self.index(self.pool.len()), self.index(self.pool.len()));
        self.pool[a.max(b)]
    }

    /// A value of the pool for which `f` holds; the first input, of shape [T, WIDTH], if no other is found.
    fn such(&mut self, f: impl Fn(&Type) -> bool) -> Result<ValueId, GraphError> {
        for _ in 0..12 {
            let v = self.any();
            if f(self.b.ty(v)?) {
                return Ok(v);
            }
        }
        Ok(self.pool[0])
    }

    /// A value whose rows are WIDTH long.
    fn wide(&mut self) -> Result<ValueId, GraphError> {
        self.such(|t| t.rank() >= 2 && t.rank() <= 3 && t.shape.last().is_some_and(|d| d.is(WIDTH)))
    }

    /// x · wᵀ by parts, for a weight [n, WIDTH] of some type.
    fn project(&mut self, x: ValueId, n: i64) -> Built {
        let formats = [DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0, DType::Q5_1];
        let dtype = formats[self.index(formats.len())];
        let w = self.param(dtype, &[n, WIDTH])?;
        self.b.linear_weight(x, w)
    }
}

fn unary(m: &mut Maker) -> Built {
    let (x, op) = (m.any(), UNARY[m.index(UNARY.len())]);
    m.b.unary(op, x)
}

fn binary(m: &mut Maker) -> Built {
    let x = m.any();
    let ty = m.b.ty(x)?.clone();
    let y = m.such(|t| *t == ty)?;
    let y = if *m.b.ty(y)? == ty { y } else { x };
    let op = BINARY[m.index(BINARY.len())];
    m.b.binary(op, x, y)
}

fn row_vector(m: &mut Maker) -> Built {
    let (x, w) = (m.wide()?, m.param(DType::F32, &[WIDTH])?);
    let op = BINARY[m.index(BINARY.len())];
    m.b.binary(op, x, w)
}

/// Numbers among which are those that identities concern.
fn number(m: &mut Maker) -> Built {
    let x = m.any();
    let c = [1.0, 0.0, -0.0, 0.5, 2.0][m.index(5)];
    let op = [ScalarOp::Add, ScalarOp::Mul, ScalarOp::Sub, ScalarOp::Max][m.index(4)];
    let as_operand = m.n.within(0, 2) == 0;
    if !as_operand {
        return m.b.with_number(op, x, c);
    }
    let name = format!("c{}", m.b.graph().values().len());
    let shape: &[usize] = if c == 0.5 { &[1] } else { &[] };
    let c = m.b.constant(&name, random(DType::F32, shape, m.n.bits()))?;
    m.b.binary(op, x, c)
}

fn half(m: &mut Maker) -> Built {
    let x = m.any();
    let to = [DType::F16, DType::BF16][m.index(2)];
    let h = m.b.cast(x, to)?;
    let y = m.b.unary(ScalarOp::Tanh, h)?;
    m.b.cast(y, DType::F32)
}

fn reshape(m: &mut Maker) -> Built {
    let x = m.any();
    let mut shape: Vec<Dim> = m.b.shape(x)?.to_vec();
    match shape.last().and_then(Dim::as_const) {
        Some(d) if d % 2 == 0 && d > 0 && shape.len() < 4 => {
            shape.pop();
            shape.extend([Dim::from(2i64), Dim::from(d / 2)]);
        }
        _ if shape.len() >= 2 => {
            let (a, b) = (shape.remove(0), shape.remove(0));
            shape.insert(0, a * b);
        }
        _ => shape.push(Dim::from(1i64)),
    }
    m.b.reshape(x, shape)
}

fn transpose(m: &mut Maker) -> Built {
    let x = m.any();
    let rank = m.b.ty(x)?.rank();
    let mut perm: Vec<i64> = (0..rank as i64).collect();
    for i in (1..rank).rev() {
        let j = m.index(i + 1);
        perm.swap(i, j);
    }
    m.b.transpose(x, &perm)
}

fn slice(m: &mut Maker) -> Built {
    let x = m.such(|t| t.shape.iter().any(|d| d.as_const().is_some_and(|v| v > 1)))?;
    let shape = m.b.shape(x)?;
    let at = shape.iter().position(|d| d.as_const().is_some_and(|v| v > 1)).unwrap_or(0);
    let extent = shape[at].as_const().unwrap_or(1);
    let start = m.n.within(0, extent);
    let size = m.n.within(1, extent - start + 1);
    let starts: Vec<Dim> = (0..shape.len()).map(|i| Dim::from(if i == at { start } else { 0 })).collect();
    let mut sizes = shape.to_vec();
    sizes[at] = Dim::from(size);
    m.b.slice(x, starts, sizes)
}

fn broadcast(m: &mut Maker) -> Built {
    let x = m.such(|t| t.rank() < 4)?;
    let mut shape = m.b.shape(x)?.to_vec();
    shape.insert(0, Dim::from(2i64));
    m.b.broadcast(x, shape)
}

fn concat(m: &mut Maker) -> Built {
    let x = m.such(|t| t.rank() > 0)?;
    let ty = m.b.ty(x)?.clone();
    let y = m.such(|t| *t == ty)?;
    let y = if *m.b.ty(y)? == ty { y } else { x };
    m.b.concat(&[x, y], -1)
}

fn reduce(m: &mut Maker) -> Built {
    let x = m.such(|t| t.rank() > 1)?;
    let op = [Reduce::Sum, Reduce::Mean, Reduce::Max, Reduce::Min][m.index(4)];
    let keep = m.n.within(0, 2) == 0;
    m.b.reduce(op, x, &[-1], keep)
}

fn softmax(m: &mut Maker) -> Built {
    let x = m.such(|t| t.rank() > 0)?;
    m.b.softmax(x, -1)
}

/// Running sums and values in order. Not their indices, which jump where two values are near each other.
fn ordered(m: &mut Maker) -> Built {
    let x = m.such(|t| t.rank() > 0)?;
    let last = m.b.ty(x)?.shape.last().and_then(Dim::as_const);
    let either = |m: &mut Maker| m.n.within(0, 2) == 0;
    match (m.index(3), last) {
        (0, _) => {
            let (exclusive, reverse) = (either(m), either(m));
            m.b.cumsum(x, -1, exclusive, reverse)
        }
        (1, Some(n)) if n > 0 => {
            let (k, largest) = (m.n.within(1, n + 1), either(m));
            Ok(m.b.top_k(x, -1, k, largest)?.0)
        }
        _ => {
            let descending = either(m);
            Ok(m.b.sort(x, 0, descending)?.0)
        }
    }
}

fn norm(m: &mut Maker) -> Built {
    let x = m.wide()?;
    let w = m.param(DType::F32, &[WIDTH])?;
    match m.n.within(0, 2) {
        0 => m.b.rms_norm(x, Some(w), 1e-2, m.n.within(0, 2) == 0),
        _ => m.b.layer_norm(x, Some(w), None, 1e-2),
    }
}

fn rms_parts(m: &mut Maker) -> Built {
    let x = m.wide()?;
    let squares = m.b.mul(x, x)?;
    let mean = m.b.reduce(Reduce::Mean, squares, &[-1], true)?;
    let mean = m.b.with_number(ScalarOp::Add, mean, 1e-2)?;
    let root = m.b.unary(ScalarOp::Rsqrt, mean)?;
    let y = m.b.mul(x, root)?;
    let w = m.param(DType::F32, &[WIDTH])?;
    m.b.mul(w, y)
}

fn layer_parts(m: &mut Maker) -> Built {
    let x = m.wide()?;
    let mean = m.b.reduce(Reduce::Mean, x, &[-1], true)?;
    let d = m.b.sub(x, mean)?;
    let squares = m.b.mul(d, d)?;
    let variance = m.b.reduce(Reduce::Mean, squares, &[-1], true)?;
    let variance = m.b.with_number(ScalarOp::Add, variance, 1e-2)?;
    let deviation = m.b.unary(ScalarOp::Sqrt, variance)?;
    let y = m.b.div(d, deviation)?;
    let (w, b) = (m.param(DType::F32, &[WIDTH])?, m.param(DType::F32, &[WIDTH])?);
    let y = m.b.mul(y, w)?;
    m.b.add(y, b)
}

fn projection(m: &mut Maker) -> Built {
    let x = m.wide()?;
    let y = m.project(x, WIDTH)?;
    match m.n.within(0, 3) {
        0 => m.b.silu(y),
        1 => m.b.add(y, x),
        _ => Ok(y),
    }
}

fn projections(m: &mut Maker) -> Built {
    let x = m.wide()?;
    let (a, b) = (m.project(x, WIDTH)?, m.project(x, 8)?);
    let c = m.project(x, WIDTH)?;
    let bias = m.param(DType::F32, &[8])?;
    let b = m.b.add(b, bias)?;
    m.pool.extend([a, b]);
    Ok(c)
}

fn gated(m: &mut Maker) -> Built {
    let x = m.wide()?;
    let (g, u) = (m.project(x, WIDTH)?, m.project(x, WIDTH)?);
    let g = m.b.silu(g)?;
    m.b.mul(g, u)
}

fn residual(m: &mut Maker) -> Built {
    let x = m.wide()?;
    let r = m.project(x, WIDTH)?;
    let sum = m.b.add(x, r)?;
    let w = m.param(DType::F32, &[WIDTH])?;
    m.pool.push(sum);
    m.b.rms_norm(sum, Some(w), 1e-2, false)
}

fn product(m: &mut Maker) -> Built {
    let x = m.such(|t| t.rank() >= 2)?;
    let rank = m.b.ty(x)?.rank();
    let mut perm: Vec<i64> = (0..rank as i64).collect();
    perm.swap(rank - 1, rank - 2);
    let y = m.b.transpose(x, &perm)?;
    let z = m.b.matmul(x, y)?;
    m.b.with_number(ScalarOp::Mul, z, 0.1)
}

/// Heads of 8 over [T, WIDTH], with keys and values of 2 heads that are repeated.
fn attention_parts(m: &mut Maker) -> Built {
    let x = m.such(|t| t.rank() == 2 && t.shape[1].is(WIDTH))?;
    let rows = m.b.shape(x)?[0].clone();
    let one = Dim::from(1i64);
    let mut heads = |n: i64| -> Built {
        let y = m.project(x, 8 * n)?;
        let y = m.b.reshape(y, [one.clone(), rows.clone(), n.into(), 8.into()])?;
        m.b.transpose(y, &[0, 2, 1, 3])
    };
    let (q, k, v) = (heads(4)?, heads(2)?, heads(2)?);
    let repeat = |m: &mut Maker, v: ValueId| -> Built {
        let v = m.b.reshape(v, [one.clone(), 2.into(), 1.into(), rows.clone(), 8.into()])?;
        let v = m.b.broadcast(v, [one.clone(), 2.into(), 2.into(), rows.clone(), 8.into()])?;
        m.b.reshape(v, [one.clone(), 4.into(), rows.clone(), 8.into()])
    };
    let (k, v) = (repeat(m, k)?, repeat(m, v)?);
    let kt = m.b.transpose(k, &[0, 1, 3, 2])?;
    let scores = m.b.matmul(q, kt)?;
    let scores = m.b.scale(scores, 0.35)?;
    let bias = m.param(DType::F32, &[4, 1, 1])?;
    let scores = m.b.add(scores, bias)?;
    let p = m.b.softmax(scores, -1)?;
    let o = m.b.matmul(p, v)?;
    let o = m.b.transpose(o, &[0, 2, 1, 3])?;
    m.b.reshape(o, [rows, WIDTH.into()])
}

/// Writes [T, WIDTH] into a state as heads of 8 and attends to it; now and then also reads the version before.
fn cache(m: &mut Maker) -> Built {
    let t = m.rows.clone();
    let x = m.such(|ty| ty.rank() == 2 && ty.shape[0] == t && ty.shape[1].is(WIDTH))?;
    let one = Dim::from(1i64);
    let value = m.b.reshape(x, [one.clone(), t.clone(), 4.into(), 8.into()])?;
    let name = format!("s{}", m.values.len());
    m.values.insert(name.clone(), random(DType::F32, &[1, 4, 8, 8], m.n.bits()));
    let state = m.b.state(&name, DType::F32, [1i64, 4, 8, 8])?;
    let name = format!("x{}", m.values.len());
    let first = m.n.within(0, 3);
    let at: Vec<f64> = (0..m.t).map(|i| (i + first) as f64).collect();
    m.values.insert(name.clone(), values(DType::I32, &[1, at.len()], &at));
    let positions = m.b.input(&name, DType::I32, [one, t.clone()])?;
    let next = m.b.write_kv(state, value, positions, None, false)?;
    m.b.update(state, next)?;
    match m.n.within(0, 3) {
        0 => {
            let old = m.b.unary(ScalarOp::Tanh, state)?;
            let both = m.b.add(old, next)?;
            m.pool.push(both);
        }
        1 => m.pool.push(state),
        _ => {}
    }
    let y = m.b.attention(value, next, next, Attention { causal: true, ..Attention::default() })?;
    m.b.reshape(y, [t, WIDTH.into()])
}
