//! Inference of the ops on rows with symbolic extents: what is certain leaves no guard, what is not leaves one, and what
//! cannot hold is refused.

use std::collections::HashMap;
use std::sync::Arc;

use frit_ir::expr::{Expr, ScalarOp};
use frit_ir::graph::{GraphError, Type, ValueId};
use frit_ir::{Attrs, DType, Dim, Graph, Tensor};
use frit_ops::cases::{random, values};
use frit_ops::interpret::interpret;
use frit_ops::registry;

fn attention() -> Attrs {
    Attrs::new()
        .with("scale", 0.25)
        .with("causal", true)
        .with("window_left", -1i64)
        .with("window_right", -1i64)
        .with("softcap", 0.0)
        .with("ring", false)
        .with("lse", false)
}

fn rotary() -> Attrs {
    Attrs::new().with("dims", 16i64).with("style", "half").with("factor", 1.0)
}

fn ty(d: DType, dims: &[Dim]) -> Type {
    Type::new(d, dims.iter().cloned())
}

/// A token loop's attention block: x `[T, 32]` through a linear layer, rotary, a cache write and attention over it.
fn block(g: &mut Graph) -> Result<ValueId, GraphError> {
    let r = registry();
    let t = g.symbols.declare("T", 1, 512).unwrap();
    let n = |v: i64| Dim::from(v);
    let x = g.input("x", ty(DType::F32, &[t.clone(), n(32)]))?;
    let positions = g.input("positions", ty(DType::I32, &[n(1), t.clone()]))?;
    let len = g.input("kv_len", ty(DType::I32, &[n(1)]))?;
    let freq = g.param("freq", ty(DType::F32, &[n(8)]))?;
    let w = g.param("w", ty(DType::Q8_0, &[n(32), n(32)]))?;
    let norm = g.param("norm", ty(DType::F32, &[n(32)]))?;
    let cache = g.state("k", ty(DType::F16, &[n(1), n(1), n(64), n(16)]))?;
    let mut identity = Expr::new(&[DType::F32]);
    identity.output(0, DType::F32);
    let linear = Attrs::new()
        .with("weights", 1i64)
        .with("arity", vec![1i64])
        .with("exprs", vec![Arc::new(identity)])
        .with("activations", "q8");
    let rms = Attrs::new().with("eps", 1e-5).with("plus_one", false);
    let x = g.push(&r, "rms_norm", rms, &[x, norm], &[])?[0];
    let q = g.push(&r, "linear", linear, &[x, w], &[])?[0];
    let shape = Attrs::new().with("shape", vec![n(1), t, n(2), n(16)]);
    let q = g.push(&r, "reshape", shape, &[q], &[])?[0];
    let q = g.push(&r, "rotary", rotary(), &[q, positions, freq], &[])?[0];
    let sizes = Attrs::new()
        .with("starts", vec![0i64; 4])
        .with("sizes", g.ty(q).shape[..2].iter().cloned().chain([n(1), n(16)]).collect::<Vec<_>>())
        .with("steps", vec![1i64; 4]);
    let k = g.push(&r, "slice", sizes, &[q], &[])?[0];
    let next = g.push(&r, "write_kv", Attrs::new().with("ring", false), &[cache, k, positions], &[])?[0];
    g.update(cache, next)?;
    Ok(g.push(&r, "attention", attention(), &[q, next, next, len], &[])?[0])
}

#[test]
fn a_block_of_symbolic_length_needs_no_guard_and_runs() {
    let mut g = Graph::new("block");
    let out = block(&mut g).unwrap();
    assert_eq!(g.ty(out).to_string(), "f32[1, T, 2, 16]");
    assert_eq!(g.guards, []);
    g.output("y", out).unwrap();
    let feed = |t: usize, x: &Tensor, from: usize, state: Option<Tensor>| {
        let positions: Vec<f64> = (from..from + t).map(|p| p as f64).collect();
        let mut v = HashMap::from([
            ("x".into(), x.clone()),
            ("positions".into(), values(DType::I32, &[1, t], &positions)),
            ("kv_len".into(), values(DType::I32, &[1], &[(from + t) as f64])),
            ("freq".into(), random(DType::F32, &[8], 1)),
            ("w".into(), random(DType::Q8_0, &[32, 32], 2)),
            ("norm".into(), random(DType::F32, &[32], 3)),
        ]);
        if let Some(s) = state {
            v.insert("k".into(), s);
        }
        interpret(&g, &registry(), &[("T", t as i64)], &v).unwrap()
    };
    // Three tokens at once equal two and then one.
    let x = random(DType::F32, &[3, 32], 4);
    let part = |a: usize, b: usize| {
        Tensor::new(DType::F32, &[b - a, 32], x.bytes()[a * 128..b * 128].to_vec()).unwrap()
    };
    let whole = feed(3, &x, 0, None);
    let first = feed(2, &part(0, 2), 0, None);
    let second = feed(1, &part(2, 3), 2, Some(first.states[0].1.clone()));
    let y = |r: &frit_ops::interpret::Results| r.outputs[0].1.bytes().to_vec();
    assert_eq!(y(&whole), [y(&first), y(&second)].concat());
    assert_eq!(whole.states, second.states);
}

#[test]
fn unknown_extents_become_guards_and_impossible_ones_errors() {
    let r = registry();
    let mut g = Graph::new("guards");
    let k = g.symbols.declare("K", 1, 4096).unwrap();
    let x = g.input("x", ty(DType::F32, &[Dim::from(2i64), k.clone()])).unwrap();
    g.push(&r, "quantize", Attrs::new().with("bits", 16), &[x], &[]).unwrap();
    assert_eq!(g.guards.len(), 1);
    let w = g.param("w", ty(DType::F32, &[Dim::from(64i64)])).unwrap();
    let rms = Attrs::new().with("eps", 1e-5).with("plus_one", false);
    g.push(&r, "rms_norm", rms.clone(), &[x, w], &[]).unwrap();
    assert_eq!(g.guards.len(), 2);
    let y = g.input("y", ty(DType::F32, &[Dim::from(2i64), Dim::from(65i64)])).unwrap();
    assert!(g.push(&r, "rms_norm", rms, &[y, w], &[]).is_err());
    // The rotated part is longer than the head.
    let h = g.input("h", ty(DType::F32, &[1i64, 2, 1, 8].map(Dim::from))).unwrap();
    let p = g.input("p", ty(DType::I32, &[1i64, 2].map(Dim::from))).unwrap();
    let f = g.input("f", ty(DType::F32, &[Dim::from(8i64)])).unwrap();
    assert!(g.push(&r, "rotary", rotary(), &[h, p, f], &[]).is_err());
}

/// Expansion and reference are one specification: the sum and the norm of it.
#[test]
fn the_residual_norm_is_its_parts() {
    let r = registry();
    let mut g = Graph::new("residual");
    let [x, y] = ["x", "y"].map(|n| g.input(n, Type::new(DType::F16, [3i64, 20])).unwrap());
    let fused = Attrs::new().with("kind", "layer").with("eps", 1e-5).with("plus_one", false);
    let pair = g.push(&r, "residual_norm", fused, &[x, y], &[]).unwrap();
    let add = Arc::new(Expr::single(ScalarOp::Add, &[DType::F16; 2], DType::F16));
    let sum = g.push(&r, "expr", Attrs::new().with("expr", add), &[x, y], &[]).unwrap()[0];
    let normed = g.push(&r, "layer_norm", Attrs::new().with("eps", 1e-5), &[sum], &[]).unwrap()[0];
    for (name, v) in [("a", pair[0]), ("b", pair[1]), ("c", sum), ("d", normed)] {
        g.output(name, v).unwrap();
    }
    let v = ["x", "y"].map(|n| (n.to_string(), random(DType::F16, &[3, 20], n.len() as u64 + 7)));
    let out = interpret(&g, &r, &[], &v.into()).unwrap().outputs;
    assert_eq!((&out[0].1, &out[1].1), (&out[2].1, &out[3].1));
}
