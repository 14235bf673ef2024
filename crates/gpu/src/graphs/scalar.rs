//! Scalar expressions as elementwise calls. Floats are f32 between the inputs and the outputs, as everywhere.
//!
//! Not there: arithmetic on integers (MPSGraph does not say that it wraps), `pow` and `mod` (nor what they make of negative
//! numbers), floats to integers (nor what becomes of those that do not fit), `softplus` (there is no log(1 + x)).

use frit_ir::dtype::Kind;
use frit_ir::expr::{Expr, Step, compute_type};
use frit_ir::{DType, ScalarOp};

use super::Unsupported;
use super::call::{Binary, Program, Unary, Value};

/// How an op becomes calls.
#[derive(Clone, Copy)]
enum Form {
    /// One call on floats.
    Float(Unary),
    /// One call on bool.
    Truth(Unary),
    /// One call on two floats.
    Floats(Binary),
    /// One call on two bools.
    Truths(Binary),
    /// A comparison of any two.
    Compare(Binary),
    /// Several calls on floats.
    Made(fn(&mut Program, &[Value]) -> Value),
}

/// The table.
const FORMS: &[(ScalarOp, Form)] = &[
    (ScalarOp::Neg, Form::Float(Unary::Negative)),
    (ScalarOp::Abs, Form::Float(Unary::Absolute)),
    (ScalarOp::Relu, Form::Made(|p, a| p.with(Binary::Maximum, a[0], 0.0))),
    (ScalarOp::Exp, Form::Float(Unary::Exponent)),
    (ScalarOp::Log, Form::Float(Unary::Logarithm)),
    (ScalarOp::Sqrt, Form::Float(Unary::SquareRoot)),
    (ScalarOp::Rsqrt, Form::Made(|p, a| reciprocal_root(p, a[0]))),
    (ScalarOp::Sin, Form::Float(Unary::Sin)),
    (ScalarOp::Cos, Form::Float(Unary::Cos)),
    (ScalarOp::Tan, Form::Float(Unary::Tan)),
    (ScalarOp::Atan, Form::Float(Unary::Atan)),
    (ScalarOp::Tanh, Form::Float(Unary::Tanh)),
    (ScalarOp::Erf, Form::Float(Unary::Erf)),
    (ScalarOp::Sigmoid, Form::Float(Unary::Sigmoid)),
    (ScalarOp::Silu, Form::Made(silu)),
    (ScalarOp::Gelu, Form::Made(gelu)),
    (ScalarOp::GeluTanh, Form::Made(gelu_tanh)),
    (ScalarOp::Round, Form::Float(Unary::Rint)),
    (ScalarOp::Floor, Form::Float(Unary::Floor)),
    (ScalarOp::Ceil, Form::Float(Unary::Ceil)),
    (ScalarOp::Not, Form::Truth(Unary::Not)),
    (ScalarOp::Add, Form::Floats(Binary::Addition)),
    (ScalarOp::Sub, Form::Floats(Binary::Subtraction)),
    (ScalarOp::Mul, Form::Floats(Binary::Multiplication)),
    (ScalarOp::Div, Form::Floats(Binary::Division)),
    (ScalarOp::Max, Form::Floats(Binary::Maximum)),
    (ScalarOp::Min, Form::Floats(Binary::Minimum)),
    (ScalarOp::Eq, Form::Compare(Binary::Equal)),
    (ScalarOp::Ne, Form::Compare(Binary::NotEqual)),
    (ScalarOp::Lt, Form::Compare(Binary::LessThan)),
    (ScalarOp::Le, Form::Compare(Binary::LessThanOrEqual)),
    (ScalarOp::Gt, Form::Compare(Binary::GreaterThan)),
    (ScalarOp::Ge, Form::Compare(Binary::GreaterThanOrEqual)),
    (ScalarOp::And, Form::Truths(Binary::And)),
    (ScalarOp::Or, Form::Truths(Binary::Or)),
    (ScalarOp::Xor, Form::Truths(Binary::Xor)),
    (ScalarOp::Clamp, Form::Made(clamp)),
];

/// The ops of the table, and those that need no row: `const`, `cast`, `where`.
pub fn scalars() -> impl Iterator<Item = ScalarOp> {
    let special = [ScalarOp::Const, ScalarOp::Cast, ScalarOp::Where];
    FORMS.iter().map(|(op, _)| *op).chain(special)
}

pub(super) fn reciprocal_root(p: &mut Program, x: Value) -> Value {
    let (root, one) = (p.unary(Unary::SquareRoot, x), p.scalar(1.0, DType::F32));
    p.binary(Binary::Division, one, root)
}

fn clamp(p: &mut Program, a: &[Value]) -> Value {
    let low = p.binary(Binary::Maximum, a[0], a[1]);
    p.binary(Binary::Minimum, low, a[2])
}

/// `value`, but 0 where `x` is −∞: there the formulas are −∞ · 0.
fn zero_at_the_end(p: &mut Program, x: Value, value: Value) -> Value {
    let (end, zero) = (p.with(Binary::Equal, x, f64::NEG_INFINITY), p.scalar(0.0, DType::F32));
    p.select(end, zero, value)
}

fn silu(p: &mut Program, a: &[Value]) -> Value {
    let s = p.unary(Unary::Sigmoid, a[0]);
    let value = p.binary(Binary::Multiplication, a[0], s);
    zero_at_the_end(p, a[0], value)
}

/// 0.5x(1 + erf(x/√2)).
fn gelu(p: &mut Program, a: &[Value]) -> Value {
    let scaled = p.with(Binary::Multiplication, a[0], std::f64::consts::FRAC_1_SQRT_2);
    let erf = p.unary(Unary::Erf, scaled);
    let sum = p.with(Binary::Addition, erf, 1.0);
    let half = p.with(Binary::Multiplication, a[0], 0.5);
    let value = p.binary(Binary::Multiplication, half, sum);
    zero_at_the_end(p, a[0], value)
}

/// x · sigmoid(2c(x + 0.044715x³)) with c = √(2/π), which is 0.5x(1 + tanh(c(x + 0.044715x³))) without the difference of
/// numbers near each other.
fn gelu_tanh(p: &mut Program, a: &[Value]) -> Value {
    let x = a[0];
    let square = p.binary(Binary::Multiplication, x, x);
    let inner = p.with(Binary::Multiplication, square, 0.044715);
    let inner = p.with(Binary::Addition, inner, 1.0);
    let inner = p.binary(Binary::Multiplication, inner, x);
    let inner = p.with(Binary::Multiplication, inner, 2.0 * (2.0 / std::f64::consts::PI).sqrt());
    let s = p.unary(Unary::Sigmoid, inner);
    let value = p.binary(Binary::Multiplication, x, s);
    zero_at_the_end(p, x, value)
}

/// Appends `e` on these inputs and gives its outputs in their types, as far as they are broadcast.
///
/// # Errors
/// A step that the table does not have.
pub(super) fn expr(p: &mut Program, e: &Expr, inputs: &[Value]) -> Result<Vec<Value>, Unsupported> {
    let mut values: Vec<Value> = inputs.iter().map(|v| wide(p, *v)).collect();
    for s in &e.steps {
        let value = step(p, s, &values)?;
        values.push(value);
    }
    Ok(e.outputs.iter().map(|o| p.cast(values[o.value as usize], o.dtype)).collect())
}

/// `v` in the type that it has inside an expression.
pub(super) fn wide(p: &mut Program, v: Value) -> Value {
    p.cast(v, compute_type(p.dtype(v)))
}

fn step(p: &mut Program, s: &Step, values: &[Value]) -> Result<Value, Unsupported> {
    let a: Vec<Value> = s.args.iter().map(|r| values[*r as usize]).collect();
    let lacks = |what: &str| Unsupported(format!("`{}` of {what}", s.op.name()));
    let types: Vec<DType> = a.iter().map(|v| p.dtype(*v)).collect();
    let want = |d: DType| match types.iter().find(|t| **t != d) {
        Some(t) => Err(lacks(t.name())),
        None => Ok(()),
    };
    match s.op {
        ScalarOp::Const => return constant(p, s),
        ScalarOp::Cast => return cast(p, a[0], s.dtype),
        ScalarOp::Where => return Ok(p.select(a[0], a[1], a[2])),
        _ => {}
    }
    let form = FORMS.iter().find(|(op, _)| *op == s.op).map(|(_, f)| *f);
    match form.ok_or_else(|| lacks("anything"))? {
        Form::Float(u) => want(DType::F32).map(|()| p.unary(u, a[0])),
        Form::Truth(u) => want(DType::Bool).map(|()| p.unary(u, a[0])),
        Form::Floats(b) => want(DType::F32).map(|()| p.binary(b, a[0], a[1])),
        Form::Truths(b) => want(DType::Bool).map(|()| p.binary(b, a[0], a[1])),
        Form::Compare(b) => Ok(p.binary(b, a[0], a[1])),
        Form::Made(f) => want(DType::F32).map(|()| f(p, &a)),
    }
}

fn constant(p: &mut Program, s: &Step) -> Result<Value, Unsupported> {
    let dtype = compute_type(s.dtype);
    if s.dtype.is_float() {
        let rounded = match s.dtype {
            DType::F32 => f64::from(f64::from_bits(s.imm) as f32),
            _ => f64::from_bits(s.imm),
        };
        let v = p.scalar(rounded, dtype);
        // A constant of 16 bits has been rounded to them.
        let short = p.cast(v, s.dtype);
        return Ok(p.cast(short, dtype));
    }
    let whole = s.imm as i64;
    match whole.unsigned_abs() <= 1 << 53 {
        true => Ok(p.scalar(whole as f64, dtype)),
        false => Err(Unsupported(format!("the constant {whole}"))),
    }
}

/// Whether every value of the integer type `from` is one of `to`.
fn holds(from: DType, to: DType) -> bool {
    let bytes = |d: DType| d.info().unit_bytes;
    match (from.info().kind, to.info().kind) {
        (Kind::Unsigned, Kind::Unsigned) | (Kind::Signed, Kind::Signed) => bytes(from) <= bytes(to),
        (Kind::Unsigned, Kind::Signed) => bytes(from) < bytes(to),
        _ => false,
    }
}

fn cast(p: &mut Program, v: Value, to: DType) -> Result<Value, Unsupported> {
    let (from, wide) = (p.dtype(v), compute_type(to));
    let small = from == DType::Bool || from.info().unit_bytes <= 2;
    let fits = match (from.is_float(), to.is_float()) {
        _ if to == DType::Bool => return Ok(p.with(Binary::NotEqual, v, 0.0)),
        (true, true) => true,
        (true, false) => false,
        // Rounding twice is rounding once where the first does not round.
        (false, true) => small || from.info().unit_bytes == 4 && to == DType::F32,
        (false, false) => from == DType::Bool || holds(from, to),
    };
    if !fits {
        return Err(Unsupported(format!("a cast of {from} to {to}")));
    }
    let v = p.cast(v, wide);
    // A cast to 16 bits rounds to them and goes on in f32.
    let short = p.cast(v, to);
    Ok(p.cast(short, wide))
}
