//! `rms_norm`, `layer_norm` and `residual_norm`: rows scaled by their root mean square or standard deviation. The
//! variance takes a second pass over the row.

use frit_ir::target::{KernelRow, LayoutClass, OperandSpec, ParamSpec};

use super::lanes::{Floats, Lanes, array, steps, sum};
use super::row::{Body, CpuRow, F32S, PLAIN, int, kernel, one, optional, real};
use super::walk;
use crate::args::{Args, Operand};

const WEIGHT: OperandSpec = optional("weight", F32S, LayoutClass::Dense);
const BIAS: OperandSpec = optional("bias", F32S, LayoutClass::Dense);
const X: OperandSpec = one("x", F32S, LayoutClass::Rows);
const OUT: OperandSpec = one("out", F32S, LayoutClass::Dense);
const PARAMS: &[ParamSpec] = &[real("eps"), int("plus_one"), int("rms")];

/// Rows of this file.
pub static ROWS: &[CpuRow] = &[plain("rms_norm"), plain("layer_norm"), RESIDUAL];

const fn plain(op: &'static str) -> CpuRow {
    let row = KernelRow {
        name: op,
        op,
        inputs: &[X, WEIGHT, BIAS],
        outputs: &[OUT],
        params: PARAMS,
        alias: &[(0, 0)],
        ..PLAIN
    };
    CpuRow { row, kernel: kernel::<Plain> }
}

const RESIDUAL: CpuRow = CpuRow {
    row: KernelRow {
        name: "residual_norm",
        op: "residual_norm",
        inputs: &[X, one("residual", F32S, LayoutClass::Rows), WEIGHT, BIAS],
        outputs: &[one("sum", F32S, LayoutClass::Dense), OUT],
        params: PARAMS,
        alias: &[(0, 0), (1, 0)],
        ..PLAIN
    },
    kernel: kernel::<Residual>,
};

/// A row in memory.
fn row(o: &Operand, n: usize) -> Floats {
    let lead = o.rank as usize - 1;
    Floats { ptr: o.ptr, dtype: o.dtype }.skip(walk::offset(n, &o.dims[..lead], &o.strides[..lead]))
}

fn floats(o: Option<&Operand>) -> Option<Floats> {
    o.filter(|o| !o.is_absent()).map(|o| Floats { ptr: o.ptr, dtype: o.dtype })
}

/// Number of rows and their length.
fn extents(o: &Operand) -> (usize, usize) {
    let lead = (o.rank as usize).saturating_sub(1);
    (walk::count(&o.dims[..lead]), o.dims[lead] as usize)
}

/// What all rows of a call share.
struct Norm {
    d: usize,
    weight: Option<Floats>,
    bias: Option<Floats>,
    eps: f32,
    plus_one: bool,
    rms: bool,
}

impl Norm {
    /// From the operands `weight` and `bias`, the first of `rest` (trailing absent ones may be left out).
    fn of(args: &Args, d: usize, rest: &[Operand]) -> Norm {
        let [eps, plus_one, rms] = [0, 1, 2].map(|i| args.params[i]);
        Norm {
            d,
            weight: floats(rest.first()),
            bias: floats(rest.get(1)),
            eps: eps.float() as f32,
            plus_one: plus_one.int() != 0,
            rms: rms.int() != 0,
        }
    }

    /// Σ (x − mean), or Σ (x − mean)² with `square`, over the row.
    #[inline(always)]
    unsafe fn sum<L: Lanes>(&self, x: Floats, mean: f32, square: bool) -> f32 {
        // SAFETY: the caller's: the row has `d` elements.
        unsafe {
            let mut acc = [L::splat(0.0); 4];
            let minus = L::splat(-mean);
            for (k, (i, n)) in steps(self.d).enumerate() {
                let mut v = L::add(x.load::<L>(i, n), minus);
                if n < super::lanes::LANES {
                    // Lanes past the end hold −mean.
                    let mut a = array::<L>(v);
                    a[n..].fill(0.0);
                    v = L::load(a.as_ptr());
                }
                let a = &mut acc[k % 4];
                *a = if square { L::fma(v, v, *a) } else { L::add(v, *a) };
            }
            sum::<L>(L::add(L::add(acc[0], acc[1]), L::add(acc[2], acc[3])))
        }
    }

    /// The norm of the row `x` to `out`, which may be the same row.
    #[inline(always)]
    unsafe fn row<L: Lanes>(&self, x: Floats, out: Floats) {
        // SAFETY: the caller's: rows, weight and bias have `d` elements.
        unsafe {
            let n = self.d as f32;
            let mean = if self.rms { 0.0 } else { self.sum::<L>(x, 0.0, false) / n };
            let scale = 1.0 / (self.sum::<L>(x, mean, true) / n + self.eps).sqrt();
            let (minus, scale) = (L::splat(-mean), L::splat(scale));
            let one = L::splat(if self.plus_one { 1.0 } else { 0.0 });
            for (i, n) in steps(self.d) {
                let mut v = L::mul(L::add(x.load::<L>(i, n), minus), scale);
                if let Some(w) = self.weight {
                    v = L::mul(v, L::add(w.load::<L>(i, n), one));
                }
                if let Some(b) = self.bias {
                    v = L::add(v, b.load::<L>(i, n));
                }
                out.store::<L>(i, n, v);
            }
        }
    }
}

struct Plain;

impl Body for Plain {
    #[inline(always)]
    unsafe fn run<L: Lanes>(args: &Args) {
        let [x, rest @ .., out] = args.operands else { return };
        let (rows, d) = extents(x);
        let norm = Norm::of(args, d, rest);
        for n in args.team.range(rows, 1) {
            // SAFETY: the caller's; rows of the result are this thread's.
            unsafe { norm.row::<L>(row(x, n), row(out, n)) };
        }
    }
}

struct Residual;

impl Body for Residual {
    #[inline(always)]
    unsafe fn run<L: Lanes>(args: &Args) {
        let [x, r, rest @ .., total, out] = args.operands else { return };
        let (rows, d) = extents(x);
        let norm = Norm::of(args, d, rest);
        for n in args.team.range(rows, 1) {
            let (x, r, total, out) = (row(x, n), row(r, n), row(total, n), row(out, n));
            // SAFETY: the caller's; rows of the results are this thread's.
            unsafe {
                for (i, n) in steps(d) {
                    total.store::<L>(i, n, L::add(x.load::<L>(i, n), r.load::<L>(i, n)));
                }
                // From the sum as it is stored.
                norm.row::<L>(total, out);
            }
        }
    }
}
