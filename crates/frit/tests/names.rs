//! Names and lengths at the facade: whatever is given twice, not at all, under an unknown name, or in another size or type is
//! a typed error that names it, and leaves what was there usable.

use std::sync::Arc;

use frit::{Builder, CompileOptions, Compiled, DType, Error, Graph, Tensor, Weights, compile};

/// `y = x·Wᵀ + b + z`: x f32 `[N, 3]`, z f32 `[N, 2]`, with N from 1 to 8.
fn graph() -> Graph {
    let mut g = Builder::new("affine");
    let n = g.symbol("N", 1, 8).unwrap();
    let x = g.input("x", DType::F32, [n.clone(), 3.into()]).unwrap();
    let z = g.input("z", DType::F32, [n, 2.into()]).unwrap();
    let w = g.param("w", DType::F32, [2, 3]).unwrap();
    let b = g.param("b", DType::F32, [2]).unwrap();
    let y = g.linear_weight(x, w).unwrap();
    let y = g.add(y, b).unwrap();
    let y = g.add(y, z).unwrap();
    g.output("y", y).unwrap();
    g.finish()
}

fn tensor(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    Tensor::from_f32(shape, &(0..n).map(|i| i as f32).collect::<Vec<f32>>()).unwrap()
}

fn weights() -> Weights {
    [("w", tensor(&[2, 3])), ("b", tensor(&[2]))].into_iter().collect()
}

fn compiled(w: Weights) -> Result<Compiled, Error> {
    compile(&graph(), w, &CompileOptions::default().threads(1))
}

/// The one line of an error of the wanted variant; it must contain all of `parts`.
fn says(e: &Error, right: bool, parts: &[&str]) {
    let line = e.to_string();
    assert!(right, "another variant: {e:?}");
    assert!(
        !line.contains('\n') && parts.iter().all(|p| line.contains(p)),
        "{line:?} lacks one of {parts:?}"
    );
}

fn refused(w: Weights) -> Error {
    compiled(w).err().expect("the weights do not fit")
}

#[test]
fn names_of_a_graph_are_unique() {
    let mut g = Builder::new("twice");
    let x = g.input("x", DType::F32, [2]).unwrap();
    let error = |e: frit::Error| says(&e, matches!(e, Error::Name { .. }), &["`x`", "twice"]);
    error(g.input("x", DType::F32, [2]).unwrap_err().into());
    error(g.input("x", DType::I32, [3]).unwrap_err().into());
    error(g.param("x", DType::F32, [2]).unwrap_err().into());
    g.output("x", x).unwrap();
    error(g.output("x", x).unwrap_err().into());
    // What was refused is not in the graph.
    assert_eq!(g.finish().values().len(), 1);
}

#[test]
fn a_parameter_that_the_graph_lacks_is_named() {
    let mut w = weights();
    w.insert("layers.0.bias", tensor(&[2]));
    let e = refused(w);
    says(&e, matches!(e, Error::Name { .. }), &["no parameter", "`layers.0.bias`"]);
    // Inputs and outputs are not parameters.
    for name in ["x", "y"] {
        let mut w = weights();
        w.insert(name, tensor(&[2]));
        let e = refused(w);
        says(&e, matches!(e, Error::Name { .. }), &["no parameter", &format!("`{name}`")]);
    }
}

#[test]
fn a_parameter_that_is_not_set_is_named() {
    for name in ["w", "b"] {
        let all = [("w", tensor(&[2, 3])), ("b", tensor(&[2]))];
        let e = refused(all.into_iter().filter(|(n, _)| *n != name).collect());
        says(&e, matches!(e, Error::Name { .. }), &[&format!("`{name}`"), "never set"]);
    }
    let e = refused(Weights::new());
    says(&e, matches!(e, Error::Name { .. }), &["never set"]);
}

#[test]
fn a_parameter_of_another_size_or_type_is_named() {
    // As many elements in another shape are not the same weights.
    for shape in [&[3, 2][..], &[6], &[2, 4], &[2, 3, 1], &[0]] {
        let mut w = weights();
        w.insert("w", tensor(shape));
        let e = refused(w);
        says(&e, matches!(e, Error::Shape { .. }), &["`w`", "2, 3"]);
    }
    let mut w = weights();
    w.insert("b", Tensor::from_f64(DType::F16, &[2], &[0.0; 2]).unwrap());
    let e = refused(w);
    says(&e, matches!(e, Error::Value { .. }), &["`b`", "f32", "f16"]);
    // Bytes that are too short or too long.
    for n in [0, 7, 9, 16] {
        let mut w = weights();
        w.insert_bytes("b", DType::F32, Arc::new(vec![0u8; n]));
        let e = refused(w);
        says(&e, matches!(e, Error::Shape { .. }), &["`b`", "8 bytes", &n.to_string()]);
    }
}

#[test]
fn a_weight_inserted_twice_counts_the_last_time() {
    let mut w = weights();
    w.insert("b", Tensor::from_f32(&[2], &[100.0, 200.0]).unwrap());
    let mut s = compiled(w).unwrap().session().unwrap();
    let (x, z) =
        (Tensor::from_f32(&[1, 3], &[0.0; 3]).unwrap(), Tensor::from_f32(&[1, 2], &[1.0, 2.0]).unwrap());
    let out = s.run(&[("x", &x), ("z", &z)]).unwrap();
    assert_eq!(out.get("y").unwrap().as_slice::<f32>().unwrap(), &[101.0, 202.0]);
}

/// Runs the graph on what is wrong, then on what is right: the session must still be usable.
fn run_refused(inputs: &[(&str, &Tensor)]) -> Error {
    let mut s = compiled(weights()).unwrap().session().unwrap();
    let e = s.run(inputs).err().expect("the inputs do not fit");
    let (x, z) = (tensor(&[2, 3]), tensor(&[2, 2]));
    let out = s.run(&[("z", &z), ("x", &x)]).unwrap();
    // x·Wᵀ = [[5, 14], [14, 50]], b = [0, 1], z = [[0, 1], [2, 3]].
    assert_eq!(out.get("y").unwrap().as_slice::<f32>().unwrap(), &[5.0, 16.0, 16.0, 54.0]);
    e
}

#[test]
fn an_input_that_is_unknown_missing_or_given_twice_is_named() {
    let (x, z) = (tensor(&[2, 3]), tensor(&[2, 2]));
    let e = run_refused(&[("x", &x), ("z", &z), ("mask", &z)]);
    says(&e, matches!(e, Error::Name { .. }), &["no input", "`mask`", "x, z"]);
    let e = run_refused(&[("x", &x), ("w", &x), ("z", &z)]);
    says(&e, matches!(e, Error::Name { .. }), &["no input", "`w`"]);
    let e = run_refused(&[("x", &x), ("z", &z), ("x", &x)]);
    says(&e, matches!(e, Error::Name { .. }), &["`x`", "twice"]);
    let e = run_refused(&[("x", &x)]);
    says(&e, matches!(e, Error::Name { .. }), &["`z`", "not given"]);
    let e = run_refused(&[]);
    says(&e, matches!(e, Error::Name { .. }), &["not given"]);
    // An output that does not exist.
    let mut s = compiled(weights()).unwrap().session().unwrap();
    let out = s.run(&[("x", &x), ("z", &z)]).unwrap();
    let e = out.get("logits").expect_err("no such output");
    says(&e, matches!(e, Error::Name { .. }), &["no output", "`logits`", "y"]);
}

#[test]
fn an_input_of_the_wrong_length_or_type_is_named() {
    let (x, z) = (tensor(&[2, 3]), tensor(&[2, 2]));
    for shape in [&[2, 4][..], &[6], &[2, 3, 1], &[2, 0], &[]] {
        let e = run_refused(&[("x", &tensor(shape)), ("z", &z)]);
        says(&e, matches!(e, Error::Shape { .. }), &["`x`", "N, 3"]);
    }
    // Two inputs that disagree about N, and an N out of range.
    let e = run_refused(&[("x", &x), ("z", &tensor(&[3, 2]))]);
    says(&e, matches!(e, Error::Shape { .. }), &["`x`"]);
    for n in [0, 9] {
        let e = run_refused(&[("x", &tensor(&[n, 3])), ("z", &tensor(&[n, 2]))]);
        says(&e, matches!(e, Error::Shape { .. }), &["`N`", &n.to_string(), "1..=8"]);
    }
    let ints = Tensor::from_f64(DType::I32, &[2, 3], &[0.0; 6]).unwrap();
    let e = run_refused(&[("x", &ints), ("z", &z)]);
    says(&e, matches!(e, Error::Value { .. }), &["`x`", "f32", "i32"]);
}
