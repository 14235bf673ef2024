//! Ops and kernels of a program's own: the op of `examples/custom_op` on every device there is, and what is said to wrong ones.

use std::sync::Arc;

use frit::custom::{
    self, Call, CaseInput, Cmp, Guard, HostKernel, KernelRow, Kernels, LayoutClass, PLAIN, Split, one,
};
use frit::graph::{Attrs, Case, Cost, Expr, Lowered, Node, OpDef, OpError, Registry, ScalarOp, ValueId};
use frit::{Builder, CompileOptions, Compiled, DType, DeviceSpec, Error, Graph, Tensor, Weights};
use frit_tests::snake;

fn options(kernels: Kernels) -> CompileOptions {
    CompileOptions::default()
        .device(DeviceSpec::Cpu)
        .threads(2)
        .registry(snake::registry().unwrap())
        .kernels(kernels)
}

/// snake of `[N, 4]` with its alphas.
fn compile(options: &CompileOptions) -> frit::Result<Compiled> {
    let mut g = Builder::with_registry("g", snake::registry().unwrap());
    let n = g.symbol("N", 1, 64).unwrap();
    let x = g.input("x", DType::F32, [n.clone(), 4.into()]).unwrap();
    let alpha = g.input("alpha", DType::F32, [n]).unwrap();
    let y = g.node(snake::NAME, Attrs::new(), &[x, alpha]).unwrap();
    g.output("y", y).unwrap();
    frit::compile(&g.finish(), Weights::new(), options)
}

fn run(c: &Compiled) -> frit::Result<Vec<f32>> {
    let (x, alpha) =
        (Tensor::from_f32(&[5, 4], &[0.5; 20]).unwrap(), Tensor::from_f32(&[5], &[1.0; 5]).unwrap());
    let mut s = c.session()?;
    let out = s.run(&[("x", &x), ("alpha", &alpha)])?.get("y")?.as_slice::<f32>()?.to_vec();
    Ok(out)
}

const DENSE: custom::OperandSpec = one("x", &[DType::F32], LayoutClass::Dense);
const ALPHA: custom::OperandSpec = one("alpha", &[DType::F32], LayoutClass::Dense);
const OUT: custom::OperandSpec = one("out", &[DType::F32], LayoutClass::Dense);
const ROW: KernelRow =
    KernelRow { name: "demo.snake", op: "demo.snake", inputs: &[DENSE, ALPHA], outputs: &[OUT], ..PLAIN };

type Run = fn(&mut Call) -> Result<(), String>;

/// A host kernel that lives as long as the program, as the kernels of programs do.
fn host(row: KernelRow, run: Run) -> Kernels {
    let split = Split::Rows;
    Kernels::new().host(std::slice::from_ref(Box::leak(Box::new(HostKernel { row, split, run }))))
}

fn nothing(_: &mut Call) -> Result<(), String> {
    Ok(())
}

#[test]
fn the_example_s_op_agrees_with_its_reference_on_the_cpu() {
    for threads in [1, 2, 3] {
        let options = options(snake::kernels()).threads(threads);
        assert!(custom::check_op(snake::NAME, &options).unwrap() > 8);
    }
    let want = 0.5f32 + 0.5f32.sin().powi(2);
    assert!(
        run(&compile(&options(snake::kernels())).unwrap()).unwrap().iter().all(|v| (v - want).abs() < 1e-6)
    );
}

#[test]
fn without_a_kernel_the_op_is_an_error_that_names_it() {
    let e = compile(&options(Kernels::new())).err().unwrap();
    assert!(matches!(e, Error::Unsupported { .. }) && e.to_string().contains("demo.snake"), "{e}");
    let e = custom::check_op("demo.snail", &options(Kernels::new())).unwrap_err();
    assert!(matches!(e, Error::Name { .. }) && e.to_string().contains("demo.snail"), "{e}");
}

/// A wrong kernel does not pass the check of its op.
#[test]
fn a_kernel_that_computes_something_else_fails_the_check() {
    fn copies(call: &mut Call) -> Result<(), String> {
        let (x, rows) = (call.input::<f32>(0)?, call.rows());
        let out = call.output::<f32>(0)?;
        let n = out.len() / rows.len();
        out.copy_from_slice(&x[rows.start * n..rows.end * n]);
        Ok(())
    }
    let e = custom::check_op(snake::NAME, &options(host(ROW, copies))).unwrap_err();
    assert!(matches!(e, Error::Device { .. }) && e.to_string().starts_with("cpu: demo.snake/"), "{e}");
}

#[test]
fn rows_that_cannot_be_meant_are_errors_that_name_the_op() {
    const STRIDED: custom::OperandSpec = one("x", &[DType::F32], LayoutClass::Strided);
    const SPACED: custom::OperandSpec = one("o u t", &[], LayoutClass::Dense);
    const HALF: custom::OperandSpec = one("alpha", &[DType::F16], LayoutClass::Dense);
    const SIZZLE: custom::ParamSpec = custom::int("sizzle");
    let guards = &[Guard { param: "sizzle", cmp: Cmp::Ge, value: 1 }];
    let cases: Vec<(KernelRow, &str)> = vec![
        (KernelRow { op: "demo.snail", name: "demo.snail", ..ROW }, "no op `demo.snail`"),
        (KernelRow { name: "snake", ..ROW }, "its name must be"),
        (KernelRow { name: "demo.snake.b c", ..ROW }, "its name must be"),
        (KernelRow { name: "demo.snakes", ..ROW }, "its name must be"),
        (KernelRow { inputs: &[DENSE, DENSE], ..ROW }, "`x` is not"),
        (KernelRow { outputs: &[SPACED], ..ROW }, "`o u t` is not"),
        (KernelRow { outputs: &[], ..ROW }, "lists no result"),
        (KernelRow { alias: &[(2, 0)], ..ROW }, "input 2 with result 0"),
        (KernelRow { alias: &[(0, 0)], ..ROW }, "leave `alias` empty"),
        (KernelRow { scratch: "8", ..ROW }, "no scratch"),
        (KernelRow { scratch: "8*", ..ROW }, "the scratch `8*` cannot be read"),
        (KernelRow { inputs: &[STRIDED, ALPHA], ..ROW }, "dense operands, `x`"),
        // What only the compiler sees.
        (KernelRow { guards, ..ROW }, "`sizzle`"),
        (KernelRow { params: &[SIZZLE], ..ROW }, "`sizzle`"),
        (KernelRow { inputs: &[DENSE], ..ROW }, "another list of operands"),
        (KernelRow { inputs: &[DENSE, HALF], ..ROW }, "takes f16"),
    ];
    for (row, message) in cases {
        let e =
            compile(&options(host(row, nothing))).err().unwrap_or_else(|| panic!("{message}: it compiles"));
        let text = e.to_string();
        assert!(
            text.contains(message) && text.contains(row.op) && text.lines().count() == 1,
            "{message}: {text}"
        );
    }
    let twice = host(ROW, nothing).host(snake_rows());
    let e = compile(&options(twice)).err().unwrap();
    assert!(matches!(e, Error::Value { .. }) && e.to_string().contains("another row has this name"), "{e}");
}

fn snake_rows() -> &'static [HostKernel] {
    static ROWS: &[HostKernel] = &[HostKernel { row: ROW, split: Split::Whole, run: nothing }];
    ROWS
}

#[test]
fn a_kernel_that_fails_or_asks_for_what_is_not_there_ends_the_run_with_an_error() {
    let cases: [(Run, &str); 9] = [
        (|_| Err("no snakes today".into()), "no snakes today"),
        (|c| c.input::<f64>(0).map(drop), "operand 0 holds f32, it cannot be read as f64"),
        (|c| c.output::<i32>(0).map(drop), "result 0 holds f32, it cannot be read as i32"),
        (|c| c.input::<f32>(2).map(drop), "there is no operand 2"),
        (|c| c.output::<f32>(1).map(drop), "there is no result 1"),
        (|c| c.output::<f32>(77).map(drop), "there is no result 77"),
        (|c| c.output::<f32>(0).and_then(|_| c.output::<f32>(0)).map(drop), "handed out already"),
        (|c| if c.input_dims(9).is_empty() && !c.has_input(9) { Err("none".into()) } else { Ok(()) }, "none"),
        (|c| std::panic::resume_unwind(Box::new(format!("{} fell over", c.int(5)))), "0 fell over"),
    ];
    for (kernel, message) in cases {
        let c = compile(&options(host(ROW, kernel))).unwrap();
        for _ in 0..2 {
            let e = run(&c).unwrap_err();
            assert!(matches!(e, Error::Device { .. }) && e.to_string().contains(message), "{message}: {e}");
        }
    }
    // The step and the op are named; another model on the same threads runs on.
    let e = run(&compile(&options(host(ROW, |_| Err("no".into())))).unwrap()).unwrap_err();
    assert_eq!(e.to_string(), "step `demo.snake`: kernel `demo.snake` of `demo.snake`: no");
    run(&compile(&options(snake::kernels())).unwrap()).unwrap();
}

/// Rows of one's own come before the built-in ones.
#[test]
fn a_built_in_op_takes_a_kernel_of_one_s_own() {
    const SOFTMAX: KernelRow = KernelRow {
        name: "softmax.mine",
        op: "softmax",
        inputs: &[one("x", &[DType::F32], LayoutClass::Dense)],
        outputs: &[OUT],
        ..PLAIN
    };
    fn fill(call: &mut Call) -> Result<(), String> {
        call.output::<f32>(0)?.fill(7.0);
        Ok(())
    }
    let mut g = Builder::new("g");
    let x = g.input("x", DType::F32, [3, 2]).unwrap();
    let y = g.softmax(x, -1).unwrap();
    g.output("y", y).unwrap();
    let options = CompileOptions::default().device(DeviceSpec::Cpu).kernels(host(SOFTMAX, fill));
    let compiled = frit::compile(&g.finish(), Weights::new(), &options).unwrap();
    assert!(compiled.print_schedule().contains("softmax.mine"));
    let x = Tensor::from_f32(&[3, 2], &[0.0; 6]).unwrap();
    let mut s = compiled.session().unwrap();
    assert_eq!(s.run(&[("x", &x)]).unwrap().get("y").unwrap().as_slice::<f32>().unwrap(), [7.0; 6]);
}

/// The cube of x: in a scalar expression wherever there is no kernel for it.
fn cube() -> OpDef {
    fn expand(g: &mut Graph, r: &Registry, _: &Node, x: &[ValueId]) -> Result<Vec<ValueId>, OpError> {
        let d = g.ty(x[0]).dtype;
        let mul = Attrs::new().with("expr", Arc::new(Expr::single(ScalarOp::Mul, &[d, d], d)));
        let square = g.push(r, "expr", mul.clone(), &[x[0], x[0]], &[])?[0];
        Ok(g.push(r, "expr", mul, &[square, x[0]], &[])?.to_vec())
    }
    fn cases() -> Vec<Case> {
        let case = |name: &str, x: &[f32], cubes: Vec<f64>| Case {
            name: name.into(),
            attrs: Attrs::new(),
            inputs: vec![Tensor::from_f32(&[x.len()], x).ok().map(CaseInput::new)],
            tolerance: custom::Tolerance::EXACT,
            expect: Some(vec![cubes]),
        };
        vec![case("some", &[0.0, 1.0, -2.0, 0.5], vec![0.0, 1.0, -8.0, 0.125]), case("none", &[], vec![])]
    }
    OpDef {
        name: "demo.cube",
        summary: "the cube of x",
        infer: |c| Ok(vec![c.ty(0)?.clone()]),
        reference: None,
        expand: Some(expand),
        vjp: None,
        cost: |_| Cost { flops: 0i64.into(), bytes: 0i64.into() },
        lower: |_| Ok(Lowered::default()),
        view: None,
        updates: &[],
        cases,
    }
}

fn with_cube() -> Registry {
    let mut r = snake::registry().unwrap();
    r.add(cube()).unwrap();
    r
}

#[test]
fn an_op_that_is_an_expression_needs_no_kernel() {
    let options = options(Kernels::new()).registry(with_cube());
    assert_eq!(custom::check_op("demo.cube", &options).unwrap(), 2);
}

#[test]
fn a_case_that_states_other_results_than_the_reference_fails() {
    let mut r = frit::graph::registry();
    let wrong = || {
        let mut all = (cube().cases)();
        all[0].expect = Some(vec![vec![0.0, 1.0, -8.0, 0.25]]);
        all
    };
    r.add(OpDef { cases: wrong, ..cube() }).unwrap();
    let e = custom::check_op("demo.cube", &options(Kernels::new()).registry(r)).unwrap_err();
    assert_eq!(e.to_string(), "cpu: demo.cube/some: the reference: y0[3] = 0.125, expected 0.25");
}

#[test]
fn an_op_that_is_there_or_has_no_name_is_not_added() {
    let mut r = with_cube();
    let mut error = |name: &'static str| Error::from(r.add(OpDef { name, ..cube() }).unwrap_err());
    for name in ["demo.cube", "demo.snake", "softmax"] {
        let e = error(name);
        assert!(matches!(e, Error::Name { .. }), "{e}");
        assert_eq!(e.to_string(), format!("there is an op `{name}` in the registry already"));
    }
    for name in ["", "demo.", ".cube", "demo cube", "3d", "demo.cube\n"] {
        let e = error(name);
        assert!(matches!(e, Error::Name { .. }) && e.to_string().contains("words of letters"), "{e}");
    }
}

#[cfg(any(feature = "opencl", feature = "metal"))]
mod gpus {
    use std::path::Path;

    use frit::custom::{GpuRow, KERNEL};
    use frit_gpu::device::Device;
    use frit_gpu::driver::Driver;
    use frit_gpu::drivers::null::{Null, info};
    use frit_tests::check::{self, Checked};
    use frit_tests::gpu;
    use frit_tests::guarded::Guarded;

    use super::*;

    fn every(kernels: Kernels, mut f: impl FnMut(CompileOptions)) {
        let gpus: Vec<_> = frit::devices().into_iter().filter(|d| d.spec != DeviceSpec::Cpu).collect();
        assert!(!gpus.is_empty(), "no GPU: {:?}", frit::missing_devices());
        gpus.into_iter().for_each(|d| f(options(kernels.clone()).device(d.spec)));
    }

    fn api(device: &DeviceSpec) -> String {
        device.to_string().split(':').next().unwrap().to_owned()
    }

    fn device(row: GpuRow) -> Kernels {
        let rows = std::slice::from_ref(Box::leak(Box::new(row)));
        // SAFETY: the texts of this file that build keep to their operands.
        unsafe { Kernels::new().device(rows) }
    }

    const TEXT: &str = "KERNEL { OPERANDS; for (IDX i = GLOBAL_ID; i < LEN(out); i += GLOBAL_COUNT) STORE(out, i, LOAD(x, i)); }";
    const GPU: GpuRow = GpuRow { row: ROW, source: TEXT, grid: "out_len", ..KERNEL };

    #[test]
    fn the_example_s_op_agrees_with_its_reference_on_every_gpu() {
        every(snake::kernels(), |options| {
            assert!(custom::check_op(snake::NAME, &options).unwrap() > 8);
            let c = compile(&options).unwrap();
            let (got, want) = (run(&c).unwrap(), 0.5f32 + 0.5f32.sin().powi(2));
            assert!(got.iter().all(|v| (v - want).abs() < 1e-6), "{got:?}");
            // The device without the rows is as it was.
            let e = compile(&options.clone().kernels(Kernels::new())).err().unwrap();
            let why = format!("target `{}` has no kernel for `demo.snake`", api(&options.device));
            assert!(matches!(e, Error::Unsupported { .. }) && e.to_string().contains(&why), "{e}");
        });
    }

    #[test]
    fn wrong_rows_are_errors_that_name_the_op() {
        let text = |source| GpuRow { source, ..GPU };
        let cases: Vec<(GpuRow, &str)> = vec![
            (GpuRow { group: 33, ..GPU }, "not 33"),
            (GpuRow { group: 2048, ..GPU }, "not 2048"),
            (GpuRow { shared: 8, ..GPU }, "belong to built-in rows"),
            (GpuRow { constants: &["axis"], ..GPU }, "the constant `axis`"),
            (GpuRow { grid: "out_len +", ..GPU }, "the grid `out_len +` cannot be read"),
            (GpuRow { grid: "y_len", ..GPU }, "there is no `y_len`"),
            (GpuRow { row: KernelRow { inputs: &[DENSE], ..ROW }, ..GPU }, "another list of operands"),
            (text("KERNEL { OPERANDS; this is no C }"), "kernel `demo.snake` does not build"),
            (
                text("KERNEL { OPERANDS; STORE(out, 0, LOAD(beta, 0)); }"),
                "kernel `demo.snake` does not build",
            ),
            (text("void snake(void) {}"), "its text has no `KERNEL"),
        ];
        for (row, message) in cases {
            every(device(row), |options| {
                let e = compile(&options).err().unwrap_or_else(|| panic!("{message}: it compiles"));
                let text = e.to_string();
                assert!(text.contains(message) && text.contains("demo.snake"), "{message}: {text}");
                assert_eq!(text.lines().count(), 1, "{text}");
            });
        }
        every(device(GPU), |options| {
            let e = custom::check_op(snake::NAME, &options).unwrap_err();
            assert!(matches!(e, Error::Device { .. }) && e.to_string().contains("demo.snake/"), "{e}");
        });
    }

    /// A kernel where the device has one, the expansion elsewhere.
    #[test]
    fn an_op_that_is_an_expression_takes_a_kernel() {
        const CUBE: &str = "KERNEL {
            OPERANDS;
            for (IDX i = GLOBAL_ID; i < LEN(out); i += GLOBAL_COUNT) {
                const VALUE(x) v = LOAD(x, i);
                STORE(out, i, v * v * v);
            }
        }";
        let row = KernelRow { name: "demo.cube", op: "demo.cube", inputs: &[DENSE], ..ROW };
        let kernels = device(GpuRow { row, source: CUBE, ..GPU });
        for device in frit::devices() {
            let options = options(kernels.clone()).registry(with_cube()).device(device.spec.clone());
            assert_eq!(custom::check_op("demo.cube", &options).unwrap(), 2);
            let mut g = Builder::with_registry("g", with_cube());
            let x = g.input("x", DType::F32, [4]).unwrap();
            let y = g.node("demo.cube", Attrs::new(), &[x]).unwrap();
            g.output("y", y).unwrap();
            let compiled = frit::compile(&g.finish(), Weights::new(), &options).unwrap();
            let own = device.spec != DeviceSpec::Cpu;
            assert_eq!(compiled.print_schedule().contains("demo.cube"), own, "{}", compiled.print_schedule());
        }
    }

    fn with_rows(driver: Arc<dyn Driver>, folder: Option<&Path>, rows: &[&'static GpuRow]) -> Arc<Device> {
        Device::new(driver, folder.map(Path::to_owned)).with_rows(rows)
    }

    /// Every case of snake on such a device.
    fn cases(device: &Arc<Device>) {
        let registry = snake::registry().unwrap();
        for case in (registry.get(snake::NAME).unwrap().cases)() {
            let c = Checked::new(&registry, snake::NAME, &case).unwrap();
            let got = gpu::run(&c.graph.graph, &registry, device, &check::options(), &[], &c.graph.values);
            let got = got.unwrap_or_else(|e| panic!("{}: {e}", case.name));
            // The null driver computes nothing.
            if device.info().api != "null" {
                c.compare(&got).unwrap_or_else(|e| panic!("{}: {e}", case.name));
            }
        }
    }

    /// As every built-in kernel: guards around operands, and on a device that takes nothing on trust.
    #[test]
    fn the_example_s_kernel_writes_to_its_results_alone() {
        let rows: Vec<&GpuRow> = snake::DEVICE.iter().collect();
        for device in gpu::devices() {
            cases(&with_rows(Arc::new(Guarded::new(device.driver().clone())), None, &rows));
        }
        let null = Arc::new(Null::new(info()));
        cases(&with_rows(null.clone(), None, &rows));
        assert!(null.faults().is_empty(), "{:#?}", null.faults());
    }

    #[cfg(feature = "opencl")]
    #[test]
    fn a_text_is_built_once_and_kept_as_those_of_built_in_rows_are() {
        use frit_gpu::drivers::opencl::OpenCl;
        let folder = std::env::temp_dir().join(format!("frit-custom-cache-{}", std::process::id()));
        let files = || std::fs::read_dir(&folder).unwrap().count();
        let rows: Vec<&GpuRow> = snake::DEVICE.iter().collect();
        let device = with_rows(OpenCl::open(0).unwrap(), Some(&folder), &rows);
        cases(&device);
        let (built, kept) = (device.builds(), files());
        assert!(built > 0 && built == kept, "{built} built, {kept} kept");
        cases(&device.with_rows(&rows));
        assert_eq!((device.builds(), files()), (built, kept));
        // Another process, as it were, then another text of the same name.
        cases(&with_rows(OpenCl::open(0).unwrap(), Some(&folder), &rows));
        assert_eq!(files(), kept);
        let edited = GpuRow { defines: "/* edited */\n", ..snake::DEVICE[0] };
        cases(&with_rows(OpenCl::open(0).unwrap(), Some(&folder), &[Box::leak(Box::new(edited))]));
        assert!(files() > kept);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
