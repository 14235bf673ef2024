//! The cases of `linear`.

use std::sync::Arc;

use frit_ir::expr::{Expr, Ref, ScalarOp};
use frit_ir::op::{Case, CaseInput, Layout, Role, Tolerance};
use frit_ir::{Attrs, DType};

use crate::cases::{FLOATS, Numbers, case_of, expecting, fill, random, tolerance, values};

/// The block formats in use, each with the shortest row.
const BLOCKS: [(DType, usize); 10] = [
    (DType::Q4_0, 32),
    (DType::Q4_1, 32),
    (DType::Q5_0, 32),
    (DType::Q5_1, 32),
    (DType::Q8_0, 32),
    (DType::Q2K, 256),
    (DType::Q3K, 256),
    (DType::Q4K, 256),
    (DType::Q5K, 256),
    (DType::Q6K, 256),
];

/// The types of scalar expressions.
const COMPUTE: [DType; 13] = [
    DType::F64,
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::I64,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U64,
    DType::U32,
    DType::U16,
    DType::U8,
    DType::Bool,
];

const ROWS: [usize; 8] = [1, 2, 3, 5, 8, 16, 17, 33];
const COLUMNS: [usize; 9] = [1, 15, 16, 17, 32, 96, 127, 128, 129];

/// Bound for sums of `k` products of values in -1..1 made in f32 in any order, magnified `gain` times by the expression.
fn bound(d: DType, k: usize, gain: f64) -> Tolerance {
    tolerance(d, gain * 2f64.powi(-22) * (k.max(4) as f64), gain * 1e-6)
}

/// The products as they are, stored as `d`.
fn identity(d: DType) -> Arc<Expr> {
    let mut e = Expr::new(&[DType::F32]);
    e.output(0, d);
    Arc::new(e)
}

/// An expression with inputs of these types, built by `f`, which gives the value stored as `out`.
fn build(inputs: &[DType], out: DType, f: impl FnOnce(&mut Expr) -> Ref) -> Arc<Expr> {
    let mut e = Expr::new(inputs);
    let v = f(&mut e);
    e.output(v, out);
    Arc::new(e)
}

/// silu(g)·u of two products.
fn gated(out: DType) -> Arc<Expr> {
    build(&[DType::F32; 2], out, |e| {
        let s = e.push(ScalarOp::Silu, &[0]);
        e.push(ScalarOp::Mul, &[s, 1])
    })
}

/// One product plus an extra.
fn plus(extra: DType, out: DType) -> Arc<Expr> {
    Arc::new(Expr::single(ScalarOp::Add, &[DType::F32, extra], out))
}

/// A case under construction.
struct Build {
    x: CaseInput,
    weights: Vec<CaseInput>,
    extras: Vec<CaseInput>,
    arity: Vec<i64>,
    exprs: Vec<Arc<Expr>>,
    activations: &'static str,
}

impl Build {
    fn new(dtype: DType, x: &[usize], activations: &'static str) -> Build {
        let x = CaseInput::new(random(dtype, x, 1 + x.iter().sum::<usize>() as u64));
        Build { x, weights: vec![], extras: vec![], arity: vec![], exprs: vec![], activations }
    }

    /// Adds a group of weights (format, N).
    fn group(mut self, weights: &[(DType, usize)], expr: Arc<Expr>) -> Build {
        let k = self.x.tensor.shape().last().copied().unwrap_or(0);
        for (d, n) in weights {
            let seed = 1000 + (self.weights.len() * 7 + n) as u64;
            self.weights.push(CaseInput::new(random(*d, &[*n, k], seed)).role(Role::Param));
        }
        self.arity.push(weights.len() as i64);
        self.exprs.push(expr);
        self
    }

    fn extra(mut self, d: DType, shape: &[usize]) -> Build {
        self.extras.push(CaseInput::new(random(d, shape, 77 + self.extras.len() as u64)));
        self
    }

    fn layout(mut self, layout: Layout) -> Build {
        self.x = self.x.layout(layout);
        self
    }

    fn case(self, name: impl Into<String>, tolerance: Tolerance) -> Case {
        let attrs = Attrs::new()
            .with("weights", self.weights.len() as i64)
            .with("arity", self.arity)
            .with("exprs", self.exprs)
            .with("activations", self.activations);
        let rest = self.weights.into_iter().chain(self.extras);
        case_of(name, attrs, std::iter::once(self.x).chain(rest).map(Some).collect(), tolerance)
    }
}

/// The activations that a weight format takes.
fn activations(w: DType) -> &'static [&'static str] {
    if w.is_block() { &["f32", "q8", "q16"] } else { &["f32"] }
}

/// One weight and its product alone.
fn single(w: DType, act: &'static str, shape: &[usize], n: usize, x: DType) -> Case {
    let (k, rank) = (shape.last().copied().unwrap_or(0), shape.len());
    let m: usize = shape[..rank - 1].iter().product();
    let b = Build::new(x, shape, act).group(&[(w, n)], identity(x));
    b.case(format!("{w}-{act}-{x}-r{rank}-m{m}-n{n}-k{k}"), bound(x, k, 1.0))
}

pub(crate) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    let f32x = DType::F32;
    let formats = FLOATS.iter().map(|d| (*d, 1)).chain(BLOCKS);
    for (w, unit) in formats.clone() {
        for act in activations(w) {
            let mut shapes: Vec<(usize, usize, usize)> = ROWS.iter().map(|m| (*m, 33, 256)).collect();
            shapes.extend(COLUMNS.iter().flat_map(|n| [(1, *n, 256), (4, *n, 256)]));
            shapes.extend([1, 2, 3, 5].map(|b| (3, 20, b * unit.max(32))).into_iter().filter(|s| s.2 != 256));
            shapes.extend([(1, 7, 4096), (2, 7, 2560), (64, 40, 256), (65, 70, 512)]);
            // More columns than a kernel expands at a time, for more rows than it takes straight from the packed weights.
            shapes.extend([(6, 33, 1024), (13, 20, 2304)]);
            shapes.dedup();
            all.extend(shapes.into_iter().map(|(m, n, k)| single(w, act, &[m, k], n, f32x)));
            for x in [DType::F16, DType::BF16] {
                all.extend([1, 6].map(|m| single(w, act, &[m, 512], 34, x)));
            }
            all.extend([[2, 3, 256], [1, 1, 256], [0, 2, 256]].map(|s| single(w, act, &s, 18, f32x)));
            for (layout, x) in [(Layout::Rows, f32x), (Layout::Strided, f32x), (Layout::Rows, DType::F16)] {
                for shape in [vec![7, 512], vec![2, 4, 256]] {
                    let (k, rank) = (shape[shape.len() - 1], shape.len());
                    let b = Build::new(x, &shape, act).layout(layout).group(&[(w, 19)], identity(x));
                    all.push(b.case(format!("{w}-{act}-{x}-{layout:?}-r{rank}"), bound(x, k, 1.0)));
                }
            }
        }
    }
    for k in [1, 2, 7, 15, 17, 31, 33, 127, 1000] {
        all.extend(FLOATS.iter().flat_map(|w| [1, 5].map(|m| single(*w, "f32", &[m, k], 21, f32x))));
    }
    // The head of a tied table: many columns.
    for w in [DType::Q8_0, DType::Q6K, DType::F16] {
        all.push(single(w, activations(w)[activations(w).len() - 1], &[1, 256], 1027, f32x));
    }
    all.push(single(f32x, "f32", &[2, 3, 2, 24], 9, f32x));
    all.extend(fused());
    all.extend(arities());
    all.extend(operand_types());
    all.extend(known());
    all.extend(inputs());
    all.extend(halves());
    all
}

/// Several weights, groups, extras and outputs.
fn fused() -> Vec<Case> {
    let f = DType::F32;
    let (q4k, q6k, q80, q50) = (DType::Q4K, DType::Q6K, DType::Q8_0, DType::Q5_0);
    let mut all = Vec::new();
    for act in ["f32", "q8", "q16"] {
        for m in [1, 2, 5, 17] {
            let b = |x| Build::new(x, &[m, 512], act);
            let sum = bound(f, 512, 1.0);
            for (name, q, k, v) in
                [("k", q4k, q4k, q6k), ("mixed", q50, q80, q6k), ("four", q4k, DType::Q5K, DType::Q4_1)]
            {
                let g = b(f).group(&[(q, 64)], identity(f)).group(&[(k, 16)], identity(f));
                let g = g.group(&[(v, 17)], identity(f));
                all.push(g.case(format!("three-groups-{name}-{act}-m{m}"), sum));
            }
            for (name, g, u) in [("same", q4k, q4k), ("mixed", q50, q80)] {
                let c = b(f).group(&[(g, 65), (u, 65)], gated(f));
                all.push(c.case(format!("gated-{name}-{act}-m{m}"), bound(f, 512, 32.0)));
            }
            let c = b(DType::F16).group(&[(q80, 33), (q80, 33)], gated(DType::F16));
            all.push(c.case(format!("gated-f16-{act}-m{m}"), bound(DType::F16, 512, 32.0)));
            let c = b(f).group(&[(q4k, 48)], plus(f, f)).extra(f, &[48]);
            all.push(c.case(format!("bias-{act}-m{m}"), sum));
            let c = b(f).group(&[(q6k, 48)], plus(f, f)).extra(f, &[m, 48]);
            all.push(c.case(format!("residual-{act}-m{m}"), sum));
            all.push(everything(b(f)).case(format!("everything-{act}-m{m}"), bound(f, 512, 64.0)));
        }
    }
    for m in [1, 4, 9] {
        for w in [f, DType::F16, DType::BF16] {
            let b = |x| Build::new(x, &[m, 96], "f32");
            let c = b(f).group(&[(w, 40)], plus(DType::F16, f)).extra(DType::F16, &[40]);
            all.push(c.case(format!("f16-bias-{w}-m{m}"), bound(f, 96, 1.0)));
            let c = b(f).group(&[(w, 24), (w, 24)], gated(f)).group(&[(f, 5)], identity(DType::F16));
            all.push(c.case(format!("gated-and-plain-{w}-m{m}"), bound(DType::F16, 96, 16.0)));
        }
    }
    for (name, shape) in [
        ("rows", vec![2, 3, 1]),
        ("scalar", vec![]),
        ("one", vec![1]),
        ("batch", vec![2, 1, 20]),
        ("last-1", vec![3, 20]),
    ] {
        let c = Build::new(f, &[2, 3, 64], "f32").group(&[(q80, 20)], plus(f, f)).extra(f, &shape);
        all.push(c.case(format!("extra-{name}"), bound(f, 64, 1.0)));
    }
    let pick = build(&[f, DType::Bool, DType::F32], f, |e| e.push(ScalarOp::Where, &[1, 0, 2]));
    let c =
        Build::new(f, &[3, 64], "f32").group(&[(f, 20)], pick).extra(DType::Bool, &[3, 20]).extra(f, &[20]);
    all.push(c.case("where-mask", bound(f, 64, 1.0)));
    all
}

/// As many weights in a group as a kernel may take at most, and one more, in each group of a step.
fn arities() -> Vec<Case> {
    let f = DType::F32;
    let mut all = Vec::new();
    for act in ["f32", "q8", "q16"] {
        for (at, many) in (0..crate::linear::MAX_GROUPS).flat_map(|at| [(at, 8), (at, 9)]) {
            let sum =
                build(&vec![f; many], f, |e| (1..many as Ref).fold(0, |a, i| e.push(ScalarOp::Add, &[a, i])));
            let m = [1, 2, 5][at % 3];
            let mut b = Build::new(f, &[m, 64], act);
            for _ in 0..at {
                b = b.group(&[(DType::Q8_0, 5)], identity(f));
            }
            let w = [DType::Q4_0, DType::Q5_1][at % 2];
            let b = b.group(&vec![(w, 19); many], sum);
            all.push(b.case(format!("arity-{many}-in-group-{at}-{act}-m{m}"), bound(f, 64, many as f64)));
        }
    }
    all
}

/// Extras and results of every type, and extras however they lie.
fn operand_types() -> Vec<Case> {
    let f = DType::F32;
    let mut all = Vec::new();
    for act in ["f32", "q8", "q16"] {
        for (i, d) in COMPUTE.into_iter().enumerate() {
            let layout = [Layout::Dense, Layout::Rows, Layout::Strided][i % 3];
            // The product and the extra as f32; integers get what is left of the size of their sum.
            let expr = build(&[f, d], d, |e| {
                let extra = e.cast(1, f);
                if d == DType::Bool {
                    return e.push(ScalarOp::Gt, &[0, extra]);
                }
                let sum = e.push(ScalarOp::Add, &[0, extra]);
                let sum = if d.is_int() { e.push(ScalarOp::Abs, &[sum]) } else { sum };
                e.cast(sum, d)
            });
            let mut b = Build::new(f, &[3, 64], act).group(&[(DType::Q8_0, 20)], expr).extra(d, &[3, 20]);
            b.extras[0] = b.extras[0].clone().layout(layout);
            // Near a whole number the integers may differ by one.
            let whole = if d.is_int() { 1.0 } else { 0.0 };
            let near = bound(if d.is_float() { d } else { f }, 64, 1.0);
            all.push(b.case(format!("types-{d}-{act}"), Tolerance { abs: near.abs + whole, ..near }));
        }
    }
    all
}

/// Groups of one and two weights, one of them with two results, and extras of both.
fn everything(b: Build) -> Build {
    let (f, h) = (DType::F32, DType::F16);
    let m = b.x.tensor.shape()[0];
    let mut two = Expr::new(&[f, f]);
    let sum = two.push(ScalarOp::Add, &[0, 1]);
    let tanh = two.push(ScalarOp::Tanh, &[sum]);
    two.output(sum, f);
    two.output(tanh, h);
    let gate = build(&[f, f, h, f], f, |e| {
        let g = e.push(ScalarOp::Add, &[0, 2]);
        let g = e.push(ScalarOp::GeluTanh, &[g]);
        let g = e.push(ScalarOp::Mul, &[g, 1]);
        e.push(ScalarOp::Add, &[g, 3])
    });
    let b = b.group(&[(DType::Q5_1, 31)], Arc::new(two)).group(&[(DType::Q4K, 47), (DType::Q6K, 47)], gate);
    b.extra(f, &[m, 1]).extra(h, &[47]).extra(f, &[m, 47])
}

/// Results known without the reference.
fn known() -> Vec<Case> {
    let f = DType::F32;
    let mut all = Vec::new();
    // Ones: every dot is K, in each format that holds 1 exactly.
    for (w, act) in [(f, "f32"), (DType::BF16, "f32"), (DType::Q4_1, "q8"), (DType::Q8_0, "f32")] {
        let mut b = Build::new(f, &[3, 32], act).group(&[(w, 32)], identity(f));
        b.x.tensor = values(f, &[3, 32], &[1.0; 96]);
        b.weights[0].tensor = values(w, &[32, 32], &[1.0; 1024]);
        let c = b.case(format!("ones-{w}-{act}"), tolerance(f, 0.02, 0.0));
        all.push(expecting(c, &[&[32.0; 96]]));
    }
    // x = [1, 2], W = [[3, 4], [5, 6], [7, 8]]: x·Wᵀ = [11, 17, 23].
    let small = |expr| {
        let mut b = Build::new(f, &[1, 2], "f32").group(&[(f, 3)], expr);
        b.x.tensor = values(f, &[1, 2], &[1.0, 2.0]);
        b.weights[0].tensor = values(f, &[3, 2], &[3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        b
    };
    let c = small(identity(f)).case("by-hand", Tolerance::EXACT);
    all.push(expecting(c, &[&[11.0, 17.0, 23.0]]));
    let mut b = small(plus(f, DType::F16)).extra(f, &[3]);
    b.extras[0].tensor = values(f, &[3], &[0.5, -17.0, 1e6]);
    all.push(expecting(b.case("by-hand-bias", Tolerance::EXACT), &[&[11.5, 0.0, f64::INFINITY]]));
    // Codes of x are 127, 64 (63.5 ties to even) and 0: with weights 1 on all, 127 + 64.
    let mut b = Build::new(f, &[1, 32], "q8").group(&[(DType::Q4_0, 1)], identity(f));
    let mut x = [0.0; 32];
    (x[0], x[1], x[2]) = (127.0, 63.5, 0.5);
    b.x.tensor = values(f, &[1, 32], &x);
    let mut w = [1.0; 32];
    w[31] = -8.0;
    b.weights[0].tensor = values(DType::Q4_0, &[1, 32], &w);
    all.push(expecting(b.case("rounded-activations", tolerance(f, 1e-3, 0.0)), &[&[191.0]]));
    all
}

/// Weights that are inputs, and extreme activations.
fn inputs() -> Vec<Case> {
    let f = DType::F32;
    let mut all = Vec::new();
    for layout in [Layout::Dense, Layout::Rows, Layout::Strided] {
        for m in [1, 6] {
            let mut b = Build::new(f, &[m, 48], "f32").group(&[(f, 30)], identity(f));
            b.weights[0] = b.weights[0].clone().role(Role::Input).layout(layout);
            all.push(b.case(format!("weight-input-{layout:?}-m{m}"), bound(f, 48, 1.0)));
        }
    }
    for (w, unit) in BLOCKS {
        for act in ["f32", "q8", "q16"] {
            let k = 2 * unit.max(64);
            let mut b = Build::new(f, &[3, k], act).group(&[(w, 9)], identity(f));
            b.x.tensor = values(f, &[3, k], &vec![0.0; 3 * k]);
            let c = b.case(format!("zero-x-{w}-{act}"), Tolerance::EXACT);
            all.push(expecting(c, &[&[0.0; 27]]));
            // Blocks of very different size in one row.
            let mut n = Numbers::new(5);
            let mut b = Build::new(f, &[3, k], act).group(&[(w, 9)], identity(f));
            let mut i = 0usize;
            b.x.tensor = fill(f, &[3, k], || {
                i += 1;
                n.unit() * 10f64.powi((i / 32 % 4) as i32 * 2 - 3)
            });
            all.push(b.case(format!("wide-x-{w}-{act}"), bound(f, k, 1000.0)));
        }
    }
    all
}

/// Rows and weights of one 16-bit type, at and off the edges of the tiles of matrix units.
fn halves() -> Vec<Case> {
    let f = DType::F32;
    let mut all = Vec::new();
    for d in [DType::BF16, DType::F16] {
        for (m, n, k) in
            [(9, 40, 72), (129, 264, 200), (130, 70, 50), (64, 520, 512), (257, 8, 64), (0, 8, 64)]
        {
            all.push(single(d, "f32", &[m, k], n, d));
        }
        let b = |m: usize, k: usize| Build::new(d, &[m, k], "f32");
        let c = b(140, 256).group(&[(d, 130)], identity(f));
        all.push(c.case(format!("halves-{d}-f32"), bound(f, 256, 1.0)));
        let c = b(20, 256).group(&[(d, 136), (d, 136)], gated(d));
        all.push(c.case(format!("halves-{d}-gated"), bound(d, 256, 16.0)));
        let c = b(20, 256)
            .group(&[(d, 70)], identity(d))
            .group(&[(d, 16)], identity(d))
            .group(&[(d, 17)], identity(f));
        all.push(c.case(format!("halves-{d}-groups"), bound(d, 256, 1.0)));
        let c = b(130, 64).group(&[(d, 72)], plus(d, d)).extra(d, &[130, 72]);
        all.push(c.case(format!("halves-{d}-residual"), bound(d, 64, 1.0)));
        let c = b(20, 64).group(&[(d, 72)], plus(f, d)).extra(f, &[72]);
        all.push(c.case(format!("halves-{d}-bias"), bound(d, 64, 1.0)));
        let mut two = Expr::new(&[f, f]);
        let sum = two.push(ScalarOp::Add, &[0, 1]);
        two.output(sum, f);
        two.output(0, d);
        let c = b(20, 64).group(&[(d, 33)], Arc::new(two)).extra(f, &[20, 1]);
        let c = c.group(&[(d, 47), (d, 47)], gated(f));
        all.push(c.case(format!("halves-{d}-two-results"), bound(d, 64, 16.0)));
        for layout in [Layout::Rows, Layout::Strided] {
            let c = Build::new(d, &[2, 3, 10, 128], "f32").layout(layout).group(&[(d, 40)], identity(d));
            all.push(c.case(format!("halves-{d}-{layout:?}"), bound(d, 128, 1.0)));
            let mut c = b(12, 128).group(&[(d, 40)], identity(d));
            c.weights[0] = c.weights[0].clone().role(Role::Input).layout(layout);
            all.push(c.case(format!("halves-{d}-weight-{layout:?}"), bound(d, 128, 1.0)));
        }
    }
    all
}
