//! Blocks as they lie in a file: where each part of a block is. Nothing is computed.

use frit_ir::DType;

use super::{At, Block, Layout, Scales};

/// Byte offsets of `d`, `m`, packed 6-bit scales (or 8-bit ones), high bits and low bits in a stored block.
pub(super) fn parts(dtype: DType) -> (usize, usize, usize, usize, usize) {
    match dtype {
        DType::Q4_0 | DType::Q8_0 => (0, 0, 0, 0, 2),
        DType::Q4_1 => (0, 2, 0, 0, 4),
        DType::Q5_0 => (0, 0, 0, 2, 6),
        DType::Q5_1 => (0, 2, 0, 4, 8),
        DType::Q2K => (80, 82, 0, 0, 16),
        DType::Q3K => (108, 0, 96, 0, 32),
        DType::Q4K => (0, 2, 4, 0, 16),
        DType::Q5K => (0, 2, 4, 16, 48),
        _ => (208, 0, 192, 128, 0),
    }
}

/// Where code `i` of a stored block is.
fn stored(dtype: DType, i: usize) -> At {
    let (_, _, _, high, low) = parts(dtype);
    let (lo, shift, hi, bit) = match dtype {
        DType::Q8_0 => (i, 0, 0, 0),
        DType::Q2K | DType::Q3K => {
            (i / 128 * 32 + i % 32, 2 * (i as u32 % 128 / 32), i % 32, (i / 32) as u32)
        }
        DType::Q4K | DType::Q5K => {
            (i / 64 * 32 + i % 32, if i % 64 < 32 { 0 } else { 4 }, i % 32, (i / 32) as u32)
        }
        DType::Q6K => {
            let (half, quarter, l) = (i / 128, i % 128 / 32, i % 32);
            let low = half * 64 + quarter % 2 * 32 + l;
            (low, if quarter < 2 { 0 } else { 4 }, half * 32 + l, 2 * quarter as u32)
        }
        _ => (i % 16, if i < 16 { 0 } else { 4 }, i / 8, (i % 8) as u32),
    };
    At { low: low + lo, shift, high: high + hi, bit }
}

/// What is taken from the 6-bit scales of Q3_K.
const SCALE_BIAS: u8 = 32;

/// A block of a file taken apart.
pub(super) fn split(dtype: DType, bytes: &[u8]) -> Block {
    let mut block = Block::new();
    let Some(l) = Layout::of(dtype) else { return block };
    let (d, m, sc, ..) = parts(dtype);
    let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    block.d = half(d);
    if l.has_min() {
        block.m = half(m);
    }
    for (i, c) in block.codes[..l.block()].iter_mut().enumerate() {
        *c = stored(dtype, i).get(&l, bytes);
    }
    match l.scales {
        Scales::SuperSigned if dtype == DType::Q3K => {
            for (j, s) in block.scales.iter_mut().enumerate() {
                let q = &bytes[sc..sc + 12];
                let six = q[j % 8] >> (4 * (j / 8)) & 15 | (q[8 + j % 4] >> (2 * (j / 4)) & 3) << 4;
                *s = six.wrapping_sub(SCALE_BIAS);
            }
        }
        Scales::SuperSigned | Scales::SuperPairs => block.scales.copy_from_slice(&bytes[sc..sc + 16]),
        Scales::Super => {
            let q = &bytes[sc..sc + 12];
            for j in 0..4 {
                block.scales[j] = q[j] & 63;
                block.mins[j] = q[j + 4] & 63;
                block.scales[j + 4] = q[j + 8] & 15 | q[j] >> 6 << 4;
                block.mins[j + 4] = q[j + 8] >> 4 | q[j + 4] >> 6 << 4;
            }
        }
        _ => {}
    }
    block
}

/// The block of a file, the inverse of [`split`].
pub(super) fn join(dtype: DType, block: &Block, bytes: &mut [u8]) {
    let Some(l) = Layout::of(dtype) else { return };
    bytes.fill(0);
    let (d, m, sc, ..) = parts(dtype);
    bytes[d..d + 2].copy_from_slice(&block.d.to_le_bytes());
    if l.has_min() {
        bytes[m..m + 2].copy_from_slice(&block.m.to_le_bytes());
    }
    for (i, c) in block.codes[..l.block()].iter().enumerate() {
        stored(dtype, i).put(&l, bytes, *c);
    }
    match l.scales {
        Scales::SuperSigned if dtype == DType::Q3K => {
            for (j, s) in block.scales.iter().enumerate() {
                let six = s.wrapping_add(SCALE_BIAS);
                bytes[sc + j % 8] |= (six & 15) << (4 * (j / 8));
                bytes[sc + 8 + j % 4] |= (six >> 4) << (2 * (j / 4));
            }
        }
        Scales::SuperSigned | Scales::SuperPairs => bytes[sc..sc + 16].copy_from_slice(&block.scales),
        Scales::Super => {
            for j in 0..4 {
                bytes[sc + j] = block.scales[j] | block.scales[j + 4] >> 4 << 6;
                bytes[sc + j + 4] = block.mins[j] | block.mins[j + 4] >> 4 << 6;
                bytes[sc + j + 8] = block.scales[j + 4] & 15 | block.mins[j + 4] << 4;
            }
        }
        _ => {}
    }
}
