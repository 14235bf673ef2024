//! What the tests of legalization and memory share: a small target written out by hand, and ops that test one thing each.

use frit_ir::dim::Dim;
use frit_ir::graph::{Graph, Type};
use frit_ir::op::{Cost, InferCtx, Lowered, NodeCtx, OpDef, OpError, RefCtx, Registry};
use frit_ir::target::{Cmp, Count, Guard, KernelRow, LayoutClass, OperandSpec, ParamSpec, ParamType, Target};
use frit_ir::{Attrs, DType, ScalarOp, Tensor};

use DType::{BF16, Bool, F16, F32, I32, Q8_0};

const ANY: &[DType] = &[F32, F16, BF16, I32, Bool];

const fn spec(
    name: &'static str,
    dtypes: &'static [DType],
    layout: LayoutClass,
    count: Count,
) -> OperandSpec {
    OperandSpec { name, dtypes, layout, count, packing: None }
}

const fn packed(spec: OperandSpec, packing: &'static str) -> OperandSpec {
    OperandSpec { packing: Some(packing), ..spec }
}

const STRIDED: LayoutClass = LayoutClass::Strided;
const ROWS: LayoutClass = LayoutClass::Rows;
const DENSE: LayoutClass = LayoutClass::Dense;

const BASE: KernelRow = KernelRow {
    name: "",
    op: "",
    inputs: &[],
    outputs: &[],
    guards: &[],
    params: &[],
    scratch: "",
    alias: &[],
};

const fn int(name: &'static str) -> ParamSpec {
    ParamSpec { name, ty: ParamType::I64 }
}

const EXPR: KernelRow = KernelRow {
    name: "expr_any",
    op: "expr",
    inputs: &[spec("x", ANY, STRIDED, Count::Rest)],
    outputs: &[spec("y", ANY, DENSE, Count::Rest)],
    alias: &[(0, 0), (1, 0), (0, 1), (1, 1)],
    ..BASE
};

const COPY: KernelRow = KernelRow {
    name: "copy_any",
    op: "copy",
    inputs: &[spec("x", &[F32, F16, BF16, I32, Bool, Q8_0], STRIDED, Count::One)],
    outputs: &[spec("y", &[F32, F16, BF16, I32, Bool, Q8_0], DENSE, Count::One)],
    ..BASE
};

const SOFTMAX: KernelRow = KernelRow {
    name: "softmax_dense",
    op: "softmax",
    inputs: &[spec("x", &[F32], DENSE, Count::One)],
    outputs: &[spec("y", &[F32], DENSE, Count::One)],
    params: &[int("axis")],
    scratch: "threads*128",
    alias: &[(0, 0)],
    ..BASE
};

const MATVEC: KernelRow = KernelRow {
    name: "matvec",
    op: "matmul",
    inputs: &[spec("a", &[F32], ROWS, Count::One), spec("b", &[F32], ROWS, Count::One)],
    outputs: &[spec("y", &[F32], DENSE, Count::One)],
    guards: &[Guard { param: "m", cmp: Cmp::Le, value: 4 }],
    params: &[int("k"), int("m")],
    ..BASE
};

const GEMM: KernelRow =
    KernelRow { name: "gemm", guards: &[], params: &[int("n")], scratch: "m*k*4 + 7", ..MATVEC };

const SET: KernelRow = KernelRow {
    name: "set_rows",
    op: "set",
    inputs: &[spec("state", &[F32], DENSE, Count::One), spec("value", &[F32], ROWS, Count::One)],
    outputs: &[spec("next", &[F32], DENSE, Count::One)],
    ..BASE
};

const WEIGH: KernelRow = KernelRow {
    name: "weigh_packed",
    op: "weigh",
    inputs: &[
        spec("x", &[F32], ROWS, Count::One),
        packed(spec("w", &[F32, Q8_0], DENSE, Count::One), "panel"),
        spec("b", &[F32], DENSE, Count::Optional),
    ],
    outputs: &[spec("y", &[F32], DENSE, Count::One)],
    ..BASE
};

const WEIGH_PLAIN: KernelRow = KernelRow {
    name: "weigh_plain",
    inputs: &[
        spec("x", &[F32], ROWS, Count::One),
        spec("w", &[F32, Q8_0], ROWS, Count::One),
        spec("b", &[F32], DENSE, Count::Optional),
    ],
    ..WEIGH
};

/// A target with a handful of rows, 64-byte alignment and 2 threads.
pub(crate) fn target() -> Target {
    Target {
        name: "test".into(),
        align: 64,
        threads: 2,
        rows: vec![EXPR, COPY, SOFTMAX, MATVEC, GEMM, SET, WEIGH, WEIGH_PLAIN],
        scalars: vec![ScalarOp::Add, ScalarOp::Mul, ScalarOp::Neg, ScalarOp::Const, ScalarOp::Cast],
        compute: vec![F32, I32, Bool],
        lacks: vec![],
    }
}

fn cost(_: &NodeCtx) -> Cost {
    Cost { flops: Dim::from(0i64), bytes: Dim::from(0i64) }
}

fn plain(name: &'static str, infer: fn(&mut InferCtx) -> Result<Vec<Type>, OpError>) -> OpDef {
    OpDef {
        name,
        summary: "for tests",
        infer,
        reference: None,
        expand: None,
        vjp: None,
        cost,
        lower: |_| Ok(Lowered::default()),
        view: None,
        updates: &[],
        cases: Vec::new,
    }
}

fn like_first(c: &mut InferCtx) -> Result<Vec<Type>, OpError> {
    Ok(vec![c.ty(0)?.clone()])
}

fn set(c: &RefCtx) -> Result<Vec<Tensor>, OpError> {
    let (a, b) = (c.input(0)?.to_f64()?, c.input(1)?.to_f64()?);
    let all: Vec<f64> = a.iter().zip(&b).map(|(s, v)| 0.5 * s + v).collect();
    Ok(vec![c.result(0, &all)?])
}

/// The real ops, and: `set` (state, value) makes half of the state plus the value; `weigh` (x, w, optional b) reads a weight; `twice` and
/// `four` are fused ops that expand into `expr` and `twice`; `ever` expands into itself.
pub(crate) fn registry() -> Registry {
    let mut r = frit_ops::registry();
    r.add(OpDef { updates: &[0], reference: Some(set), ..plain("set", like_first) }).unwrap();
    r.add(plain("weigh", like_first)).unwrap();
    r.add(OpDef {
        expand: Some(|g, r, _, x| {
            let e = frit_ir::Expr::single(ScalarOp::Add, &[F32; 2], F32);
            Ok(g.push(r, "expr", Attrs::new().with("expr", std::sync::Arc::new(e)), &[x[0], x[0]], &[])?
                .to_vec())
        }),
        ..plain("twice", like_first)
    })
    .unwrap();
    r.add(OpDef {
        expand: Some(|g, r, _, x| {
            let y = g.push(r, "twice", Attrs::new(), x, &[])?;
            Ok(g.push(r, "twice", Attrs::new(), &y, &[])?.to_vec())
        }),
        ..plain("four", like_first)
    })
    .unwrap();
    r.add(OpDef {
        expand: Some(|g, r, n, x| Ok(g.push(r, &n.op, Attrs::new(), x, &[])?.to_vec())),
        ..plain("ever", like_first)
    })
    .unwrap();
    r
}

/// The graph of a text.
pub(crate) fn graph(text: &str) -> Graph {
    frit_ir::text::parse(text, &registry()).unwrap_or_else(|e| panic!("{e}\n{text}"))
}
