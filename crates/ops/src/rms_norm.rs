//! RMS norm (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019).

use frit_ir::op::{Case, Cost};
use frit_ir::{Attrs, DType, OpDef};

use crate::cases::{case, expecting, random, values};
use crate::norm::{self, Kind, Norm, bound};
use crate::util::cost_per_element;

/// The op `rms_norm` {eps, plus_one}: x `[..., D]`, optional weight `[D]`, optional bias `[D]`, each of any float type, to x's type:
/// x / √(mean(x²) + eps) · (weight, or 1 + weight if `plus_one`) + bias.
pub fn def() -> OpDef {
    OpDef {
        name: "rms_norm",
        summary: "divides each row by its root mean square, then scales and shifts it",
        infer: |ctx| {
            ctx.attrs.only(&["eps", "plus_one"])?;
            Norm::read(Kind::Rms, ctx.attrs, true)?;
            Ok(vec![norm::infer(ctx, 1)?])
        },
        reference: Some(|ctx| Norm::read(Kind::Rms, ctx.attrs, true)?.reference(ctx)),
        expand: None,
        vjp: None,
        cost: |ctx| -> Cost { cost_per_element(ctx, 5) },
        lower: |ctx| Ok(Norm::read(Kind::Rms, ctx.attrs, true)?.lowered(ctx)),
        view: None,
        updates: &[],
        cases,
    }
}

fn attrs(eps: f64, plus_one: bool) -> Attrs {
    Attrs::new().with("eps", eps).with("plus_one", plus_one)
}

fn cases() -> Vec<Case> {
    let mut all = norm::cases(&attrs(1e-5, false));
    for d in crate::cases::FLOATS {
        let (x, w) = (random(d, &[3, 65], 20), random(DType::F32, &[65], 21));
        all.push(case(format!("plus-one-{d}"), attrs(1e-6, true), &[&x, &w], bound(d)));
    }
    all.push(case(
        "plus-one-plain",
        attrs(1e-6, true),
        &[&random(DType::F32, &[2, 9], 22)],
        bound(DType::F32),
    ));
    // The root mean square of 3 and 4 is √12.5.
    let (x, w) = (values(DType::F32, &[1, 2], &[3.0, 4.0]), values(DType::F32, &[2], &[1.0, 2.0]));
    let r = 12.5f64.sqrt();
    let c = case("three-four", attrs(0.0, false), &[&x, &w], bound(DType::F32));
    all.push(expecting(c, &[&[3.0 / r, 8.0 / r]]));
    let c = case("three-four-plus-one", attrs(0.0, true), &[&x, &w], bound(DType::F32));
    all.push(expecting(c, &[&[6.0 / r, 12.0 / r]]));
    let zero = values(DType::F32, &[2, 5], &[0.0; 10]);
    all.push(expecting(case("zeros", attrs(1e-5, false), &[&zero], bound(DType::F32)), &[&[0.0; 10]]));
    all
}
