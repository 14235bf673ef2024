//! The write of new keys or values into a cache: the one op that changes a state.

use frit_ir::dim::Dim;
use frit_ir::graph::Type;
use frit_ir::op::{
    Case, CaseInput, Cost, InferCtx, Layout, Lowered, NodeCtx, OpError, RefCtx, Role, Tolerance,
};
use frit_ir::{Attrs, DType, OpDef, Tensor};

use crate::cases::{case_of, expecting, random, values};
use crate::shapes::{operand, optional};
use crate::util::{FLOATS, elements};

/// The op `write_kv` {ring}: state `[P, KVH, S, D]`, value `[B, T, KVH, D]` (any float type, rounded to the state's), positions
/// i32 `[B, T]`, optional page table i32 `[B, pages]`, to the state's next version. Position p of row b goes to slot p of page b
/// (P = B then), to slot p mod S with `ring`, or with a table to slot p mod S of page `table[b, p / S]`. A position or a
/// page that is negative or out of range writes nothing. The places written by one call must differ; which of two values
/// for one place stays is not defined.
pub fn def() -> OpDef {
    OpDef {
        name: "write_kv",
        summary: "writes rows of a value into the pages of a cache at given positions",
        infer,
        reference: Some(reference),
        expand: None,
        vjp: None,
        cost: |ctx| {
            let moved = ctx.inputs.iter().skip(1).flatten().map(|t| t.bytes()).chain(written(ctx));
            Cost { flops: Dim::from(0i64), bytes: moved.fold(Dim::from(0i64), |a, b| a + b) }
        },
        lower: |ctx: &NodeCtx| {
            let ring = i64::from(ctx.attrs.bool("ring")?);
            Ok(Lowered::default().int("ring", ring).int("elements", elements(ctx)))
        },
        view: None,
        updates: &[0],
        cases,
    }
}

/// Bytes written: as many elements as the value has, in the state's type.
fn written(ctx: &NodeCtx) -> Option<Dim> {
    let value = ctx.inputs.get(1).copied().flatten()?;
    Some(Type { dtype: ctx.outputs[0].dtype, shape: value.shape.clone() }.bytes())
}

fn infer(ctx: &mut InferCtx) -> Result<Vec<Type>, OpError> {
    ctx.attrs.only(&["ring"])?;
    let ring = ctx.attrs.bool("ring")?;
    ctx.arity(3, 4)?;
    let state = operand(ctx, 0, FLOATS, &["P", "KVH", "S", "D"])?;
    let value = operand(ctx, 1, FLOATS, &["B", "T", "KVH", "D"])?;
    let positions = operand(ctx, 2, &[DType::I32], &["B", "T"])?;
    let table = optional(ctx, 3, &[DType::I32], &["B", "pages"])?;
    ctx.require_equal(&state.shape[1], &value.shape[2], "state and value, heads")?;
    ctx.require_equal(&state.shape[3], &value.shape[3], "state and value, head dimension")?;
    ctx.require_equal(&positions.shape[0], &value.shape[0], "positions and value, B")?;
    ctx.require_equal(&positions.shape[1], &value.shape[1], "positions and value, T")?;
    match table {
        Some(_) if ring => return Err(OpError::Value("a ring has no page table".into())),
        Some(t) => ctx.require_equal(&t.shape[0], &value.shape[0], "table and value, B")?,
        None => ctx.require_equal(&state.shape[0], &value.shape[0], "pages of the state and value, B")?,
    }
    Ok(vec![state.clone()])
}

/// Page and slot of position `p` of row `b`, if there is such a place.
fn place(p: i64, b: usize, state: &[usize], ring: bool, table: Option<&[i64]>) -> Option<(usize, usize)> {
    let (pages, slots) = (state[0], state[2]);
    let p = usize::try_from(p).ok().filter(|_| slots > 0)?;
    let (page, slot) = match table {
        Some(t) => (usize::try_from(*t.get(p / slots)?).ok()?, p % slots),
        None if ring => (b, p % slots),
        None => (b, p),
    };
    (page < pages && slot < slots).then_some((page, slot))
}

fn reference(ctx: &RefCtx) -> Result<Vec<Tensor>, OpError> {
    let ring = ctx.attrs.bool("ring")?;
    let (state, value) = (ctx.input(0)?, ctx.input(1)?);
    let (v, positions) = (value.to_f64()?, ctx.input(2)?.to_i64()?);
    let table = ctx.optional(3).map(|t| Ok::<_, OpError>((t.to_i64()?, t.shape()[1]))).transpose()?;
    let (tokens, heads, d) = (value.shape()[1], value.shape()[2], value.shape()[3]);
    let mut out = state.to_f64()?;
    for (i, p) in positions.iter().enumerate() {
        let b = i / tokens;
        let row = table.as_ref().map(|(t, pages)| &t[b * pages..(b + 1) * pages]);
        let Some((page, slot)) = place(*p, b, state.shape(), ring, row) else { continue };
        for h in 0..heads {
            let to = ((page * heads + h) * state.shape()[2] + slot) * d;
            let from = (i * heads + h) * d;
            out[to..to + d].copy_from_slice(&v[from..from + d]);
        }
    }
    Ok(vec![ctx.result(0, &out)?])
}

/// One case.
struct Write<'a> {
    state: (DType, [usize; 4]),
    value: DType,
    layout: Layout,
    /// Layout of positions and table.
    places: Layout,
    ring: bool,
    /// Positions of each row; all rows have the same length.
    at: &'a [&'a [i32]],
    table: Option<&'a [&'a [i32]]>,
}

fn ints(rows: &[&[i32]]) -> Tensor {
    let v: Vec<f64> = rows.iter().flat_map(|r| r.iter().map(|v| f64::from(*v))).collect();
    values(DType::I32, &[rows.len(), rows.first().map_or(0, |r| r.len())], &v)
}

impl Write<'_> {
    fn case(&self, name: impl Into<String>) -> Case {
        let (dtype, shape) = self.state;
        let at = ints(self.at);
        let value = random(self.value, &[self.at.len(), at.shape()[1], shape[1], shape[3]], 42);
        let inputs = vec![
            Some(CaseInput::new(random(dtype, &shape, 41)).role(Role::State)),
            Some(CaseInput::new(value).layout(self.layout)),
            Some(CaseInput::new(at).layout(self.places)),
            self.table.map(|t| CaseInput::new(ints(t)).layout(self.places)),
        ];
        case_of(name, Attrs::new().with("ring", self.ring), inputs, Tolerance::EXACT)
    }
}

fn cases() -> Vec<Case> {
    let plain = Write {
        state: (DType::F32, [2, 2, 8, 16]),
        value: DType::F32,
        layout: Layout::Dense,
        places: Layout::Dense,
        ring: false,
        at: &[&[0, 1, 2], &[5, 6, 7]],
        table: None,
    };
    let mut all = vec![plain.case("two-rows")];
    let outside: &[&[i32]] = &[&[-1, 8, 3], &[i32::MIN, i32::MAX, 7]];
    all.push(Write { at: outside, ..plain }.case("out-of-range"));
    all.push(Write { at: &[&[4], &[0]], ..plain }.case("one-token"));
    all.push(Write { at: &[&[], &[]], ..plain }.case("no-token"));
    all.push(Write { at: &[&[7, 0, 3, 2, 6], &[1, 0, 7, 4, 2]], ..plain }.case("any-order"));
    for state in crate::cases::FLOATS {
        for value in crate::cases::FLOATS {
            for d in [1, 15, 64, 80] {
                let w = Write { state: (state, [2, 3, 8, d]), value, ..plain };
                all.push(w.case(format!("{value}-to-{state}-d{d}")));
            }
            for layout in [Layout::Rows, Layout::Strided] {
                let w = Write { state: (state, [2, 3, 8, 20]), value, layout, ..plain };
                all.push(w.case(format!("{value}-to-{state}-{layout:?}")));
            }
        }
    }
    let ring = Write { ring: true, ..plain };
    all.push(Write { at: &[&[8, 9, 10], &[6, 7, 8]], ..ring }.case("ring"));
    all.push(Write { at: &[&[1000, -8, 1001], &[-1, 7, 2_000_000_000]], ..ring }.case("ring-far"));
    let table: &[&[i32]] = &[&[4, 0, 2], &[1, 3, -1]];
    let paged = Write { state: (DType::F32, [5, 2, 4, 16]), table: Some(table), ..plain };
    all.push(Write { at: &[&[0, 3, 4, 11], &[7, 4, 1, 2]], ..paged }.case("table"));
    all.push(Write { at: &[&[12, -1, 8, 7], &[8, 9, 3, 6]], ..paged }.case("table-out-of-range"));
    let bad: &[&[i32]] = &[&[5, i32::MAX, 0], &[i32::MIN, 2, 4]];
    all.push(Write { at: &[&[0, 4, 8], &[0, 4, 8]], table: Some(bad), ..paged }.case("table-of-bad-pages"));
    for places in [Layout::Rows, Layout::Strided] {
        let w = Write { at: &[&[0, 3, 4, 11], &[7, 4, 1, 2]], places, ..paged };
        all.push(w.case(format!("table-{places:?}")));
    }
    let halves = Write { state: (DType::F16, [5, 2, 4, 16]), ..paged };
    all.push(Write { at: &[&[0, 3, 4, 11], &[7, 4, 1, 2]], ..halves }.case("table-f16"));
    all.push(rounding());
    all
}

/// 2049 lies between two f16 values and goes to the even one; 1e6 is too large.
fn rounding() -> Case {
    let inputs = vec![
        Some(
            CaseInput::new(values(DType::F16, &[1, 1, 3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
                .role(Role::State),
        ),
        Some(CaseInput::new(values(DType::F32, &[1, 2, 1, 2], &[2049.0, 2051.0, 1e6, -0.1]))),
        Some(CaseInput::new(ints(&[&[2, 0]]))),
    ];
    let c = case_of("rounding", Attrs::new().with("ring", false), inputs, Tolerance::EXACT);
    expecting(c, &[&[f64::INFINITY, -0.099_975_585_937_5, 3.0, 4.0, 2048.0, 2052.0]])
}
