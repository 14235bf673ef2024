//! A program with an op of its own: `cargo run --release`, with `--features cuda` or, on a Mac, `--features gpu` for other GPUs than
//! OpenCL's. The op and its kernel for the CPU are in `snake.rs`, the one for every GPU in `snake.k`; here it is checked against its
//! reference and used in a graph, on the CPU and on every GPU that the build reaches.

mod snake;

use frit::{Builder, CompileOptions, DType, Tensor, Weights};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    for device in frit::devices().into_iter().map(|d| d.spec) {
        let options = CompileOptions::default().device(device.clone());
        let options = options.registry(snake::registry()?).kernels(snake::kernels());
        let cases = frit::custom::check_op(snake::NAME, &options)?;
        println!("{device}: {cases} cases of {} agree with the reference", snake::NAME);
        use_it(&options)?;
    }
    Ok(())
}

/// y = snake(W·x), for 1 to 16 channels of 8 samples each.
fn use_it(options: &CompileOptions) -> Result<(), Failure> {
    let mut g = Builder::with_registry("vocoder", snake::registry()?);
    let n = g.symbol("N", 1, 16)?;
    let x = g.input("x", DType::F32, [n.clone(), 8.into()])?;
    let w = g.param("w", DType::F32, [8, 8])?;
    let alpha = g.input("alpha", DType::F32, [n])?;
    let h = g.linear_weight(x, w)?;
    let y = g.node(snake::NAME, frit::graph::Attrs::new(), &[h, alpha])?;
    g.output("y", y)?;

    // W doubles what it is given.
    let w: Vec<f32> = (0..64).map(|i| if i % 9 == 0 { 2.0 } else { 0.0 }).collect();
    let weights: Weights = [("w", Tensor::from_f32(&[8, 8], &w)?)].into_iter().collect();
    let mut session = frit::compile(&g.finish(), weights, options)?.session()?;
    let (x, alpha) = (Tensor::from_f32(&[2, 8], &[0.25; 16])?, Tensor::from_f32(&[2], &[1.0, 3.0])?);
    let (out, trace) = session.run_timed(&[("x", &x), ("alpha", &alpha)])?;
    let y = out.get("y")?;
    for (row, a) in y.as_slice::<f32>()?.chunks(8).zip([1.0f32, 3.0]) {
        let want = 0.5 + (a * 0.5).sin().powi(2) / a;
        assert!(row.iter().all(|v| (v - want).abs() < 1e-6), "{row:?}, expected {want}");
    }
    // Its own kernel ran.
    assert!(trace.totals().iter().any(|t| t.kernel == snake::NAME && t.count == 1));
    Ok(())
}
