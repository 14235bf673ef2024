//! Packed weights: one layout per element type that serves matrix × vector, matrix × matrix and row gather.
//!
//! Rows are grouped into panels of 16 (the last one padded with zeros). A panel holds its codes, then its scales, and
//! starts on a 64-byte boundary:
//!
//! * Codes, for each 32 consecutive k: eight vectors of 64 bytes, vector `j` holding for row `r` the codes
//!   `k = 4j..4j+4` at bytes `4r..4r+4`. 8-bit codes are stored so. 4-bit codes put vector `j` and `j + 4` in the low
//!   and high nibbles of one, 2-bit codes four vectors from bit `2(j mod 4)` on. Higher bits follow in planes of 64 bytes: a
//!   single one is bit `j` of a plane, two are bits `2(j mod 4)` of two planes.
//! * Scales, for each block, 16 rows each: f16 `d`, then f16 `m` where there is one; the 256-element formats then hold
//!   their sub-block scales as bytes `[sub][16]`, then minimums likewise; where both have 4 bits they share a byte.
//! * Float weights are `[k][16]` in their own type.
//!
//! Nothing is rounded: [`unpack`] gives the original bytes back.

mod stored;

use frit_ir::DType;

use stored::{join, parts, split};

/// The name of the layout in kernel rows and schedules.
pub const NAME: &str = "panel16";

/// Rows in a panel.
pub const PANEL: usize = 16;

/// How the scales of a block are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scales {
    /// One f16 per 32 elements.
    Scale,
    /// f16 scale and f16 minimum per 32 elements.
    ScaleMin,
    /// Per 256 elements: f16 `d` and `dmin`, eight 6-bit scales and minimums.
    Super,
    /// Per 256 elements: f16 `d`, sixteen signed scales of at most 8 bits, a byte each.
    SuperSigned,
    /// Per 256 elements: f16 `d` and `dmin`, sixteen bytes of a 4-bit scale (low) and a 4-bit minimum (high).
    SuperPairs,
}

/// What distinguishes the packed block formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bits of a code.
    pub bits: usize,
    /// Kind of scales.
    pub scales: Scales,
    /// What is taken from a stored code to get the signed integer: value = scale · (code − offset) + min.
    pub offset: i32,
    /// Whether codes are two's complement bytes.
    pub signed: bool,
}

impl Layout {
    /// The layout of a block format; `None` for types that have none.
    pub const fn of(dtype: DType) -> Option<Layout> {
        let (bits, scales, offset, signed) = match dtype {
            DType::Q4_0 => (4, Scales::Scale, 8, false),
            DType::Q4_1 => (4, Scales::ScaleMin, 0, false),
            DType::Q5_0 => (5, Scales::Scale, 16, false),
            DType::Q5_1 => (5, Scales::ScaleMin, 0, false),
            DType::Q8_0 => (8, Scales::Scale, 0, true),
            DType::Q2K => (2, Scales::SuperPairs, 0, false),
            DType::Q3K => (3, Scales::SuperSigned, 4, false),
            DType::Q4K => (4, Scales::Super, 0, false),
            DType::Q5K => (5, Scales::Super, 0, false),
            DType::Q6K => (6, Scales::SuperSigned, 32, false),
            _ => return None,
        };
        Some(Layout { bits, scales, offset, signed })
    }

    /// Elements of a block along k.
    pub const fn block(&self) -> usize {
        match self.scales {
            Scales::Scale | Scales::ScaleMin => 32,
            Scales::Super | Scales::SuperSigned | Scales::SuperPairs => 256,
        }
    }

    /// Consecutive elements that share one scale, and one minimum where there is one.
    pub const fn group(&self) -> usize {
        match self.scales {
            Scales::SuperSigned | Scales::SuperPairs => 16,
            _ => 32,
        }
    }

    /// Bytes of the codes of 32 k of a panel.
    pub const fn code_bytes(&self) -> usize {
        self.bits * 64
    }

    /// Bytes of the scales of one block of a panel.
    pub const fn scale_bytes(&self) -> usize {
        match self.scales {
            Scales::Scale => 32,
            Scales::ScaleMin => 64,
            Scales::Super => 64 + 256,
            Scales::SuperSigned => 32 + 256,
            Scales::SuperPairs => 64 + 256,
        }
    }

    /// Bits of a code that lie together, low bits first.
    const fn low_bits(&self) -> usize {
        match self.bits {
            2 | 3 => 2,
            8 => 8,
            _ => 4,
        }
    }

    /// Whether values have a minimum added.
    pub const fn has_min(&self) -> bool {
        matches!(self.scales, Scales::ScaleMin | Scales::Super | Scales::SuperPairs)
    }

    /// Byte offset of the scales in a panel of `k` columns.
    pub const fn scales_at(&self, k: usize) -> usize {
        k / 32 * self.code_bytes()
    }
}

/// Why weights cannot be packed or unpacked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// No packed layout for this type.
    #[error("{0} weights have no packed layout")]
    DType(DType),
    /// Row length not a multiple of the block.
    #[error("rows of {1} elements are not whole blocks of {0}, which holds {2}")]
    Rows(DType, usize, usize),
    /// Storage of the wrong size.
    #[error("{0} bytes given where {1} are needed")]
    Bytes(usize, usize),
    /// Sizes that do not fit in memory.
    #[error("{0}×{1} weights are too large")]
    Size(usize, usize),
}

/// Bytes of one panel of 16 rows of `k` elements; `None` for a type without packed layout or on overflow.
pub fn panel_bytes(dtype: DType, k: usize) -> Option<usize> {
    let bytes = match Layout::of(dtype) {
        Some(l) => (k / 32).checked_mul(l.code_bytes())?.checked_add((k / l.block()) * l.scale_bytes())?,
        None => k.checked_mul(PANEL * float_size(dtype)?)?,
    };
    bytes.checked_next_multiple_of(64)
}

fn float_size(dtype: DType) -> Option<usize> {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16).then(|| dtype.info().unit_bytes)
}

/// Bytes of packed `[n, k]` weights.
///
/// # Errors
/// As [`pack`].
pub fn packed_bytes(dtype: DType, n: usize, k: usize) -> Result<usize, PackError> {
    if Layout::of(dtype).is_none() && float_size(dtype).is_none() {
        return Err(PackError::DType(dtype));
    }
    let block = dtype.info().unit_elements;
    if !k.is_multiple_of(block) {
        return Err(PackError::Rows(dtype, k, block));
    }
    let panel = panel_bytes(dtype, k).ok_or(PackError::Size(n, k))?;
    n.div_ceil(PANEL).checked_mul(panel).ok_or(PackError::Size(n, k))
}

fn check(dtype: DType, n: usize, k: usize, plain: usize, packed: usize) -> Result<(), PackError> {
    let need = packed_bytes(dtype, n, k)?;
    if packed != need {
        return Err(PackError::Bytes(packed, need));
    }
    let row = dtype.bytes_of(k).ok_or(PackError::Size(n, k))?;
    let need = row.checked_mul(n).ok_or(PackError::Size(n, k))?;
    if plain == need { Ok(()) } else { Err(PackError::Bytes(plain, need)) }
}

/// Packs row-major weights `[n, k]`, stored densely in `from`, into `to`, which has [`packed_bytes`] bytes.
///
/// # Errors
/// A type without packed layout, rows that are not whole blocks, or slices of the wrong length.
pub fn pack(dtype: DType, n: usize, k: usize, from: &[u8], to: &mut [u8]) -> Result<(), PackError> {
    check(dtype, n, k, from.len(), to.len())?;
    to.fill(0);
    let panels = panel_bytes(dtype, k).unwrap_or(0);
    let row_bytes = from.len().checked_div(n).unwrap_or(0);
    for row in 0..n {
        let (from, r) = (&from[row * row_bytes..][..row_bytes], row % PANEL);
        let to = &mut to[row / PANEL * panels..][..panels];
        match Layout::of(dtype) {
            None => {
                let size = row_bytes / k.max(1);
                for (i, e) in from.chunks_exact(size.max(1)).enumerate() {
                    to[(i * PANEL + r) * size..][..size].copy_from_slice(e);
                }
            }
            Some(l) => {
                for (b, bytes) in from.chunks_exact(dtype.info().unit_bytes).enumerate() {
                    match l.block() {
                        32 => put_words(dtype, &l, k, r, b, bytes, to),
                        _ => put_block(&l, k, r, b, &split(dtype, bytes), to),
                    }
                }
            }
        }
    }
    Ok(())
}

/// The inverse of [`pack`].
///
/// # Errors
/// As [`pack`].
pub fn unpack(dtype: DType, n: usize, k: usize, from: &[u8], to: &mut [u8]) -> Result<(), PackError> {
    check(dtype, n, k, to.len(), from.len())?;
    let panels = panel_bytes(dtype, k).unwrap_or(0);
    let row_bytes = to.len().checked_div(n).unwrap_or(0);
    for row in 0..n {
        let (to, r) = (&mut to[row * row_bytes..][..row_bytes], row % PANEL);
        let from = &from[row / PANEL * panels..][..panels];
        match Layout::of(dtype) {
            None => {
                let size = row_bytes / k.max(1);
                for (i, e) in to.chunks_exact_mut(size.max(1)).enumerate() {
                    e.copy_from_slice(&from[(i * PANEL + r) * size..][..size]);
                }
            }
            Some(l) => {
                for (b, bytes) in to.chunks_exact_mut(dtype.info().unit_bytes).enumerate() {
                    join(dtype, &get_block(&l, k, r, b, from), bytes);
                }
            }
        }
    }
    Ok(())
}

/// Row `row` of packed `[n, k]` weights as f32, exactly the dequantized values, into `out` of `k` elements.
///
/// # Errors
/// As [`pack`]; [`PackError::Size`] too if there is no such row.
pub fn decode_row(
    dtype: DType,
    n: usize,
    k: usize,
    packed: &[u8],
    row: usize,
    out: &mut [f32],
) -> Result<(), PackError> {
    let need = packed_bytes(dtype, n, k)?;
    if packed.len() != need {
        return Err(PackError::Bytes(packed.len(), need));
    }
    if out.len() != k {
        return Err(PackError::Bytes(out.len() * 4, k * 4));
    }
    if row >= n {
        return Err(PackError::Size(row, k));
    }
    let bytes = need / n.div_ceil(PANEL);
    decode_panel_row(dtype, k, &packed[row / PANEL * bytes..][..bytes], row % PANEL, 0, out);
    Ok(())
}

/// Columns from `from` on of row `r` of one panel as f32, as many as `out` takes: whole blocks. The panel has
/// [`panel_bytes`] bytes.
pub(crate) fn decode_panel_row(dtype: DType, k: usize, panel: &[u8], r: usize, from: usize, out: &mut [f32]) {
    let Some(l) = Layout::of(dtype) else {
        for (i, o) in out.iter_mut().enumerate() {
            let at = (from + i) * PANEL + r;
            let half = |p: &[u8]| u16::from_le_bytes([p[2 * at], p[2 * at + 1]]);
            *o = match dtype {
                DType::F16 => half::f16::from_bits(half(panel)).to_f32(),
                DType::BF16 => half::bf16::from_bits(half(panel)).to_f32(),
                _ => f32::from_le_bytes([
                    panel[4 * at],
                    panel[4 * at + 1],
                    panel[4 * at + 2],
                    panel[4 * at + 3],
                ]),
            };
        }
        return;
    };
    for (b, out) in out.chunks_exact_mut(l.block()).enumerate() {
        let block = get_block(&l, k, r, from / l.block() + b, panel);
        for (g, out) in out.chunks_exact_mut(l.group()).enumerate() {
            let (scale, min) = block.scale(&l, g);
            for (o, c) in out.iter_mut().zip(&block.codes[g * l.group()..]) {
                let c = if l.signed { *c as i8 as i32 } else { *c as i32 - l.offset };
                *o = scale.mul_add(c as f32, min);
            }
        }
    }
}

/// A block of any format taken apart, nothing computed.
struct Block {
    codes: [u8; 256],
    d: u16,
    m: u16,
    scales: [u8; 16],
    mins: [u8; 8],
}

impl Block {
    fn new() -> Block {
        Block { codes: [0; 256], d: 0, m: 0, scales: [0; 16], mins: [0; 8] }
    }

    /// Scale and minimum of group `g`; both are exact products.
    fn scale(&self, l: &Layout, g: usize) -> (f32, f32) {
        let f = |b: u16| half::f16::from_bits(b).to_f32();
        let (d, m) = (f(self.d), f(self.m));
        match l.scales {
            Scales::Scale => (d, 0.0),
            Scales::ScaleMin => (d, m),
            Scales::Super => (d * self.scales[g] as f32, -(m * self.mins[g] as f32)),
            Scales::SuperSigned => (d * (self.scales[g] as i8) as f32, 0.0),
            Scales::SuperPairs => (d * (self.scales[g] & 15) as f32, -(m * (self.scales[g] >> 4) as f32)),
        }
    }
}

/// Where a code is among bytes: byte and shift of its low bits, and of the bits above them.
#[derive(Clone, Copy)]
struct At {
    low: usize,
    shift: u32,
    high: usize,
    bit: u32,
}

impl At {
    /// The code.
    fn get(self, l: &Layout, bytes: &[u8]) -> u8 {
        let bits = l.low_bits();
        let low = bytes[self.low] >> self.shift & mask(bits);
        match l.bits - bits {
            0 => low,
            more => low | (bytes[self.high] >> self.bit & mask(more)) << bits,
        }
    }

    /// Puts the code where bits are 0.
    fn put(self, l: &Layout, bytes: &mut [u8], code: u8) {
        let bits = l.low_bits();
        bytes[self.low] |= (code & mask(bits)) << self.shift;
        if l.bits > bits {
            bytes[self.high] |= (code >> bits) << self.bit;
        }
    }
}

/// The lowest `bits` bits of a byte.
fn mask(bits: usize) -> u8 {
    (0xff_u32 >> (8 - bits)) as u8
}

/// Where code `i` (of a block of at most 256) of row `r` is.
fn place(l: &Layout, r: usize, i: usize) -> At {
    let (base, j, lane) = (i / 32 * l.code_bytes(), i % 32 / 4, r * 4 + i % 4);
    // Vectors that share their bytes, and whether neighbours do or vectors half the number apart.
    let (low, shift) = match l.low_bits() {
        8 => (j, 0),
        4 => (j % 4, if j < 4 { 0 } else { 4 }),
        _ => (j / 4, 2 * (j as u32 % 4)),
    };
    let planes = base + l.low_bits() * 64 + lane;
    let (high, bit) = match l.bits - l.low_bits() {
        2 => (planes + j / 4 * 64, 2 * (j as u32 % 4)),
        _ => (planes, j as u32),
    };
    At { low: base + low * 64 + lane, shift, high, bit }
}

fn put_block(l: &Layout, k: usize, r: usize, b: usize, block: &Block, panel: &mut [u8]) {
    let (codes, scales) = panel.split_at_mut(l.scales_at(k));
    let codes = &mut codes[b * l.block() / 32 * l.code_bytes()..];
    for (i, c) in block.codes[..l.block()].iter().enumerate() {
        place(l, r, i).put(l, codes, *c);
    }
    let s = &mut scales[b * l.scale_bytes()..][..l.scale_bytes()];
    s[2 * r..2 * r + 2].copy_from_slice(&block.d.to_le_bytes());
    if l.has_min() {
        s[32 + 2 * r..34 + 2 * r].copy_from_slice(&block.m.to_le_bytes());
    }
    let (subs, mins) = sub_scales(l);
    for g in 0..subs {
        s[l.scale_bytes() - (subs + mins) * PANEL + g * PANEL + r] = block.scales[g];
    }
    for g in 0..mins {
        s[l.scale_bytes() - mins * PANEL + g * PANEL + r] = block.mins[g];
    }
}

/// What `put_block` does, for the formats of 32 elements: their codes go over in words of four, since a stored byte of
/// two codes holds the same two here.
fn put_words(dtype: DType, l: &Layout, k: usize, r: usize, b: usize, bytes: &[u8], panel: &mut [u8]) {
    let (d, m, _, high, low) = parts(dtype);
    let (codes, scales) = panel.split_at_mut(l.scales_at(k));
    let codes = &mut codes[b * l.code_bytes()..][..l.code_bytes()];
    for (word, to) in bytes[low..].chunks_exact(4).zip(codes.chunks_exact_mut(64)) {
        to[4 * r..4 * r + 4].copy_from_slice(word);
    }
    if l.bits == 5 {
        let bits = u32::from_le_bytes([bytes[high], bytes[high + 1], bytes[high + 2], bytes[high + 3]]);
        for i in 0..4 {
            let plane = (0..8).fold(0, |p, j| p | (bits >> (4 * j + i) & 1) << j);
            codes[256 + 4 * r + i as usize] = plane as u8;
        }
    }
    let s = &mut scales[b * l.scale_bytes()..][..l.scale_bytes()];
    s[2 * r..2 * r + 2].copy_from_slice(&bytes[d..d + 2]);
    if l.has_min() {
        s[32 + 2 * r..34 + 2 * r].copy_from_slice(&bytes[m..m + 2]);
    }
}

fn get_block(l: &Layout, k: usize, r: usize, b: usize, panel: &[u8]) -> Block {
    let (codes, scales) = panel.split_at(l.scales_at(k));
    let codes = &codes[b * l.block() / 32 * l.code_bytes()..];
    let mut block = Block::new();
    for (i, c) in block.codes[..l.block()].iter_mut().enumerate() {
        *c = place(l, r, i).get(l, codes);
    }
    let s = &scales[b * l.scale_bytes()..][..l.scale_bytes()];
    block.d = u16::from_le_bytes([s[2 * r], s[2 * r + 1]]);
    if l.has_min() {
        block.m = u16::from_le_bytes([s[32 + 2 * r], s[33 + 2 * r]]);
    }
    let (subs, mins) = sub_scales(l);
    for g in 0..subs {
        block.scales[g] = s[l.scale_bytes() - (subs + mins) * PANEL + g * PANEL + r];
    }
    for g in 0..mins {
        block.mins[g] = s[l.scale_bytes() - mins * PANEL + g * PANEL + r];
    }
    block
}

/// Number of sub-block scales and minimums of a block.
fn sub_scales(l: &Layout) -> (usize, usize) {
    match l.scales {
        Scales::Super => (8, 8),
        Scales::SuperSigned | Scales::SuperPairs => (16, 0),
        Scales::Scale | Scales::ScaleMin => (0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frit_ir::rows::WEIGHTS;

    fn noise(n: usize) -> Vec<u8> {
        let mut s = 1u64;
        (0..n)
            .map(|_| {
                s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (s >> 33) as u8
            })
            .collect()
    }

    #[test]
    fn unpack_gives_the_bytes_back() {
        for dtype in WEIGHTS.iter().copied() {
            for (n, blocks) in [(1, 1), (15, 2), (16, 3), (17, 1), (33, 2), (0, 1)] {
                let k = blocks * dtype.info().unit_elements.max(3);
                let bytes = noise(n * dtype.bytes_of(k).unwrap());
                let mut packed = vec![7; packed_bytes(dtype, n, k).unwrap()];
                pack(dtype, n, k, &bytes, &mut packed).unwrap();
                let mut back = vec![3; bytes.len()];
                unpack(dtype, n, k, &packed, &mut back).unwrap();
                assert_eq!(bytes, back, "{dtype} {n}×{k}");
            }
        }
    }

    #[test]
    fn packed_weights_are_as_small_as_the_file() {
        for dtype in WEIGHTS.iter().copied() {
            let (n, k) = (64, 1024);
            let plain = n * dtype.bytes_of(k).unwrap();
            let packed = packed_bytes(dtype, n, k).unwrap();
            // The scales of Q3_K, Q4_K and Q5_K take a byte each where the file has 6 bits.
            assert!(packed * 100 <= plain * 104, "{dtype}: {packed} for {plain}");
        }
    }

    #[test]
    fn wrong_sizes_are_errors() {
        assert_eq!(packed_bytes(DType::Q4K, 3, 128), Err(PackError::Rows(DType::Q4K, 128, 256)));
        assert_eq!(packed_bytes(DType::I8, 3, 128), Err(PackError::DType(DType::I8)));
        assert!(packed_bytes(DType::F32, usize::MAX, usize::MAX).is_err());
        assert_eq!(pack(DType::F32, 1, 1, &[0; 3], &mut [0; 64]), Err(PackError::Bytes(3, 4)));
        assert_eq!(pack(DType::F32, 1, 1, &[0; 4], &mut [0; 4]), Err(PackError::Bytes(4, 64)));
    }
}
