//! What tests of compilers and backends share: random graphs, golden texts, a target on which every pattern is formed. The
//! same seed gives the same graph on every machine.

mod golden;
mod llama;
mod random;

use std::collections::HashMap;

use frit_ir::graph::{Graph, Source};
use frit_ir::op::Registry;
use frit_ir::target::{Count, KernelRow, LayoutClass, OperandSpec, Target};
use frit_ir::{DType, ScalarOp, Tensor};

pub use golden::{Golden, bless, files, golden};
pub use llama::{Llama, llama};
pub use random::{Generated, random_graph};

const EVERY: &[DType] = &[
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F64,
    DType::I64,
    DType::I32,
    DType::U8,
    DType::Bool,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q8_0,
    DType::Q2K,
    DType::Q3K,
    DType::Q4K,
    DType::Q5K,
    DType::Q6K,
];

const fn operand(name: &'static str, count: Count) -> OperandSpec {
    OperandSpec { name, dtypes: EVERY, layout: LayoutClass::Strided, count, packing: None }
}

const REST: &[OperandSpec] = &[operand("rest", Count::Rest)];
const LINEAR: &[OperandSpec] = &[
    operand("x", Count::One),
    operand("w", Count::Param("weights")),
    operand("extras", Count::Param("extras")),
];

/// A target with one row for every op of `registry`, on operands of nearly every type: what passes may form is then
/// limited by the graph alone. No kernels stand behind it.
pub fn every_op(registry: &Registry) -> Target {
    let row = |op: &'static str| KernelRow {
        name: op,
        op,
        inputs: if op == "linear" { LINEAR } else { REST },
        outputs: REST,
        guards: &[],
        params: &[],
        scratch: "",
        alias: &[],
    };
    Target {
        name: "every op".into(),
        align: 64,
        threads: 1,
        rows: registry.iter().map(|d| row(d.name)).collect(),
        scalars: ScalarOp::all().collect(),
        compute: EVERY.iter().copied().filter(|d| d.is_compute()).collect(),
        lacks: vec![],
    }
}

/// Random values for the inputs and parameters of `g`, whose symbols have the values `sizes`. Integers are 0 to 3.
///
/// # Panics
/// A type that has no random tensor; a symbol without a value.
pub fn random_values(g: &Graph, sizes: &[(&str, i64)], seed: u64) -> HashMap<String, Tensor> {
    let bind = |s: &frit_ir::Sym| sizes.iter().find(|(n, _)| *n == s.name()).map(|(_, v)| *v);
    let mut values = HashMap::new();
    for (i, v) in g.values().iter().enumerate() {
        if !matches!(v.source, Source::Input | Source::Param | Source::State) {
            continue;
        }
        let shape: Vec<usize> =
            v.ty.shape.iter().map(|d| d.eval(&bind).expect("every symbol has a value") as usize).collect();
        let seed = seed.wrapping_mul(1 << 16).wrapping_add(i as u64);
        let t = match v.ty.dtype.is_int() {
            true => frit_ops::cases::random_ints(v.ty.dtype, &shape, 0, 4, seed),
            false => frit_ops::cases::random(v.ty.dtype, &shape, seed),
        };
        values.insert(v.name.to_string(), t);
    }
    values
}

/// The first place where `got` differs from `want` by more than `relative` times the largest finite magnitude of `want`
/// (at least 1), or in being finite; `None` if there is no such place.
///
/// # Errors
/// A type that cannot be read as numbers.
pub fn difference(
    got: &Tensor,
    want: &Tensor,
    relative: f64,
) -> Result<Option<String>, frit_ir::tensor::TensorError> {
    if got.dtype() != want.dtype() || got.shape() != want.shape() {
        let print = |t: &Tensor| format!("{}{:?}", t.dtype(), t.shape());
        return Ok(Some(format!("got {}, want {}", print(got), print(want))));
    }
    let (a, b) = (got.to_f64()?, want.to_f64()?);
    let largest = b.iter().filter(|v| v.is_finite()).fold(1.0f64, |m, v| m.max(v.abs()));
    let same = |x: f64, y: f64| x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= relative * largest;
    let at = a.iter().zip(&b).position(|(x, y)| !same(*x, *y));
    Ok(at.map(|i| format!("element {i} of {}: got {}, want {}", a.len(), a[i], b[i])))
}
