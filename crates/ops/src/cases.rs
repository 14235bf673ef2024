//! Building blocks of the case tables: pseudo-random tensors that never change, tolerances that follow the storage
//! type, and short forms of [`Case`].

use frit_ir::op::{Case, CaseInput, Tolerance};
use frit_ir::{Attrs, DType, Tensor};

/// The three float storage types that every device has.
pub const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// Lengths at and one off the tile sizes of kernels.
pub const EDGES: [usize; 12] = [1, 2, 15, 16, 17, 31, 32, 33, 64, 127, 128, 129];

/// A generator of the same numbers on every machine (SplitMix64, Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// Starts at `seed`.
    pub fn new(seed: u64) -> Numbers {
        Numbers(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// The next number in -1..1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// The next integer in `lo..hi`; `lo` if that is empty.
    pub fn within(&mut self, lo: i64, hi: i64) -> i64 {
        if hi <= lo { lo } else { lo + (self.bits() % (hi - lo) as u64) as i64 }
    }
}

/// Elements for `shape` from `f`, rounded to `dtype`. Block formats are encoded from f32 values; the last extent must
/// then be a multiple of the block.
///
/// # Panics
/// The shape is impossible for `dtype`: case tables are fixed, so this is a mistake in the table.
pub fn fill(dtype: DType, shape: &[usize], mut f: impl FnMut() -> f64) -> Tensor {
    let v: Vec<f64> = (0..shape.iter().product()).map(|_| f()).collect();
    if !dtype.is_block() {
        return Tensor::from_f64(dtype, shape, &v).expect("a possible shape");
    }
    let v: Vec<f32> = v.into_iter().map(|v| v as f32).collect();
    let bytes = frit_ir::block::quantize(dtype, &v).expect("whole blocks of finite values");
    Tensor::new(dtype, shape, bytes).expect("a possible shape")
}

/// Whether the type is only moved: small floats and types below a byte, whose elements have no values here.
pub fn is_storage(dtype: DType) -> bool {
    !dtype.is_block() && !dtype.is_compute()
}

/// Random elements: floats and block formats in -1..1, signed integers in -100..100, unsigned in 0..100, bool evenly, types
/// that are storage alone any bits.
///
/// # Panics
/// As [`fill`].
pub fn random(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    let mut n = Numbers::new(seed);
    if is_storage(dtype) {
        let info = dtype.info();
        let units = shape.iter().product::<usize>() / info.unit_elements;
        let bytes: Vec<u8> = (0..units * info.unit_bytes).map(|_| n.bits() as u8).collect();
        return Tensor::new(dtype, shape, bytes).expect("whole units");
    }
    if dtype == DType::Bool {
        return fill(dtype, shape, || n.within(0, 2) as f64);
    }
    if dtype.is_int() {
        let lo = if dtype.info().kind == frit_ir::dtype::Kind::Signed { -100 } else { 0 };
        return fill(dtype, shape, || n.within(lo, 100) as f64);
    }
    fill(dtype, shape, || n.unit())
}

/// Random integers in `lo..hi`.
///
/// # Panics
/// As [`fill`].
pub fn random_ints(dtype: DType, shape: &[usize], lo: i64, hi: i64, seed: u64) -> Tensor {
    let mut n = Numbers::new(seed);
    fill(dtype, shape, || n.within(lo, hi) as f64)
}

/// The tensor of these values.
///
/// # Panics
/// As [`fill`], and if the count is wrong.
pub fn values(dtype: DType, shape: &[usize], v: &[f64]) -> Tensor {
    assert_eq!(shape.iter().product::<usize>(), v.len(), "values of the shape");
    let mut it = v.iter().copied();
    fill(dtype, shape, || it.next().unwrap_or(0.0))
}

/// The bound for results stored as `dtype` whose computation in f32 is within `abs + rel·|want|`. Both sides are rounded to
/// storage, so a narrow type may differ by one unit in its last place. Results below the smallest normal f32 may be
/// flushed to zero.
pub fn tolerance(dtype: DType, abs: f64, rel: f64) -> Tolerance {
    let (a, r) = match dtype {
        DType::F32 => (f32::MIN_POSITIVE.into(), 0.0),
        DType::F16 => (2f64.powi(-24), 2f64.powi(-10)),
        DType::BF16 => (f32::MIN_POSITIVE.into(), 2f64.powi(-7)),
        _ => (0.0, 0.0),
    };
    Tolerance { abs: abs + a, rel: rel + r }
}

/// A case of dense inputs without stated results.
pub fn case(name: impl Into<String>, attrs: Attrs, inputs: &[&Tensor], tolerance: Tolerance) -> Case {
    let inputs = inputs.iter().map(|t| Some(CaseInput::new((*t).clone()))).collect();
    Case { name: name.into(), attrs, inputs, tolerance, expect: None }
}

/// A case of given operands without stated results.
pub fn case_of(
    name: impl Into<String>,
    attrs: Attrs,
    inputs: Vec<Option<CaseInput>>,
    tolerance: Tolerance,
) -> Case {
    Case { name: name.into(), attrs, inputs, tolerance, expect: None }
}

/// `case` with the results that must come out.
pub fn expecting(case: Case, results: &[&[f64]]) -> Case {
    Case { expect: Some(results.iter().map(|r| r.to_vec()).collect()), ..case }
}
