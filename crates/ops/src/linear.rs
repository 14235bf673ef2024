//! Linear layers with everything that rides on them: several weights in formats of their own read one x, and each group
//! of products goes through a scalar expression before it is stored.

use std::sync::Arc;

use frit_ir::dim::Dim;
use frit_ir::expr::Expr;
use frit_ir::graph::{Graph, Node, Shape, Type, ValueId};
use frit_ir::op::{Cost, InferCtx, Lowered, NodeCtx, OpError, Registry};
use frit_ir::{Attrs, DType, OpDef};

use crate::quantize::BLOCK;
use crate::shapes::{broadcasts, multiple};
use crate::util::{FLOATS, dtype_of, moved};

/// The most groups of a step.
pub const MAX_GROUPS: usize = 8;

/// Names of the parameters that hold the weights of each group.
const ARITIES: [&str; MAX_GROUPS] =
    ["arity0", "arity1", "arity2", "arity3", "arity4", "arity5", "arity6", "arity7"];

/// The fused op `linear` {weights, arity, exprs, activations}: x `[..., M, K]`, `weights` weights `[N, K]` (float or block
/// format), then extras. `arity` lists the weights of each group, which have a common N; `exprs` gives each group an
/// expression of its products x·Wᵀ `[..., M, N]` (f32; f64 where x is f64) and of its extras, which broadcast to that shape
/// and stand group by group. The results are the outputs of the expressions in order. With `activations` "q8" or
/// "q16" x is rounded as by `quantize` of as many bits first; every weight must then be in a block format.
pub fn def() -> OpDef {
    OpDef {
        name: "linear",
        summary: "multiplies rows by one or more weights and applies an expression to the products",
        infer,
        reference: None,
        expand: Some(expand),
        vjp: None,
        cost,
        lower,
        view: None,
        updates: &[],
        cases: crate::linear_cases::cases,
    }
}

/// One group: its weights and extras as operand numbers, and its expression.
struct Group {
    weights: std::ops::Range<usize>,
    extras: std::ops::Range<usize>,
    expr: Arc<Expr>,
}

/// The attributes, resolved to operand numbers.
struct Plan {
    groups: Vec<Group>,
    /// Bits of the rounded activations, 0 for none.
    bits: i64,
    weights: usize,
    operands: usize,
}

impl Plan {
    fn read(attrs: &Attrs) -> Result<Plan, OpError> {
        attrs.only(&["weights", "arity", "exprs", "activations"])?;
        let bad = |why: String| Err(OpError::Value(why));
        let (weights, arity, exprs) = (attrs.int("weights")?, attrs.ints("arity")?, attrs.exprs("exprs")?);
        if arity.is_empty() || arity.len() > MAX_GROUPS || arity.len() != exprs.len() {
            let (a, e) = (arity.len(), exprs.len());
            return bad(format!(
                "`arity` lists {a} groups and `exprs` {e}; it takes 1 to {MAX_GROUPS} of both"
            ));
        }
        if arity.iter().any(|a| !(1..=i64::from(u16::MAX)).contains(a))
            || arity.iter().sum::<i64>() != weights
        {
            return bad(format!(
                "`arity` is {arity:?}; it must be at least 1 each and sum to {weights} weights"
            ));
        }
        let bits = match &*attrs.str("activations")? {
            "f32" => 0,
            "q8" => 8,
            "q16" => 16,
            other => return bad(format!("attribute `activations` is {other:?}; known are f32, q8, q16")),
        };
        let (mut weight, mut extra) = (1, 1 + weights as usize);
        let mut groups = Vec::with_capacity(arity.len());
        for (a, expr) in arity.iter().map(|a| *a as usize).zip(exprs) {
            expr.check()?;
            let Some(extras) = expr.inputs.len().checked_sub(a) else {
                return bad(format!("an expression of {a} products takes {} inputs", expr.inputs.len()));
            };
            groups.push(Group { weights: weight..weight + a, extras: extra..extra + extras, expr });
            (weight, extra) = (weight + a, extra + extras);
        }
        Ok(Plan { groups, bits, weights: weights as usize, operands: extra })
    }
}

/// The type that products have.
fn product_type(x: DType) -> DType {
    if x == DType::F64 { DType::F64 } else { DType::F32 }
}

fn infer(ctx: &mut InferCtx) -> Result<Vec<Type>, OpError> {
    let p = Plan::read(ctx.attrs)?;
    ctx.arity(p.operands, p.operands)?;
    let x = ctx.ty(0)?;
    dtype_of(ctx, 0, if p.bits > 0 { &crate::cases::FLOATS } else { FLOATS })?;
    if x.rank() < 2 {
        return Err(OpError::Shape(format!("operand 0 is {x}; it must have the shape [..., M, K]")));
    }
    let (lead, k) = (&x.shape[..x.rank() - 1], &x.shape[x.rank() - 1]);
    if p.bits > 0 {
        multiple(ctx, k, &Dim::from(BLOCK), "row length of x")?;
    }
    let mut out = Vec::new();
    for g in &p.groups {
        let n = weights(ctx, g, x.dtype, k, p.bits > 0)?;
        let shape: Shape = lead.iter().cloned().chain([n]).collect();
        let product = product_type(x.dtype);
        for (i, d) in g.expr.inputs.iter().enumerate() {
            let given = match i.checked_sub(g.weights.len()) {
                None => product,
                Some(e) => {
                    let at = g.extras.start + e;
                    let extra = ctx.ty(at)?;
                    broadcasts(ctx, &extra.shape, &shape, &format!("extra operand {at}"))?;
                    extra.dtype
                }
            };
            if given != *d {
                let why = format!("input {i} of the expression {} is {d}; it is given {given}", g.expr);
                return Err(OpError::DType(why));
            }
        }
        out.extend(g.expr.outputs.iter().map(|o| Type { dtype: o.dtype, shape: shape.clone() }));
    }
    Ok(out)
}

/// Checks the weights of a group and gives their common N.
fn weights(ctx: &mut InferCtx, g: &Group, x: DType, k: &Dim, quantized: bool) -> Result<Dim, OpError> {
    let first = ctx.ty(g.weights.start)?.shape.first().cloned();
    for i in g.weights.clone() {
        let w = ctx.ty(i)?;
        let d = w.dtype;
        let right = match (d.is_block(), quantized) {
            (block, true) => block,
            (block, false) => block || (FLOATS.contains(&d) && (d != DType::F64 || x == DType::F64)),
        };
        if !right {
            let want = if quantized { "in a block format" } else { "f32, f16, bf16 or in a block format" };
            return Err(OpError::DType(format!("operand {i} is {w}; a weight must be {want} here")));
        }
        let ([n, wk], Some(first)) = (w.shape.as_slice(), &first) else {
            return Err(OpError::Shape(format!("operand {i} is {w}; a weight has the shape [N, K]")));
        };
        ctx.require_equal(wk, k, &format!("row lengths of weight operand {i} and of x"))?;
        ctx.require_equal(n, first, &format!("rows of weight operand {i} and of the first of its group"))?;
        multiple(ctx, wk, &Dim::from(d.info().unit_elements), &format!("row length of operand {i}, {w}"))?;
    }
    Ok(first.unwrap_or_default())
}

/// The rows of every weight together.
fn total_n(ctx: &NodeCtx, p: &Plan) -> Dim {
    let n = ctx.inputs[1..=p.weights].iter().flatten().map(|t| t.shape[0].clone());
    n.fold(Dim::from(0i64), |a, b| a + b)
}

/// Product of the leading extents of x, and K.
fn extents(ctx: &NodeCtx) -> (Dim, Dim) {
    let shape = ctx.inputs[0].map(|t| t.shape.clone()).unwrap_or_default();
    let (k, lead) = shape.split_last().map_or((Dim::from(0i64), &[][..]), |(k, l)| (k.clone(), l));
    (lead.iter().cloned().product(), k)
}

fn cost(ctx: &NodeCtx) -> Cost {
    let n = Plan::read(ctx.attrs).map_or_else(|_| Dim::from(0i64), |p| total_n(ctx, &p));
    let (m, k) = extents(ctx);
    Cost { flops: m * k * n * Dim::from(2i64), bytes: moved(ctx) }
}

fn lower(ctx: &NodeCtx) -> Result<Lowered, OpError> {
    let p = Plan::read(ctx.attrs)?;
    let (m, k) = extents(ctx);
    let extras: usize = p.groups.iter().map(|g| g.extras.len()).sum();
    let mut out = Lowered::default()
        .int("elements", m.clone() * ctx.outputs[0].shape.last().cloned().unwrap_or_default())
        .int("m", m)
        .int("k", k)
        .int("n", total_n(ctx, &p))
        .int("weights", p.weights)
        .int("groups", p.groups.len())
        .int("extras", extras)
        .int("bits", p.bits);
    for (i, name) in ARITIES.into_iter().enumerate() {
        out = out.int(name, p.groups.get(i).map_or(0, |g| g.weights.len()));
    }
    out.exprs = p.groups.into_iter().map(|g| g.expr).collect();
    Ok(out)
}

/// The node `op` with one result.
fn push(
    g: &mut Graph,
    r: &Registry,
    op: &str,
    attrs: Attrs,
    inputs: &[ValueId],
    name: &str,
) -> Result<ValueId, OpError> {
    Ok(g.push(r, op, attrs, inputs, &[name])?[0])
}

/// `v` in the float type `to`.
fn cast(g: &mut Graph, r: &Registry, v: ValueId, to: DType, name: &str) -> Result<ValueId, OpError> {
    let from = g.ty(v).dtype;
    if from == to {
        return Ok(v);
    }
    if from.is_block() {
        return push(g, r, "dequantize", Attrs::new().with("dtype", to), &[v], name);
    }
    let mut expr = Expr::new(&[from]);
    let value = expr.cast(0, to);
    expr.output(value, to);
    push(g, r, "expr", Attrs::new().with("expr", Arc::new(expr)), &[v], name)
}

fn expand(g: &mut Graph, r: &Registry, node: &Node, inputs: &[ValueId]) -> Result<Vec<ValueId>, OpError> {
    let p = Plan::read(&node.attrs)?;
    let product = product_type(g.ty(inputs[0]).dtype);
    let x = if p.bits > 0 {
        push(g, r, "quantize", Attrs::new().with("bits", p.bits), &inputs[..1], "xq")?
    } else {
        cast(g, r, inputs[0], product, "x")?
    };
    let mut results = Vec::new();
    for group in p.groups {
        let mut operands = Vec::with_capacity(group.expr.inputs.len());
        for w in &inputs[group.weights] {
            let w = cast(g, r, *w, product, "weight")?;
            let w = push(g, r, "transpose", Attrs::new().with("perm", vec![1i64, 0]), &[w], "weight_t")?;
            operands.push(push(g, r, "matmul", Attrs::new(), &[x, w], "product")?);
        }
        operands.extend(&inputs[group.extras]);
        results.extend(g.push(r, "expr", Attrs::new().with("expr", group.expr), &operands, &["linear"])?);
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use frit_ir::Symbols;
    use frit_ir::expr::ScalarOp;

    fn infer_with(attrs: &Attrs, types: &[Type]) -> Result<Vec<Type>, OpError> {
        let refs: Vec<Option<&Type>> = types.iter().map(Some).collect();
        let symbols = Symbols::default();
        infer(&mut InferCtx::new(attrs, &refs, &symbols))
    }

    fn attrs(arity: &[i64], exprs: Vec<Arc<Expr>>, activations: &str) -> Attrs {
        Attrs::new()
            .with("weights", arity.iter().sum::<i64>())
            .with("arity", arity.to_vec())
            .with("exprs", exprs)
            .with("activations", activations)
    }

    #[test]
    fn faults_are_named() {
        let mul = Arc::new(Expr::single(ScalarOp::Mul, &[DType::F32; 2], DType::F32));
        let x = Type::new(DType::F32, [3i64, 64]);
        let w = |d, n: i64, k: i64| Type::new(d, [n, k]);
        let a = attrs(&[2], vec![mul.clone()], "f32");
        let good = infer_with(&a, &[x.clone(), w(DType::Q8_0, 5, 64), w(DType::F16, 5, 64)]);
        assert_eq!(good, Ok(vec![Type::new(DType::F32, [3i64, 5])]));
        let fault = |a: &Attrs, t: &[Type]| infer_with(a, t).unwrap_err().to_string();
        let e = fault(&a, &[x.clone(), w(DType::F32, 5, 64), w(DType::F32, 6, 64)]);
        assert!(e.contains("operand 2"), "{e}");
        let e = fault(&a, &[x.clone(), w(DType::F32, 5, 64), w(DType::F32, 5, 32)]);
        assert!(e.contains("row lengths"), "{e}");
        let e = fault(&a, &[x.clone(), w(DType::F32, 5, 64)]);
        assert!(e.contains("3 operands"), "{e}");
        let q8 = attrs(&[2], vec![mul.clone()], "q8");
        let e = fault(&q8, &[x.clone(), w(DType::Q8_0, 5, 64), w(DType::F16, 5, 64)]);
        assert!(e.contains("block format"), "{e}");
        // One product and one extra of the wrong type.
        let a = attrs(&[1], vec![mul], "f32");
        let extra = Type::new(DType::F16, [5i64]);
        let e = fault(&a, &[x.clone(), w(DType::F32, 5, 64), extra]);
        assert!(e.contains("it is given f16"), "{e}");
        let e = fault(&a, &[x, w(DType::F32, 5, 64), Type::new(DType::F32, [4i64])]);
        assert!(e.contains("extra operand 2"), "{e}");
    }
}
