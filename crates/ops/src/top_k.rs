//! `top_k`: the `k` largest or smallest elements along an axis, and where they came from. What comes out is the beginning of
//! what `sort` gives, descending for the largest and ascending for the smallest.

use frit_ir::op::InferCtx;
use frit_ir::{Attrs, OpDef};

use crate::ranking;

/// The op.
pub fn def() -> OpDef {
    OpDef {
        name: "top_k",
        summary: "the `k` largest elements along `axis`, without `largest` the smallest, in order, and their i32 indices",
        infer: |ctx: &mut InferCtx| {
            ctx.attrs.only(&["axis", "k", "largest"])?;
            ctx.attrs.bool("largest")?;
            let k = ctx.attrs.dim("k")?;
            ranking::infer(ctx, Some(k))
        },
        reference: Some(|ctx| ranking::reference(ctx, ctx.attrs.bool("largest")?)),
        expand: None,
        vjp: None,
        cost: ranking::cost,
        lower: |ctx| ranking::lower(ctx, ctx.attrs.bool("largest")?),
        view: None,
        updates: &[],
        cases: || ranking::cases(attrs, counts),
    }
}

fn attrs(axis: i64, k: usize, largest: bool) -> Attrs {
    Attrs::new().with("axis", axis).with("k", k as i64).with("largest", largest)
}

/// Nothing, one, a few, most and all of `n` elements, each count once.
fn counts(n: usize) -> Vec<usize> {
    let mut all = vec![0, 1.min(n), 5.min(n), n - n / 4, n];
    all.sort_unstable();
    all.dedup();
    all
}
