//! `write_kv`: rows of new keys or values into the pages of a cache, in place.

use frit_ir::DType;
use frit_ir::target::{KernelRow, LayoutClass};

use super::lanes::{Floats, Lanes, steps};
use super::row::{Body, CpuRow, F32S, PLAIN, int, kernel, one, optional};
use super::walk::{self, Side};
use crate::args::{Args, Operand};

/// Rows of this file.
pub static ROWS: &[CpuRow] = &[CpuRow {
    row: KernelRow {
        name: "write_kv",
        op: "write_kv",
        inputs: &[
            one("state", F32S, LayoutClass::Dense),
            one("value", F32S, LayoutClass::Rows),
            one("positions", &[DType::I32], LayoutClass::Rows),
            optional("table", &[DType::I32], LayoutClass::Rows),
        ],
        outputs: &[one("next", F32S, LayoutClass::Dense)],
        params: &[int("ring")],
        alias: &[(0, 0)],
        ..PLAIN
    },
    kernel: kernel::<WriteKv>,
}];

struct WriteKv;

/// Element [row, col] of an i32 matrix.
unsafe fn int_at(o: &Operand, row: usize, col: i64) -> i64 {
    let at = row as i64 * o.strides[0] + col * o.strides[1];
    // SAFETY: the caller's: the indices are inside.
    i64::from(unsafe { *o.ptr.cast::<i32>().offset(at as isize) })
}

/// Page and slot of position `p` of row `b`, if there is such a place.
unsafe fn place(
    p: i64,
    b: usize,
    state: &Operand,
    ring: bool,
    table: Option<&Operand>,
) -> Option<(i64, i64)> {
    let (pages, slots) = (state.dims[0], state.dims[2]);
    if p < 0 || slots == 0 {
        return None;
    }
    let (page, slot) = match table {
        // SAFETY: the caller's; the column is checked.
        Some(t) if p / slots < t.dims[1] => (unsafe { int_at(t, b, p / slots) }, p % slots),
        Some(_) => return None,
        None if ring => (b as i64, p % slots),
        None => (b as i64, p),
    };
    ((0..pages).contains(&page) && slot < slots).then_some((page, slot))
}

impl Body for WriteKv {
    #[inline(always)]
    unsafe fn run<L: Lanes>(args: &Args) {
        let [state, value, positions, rest @ .., out] = args.operands else { return };
        let table = rest.first().filter(|t| !t.is_absent());
        let ring = args.params[0].int() != 0;
        if !std::ptr::eq(state.ptr, out.ptr) {
            let (from, to) = (
                Side { ptr: state.ptr, strides: state.strides() },
                Side { ptr: out.ptr, strides: out.strides() },
            );
            // SAFETY: the caller's.
            unsafe { walk::copy(state.dtype.info().unit_bytes, state.dims(), from, to, &args.team) };
            args.team.barrier();
        }
        let &[b, t, h, d] = value.dims() else { return };
        let (t, h, d) = (t as usize, h as usize, d as usize);
        for unit in args.team.range(b as usize * t * h, 1) {
            let (b, t, h) = (unit / h / t, unit / h % t, unit % h);
            let s = &value.strides;
            let from = b as i64 * s[0] + t as i64 * s[1] + h as i64 * s[2];
            // SAFETY: the caller's; different units write different places.
            unsafe {
                let position = int_at(positions, b, t as i64);
                let Some((page, slot)) = place(position, b, out, ring, table) else { continue };
                let to = page * out.strides[0] + h as i64 * out.strides[1] + slot * out.strides[2];
                let from = Floats { ptr: value.ptr, dtype: value.dtype }.skip(from as isize);
                let to = Floats { ptr: out.ptr, dtype: out.dtype }.skip(to as isize);
                for (i, n) in steps(d) {
                    to.store::<L>(i, n, from.load::<L>(i, n));
                }
            }
        }
    }
}
