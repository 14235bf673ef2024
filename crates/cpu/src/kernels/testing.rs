//! What the kernels' tests share: tensors with guard bytes in any layout, and runs on every instruction set and on one,
//! two and three threads that must give the same bits.

use frit_ir::{DType, Expr, Tensor};

use super::row::CpuRow;
use crate::args::{Args, MAX_RANK, Operand, Param};
use crate::expr::Program;
use crate::isa::Isa;
use crate::pool::Pool;

const GUARD: usize = 128;
const FILL: u8 = 0xA5;

/// A tensor in memory with guards around it.
#[derive(Clone)]
pub(crate) struct Array {
    bytes: Vec<u64>,
    len: usize,
    dtype: DType,
    dims: Vec<i64>,
    strides: Vec<i64>,
}

/// Row-major strides.
pub(crate) fn dense(dims: &[i64]) -> Vec<i64> {
    let mut s = vec![1; dims.len()];
    for i in (1..dims.len()).rev() {
        s[i - 1] = s[i] * dims[i];
    }
    s
}

/// Calls `f` with every index of `dims` in row-major order.
pub(crate) fn each(dims: &[i64], mut f: impl FnMut(&[i64])) {
    let total: i64 = dims.iter().product();
    for n in 0..total {
        let mut index = vec![0; dims.len()];
        let mut left = n;
        for d in (0..dims.len()).rev() {
            index[d] = left % dims[d];
            left /= dims[d];
        }
        f(&index);
    }
}

/// A generator of test values: SplitMix64.
pub(crate) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// In −1..1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

impl Array {
    /// The values as they are (rounded to the type), dense.
    pub fn of(dtype: DType, dims: &[i64], values: &[f64]) -> Array {
        Array::strided(dtype, dims, &dense(dims), values)
    }

    /// The values, in row-major order, with these strides.
    pub fn strided(dtype: DType, dims: &[i64], strides: &[i64], values: &[f64]) -> Array {
        let top: i64 = dims.iter().zip(strides).map(|(d, s)| (d - 1).max(0) * s).sum();
        let size = dtype.info().unit_bytes;
        let len = if values.is_empty() { 0 } else { (top as usize + 1) * size };
        let mut a = Array {
            bytes: vec![0; (len + 2 * GUARD).div_ceil(8)],
            len,
            dtype,
            dims: dims.into(),
            strides: strides.into(),
        };
        a.raw().fill(FILL);
        let shape = [values.len()];
        let packed = Tensor::from_f64(dtype, &shape, values).unwrap();
        let mut n = 0;
        each(dims, |index| {
            let at: i64 = index.iter().zip(strides).map(|(i, s)| i * s).sum();
            let to = GUARD + at as usize * size;
            a.raw()[to..to + size].copy_from_slice(&packed.bytes()[n * size..][..size]);
            n += 1;
        });
        a
    }

    /// Random values in −1..1 (integers −100..100, truth values).
    pub fn random(dtype: DType, dims: &[i64], seed: u64) -> Array {
        Array::random_strided(dtype, dims, &dense(dims), seed)
    }

    /// The same with these strides.
    pub fn random_strided(dtype: DType, dims: &[i64], strides: &[i64], seed: u64) -> Array {
        let mut r = Random(seed);
        let n: i64 = dims.iter().product();
        let values: Vec<f64> = (0..n)
            .map(|_| match dtype {
                DType::Bool => (r.next() % 2) as f64,
                d if d.is_float() => r.unit(),
                _ => (r.unit() * 100.0).trunc(),
            })
            .collect();
        Array::strided(dtype, dims, strides, &values)
    }

    /// Raw bytes of storage (block formats).
    pub fn bytes_of(dtype: DType, dims: &[i64], bytes: &[u8]) -> Array {
        let len = bytes.len();
        let mut a = Array {
            bytes: vec![0; (len + 2 * GUARD).div_ceil(8)],
            len,
            dtype,
            dims: dims.into(),
            strides: dense(dims),
        };
        a.raw().fill(FILL);
        a.raw()[GUARD..GUARD + len].copy_from_slice(bytes);
        a
    }

    /// Room for a result.
    pub fn room(dtype: DType, dims: &[i64]) -> Array {
        let n = dims.iter().product::<i64>() as usize;
        Array::bytes_of(dtype, dims, &vec![0x77; dtype.bytes_of(n).unwrap()])
    }

    fn raw(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.bytes)
    }

    pub fn dims(&self) -> &[i64] {
        &self.dims
    }

    /// The bytes between the guards, which must be whole.
    pub fn data(&self) -> &[u8] {
        let raw: &[u8] = bytemuck::cast_slice(&self.bytes);
        let (before, rest) = raw.split_at(GUARD);
        let (data, after) = rest.split_at(self.len);
        assert!(before.iter().chain(after).all(|b| *b == FILL), "a guard was overwritten");
        data
    }

    /// Values in row-major order.
    pub fn values(&self) -> Vec<f64> {
        let size = self.dtype.info().unit_bytes;
        let all = Tensor::new(self.dtype, &[self.data().len() / size], self.data().to_vec()).unwrap();
        let all = all.to_f64().unwrap();
        let mut out = Vec::new();
        each(&self.dims, |index| {
            let at: i64 = index.iter().zip(&self.strides).map(|(i, s)| i * s).sum();
            out.push(all[at as usize]);
        });
        out
    }

    pub fn operand(&mut self) -> Operand {
        let (mut dims, mut strides) = ([1; MAX_RANK], [0; MAX_RANK]);
        dims[..self.dims.len()].copy_from_slice(&self.dims);
        strides[..self.dims.len()].copy_from_slice(&self.strides);
        let (dtype, rank) = (self.dtype, self.dims.len() as u8);
        Operand { ptr: self.raw()[GUARD..].as_mut_ptr(), dtype, rank, dims, strides }
    }
}

/// A call to test.
pub(crate) struct Call<'a> {
    pub row: &'a CpuRow,
    pub inputs: Vec<Option<Array>>,
    pub outputs: Vec<Array>,
    pub params: Vec<Param>,
    pub exprs: Vec<Expr>,
    pub scratch: usize,
    /// The input whose memory output 0 shares.
    pub in_place: Option<usize>,
}

impl<'a> Call<'a> {
    pub fn new(row: &'a CpuRow, inputs: Vec<Array>, outputs: Vec<Array>) -> Call<'a> {
        let inputs = inputs.into_iter().map(Some).collect();
        Call { row, inputs, outputs, params: Vec::new(), exprs: Vec::new(), scratch: 0, in_place: None }
    }

    pub fn params(mut self, p: impl IntoIterator<Item = f64>) -> Self {
        let int = |v: f64| if v.fract() == 0.0 { Param::Int(v as i64) } else { Param::Float(v) };
        self.params = p.into_iter().map(int).collect();
        self
    }

    /// The results, after asserting that instruction sets and thread counts agree to the bit and guards are whole.
    pub fn run(&self) -> Vec<Array> {
        let mut first: Option<Vec<Array>> = None;
        for threads in 1..=3 {
            let pool = Pool::new(threads).unwrap();
            for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
                let got = self.once(isa, &pool);
                let want = first.get_or_insert_with(|| got.clone());
                for (g, w) in got.iter().zip(want) {
                    assert!(
                        g.data() == w.data(),
                        "{} on {isa:?} with {threads} threads gives other bits: {:?} and {:?}",
                        self.row.row.name,
                        g.values().iter().zip(w.values()).position(|(a, b)| a.to_bits() != b.to_bits()),
                        (g.dims(), g.values().len())
                    );
                }
            }
        }
        first.unwrap()
    }

    fn once(&self, isa: Isa, pool: &Pool) -> Vec<Array> {
        let (mut inputs, mut outputs) = (self.inputs.clone(), self.outputs.clone());
        let mut operands: Vec<Operand> =
            inputs.iter_mut().map(|i| i.as_mut().map_or(Operand::ABSENT, Array::operand)).collect();
        operands.extend(outputs.iter_mut().map(Array::operand));
        if let Some(i) = self.in_place {
            operands[inputs.len()].ptr = operands[i].ptr;
        }
        let programs: Vec<Program> = self.exprs.iter().map(|e| Program::new(e, isa).unwrap()).collect();
        let mut scratch = vec![0xFFFF_FFFF_FFFF_FFFFu64; self.scratch / 8 + 8];
        let at = scratch.as_mut_ptr().cast::<u8>();
        let shared = Shared(&operands, at.wrapping_add(at.align_offset(64)));
        let kernel = (self.row.kernel)(isa);
        pool.run(&|team| {
            let (operands, scratch) = shared.parts();
            let (params, programs, scratch_bytes) = (&self.params[..], &programs[..], self.scratch);
            // SAFETY: the operands describe the arrays.
            unsafe { kernel(&Args { operands, params, programs, scratch, scratch_bytes, team }) };
        })
        .unwrap();
        if let Some(i) = self.in_place {
            outputs[0] = inputs[i].clone().unwrap();
        }
        inputs.iter().flatten().for_each(|i| {
            i.data();
        });
        outputs
    }
}

/// Pointers that the threads of a run share.
#[derive(Clone, Copy)]
struct Shared<'a>(&'a [Operand], *mut u8);

impl<'a> Shared<'a> {
    fn parts(&self) -> (&'a [Operand], *mut u8) {
        (self.0, self.1)
    }
}

// SAFETY: the kernel splits what it writes between the threads.
unsafe impl Sync for Shared<'_> {}

/// |got − want| ≤ abs + rel·|want| everywhere; NaN and infinities the same.
pub(crate) fn assert_close(got: &[f64], want: &[f64], abs: f64, rel: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let same = g == w || (g.is_nan() && w.is_nan()) || (g - w).abs() <= abs + rel * w.abs();
        assert!(same, "{what}: element {i} is {g}, want {w}");
    }
}

/// How far a result of `dtype` may be from the exact one.
pub(crate) fn rel(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-13,
        DType::F16 => 1e-3,
        DType::BF16 => 8e-3,
        _ => 2e-6,
    }
}
