//! A graph written in Rust: softmax(relu(x·W + b)·V) for any number of rows. `cargo run --release --example own_graph`.

use frit::{Builder, CompileOptions, DType, Tensor, Weights};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut g = Builder::new("mlp");
    let n = g.symbol("N", 1, 64)?;
    let x = g.input("x", DType::F32, [n, 3.into()])?;
    let w = g.param("w", DType::F32, [4, 3])?; // [outputs, inputs]
    let b = g.param("b", DType::F32, [4])?;
    let v = g.param("v", DType::F32, [2, 4])?;
    let h = g.linear_weight(x, w)?;
    let h = g.add(h, b)?;
    let h = g.unary(frit::graph::ScalarOp::Relu, h)?;
    let y = g.linear_weight(h, v)?;
    let y = g.softmax(y, -1)?;
    g.output("y", y)?;

    let ramp = |n: usize| (0..n).map(|i| i as f32 * 0.1 - 0.5).collect::<Vec<f32>>();
    let weights: Weights = [
        ("w", Tensor::from_f32(&[4, 3], &ramp(12))?),
        ("b", Tensor::from_f32(&[4], &ramp(4))?),
        ("v", Tensor::from_f32(&[2, 4], &ramp(8))?),
    ]
    .into_iter()
    .collect();
    let compiled = frit::compile(&g.finish(), weights, &CompileOptions::default())?;

    // One compilation serves every N in the range.
    let mut session = compiled.session()?;
    for rows in [1, 5] {
        let x = Tensor::from_f32(&[rows, 3], &ramp(rows * 3))?;
        let outputs = session.run(&[("x", &x)])?;
        let y = outputs.get("y")?;
        println!("{:?}: {:?}", y.shape(), y.as_slice::<f32>()?);
        assert!(y.as_slice::<f32>()?.chunks(2).all(|r| (r[0] + r[1] - 1.0).abs() < 1e-6));
    }

    // What does not fit is an error at the call, with both shapes in it.
    let wrong = Tensor::from_f32(&[1, 4], &ramp(4))?;
    match session.run(&[("x", &wrong)]) {
        Err(e) => println!("refused: {e}"),
        Ok(_) => return Err("a wrong shape was accepted".into()),
    }
    Ok(())
}
