//! What becomes of schedules that go to the vendor's graph compiler: the calls, run by an interpreter on the null device,
//! against the reference.

use std::collections::HashMap;
use std::sync::Arc;

use frit_compile::{Activations, CompileOptions, compile};
use frit_gpu::device::Device;
use frit_gpu::driver::{Driver, HostData};
use frit_gpu::drivers::null::{Held, Null, info};
use frit_gpu::executor::Executable;
use frit_gpu::graphs::{GraphMode, GraphOptions, Piece};
use frit_gpu::session::Session;
use frit_ir::DType;
use frit_models::config::BuildOptions;
use frit_tests::check::{self, Checked};
use frit_tests::interpreted::Interpreted;
use frit_tests::{decoders, encoders, golden, gpu, null};
use safetensors::SafeTensors;

/// The null device with the interpreter.
fn nothing() -> (Arc<Null>, Arc<Device>) {
    let null = Arc::new(Null::new(info()));
    let device = Device::new(Arc::new(Interpreted::new(null.clone())), None);
    (null, device)
}

/// Devices that run our own steps, and graphs by their vendor's compiler or, where they have none, by the interpreter.
fn devices() -> Vec<Arc<Device>> {
    let one = |d: Arc<Device>| match d.driver().vendor() {
        Ok(()) => d,
        Err(_) => Device::new(Arc::new(Interpreted::new(d.driver().clone())), None),
    };
    if cfg!(feature = "gpu") { gpu::devices().into_iter().map(one).collect() } else { vec![] }
}

mod ops {
    use super::*;

    /// Cases of an op that are one graph, at least. The rest has f64, integers, empty operands or quantized blocks; what is not
    /// here is not in the table.
    const GRAPHS: &[(&str, usize)] = &[
        ("broadcast", 120),
        ("concat", 110),
        ("copy", 266),
        ("expr", 426),
        ("flip", 103),
        ("gather", 278),
        ("layer_norm", 76),
        ("linear", 294),
        ("matmul", 216),
        ("pad", 222),
        ("reduce", 512),
        ("reshape", 132),
        ("residual_norm", 61),
        ("rms_norm", 77),
        ("rotary", 135),
        ("slice", 91),
        ("softmax", 204),
        ("attention", 296),
        ("transpose", 121),
    ];

    fn run(op: &str) {
        let (null, device) = nothing();
        on(op, &device);
        assert_eq!((null.allocated(), null.held(), null.faults()), (0, Held::default(), vec![]), "{op}");
        for d in devices().iter().filter(|d| d.info().api == "metal") {
            on(op, d);
        }
    }

    /// Every case of `op` as one graph, its parameters as feeds and as constants: right, or refused.
    fn on(op: &str, device: &Arc<Device>) {
        let registry = frit_ops::registry();
        let cases = (registry.get(op).expect("an op of the registry").cases)();
        let (mut ran, mut failures, mut reasons) = (0, Vec::new(), std::collections::BTreeMap::new());
        for c in &cases {
            let checked = Checked::new(&registry, op, c).unwrap();
            let g = &checked.graph;
            let one = |constants: u64| {
                let graphs = GraphOptions::default().mode(GraphMode::Whole).constants(constants);
                let options = (&check::options(), graphs);
                gpu::run_graphs(&g.graph, &registry, device, options, &[], &g.values)
                    .and_then(|got| checked.compare(&got))
            };
            match (one(0), one(1 << 20)) {
                (Ok(()), Ok(())) => ran += 1,
                (Err(why), Err(_)) if why.starts_with("refused") || why.starts_with("unsupported") => {
                    let short =
                        why.split(": ").last().unwrap_or_default().split(" with ").next().unwrap_or_default();
                    *reasons.entry(short.to_string()).or_insert(0) += 1;
                }
                (a, b) => failures
                    .extend(a.err().into_iter().chain(b.err()).map(|e| format!("{op}/{}: {e}", c.name))),
            }
        }
        println!(
            "{op}: {ran} of {} cases are one graph; {} reasons not to be: {reasons:.100?}",
            cases.len(),
            reasons.len()
        );
        let n = failures.len();
        failures.truncate(12);
        assert!(n == 0, "{n} failures of {op}:\n{}", failures.join("\n"));
        let least = GRAPHS.iter().find(|(o, _)| *o == op).map_or(0, |(_, n)| *n);
        assert!(ran >= least, "{op}: only {ran} cases are one graph, {least} were");
    }

    frit_tests::test_each_op!(run);
}

mod models {
    use super::*;

    /// The golden model `name` on a device, its matrices of type f32.
    fn load(name: &str, build: &BuildOptions, device: &Arc<Device>, graphs: GraphOptions) -> Arc<Executable> {
        let graph = null::graph(name, DType::F32, build).unwrap();
        let bytes = std::fs::read(golden::folder(name).join("model.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let all: HashMap<String, HostData> =
            file.tensors().into_iter().map(|(n, t)| (n, Arc::new(t.data().to_vec()) as HostData)).collect();
        let options = CompileOptions::default().activations(Activations::F32);
        let compiled = compile(&graph, &frit_ops::registry(), &device.target(), &options).unwrap();
        Executable::load_with(compiled.schedule, &mut |n| all.get(n).cloned(), device, graphs).unwrap()
    }

    fn floats(bytes: &[u8]) -> Vec<f32> {
        decoders::floats(bytes)
    }

    /// Each text of the encoder, and all of them as a batch, as one graph.
    #[test]
    fn the_encoder_is_one_graph() {
        let golden = encoders::Golden::read();
        let width = golden.hidden.len() / golden.padded.len();
        for constants in [0, 100_000, u64::MAX] {
            let (null, device) = nothing();
            let graphs = GraphOptions::default().mode(GraphMode::Whole).constants(constants);
            let exe = load("bert", &BuildOptions::default().chunk(64), &device, graphs);
            let mut s = Session::new(&exe, &[]).unwrap();
            let (rows, tokens) = (golden.lengths.len(), golden.tokens);
            for (symbol, n) in [("B", rows), ("T", tokens)] {
                s.set_size(exe.symbol(symbol).unwrap(), n as i64).unwrap();
            }
            let ints = |v: &[i32]| v.iter().flat_map(|i| i.to_le_bytes()).collect::<Vec<u8>>();
            s.set_input(0, &ints(&golden.padded)).unwrap();
            s.set_input(1, &ints(&golden.lengths.iter().map(|n| *n as i32).collect::<Vec<_>>())).unwrap();
            s.run().unwrap();
            let (plan, baked) = (s.plan().unwrap(), exe.weight_bytes().min(constants));
            assert!(matches!(plan.pieces[..], [Piece::Graph(_)]), "{plan}");
            let held = plan.constant_bytes();
            assert!(held <= baked && (constants == 0) == (held == 0), "{held} bytes of constants, {baked}");
            let got = floats(s.output(0));
            for (b, n) in golden.lengths.iter().enumerate() {
                let row = |v: &[f32]| v[b * tokens * width..][..n * width].to_vec();
                let off = decoders::distance(&row(&got), &row(&golden.hidden));
                println!("text {b}, {held} bytes of constants: off by {off:.1e}");
                assert!(off < 1e-4, "text {b}: {off:e}");
            }
            assert_eq!(null.faults(), Vec::<String>::new());
        }
    }

    /// Decoders write into their caches, which graphs do not: the steps between are our own.
    #[test]
    fn decoders_are_graphs_between_our_own_steps() {
        let build = BuildOptions::default().context(64).chunk(32).rows(32);
        for (device, name) in devices().iter().flat_map(|d| ["llama", "gemma3_text"].map(|n| (d, n))) {
            let golden = decoders::read(name);
            for mode in [GraphMode::Hybrid, GraphMode::Products] {
                let graphs = GraphOptions::default().mode(mode).constants(40_000).least_flops(1);
                let exe = load(name, &build, device, graphs);
                let mut s = Session::new(&exe, &[("C", 64)]).unwrap();
                let tokens: Vec<i32> = golden.ids[0].iter().map(|t| *t as i32).collect();
                let width = golden.logits[0].len() / tokens.len();
                // All but the last in one step, then that one alone.
                let (last, most) = tokens.split_last().unwrap();
                let mut got = Vec::new();
                for (part, start) in [(most, 0), (&[*last][..], most.len())] {
                    null::set(&mut s, part, start, part.len()).unwrap();
                    let plan = s.plan().unwrap();
                    s.run().unwrap();
                    got.extend(floats(s.output(0)));
                    let (graphs, own) = (plan.graphs().count(), plan.pieces.len());
                    println!(
                        "{name}, {} tokens, {mode:?}: {own} pieces, {graphs} of them graphs",
                        part.len()
                    );
                    let products = plan.pieces.iter().filter(|p| matches!(p, Piece::Product(_))).count();
                    assert!(
                        if mode == GraphMode::Hybrid { graphs > 2 && own > graphs } else { products > 2 },
                        "{plan}"
                    );
                }
                assert_eq!(got.len(), width * tokens.len());
                let off = decoders::distance(&got, &golden.logits[0]);
                println!("{name} on {}, {mode:?}: logits off by {off:.1e}", device.info().name);
                assert!(off < 1e-4, "{name}, {mode:?}: {off:e}");
            }
        }
    }
}
