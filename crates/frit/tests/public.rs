//! What the public API promises of itself: bounds, errors, ops of one's own, states of one's own.

use std::error::Error as _;
use std::sync::Arc;

use frit::graph::{Attrs, Cost, Expr, Lowered, OpDef, ScalarOp, Type};
use frit::{Batch, BatchReply, Builder, Cancel, CompileOptions, Compiled, Dim, Error, Generator, Graph};
use frit::{LoadOptions, Model, Options, Piece, Reply, Request, Session, Snapshot, Tensor, Weights};

fn shared<T: Clone + Send + Sync + 'static>() {}
fn owned<T: Send + 'static>() {}
fn streamed<T: Iterator + Send>() {}

/// Compiles only as long as the bounds hold.
#[test]
fn bounds() {
    shared::<Model>();
    shared::<Compiled>();
    shared::<Graph>();
    shared::<Tensor>();
    shared::<Weights>();
    shared::<Snapshot>();
    shared::<Cancel>();
    shared::<Request>();
    shared::<Piece>();
    shared::<frit::End>();
    shared::<Options>();
    shared::<LoadOptions>();
    shared::<CompileOptions>();
    shared::<frit::SamplingOptions>();
    owned::<Generator>();
    owned::<Session>();
    owned::<Batch>();
    streamed::<Reply<'static>>();
    streamed::<BatchReply<'static>>();
    #[cfg(feature = "text")]
    shared::<frit::Tokenizer>();
    fn error<T: std::error::Error + Send + Sync + 'static>() {}
    error::<Error>();
}

fn compiled(build: impl FnOnce(&mut Builder)) -> Compiled {
    let mut b = Builder::new("test");
    build(&mut b);
    frit::compile(&b.finish(), Weights::new(), &CompileOptions::default().threads(1)).unwrap()
}

/// Adds up what it is given: s' = s + x.
fn sums() -> Compiled {
    compiled(|b| {
        let n = b.symbol("N", 1, 8).unwrap();
        let x = b.input("x", frit::DType::F32, [n.clone()]).unwrap();
        let s = b.state("s", frit::DType::F32, [n]).unwrap();
        let next = b.add(s, x).unwrap();
        b.update(s, next).unwrap();
        b.output("y", next).unwrap();
    })
}

fn add(s: &mut Session, v: [f32; 2]) -> Vec<f32> {
    let x = Tensor::from_f32(&[2], &v).unwrap();
    s.run(&[("x", &x)]).unwrap().get("y").unwrap().as_slice::<f32>().unwrap().to_vec()
}

#[test]
fn the_state_of_a_graph_is_copied_restored_and_saved() {
    let sums = sums();
    let mut a = sums.session_with(&[("N", 2)]).unwrap();
    assert_eq!(add(&mut a, [1.0, 2.0]), [1.0, 2.0]);
    let snapshot = a.snapshot().unwrap();
    assert_eq!((snapshot.bytes(), snapshot.tokens()), (8, &[][..]));
    let mut file = Vec::new();
    a.save(&mut file).unwrap();
    let mut b = a.fork().unwrap();
    assert_eq!(add(&mut a, [10.0, 10.0]), [11.0, 12.0]);
    assert_eq!(add(&mut b, [0.5, 0.5]), [1.5, 2.5]);
    a.restore(&snapshot).unwrap();
    assert_eq!(add(&mut a, [0.0, 1.0]), [1.0, 3.0]);
    let mut c = sums.session_with(&[("N", 2)]).unwrap();
    c.load(&file[..]).unwrap();
    assert_eq!(add(&mut c, [1.0, 1.0]), [2.0, 3.0]);

    let mut wide = sums.session_with(&[("N", 3)]).unwrap();
    assert!(matches!(wide.restore(&snapshot), Err(Error::Shape { .. })));
    assert!(matches!(wide.load(&file[..]), Err(Error::Format { .. })));
    let other = compiled(|b| {
        let s = b.state("s", frit::DType::F32, [2]).unwrap();
        let next = b.mul(s, s).unwrap();
        b.update(s, next).unwrap();
        b.output("y", next).unwrap();
    });
    let mut other = other.session().unwrap();
    assert!(matches!(other.restore(&snapshot), Err(Error::Value { .. })));
    assert!(matches!(other.load(&file[..]), Err(Error::Value { .. })));
    for n in 0..file.len() {
        assert!(matches!(c.load(&file[..n]), Err(Error::Format { .. })), "{n}");
    }
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    assert!(matches!(a.save(Full), Err(Error::Io { .. })));
}

/// What a device cannot do is not left out silently.
#[cfg(feature = "gpu")]
#[test]
fn the_cpu_has_no_graph_compiler() {
    use frit::{DeviceSpec, GraphMode, GraphOptions};
    let mut b = Builder::new("g");
    let x = b.input("x", frit::DType::F32, [2]).unwrap();
    let y = b.add(x, x).unwrap();
    b.output("y", y).unwrap();
    let g = b.finish();
    for mode in [GraphMode::Products, GraphMode::Hybrid, GraphMode::Whole] {
        let options =
            CompileOptions::default().device(DeviceSpec::Cpu).graphs(GraphOptions::default().mode(mode));
        let e = frit::compile(&g, Weights::new(), &options).err().unwrap();
        assert!(matches!(&e, Error::Unsupported { message } if message.contains("graph compiler")), "{e}");
    }
}

#[test]
fn weights_with_other_values_make_another_model() {
    let session = |w: f32| {
        let mut b = Builder::new("scaled");
        let w0 = b.param("w", frit::DType::F32, [1]).unwrap();
        let s = b.state("s", frit::DType::F32, [1]).unwrap();
        let next = b.add(s, w0).unwrap();
        b.update(s, next).unwrap();
        b.output("y", next).unwrap();
        let weights = [("w", Tensor::from_f32(&[1], &[w]).unwrap())].into_iter().collect();
        let options = CompileOptions::default().threads(1);
        frit::compile(&b.finish(), weights, &options).unwrap().session().unwrap()
    };
    let snapshot = session(1.0).snapshot().unwrap();
    session(1.0).restore(&snapshot).unwrap();
    assert!(matches!(session(2.0).restore(&snapshot), Err(Error::Value { .. })));
}

/// The op `my.square`: x·x, in built-in ops.
fn square() -> OpDef {
    OpDef {
        name: "my.square",
        summary: "multiplies a value by itself",
        infer: |ctx| {
            ctx.attrs.only(&[])?;
            ctx.arity(1, 1)?;
            Ok(vec![ctx.ty(0)?.clone()])
        },
        reference: None,
        expand: Some(|graph, registry, _, inputs| {
            let d = graph.ty(inputs[0]).dtype;
            let expr = Arc::new(Expr::single(ScalarOp::Mul, &[d, d], d));
            let attrs = Attrs::new().with("expr", expr);
            Ok(graph.push(registry, "expr", attrs, &[inputs[0], inputs[0]], &[])?.to_vec())
        }),
        vjp: None,
        cost: |_| Cost { flops: Dim::from(0i64), bytes: Dim::from(0i64) },
        lower: |_| Ok(Lowered::default()),
        view: None,
        updates: &[],
        cases: Vec::new,
    }
}

#[test]
fn a_graph_uses_ops_of_ones_own() {
    let mut registry = frit::graph::registry();
    registry.add(square()).unwrap();
    let mut graph = Graph::new("squares");
    let x = graph.input("x", Type::new(frit::DType::F32, [3])).unwrap();
    let y = graph.push(&registry, "my.square", Attrs::new(), &[x], &["y"]).unwrap();
    graph.output("y", y[0]).unwrap();

    let options = CompileOptions::default().threads(1).registry(registry);
    let mut session = frit::compile(&graph, Weights::new(), &options).unwrap().session().unwrap();
    let x = Tensor::from_f32(&[3], &[1.0, -3.0, 0.5]).unwrap();
    let out = session.run(&[("x", &x)]).unwrap();
    assert_eq!(out.get("y").unwrap().as_slice::<f32>().unwrap(), [1.0, 9.0, 0.25]);

    let e = frit::compile(&graph, Weights::new(), &CompileOptions::default()).err().unwrap();
    assert!(matches!(e, Error::Unsupported { .. }) && e.to_string().contains("my.square"), "{e}");
}

#[test]
fn errors_are_on_one_line_and_keep_their_causes() {
    let mut weights = Weights::new();
    weights.insert("two\nlines", Tensor::from_f32(&[1], &[1.0]).unwrap());
    let mut b = Builder::new("empty");
    let x = b.input("x", frit::DType::F32, [1]).unwrap();
    b.output("y", x).unwrap();
    let e = frit::compile(&b.finish(), weights, &CompileOptions::default()).err().unwrap();
    assert!(matches!(e, Error::Name { .. }));
    assert_eq!(e.to_string(), "the graph has no parameter `two\\nlines`");

    let missing = Model::load("no/such\nmodel.gguf").err().unwrap();
    assert!(matches!(missing, Error::Io { .. }));
    assert!(!missing.to_string().contains('\n'), "{missing}");
    let cause = missing.source().unwrap();
    assert!(cause.downcast_ref::<std::io::Error>().is_some());

    let threads = CompileOptions::default().threads(0);
    let mut b = Builder::new("empty");
    let x = b.input("x", frit::DType::F32, [1]).unwrap();
    b.output("y", x).unwrap();
    let e = frit::compile(&b.finish(), Weights::new(), &threads).err().unwrap();
    assert!(matches!(e, Error::Value { .. }), "{e}");
}
