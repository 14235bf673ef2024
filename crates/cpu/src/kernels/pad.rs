//! `pad`: elements added around each dimension: a constant, the mirror image, or the edge repeated.

use frit_ir::target::{KernelRow, LayoutClass, ParamSpec};

use super::row::{COMPUTE, CpuRow, PLAIN, int, one, real};
use super::walk;
use crate::args::{Args, Operand};
use crate::expr::steps::constant;

/// `before0..7`, the mode and the value. What comes after follows from the extents.
const PARAMS: &[ParamSpec] = &[
    int("before0"),
    int("before1"),
    int("before2"),
    int("before3"),
    int("before4"),
    int("before5"),
    int("before6"),
    int("before7"),
    int("mode"),
    real("value"),
];

/// Rows of this file.
pub static ROWS: &[CpuRow] = &[CpuRow {
    row: KernelRow {
        name: "pad",
        op: "pad",
        inputs: &[one("x", COMPUTE, LayoutClass::Strided)],
        outputs: &[one("out", COMPUTE, LayoutClass::Dense)],
        params: PARAMS,
        ..PLAIN
    },
    kernel: |_| pad,
}];

/// The index in `0..n` that is shown at `i`, which may lie outside; `None` for the constant.
fn source(i: i64, n: i64, mode: i64) -> Option<i64> {
    match (mode, (0..n).contains(&i)) {
        (_, true) => Some(i),
        (0, _) => None,
        (1, _) => Some(if i < 0 { -i } else { 2 * (n - 1) - i }),
        _ => Some(i.clamp(0, n - 1)),
    }
}

unsafe fn pad(args: &Args) {
    let [x, out] = args.operands else { return };
    // SAFETY: the caller's.
    unsafe {
        match x.dtype.info().unit_bytes {
            8 => pad_as::<u64>(args, x, out),
            4 => pad_as::<u32>(args, x, out),
            2 => pad_as::<u16>(args, x, out),
            _ => pad_as::<u8>(args, x, out),
        }
    }
}

/// The bits of the padding value in the operand's type.
fn bits<T: Copy + Default>(args: &Args, x: &Operand) -> T {
    let v = args.params[9].float();
    let mut wide = [0u8; 8];
    let mut value = T::default();
    // SAFETY: eight bytes hold every type; a narrow float is made by the same rounding as everywhere.
    unsafe {
        match x.dtype {
            frit_ir::DType::F16 => wide[..2].copy_from_slice(&frit_ir::round::to_f16(v).to_le_bytes()),
            frit_ir::DType::BF16 => wide[..2].copy_from_slice(&frit_ir::round::to_bf16(v).to_le_bytes()),
            d if d.is_float() => constant(d, v.to_bits(), wide.as_mut_ptr(), 1),
            d => constant(d, v as i64 as u64, wide.as_mut_ptr(), 1),
        }
        std::ptr::copy_nonoverlapping(wide.as_ptr(), (&raw mut value).cast(), size_of::<T>());
    }
    value
}

unsafe fn pad_as<T: Copy + Default>(args: &Args, x: &Operand, out: &Operand) {
    let (mode, fill) = (args.params[8].int(), bits::<T>(args, x));
    let before = |d: usize| args.params[d].int();
    let rank = x.rank as usize;
    let lead = &out.dims[..rank.saturating_sub(1)];
    let cols = if rank == 0 { 1 } else { out.dims[rank - 1] };
    for row in args.team.range(walk::count(lead), 1) {
        let mut at = Some(0isize);
        let mut left = row as i64;
        for d in (0..lead.len()).rev() {
            let i = source(left % lead[d] - before(d), x.dims[d], mode);
            at = at.zip(i).map(|(a, i)| a + (i * x.strides[d]) as isize);
            left /= lead[d];
        }
        for c in 0..cols {
            let (n, step) = if rank == 0 { (1, 0) } else { (x.dims[rank - 1], x.strides[rank - 1]) };
            let i = source(c - if rank == 0 { 0 } else { before(rank - 1) }, n, mode);
            // SAFETY: the caller's: the source index is inside x, and this row of the result is this thread's.
            unsafe {
                let v = match at.zip(i) {
                    Some((a, i)) => *x.ptr.cast::<T>().offset(a + (i * step) as isize),
                    None => fill,
                };
                out.ptr.cast::<T>().offset(row as isize * cols as isize + c as isize).write(v);
            }
        }
    }
}
