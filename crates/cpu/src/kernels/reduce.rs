//! `reduce`: sums, means, extrema, products and truth over axes. Floats accumulate in f32 (f64 for f64) pairwise over 256
//! lanes, integers wrap in their type, extrema hand NaN on.

use frit_ir::DType;
use frit_ir::dtype::Kind;
use frit_ir::target::{KernelRow, LayoutClass};

use super::lanes::Lanes;
use super::real::Wide;
use super::row::{Body, COMPUTE, CpuRow, PLAIN, int, kernel, one};
use super::walk;
use crate::args::{Args, MAX_RANK, Operand};
use crate::expr::TILE;

/// Rows of this file.
pub static ROWS: &[CpuRow] = &[CpuRow {
    row: KernelRow {
        name: "reduce",
        op: "reduce",
        inputs: &[one("x", COMPUTE, LayoutClass::Strided)],
        outputs: &[one("out", COMPUTE, LayoutClass::Dense)],
        params: &[int("op"), int("axes")],
        ..PLAIN
    },
    kernel: kernel::<Reduce>,
}];

/// What `op` counts.
#[derive(Clone, Copy, PartialEq)]
enum Op {
    Sum,
    Mean,
    Max,
    Min,
    Prod,
    Any,
    All,
}

const OPS: [Op; 7] = [Op::Sum, Op::Mean, Op::Max, Op::Min, Op::Prod, Op::Any, Op::All];

/// Some dimensions of the operand, neighbours that lie densely joined.
#[derive(Clone, Copy, Default)]
struct Dims {
    dims: [i64; MAX_RANK],
    strides: [i64; MAX_RANK],
    rank: usize,
}

impl Dims {
    /// The dimensions of `x` whose bit in `axes` is `reduced`.
    fn of(x: &Operand, axes: i64, reduced: bool) -> Dims {
        let mut d = Dims::default();
        let mut before = false;
        for i in 0..x.rank as usize {
            let take = (axes >> i & 1 == 1) == reduced;
            if take && before && d.strides[d.rank - 1] == x.dims[i] * x.strides[i] {
                d.dims[d.rank - 1] *= x.dims[i];
                d.strides[d.rank - 1] = x.strides[i];
            } else if take {
                (d.dims[d.rank], d.strides[d.rank]) = (x.dims[i], x.strides[i]);
                d.rank += 1;
            }
            before = take;
        }
        d
    }

    fn count(&self) -> usize {
        walk::count(&self.dims[..self.rank])
    }

    fn offset(&self, n: usize) -> isize {
        walk::offset(n, &self.dims[..self.rank], &self.strides[..self.rank])
    }

    /// Takes the last dimension off: its extent and stride, (1, 0) if there is none.
    fn pop(&mut self) -> (usize, isize) {
        if self.rank == 0 {
            return (1, 0);
        }
        self.rank -= 1;
        (self.dims[self.rank] as usize, self.strides[self.rank] as isize)
    }
}

/// `acc[i] = op(acc[i], x[i])`.
#[inline(always)]
fn fold<T: Wide>(op: Op, acc: &mut [T], x: &[T]) {
    #[inline(always)]
    fn each<T: Wide>(acc: &mut [T], x: &[T], f: impl Fn(T, T) -> T) {
        for (a, x) in acc.iter_mut().zip(x) {
            *a = f(*a, *x);
        }
    }
    match op {
        Op::Sum | Op::Mean => each(acc, x, T::plus),
        Op::Prod | Op::All => each(acc, x, T::times),
        Op::Max | Op::Any => each(acc, x, |a, b| if a > b || a.is_nan() { a } else { b }),
        Op::Min => each(acc, x, |a, b| if a < b || a.is_nan() { a } else { b }),
    }
}

struct Reduce;

impl Body for Reduce {
    #[inline(always)]
    unsafe fn run<L: Lanes>(args: &Args) {
        let [x, out] = args.operands else { return };
        let Some(op) = OPS.get(args.params[0].int() as usize) else { return };
        // SAFETY: the caller's.
        unsafe {
            match x.dtype {
                DType::F64 => Job::<f64>::new(args, x, out, *op).run::<L>(args),
                d if d.is_float() => Job::<f32>::new(args, x, out, *op).run::<L>(args),
                _ => Job::<i64>::new(args, x, out, *op).run::<L>(args),
            }
        }
    }
}

struct Job<'a, T> {
    op: Op,
    x: &'a Operand,
    out: &'a Operand,
    kept: Dims,
    reduced: Dims,
    /// Number of values that become one.
    n: usize,
    /// What nothing gives.
    identity: T,
    /// Whether values are u64, whose upper bit is flipped to compare them as i64.
    flip: bool,
}

impl<'a, T: Wide + Identity> Job<'a, T> {
    fn new(args: &Args, x: &'a Operand, out: &'a Operand, op: Op) -> Job<'a, T> {
        let axes = args.params[1].int();
        let (kept, reduced) = (Dims::of(x, axes, false), Dims::of(x, axes, true));
        let flip = x.dtype == DType::U64 && matches!(op, Op::Max | Op::Min);
        Job { op, x, out, kept, reduced, n: reduced.count(), identity: T::identity(op, x.dtype), flip }
    }

    /// A tile of the operand at element offset `at`.
    #[inline(always)]
    unsafe fn load<L: Lanes>(&self, at: isize, stride: isize, n: usize, to: &mut [T; TILE]) {
        let size = self.x.dtype.info().unit_bytes as isize;
        // SAFETY: the caller's: the elements are the operand's.
        unsafe { T::load::<L>(self.x.dtype, self.x.ptr.offset(at * size), stride, n, to) };
        if self.flip {
            to[..n].iter_mut().for_each(|v| *v = v.flipped());
        }
    }

    #[inline(always)]
    unsafe fn store(&self, at: usize, v: T) {
        let v = if self.op == Op::Mean { v.over(self.n) } else { v };
        let v = if self.flip { v.flipped() } else { v };
        let size = self.out.dtype.info().unit_bytes;
        // SAFETY: the caller's: `at` is an element of the result.
        unsafe { v.store(self.out.dtype, self.out.ptr.add(at * size)) }
    }

    #[inline(always)]
    unsafe fn run<L: Lanes>(mut self, args: &Args) {
        let (x, axes) = (self.x, args.params[1].int());
        let last_reduced = x.rank > 0 && axes >> (x.rank - 1) & 1 == 1;
        // SAFETY: the caller's.
        unsafe {
            match last_reduced {
                true => {
                    let inner = self.reduced.pop();
                    for at in args.team.range(self.kept.count(), 1) {
                        let v = self.along::<L>(self.kept.offset(at), inner);
                        self.store(at, v);
                    }
                }
                false => {
                    let (cols, stride) = self.kept.pop();
                    let tiles = cols.div_ceil(TILE);
                    for unit in args.team.range(self.kept.count() * tiles, 1) {
                        let (row, col) = (unit / tiles, unit % tiles * TILE);
                        let at = self.kept.offset(row) + col as isize * stride;
                        self.across::<L>(at, stride, row * cols + col, TILE.min(cols - col));
                    }
                }
            }
        }
    }

    /// The last dimension is reduced: one result from its rows.
    #[inline(always)]
    unsafe fn along<L: Lanes>(&self, at: isize, (cols, stride): (usize, isize)) -> T {
        let mut acc = [self.identity; TILE];
        let mut tile = [T::ZERO; TILE];
        let mut used = 0;
        for row in 0..if cols == 0 { 0 } else { self.reduced.count() } {
            let at = at + self.reduced.offset(row);
            for col in (0..cols).step_by(TILE) {
                let n = TILE.min(cols - col);
                // SAFETY: the caller's.
                unsafe { self.load::<L>(at + col as isize * stride, stride, n, &mut tile) };
                fold(self.op, &mut acc[..n], &tile[..n]);
                used = used.max(n);
            }
        }
        while used > 1 {
            let half = used.div_ceil(2);
            let (low, high) = acc.split_at_mut(half);
            fold(self.op, &mut low[..used - half], &high[..used - half]);
            used = half;
        }
        acc[0]
    }

    /// The last dimension is kept: `n` neighbouring results at once.
    #[inline(always)]
    unsafe fn across<L: Lanes>(&self, at: isize, stride: isize, to: usize, n: usize) {
        let mut acc = [self.identity; TILE];
        let mut tile = [T::ZERO; TILE];
        for row in 0..self.reduced.count() {
            // SAFETY: the caller's.
            unsafe { self.load::<L>(at + self.reduced.offset(row), stride, n, &mut tile) };
            fold(self.op, &mut acc[..n], &tile[..n]);
        }
        for (i, v) in acc[..n].iter().enumerate() {
            // SAFETY: the caller's.
            unsafe { self.store(to + i, *v) };
        }
    }
}

/// What a reduction over nothing gives, and the order of u64.
trait Identity: Sized {
    fn identity(op: Op, d: DType) -> Self;
    fn flipped(self) -> Self;
}

macro_rules! float_identity {
    ($t:ty) => {
        impl Identity for $t {
            fn identity(op: Op, _: DType) -> $t {
                match op {
                    Op::Sum | Op::Mean | Op::Any => 0.0,
                    Op::Max => <$t>::NEG_INFINITY,
                    Op::Min => <$t>::INFINITY,
                    Op::Prod | Op::All => 1.0,
                }
            }
            fn flipped(self) -> $t {
                self
            }
        }
    };
}

float_identity!(f32);
float_identity!(f64);

impl Identity for i64 {
    fn identity(op: Op, d: DType) -> i64 {
        let bits = 8 * d.info().unit_bytes as u32;
        let unsigned = d.info().kind == Kind::Unsigned;
        match op {
            Op::Sum | Op::Mean | Op::Any => 0,
            Op::Prod | Op::All => 1,
            Op::Max if unsigned && bits < 64 => 0,
            Op::Max => i64::MIN >> (64 - bits),
            Op::Min if unsigned && bits < 64 => (1 << bits) - 1,
            Op::Min => i64::MAX >> (64 - bits),
        }
    }
    fn flipped(self) -> i64 {
        self ^ i64::MIN
    }
}
