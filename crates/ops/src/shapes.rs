//! Checks of operand shapes that the ops on rows (linear, norms, rotary, attention) share.

use frit_ir::DType;
use frit_ir::dim::Dim;
use frit_ir::graph::{Shape, Type};
use frit_ir::op::{InferCtx, OpError};

use crate::util::{dtype_of, show};

/// Operand `i`, required to have one of the types `allowed` and as many dimensions as `form` names.
pub(crate) fn operand<'a>(
    ctx: &InferCtx<'a>,
    i: usize,
    allowed: &[DType],
    form: &[&str],
) -> Result<&'a Type, OpError> {
    dtype_of(ctx, i, allowed)?;
    let ty = ctx.ty(i)?;
    if ty.rank() != form.len() {
        let form = form.join(", ");
        return Err(OpError::Shape(format!("operand {i} is {ty}; its shape must be [{form}]")));
    }
    Ok(ty)
}

/// As [`operand`], for an operand that may be left out.
pub(crate) fn optional<'a>(
    ctx: &InferCtx<'a>,
    i: usize,
    allowed: &[DType],
    form: &[&str],
) -> Result<Option<&'a Type>, OpError> {
    ctx.optional(i).map(|_| operand(ctx, i, allowed, form)).transpose()
}

/// Requires the shape `of` to be `want`, dimension by dimension.
pub(crate) fn same(ctx: &mut InferCtx, of: &Shape, want: &[Dim], what: &str) -> Result<(), OpError> {
    if of.len() != want.len() {
        let want = show(&want.into());
        return Err(OpError::Shape(format!("{what} is {}; it must be {want}", show(of))));
    }
    for (i, (a, b)) in of.iter().zip(want).enumerate() {
        ctx.require_equal(a, b, &format!("{what}, dimension {i}"))?;
    }
    Ok(())
}

/// Requires the shape `of` to broadcast to `want`: no more dimensions, each 1 or equal.
pub(crate) fn broadcasts(ctx: &mut InferCtx, of: &Shape, want: &[Dim], what: &str) -> Result<(), OpError> {
    if of.len() > want.len() {
        let want = show(&want.into());
        return Err(OpError::Shape(format!("{what} is {}; it must broadcast to {want}", show(of))));
    }
    let lead = want.len() - of.len();
    for (i, (a, b)) in of.iter().zip(&want[lead..]).enumerate() {
        if ctx.symbols.interval(a) != (1, 1) {
            ctx.require_equal(a, b, &format!("{what}, dimension {i}, must be 1 or fit"))?;
        }
    }
    Ok(())
}

/// Requires `d` to be a multiple of `by`.
pub(crate) fn multiple(ctx: &mut InferCtx, d: &Dim, by: &Dim, what: &str) -> Result<(), OpError> {
    if by.as_const().is_some_and(|v| v <= 0) {
        return Err(OpError::Shape(format!("{what}: {d} cannot be a multiple of {by}")));
    }
    let whole = d.floor_div(by) * by.clone();
    ctx.require_equal(d, &whole, &format!("{what}: {d} must be a multiple of {by}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use frit_ir::{Attrs, Symbols};

    fn with<T>(s: &Symbols, f: impl FnOnce(&mut InferCtx) -> T) -> (T, usize) {
        let attrs = Attrs::new();
        let mut ctx = InferCtx::new(&attrs, &[], s);
        let r = f(&mut ctx);
        (r, ctx.into_guards().len())
    }

    #[test]
    fn what_is_unknown_becomes_a_guard() {
        let mut s = Symbols::default();
        let t = s.declare("T", 1, 64).unwrap();
        let (four, two) = (Dim::from(4i64), Dim::from(2i64));
        assert_eq!(with(&s, |c| multiple(c, &four, &two, "x")), (Ok(()), 0));
        assert!(with(&s, |c| multiple(c, &Dim::from(5i64), &two, "x")).0.is_err());
        assert!(with(&s, |c| multiple(c, &four, &Dim::from(0i64), "x")).0.is_err());
        assert_eq!(with(&s, |c| multiple(c, &t, &four, "x")), (Ok(()), 1));
        let want = [t.clone(), four.clone()];
        let shape: Shape = [Dim::from(1i64), four.clone()].into_iter().collect();
        assert_eq!(with(&s, |c| broadcasts(c, &shape, &want, "x")), (Ok(()), 0));
        let shape: Shape = [two].into_iter().collect();
        assert!(with(&s, |c| broadcasts(c, &shape, &want, "x")).0.is_err());
    }
}
