//! `cumsum`: running sums, one element after another from the end where the sum starts, so that the result depends on neither
//! tiles nor threads. Floats accumulate in f32 (f64 for f64), integers wrap in their type.

use frit_ir::DType;
use frit_ir::target::{KernelRow, LayoutClass};

use super::lanes::Lanes;
use super::real::Wide;
use super::row::{Body, CpuRow, NUMBERS, PLAIN, int, kernel, one};
use super::walk::{self, Line};
use crate::args::{Args, Operand};
use crate::expr::TILE;

/// Rows of this file.
pub static ROWS: &[CpuRow] = &[CpuRow {
    row: KernelRow {
        name: "cumsum",
        op: "cumsum",
        inputs: &[one("x", NUMBERS, LayoutClass::Strided)],
        outputs: &[one("out", NUMBERS, LayoutClass::Dense)],
        params: &[int("axis"), int("exclusive"), int("reverse")],
        alias: &[(0, 0)],
        ..PLAIN
    },
    kernel: kernel::<Cumsum>,
}];

struct Cumsum;

impl Body for Cumsum {
    #[inline(always)]
    unsafe fn run<L: Lanes>(args: &Args) {
        let [x, out] = args.operands else { return };
        // SAFETY: the caller's.
        unsafe {
            match x.dtype {
                DType::F64 => sums::<L, f64>(args, x, out),
                d if d.is_float() => sums::<L, f32>(args, x, out),
                _ => sums::<L, i64>(args, x, out),
            }
        }
    }
}

#[inline(always)]
unsafe fn sums<L: Lanes, T: Wide>(args: &Args, x: &Operand, out: &Operand) {
    if x.is_empty() {
        return;
    }
    let axis = args.params[0].int() as usize;
    let way = Way { exclusive: args.params[1].int() != 0, reverse: args.params[2].int() != 0 };
    let (n, last) = (x.dims[axis] as usize, x.rank as usize - 1);
    // SAFETY: the caller's; rows, and tiles of columns, of the result are this thread's.
    unsafe {
        if axis == last {
            for row in args.team.range(x.len() as usize / n, 1) {
                along::<L, T>(x.dtype, &Line::of(x, axis, row), &Line::of(out, axis, row), n, way);
            }
            return;
        }
        let cols = x.dims[last] as usize;
        let tiles = cols.div_ceil(TILE);
        let mut dims = x.dims;
        (dims[axis], dims[last]) = (1, 1);
        let dims = &dims[..x.rank as usize];
        let size = x.dtype.info().unit_bytes as isize;
        for unit in args.team.range(walk::count(dims) * tiles, 1) {
            let col = unit % tiles * TILE;
            let start = |o: &Operand| {
                let at =
                    walk::offset(unit / tiles, dims, o.strides()) + (col as i64 * o.strides[last]) as isize;
                Line { ptr: o.ptr.wrapping_offset(at * size), stride: o.strides[axis] as isize }
            };
            let tile = (x.strides[last] as isize, TILE.min(cols - col));
            across::<L, T>(x.dtype, &start(x), &start(out), n, tile, way);
        }
    }
}

#[derive(Clone, Copy)]
struct Way {
    exclusive: bool,
    reverse: bool,
}

impl Way {
    /// Number `i` of `n` in the order of summation.
    #[inline(always)]
    fn at(self, i: usize, n: usize) -> usize {
        if self.reverse { n - 1 - i } else { i }
    }

    /// Adds `v` to the sum `acc` and puts what is asked for in its place.
    #[inline(always)]
    fn step<T: Wide>(self, acc: &mut T, v: &mut T) {
        let with = acc.plus(*v);
        *v = if self.exclusive { *acc } else { with };
        *acc = with;
    }
}

/// The sums of a row whose elements are neighbours in the result. A tile is read before it is written, so rows may be the same.
#[inline(always)]
unsafe fn along<L: Lanes, T: Wide>(d: DType, x: &Line, out: &Line, n: usize, way: Way) {
    let (size, tiles) = (d.info().unit_bytes, n.div_ceil(TILE));
    let mut tile = [T::ZERO; TILE];
    let mut acc = T::ZERO;
    for i in (0..tiles).map(|i| way.at(i, tiles) * TILE) {
        let len = TILE.min(n - i);
        // SAFETY: the caller's: both rows have `n` elements.
        unsafe { T::load::<L>(d, x.at(i, size), x.stride, len, &mut tile) };
        let each = tile[..len].iter_mut();
        match way.reverse {
            true => each.rev().for_each(|v| way.step(&mut acc, v)),
            false => each.for_each(|v| way.step(&mut acc, v)),
        }
        // SAFETY: as above.
        unsafe { T::store_all::<L>(d, &tile[..len], out.at(i, size)) };
    }
}

/// The sums of up to a tile of neighbouring columns (their stride in the operand, and how many), a row at a time.
#[inline(always)]
unsafe fn across<L: Lanes, T: Wide>(
    d: DType,
    x: &Line,
    out: &Line,
    n: usize,
    (stride, cols): (isize, usize),
    way: Way,
) {
    let size = d.info().unit_bytes;
    let mut tile = [T::ZERO; TILE];
    let mut acc = [T::ZERO; TILE];
    for i in (0..n).map(|i| way.at(i, n)) {
        // SAFETY: the caller's: both have `n` rows of `cols` columns from here.
        unsafe { T::load::<L>(d, x.at(i, size), stride, cols, &mut tile) };
        acc[..cols].iter_mut().zip(&mut tile[..cols]).for_each(|(a, v)| way.step(a, v));
        // SAFETY: as above.
        unsafe { T::store_all::<L>(d, &tile[..cols], out.at(i, size)) };
    }
}
