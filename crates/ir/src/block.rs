//! GGUF block formats: decode (the reference) and encode (for tests and op cases).
//!
//! Each format is one row of a table: where the bits of a code, of a sub-block scale and of a sub-block minimum lie.
//! Decoding and encoding walk the same row, so they cannot disagree. This is the slow, obviously right form; the fast
//! kernels live in the backends and are tested against it. The layouts are those of the GGUF specification and ggml.

use crate::DType;
use half::f16;

/// Why a block conversion was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// The type is not a block format.
    #[error("{0} is not a block format")]
    NotBlock(DType),
    /// The bytes are not a whole number of blocks.
    #[error("{bytes} bytes of {dtype} are not a whole number of {unit}-byte blocks")]
    Bytes {
        /// The block format.
        dtype: DType,
        /// Bytes given.
        bytes: usize,
        /// Bytes of one block.
        unit: usize,
    },
    /// The values are not a whole number of blocks.
    #[error("{values} values are not a whole number of {unit}-element {dtype} blocks")]
    Values {
        /// The block format.
        dtype: DType,
        /// Values given.
        values: usize,
        /// Elements of one block.
        unit: usize,
    },
    /// The output does not have the number of elements that the bytes hold.
    #[error("the {dtype} bytes hold {right} elements, the output has {given}")]
    Output {
        /// The block format.
        dtype: DType,
        /// Elements that the bytes hold.
        right: usize,
        /// Length of the output.
        given: usize,
    },
    /// A value is infinite, NaN or so large that the block's f16 scale overflows.
    #[error("value {value} at {index} has no {dtype} form: the block's f16 scale must be finite")]
    Range {
        /// The block format.
        dtype: DType,
        /// Index of the value (for an overflowing scale, of its block's first value).
        index: usize,
        /// The value.
        value: f32,
    },
}

/// A run of bits inside one byte of a block.
#[derive(Clone, Copy)]
struct Run {
    byte: usize,
    shift: usize,
    bits: u32,
}

/// An integer of a block: low bits in one run, the rest (possibly none) in another.
#[derive(Clone, Copy)]
struct Field(Run, Run);

const fn run(byte: usize, shift: usize, bits: u32) -> Run {
    Run { byte, shift, bits }
}

const fn whole(byte: usize, shift: usize, bits: u32) -> Field {
    Field(run(byte, shift, bits), run(0, 0, 0))
}

impl Run {
    fn get(self, block: &[u8]) -> u32 {
        (u32::from(block[self.byte]) >> self.shift) & ((1 << self.bits) - 1)
    }

    fn put(self, block: &mut [u8], raw: u32) {
        block[self.byte] |= ((raw & ((1 << self.bits) - 1)) << self.shift) as u8;
    }
}

/// A family of integers (the codes, the scales or the minimums of a block) and their meaning.
struct Ints {
    /// Place of the i-th integer.
    at: fn(usize) -> Field,
    /// What is subtracted from the stored number.
    bias: i32,
    /// Stored as two's complement (then `bias` is half the range).
    signed: bool,
}

impl Ints {
    fn get(&self, block: &[u8], i: usize) -> f32 {
        let Field(low, high) = (self.at)(i);
        let raw = low.get(block) | high.get(block) << low.bits;
        let flip = if self.signed { self.bias } else { 0 };
        ((raw as i32 ^ flip) - self.bias) as f32
    }

    /// Writes into zeroed bits.
    fn put(&self, block: &mut [u8], i: usize, value: i32) {
        let Field(low, high) = (self.at)(i);
        let flip = if self.signed { self.bias } else { 0 };
        let raw = ((value + self.bias) ^ flip) as u32;
        low.put(block, raw);
        high.put(block, raw >> low.bits);
    }

    /// The least and the greatest value. Q8_0 and Q6_K scales leave −128 out, so that the range is symmetric.
    fn range(&self) -> (i32, i32) {
        let Field(low, high) = (self.at)(0);
        let top = (1 << (low.bits + high.bits)) - 1 - self.bias;
        (if self.signed { -top } else { -self.bias }, top)
    }

    /// The step that spans `values` with this family's range.
    fn step(&self, values: impl Iterator<Item = f32>) -> f32 {
        let far = values.fold(0.0f32, |a, v| if v.abs() > a.abs() { v } else { a });
        match self.range() {
            (0, high) => far / high as f32,
            (low, high) if -low == high => far.abs() / high as f32,
            (low, _) => far / low as f32,
        }
    }

    /// The integer whose multiple of `step` is nearest to `value`.
    fn nearest(&self, value: f32, step: f32) -> i32 {
        let (low, high) = self.range();
        if step == 0.0 { 0.clamp(low, high) } else { ((value / step).round() as i32).clamp(low, high) }
    }
}

/// One block format: `value = (d · scale) · code − (m · minimum)`, where absent parts drop out.
struct Format {
    dtype: DType,
    /// Elements that share a scale and a minimum.
    sub: usize,
    /// Byte of the f16 `d`.
    d: usize,
    /// Byte of the f16 `m`, if the format has one.
    m: Option<usize>,
    codes: Ints,
    scales: Option<Ints>,
    /// Without this table `m` itself is added: `value = d · code + m`.
    minimums: Option<Ints>,
}

const fn unsigned(at: fn(usize) -> Field) -> Ints {
    Ints { at, bias: 0, signed: false }
}

const fn biased(at: fn(usize) -> Field, bias: i32) -> Ints {
    Ints { at, bias, signed: false }
}

const fn int8(at: fn(usize) -> Field) -> Ints {
    Ints { at, bias: 128, signed: true }
}

/// 4-bit codes of a 32-element block: byte j holds elements j and j + 16.
fn nibble32(start: usize, i: usize) -> Run {
    run(start + i % 16, 4 * (i / 16), 4)
}

/// 4-bit codes of a 256-element block: each 32 bytes hold 64 elements, low nibbles first.
fn nibble256(start: usize, i: usize) -> Run {
    run(start + 32 * (i / 64) + i % 32, 4 * (i % 64 / 32), 4)
}

/// 2-bit codes of a 256-element block: each 32 bytes hold 128 elements, low bits first.
fn pair256(start: usize, i: usize) -> Run {
    run(start + 32 * (i / 128) + i % 32, 2 * (i % 128 / 32), 2)
}

/// 6-bit scales of Q4_K and Q5_K: the first four whole, the last four in a nibble and two spare upper bits.
fn scale6(j: usize) -> Field {
    if j < 4 { whole(4 + j, 0, 6) } else { Field(run(8 + j, 0, 4), run(j, 6, 2)) }
}

/// 6-bit minimums of Q4_K and Q5_K.
fn minimum6(j: usize) -> Field {
    if j < 4 { whole(8 + j, 0, 6) } else { Field(run(8 + j, 4, 4), run(4 + j, 6, 2)) }
}

const NONE: Run = run(0, 0, 0);

static FORMATS: [Format; 10] = [
    legacy(DType::Q4_0, None, biased(|i| Field(nibble32(2, i), NONE), 8)),
    legacy(DType::Q4_1, Some(2), unsigned(|i| Field(nibble32(4, i), NONE))),
    legacy(DType::Q5_0, None, biased(|i| Field(nibble32(6, i), run(2 + i / 8, i % 8, 1)), 16)),
    legacy(DType::Q5_1, Some(2), unsigned(|i| Field(nibble32(8, i), run(4 + i / 8, i % 8, 1)))),
    legacy(DType::Q8_0, None, int8(|i| whole(2 + i, 0, 8))),
    Format {
        dtype: DType::Q2K,
        sub: 16,
        d: 80,
        m: Some(82),
        codes: unsigned(|i| Field(pair256(16, i), NONE)),
        scales: Some(unsigned(|j| whole(j, 0, 4))),
        minimums: Some(unsigned(|j| whole(j, 4, 4))),
    },
    Format {
        dtype: DType::Q3K,
        sub: 16,
        d: 108,
        m: None,
        codes: biased(|i| Field(pair256(32, i), run(i % 32, i / 32, 1)), 4),
        scales: Some(biased(
            |j| Field(run(96 + j % 8, 4 * (j / 8), 4), run(104 + j % 4, 2 * (j / 4), 2)),
            32,
        )),
        minimums: None,
    },
    Format {
        dtype: DType::Q4K,
        sub: 32,
        d: 0,
        m: Some(2),
        codes: unsigned(|i| Field(nibble256(16, i), NONE)),
        scales: Some(unsigned(scale6)),
        minimums: Some(unsigned(minimum6)),
    },
    Format {
        dtype: DType::Q5K,
        sub: 32,
        d: 0,
        m: Some(2),
        codes: unsigned(|i| Field(nibble256(48, i), run(16 + i % 32, i / 32, 1))),
        scales: Some(unsigned(scale6)),
        minimums: Some(unsigned(minimum6)),
    },
    Format {
        dtype: DType::Q6K,
        sub: 16,
        d: 208,
        m: None,
        codes: biased(q6_code, 32),
        scales: Some(int8(|j| whole(192 + j, 0, 8))),
        minimums: None,
    },
];

const fn legacy(dtype: DType, m: Option<usize>, codes: Ints) -> Format {
    Format { dtype, sub: 32, d: 0, m, codes, scales: None, minimums: None }
}

/// Q6_K: each half of 128 elements has 64 bytes of low nibbles (quarters 0 and 1 low, 2 and 3 high) and 32 bytes of
/// upper bit pairs.
fn q6_code(i: usize) -> Field {
    let (half, quarter, l) = (i / 128, i % 128 / 32, i % 32);
    Field(run(64 * half + 32 * (quarter % 2) + l, 4 * (quarter / 2), 4), pair256(128, i))
}

fn format(dtype: DType) -> Result<&'static Format, BlockError> {
    FORMATS.iter().find(|f| f.dtype == dtype).ok_or(BlockError::NotBlock(dtype))
}

fn read_f16(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Decodes whole blocks into f32. `out` must have exactly the elements that `bytes` hold.
///
/// The arithmetic is f32 in the order `(d · scale) · code`, then the minimum: bitwise what the format's published
/// decoders give. Blocks with a NaN or infinite scale decode to what that arithmetic says.
pub fn dequantize(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<(), BlockError> {
    let format = format(dtype)?;
    let info = dtype.info();
    if !bytes.len().is_multiple_of(info.unit_bytes) {
        return Err(BlockError::Bytes { dtype, bytes: bytes.len(), unit: info.unit_bytes });
    }
    let right = bytes.len() / info.unit_bytes * info.unit_elements;
    if out.len() != right {
        return Err(BlockError::Output { dtype, right, given: out.len() });
    }
    for (block, out) in bytes.chunks_exact(info.unit_bytes).zip(out.chunks_exact_mut(info.unit_elements)) {
        format.decode(block, out);
    }
    Ok(())
}

/// Encodes values into whole blocks, each code rounded to the nearest that the block's scale and minimum allow.
///
/// The scale spans the largest value of its sub-block; there is no search for a better one. `values` must be a whole
/// number of blocks, all finite.
pub fn quantize(dtype: DType, values: &[f32]) -> Result<Vec<u8>, BlockError> {
    let format = format(dtype)?;
    let info = dtype.info();
    if !values.len().is_multiple_of(info.unit_elements) {
        return Err(BlockError::Values { dtype, values: values.len(), unit: info.unit_elements });
    }
    if let Some(index) = values.iter().position(|v| !v.is_finite()) {
        return Err(BlockError::Range { dtype, index, value: values[index] });
    }
    let mut bytes = vec![0; values.len() / info.unit_elements * info.unit_bytes];
    let blocks = values.chunks_exact(info.unit_elements).zip(bytes.chunks_exact_mut(info.unit_bytes));
    for (i, (values, block)) in blocks.enumerate() {
        if !format.encode(values, block) {
            let index = i * info.unit_elements;
            return Err(BlockError::Range { dtype, index, value: values[0] });
        }
    }
    Ok(bytes)
}

impl Format {
    /// The step and the offset of sub-block `j` as stored.
    fn affine(&self, block: &[u8], j: usize) -> (f32, Option<f32>) {
        let d = read_f16(block, self.d);
        let scale = self.scales.as_ref().map_or(d, |s| d * s.get(block, j));
        let offset = self.m.map(|at| {
            let m = read_f16(block, at);
            self.minimums.as_ref().map_or(m, |s| -(m * s.get(block, j)))
        });
        (scale, offset)
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        for (j, out) in out.chunks_exact_mut(self.sub).enumerate() {
            let (scale, offset) = self.affine(block, j);
            for (i, v) in out.iter_mut().enumerate() {
                let product = scale * self.codes.get(block, j * self.sub + i);
                *v = offset.map_or(product, |o| product + o);
            }
        }
    }

    /// Fills a zeroed block; false if an f16 scale would not be finite.
    fn encode(&self, values: &[f32], block: &mut [u8]) -> bool {
        // The steps and offsets that the sub-blocks would like to have. With a minimum table offsets are never positive.
        let wish: Vec<(f32, f32)> = values.chunks_exact(self.sub).map(|v| self.wish(v)).collect();
        let mut put = |at: usize, v: f32| {
            let v = f16::from_f32(v);
            block[at..at + 2].copy_from_slice(&v.to_le_bytes());
            v.is_finite()
        };
        let d = self.scales.as_ref().map_or(wish[0].0, |s| s.step(wish.iter().map(|w| w.0)));
        let m = self.minimums.as_ref().map_or(wish[0].1, |s| s.step(wish.iter().map(|w| -w.1)));
        if !put(self.d, d) || !self.m.is_none_or(|at| put(at, m)) {
            return false;
        }
        let ints = [(&self.scales, Some(self.d)), (&self.minimums, self.m)];
        for (j, w) in wish.iter().enumerate() {
            for ((ints, at), wish) in ints.iter().zip([w.0, -w.1]) {
                if let (Some(ints), Some(at)) = (ints, at) {
                    ints.put(block, j, ints.nearest(wish, read_f16(block, *at)));
                }
            }
        }
        for (i, v) in values.iter().enumerate() {
            let (scale, offset) = self.affine(block, i / self.sub);
            self.codes.put(block, i, self.codes.nearest(v - offset.unwrap_or(0.0), scale));
        }
        true
    }

    fn wish(&self, values: &[f32]) -> (f32, f32) {
        if self.m.is_none() {
            return (self.codes.step(values.iter().copied()), 0.0);
        }
        let mut low = values.iter().copied().fold(f32::INFINITY, f32::min);
        if self.minimums.is_some() {
            low = low.min(0.0);
        }
        (self.codes.step(values.iter().map(|v| v - low)), low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(dtype: DType, bytes: &[u8]) -> Vec<f32> {
        let info = dtype.info();
        let mut out = vec![f32::NAN; bytes.len() / info.unit_bytes * info.unit_elements];
        dequantize(dtype, bytes, &mut out).unwrap();
        out
    }

    /// Repeatable values in −1..1.
    fn noise(n: usize) -> Vec<f32> {
        let mut state = 0x2545_f491u32;
        (0..n)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / (1 << 23) as f32 - 1.0
            })
            .collect()
    }

    #[test]
    fn q4_0_by_hand() {
        // d = 0.5, byte 0 = 0xF0: element 0 is code 0, element 16 code 15; all others 8.
        let mut block = vec![0x88; 18];
        block[..2].copy_from_slice(&f16::from_f32(0.5).to_le_bytes());
        block[2] = 0xf0;
        let out = decode(DType::Q4_0, &block);
        let mut right = vec![0.0; 32];
        right[0] = -4.0;
        right[16] = 3.5;
        assert_eq!(out, right);
    }

    #[test]
    fn q5_1_by_hand() {
        // d = 2, m = -1; the upper bit of element 9 (byte 1 of qh, bit 1) and code 3 below it: 19 · 2 − 1.
        let mut block = vec![0; 24];
        block[..2].copy_from_slice(&f16::from_f32(2.0).to_le_bytes());
        block[2..4].copy_from_slice(&f16::from_f32(-1.0).to_le_bytes());
        block[5] = 0b10;
        block[8 + 9] = 3;
        let mut right = vec![-1.0; 32];
        right[9] = 37.0;
        assert_eq!(decode(DType::Q5_1, &block), right);
    }

    #[test]
    fn q4_k_by_hand() {
        // d = 1, dmin = 0.5. Sub-block 5: scale 0b10_0011 = 35, minimum 0b01_0100 = 20; others 0.
        let mut block = vec![0; 144];
        block[..2].copy_from_slice(&f16::from_f32(1.0).to_le_bytes());
        block[2..4].copy_from_slice(&f16::from_f32(0.5).to_le_bytes());
        block[4 + 9] = 0x43; // low nibbles: scale 3, minimum 4
        block[4 + 1] = 0b1000_0000; // upper bits of scale 5: 2
        block[4 + 5] = 0b0100_0000; // upper bits of minimum 5: 1
        block[16 + 64 + 7] = 0x20; // sub-block 5 is the high nibbles of the third 32 bytes; element 7 is 2
        let out = decode(DType::Q4K, &block);
        for (i, v) in out.iter().enumerate() {
            let right = if i / 32 != 5 {
                0.0
            } else if i % 32 == 7 {
                60.0
            } else {
                -10.0
            };
            assert_eq!(*v, right, "element {i}");
        }
    }

    #[test]
    fn q6_k_has_256_distinct_places() {
        // Setting one code away from zero changes that element and no other.
        for i in 0..256 {
            let mut block = vec![0; 210];
            block[208..].copy_from_slice(&f16::from_f32(1.0).to_le_bytes());
            block[192..208].fill(1);
            block[128..192].fill(0b1010_1010); // every code 32, value 0
            let Field(low, _) = q6_code(i);
            low.put(&mut block, 5);
            let out = decode(DType::Q6K, &block);
            assert!(out.iter().enumerate().all(|(k, v)| *v == if k == i { 5.0 } else { 0.0 }), "element {i}");
        }
    }

    #[test]
    fn every_bit_of_a_block_has_one_owner() {
        for f in &FORMATS {
            let info = f.dtype.info();
            let mut owners = vec![0u32; info.unit_bytes * 8];
            let mut claim = |r: Run| (0..r.bits as usize).for_each(|b| owners[r.byte * 8 + r.shift + b] += 1);
            for at in [Some(f.d), f.m].into_iter().flatten() {
                claim(run(at, 0, 8));
                claim(run(at + 1, 0, 8));
            }
            let subs = info.unit_elements / f.sub;
            let tables = [
                (Some(&f.codes), info.unit_elements),
                (f.scales.as_ref(), subs),
                (f.minimums.as_ref(), subs),
            ];
            for (ints, n) in tables {
                for i in 0..ints.map_or(0, |_| n) {
                    let Field(low, high) = (ints.unwrap().at)(i);
                    claim(low);
                    claim(high);
                }
            }
            assert!(owners.iter().all(|n| *n == 1), "{}", f.dtype);
        }
    }

    /// The fixture holds, per format: name length, name, blocks (u8), the bytes, then the f32 values that the reference
    /// decoder of the `gguf` Python package gives for them.
    #[test]
    fn random_blocks_match_the_published_decoder() {
        let mut rest: &[u8] = include_bytes!("../../../tests/data/blocks/random.bin");
        let mut take = |n: usize| {
            let (head, tail) = rest.split_at(n);
            rest = tail;
            head
        };
        for f in &FORMATS {
            let n = take(1)[0] as usize;
            assert_eq!(std::str::from_utf8(take(n)).unwrap(), f.dtype.name());
            let blocks = take(1)[0] as usize;
            let bytes = take(blocks * f.dtype.info().unit_bytes);
            let values = take(blocks * f.dtype.info().unit_elements * 4);
            let out = decode(f.dtype, bytes);
            for (i, (v, right)) in out.iter().zip(values.chunks_exact(4)).enumerate() {
                let right = f32::from_le_bytes(right.try_into().unwrap());
                assert_eq!(v.to_bits(), right.to_bits(), "{} element {i}: {v} and {right}", f.dtype);
            }
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn encoding_is_close_and_stable() {
        // A step where the code range is lopsided, else half a step; K formats round scale and minimum as well.
        let bounds = [0.13, 0.07, 0.065, 0.035, 0.005, 0.45, 0.3, 0.08, 0.045, 0.035];
        let values: Vec<f32> = noise(1024);
        for (f, bound) in FORMATS.iter().zip(bounds) {
            let bytes = quantize(f.dtype, &values).unwrap();
            let out = decode(f.dtype, &bytes);
            let worst = values.iter().zip(&out).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst < bound, "{}: {worst}", f.dtype);
            let zeros = decode(f.dtype, &quantize(f.dtype, &[0.0; 256]).unwrap());
            assert!(zeros.iter().all(|v| *v == 0.0), "{}", f.dtype);
        }
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let text = |e: BlockError| e.to_string();
        assert_eq!(text(quantize(DType::F32, &[]).unwrap_err()), "f32 is not a block format");
        assert_eq!(
            text(dequantize(DType::Q4_0, &[0; 19], &mut [0.0; 32]).unwrap_err()),
            "19 bytes of Q4_0 are not a whole number of 18-byte blocks"
        );
        assert_eq!(
            text(dequantize(DType::Q4_0, &[0; 18], &mut [0.0; 31]).unwrap_err()),
            "the Q4_0 bytes hold 32 elements, the output has 31"
        );
        assert!(matches!(quantize(DType::Q6K, &[0.0; 255]), Err(BlockError::Values { values: 255, .. })));
        let mut values = [1.0; 64];
        values[33] = f32::NAN;
        assert!(matches!(quantize(DType::Q8_0, &values), Err(BlockError::Range { index: 33, .. })));
        values[33] = 1e9;
        assert!(matches!(quantize(DType::Q8_0, &values), Err(BlockError::Range { index: 32, .. })));
    }
}
