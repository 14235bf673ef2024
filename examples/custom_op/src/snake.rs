//! The op `demo.snake`: x + sin²(α·x)/α with a learned α for each channel, the periodic activation of networks that make sound
//! (Ziyin, Hartwig and Ueda, 2020). Everything that Frit knows of it is here: types, meaning, cost, cases, and its kernels.

use frit::custom::{
    Call, CaseInput, HostKernel, KernelRow, Kernels, Layout, LayoutClass, PLAIN, Role, Split, Tolerance, one,
};
use frit::graph::{Attrs, Case, Cost, InferCtx, Lowered, NodeCtx, OpDef, OpError, RefCtx, Registry, Type};
use frit::{DType, Dim, Tensor};

/// Its name in graphs.
pub const NAME: &str = "demo.snake";

/// The built-in ops and this one.
pub fn registry() -> frit::Result<Registry> {
    let mut all = frit::graph::registry();
    all.add(OpDef {
        name: NAME,
        summary: "x + sin²(alpha·x)/alpha, one alpha for each channel",
        infer,
        reference: Some(reference),
        expand: None,
        vjp: None,
        cost,
        lower: |_| Ok(Lowered::default()),
        view: None,
        updates: &[],
        cases,
    })?;
    Ok(all)
}

/// Its kernels.
pub fn kernels() -> Kernels {
    let all = Kernels::new().host(HOST);
    #[cfg(feature = "gpu")]
    // SAFETY: snake.k reads and writes elements of its operands alone: channels below those of alpha, rows below those of x, which
    // are those of out.
    let all = unsafe { all.device(DEVICE) };
    all
}

/// x `[…, C, T]` and alpha `[C]`, both f32, give `[…, C, T]`.
fn infer(ctx: &mut InferCtx) -> Result<Vec<Type>, OpError> {
    ctx.attrs.only(&[])?;
    ctx.arity(2, 2)?;
    let (x, alpha) = (ctx.ty(0)?, ctx.ty(1)?);
    if let Some(t) = [x, alpha].into_iter().find(|t| t.dtype != DType::F32) {
        return Err(OpError::DType(format!("takes f32, got {t}")));
    }
    let [.., channels, _] = x.shape.as_slice() else {
        return Err(OpError::Shape(format!("x is {x}; it must be [..., channels, length]")));
    };
    let [n] = alpha.shape.as_slice() else {
        return Err(OpError::Shape(format!("alpha is {alpha}; it must be [channels]")));
    };
    ctx.require_equal(n, channels, "alpha has an element for each channel of x")?;
    Ok(vec![x.clone()])
}

/// The specification, in f64.
fn reference(ctx: &RefCtx) -> Result<Vec<Tensor>, OpError> {
    let (x, alpha) = (ctx.input(0)?, ctx.input(1)?.to_f64()?);
    let length = x.shape().last().copied().unwrap_or(1).max(1);
    let values = x.to_f64()?.into_iter().enumerate().map(|(i, v)| {
        let a = alpha[i / length % alpha.len()];
        if a == 0.0 { v } else { v + (a * v).sin().powi(2) / a }
    });
    Ok(vec![ctx.result(0, &values.collect::<Vec<_>>())?])
}

/// A sine counted as 20 operations.
fn cost(ctx: &NodeCtx) -> Cost {
    let bytes = ctx.inputs.iter().flatten().map(|t| t.bytes()).chain([ctx.outputs[0].bytes()]);
    Cost {
        flops: ctx.outputs[0].elements() * Dim::from(24i64),
        bytes: bytes.fold(Dim::from(0i64), |a, b| a + b),
    }
}

/// Lengths around the sizes of groups, layouts, no element at all, and values that are known without the reference.
fn cases() -> Vec<Case> {
    let f32s = |shape: &[usize], v: Vec<f32>| Tensor::from_f32(shape, &v).map(CaseInput::new).ok();
    let case = |name: String, x: Option<CaseInput>, alpha: Option<CaseInput>| Case {
        name,
        attrs: Attrs::new(),
        inputs: vec![x, alpha.map(|a| a.role(Role::Param))],
        // The argument of the sine is rounded once: half an ulp of at most 32; the sine and what follows once each.
        tolerance: Tolerance { abs: 4e-6, rel: 3e-7 },
        expect: None,
    };
    let some = |n: usize| (0..n).map(|i| (i * 37 % 101) as f32 * 0.16 - 8.0).collect::<Vec<_>>();
    let alphas = |n: usize| (0..n).map(|i| 0.25 + (i % 8) as f32 * 0.5).collect::<Vec<_>>();
    let mut all = Vec::new();
    for (b, c, t) in
        [(1, 1, 1), (2, 3, 255), (1, 2, 256), (3, 1, 257), (1, 65, 7), (2, 0, 4), (2, 4, 0), (1, 9, 1000)]
    {
        let name = format!("{b}x{c}x{t}");
        all.push(case(name, f32s(&[b, c, t], some(b * c * t)), f32s(&[c], alphas(c))));
    }
    for layout in [Layout::Rows, Layout::Strided] {
        let x = f32s(&[2, 3, 40], some(240)).map(|x| x.layout(layout));
        all.push(case(format!("{layout:?}"), x, f32s(&[3], alphas(3))));
    }
    let half = std::f32::consts::FRAC_PI_2;
    let known = f32s(&[3, 2], vec![0.0, half, half, -half, 5.0, f32::NAN]);
    let pi = f64::from(half);
    all.push(Case {
        expect: Some(vec![vec![0.0, pi + 1.0, pi, -pi, 5.0, f64::NAN]]),
        // 1/alpha of the first row is 1, sin²(π) of the second is 0, the alpha of the last is 0.
        ..case("known".into(), known, f32s(&[3], vec![1.0, 2.0, 0.0]))
    });
    all
}

/// For the CPU: the threads share the rows.
static HOST: &[HostKernel] = &[HostKernel {
    row: KernelRow {
        name: NAME,
        op: NAME,
        inputs: &[
            one("x", &[DType::F32], LayoutClass::Dense),
            one("alpha", &[DType::F32], LayoutClass::Dense),
        ],
        outputs: &[one("out", &[DType::F32], LayoutClass::Dense)],
        ..PLAIN
    },
    split: Split::Rows,
    run: on_host,
}];

fn on_host(call: &mut Call) -> Result<(), String> {
    let (x, alpha, rows) = (call.input::<f32>(0)?, call.input::<f32>(1)?, call.rows());
    let out = call.output::<f32>(0)?;
    let length = out.len() / rows.len();
    if length == 0 {
        return Ok(());
    }
    for (row, out) in rows.zip(out.chunks_exact_mut(length)) {
        let a = alpha[row % alpha.len()];
        for (out, v) in out.iter_mut().zip(&x[row * length..]) {
            let s = (a * v).sin();
            *out = if a == 0.0 { *v } else { v + s * s / a };
        }
    }
    Ok(())
}

/// For every GPU: one text, a group for each row.
#[cfg(feature = "gpu")]
pub static DEVICE: &[frit::custom::GpuRow] = &[frit::custom::GpuRow {
    row: KernelRow {
        name: NAME,
        op: NAME,
        inputs: &[
            one("x", &[DType::F32], LayoutClass::Rows),
            one("alpha", &[DType::F32], LayoutClass::Dense),
        ],
        outputs: &[one("out", &[DType::F32], LayoutClass::Dense)],
        // An element is read before it is written, by the same item.
        alias: &[(0, 0)],
        ..PLAIN
    },
    source: include_str!("snake.k"),
    grid: "x_rows",
    ..frit::custom::KERNEL
}];
