//! What RMS norm, layer norm and the residual norm share: attributes, shapes, the arithmetic of a row and case inputs.

use frit_ir::graph::Type;
use frit_ir::op::{Case, CaseInput, InferCtx, Layout, Lowered, NodeCtx, OpError, RefCtx, Tolerance};
use frit_ir::{Attrs, DType, Tensor};

use crate::cases::{Numbers, case, case_of, fill, random, tolerance};
use crate::shapes::{optional, same};
use crate::util::{FLOATS, dtype_of, elements};

/// The two norms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// x / √(mean(x²) + eps).
    Rms,
    /// (x − mean) / √(variance + eps), the variance in a second pass.
    Layer,
}

/// The attributes of a norm.
pub(crate) struct Norm {
    pub(crate) kind: Kind,
    pub(crate) eps: f64,
    pub(crate) plus_one: bool,
}

impl Norm {
    /// Reads `eps`, and `plus_one` where the attributes of `kind` hold it.
    pub(crate) fn read(kind: Kind, attrs: &Attrs, plus_one: bool) -> Result<Norm, OpError> {
        let eps = attrs.float("eps")?;
        if !(eps >= 0.0 && eps.is_finite()) {
            return Err(OpError::Value(format!(
                "attribute `eps` is {eps}; it must be finite and not negative"
            )));
        }
        let plus_one = plus_one && attrs.bool("plus_one")?;
        Ok(Norm { kind, eps, plus_one })
    }

    /// Parameters of kernel rows.
    pub(crate) fn lowered(&self, ctx: &NodeCtx) -> Lowered {
        Lowered::default()
            .float("eps", self.eps)
            .int("plus_one", i64::from(self.plus_one))
            .int("rms", i64::from(self.kind == Kind::Rms))
            .int("elements", elements(ctx))
    }

    /// One row.
    fn row(&self, x: &[f64], weight: Option<&[f64]>, bias: Option<&[f64]>, out: &mut Vec<f64>) {
        let n = x.len() as f64;
        let mean = if self.kind == Kind::Layer { x.iter().sum::<f64>() / n } else { 0.0 };
        let square = x.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
        let scale = 1.0 / (square + self.eps).sqrt();
        for (i, v) in x.iter().enumerate() {
            let w = weight.map_or(1.0, |w| if self.plus_one { 1.0 + w[i] } else { w[i] });
            out.push((v - mean) * scale * w + bias.map_or(0.0, |b| b[i]));
        }
    }

    /// The result for x `[..., D]`, weight and bias `[D]` in the operands.
    pub(crate) fn reference(&self, ctx: &RefCtx) -> Result<Vec<Tensor>, OpError> {
        let x = ctx.input(0)?;
        let weight = ctx.optional(1).map(|t| t.to_f64()).transpose()?;
        let bias = ctx.optional(2).map(|t| t.to_f64()).transpose()?;
        let d = x.shape().last().copied().unwrap_or(0);
        let mut out = Vec::with_capacity(x.len());
        for row in x.to_f64()?.chunks_exact(d.max(1)) {
            self.row(row, weight.as_deref(), bias.as_deref(), &mut out);
        }
        Ok(vec![ctx.result(0, &out)?])
    }
}

/// Checks x `[..., D]` and the weight and bias `[D]` that may stand at operand `at` and after it; gives the type of x.
pub(crate) fn infer(ctx: &mut InferCtx, at: usize) -> Result<Type, OpError> {
    ctx.arity(at, at + 2)?;
    dtype_of(ctx, 0, FLOATS)?;
    let x = ctx.ty(0)?;
    let Some(d) = x.shape.last() else {
        return Err(OpError::Shape(format!("operand 0 is {x}; it must have at least one dimension")));
    };
    for (i, what) in [(at, "weight"), (at + 1, "bias")] {
        if let Some(t) = optional(ctx, i, FLOATS, &["D"])? {
            same(ctx, &t.shape, std::slice::from_ref(d), what)?;
        }
    }
    Ok(x.clone())
}

/// What a norm of values stored as `d` may be off by on a device that works in f32.
pub(crate) fn bound(d: DType) -> Tolerance {
    tolerance(d, 2e-6, 1e-5)
}

/// Row lengths at and one off vector and group sizes.
pub(crate) const LENGTHS: [usize; 17] =
    [1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 1023, 1024, 1025];

/// The cases that both norms have. `attrs` are complete.
pub(crate) fn cases(attrs: &Attrs) -> Vec<Case> {
    let mut all = Vec::new();
    for (i, d) in LENGTHS.into_iter().enumerate() {
        let x = random(DType::F32, &[3, d], i as u64);
        let (w, b) = (random(DType::F32, &[d], 50), random(DType::F32, &[d], 51));
        all.push(case(format!("length-{d}"), attrs.clone(), &[&x, &w, &b], bound(DType::F32)));
        all.push(case(format!("length-{d}-plain"), attrs.clone(), &[&x], bound(DType::F32)));
    }
    for x in crate::cases::FLOATS {
        for w in crate::cases::FLOATS {
            let (t, w_) = (random(x, &[4, 96], 3), random(w, &[96], 4));
            all.push(case(format!("{x}-weight-{w}"), attrs.clone(), &[&t, &w_], bound(x)));
            let b = random(w, &[96], 5);
            all.push(case(format!("{x}-weight-bias-{w}"), attrs.clone(), &[&t, &w_, &b], bound(x)));
        }
        let odd = random(x, &[5, 77], 6);
        all.push(case(format!("{x}-odd"), attrs.clone(), &[&odd, &random(x, &[77], 7)], bound(x)));
    }
    for (name, dtype, scale) in
        [("near-1e9", DType::F32, 1e9), ("near-6e4", DType::F16, 6e4), ("tiny", DType::F32, 1e-12)]
    {
        let mut n = Numbers::new(8);
        let x = fill(dtype, &[2, 1000], || scale * (0.9 + 0.1 * n.unit()) * n.unit().signum());
        let w = random(DType::F32, &[1000], 9);
        all.push(case(name, attrs.clone(), &[&x, &w], bound(dtype)));
    }
    let (x, b) = (random(DType::F32, &[2, 33], 11), random(DType::F32, &[33], 12));
    let inputs = vec![Some(CaseInput::new(x)), None, Some(CaseInput::new(b))];
    all.push(case_of("bias-alone", attrs.clone(), inputs, bound(DType::F32)));
    for (name, shape) in [("rank-1", vec![40]), ("rank-4", vec![2, 3, 2, 24]), ("many-rows", vec![130, 8])] {
        all.push(case(name, attrs.clone(), &[&random(DType::F32, &shape, 13)], bound(DType::F32)));
    }
    for (name, shape) in [("no-rows", [0, 8]), ("no-columns", [4, 0])] {
        all.push(case(name, attrs.clone(), &[&random(DType::F32, &shape, 14)], bound(DType::F32)));
    }
    for layout in [Layout::Rows, Layout::Strided] {
        for d in crate::cases::FLOATS {
            let x = CaseInput::new(random(d, &[7, 48], 15)).layout(layout);
            let w = CaseInput::new(random(DType::F32, &[48], 16));
            let name = format!("{layout:?}-{d}");
            all.push(case_of(name, attrs.clone(), vec![Some(x), Some(w)], bound(d)));
        }
    }
    all
}
