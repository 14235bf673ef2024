//! `sort`: every row along an axis in order, and where its elements came from. The order is that of `ranking`.

use frit_ir::op::InferCtx;
use frit_ir::{Attrs, OpDef};

use crate::ranking;

/// The op.
pub fn def() -> OpDef {
    OpDef {
        name: "sort",
        summary: "the elements along `axis` in order, and their i32 indices; ties by the lower index, NaN above every number",
        infer: |ctx: &mut InferCtx| {
            ctx.attrs.only(&["axis", "descending"])?;
            ctx.attrs.bool("descending")?;
            ranking::infer(ctx, None)
        },
        reference: Some(|ctx| ranking::reference(ctx, ctx.attrs.bool("descending")?)),
        expand: None,
        vjp: None,
        cost: ranking::cost,
        lower: |ctx| ranking::lower(ctx, ctx.attrs.bool("descending")?),
        view: None,
        updates: &[],
        cases: || ranking::cases(attrs, |n| vec![n]),
    }
}

fn attrs(axis: i64, _: usize, descending: bool) -> Attrs {
    Attrs::new().with("axis", axis).with("descending", descending)
}
