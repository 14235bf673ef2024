//! Layer norm (Ba, Kiros and Hinton, "Layer Normalization", 2016), with the variance taken in a second pass.

use frit_ir::op::{Case, Cost};
use frit_ir::{Attrs, DType, OpDef};

use crate::cases::{case, expecting, tolerance, values};
use crate::norm::{self, Kind, Norm, bound};
use crate::util::cost_per_element;

/// The op `layer_norm` {eps}: x `[..., D]`, optional weight `[D]`, optional bias `[D]`, each of any float type, to x's type:
/// (x − mean) / √(variance + eps) · weight + bias, the variance being the mean of (x − mean)².
pub fn def() -> OpDef {
    OpDef {
        name: "layer_norm",
        summary: "centres each row, divides it by its standard deviation, then scales and shifts it",
        infer: |ctx| {
            ctx.attrs.only(&["eps"])?;
            Norm::read(Kind::Layer, ctx.attrs, false)?;
            Ok(vec![norm::infer(ctx, 1)?])
        },
        reference: Some(|ctx| Norm::read(Kind::Layer, ctx.attrs, false)?.reference(ctx)),
        expand: None,
        vjp: None,
        cost: |ctx| -> Cost { cost_per_element(ctx, 7) },
        lower: |ctx| Ok(Norm::read(Kind::Layer, ctx.attrs, false)?.lowered(ctx)),
        view: None,
        updates: &[],
        cases,
    }
}

fn cases() -> Vec<Case> {
    let attrs = |eps: f64| Attrs::new().with("eps", eps);
    let mut all = norm::cases(&attrs(1e-5));
    // Values close together far from zero: E[x²] − E[x]² would lose the variance. The mean itself, rounded to f32, is off
    // by up to 1e-5 here, a five-hundredth of the deviation.
    let x: Vec<f64> = (0..16).map(|i| 100.0 + f64::from(i) * 1e-3).collect();
    let want: Vec<f64> = (0..16).map(|i| (f64::from(i) - 7.5) * 1e-3 / (2.125e-5f64 + 1e-5).sqrt()).collect();
    let t = values(DType::F32, &[1, 16], &x);
    let c = case("close-together", attrs(1e-5), &[&t], tolerance(DType::F32, 4e-3, 0.0));
    all.push(expecting(c, &[&want]));
    let t = values(DType::F32, &[1, 4], &[40000.0, 40001.0, 40002.0, 40003.0]);
    let s = 1.250_01f64.sqrt();
    let want = [-1.5 / s, -0.5 / s, 0.5 / s, 1.5 / s];
    all.push(expecting(case("near-40000", attrs(1e-5), &[&t], bound(DType::F32)), &[&want]));
    let t = values(DType::F32, &[1, 4], &[9.9e-4, -9.9e-4, 9.9e-4, -9.9e-4]);
    let c = case("small-with-small-eps", attrs(1e-12), &[&t], tolerance(DType::F32, 2e-6, 0.0));
    all.push(expecting(c, &[&[1.0, -1.0, 1.0, -1.0]]));
    for d in crate::cases::FLOATS {
        let t = values(d, &[2, 3], &[7.0; 6]);
        all.push(expecting(case(format!("constant-{d}"), attrs(1e-5), &[&t], bound(d)), &[&[0.0; 6]]));
    }
    all
}
