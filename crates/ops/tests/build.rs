//! The builder and the reference interpreter: errors at the call that is wrong, and a small language model whose cache
//! gives the same results however its tokens are split into runs.

use std::collections::HashMap;

use frit_ir::graph::GraphError;
use frit_ir::{DType, Dim, Graph, ScalarOp, Tensor, ValueId};
use frit_ops::build::{Attention, Builder, Reduce, Rotary};
use frit_ops::interpret::{InterpretError, Results, interpret};
use frit_ops::{cases, registry};

fn input(b: &mut Builder, name: &str, dims: &[i64]) -> ValueId {
    b.input(name, DType::F32, dims.iter().copied()).expect("a free name")
}

/// The message of an error that must come.
fn message(r: Result<ValueId, GraphError>) -> String {
    r.expect_err("the call is wrong").to_string()
}

#[test]
fn wrong_shapes_are_refused_at_the_call_and_both_are_named() {
    let mut b = Builder::new("wrong");
    let x = input(&mut b, "x", &[2, 3]);
    let y = input(&mut b, "y", &[5, 2]);
    let z = input(&mut b, "z", &[4, 3, 2]);
    let w = input(&mut b, "w", &[7, 2, 3]);
    let h = b.input("h", DType::F16, [3i64, 2]).unwrap();
    let q = b.param("q", DType::Q8_0, [4i64, 32]).unwrap();
    let long = input(&mut b, "long", &[1 << 31]);
    let all = [
        (b.matmul(x, y), "`matmul`: [2, 3] and [5, 2] do not multiply: inner extents: 3 = 5 must hold"),
        (b.matmul(w, z), "[7, 2, 3] and [4, 3, 2] do not multiply: batch"),
        (b.matmul(x, h), "f32[2, 3] and f16[3, 2]"),
        (b.matmul(x, q), "operand"),
        (b.add(x, y), "[2, 3] and [5, 2] do not broadcast"),
        (b.add(x, h), "`add` takes arguments of one type, got f32 and f16"),
        (b.reshape(x, [4i64, 2]), "[2, 3] cannot become [4, 2]"),
        (b.reshape(x, [-1i64]), "extents are not negative"),
        (b.transpose(x, &[0, 0]), "each of 0..2 once"),
        (b.broadcast(x, [2i64, 4]), "[2, 3] does not broadcast to [2, 4]"),
        (b.broadcast(z, [2i64]), "the rank would shrink"),
        (b.narrow(x, 1, 2i64, 2i64), "slice of [2, 3]: end of dimension 1: 4 <= 3"),
        (b.narrow(x, 2, 0i64, 1i64), "axis 2 of a value of rank 2"),
        (b.concat(&[x, y], 0), "f32[2, 3] and f32[5, 2] do not join along axis 0"),
        (b.concat(&[x, z], 0), "operand 1 is f32[4, 3, 2]"),
        (b.gather(x, y, 0), "i32, i64"),
        (b.softmax(x, 2), "axes -2 to 1"),
        (b.cumsum(x, 2, false, false), "axes -2 to 1"),
        (b.cumsum(q, 0, false, false), "operand 0 is Q8_0"),
        (b.sort(q, 0, false).map(|v| v.0), "storage type"),
        (b.top_k(x, 1, 4i64, true).map(|v| v.0), "attribute `k`, axis 1 of [2, 3]: 4 <= 3 must hold"),
        (b.top_k(x, 1, -1i64, true).map(|v| v.0), "attribute `k`: 0 <= -1 must hold"),
        (b.sort(long, 0, true).map(|v| v.1), "i32 indices: 2147483648 <= 2147483647 must hold"),
        (b.reduce(Reduce::Any, x, &[0], false), "`any` does not take f32"),
        (b.reduce(Reduce::Sum, x, &[0, -2], false), "names axis 0 twice"),
        (b.dequantize(x, DType::F32), "block format"),
        (b.cast(q, DType::F32), "storage"),
        (b.linear_weight(x, q), "[2, 3] and [32, 4] do not multiply"),
        (b.rms_norm(x, Some(y), 1e-5, false), "rms_norm"),
        (b.unary(ScalarOp::Exp, ValueId(99)), "value 99 does not exist"),
    ];
    for (i, (r, want)) in all.into_iter().enumerate() {
        let e = message(r);
        assert!(e.contains(want), "call {i}: {e}\nshould hold: {want}");
    }
    assert!(b.graph().nodes().len() <= 2, "only the parts of linear_weight that fit are there");
}

fn run(g: &Graph, sizes: &[(&str, i64)], values: &[(&str, Tensor)]) -> Result<Results, InterpretError> {
    let values: HashMap<String, Tensor> = values.iter().map(|(n, t)| (n.to_string(), t.clone())).collect();
    interpret(g, &registry(), sizes, &values)
}

#[test]
fn sizes_and_values_are_checked() {
    let mut b = Builder::new("sum");
    let (t, s) = (b.symbol("T", 1, 8).unwrap(), b.symbol("S", 1, 8).unwrap());
    b.bound(t.clone() * s.clone(), 16);
    let x = b.input("x", DType::F32, [t]).unwrap();
    let y = b.input("y", DType::F32, [s]).unwrap();
    let z = b.add(x, y).unwrap();
    b.output("z", z).unwrap();
    let g = b.finish();
    let t = |n: usize| Tensor::from_f32(&[n], &vec![1.0; n]).unwrap();
    let both = |n: i64, m: i64| run(&g, &[("T", n), ("S", m)], &[("x", t(n as usize)), ("y", t(m as usize))]);
    assert_eq!(both(3, 3).unwrap().outputs[0].1.to_f32().unwrap(), [2.0; 3]);
    let has = |r: Result<Results, InterpretError>, want: &str| {
        let e = r.expect_err("must be refused").to_string();
        assert!(e.contains(want), "{e}\nshould hold: {want}");
    };
    has(both(3, 2), "T = S must hold, got 3 and 2");
    has(both(9, 9), "its range is 1..=8");
    has(both(5, 5), "at most 16");
    has(run(&g, &[("T", 1)], &[]), "`S`");
    has(run(&g, &[("T", 1), ("S", 1)], &[("x", t(1))]), "`y` has no value; it is f32[1]");
    has(run(&g, &[("T", 1), ("S", 1)], &[("x", t(2)), ("y", t(1))]), "`x` is f32[2]; it must be f32[1]");
    has(run(&g, &[("T", 1), ("S", 1)], &[("z", t(1))]), "`z` is no input");
    has(run(&g, &[("U", 1)], &[]), "`U` is no symbol");
}

#[test]
fn the_largest_of_fewer_than_asked_for_are_refused_when_sizes_are_bound() {
    let mut b = Builder::new("largest");
    let t = b.symbol("T", 1, 8).unwrap();
    let x = b.input("x", DType::F32, [t.clone()]).unwrap();
    let (values, indices) = b.top_k(x, 0, 3i64, true).unwrap();
    let (half, _) = b.top_k(x, 0, t.ceil_div(&Dim::from(2i64)), false).unwrap();
    for (name, v) in [("values", values), ("indices", indices), ("half", half)] {
        b.output(name, v).unwrap();
    }
    let g = b.finish();
    let x = |v: &[f32]| [("x", Tensor::from_f32(&[v.len()], v).unwrap())];
    let got = run(&g, &[("T", 5)], &x(&[1.0, 5.0, -2.0, 5.0, 4.0])).unwrap();
    let got: Vec<Vec<f64>> = got.outputs.iter().map(|o| o.1.to_f64().unwrap()).collect();
    assert_eq!(got, [[5.0, 5.0, 4.0], [1.0, 3.0, 4.0], [-2.0, 1.0, 4.0]]);
    let e = run(&g, &[("T", 2)], &x(&[1.0, 2.0])).expect_err("two elements, three asked for").to_string();
    assert!(e.contains("attribute `k`, axis 0 of [T]") && e.contains("got 3 and 2"), "{e}");
}

#[test]
fn symbols_go_through_inference() {
    let mut b = Builder::new("symbols");
    let (t, s) = (b.symbol("T", 1, 64).unwrap(), b.symbol("S", 0, 64).unwrap());
    let x = b.input("x", DType::F32, [t.clone(), 8.into()]).unwrap();
    let y = b.input("y", DType::F32, [s.clone(), 8.into()]).unwrap();
    let w = b.input("w", DType::F32, [8i64, 5]).unwrap();
    let ids = b.input("ids", DType::I64, [2.into(), s.clone()]).unwrap();
    let flat = t.clone() * 8.into();
    let pad =
        frit_ir::Attrs::new().with("before", vec![1i64, 0]).with("after", vec![2i64, 0]).with("mode", "edge");
    let all = [
        (b.matmul(x, w), "f32[T, 5]"),
        (b.concat(&[x, y], 0), "f32[S+T, 8]"),
        (b.concat(&[x, y], 1), "f32[T, 16]"),
        (b.gather(x, ids, 0), "f32[2, S, 8]"),
        (b.gather(w, ids, 1), "f32[8, 2, S]"),
        (b.reduce(Reduce::Max, x, &[-1], true), "f32[T, 1]"),
        (b.reduce(Reduce::Sum, x, &[0], false), "f32[8]"),
        (b.node("pad", pad, &[y]), "f32[S+3, 8]"),
        (b.node("flip", frit_ir::Attrs::new().with("axes", vec![0i64]), &[x]), "f32[T, 8]"),
        (b.reshape(x, [flat.clone()]), "f32[8*T]"),
        (b.reshape(x, [t.clone(), 2.into(), 4.into()]), "f32[T, 2, 4]"),
        (b.broadcast(w, [t.clone(), 8.into(), 5.into()]), "f32[T, 8, 5]"),
        (b.narrow(x, 0, t.clone() - 1.into(), 1i64), "f32[1, 8]"),
        (b.with_number(ScalarOp::Gt, x, 0.5), "bool[T, 8]"),
        (b.softmax(x, -1), "f32[T, 8]"),
        (b.cumsum(ids, 1, false, true), "i64[2, S]"),
        (b.sort(x, 0, false).map(|v| v.0), "f32[T, 8]"),
        (b.sort(ids, 0, false).map(|v| v.1), "i32[2, S]"),
        (b.top_k(x, 0, t.ceil_div(&2.into()), true).map(|v| v.1), "i32[ceildiv(T, 2), 8]"),
        (b.top_k(y, 0, 5i64, false).map(|v| v.0), "f32[5, 8]"),
    ];
    for (i, (v, want)) in all.into_iter().enumerate() {
        let v = v.unwrap_or_else(|e| panic!("call {i}: {e}"));
        assert_eq!(b.ty(v).unwrap().to_string(), want, "call {i}");
    }
    // What depends on the sizes is left to each run: joining along axis 1, repeating the edge of an empty dimension, and
    // whether there are as many elements as `top_k` is asked for.
    let why: Vec<&str> = b.graph().guards.iter().map(|g| g.why.as_str()).collect();
    let wants = ["join along axis 1", "pad by edge", "`k`, axis 0 of [T, 8]", "`k`, axis 0 of [S, 8]"];
    assert_eq!(why.len(), wants.len(), "{why:?}");
    assert!(why.iter().zip(wants).all(|(why, want)| why.contains(want)), "{why:?}");
}

const WIDTH: i64 = 32;
const HEADS: i64 = 4;
const KV_HEADS: i64 = 2;
const HEAD: i64 = 8;
const CAPACITY: i64 = 6;

/// One block of a language model with a cache, quantized and plain weights.
fn model() -> Result<Graph, GraphError> {
    let mut b = Builder::new("block");
    let t = b.symbol("T", 1, 4).expect("a range");
    let one = frit_ir::Dim::from(1i64);
    let ids = b.input("ids", DType::I32, [one.clone(), t.clone()])?;
    let positions = b.input("positions", DType::I32, [one.clone(), t.clone()])?;
    let kv_len = b.input("kv_len", DType::I32, [1i64])?;
    let table = b.param("embed", DType::Q8_0, [7, WIDTH])?;
    let inv_freq = b.constant("inv_freq", cases::values(DType::F32, &[4], &[1.0, 0.3, 0.1, 0.03]))?;
    let norm = b.param("norm", DType::F32, [WIDTH])?;
    let x = b.embed(table, ids, DType::F32)?;
    let n = b.rms_norm(x, Some(norm), 1e-5, false)?;
    let project = |b: &mut Builder, name: &str, x, dtype, rows: i64| {
        let w = b.param(name, dtype, [rows, WIDTH])?;
        b.linear_weight(x, w)
    };
    let split =
        |b: &mut Builder, x, heads: i64| b.reshape(x, [one.clone(), t.clone(), heads.into(), HEAD.into()]);
    let q = project(&mut b, "wq", n, DType::Q4_0, HEADS * HEAD)?;
    let k = project(&mut b, "wk", n, DType::F16, KV_HEADS * HEAD)?;
    let v = project(&mut b, "wv", n, DType::Q8_0, KV_HEADS * HEAD)?;
    let (q, k, v) = (split(&mut b, q, HEADS)?, split(&mut b, k, KV_HEADS)?, split(&mut b, v, KV_HEADS)?);
    let q = b.rotary(q, positions, inv_freq, Rotary::default())?;
    let k = b.rotary(k, positions, inv_freq, Rotary::default())?;
    let mut caches = Vec::new();
    for (name, value) in [("k", k), ("v", v)] {
        let state = b.state(name, DType::F32, [1, KV_HEADS, CAPACITY, HEAD])?;
        let next = b.write_kv(state, value, positions, None, false)?;
        b.update(state, next)?;
        caches.push(next);
    }
    let options = Attention { causal: true, kv_len: Some(kv_len), ..Attention::default() };
    let a = b.attention(q, caches[0], caches[1], options)?;
    let a = b.reshape(a, [one.clone(), t.clone(), WIDTH.into()])?;
    let a = project(&mut b, "wo", a, DType::F32, WIDTH)?;
    let x = b.add(x, a)?;
    let gate = project(&mut b, "gate", x, DType::BF16, WIDTH)?;
    let gate = b.silu(gate)?;
    let x = b.mul(x, gate)?;
    let logits = b.linear_weight(x, table)?;
    b.output("logits", logits)?;
    Ok(b.finish())
}

#[test]
fn a_cache_gives_the_same_however_tokens_are_split() {
    let g = model().expect("the model builds");
    let params: Vec<(String, Tensor)> = g
        .sourced(|s| matches!(s, frit_ir::graph::Source::Param))
        .enumerate()
        .map(|(i, v)| {
            let ty = g.ty(v);
            let shape: Vec<usize> = ty.shape.iter().map(|d| d.as_const().unwrap() as usize).collect();
            (g.value(v).name.to_string(), cases::random(ty.dtype, &shape, i as u64))
        })
        .collect();
    let tokens = [3.0, 0.0, 6.0, 1.0];
    let registry = registry();
    let decode = |chunks: &[usize]| {
        let (mut at, mut states, mut logits) = (0, Vec::new(), Vec::new());
        for n in chunks {
            let mut values: HashMap<String, Tensor> = params.iter().cloned().chain(states).collect();
            let positions: Vec<f64> = (at..at + n).map(|p| p as f64).collect();
            let int = |shape: &[usize], v: &[f64]| cases::values(DType::I32, shape, v);
            values.insert("ids".into(), int(&[1, *n], &tokens[at..at + n]));
            values.insert("positions".into(), int(&[1, *n], &positions));
            at += n;
            values.insert("kv_len".into(), int(&[1], &[at as f64]));
            let r = interpret(&g, &registry, &[("T", *n as i64)], &values).expect("runs");
            logits.extend(r.outputs[0].1.to_f32().unwrap());
            states = r.states;
        }
        logits
    };
    let whole = decode(&[4]);
    assert_eq!(whole.len(), 28);
    assert!(whole.iter().all(|v| v.is_finite()) && whole.iter().any(|v| v.abs() > 1e-3));
    // The reference sums in f64 and masks exactly, so splitting changes nothing at all.
    assert_eq!(whole, decode(&[1, 1, 1, 1]));
    assert_eq!(whole, decode(&[3, 1]));
}
