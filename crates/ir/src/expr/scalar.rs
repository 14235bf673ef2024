//! The one table of scalar ops: name, arity, domain and meaning. CPU kernels and GPU renderers follow it.

use crate::DType;
use crate::dtype::Kind;

/// Which types a scalar op takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// Floats only.
    Float,
    /// Floats and integers.
    Number,
    /// Integers and bool, bit by bit.
    Bits,
    /// Every compute type.
    Any,
}

/// What type a scalar op gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// The type of its arguments.
    Same,
    /// `bool`.
    Bool,
    /// The step's own type (`const`, `cast`).
    Stated,
}

/// One row of the table. `float` works on the values of floats (and 0/1 of bool), `int` on integers of the named type.
pub struct Info {
    /// The op.
    pub op: ScalarOp,
    /// Name in the text format.
    pub name: &'static str,
    /// Number of arguments.
    pub arity: usize,
    /// Types taken.
    pub domain: Domain,
    /// Type given.
    pub gives: Gives,
    /// Meaning on floats; comparisons give 0 or 1.
    pub float: fn(&[f64]) -> f64,
    /// Meaning on integers, before wrapping to the type's width.
    pub int: fn(&[i64], DType) -> i64,
}

macro_rules! scalar_ops {
    ($($(#[$doc:meta])* $op:ident $name:literal $arity:literal $domain:ident $gives:ident $float:expr, $int:expr;)*) => {
        /// A scalar operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum ScalarOp { $($(#[$doc])* $op,)* }
        static TABLE: &[Info] = &[$(Info {
            op: ScalarOp::$op, name: $name, arity: $arity, domain: Domain::$domain, gives: Gives::$gives,
            float: $float, int: $int,
        },)*];
    };
}

/// For rows whose domain holds no integers: never called.
fn none(_: &[i64], _: DType) -> i64 {
    0
}

/// max and min hand NaN on (IEEE 754-2019 maximum and minimum).
fn maximum(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

fn minimum(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }
}

fn unsigned(d: DType) -> bool {
    d.info().kind == Kind::Unsigned
}

fn less(a: i64, b: i64, d: DType) -> bool {
    if unsigned(d) { (a as u64) < (b as u64) } else { a < b }
}

fn pick(cond: bool, a: i64, b: i64) -> i64 {
    if cond { a } else { b }
}

/// Integer division truncates; by zero it gives 0.
fn div(a: i64, b: i64, d: DType) -> i64 {
    match (b, unsigned(d)) {
        (0, _) => 0,
        (_, true) => (a as u64 / b as u64) as i64,
        _ => a.wrapping_div(b),
    }
}

/// The remainder with the divisor's sign; by zero it gives 0.
fn modulo(a: i64, b: i64, d: DType) -> i64 {
    match (b, unsigned(d)) {
        (0, _) => 0,
        (_, true) => (a as u64 % b as u64) as i64,
        _ => {
            let r = a.wrapping_rem(b);
            if r != 0 && (r < 0) != (b < 0) { r.wrapping_add(b) } else { r }
        }
    }
}

fn float_mod(a: f64, b: f64) -> f64 {
    let r = a % b;
    if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }
}

fn int_pow(a: i64, b: i64, d: DType) -> i64 {
    if b < 0 && !unsigned(d) {
        return match a {
            1 => 1,
            -1 => 1 - 2 * (b & 1),
            _ => 0,
        };
    }
    let (mut base, mut e, mut r) = (a, b as u64, 1i64);
    while e > 0 {
        if e & 1 == 1 {
            r = r.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        e >>= 1;
    }
    r
}

fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 { 1.0 / (1.0 + (-x).exp()) } else { x.exp() / (1.0 + x.exp()) }
}

/// x·Φ(x) with the error function.
fn gelu(x: f64) -> f64 {
    0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

/// The tanh approximation of Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 2.
fn gelu_tanh(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p() + if x.is_nan() { f64::NAN } else { 0.0 }
}

scalar_ops! {
    /// A constant held in the step.
    Const "const" 0 Any Stated |_| 0.0, none;
    /// Conversion to the step's type.
    Cast "cast" 1 Any Stated |a| a[0], |a, _| a[0];
    /// −x.
    Neg "neg" 1 Number Same |a| -a[0], |a, _| a[0].wrapping_neg();
    /// |x|.
    Abs "abs" 1 Number Same |a| a[0].abs(), |a, d| if unsigned(d) { a[0] } else { a[0].wrapping_abs() };
    /// max(x, 0), NaN kept.
    Relu "relu" 1 Number Same |a| maximum(a[0], 0.0), |a, d| if unsigned(d) { a[0] } else { a[0].max(0) };
    /// e^x.
    Exp "exp" 1 Float Same |a| a[0].exp(), none;
    /// Natural logarithm.
    Log "log" 1 Float Same |a| a[0].ln(), none;
    /// Square root.
    Sqrt "sqrt" 1 Float Same |a| a[0].sqrt(), none;
    /// 1/√x.
    Rsqrt "rsqrt" 1 Float Same |a| 1.0 / a[0].sqrt(), none;
    /// Sine of radians.
    Sin "sin" 1 Float Same |a| a[0].sin(), none;
    /// Cosine of radians.
    Cos "cos" 1 Float Same |a| a[0].cos(), none;
    /// Tangent of radians.
    Tan "tan" 1 Float Same |a| a[0].tan(), none;
    /// Arc tangent.
    Atan "atan" 1 Float Same |a| a[0].atan(), none;
    /// Hyperbolic tangent.
    Tanh "tanh" 1 Float Same |a| a[0].tanh(), none;
    /// Error function.
    Erf "erf" 1 Float Same |a| libm::erf(a[0]), none;
    /// 1/(1+e^−x).
    Sigmoid "sigmoid" 1 Float Same |a| sigmoid(a[0]), none;
    /// x·sigmoid(x).
    Silu "silu" 1 Float Same |a| if a[0] == f64::NEG_INFINITY { 0.0 } else { a[0] * sigmoid(a[0]) }, none;
    /// GELU by the error function.
    Gelu "gelu" 1 Float Same |a| if a[0] == f64::NEG_INFINITY { 0.0 } else { gelu(a[0]) }, none;
    /// GELU by the tanh approximation.
    GeluTanh "gelu_tanh" 1 Float Same |a| if a[0] == f64::NEG_INFINITY { 0.0 } else { gelu_tanh(a[0]) }, none;
    /// ln(1+e^x).
    Softplus "softplus" 1 Float Same |a| softplus(a[0]), none;
    /// Nearest integer, halves to even.
    Round "round" 1 Float Same |a| a[0].round_ties_even(), none;
    /// Largest integer not above.
    Floor "floor" 1 Float Same |a| a[0].floor(), none;
    /// Smallest integer not below.
    Ceil "ceil" 1 Float Same |a| a[0].ceil(), none;
    /// Complement of bool and integers.
    Not "not" 1 Bits Same |a| f64::from(a[0] == 0.0), |a, _| !a[0];
    /// a + b.
    Add "add" 2 Number Same |a| a[0] + a[1], |a, _| a[0].wrapping_add(a[1]);
    /// a − b.
    Sub "sub" 2 Number Same |a| a[0] - a[1], |a, _| a[0].wrapping_sub(a[1]);
    /// a · b.
    Mul "mul" 2 Number Same |a| a[0] * a[1], |a, _| a[0].wrapping_mul(a[1]);
    /// a / b; integers truncate, and give 0 by zero.
    Div "div" 2 Number Same |a| a[0] / a[1], |a, d| div(a[0], a[1], d);
    /// The larger, NaN handed on.
    Max "max" 2 Number Same |a| maximum(a[0], a[1]), |a, d| pick(less(a[0], a[1], d), a[1], a[0]);
    /// The smaller, NaN handed on.
    Min "min" 2 Number Same |a| minimum(a[0], a[1]), |a, d| pick(less(a[0], a[1], d), a[0], a[1]);
    /// a to the power b.
    Pow "pow" 2 Number Same |a| a[0].powf(a[1]), |a, d| int_pow(a[0], a[1], d);
    /// Remainder with the sign of the divisor.
    Mod "mod" 2 Number Same |a| float_mod(a[0], a[1]), |a, d| modulo(a[0], a[1], d);
    /// Equal.
    Eq "eq" 2 Any Bool |a| f64::from(a[0] == a[1]), |a, _| i64::from(a[0] == a[1]);
    /// Not equal.
    Ne "ne" 2 Any Bool |a| f64::from(a[0] != a[1]), |a, _| i64::from(a[0] != a[1]);
    /// Less.
    Lt "lt" 2 Number Bool |a| f64::from(a[0] < a[1]), |a, d| i64::from(less(a[0], a[1], d));
    /// Less or equal.
    Le "le" 2 Number Bool |a| f64::from(a[0] <= a[1]), |a, d| i64::from(!less(a[1], a[0], d));
    /// Greater.
    Gt "gt" 2 Number Bool |a| f64::from(a[0] > a[1]), |a, d| i64::from(less(a[1], a[0], d));
    /// Greater or equal.
    Ge "ge" 2 Number Bool |a| f64::from(a[0] >= a[1]), |a, d| i64::from(!less(a[0], a[1], d));
    /// And of bool or bits.
    And "and" 2 Bits Same |a| f64::from(a[0] != 0.0 && a[1] != 0.0), |a, _| a[0] & a[1];
    /// Or of bool or bits.
    Or "or" 2 Bits Same |a| f64::from(a[0] != 0.0 || a[1] != 0.0), |a, _| a[0] | a[1];
    /// Exclusive or of bool or bits.
    Xor "xor" 2 Bits Same |a| f64::from((a[0] != 0.0) != (a[1] != 0.0)), |a, _| a[0] ^ a[1];
    /// The second where the first (bool) holds, else the third.
    Where "where" 3 Any Same |a| if a[0] != 0.0 { a[1] } else { a[2] }, |a, _| pick(a[0] != 0, a[1], a[2]);
    /// min(max(x, lo), hi), NaN handed on.
    Clamp "clamp" 3 Number Same |a| minimum(maximum(a[0], a[1]), a[2]),
        |a, d| { let v = pick(less(a[0], a[1], d), a[1], a[0]); pick(less(a[2], v, d), a[2], v) };
}

impl ScalarOp {
    /// Every op, in table order.
    pub fn all() -> impl Iterator<Item = ScalarOp> {
        TABLE.iter().map(|i| i.op)
    }

    /// Its row.
    pub fn info(self) -> &'static Info {
        &TABLE[self as usize]
    }

    /// Its name in the text format.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// The op called `name`, if there is one.
    pub fn parse(name: &str) -> Option<ScalarOp> {
        TABLE.iter().find(|i| i.name == name).map(|i| i.op)
    }
}

impl Domain {
    /// Whether the domain holds `d` (a compute type).
    pub fn holds(self, d: DType) -> bool {
        match self {
            Domain::Float => d.is_float(),
            Domain::Number => d.is_float() || d.is_int(),
            Domain::Bits => d.is_int() || d == DType::Bool,
            Domain::Any => true,
        }
    }
}
