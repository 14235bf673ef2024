//! Traces: what timed runs tell of the golden Llama on the CPU, on the null driver, and with the feature `opencl` on GPUs.

use frit::{Builder, DType, DeviceSpec, Generator, LoadOptions, Options, Tensor, Trace, Weights};
use frit_ir::times::RunTimes;
use frit_models::config::BuildOptions;
use frit_tests::{decoders, golden, null, timing};
use safetensors::SafeTensors;

/// The golden Llama on a device.
fn llama(device: DeviceSpec) -> Generator {
    let options = LoadOptions::default().device(device).context(64).chunk(16).kv_dtype(DType::F32);
    decoders::load("llama", options).generator(Options::default()).unwrap()
}

/// Multiplications and additions with the weights of the golden Llama's layers for `tokens` tokens, and with its output head for
/// as many rows as there are runs, counted from the file.
fn products(tokens: usize, runs: usize) -> u64 {
    let bytes = std::fs::read(golden::folder("llama").join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let elements = |end: &str| -> usize {
        let of = |(n, t): (String, safetensors::tensor::TensorView)| {
            if n.ends_with(end) { t.shape().iter().product() } else { 0 }
        };
        file.tensors().into_iter().map(of).sum()
    };
    let head = match elements("lm_head.weight") {
        0 => elements("embed_tokens.weight"),
        n => n,
    };
    2 * (tokens * elements("_proj.weight") + runs * head) as u64
}

fn runs_of_a_model(device: DeviceSpec) {
    let what = device.to_string();
    let (mut g, mut plain) = (llama(device.clone()), llama(device));
    let schedule = g.model().compiled().schedule().clone();
    // Three runs: 16, 16 and 5 tokens.
    let tokens: Vec<u32> = (0..37).map(|i| 3 + 5 * i).collect();
    let (logits, mut trace) = g.feed_timed(&tokens).unwrap();
    assert_eq!(logits, plain.feed(&tokens).unwrap(), "{what}");
    assert_eq!(trace.runs().len(), 3);
    timing::check(&trace, &schedule, &what);
    let linear = |t: &Trace| t.totals().iter().filter(|t| t.op == "linear").map(|t| t.flops).sum::<u64>();
    assert_eq!(linear(&trace), products(37, 3), "{what}");
    let encode: Vec<bool> = trace.runs().iter().map(|r| r.encode.is_zero()).collect();
    assert_eq!(encode, [false, true, false], "{what}: a run of the sizes of the one before binds nothing");
    // A step of one token; then untimed ones, which go on as if nothing had been.
    let (logits, step) = g.feed_timed(&[7]).unwrap();
    assert_eq!(logits, plain.feed(&[7]).unwrap(), "{what}");
    timing::check(&step, &schedule, &what);
    assert_eq!(linear(&step), products(1, 1), "{what}");
    assert_eq!(g.feed(&[8]).unwrap(), plain.feed(&[8]).unwrap(), "{what}");
    trace.append(step);
    timing::check(&trace, &schedule, &what);
    // A run that fails leaves no trace behind.
    assert!(g.feed_timed(&[u32::MAX]).is_err());
    assert_eq!(g.feed_timed(&[9]).unwrap().1.runs().len(), 1, "{what}");
}

#[test]
fn a_model_on_the_cpu() {
    runs_of_a_model(DeviceSpec::Cpu);
}

#[cfg(feature = "opencl")]
#[test]
fn a_model_on_every_gpu() {
    let gpus: Vec<_> = frit::devices().into_iter().filter(|d| d.spec != DeviceSpec::Cpu).collect();
    assert!(!gpus.is_empty(), "no GPU: {:?}", frit::missing_devices());
    gpus.into_iter().for_each(|d| runs_of_a_model(d.spec));
}

#[test]
fn a_graph_of_one_s_own() {
    let mut g = Builder::new("scores");
    let n = g.symbol("N", 1, 64).unwrap();
    let x = g.input("x", DType::F32, [n, 8.into()]).unwrap();
    let y = g.softmax(x, -1).unwrap();
    g.output("y", y).unwrap();
    let options = frit::CompileOptions::default().device(DeviceSpec::Cpu);
    let compiled = frit::compile(&g.finish(), Weights::new(), &options).unwrap();
    let mut s = compiled.session().unwrap();
    let x = Tensor::from_f32(&[3, 8], &[0.5; 24]).unwrap();
    let (out, trace) = s.run_timed(&[("x", &x)]).unwrap();
    assert_eq!(out.get("y").unwrap().as_slice::<f32>().unwrap(), [0.125; 24]);
    timing::check(&trace, compiled.schedule(), "scores");
    let step = &trace.runs()[0].steps[0];
    assert_eq!((trace.runs()[0].name.as_str(), step.op, step.bytes), ("scores N=3", "softmax", 2 * 24 * 4));
    // Nothing at all is a trace too.
    assert!(Trace::default().totals().is_empty());
    let mut empty = Vec::new();
    Trace::default().write_chrome(&mut empty).unwrap();
    serde_json::from_slice::<serde_json::Value>(&empty).unwrap();
}

#[test]
fn the_null_driver_times_every_launch_once() {
    let m = null::decoder("llama", &BuildOptions::default().context(64).chunk(16), false).unwrap();
    let mut s = frit_gpu::session::Session::new(&m.exe, &[("C", 64)]).unwrap();
    let mut run = |tokens: &[i32], start: usize, timed: bool| -> RunTimes {
        null::set(&mut s, tokens, start, 1).unwrap();
        if timed { s.run_timed().unwrap() } else { s.submit(false).unwrap().wait().unwrap().times }
    };
    for (tokens, start) in [(&[5; 16][..], 0), (&[6], 16), (&[7], 17)] {
        let times = run(tokens, start, true);
        let steps: Vec<u32> = times.steps.iter().map(|t| t.step).collect();
        assert_eq!(steps, (0..m.exe.schedule().steps.len() as u32).collect::<Vec<_>>());
        assert!(times.steps.is_sorted_by(|a, b| a.start < a.end && a.end <= b.start));
        assert_eq!(times.encode.is_zero(), start == 17);
    }
    assert!(run(&[8], 18, false).steps.is_empty());
    assert_eq!(m.null.faults(), Vec::<String>::new());
}
