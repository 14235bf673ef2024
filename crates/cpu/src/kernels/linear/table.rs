//! The table of inner loops: one row per instruction set, holding one row per weight type.

use frit_ir::DType;

use super::float::{self, BF16, F16, F32};
use super::quant::{Quantized, quantize_row};
use super::simd::{Portable, Simd};
use super::tile::{self, Direct, DirectF, Expand, TileF, TileQ};
use crate::isa::Isa;
use frit_ir::rows::BLOCKS;

/// Number of block formats.
pub(super) const FORMATS: usize = BLOCKS.len();

/// Inner loops of one block format with quantized activations.
pub(crate) struct BlockOps {
    /// Straight from the packed panel, tiles of 1, 2 and 4 rows.
    pub direct: [unsafe fn(&Direct); 3],
    /// Panel into the form that `tile` reads.
    pub expand: unsafe fn(&Expand),
    /// Expanded panels against tiles of [`Ops::tile_rows`] rows.
    pub tile: unsafe fn(&TileQ),
}

/// Inner loops of one weight type with f32 activations.
pub(crate) struct FloatOps {
    /// Straight from the packed panels, one row.
    pub direct: unsafe fn(&DirectF),
    /// Panel into f32.
    pub decode: unsafe fn(&Expand),
}

/// Inner loops of one instruction set.
pub(crate) struct Ops {
    /// Rows of the tiles of quantized activations that `BlockOps::tile` takes.
    pub tile_rows: usize,
    /// By position in [`BLOCKS`].
    pub blocks: [BlockOps; FORMATS],
    /// By position in [`BLOCKS`], then f32, f16, bf16.
    pub floats: [FloatOps; FORMATS + 3],
    /// f32 panels against rows of f32.
    pub tile_f: unsafe fn(&TileF),
    /// One row of f32, f16 or bf16 quantized.
    pub quantize: [unsafe fn(&Quantized, usize, *const u8); 3],
    /// f32, f16 or bf16 to f32.
    pub widen: [unsafe fn(*const u8, usize, *mut f32); 3],
    /// f32 to f32, f16 or bf16, rounded to nearest even.
    pub narrow: [unsafe fn(*const f32, usize, *mut u8); 3],
    /// What signed codes are moved up by.
    pub bias: i32,
}

impl Ops {
    /// Stores `values` at `to` as `dtype`, one of f32, f16 and bf16.
    ///
    /// # Safety
    /// The machine has the instruction set, and there is room at `to`.
    pub unsafe fn store(&self, values: &[f32], dtype: DType, to: *mut u8) {
        // SAFETY: the caller's.
        unsafe { (self.narrow[float_index(dtype).unwrap_or(0)])(values.as_ptr(), values.len(), to) }
    }
}

/// Position of a float type in the tables.
pub(crate) fn float_index(dtype: DType) -> Option<usize> {
    [DType::F32, DType::F16, DType::BF16].iter().position(|d| *d == dtype)
}

/// Position of a block format in the tables.
pub(super) fn block_index(dtype: DType) -> Option<usize> {
    BLOCKS.iter().position(|d| *d == dtype)
}

/// A set of loops, the instruction set that it belongs to, and whether this machine runs it.
type Set = (&'static Ops, Isa, fn() -> bool);

/// The sets of loops; a later one is faster.
pub(crate) static SETS: &[Set] = &[
    (&portable::OPS, Isa::Portable, || true),
    #[cfg(target_arch = "x86_64")]
    (&avx2::OPS, Isa::Avx2, || Isa::Avx2.is_available()),
    #[cfg(target_arch = "x86_64")]
    (&avxvnni::OPS, Isa::Avx2, || Isa::Avx2.is_available() && is_x86_feature_detected!("avxvnni")),
    #[cfg(target_arch = "x86_64")]
    (&avx512::OPS, Isa::Avx512, || Isa::Avx512.is_available()),
    #[cfg(target_arch = "aarch64")]
    (&neon::OPS, Isa::Portable, || std::arch::is_aarch64_feature_detected!("dotprod")),
];

/// Position in [`SETS`] of the fastest set of `isa` (or of a lesser one, if the machine lacks that).
pub(crate) fn fastest(isa: Isa) -> usize {
    SETS.iter().rposition(|(_, of, runs)| *of <= isa && runs()).unwrap_or(0)
}

// A target feature can be named only on a function itself, so each set needs its own entry functions; this writes them.
macro_rules! entries {
    ($name:ident, $simd:ty, $rows:literal, $panels:literal, $float_rows:literal, $float_panels:literal
        $(, #[$feature:meta])?) => {
        mod $name {
            use super::*;

            $(#[$feature])?
            unsafe fn direct<const D: usize, const R: usize>(a: &Direct) {
                // SAFETY: the caller's, who chose this table for a machine that has the instruction set.
                unsafe { tile::direct::<$simd, D, R>(a) }
            }
            $(#[$feature])?
            unsafe fn expand<const D: usize>(a: &Expand) {
                // SAFETY: as above.
                unsafe { tile::expand::<$simd, D>(a) }
            }
            $(#[$feature])?
            unsafe fn tile_q<const D: usize>(a: &TileQ) {
                // SAFETY: as above.
                unsafe { tile::tile_q::<$simd, D, $rows, $panels>(a) }
            }
            $(#[$feature])?
            unsafe fn direct_block<const D: usize>(a: &DirectF) {
                // SAFETY: as above.
                unsafe { float::direct_block::<$simd, D>(a) }
            }
            $(#[$feature])?
            unsafe fn direct_float<const W: usize>(a: &DirectF) {
                // SAFETY: as above.
                unsafe { float::direct_float::<$simd, W>(a) }
            }
            $(#[$feature])?
            unsafe fn decode_block<const D: usize>(a: &Expand) {
                // SAFETY: as above.
                unsafe { float::decode_block::<$simd, D>(a) }
            }
            $(#[$feature])?
            unsafe fn decode_float<const W: usize>(a: &Expand) {
                // SAFETY: as above.
                unsafe { float::decode_float::<$simd, W>(a) }
            }
            $(#[$feature])?
            unsafe fn tile_f(a: &TileF) {
                // SAFETY: as above.
                unsafe { float::tile_f::<$simd, $float_rows, $float_panels>(a) }
            }
            $(#[$feature])?
            unsafe fn quantize<const W: usize>(a: &Quantized, row: usize, from: *const u8) {
                // SAFETY: as above.
                unsafe { quantize_row::<$simd, W>(a, row, from) }
            }
            $(#[$feature])?
            unsafe fn widen<const W: usize>(from: *const u8, count: usize, to: *mut f32) {
                // SAFETY: as above.
                unsafe { float::widen::<$simd, W>(from, count, to) }
            }

            $(#[$feature])?
            unsafe fn narrow<const W: usize>(from: *const f32, count: usize, to: *mut u8) {
                // SAFETY: as above.
                unsafe { float::narrow::<$simd, W>(from, count, to) }
            }

            const fn block<const D: usize>() -> BlockOps {
                BlockOps {
                    direct: [direct::<D, 1>, direct::<D, 2>, direct::<D, 4>],
                    expand: expand::<D>,
                    tile: tile_q::<D>,
                }
            }
            const fn float_block<const D: usize>() -> FloatOps {
                FloatOps { direct: direct_block::<D>, decode: decode_block::<D> }
            }
            const fn float<const W: usize>() -> FloatOps {
                FloatOps { direct: direct_float::<W>, decode: decode_float::<W> }
            }

            pub(super) static OPS: Ops = Ops {
                tile_rows: $rows,
                blocks: [
                    block::<0>(),
                    block::<1>(),
                    block::<2>(),
                    block::<3>(),
                    block::<4>(),
                    block::<5>(),
                    block::<6>(),
                    block::<7>(),
                    block::<8>(),
                    block::<9>(),
                ],
                floats: [
                    float_block::<0>(),
                    float_block::<1>(),
                    float_block::<2>(),
                    float_block::<3>(),
                    float_block::<4>(),
                    float_block::<5>(),
                    float_block::<6>(),
                    float_block::<7>(),
                    float_block::<8>(),
                    float_block::<9>(),
                    float::<F32>(),
                    float::<F16>(),
                    float::<BF16>(),
                ],
                tile_f,
                quantize: [quantize::<F32>, quantize::<F16>, quantize::<BF16>],
                widen: [widen::<F32>, widen::<F16>, widen::<BF16>],
                narrow: [narrow::<F32>, narrow::<F16>, narrow::<BF16>],
                bias: <$simd as Simd>::BIAS,
            };
        }
    };
}

entries!(portable, Portable, 2, 1, 4, 1);
#[cfg(target_arch = "x86_64")]
entries!(avx2, super::super::avx2::Avx2<false>, 4, 1, 6, 1, #[target_feature(enable = "avx2,fma,f16c")]);
#[cfg(target_arch = "x86_64")]
entries!(avxvnni, super::super::avx2::Avx2<true>, 4, 1, 6, 1,
    #[target_feature(enable = "avx2,fma,f16c,avxvnni")]);
#[cfg(target_arch = "x86_64")]
entries!(avx512, super::super::avx512::Avx512, 6, 2, 6, 2,
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]);
#[cfg(target_arch = "aarch64")]
entries!(neon, super::super::neon::Neon, 3, 1, 6, 1, #[target_feature(enable = "neon,dotprod")]);
