//! What the op files share: strided index arithmetic over dense host data, checks of types and axes, and costs.

use frit_ir::dim::Dim;
use frit_ir::expr::Scalar;
use frit_ir::graph::{Shape, Type};
use frit_ir::op::{Cost, InferCtx, Lowered, NodeCtx, OpError, list_dtypes};
use frit_ir::tensor::TensorError;
use frit_ir::{DType, Tensor};

/// Float types that expressions, reductions and matmul take.
pub(crate) const FLOATS: &[DType] = &[DType::F64, DType::F32, DType::F16, DType::BF16];

/// Strides of the dense row-major layout of `shape`.
pub(crate) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut s = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        s[i - 1] = s[i] * shape[i];
    }
    s
}

/// Strides with which a dense tensor of `shape` is read at the indices of `out`, which it broadcasts to: 0 where it repeats.
pub(crate) fn broadcast_strides(shape: &[usize], out: &[usize]) -> Vec<usize> {
    let lead = out.len() - shape.len();
    let own = strides(shape);
    (0..out.len())
        .map(|i| match i.checked_sub(lead) {
            Some(j) if shape[j] == out[i] || shape[j] != 1 => own[j],
            _ => 0,
        })
        .collect()
}

/// Sum of products of an index with strides.
pub(crate) fn offset(index: &[usize], strides: &[usize]) -> usize {
    index.iter().zip(strides).map(|(i, s)| i * s).sum()
}

/// Calls `f` with every index of `shape` in row-major order; once with an empty index for rank 0.
pub(crate) fn for_each_index(shape: &[usize], mut f: impl FnMut(&[usize])) {
    if shape.contains(&0) {
        return;
    }
    let mut index = vec![0; shape.len()];
    loop {
        f(&index);
        let mut at = shape.len();
        loop {
            if at == 0 {
                return;
            }
            at -= 1;
            index[at] += 1;
            if index[at] < shape[at] {
                break;
            }
            index[at] = 0;
        }
    }
}

/// Every element of `t` exactly: floats as floats, integers and bool as integers.
pub(crate) fn read(t: &Tensor) -> Result<Vec<Scalar>, TensorError> {
    if t.dtype().is_int() || t.dtype() == DType::Bool {
        return Ok(t.to_i64()?.into_iter().map(Scalar::Int).collect());
    }
    Ok(t.to_f64()?.into_iter().map(Scalar::Float).collect())
}

/// A tensor from scalars that already are values of `dtype`.
pub(crate) fn write(dtype: DType, shape: &[usize], values: &[Scalar]) -> Result<Tensor, TensorError> {
    if dtype != DType::I64 && dtype != DType::U64 {
        let v: Vec<f64> = values.iter().map(|s| s.to_f64()).collect();
        return Tensor::from_f64(dtype, shape, &v);
    }
    let int = |s: &Scalar| if let Scalar::Int(i) = s { *i } else { s.to_f64() as i64 };
    let bytes: Vec<u8> = values.iter().flat_map(|s| int(s).to_le_bytes()).collect();
    Tensor::new(dtype, shape, bytes)
}

/// A tensor of `shape` whose units (elements, or blocks along the last dimension) are those of `t` at the places that
/// `from` gives for each index; `None` gives the bytes of `fill`. Indices and places count units in the last dimension.
pub(crate) fn rearrange(
    t: &Tensor,
    shape: &[usize],
    fill: &[u8],
    mut from: impl FnMut(&[usize]) -> Option<usize>,
) -> Result<Tensor, TensorError> {
    let info = t.dtype().info();
    let mut units = shape.to_vec();
    if let Some(last) = units.last_mut() {
        *last = last.div_ceil(info.unit_elements);
    }
    let (size, source) = (info.unit_bytes, t.bytes());
    let mut bytes = Vec::new();
    for_each_index(&units, |index| match from(index) {
        Some(at) => bytes.extend_from_slice(&source[at * size..(at + 1) * size]),
        None => bytes.extend_from_slice(fill),
    });
    Tensor::new(t.dtype(), shape, bytes)
}

/// The extents of `t` with its last dimension counted in units.
pub(crate) fn unit_shape(t: &Tensor) -> Vec<usize> {
    let mut s = t.shape().to_vec();
    if let Some(last) = s.last_mut() {
        *last = last.div_ceil(t.dtype().info().unit_elements);
    }
    s
}

/// Requires the type of operand `i` to be among `allowed`, and gives it.
pub(crate) fn dtype_of(ctx: &InferCtx, i: usize, allowed: &[DType]) -> Result<DType, OpError> {
    let d = ctx.ty(i)?.dtype;
    if allowed.contains(&d) {
        return Ok(d);
    }
    Err(OpError::DType(format!("operand {i} is {d}; it must be one of {}", list_dtypes(allowed))))
}

/// Requires a type that arithmetic is defined on.
pub(crate) fn compute_dtype(ctx: &InferCtx, i: usize) -> Result<DType, OpError> {
    let d = ctx.ty(i)?.dtype;
    if d.is_compute() {
        return Ok(d);
    }
    Err(OpError::DType(format!("operand {i} is {d}, a storage type; cast or dequantize it first")))
}

/// The axis `v` of a value of `rank` dimensions (negative ones count from the end).
pub(crate) fn axis(name: &str, v: i64, rank: usize) -> Result<usize, OpError> {
    let r = rank as i64;
    if (-r..r).contains(&v) {
        return Ok((if v < 0 { v + r } else { v }) as usize);
    }
    Err(OpError::Value(format!(
        "attribute `{name}` is {v}; a value of rank {rank} has axes {} to {}",
        -r,
        r - 1
    )))
}

/// Different axes of a value of `rank` dimensions.
pub(crate) fn axes(name: &str, all: &[i64], rank: usize) -> Result<Vec<usize>, OpError> {
    let mut out = Vec::with_capacity(all.len());
    for v in all {
        let a = axis(name, *v, rank)?;
        if out.contains(&a) {
            return Err(OpError::Value(format!("attribute `{name}` names axis {a} twice")));
        }
        out.push(a);
    }
    Ok(out)
}

/// Prints extents as `[T, 64]`.
pub(crate) fn show(shape: &Shape) -> String {
    format!("[{}]", shape.iter().map(|d| d.to_string()).collect::<Vec<_>>().join(", "))
}

/// Bytes of every operand and result, each touched once.
pub(crate) fn moved(ctx: &NodeCtx) -> Dim {
    let read = ctx.inputs.iter().flatten().map(|t| t.bytes());
    read.chain(ctx.outputs.iter().map(Type::bytes)).fold(Dim::from(0i64), |a, b| a + b)
}

/// The cost of `per_element` operations for each element of result 0.
pub(crate) fn cost_per_element(ctx: &NodeCtx, per_element: i64) -> Cost {
    let n = ctx.outputs.first().map_or_else(|| Dim::from(0i64), Type::elements);
    Cost { flops: n * Dim::from(per_element), bytes: moved(ctx) }
}

/// Elements of result 0.
pub(crate) fn elements(ctx: &NodeCtx) -> Dim {
    ctx.outputs[0].elements()
}

/// The cost of a view: none.
pub(crate) fn cost_of_view(_: &NodeCtx) -> Cost {
    Cost { flops: Dim::from(0i64), bytes: Dim::from(0i64) }
}

/// The cost of moving every element once.
pub(crate) fn cost_of_copy(ctx: &NodeCtx) -> Cost {
    cost_per_element(ctx, 0)
}

/// Lowers to the number of elements alone.
pub(crate) fn lower_elements(ctx: &NodeCtx) -> Result<Lowered, OpError> {
    Ok(Lowered::default().int("elements", elements(ctx)))
}

/// The extents that attribute `name` states; none may be negative.
pub(crate) fn shape_attr(ctx: &mut InferCtx, name: &str) -> Result<Shape, OpError> {
    let dims = ctx.attrs.dims(name)?;
    for d in &dims {
        ctx.require_at_most(&Dim::from(0i64), d, &format!("attribute `{name}`: extents are not negative"))?;
    }
    Ok(dims.into_iter().collect())
}

/// Requires the last extent to be a constant whole number of units where elements share bytes.
pub(crate) fn whole_units(ty: &Type) -> Result<(), OpError> {
    let unit = ty.dtype.info().unit_elements as i64;
    let whole = |d: &Dim| d.as_const().is_some_and(|v| v % unit == 0);
    if unit == 1 || ty.shape.last().is_some_and(whole) {
        return Ok(());
    }
    Err(OpError::Shape(format!("the last extent of {ty} must be a constant multiple of {unit}")))
}

/// Requires elements that fill whole bytes.
pub(crate) fn whole_bytes(ty: &Type) -> Result<(), OpError> {
    if ty.dtype.info().unit_elements == 1 {
        return Ok(());
    }
    Err(OpError::DType(format!("{ty} has elements that share bytes; dequantize or cast it first")))
}

/// A constant extent.
pub(crate) fn constant(d: &Dim) -> Result<usize, OpError> {
    let v = d.as_const().and_then(|v| usize::try_from(v).ok());
    v.ok_or_else(|| OpError::Value(format!("{d} must be a constant of at least 0 here")))
}

/// The bit mask of `axes`.
pub(crate) fn mask(axes: &[usize]) -> i64 {
    axes.iter().fold(0, |m, a| m | 1 << a.min(&62))
}
