//! What stands before attention in a decoder: queries and keys normed and turned, keys and values written into the cache.

use frit_ir::dim::Dim;
use frit_ir::graph::{Graph, Node, Type, ValueId};
use frit_ir::op::{Case, CaseInput, InferCtx, Layout, Lowered, NodeCtx, OpError, Registry, Role, Tolerance};
use frit_ir::{Attrs, DType, OpDef, Tensor};

use crate::cases::{case_of, expecting, random, tolerance, values};
use crate::shapes::{operand, optional, same};
use crate::util::{FLOATS, cost_per_element, elements};

/// Operands, in order.
const KEYS: usize = 0;
const VALUES: usize = 1;
const Q: usize = 2;
const K: usize = 3;
const V: usize = 4;
const POSITIONS: usize = 5;
const FREQUENCIES: usize = 6;
const TABLE: usize = 7;
const Q_WEIGHT: usize = 8;
const K_WEIGHT: usize = 9;

/// The op `rotary_write_kv` {dims, style, factor, ring, eps, plus_one}: states keys `[P, KVH, S, D]` and values
/// `[P, KVH, S, DV]`, q `[B, T, H, D]`, k `[B, T, KVH, D]`, v `[B, T, KVH, DV]`, positions i32 `[B, T]`, inverse frequencies f32
/// `[dims/2]`, optional page table i32 `[B, pages]`, optional norm weights of q and k `[D]` (both or none), to (keys and
/// values with k and v written, q turned). With weights q and k go through `rms_norm` {eps, plus_one} first; both are turned as by
/// `rotary` {dims, style, factor}; k and v are written as by `write_kv` {ring}.
pub fn def() -> OpDef {
    OpDef {
        name: "rotary_write_kv",
        summary: "norms and turns queries and keys, and writes keys and values into a cache",
        infer,
        reference: None,
        expand: Some(expand),
        vjp: None,
        cost: |ctx| cost_per_element(ctx, 11),
        lower,
        view: None,
        updates: &[KEYS, VALUES],
        cases,
    }
}

/// Attributes of the op, as those of the ops that it stands for.
struct Parts {
    rotary: Attrs,
    write: Attrs,
    norm: Attrs,
}

fn read(attrs: &Attrs) -> Result<Parts, OpError> {
    attrs.only(&["dims", "style", "factor", "ring", "eps", "plus_one"])?;
    let eps = attrs.float("eps")?;
    if !(eps >= 0.0 && eps.is_finite()) {
        return Err(OpError::Value(format!("attribute `eps` is {eps}; it must be finite and not negative")));
    }
    let style = attrs.str("style")?;
    let rotary = Attrs::new().with("dims", attrs.int("dims")?).with("style", &*style);
    let rotary = rotary.with("factor", attrs.float("factor")?);
    crate::rotary::read(&rotary)?;
    Ok(Parts {
        rotary,
        write: Attrs::new().with("ring", attrs.bool("ring")?),
        norm: Attrs::new().with("eps", eps).with("plus_one", attrs.bool("plus_one")?),
    })
}

fn infer(ctx: &mut InferCtx) -> Result<Vec<Type>, OpError> {
    let parts = read(ctx.attrs)?;
    ctx.arity(7, 10)?;
    let keys = operand(ctx, KEYS, FLOATS, &["P", "KVH", "S", "D"])?;
    let values = operand(ctx, VALUES, FLOATS, &["P", "KVH", "S", "DV"])?;
    let q = operand(ctx, Q, FLOATS, &["B", "T", "H", "D"])?;
    let k = operand(ctx, K, FLOATS, &["B", "T", "KVH", "D"])?;
    let v = operand(ctx, V, FLOATS, &["B", "T", "KVH", "DV"])?;
    let positions = operand(ctx, POSITIONS, &[DType::I32], &["B", "T"])?;
    let frequencies = operand(ctx, FREQUENCIES, &[DType::F32], &["dims/2"])?;
    let table = optional(ctx, TABLE, &[DType::I32], &["B", "pages"])?;
    for i in 0..3 {
        ctx.require_equal(&values.shape[i], &keys.shape[i], "states of keys and values")?;
    }
    for (new, what) in [(&k, "q and k, B and T"), (&v, "q and v, B and T")] {
        ctx.require_equal(&new.shape[0], &q.shape[0], what)?;
        ctx.require_equal(&new.shape[1], &q.shape[1], what)?;
        ctx.require_equal(&new.shape[2], &keys.shape[1], "states and new rows, heads")?;
    }
    ctx.require_equal(&q.shape[3], &k.shape[3], "q and k, head dimension")?;
    ctx.require_equal(&k.shape[3], &keys.shape[3], "keys and k, head dimension")?;
    ctx.require_equal(&v.shape[3], &values.shape[3], "values and v, head dimension")?;
    same(ctx, &positions.shape, &q.shape[..2], "positions")?;
    let dims = parts.rotary.int("dims")?;
    ctx.require_at_most(&Dim::from(dims), &q.shape[3], "attribute `dims` and the head dimension")?;
    same(ctx, &frequencies.shape, &[Dim::from(dims / 2)], "inverse frequencies")?;
    match table {
        Some(_) if parts.write.bool("ring")? => {
            return Err(OpError::Value("a ring has no page table".into()));
        }
        Some(t) => ctx.require_equal(&t.shape[0], &q.shape[0], "table and q, B")?,
        None => ctx.require_equal(&keys.shape[0], &q.shape[0], "pages of the states and q, B")?,
    }
    let weights = [Q_WEIGHT, K_WEIGHT].map(|i| optional(ctx, i, FLOATS, &["D"]));
    let [of_q, of_k] = weights;
    let (of_q, of_k) = (of_q?, of_k?);
    if of_q.is_some() != of_k.is_some() {
        return Err(OpError::Value("q and k must both have a norm weight, or neither".into()));
    }
    for w in [of_q, of_k].into_iter().flatten() {
        same(ctx, &w.shape, &q.shape[3..], "norm weight")?;
    }
    Ok(vec![keys.clone(), values.clone(), q.clone()])
}

fn lower(ctx: &NodeCtx) -> Result<Lowered, OpError> {
    let a = ctx.attrs;
    let interleaved = &*a.str("style")? == "interleaved";
    Ok(Lowered::default()
        .int("dims", a.int("dims")?)
        .int("interleaved", i64::from(interleaved))
        .float("factor", a.float("factor")?)
        .int("ring", i64::from(a.bool("ring")?))
        .float("eps", a.float("eps")?)
        .int("plus_one", i64::from(a.bool("plus_one")?))
        .int("elements", elements(ctx)))
}

fn expand(g: &mut Graph, r: &Registry, node: &Node, inputs: &[ValueId]) -> Result<Vec<ValueId>, OpError> {
    let parts = read(&node.attrs)?;
    let given = |i: usize| inputs.get(i).copied().unwrap_or(ValueId::NONE);
    let turn = |g: &mut Graph, x: usize, weight: usize, name: &str| -> Result<ValueId, OpError> {
        let mut v = given(x);
        if !given(weight).is_none() {
            v = g.push(r, "rms_norm", parts.norm.clone(), &[v, given(weight)], &[])?[0];
        }
        let operands = [v, given(POSITIONS), given(FREQUENCIES)];
        Ok(g.push(r, "rotary", parts.rotary.clone(), &operands, &[name])?[0])
    };
    let q = turn(g, Q, Q_WEIGHT, "q")?;
    let k = turn(g, K, K_WEIGHT, "k")?;
    let mut written = Vec::new();
    for (state, new) in [(KEYS, k), (VALUES, given(V))] {
        let operands = [given(state), new, given(POSITIONS), given(TABLE)];
        written.push(g.push(r, "write_kv", parts.write.clone(), &operands, &[])?[0]);
    }
    written.push(q);
    Ok(written)
}

/// One case.
struct Step {
    /// Type of the states and their pages and slots.
    cache: (DType, usize, usize),
    /// Type of q, k and v.
    new: DType,
    /// Query heads and key heads.
    heads: (usize, usize),
    /// Elements of a query or key, how many of them turn, elements of a value.
    widths: (usize, usize, usize),
    style: &'static str,
    /// Type of the norm weights, and whether they stand for 1 more.
    norm: Option<(DType, bool)>,
    ring: bool,
    layout: Layout,
    /// Positions of each row.
    at: &'static [&'static [i32]],
    table: Option<&'static [&'static [i32]]>,
}

const PLAIN: Step = Step {
    cache: (DType::F32, 2, 8),
    new: DType::F32,
    heads: (4, 2),
    widths: (16, 16, 16),
    style: "half",
    norm: Some((DType::F32, false)),
    ring: false,
    layout: Layout::Dense,
    at: &[&[0, 1, 2], &[5, 6, 7]],
    table: None,
};

fn ints(rows: &[&[i32]]) -> Tensor {
    let v: Vec<f64> = rows.iter().flat_map(|r| r.iter().map(|v| f64::from(*v))).collect();
    values(DType::I32, &[rows.len(), rows.first().map_or(0, |r| r.len())], &v)
}

fn attrs(dims: usize, style: &str, ring: bool, plus_one: bool) -> Attrs {
    let rotary = Attrs::new().with("dims", dims as i64).with("style", style).with("factor", 1.0);
    rotary.with("ring", ring).with("eps", 1e-6).with("plus_one", plus_one)
}

impl Step {
    fn case(&self, name: impl Into<String>) -> Case {
        let (d, dims, dv) = self.widths;
        let (dtype, pages, slots) = self.cache;
        let (b, t) = (self.at.len(), self.at[0].len());
        let state = |width, seed| {
            let x = random(dtype, &[pages, self.heads.1, slots, width], seed);
            Some(CaseInput::new(x).role(Role::State))
        };
        let new = |heads, width, seed| {
            let x = random(self.new, &[b, t, heads, width], seed);
            Some(CaseInput::new(x).layout(self.layout))
        };
        let places = |rows| Some(CaseInput::new(ints(rows)).layout(self.layout));
        let angles: Vec<f64> = (0..dims / 2).map(|i| 1e4f64.powf(-2.0 * i as f64 / dims as f64)).collect();
        let mut inputs = vec![
            state(d, 60),
            state(dv, 61),
            new(self.heads.0, d, 62),
            new(self.heads.1, d, 63),
            new(self.heads.1, dv, 64),
            places(self.at),
            Some(CaseInput::new(values(DType::F32, &[dims / 2], &angles))),
            self.table.and_then(places),
        ];
        if let Some((w, _)) = self.norm {
            inputs.extend([65, 66].map(|seed| Some(CaseInput::new(random(w, &[d], seed)))));
        }
        let plus_one = self.norm.is_some_and(|(_, p)| p);
        // A kernel rounds once where the parts round q and k in between.
        let rounded = match self.new {
            DType::F32 => Tolerance { abs: 4e-6, rel: 2e-5 },
            d => tolerance(d, 4.0 * tolerance(d, 0.0, 0.0).rel, 0.0),
        };
        let tolerance = tolerance(dtype, rounded.abs, rounded.rel);
        case_of(name, attrs(dims, self.style, self.ring, plus_one), inputs, tolerance)
    }
}

fn cases() -> Vec<Case> {
    let mut all = vec![PLAIN.case("plain"), Step { norm: None, ..PLAIN }.case("no-norm")];
    for state in crate::cases::FLOATS {
        for new in crate::cases::FLOATS {
            let s = Step { cache: (state, 2, 8), new, ..PLAIN };
            all.push(s.case(format!("{new}-to-{state}")));
            let s = Step { layout: Layout::Rows, norm: Some((new, true)), widths: (64, 64, 64), ..s };
            all.push(s.case(format!("{new}-to-{state}-plus-one")));
            all.push(
                Step { norm: None, layout: Layout::Dense, ..s }.case(format!("{new}-to-{state}-no-norm")),
            );
        }
    }
    for style in ["half", "interleaved"] {
        for d in [2, 6, 30, 32, 64, 96, 128, 130, 256, 320, 576] {
            let s = Step { widths: (d, d, d), style, ..PLAIN };
            all.push(s.case(format!("{style}-d{d}")));
        }
        for (d, dims, dv) in [(16, 8, 5), (80, 20, 80), (7, 2, 33), (96, 64, 128), (33, 32, 1)] {
            let s = Step { widths: (d, dims, dv), style, ..PLAIN };
            all.push(s.case(format!("{style}-{dims}-of-{d}-values-{dv}")));
        }
        for layout in [Layout::Rows, Layout::Strided] {
            all.push(Step { layout, style, ..PLAIN }.case(format!("{style}-{layout:?}")));
        }
    }
    for heads in [(1, 1), (7, 1), (16, 8), (3, 3)] {
        all.push(Step { heads, ..PLAIN }.case(format!("heads-{}-{}", heads.0, heads.1)));
    }
    // Without queries keys and values are written all the same.
    all.push(Step { heads: (0, 2), ..PLAIN }.case("heads-0-2"));
    all.push(Step { at: &[&[4], &[0]], ..PLAIN }.case("one-token"));
    all.push(Step { at: &[&[], &[]], ..PLAIN }.case("no-token"));
    all.push(Step { at: &[&[7, 0, 3, 2, 6], &[1, 0, 7, 4, 2]], ..PLAIN }.case("any-order"));
    all.push(Step { at: &[&[-1, 8, 3], &[i32::MIN, i32::MAX, 7]], ..PLAIN }.case("out-of-range"));
    let ring = Step { ring: true, ..PLAIN };
    all.push(Step { at: &[&[8, 9, 10], &[6, 7, 8]], ..ring }.case("ring"));
    all.push(Step { at: &[&[100, -8, 101], &[-1, 7, 2000]], ..ring }.case("ring-far"));
    let table: &[&[i32]] = &[&[4, 0, 2], &[1, 3, -1]];
    let paged = Step { cache: (DType::F32, 5, 4), table: Some(table), ..PLAIN };
    all.push(Step { at: &[&[0, 3, 4, 11], &[7, 4, 1, 2]], ..paged }.case("table"));
    all.push(
        Step { at: &[&[12, -1, 8, 7], &[8, 9, 3, 6]], layout: Layout::Rows, ..paged }.case("table-Rows"),
    );
    let bad: &[&[i32]] = &[&[5, i32::MAX, 0], &[i32::MIN, 2, 4]];
    all.push(Step { at: &[&[0, 4, 8], &[0, 4, 8]], table: Some(bad), ..paged }.case("table-of-bad-pages"));
    all.push(quarter_turns());
    all
}

/// Turned by π/2, (a, b) is (−b, a); the values are written as they are. The second position has no slot.
fn quarter_turns() -> Case {
    let quarter = values(DType::F32, &[1], &[std::f64::consts::FRAC_PI_2]);
    let state = |v: &[f64]| CaseInput::new(values(DType::F32, &[1, 1, 2, 2], v)).role(Role::State);
    let new = |v: &[f64]| CaseInput::new(values(DType::F32, &[1, 2, 1, 2], v));
    let inputs = vec![
        Some(state(&[9.0, 8.0, 7.0, 6.0])),
        Some(state(&[5.0, 4.0, 3.0, 2.0])),
        Some(new(&[1.0, 2.0, 0.5, 3.0])),
        Some(new(&[3.0, 4.0, 1.0, 1.0])),
        Some(new(&[5.0, 6.0, 7.0, 8.0])),
        Some(CaseInput::new(ints(&[&[1, 4]]))),
        Some(CaseInput::new(quarter)),
    ];
    let c =
        case_of("quarter-turn", attrs(2, "half", false, false), inputs, Tolerance { abs: 1e-5, rel: 0.0 });
    expecting(c, &[&[9.0, 8.0, -4.0, 3.0], &[5.0, 4.0, 5.0, 6.0], &[-2.0, 1.0, 0.5, 3.0]])
}
