//! Speed of `linear` in one process: the time of one step, its weight bandwidth and its multiply-adds a second.
//!
//! `linear_speed [threads] [isa] [format...]`, isa one of portable, avx2, avx512. Times are the lowest tenth of many steps.

use std::time::Instant;

use frit_cpu::args::{Args, MAX_RANK, Operand, Param};
use frit_cpu::buffer::Buffer;
use frit_cpu::expr::Program;
use frit_cpu::isa::Isa;
use frit_cpu::kernels::linear::{linear, scratch_bytes};
use frit_cpu::pack::{pack, packed_bytes};
use frit_cpu::pool::Pool;
use frit_ir::rows::WEIGHTS;
use frit_ir::{DType, Expr};

fn noise(n: usize) -> Vec<f32> {
    let mut s = 1u64;
    let mut next = || {
        s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (s >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..n).map(|_| next()).collect()
}

/// `copies` of packed random weights, one behind the other.
fn weights(dtype: DType, n: usize, k: usize, copies: usize) -> Buffer {
    let floats = noise(n * k);
    let plain = match dtype {
        DType::F32 => bytemuck::cast_slice(&floats).to_vec(),
        DType::F16 => floats.iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()).collect(),
        DType::BF16 => floats.iter().flat_map(|v| half::bf16::from_f32(*v).to_le_bytes()).collect(),
        _ => frit_ir::block::quantize(dtype, &floats).expect("whole blocks"),
    };
    let bytes = packed_bytes(dtype, n, k).expect("whole blocks");
    let mut all = buffer(bytes * copies);
    let (first, rest) = all.bytes_mut().split_at_mut(bytes);
    pack(dtype, n, k, &plain, first).expect("sizes agree");
    rest.chunks_exact_mut(bytes).for_each(|c| c.copy_from_slice(first));
    all
}

fn buffer(bytes: usize) -> Buffer {
    Buffer::zeroed(bytes).expect("memory")
}

/// Operands that the threads of a run read.
struct Shared([Operand; 3]);

// SAFETY: threads write disjoint parts of the result only.
unsafe impl Sync for Shared {}

impl Shared {
    fn get(&self) -> &[Operand] {
        &self.0
    }
}

/// Seconds of one step, the tenth percentile of many that take copies of the weights in turn, `total` bytes of them.
fn time(
    pool: &Pool,
    isa: Isa,
    dtype: DType,
    (m, n, k): (usize, usize, usize),
    bits: i64,
    total: usize,
) -> f64 {
    let bytes = packed_bytes(dtype, n, k).expect("whole blocks");
    let copies = (total / bytes).clamp(1, 4096);
    let w = weights(dtype, n, k, copies);
    let mut x = buffer(m * k * 4);
    x.bytes_mut().copy_from_slice(bytemuck::cast_slice(&noise(m * k)));
    let y = buffer(m * n * 4);
    let scratch_bytes = scratch_bytes(m, k, pool.threads(), bits);
    let scratch = buffer(scratch_bytes);
    let params = [m, k, 1, 1, bits as usize, 1].map(|v| Param::Int(v as i64));
    let mut same = Expr::new(&[DType::F32]);
    same.output(0, DType::F32);
    let programs = [Program::new(&same, isa).expect("well formed")];
    let kernel = linear(isa);
    let start = Instant::now();
    let mut times = vec![];
    while start.elapsed().as_secs_f64() < 0.7 {
        for i in 0..copies {
            let operands = [
                operand(x.ptr(), DType::F32, m, k),
                operand(w.ptr().wrapping_add(i * bytes), dtype, n, k),
                operand(y.ptr(), DType::F32, m, n),
            ];
            let operands = Shared(operands);
            let t = Instant::now();
            pool.run(&|team| {
                let args = Args {
                    operands: operands.get(),
                    params: &params,
                    programs: &programs,
                    scratch: scratch.ptr(),
                    scratch_bytes,
                    team,
                };
                // SAFETY: the operands lie in memory of their sizes.
                unsafe { kernel(&args) };
            })
            .expect("no panic");
            times.push(t.elapsed().as_secs_f64());
        }
    }
    times.sort_by(f64::total_cmp);
    times[times.len() / 10]
}

fn operand(ptr: *mut u8, dtype: DType, rows: usize, columns: usize) -> Operand {
    let (mut dims, mut strides) = ([1; MAX_RANK], [0; MAX_RANK]);
    (dims[0], dims[1], strides[0], strides[1]) = (rows as i64, columns as i64, columns as i64, 1);
    Operand { ptr, dtype, rank: 2, dims, strides }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let threads = args.first().and_then(|a| a.parse().ok()).unwrap_or(2);
    let isa = match args.get(1).map(String::as_str) {
        Some("portable") => Isa::Portable,
        Some("avx2") => Isa::Avx2,
        Some("avx512") => Isa::Avx512,
        _ => Isa::detect(),
    };
    let wanted: Vec<DType> = args.iter().skip(2).filter_map(|a| DType::parse(a)).collect();
    let all = WEIGHTS.iter().copied();
    let formats: Vec<DType> = if wanted.is_empty() { all.collect() } else { wanted };
    let pool = Pool::new(threads).expect("threads");
    println!("{threads} threads, {isa:?}");
    for dtype in formats {
        for bits in if dtype.is_block() { vec![8, 16, 0] } else { vec![0] } {
            // The feed-forward shape of a small model, from memory and from cache; a long prompt.
            let k = if dtype.info().unit_elements == 256 { 512 } else { 576 };
            let shape = |m| (m, 1536, k);
            let gb = |t: f64| packed_bytes(dtype, 1536, k).unwrap_or(0) as f64 / t / 1e9;
            let (far, near) = (
                time(&pool, isa, dtype, shape(1), bits, 100 << 20),
                time(&pool, isa, dtype, shape(1), bits, 1),
            );
            let long = time(&pool, isa, dtype, shape(512), bits, 1);
            println!(
                "{dtype:5} {} M=1: {:6.1} GB/s from memory, {:6.1} GB/s from cache; M=512: {:6.0} GMAC/s",
                ["f32", "q8 ", "q16"][bits as usize / 8],
                gb(far),
                gb(near),
                512.0 * 1536.0 * k as f64 / long / 1e9
            );
        }
    }
}
