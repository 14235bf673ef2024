//! Every format, instruction set, tile edge and number of threads against a plain reference, and against each other bit
//! by bit.

use frit_ir::expr::{Expr, ScalarOp};
use frit_ir::{DType, block};

use super::*;
use crate::args::{MAX_RANK, Param};
use crate::expr::Program;
use crate::kernels::matmul;
use crate::pool::{Pool, Team};

const GUARD: f32 = -12345.5;

fn noise(n: usize, seed: u64) -> Vec<f32> {
    let mut s = seed;
    (0..n)
        .map(|_| {
            s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (s >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line([u8; 64]);

fn operand(ptr: *const u8, dtype: DType, dims: &[usize], strides: &[usize]) -> Operand {
    let mut o = Operand {
        ptr: ptr.cast_mut(),
        dtype,
        rank: dims.len() as u8,
        dims: [1; MAX_RANK],
        strides: [0; MAX_RANK],
    };
    for (i, (d, s)) in dims.iter().zip(strides).enumerate() {
        (o.dims[i], o.strides[i]) = (*d as i64, *s as i64);
    }
    o
}

fn bytes_of(values: &[f32], dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F32 => bytemuck::cast_slice(values).to_vec(),
        DType::F16 => values.iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()).collect(),
        DType::BF16 => values.iter().flat_map(|v| half::bf16::from_f32(*v).to_le_bytes()).collect(),
        _ => block::quantize(dtype, values).unwrap(),
    }
}

fn floats_of(bytes: &[u8], dtype: DType) -> Vec<f32> {
    match dtype {
        DType::F32 => bytes.chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        DType::F16 => bytes.chunks(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
        DType::BF16 => bytes.chunks(2).map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
        _ => {
            let i = dtype.info();
            let mut out = vec![0.0; bytes.len() / i.unit_bytes * i.unit_elements];
            block::dequantize(dtype, bytes, &mut out).unwrap();
            out
        }
    }
}

/// A weight: plain bytes, values and rows.
struct Weight {
    dtype: DType,
    k: usize,
    bytes: Vec<u8>,
    values: Vec<f32>,
}

impl Weight {
    fn new(dtype: DType, n: usize, k: usize, seed: u64) -> Weight {
        let bytes = bytes_of(&noise(n * k, seed), dtype);
        let values = floats_of(&bytes, dtype);
        Weight { dtype, k, bytes, values }
    }

    /// The first `n` rows packed, with the memory that holds them.
    fn packed(&self, n: usize) -> (Vec<Line>, Operand) {
        let row = self.dtype.bytes_of(self.k).unwrap();
        let need = pack::packed_bytes(self.dtype, n, self.k).unwrap();
        let mut lines = vec![Line([0; 64]); need.div_ceil(64)];
        // SAFETY: the lines are plain bytes, at least `need` of them.
        let to = unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast::<u8>(), need) };
        pack::pack(self.dtype, n, self.k, &self.bytes[..n * row], to).unwrap();
        let o = operand(lines.as_ptr().cast(), self.dtype, &[n, self.k], &[self.k, 1]);
        (lines, o)
    }
}

/// What the activations become: each 32 rounded to 8 or 16 bits.
fn rounded(x: &[f32], bits: i64) -> Vec<f32> {
    let mut out = vec![];
    for b in x.chunks(32) {
        let d = b.iter().fold(0f32, |a, v| a.max(v.abs())) / if bits == 16 { 32385.0 } else { 127.0 };
        out.extend(b.iter().map(|v| if d == 0.0 { 0.0 } else { (v / d).round_ties_even() * d }));
    }
    out
}

fn params(m: usize, k: usize, arity: &[usize], bits: i64) -> Vec<Param> {
    let mut p = vec![m, k, arity.iter().sum(), arity.len(), bits as usize];
    p.extend((0..8).map(|i| arity.get(i).copied().unwrap_or(0)));
    p.into_iter().map(|v| Param::Int(v as i64)).collect()
}

fn isa_of(set: usize) -> Isa {
    table::SETS[set].1
}

fn best() -> usize {
    table::fastest(Isa::detect())
}

fn identity(isa: Isa) -> Program {
    let mut e = Expr::new(&[DType::F32]);
    e.output(0, DType::F32);
    Program::new(&e, isa).unwrap()
}

/// Runs a kernel; scratch starts as NaN and must not be overrun.
fn call(
    kernel: Kernel,
    operands: &[Operand],
    params: &[Param],
    programs: &[Program],
    bytes: usize,
    pool: &Pool,
) {
    let mut scratch = vec![Line([255; 64]); bytes.div_ceil(64) + 4];
    let (operands, at) = (operands.as_ptr() as usize..operands.len(), scratch.as_mut_ptr() as usize);
    pool.run(&|team: Team| {
        // SAFETY: the operands outlive the run.
        let operands = unsafe { std::slice::from_raw_parts(operands.start as *const Operand, operands.end) };
        let args = Args { operands, params, programs, scratch: at as *mut u8, scratch_bytes: bytes, team };
        // SAFETY: the operands are valid and the scratch is as large as the row says.
        unsafe { kernel(&args) };
    })
    .unwrap();
    assert!(scratch[bytes.div_ceil(64)..].iter().all(|l| l.0 == [255; 64]), "scratch overrun");
}

/// `linear` of one weight; the result with guards of one element behind each row checked.
fn product(set: usize, pool: &Pool, x: &[f32], m: usize, w: &Weight, n: usize, bits: i64) -> Vec<f32> {
    let (_lines, ow) = w.packed(n);
    let mut y = vec![GUARD; (m + 1) * (n + 1)];
    let ox = operand(x.as_ptr().cast(), DType::F32, &[m, w.k], &[w.k, 1]);
    let oy = operand(y.as_mut_ptr().cast(), DType::F32, &[m, n], &[n + 1, 1]);
    let scratch = scratch_bytes(m, w.k, pool.threads(), bits);
    call(ENTRIES[set], &[ox, ow, oy], &params(m, w.k, &[1], bits), &[identity(isa_of(set))], scratch, pool);
    assert!(y[m * (n + 1)..].iter().all(|v| *v == GUARD));
    y[..m * (n + 1)]
        .chunks(n + 1)
        .flat_map(|r| {
            assert_eq!(r[n], GUARD);
            r[..n].to_vec()
        })
        .collect()
}

/// The sets of loops that this machine runs.
fn available() -> impl Iterator<Item = usize> {
    (0..table::SETS.len()).filter(|s| (table::SETS[*s].2)())
}

/// Largest deviation from the f64 reference in units of Σ|w·x|.
fn deviation(y: &[f32], x: &[f32], w: &[f32], m: usize, n: usize, k: usize) -> f64 {
    let mut worst = 0f64;
    for i in 0..m {
        for j in 0..n {
            let terms = (0..k).map(|p| f64::from(x[i * k + p]) * f64::from(w[j * k + p]));
            let (mut sum, mut size) = (0.0, 1e-30);
            terms.for_each(|t| {
                sum += t;
                size += t.abs();
            });
            worst = worst.max((f64::from(y[i * n + j]) - sum).abs() / size);
        }
    }
    worst
}

const M: [usize; 10] = [1, 2, 3, 5, 7, 8, 13, 16, 17, 33];
const N: [usize; 8] = [1, 15, 16, 17, 32, 96, 127, 129];

fn sweep(dtype: DType, k: usize, bits: i64, ms: &[usize], ns: &[usize]) {
    let (top_m, top_n) = (33, 129);
    let w = Weight::new(dtype, top_n, k, 5);
    let mut x = noise(top_m * k, 6);
    x[..k.min(32)].fill(0.0);
    let pools: Vec<Pool> = (1..=3).map(|t| Pool::new(t).unwrap()).collect();
    let base = product(best(), &pools[0], &x, top_m, &w, top_n, bits);
    let want = if bits > 0 { rounded(&x, bits) } else { x.clone() };
    let worst = deviation(&base, &want, &w.values, top_m, top_n, k);
    assert!(worst < 3e-7 * (k as f64 / 32.0).sqrt().max(2.0), "{dtype} bits={bits} k={k}: {worst:e}");
    let mut turn = 0;
    for set in available() {
        for &m in ms {
            for &n in ns {
                turn += 1;
                let pool = &pools[turn % 3];
                let y = product(set, pool, &x, m, &w, n, bits);
                for (i, row) in y.chunks(n).enumerate() {
                    let same = row.iter().zip(&base[i * top_n..]).all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(
                        same,
                        "{dtype} bits={bits} {m}×{n}×{k} set {set} {} threads, row {i}",
                        pool.threads()
                    );
                }
            }
        }
    }
}

fn unit(dtype: DType) -> usize {
    dtype.info().unit_elements
}

#[test]
fn block_formats_with_rounded_activations() {
    for (dtype, bits) in BLOCKS.iter().copied().flat_map(|d| [(d, 8), (d, 16)]) {
        sweep(dtype, unit(dtype), bits, &M, &N);
        sweep(dtype, 3 * unit(dtype), bits, &[1, 4, 6, 33], &[16, 129]);
        // Past one chunk of expanded columns.
        sweep(dtype, 1024, bits, &[1, 2, 13], &[33]);
    }
}

#[test]
fn every_format_with_float_activations() {
    for dtype in WEIGHTS.iter().copied() {
        let unit = unit(dtype);
        sweep(dtype, if unit == 1 { 37 } else { unit }, 0, &M, &N);
        sweep(dtype, if unit == 1 { 300 } else { 2 * unit.max(192) }, 0, &[1, 6, 13], &[1, 65]);
    }
}

#[test]
fn long_inputs_split_into_blocks_of_rows() {
    let k = 64;
    let pool = Pool::new(2).unwrap();
    for (dtype, bits) in [(DType::Q4_1, 8), (DType::Q4_1, 16), (DType::Q8_0, 0), (DType::F16, 0)] {
        let w = Weight::new(dtype, 49, k, 1);
        for m in [131, 132, 133, 265] {
            let x = noise(m * k, 2);
            let y = product(best(), &pool, &x, m, &w, 49, bits);
            let want = if bits > 0 { rounded(&x, bits) } else { x.clone() };
            assert!(deviation(&y, &want, &w.values, m, 49, k) < 1e-6, "{dtype} {m}");
        }
    }
}

/// Three groups with weights of several formats: a plain product, a gated one, one with a bias and a residual in f16.
#[test]
fn groups_formats_and_epilogues_share_a_step() {
    let (m, k) = (7, 64);
    let formats = [DType::Q4_1, DType::Q8_0, DType::Q5_0, DType::Q4_0];
    let ns = [40, 33, 33, 17];
    let weights: Vec<Weight> = (0..4).map(|i| Weight::new(formats[i], ns[i], k, i as u64 + 1)).collect();
    let packed: Vec<_> = weights.iter().zip(ns).map(|(w, n)| w.packed(n)).collect();
    let mut gate = Expr::new(&[DType::F32, DType::F32]);
    let silu = gate.push(ScalarOp::Silu, &[0]);
    let v = gate.push(ScalarOp::Mul, &[silu, 1]);
    gate.output(v, DType::F32);
    let mut add = Expr::new(&[DType::F32, DType::F32, DType::F16]);
    let v = add.push(ScalarOp::Add, &[0, 1]);
    let v = add.push(ScalarOp::Add, &[v, 2]);
    add.output(v, DType::F32);
    add.output(v, DType::F16);
    let (x, bias) = (noise(m * k, 9), noise(17, 8));
    let residual = bytes_of(&noise(m * 17, 7), DType::F16);
    for set in available() {
        let isa = isa_of(set);
        for m in [1, m] {
            let programs =
                [identity(isa), Program::new(&gate, isa).unwrap(), Program::new(&add, isa).unwrap()];
            let (mut a, mut b) = (vec![0f32; m * 40], vec![0f32; m * 33]);
            let (mut c, mut d) = (vec![0f32; m * 17], vec![0u16; m * 17]);
            let dense = |p: *mut u8, dtype, n: usize| operand(p, dtype, &[m, n], &[n, 1]);
            let mut operands = vec![operand(x.as_ptr().cast(), DType::F32, &[m, k], &[k, 1])];
            operands.extend(packed.iter().map(|p| p.1));
            operands.push(operand(bias.as_ptr().cast(), DType::F32, &[17], &[1]));
            operands.push(operand(residual.as_ptr(), DType::F16, &[m, 17], &[17, 1]));
            operands.push(dense(a.as_mut_ptr().cast(), DType::F32, 40));
            operands.push(dense(b.as_mut_ptr().cast(), DType::F32, 33));
            operands.push(dense(c.as_mut_ptr().cast(), DType::F32, 17));
            operands.push(dense(d.as_mut_ptr().cast(), DType::F16, 17));
            let pool = Pool::new(2).unwrap();
            let bytes = scratch_bytes(m, k, 2, 16);
            call(ENTRIES[set], &operands, &params(m, k, &[1, 2, 1], 16), &programs, bytes, &pool);
            let one = |i: usize| product(set, &pool, &x, m, &weights[i], ns[i], 16);
            assert_eq!(a, one(0));
            for (v, (g, u)) in b.iter().zip(one(1).iter().zip(one(2))) {
                let want = g / (1.0 + (-g).exp()) * u;
                assert!((v - want).abs() <= 1e-5 * want.abs().max(1.0), "{v} {want}");
            }
            let residual = floats_of(&residual, DType::F16);
            for (i, p) in one(3).iter().enumerate() {
                let want = p + bias[i % 17] + residual[i];
                assert_eq!(c[i], want);
                assert_eq!(d[i], half::f16::from_f32(want).to_bits());
            }
        }
    }
}

#[test]
fn activations_may_be_strided_and_of_any_float_type() {
    let (k, n, set) = (64, 20, best());
    let pool = Pool::new(2).unwrap();
    for (wt, bits) in [(DType::Q4_0, 8), (DType::Q4_0, 16), (DType::Q4_0, 0), (DType::F32, 0)] {
        let w = Weight::new(wt, n, k, 3);
        let (_lines, ow) = w.packed(n);
        for (xt, each) in
            [DType::F32, DType::F16, DType::BF16].into_iter().flat_map(|x| [(x, 1), (x, 2), (x, 3)])
        {
            // The first `each` rows of both halves of a [2, 4, 80] tensor, from column 5 on.
            let m = 2 * each;
            let stored = bytes_of(&noise(2 * 4 * 80, 4), xt);
            let all = floats_of(&stored, xt);
            let row = |r: usize| all[r / each * 320 + r % each * 80 + 5..][..k].to_vec();
            let dense: Vec<f32> = (0..m).flat_map(row).collect();
            let mut y = vec![0f32; m * n];
            let at = stored.as_ptr().wrapping_add(5 * xt.size().unwrap());
            let ox = operand(at, xt, &[2, each, k], &[320, 80, 1]);
            let oy = operand(y.as_mut_ptr().cast(), DType::F32, &[2, each, n], &[each * n, n, 1]);
            let (params, programs) = (params(m, k, &[1], bits), [identity(isa_of(set))]);
            call(ENTRIES[set], &[ox, ow, oy], &params, &programs, scratch_bytes(m, k, 2, bits), &pool);
            assert_eq!(y, product(set, &pool, &dense, m, &w, n, bits), "{wt} {xt} {bits} {m}");
        }
    }
}

#[test]
fn activations_with_nan_and_infinity_reach_the_result() {
    let (k, n) = (64, 16);
    let pool = Pool::new(1).unwrap();
    let w = Weight::new(DType::Q4_1, n, k, 3);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut x = noise(2 * k, 3);
        x[40] = bad;
        for set in available() {
            let y = product(set, &pool, &x, 2, &w, n, 16);
            assert!(y[..n].iter().all(|v| !v.is_finite()), "{bad} set {set} {y:?}");
            assert!(y[n..].iter().all(|v| v.is_finite()));
        }
    }
}

#[test]
fn matmul_is_linear_bit_by_bit() {
    let pool = Pool::new(2).unwrap();
    for (m, n, k) in [(1, 1, 1), (3, 33, 37), (13, 50, 300), (64, 64, 256), (131, 16, 20)] {
        let (x, w) = (noise(m * k, 1), Weight::new(DType::F32, n, k, 2));
        for set in available() {
            let want = product(set, &pool, &x, m, &w, n, 0);
            let transposed: Vec<f32> = (0..k * n).map(|i| w.values[i % n * k + i / n]).collect();
            for (b, strides) in [(&w.values, [1, k]), (&transposed, [n, 1])] {
                let mut y = vec![GUARD; m * n + 1];
                let operands = [
                    operand(x.as_ptr().cast(), DType::F32, &[m, k], &[k, 1]),
                    operand(b.as_ptr().cast(), DType::F32, &[k, n], &strides),
                    operand(y.as_mut_ptr().cast(), DType::F32, &[m, n], &[n, 1]),
                ];
                call(matmul::ENTRIES[set], &operands, &[], &[], matmul::scratch_bytes(2), &pool);
                assert_eq!(y.pop(), Some(GUARD));
                let same = y.iter().zip(&want).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "{m}×{n}×{k} set {set}");
            }
        }
    }
}

#[test]
fn matmul_broadcasts_batches_and_takes_any_float_type() {
    let (m, n, k) = (5, 19, 33);
    let pool = Pool::new(3).unwrap();
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
        // a [2, 1, M, K] with its columns apart by M, b [3, K, N]: out [2, 3, M, N].
        let (a, b) = (noise(2 * m * k, 1), noise(3 * k * n, 2));
        let wide = |v: &[f32]| v.iter().flat_map(|v| f64::from(*v).to_le_bytes()).collect::<Vec<u8>>();
        let store = |v: &[f32]| if dtype == DType::F64 { wide(v) } else { bytes_of(v, dtype) };
        let load = |v: &[u8]| match dtype {
            DType::F64 => v.chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap()) as f32).collect(),
            _ => floats_of(v, dtype),
        };
        let (sa, sb) = (store(&a), store(&b));
        let (a, b) = (load(&sa), load(&sb));
        let size = dtype.size().unwrap();
        let mut out = vec![0u64; 6 * m * n * size / 8 + 1];
        let operands = [
            operand(sa.as_ptr(), dtype, &[2, 1, m, k], &[m * k, 7, 1, m]),
            operand(sb.as_ptr(), dtype, &[3, k, n], &[k * n, n, 1]),
            operand(out.as_mut_ptr().cast(), dtype, &[2, 3, m, n], &[3 * m * n, m * n, n, 1]),
        ];
        let isa = Isa::detect();
        let row = matmul::ROWS.iter().find(|r| r.row.inputs[0].dtypes.contains(&dtype)).unwrap();
        call((row.kernel)(isa), &operands, &[], &[], matmul::scratch_bytes(3), &pool);
        let got = load(&bytemuck::cast_slice::<u64, u8>(&out)[..6 * m * n * size]);
        for (i, v) in got.iter().enumerate() {
            let (batch, r, c) = (i / (m * n), i / n % m, i % n);
            let term = |p| a[batch / 3 * m * k + p * m + r] * b[batch % 3 * k * n + p * n + c];
            let want: f32 = (0..k).map(term).sum();
            let step = if dtype == DType::BF16 { 2e-2 } else { 2e-3 };
            assert!((v - want).abs() < step * want.abs().max(1.0), "{dtype} {i}: {v} {want}");
        }
    }
}

#[test]
fn gather_decodes_rows() {
    let (n, k) = (37, 512);
    let pool = Pool::new(2).unwrap();
    for dtype in WEIGHTS.iter().copied() {
        let w = Weight::new(dtype, n, k, 4);
        let (lines, ow) = w.packed(n);
        let ids: [i64; 6] = [0, 36, -1, 17, 37, 17];
        let mut y = vec![GUARD; 6 * k + 1];
        let oi = operand(ids.as_ptr().cast(), DType::I64, &[2, 3], &[3, 1]);
        let oy = operand(y.as_mut_ptr().cast(), DType::F32, &[2, 3, k], &[3 * k, k, 1]);
        call(gather::gather(Isa::detect()), &[ow, oi, oy], &[Param::Int(0)], &[], 0, &pool);
        assert_eq!(y.pop(), Some(GUARD));
        for (i, id) in ids.into_iter().enumerate() {
            let want = match usize::try_from(id).ok().filter(|r| *r < n) {
                Some(r) => w.values[r * k..][..k].to_vec(),
                None => vec![0.0; k],
            };
            assert_eq!(y[i * k..][..k], want, "{dtype} {id}");
        }
        let mut row = vec![0.0; k];
        // SAFETY: the lines are plain bytes.
        let bytes = unsafe { std::slice::from_raw_parts(lines.as_ptr().cast::<u8>(), lines.len() * 64) };
        pack::decode_row(dtype, n, k, bytes, 36, &mut row).unwrap();
        assert_eq!(row, w.values[36 * k..]);
    }
}

fn bits(row: &str) -> i64 {
    row.strip_prefix("linear.q").map_or(0, |b| b.parse().unwrap())
}

#[test]
fn scratch_formulas_agree() {
    for r in ROWS.iter().filter(|r| !r.row.scratch.is_empty()) {
        let formula = frit_ir::text::parse_dim(r.row.scratch).unwrap();
        let value = |name: &str| match name {
            "threads" => 3,
            "m" => 70,
            _ => 96,
        };
        let got = formula.eval(&|s| Some(value(s.name()))).unwrap();
        assert_eq!(got, scratch_bytes(70, 96, 3, bits(r.row.name)) as i64, "{formula}");
    }
}
