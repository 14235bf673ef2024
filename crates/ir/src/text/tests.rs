use super::*;
use crate::attr::{Attr, Attrs};
use crate::expr::{Expr, ScalarOp};
use crate::graph::{Graph, Type, ValueId};
use crate::op::{Cost, InferCtx, Lowered, NodeCtx, OpDef, OpError, Registry};
use crate::schedule::{Candidate, KernelStep, Operand, Region, Schedule, SizeGuard, Step};
use crate::symbols::{DimGuard, Relation};
use crate::target::{Cmp, KernelRow, RowId, Target};
use crate::tensor::Tensor;
use crate::{DType, Dim};

/// Results like operand 0, as many as the attribute `results` says.
fn infer(c: &mut InferCtx) -> Result<Vec<Type>, OpError> {
    let n = c.attrs.int("results").unwrap_or(1);
    let t = c.ty(0)?.clone();
    c.require_at_most(&t.shape[0], &Dim::from(100i64), "same: extent 0")?;
    Ok((0..n).map(|_| t.clone()).collect())
}

fn registry() -> Registry {
    let mut r = Registry::new();
    r.add(OpDef {
        name: "same",
        summary: "Results like operand 0.",
        infer,
        reference: None,
        expand: None,
        vjp: None,
        cost: |_: &NodeCtx| Cost { flops: Dim::from(0i64), bytes: Dim::from(0i64) },
        lower: |_: &NodeCtx| Ok(Lowered::default()),
        view: None,
        updates: &[0],
        cases: Vec::new,
    })
    .unwrap();
    r
}

fn sample() -> Graph {
    let r = registry();
    let mut g = Graph::new("a \"sample\"\n");
    let t = g.symbols.declare("T", 1, 512).unwrap();
    let b = g.symbols.declare("B", 0, 8).unwrap();
    g.symbols.bound(t.clone() * b.clone() * 2.into(), 1024);
    let why = "with \"quotes\"".into();
    g.guards.push(DimGuard { left: t.clone(), relation: Relation::Equal, right: b.clone(), why });
    let dims = [t.clone(), b.ceil_div(&3.into()) * t.clone() - 1.into(), t.lesser(&b)];
    let x = g.input("x", Type::new(DType::F32, dims)).unwrap();
    g.param("blk.0.w", Type::new(DType::Q4K, [2i64, 256])).unwrap();
    let s = g.state("kv cache", Type::new(DType::F16, [4i64])).unwrap();
    let mut e = Expr::new(&[DType::F16, DType::F32]);
    let c = e.constant(DType::F32, -0.1);
    let i = e.constant(DType::I32, -3.0);
    let f = e.cast(i, DType::F32);
    let m = e.push(ScalarOp::Clamp, &[0, c, f]);
    let l = e.push(ScalarOp::Lt, &[m, 1]);
    e.output(m, DType::BF16);
    e.output(l, DType::Bool);
    let attrs = Attrs::new()
        .with("results", 2i64)
        .with("eps", 1e-5)
        .with("open", f64::NEG_INFINITY)
        .with("flag", false)
        .with("kind", "a\tb")
        .with("to", DType::Q5K)
        .with("list", vec![Attr::Int(-1), Attr::Dim(Dim::sym("T")), Attr::List(vec![])])
        .with("e", std::sync::Arc::new(e));
    let out = g.push(&r, "same", attrs, &[x, ValueId::NONE, s], &["y", "y"]).unwrap();
    g.constant("c", Tensor::from_f32(&[3], &[0.1, -0.0, 1e30]).unwrap()).unwrap();
    g.constant("nan", Tensor::from_f32(&[1], &[f32::NAN]).unwrap()).unwrap();
    g.constant("big", Tensor::new(DType::I64, &[1], i64::MAX.to_le_bytes().to_vec()).unwrap()).unwrap();
    g.constant("none", Tensor::from_f32(&[0, 2], &[]).unwrap()).unwrap();
    g.constant("bits", Tensor::new(DType::I4, &[3], vec![0x21, 0x03]).unwrap()).unwrap();
    let next = g.push(&r, "same", Attrs::new(), &[s], &[]).unwrap();
    g.output("y", out[1]).unwrap();
    g.update(s, next[0]).unwrap();
    g
}

#[test]
fn graphs_round_trip() {
    let g = sample();
    let text = print(&g);
    let again = parse(&text, &registry()).unwrap();
    assert_eq!(print(&again), text);
    assert_eq!(again, g);
}

#[test]
fn every_truncation_is_an_error_or_a_graph() {
    let text = print(&sample());
    for i in 0..text.len() {
        if text.is_char_boundary(i) {
            let _ = parse(&text[..i], &registry());
            let _ = parse(&text[i..], &registry());
        }
    }
}

#[test]
fn errors_say_where() {
    let cases = [
        ("graph \"g\"\ninput %x: f33[2]", 2, 11, "no element type"),
        ("input %x: f32[2", 1, 16, "expected `,` or `]`"),
        ("input %x: f32[2]\ninput %x: f32[2]", 2, 7, "twice"),
        ("%y: f32[2] = same(%x)", 1, 19, "not defined"),
        ("input %x: f32[2]\n%y: f32[3] = same(%x)", 2, 1, "has the type f32[2]"),
        ("input %x: f32[2]\n%y: f32[2] = nop(%x)", 2, 14, "no op"),
        ("input %x: f32[200]\n%y: f32[200] = same(%x)", 2, 16, "must hold"),
        ("input %x: f32[2]\n%y: f32[2] = same(%x) {a=[tru]}", 2, 27, "attribute value"),
        ("input %x: f32[2]\n%y: f32[2] = same(%x) {e={(f32) 2=neg(0) -> 1:f32}}", 2, 33, "expected 1"),
        ("input %x: f32[2]\n%y: f32[2] = same(%x) {e={(f32) 1=neg(1) -> 1:f32}}", 2, 26, "not defined"),
        ("symbol T 3..=1", 1, 8, "range"),
        ("hello", 1, 1, "a line starts with"),
        ("const %c: f32[2] = [1.0]", 1, 20, "bytes"),
        ("const %c: f32[9999999999999, 9999999999999] = 0x00", 1, 47, "not possible"),
        ("graph \"g", 1, 9, "does not end"),
        ("input %x: f32[2]\nsymbol T 1..=3", 2, 7, "before all values"),
        ("input %x: f32[2]\nbound 2*T <= 3", 2, 6, "before all values"),
        ("input %x: f32[2]\n%y: f32[2] = same(%x) {a=1, a=2}", 2, 33, "`a` is given twice"),
        ("input %x: f32[A+B, A+B, A+B, A+B, A+B, A+B, A+B]", 1, 11, "64 terms of at most 64 factors"),
    ];
    for (text, line, column, part) in cases {
        let e = parse(text, &registry()).unwrap_err();
        assert!(e.message.contains(part), "{text}: {e}");
        assert_eq!((e.line, e.column), (line, column), "{text}: {e}");
    }
}

#[test]
fn dims_read_formulas_within_limits() {
    let d = parse_dim("m*ceildiv(k, 32)*36 + threads*4096").unwrap();
    let bind = |s: &crate::Sym| Some(if s.name() == "k" { 33 } else { 2 });
    assert_eq!(d.eval(&bind), Ok(2 * 2 * 36 + 2 * 4096));
    assert_eq!(parse_dim("(a+b)*(a-b)").unwrap(), parse_dim("a*a-b*b").unwrap());
    for d in ["-3*T+B*floordiv(T, B)-1", "min(B, max(3, T))", "0", "-T"] {
        let d = parse_dim(d).unwrap();
        assert_eq!(parse_dim(&d.to_string()).unwrap(), d);
    }
    let deep = "(".repeat(10_000);
    let wide = "(a+b+c+d+e+f+g+h)*".repeat(40) + "1";
    let hostile = (0..60).map(|i| format!("(a{i}+b{i})*")).collect::<String>() + "1";
    for bad in ["", "3*", "min(1)", "huh(1, 2)", "99999999999999999999", "1 2", &deep, &wide, &hostile] {
        assert!(parse_dim(bad).is_err(), "{bad:.40}");
    }
}

#[test]
fn extreme_numbers_round_trip() {
    let nan = u32::MAX.to_le_bytes();
    let texts = [
        "input %x: f32[2]\n%y: f32[2] = same(%x) {a=NaN, b=-0.0, c=-inf, d=-9223372036854775808}".to_owned(),
        "input %x: f32[2]\n%y: f32[2] = same(%x) {a=-NaN, e={(f32) 1=const:f32(-NaN) 2=add(0,1) -> 2:f32}}"
            .to_owned(),
        "input %x: f32[-9223372036854775807*T-2*T, T-9223372036854775807-5]".to_owned(),
        format!("const %c: f32[1] = 0x{:02x}{:02x}{:02x}{:02x}", nan[0], nan[1], nan[2], nan[3]),
        "const %c: f8e4m3fn[3] = [448.0, NaN, -0.0]\nconst %d: f4e2m1[3] = [6.0, -0.5, 0.0]".to_owned(),
        "const %c: f8e4m3fn[1] = 0xff".to_owned(),
    ];
    for text in texts {
        let g = parse(&text, &registry()).unwrap();
        let printed = print(&g);
        let again = parse(&printed, &registry()).unwrap_or_else(|e| panic!("{printed}: {e}"));
        assert_eq!(again, g, "{printed}");
    }
}

#[test]
fn schedules_print() {
    let row = KernelRow {
        name: "fill",
        op: "fill",
        inputs: &[],
        outputs: &[],
        guards: &[],
        params: &[],
        scratch: "",
        alias: &[],
    };
    let target = Target {
        name: "t".into(),
        align: 64,
        threads: 1,
        rows: vec![row],
        scalars: vec![],
        compute: vec![],
        lacks: vec![],
    };
    let t = Dim::sym("T");
    let operand = Operand {
        region: Region::Arena,
        buffer: 0,
        offset: Dim::from(64i64),
        dtype: DType::F32,
        dims: vec![t.clone(), 8.into()],
        strides: vec![8.into(), 1.into()],
    };
    let guard = SizeGuard { dim: t, cmp: Cmp::Le, value: 4 };
    let candidate =
        Candidate { guards: vec![guard], row: RowId(0), params: vec![], scratch: Dim::from(0i64) };
    let step = KernelStep {
        name: "y".into(),
        candidates: vec![candidate],
        operands: vec![None, Some(operand)],
        inputs: 1,
        exprs: vec![],
        scratch: 0,
        flops: Dim::from(0i64),
        bytes: Dim::from(0i64),
    };
    let s = Schedule {
        name: "s".into(),
        target: "t".into(),
        steps: vec![Step::Kernel(step)],
        ..Schedule::default()
    };
    let want = "schedule \"s\" for t\n0: %y = fill if T <= 4 (_) -> (arena+64 f32[T, 8]:[8, 1])\narena 0 bytes, live 0 bytes\n";
    assert_eq!(print_schedule(&s, &target), want);
}
