//! Times of the kernels around the matrix products, at the sizes of SmolLM2-135M.
//!
//! `cargo run --release -p frit-cpu --example kernel_speed [threads] [only what has this in its name]`

use std::time::Instant;

use frit_cpu::args::{Args, MAX_RANK, Operand, Param};
use frit_cpu::expr::Program;
use frit_cpu::isa::Isa;
use frit_cpu::kernels::row::CpuRow;
use frit_cpu::kernels::{attention, copy, expr, norm, reduce, rotary, softmax, write_kv};
use frit_cpu::pool::Pool;
use frit_ir::{DType, Expr, ScalarOp};

/// A dense tensor.
struct Array {
    bytes: Vec<u64>,
    dtype: DType,
    dims: Vec<i64>,
    strides: Vec<i64>,
}

impl Array {
    fn new(dtype: DType, dims: &[i64]) -> Array {
        let n = dims.iter().product::<i64>() as usize;
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f64 / (1u64 << 23) as f64 - 1.0
        };
        let values: Vec<f64> = (0..n).map(|_| next()).collect();
        let tensor = frit_ir::Tensor::from_f64(dtype, &[n], &values).unwrap_or_else(|e| panic!("{e}"));
        let mut bytes = vec![0u64; tensor.bytes().len().div_ceil(8)];
        bytemuck::cast_slice_mut(&mut bytes)[..tensor.bytes().len()].copy_from_slice(tensor.bytes());
        let mut strides = vec![1; dims.len()];
        for i in (1..dims.len()).rev() {
            strides[i - 1] = strides[i] * dims[i];
        }
        Array { bytes, dtype, dims: dims.into(), strides }
    }

    fn ints(dims: &[i64], values: &[i32]) -> Array {
        let mut a = Array::new(DType::I32, dims);
        bytemuck::cast_slice_mut(&mut a.bytes)[..values.len()].copy_from_slice(values);
        a
    }

    fn operand(&mut self) -> Operand {
        let (mut dims, mut strides) = ([1; MAX_RANK], [0; MAX_RANK]);
        dims[..self.dims.len()].copy_from_slice(&self.dims);
        strides[..self.dims.len()].copy_from_slice(&self.strides);
        let rank = self.dims.len() as u8;
        Operand { ptr: self.bytes.as_mut_ptr().cast(), dtype: self.dtype, rank, dims, strides }
    }
}

struct Shared<'a>(&'a [Operand], *mut u8);

impl<'a> Shared<'a> {
    fn parts(&self) -> (&'a [Operand], *mut u8) {
        (self.0, self.1)
    }
}

// SAFETY: kernels split what they write between the threads.
unsafe impl Sync for Shared<'_> {}

struct Bench {
    pool: Pool,
    isa: Isa,
    scratch: Vec<u64>,
    only: String,
}

impl Bench {
    /// Prints the median time of a call in µs; `work` is in GFLOP or GB.
    fn time(
        &mut self,
        what: &str,
        row: &CpuRow,
        mut operands: Vec<Option<Array>>,
        params: &[Param],
        e: Option<Expr>,
        work: (f64, &str),
    ) {
        if !what.contains(&self.only) {
            return;
        }
        let ops: Vec<Operand> =
            operands.iter_mut().map(|o| o.as_mut().map_or(Operand::ABSENT, Array::operand)).collect();
        let programs: Vec<Program> =
            e.iter().map(|e| Program::new(e, self.isa).unwrap_or_else(|e| panic!("{e}"))).collect();
        let kernel = (row.kernel)(self.isa);
        let at = self.scratch.as_mut_ptr().cast::<u8>();
        let shared = Shared(&ops, at.wrapping_add(at.align_offset(64)));
        let mut times = Vec::new();
        let start = Instant::now();
        while times.len() < 20 || (start.elapsed().as_millis() < 60 && times.len() < 2000) {
            let t = Instant::now();
            let done = self.pool.run(&|team| {
                let (operands, scratch) = shared.parts();
                // SAFETY: the operands describe the arrays.
                unsafe {
                    kernel(&Args { operands, params, programs: &programs, scratch, scratch_bytes: 0, team })
                };
            });
            done.unwrap_or_else(|e| panic!("{e}"));
            times.push(t.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        println!("{what:44} {:10.2} µs {:8.1} {}/s", median * 1e6, work.0 / median, work.1);
    }
}

const F32: DType = DType::F32;

fn f32s(dims: &[i64]) -> Option<Array> {
    Some(Array::new(F32, dims))
}

fn silu_mul() -> Expr {
    let mut e = Expr::new(&[F32, F32]);
    let s = e.push(ScalarOp::Silu, &[0]);
    let m = e.push(ScalarOp::Mul, &[s, 1]);
    e.output(m, F32);
    e
}

fn elementwise(b: &mut Bench) {
    for (n, name) in [(1536i64, "1x1536"), (512 * 1536, "512x1536")] {
        let gb = 12e-9 * n as f64;
        b.time(
            &format!("expr silu(x)*y {name}"),
            &expr::ROWS[0],
            vec![f32s(&[n]), f32s(&[n]), f32s(&[n])],
            &[],
            Some(silu_mul()),
            (gb, "GB"),
        );
    }
    for op in [
        ScalarOp::Add,
        ScalarOp::Exp,
        ScalarOp::Tanh,
        ScalarOp::Sigmoid,
        ScalarOp::Silu,
        ScalarOp::Gelu,
        ScalarOp::GeluTanh,
        ScalarOp::Erf,
        ScalarOp::Log,
        ScalarOp::Sin,
        ScalarOp::Pow,
        ScalarOp::Softplus,
        ScalarOp::Round,
        ScalarOp::Max,
    ] {
        let n = 100_000i64;
        let args = op.info().arity;
        let operands = (0..=args).map(|_| f32s(&[n])).collect();
        let e = Expr::single(op, &[F32; 2][..args], F32);
        b.time(
            &format!("expr {} 100000", op.name()),
            &expr::ROWS[0],
            operands,
            &[],
            Some(e),
            (n as f64 * 1e-9, "Gelement"),
        );
    }
    let n = 100_000i64;
    for (from, to) in [(F32, DType::F16), (DType::F16, F32), (F32, DType::BF16), (DType::BF16, F32)] {
        let mut e = Expr::new(&[from]);
        let v = e.cast(0, to);
        e.output(v, to);
        let operands = vec![Some(Array::new(from, &[n])), Some(Array::new(to, &[n]))];
        b.time(
            &format!("expr cast {from} to {to} 100000"),
            &expr::ROWS[0],
            operands,
            &[],
            Some(e),
            (n as f64 * 1e-9, "Gelement"),
        );
    }
}

fn rows(b: &mut Bench) {
    let eps = [Param::Float(1e-5), Param::Int(0), Param::Int(1)];
    for t in [1i64, 512] {
        let x = [t, 576];
        let gb = 8e-9 * (t * 576) as f64;
        b.time(
            &format!("rms_norm {t}x576"),
            &norm::ROWS[0],
            vec![f32s(&x), f32s(&[576]), None, f32s(&x)],
            &eps,
            None,
            (gb, "GB"),
        );
        let operands = vec![f32s(&x), f32s(&x), f32s(&[576]), None, f32s(&x), f32s(&x)];
        b.time(&format!("residual_norm {t}x576"), &norm::ROWS[2], operands, &eps, None, (2.0 * gb, "GB"));
        let q = [1, t, 9, 64];
        let at: Vec<i32> = (0..t as i32).collect();
        let operands = vec![f32s(&q), Some(Array::ints(&[1, t], &at)), f32s(&[32]), f32s(&q)];
        b.time(
            &format!("rotary {t}x9x64"),
            &rotary::ROWS[0],
            operands,
            &[Param::Int(64), Param::Int(0), Param::Float(1.0)],
            None,
            (gb, "GB"),
        );
        let state = [1, 3, 1024, 64];
        let operands =
            vec![f32s(&state), f32s(&[1, t, 3, 64]), Some(Array::ints(&[1, t], &at)), None, f32s(&state)];
        let mut operands = operands;
        operands.pop();
        operands.push(None);
        write(b, t, operands);
        b.time(
            &format!("softmax {t}x1024"),
            &softmax::ROWS[0],
            vec![f32s(&[t, 1024]), f32s(&[t, 1024])],
            &[Param::Int(1), Param::Int(0)],
            None,
            (8e-9 * (t * 1024) as f64, "GB"),
        );
    }
    b.time(
        "reduce sum [512, 1024] over 1",
        &reduce::ROWS[0],
        vec![f32s(&[512, 1024]), f32s(&[512])],
        &[Param::Int(0), Param::Int(2)],
        None,
        (2.1e-3, "GB"),
    );
    b.time(
        "reduce max [512, 1024] over 0",
        &reduce::ROWS[0],
        vec![f32s(&[512, 1024]), f32s(&[1024])],
        &[Param::Int(2), Param::Int(1)],
        None,
        (2.1e-3, "GB"),
    );
    let mut turned = Array::new(F32, &[512, 576]);
    turned.strides = vec![1, 512];
    b.time(
        "copy [512, 576] transposed",
        &copy::ROWS[0],
        vec![Some(turned), f32s(&[512, 576])],
        &[],
        None,
        (2.36e-3, "GB"),
    );
}

/// `write_kv` in place.
fn write(b: &mut Bench, t: i64, mut operands: Vec<Option<Array>>) {
    let mut state = Array::new(F32, &[1, 3, 1024, 64]);
    let alias = state.operand();
    operands[0] = Some(state);
    operands.pop();
    let mut ops: Vec<Operand> =
        operands.iter_mut().map(|o| o.as_mut().map_or(Operand::ABSENT, Array::operand)).collect();
    ops.push(alias);
    let kernel = (write_kv::ROWS[0].kernel)(b.isa);
    let shared = Shared(&ops, std::ptr::null_mut());
    let params = [Param::Int(0)];
    let start = Instant::now();
    for _ in 0..200 {
        let done = b.pool.run(&|team| {
            let (operands, scratch) = shared.parts();
            // SAFETY: the operands describe the arrays.
            unsafe {
                kernel(&Args { operands, params: &params, programs: &[], scratch, scratch_bytes: 0, team })
            };
        });
        done.unwrap_or_else(|e| panic!("{e}"));
    }
    println!("{:44} {:10.2} µs", format!("write_kv {t}x3x64"), start.elapsed().as_secs_f64() / 200.0 * 1e6);
}

fn attend(b: &mut Bench, name: &str, [t, s, h, kvh, d]: [i64; 5], kv: DType) {
    let cache = || Some(Array::new(kv, &[1, kvh, s, d]));
    let mut operands = vec![f32s(&[1, t, h, d]), cache(), cache(), Some(Array::ints(&[1], &[s as i32]))];
    operands.extend([None, None, None, None, None, f32s(&[1, t, h, d])]);
    let params = [
        Param::Float(1.0 / (d as f64).sqrt()),
        Param::Int(1),
        Param::Int(-1),
        Param::Int(-1),
        Param::Float(0.0),
        Param::Int(0),
        Param::Int(0),
        Param::Int(d),
        Param::Int(d),
    ];
    let pairs = if t == 1 { s } else { t * s - t * (t - 1) / 2 };
    let flop = 4e-9 * (pairs * h * d) as f64;
    b.time(
        &format!("attention {name} T={t} kv={s} {h}/{kvh}x{d} {kv}"),
        &attention::ROWS[0],
        operands,
        &params,
        None,
        (flop, "GFLOP"),
    );
}

fn main() {
    let threads = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(1);
    let only = std::env::args().nth(2).unwrap_or_default();
    for isa in Isa::ALL.into_iter().rev().filter(|i| i.is_available() && *i != Isa::Portable) {
        println!("{isa:?}, {threads} threads");
        let mut b = Bench {
            pool: Pool::new(threads).unwrap_or_else(|e| panic!("{e}")),
            isa,
            scratch: vec![0; 4 << 20],
            only: only.clone(),
        };
        for kv in [F32, DType::F16] {
            attend(&mut b, "decode", [1, 512, 9, 3, 64], kv);
            attend(&mut b, "prefill", [512, 512, 9, 3, 64], kv);
            attend(&mut b, "decode", [1, 2048, 32, 8, 128], kv);
            attend(&mut b, "prefill", [512, 512, 32, 8, 128], kv);
        }
        attend(&mut b, "encoder", [196, 196, 12, 12, 64], F32);
        rows(&mut b);
        elementwise(&mut b);
    }
}
