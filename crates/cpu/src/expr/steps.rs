//! The functions of scalar steps. f32 has a vector loop for each op; f64, integers and bool go through the functions of
//! the scalar table itself, which are right by definition.

use frit_ir::expr::compute_type;
use frit_ir::{DType, ScalarOp, round};
use half::{bf16, f16};

use super::io::{self, LoadFn, StoreFn};
use super::{TILE, float_like};
use crate::isa::Isa;
use crate::kernels::lanes::{self, Lanes, Portable};
use crate::math;

/// What a step computes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub op: ScalarOp,
    /// Compute type of the arguments (of the last, where the first is a condition).
    pub from: DType,
    /// Type of the result as the step states it (f16 or bf16 for a rounding cast).
    pub to: DType,
}

/// A step over `n ≤ TILE` elements: arguments (unused ones are not read) and result, which overlaps none of them.
pub(super) type StepFn = unsafe fn(&Spec, [*const u8; 3], *mut u8, usize);

/// The functions of one instruction set.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    float: StepFn,
    wide: StepFn,
    cast: StepFn,
    pub load: LoadFn,
    pub store: StoreFn,
}

impl Functions {
    /// The functions for `isa`, or for the best set that the machine has.
    pub fn of(isa: Isa) -> Functions {
        match isa.min(Isa::detect()) {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => x86::AVX512,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => x86::AVX2,
            _ => Functions {
                float: float::<Portable>,
                wide: wide::<Portable>,
                cast: cast::<Portable>,
                load: io::load::<Portable>,
                store: io::store::<Portable>,
            },
        }
    }

    /// The function of a step.
    pub fn step(&self, spec: &Spec) -> StepFn {
        match (spec.op, spec.from) {
            (ScalarOp::Cast, _) => self.cast,
            (_, DType::F32) => self.float,
            _ => self.wide,
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::io::Rect;
    use super::{DType, Functions, Spec, cast, float, io, wide};
    use crate::kernels::lanes::{Avx2, Avx512};

    /// The functions of an instruction set, each compiled with its features.
    macro_rules! functions {
        ($name:ident, $lanes:ty, $features:literal) => {
            pub(super) const $name: Functions = {
                // SAFETY of every block: the caller's, and `Functions::of` checked the machine.
                #[target_feature(enable = $features)]
                unsafe fn float_(s: &Spec, a: [*const u8; 3], d: *mut u8, n: usize) {
                    // SAFETY: as above.
                    unsafe { float::<$lanes>(s, a, d, n) }
                }
                #[target_feature(enable = $features)]
                unsafe fn wide_(s: &Spec, a: [*const u8; 3], d: *mut u8, n: usize) {
                    // SAFETY: as above.
                    unsafe { wide::<$lanes>(s, a, d, n) }
                }
                #[target_feature(enable = $features)]
                unsafe fn cast_(s: &Spec, a: [*const u8; 3], d: *mut u8, n: usize) {
                    // SAFETY: as above.
                    unsafe { cast::<$lanes>(s, a, d, n) }
                }
                #[target_feature(enable = $features)]
                unsafe fn load_(t: DType, s: *const u8, r: &Rect, d: *mut u8) {
                    // SAFETY: as above.
                    unsafe { io::load::<$lanes>(t, s, r, d) }
                }
                #[target_feature(enable = $features)]
                unsafe fn store_(t: DType, s: *const u8, d: *mut u8, r: &Rect) {
                    // SAFETY: as above.
                    unsafe { io::store::<$lanes>(t, s, d, r) }
                }
                Functions { float: float_, wide: wide_, cast: cast_, load: load_, store: store_ }
            };
        };
    }

    functions!(AVX512, Avx512, "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c");
    functions!(AVX2, Avx2, "avx2,fma,f16c");
}

/// max that hands NaN on.
#[inline(always)]
fn maximum(a: f32, b: f32) -> f32 {
    if a > b || a.is_nan() { a } else { b }
}

/// min that hands NaN on.
#[inline(always)]
fn minimum(a: f32, b: f32) -> f32 {
    if a < b || a.is_nan() { a } else { b }
}

/// The remainder with the sign of the divisor.
#[inline(always)]
fn modulo(a: f32, b: f32) -> f32 {
    let r = a % b;
    if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }
}

/// `f` of one, two or three arguments over `n` elements. `noalias` slices let the loops vectorise.
#[inline(always)]
unsafe fn map<const N: usize, T: Copy, U>(a: [*const u8; 3], d: *mut u8, n: usize, f: impl Fn([T; N]) -> U) {
    // SAFETY: the caller's: `n` elements each, and the result overlaps no argument.
    unsafe {
        let d = std::slice::from_raw_parts_mut(d.cast::<U>(), n);
        let mut i = 0;
        let args: [&[T]; N] = std::array::from_fn(|k| std::slice::from_raw_parts(a[k].cast::<T>(), n));
        while i < n {
            *d.get_unchecked_mut(i) = f(std::array::from_fn(|k| *args[k].get_unchecked(i)));
            i += 1;
        }
    }
}

/// `exact` where `|x|` is beyond the range of the vector function.
unsafe fn beyond(a: *const u8, d: *mut u8, n: usize, exact: fn(f64) -> f64) {
    for i in 0..n {
        // SAFETY: the caller's: `n` f32 each.
        unsafe {
            let x = *a.cast::<f32>().add(i);
            if x.abs() > math::TRIG_LIMIT {
                d.cast::<f32>().add(i).write(exact(f64::from(x)) as f32);
            }
        }
    }
}

/// Steps on f32.
#[inline(always)]
unsafe fn float<L: Lanes>(s: &Spec, a: [*const u8; 3], d: *mut u8, n: usize) {
    // SAFETY: the caller's.
    unsafe {
        match s.op {
            ScalarOp::Neg => map(a, d, n, |[x]: [f32; 1]| -x),
            ScalarOp::Abs => map(a, d, n, |[x]: [f32; 1]| x.abs()),
            ScalarOp::Relu => map(a, d, n, |[x]: [f32; 1]| maximum(x, 0.0)),
            ScalarOp::Sqrt => map(a, d, n, |[x]: [f32; 1]| x.sqrt()),
            ScalarOp::Rsqrt => map(a, d, n, |[x]: [f32; 1]| 1.0 / x.sqrt()),
            ScalarOp::Round => map(a, d, n, |[x]: [f32; 1]| x.round_ties_even()),
            ScalarOp::Floor => map(a, d, n, |[x]: [f32; 1]| x.floor()),
            ScalarOp::Ceil => map(a, d, n, |[x]: [f32; 1]| x.ceil()),
            ScalarOp::Add => map(a, d, n, |[x, y]: [f32; 2]| x + y),
            ScalarOp::Sub => map(a, d, n, |[x, y]: [f32; 2]| x - y),
            ScalarOp::Mul => map(a, d, n, |[x, y]: [f32; 2]| x * y),
            ScalarOp::Div => map(a, d, n, |[x, y]: [f32; 2]| x / y),
            ScalarOp::Max => map(a, d, n, |[x, y]: [f32; 2]| maximum(x, y)),
            ScalarOp::Min => map(a, d, n, |[x, y]: [f32; 2]| minimum(x, y)),
            ScalarOp::Mod => map(a, d, n, |[x, y]: [f32; 2]| modulo(x, y)),
            ScalarOp::Eq => map(a, d, n, |[x, y]: [f32; 2]| x == y),
            ScalarOp::Ne => map(a, d, n, |[x, y]: [f32; 2]| x != y),
            ScalarOp::Lt => map(a, d, n, |[x, y]: [f32; 2]| x < y),
            ScalarOp::Le => map(a, d, n, |[x, y]: [f32; 2]| x <= y),
            ScalarOp::Gt => map(a, d, n, |[x, y]: [f32; 2]| x > y),
            ScalarOp::Ge => map(a, d, n, |[x, y]: [f32; 2]| x >= y),
            ScalarOp::Clamp => {
                map(a, d, n, |[x, lo, hi]: [f32; 3]| minimum(maximum(x, lo), hi));
            }
            ScalarOp::Where => choose(a, d, n),
            _ => elementary::<L>(s, a, d, n),
        }
    }
}

/// `where` on f32: the condition is bool.
#[inline(always)]
unsafe fn choose(a: [*const u8; 3], d: *mut u8, n: usize) {
    // SAFETY: the caller's: `n` elements each, and the result overlaps no argument.
    unsafe {
        let d = std::slice::from_raw_parts_mut(d.cast::<f32>(), n);
        let c = std::slice::from_raw_parts(a[0], n);
        let x = std::slice::from_raw_parts(a[1].cast::<f32>(), n);
        let y = std::slice::from_raw_parts(a[2].cast::<f32>(), n);
        for (i, d) in d.iter_mut().enumerate() {
            let (x, y) = (*x.get_unchecked(i), *y.get_unchecked(i));
            *d = if *c.get_unchecked(i) != 0 { x } else { y };
        }
    }
}

/// Elementary functions on f32.
#[inline(always)]
unsafe fn elementary<L: Lanes>(s: &Spec, a: [*const u8; 3], d: *mut u8, n: usize) {
    // SAFETY: the caller's.
    unsafe {
        match s.op {
            ScalarOp::Exp => map(a, d, n, |[x]: [f32; 1]| math::exp(x)),
            ScalarOp::Log => map(a, d, n, |[x]: [f32; 1]| math::log(x)),
            ScalarOp::Atan => map(a, d, n, |[x]: [f32; 1]| math::atan(x)),
            ScalarOp::Tanh => map(a, d, n, |[x]: [f32; 1]| math::tanh(x)),
            ScalarOp::Erf => map(a, d, n, |[x]: [f32; 1]| math::erf(x)),
            ScalarOp::Sigmoid => map(a, d, n, |[x]: [f32; 1]| math::sigmoid(x)),
            ScalarOp::Silu => map(a, d, n, |[x]: [f32; 1]| math::silu(x)),
            ScalarOp::Gelu => map(a, d, n, |[x]: [f32; 1]| math::gelu(x)),
            ScalarOp::GeluTanh => map(a, d, n, |[x]: [f32; 1]| math::gelu_tanh(x)),
            ScalarOp::Softplus => map(a, d, n, |[x]: [f32; 1]| math::softplus(x)),
            ScalarOp::Pow => map(a, d, n, |[x, y]: [f32; 2]| math::pow(x, y)),
            ScalarOp::Sin => {
                map(a, d, n, |[x]: [f32; 1]| math::sin(x));
                beyond(a[0], d, n, f64::sin);
            }
            ScalarOp::Cos => {
                map(a, d, n, |[x]: [f32; 1]| math::cos(x));
                beyond(a[0], d, n, f64::cos);
            }
            ScalarOp::Tan => {
                map(a, d, n, |[x]: [f32; 1]| math::tan(x));
                beyond(a[0], d, n, f64::tan);
            }
            // Any other op goes by the scalar table.
            _ => wide::<L>(s, a, d, n),
        }
    }
}

/// `n` integers or truth values of type `t` as i64.
#[inline(always)]
pub(crate) unsafe fn ints(t: DType, p: *const u8, out: &mut [i64]) {
    macro_rules! each {
        ($ty:ty) => {
            for (i, o) in out.iter_mut().enumerate() {
                // SAFETY: the caller's: as many elements as `out` has.
                *o = unsafe { *p.cast::<$ty>().add(i) } as i64;
            }
        };
    }
    match t {
        DType::I32 => each!(i32),
        DType::I16 => each!(i16),
        DType::I8 => each!(i8),
        DType::U32 => each!(u32),
        DType::U16 => each!(u16),
        DType::U8 | DType::Bool => each!(u8),
        _ => each!(i64),
    }
}

/// `n` values of type `t` as f64.
#[inline(always)]
unsafe fn floats(t: DType, p: *const u8, out: &mut [f64]) {
    macro_rules! each {
        ($ty:ty) => {
            for (i, o) in out.iter_mut().enumerate() {
                // SAFETY: the caller's: as many elements as `out` has.
                *o = unsafe { *p.cast::<$ty>().add(i) } as f64;
            }
        };
    }
    match t {
        DType::F64 => each!(f64),
        DType::F32 => each!(f32),
        DType::U64 => each!(u64),
        _ => {
            let mut wide = [0i64; TILE];
            let wide = &mut wide[..out.len()];
            // SAFETY: the caller's.
            unsafe { ints(t, p, wide) };
            out.iter_mut().zip(wide).for_each(|(o, w)| *o = *w as f64);
        }
    }
}

/// Integers wrapped to the type `t`.
#[inline(always)]
pub(crate) unsafe fn put_ints(t: DType, v: &[i64], p: *mut u8) {
    macro_rules! each {
        ($ty:ty) => {
            for (i, v) in v.iter().enumerate() {
                // SAFETY: the caller's: room for as many elements as `v` has.
                unsafe { p.cast::<$ty>().add(i).write(*v as $ty) };
            }
        };
    }
    match t {
        DType::I32 | DType::U32 => each!(u32),
        DType::I16 | DType::U16 => each!(u16),
        DType::I8 | DType::U8 => each!(u8),
        DType::Bool => {
            for (i, v) in v.iter().enumerate() {
                // SAFETY: as above.
                unsafe { p.add(i).write(u8::from(*v != 0)) };
            }
        }
        _ => each!(i64),
    }
}

/// Floats rounded to a float type, saturated to an integer type, compared with 0 for bool. f16 and bf16 are rounded and
/// left as f32.
#[inline(always)]
unsafe fn put_floats(t: DType, v: &[f64], p: *mut u8) {
    macro_rules! each {
        ($ty:ty, $f:expr) => {
            for (i, v) in v.iter().enumerate() {
                // SAFETY: the caller's: room for as many elements as `v` has.
                unsafe { p.cast::<$ty>().add(i).write($f(*v)) };
            }
        };
    }
    match t {
        DType::F64 => each!(f64, |v| v),
        DType::F32 => each!(f32, |v| v as f32),
        DType::F16 => each!(f32, |v| round::to_f16(v).to_f32()),
        DType::BF16 => each!(f32, |v| round::to_bf16(v).to_f32()),
        DType::I32 => each!(i32, |v| v as i32),
        DType::I16 => each!(i16, |v| v as i16),
        DType::I8 => each!(i8, |v| v as i8),
        DType::U64 => each!(u64, |v| v as u64),
        DType::U32 => each!(u32, |v| v as u32),
        DType::U16 => each!(u16, |v| v as u16),
        DType::U8 => each!(u8, |v| v as u8),
        DType::Bool => each!(u8, |v| u8::from(v != 0.0)),
        _ => each!(i64, |v| v as i64),
    }
}

/// Steps by the functions of the scalar table, on f64 or i64 by the type.
#[inline(always)]
unsafe fn wide<L: Lanes>(s: &Spec, a: [*const u8; 3], d: *mut u8, n: usize) {
    let info = s.op.info();
    let condition = |k: usize| s.op == ScalarOp::Where && k == 0;
    let of = |k: usize| if condition(k) { DType::Bool } else { s.from };
    let to = compute_type(s.to);
    // SAFETY: the caller's, for every block.
    if float_like(s.from) {
        let mut v = [[0f64; TILE]; 3];
        for (k, v) in v.iter_mut().enumerate().take(info.arity) {
            // SAFETY: as above.
            unsafe { floats(of(k), a[k], &mut v[..n]) };
        }
        let [a, b, c] = &mut v;
        for ((a, b), c) in a.iter_mut().zip(b).zip(c).take(n) {
            *a = (info.float)(&[*a, *b, *c]);
        }
        // SAFETY: as above.
        unsafe { put_floats(to, &v[0][..n], d) };
    } else {
        let mut v = [[0i64; TILE]; 3];
        for (k, v) in v.iter_mut().enumerate().take(info.arity) {
            // SAFETY: as above.
            unsafe { ints(of(k), a[k], &mut v[..n]) };
        }
        let [a, b, c] = &mut v;
        for ((a, b), c) in a.iter_mut().zip(b).zip(c).take(n) {
            *a = (info.int)(&[*a, *b, *c], s.from);
        }
        // SAFETY: as above.
        unsafe { put_ints(to, &v[0][..n], d) };
    }
}

/// Conversions.
#[inline(always)]
unsafe fn cast<L: Lanes>(s: &Spec, a: [*const u8; 3], d: *mut u8, n: usize) {
    // SAFETY: the caller's.
    unsafe {
        match (s.from, s.to) {
            (DType::F32, DType::F32) => map(a, d, n, |[x]: [f32; 1]| x),
            (DType::F32, DType::BF16) => {
                map(a, d, n, |[x]: [f32; 1]| <bf16 as lanes::Element>::get(<bf16 as lanes::Element>::of(x)));
            }
            (DType::F32, DType::F16) => {
                let mut half = [f16::ZERO; TILE];
                lanes::narrow::<L, f16>(a[0].cast(), half.as_mut_ptr(), n);
                lanes::widen::<L, f16>(half.as_ptr(), d.cast(), n);
            }
            (DType::I32, DType::F32) => map(a, d, n, |[x]: [i32; 1]| x as f32),
            (DType::F32, DType::I32) => map(a, d, n, |[x]: [f32; 1]| x as i32),
            (DType::Bool, DType::F32) => map(a, d, n, |[x]: [u8; 1]| f32::from(x)),
            _ if s.from.is_float() || s.to.is_float() => {
                let mut v = [0f64; TILE];
                floats(s.from, a[0], &mut v[..n]);
                put_floats(s.to, &v[..n], d);
            }
            _ => {
                let mut v = [0i64; TILE];
                ints(s.from, a[0], &mut v[..n]);
                put_ints(s.to, &v[..n], d);
            }
        }
    }
}

/// `n` times the constant with these bits, of the compute type of `t`.
///
/// # Safety
/// `d` has room for them.
pub(crate) unsafe fn constant(t: DType, imm: u64, d: *mut u8, n: usize) {
    // SAFETY: the caller's; `n ≤ TILE`.
    unsafe {
        match t.is_float() {
            true => put_floats(t, &[f64::from_bits(imm); TILE][..n], d),
            false => put_ints(t, &[imm as i64; TILE][..n], d),
        }
    }
}
