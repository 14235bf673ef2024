//! `dequantize`: values of a block format as floats. The decoding is that of the formats' definition; the fast decoders
//! stand beside `linear`, which reads packed weights.

use frit_ir::target::{KernelRow, LayoutClass};
use frit_ir::{DType, block};
use half::{bf16, f16};

use super::lanes::{Portable, narrow};
use super::row::{BLOCKS, CpuRow, F32S, PLAIN, one};
use super::walk;
use crate::args::Args;

/// Rows of this file.
pub static ROWS: &[CpuRow] = &[CpuRow {
    row: KernelRow {
        name: "dequantize",
        op: "dequantize",
        inputs: &[one("x", BLOCKS, LayoutClass::Rows)],
        outputs: &[one("out", F32S, LayoutClass::Dense)],
        ..PLAIN
    },
    kernel: |_| dequantize,
}];

/// Decodes `n` elements (whole blocks) at `from` to `to` in the float type `out`.
///
/// # Safety
/// Both sides are valid for them.
pub(super) unsafe fn decode(dtype: DType, from: *const u8, n: usize, out: DType, to: *mut u8) {
    let info = dtype.info();
    let unit = info.unit_elements;
    let mut values = [0f32; 256];
    for b in 0..n / unit {
        let values = &mut values[..unit];
        // SAFETY: the caller's: block `b` is one of `from`'s, and its values have their place in `to`.
        unsafe {
            let bytes = std::slice::from_raw_parts(from.add(b * info.unit_bytes), info.unit_bytes);
            // One block of a block format decodes into its number of values; nothing else is an error.
            let _ = block::dequantize(dtype, bytes, values);
            let at = b * unit;
            match out {
                DType::F16 => narrow::<Portable, f16>(values.as_ptr(), to.cast::<f16>().add(at), unit),
                DType::BF16 => narrow::<Portable, bf16>(values.as_ptr(), to.cast::<bf16>().add(at), unit),
                _ => std::ptr::copy_nonoverlapping(values.as_ptr(), to.cast::<f32>().add(at), unit),
            }
        }
    }
}

unsafe fn dequantize(args: &Args) {
    let [x, out] = args.operands else { return };
    let Some((k, lead)) = x.dims().split_last() else { return };
    let (info, size, k) = (x.dtype.info(), out.dtype.info().unit_bytes, *k as usize);
    for row in args.team.range(walk::count(lead), 1) {
        let at = walk::offset(row, lead, &x.strides()[..lead.len()]);
        let at = at / info.unit_elements as isize * info.unit_bytes as isize;
        // SAFETY: the caller's; rows of the result are this thread's.
        unsafe { decode(x.dtype, x.ptr.offset(at), k, out.dtype, out.ptr.add(row * k * size)) };
    }
}
