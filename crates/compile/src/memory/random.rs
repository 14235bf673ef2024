//! Random graphs of f32 values for the tests: pointwise ops, views, a row-wise op, products, and states that are read at
//! old and new versions.

use std::sync::Arc;

use frit_ir::dim::Dim;
use frit_ir::graph::{Graph, Shape, Type, ValueId};
use frit_ir::op::Registry;
use frit_ir::{Attrs, DType, Expr, ScalarOp};

/// A small generator of numbers (splitmix64).
pub(super) struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

struct Maker<'a> {
    g: Graph,
    r: &'a Registry,
    rng: Rng,
    values: Vec<ValueId>,
}

/// A graph with the symbol `T` in 1..=5.
pub(super) fn random_graph(seed: u64, r: &Registry) -> Graph {
    let mut m = Maker { g: Graph::new("random"), r, rng: Rng(seed), values: Vec::new() };
    let t = m.g.symbols.declare("T", 1, 5).unwrap();
    let f = |dims: &[Dim]| Type::new(DType::F32, dims.iter().cloned());
    for (name, ty) in [("x", f(&[t.clone(), 4.into()])), ("z", f(&[3.into(), 4.into()]))] {
        let v = m.g.input(name, ty).unwrap();
        m.values.push(v);
    }
    let p = m.g.param("p", f(&[4.into()])).unwrap();
    let w = m.g.param("w", f(&[4.into(), 4.into()])).unwrap();
    let states = [
        m.g.state("s", f(&[3.into(), 4.into()])).unwrap(),
        m.g.state("q", f(&[3.into(), 4.into()])).unwrap(),
    ];
    m.values.extend([p, w, states[0], states[1]]);
    for _ in 0..3 + m.rng.below(25) {
        m.node();
    }
    for i in 0..1 + m.rng.below(3) {
        let v = m.rng.pick(&m.values);
        m.g.output(&format!("out{i}"), v).unwrap();
    }
    for s in states {
        let same: Vec<ValueId> = m.values.iter().copied().filter(|v| m.g.ty(*v) == m.g.ty(s)).collect();
        // The newest value of the type is often a chain of writes.
        let last = if m.rng.below(2) == 0 { same[same.len() - 1] } else { m.rng.pick(&same) };
        m.g.update(s, last).unwrap();
    }
    m.g
}

impl Maker<'_> {
    fn push(&mut self, op: &str, attrs: Attrs, inputs: &[ValueId]) {
        let out = self.g.push(self.r, op, attrs, inputs, &[]).unwrap();
        self.values.extend(out);
    }

    fn node(&mut self) {
        // Recent values are taken more often, so that chains form.
        let n = self.values.len();
        let at = if self.rng.below(3) > 0 { n - 1 - self.rng.below(n.min(4)) } else { self.rng.below(n) };
        let a = self.values[at];
        let shape = self.g.ty(a).shape.clone();
        match self.rng.below(10) {
            0..=2 => self.binary(a),
            3 => self.pair(a),
            4 => self.reshape(a, &shape),
            5 if shape.len() > 1 => {
                let mut perm: Vec<i64> = (0..shape.len() as i64).collect();
                let k = 1 + self.rng.below(shape.len() - 1);
                perm.rotate_left(k);
                self.push("transpose", Attrs::new().with("perm", perm), &[a]);
            }
            6 => self.slice(a, &shape),
            7 if !shape.is_empty() => {
                let attrs = Attrs::new().with("axis", shape.len() as i64 - 1).with("log", false);
                self.push("softmax", attrs, &[a]);
            }
            8 => self.product(a),
            _ => self.set(),
        }
    }

    fn expr(&mut self, e: Expr, inputs: &[ValueId]) {
        self.push("expr", Attrs::new().with("expr", Arc::new(e)), inputs);
    }

    /// Whether shapes broadcast for every size of the symbol.
    fn joins(a: &Shape, b: &Shape) -> bool {
        a.iter().rev().zip(b.iter().rev()).all(|(x, y)| x == y || x.is(1) || y.is(1))
    }

    fn binary(&mut self, a: ValueId) {
        let shape = &self.g.ty(a).shape;
        let fits: Vec<ValueId> =
            self.values.iter().copied().filter(|v| Self::joins(shape, &self.g.ty(*v).shape)).collect();
        let b = self.rng.pick(&fits);
        self.expr(Expr::single(ScalarOp::Add, &[DType::F32; 2], DType::F32), &[a, b]);
    }

    /// Two results of one step.
    fn pair(&mut self, a: ValueId) {
        let mut e = Expr::new(&[DType::F32]);
        let half = e.constant(DType::F32, 0.5);
        let (n, m) = (e.push(ScalarOp::Neg, &[0]), e.push(ScalarOp::Mul, &[0, half]));
        e.output(n, DType::F32);
        e.output(m, DType::F32);
        self.expr(e, &[a]);
    }

    fn reshape(&mut self, a: ValueId, shape: &Shape) {
        let all: Dim = shape.iter().cloned().product();
        let mut dims = vec![all];
        if self.rng.below(2) == 0 && shape.len() > 1 {
            dims = shape.iter().rev().cloned().collect();
        }
        self.push("reshape", Attrs::new().with("shape", dims), &[a]);
    }

    fn slice(&mut self, a: ValueId, shape: &Shape) {
        let (mut starts, mut sizes, mut steps) = (Vec::new(), Vec::new(), Vec::new());
        for d in shape {
            let cut = d.as_const().filter(|v| *v > 2 && self.rng.below(2) == 0);
            let (start, size, step) = match cut {
                Some(v) if v > 3 && self.rng.below(2) == 0 => (Dim::from(1i64), Dim::from((v - 1) / 2), 2),
                Some(v) => (Dim::from(1i64), Dim::from(v - 1), 1),
                None => (Dim::from(0i64), d.clone(), 1i64),
            };
            starts.push(start);
            sizes.push(size);
            steps.push(step);
        }
        let attrs = Attrs::new().with("starts", starts).with("sizes", sizes).with("steps", steps);
        self.push("slice", attrs, &[a]);
    }

    fn product(&mut self, a: ValueId) {
        let shape = self.g.ty(a).shape.clone();
        let fits: Vec<ValueId> = self
            .values
            .iter()
            .copied()
            .filter(|v| self.g.ty(*v).rank() == 2 && shape.len() == 2 && self.g.ty(*v).shape[0] == shape[1])
            .collect();
        match fits.as_slice() {
            [] => self.binary(a),
            all => {
                let b = self.rng.pick(all);
                self.push("matmul", Attrs::new(), &[a, b]);
            }
        }
    }

    fn set(&mut self) {
        let like = self.g.find("s").map(|s| self.g.ty(s).clone());
        let fits: Vec<ValueId> =
            self.values.iter().copied().filter(|v| Some(self.g.ty(*v)) == like.as_ref()).collect();
        let state = if self.rng.below(2) == 0 { fits[fits.len() - 1] } else { self.rng.pick(&fits) };
        let value = self.rng.pick(&fits);
        self.push("set", Attrs::new(), &[state, value]);
    }
}
