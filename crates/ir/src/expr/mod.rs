//! Scalar expressions over broadcast operands: the one form of elementwise computation.
//!
//! Values are f32 inside for f32, f16 and bf16, f64 for f64, and exact in their own type for integers and bool; each
//! output is rounded once. The meaning of every step stands in the [`scalar`] table.

pub mod scalar;

use std::fmt;

use smallvec::SmallVec;

pub use scalar::ScalarOp;

use crate::dtype::Kind;
use crate::{DType, round};

/// A value of an [`Expr`]: inputs are numbered first, then steps.
pub type Ref = u16;

/// One scalar step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// What it computes.
    pub op: ScalarOp,
    /// Its arguments: inputs or earlier steps.
    pub args: SmallVec<[Ref; 3]>,
    /// Type of the result: the arguments' compute type, `bool`, or for `const` and `cast` the stated one. A cast to f16 or
    /// bf16 rounds to it and goes on in f32.
    pub dtype: DType,
    /// For `const`: the bits of an f64 (float types) or of an i64 (integers, bool).
    pub imm: u64,
}

/// An output: a value and the type it is stored in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Output {
    /// The value.
    pub value: Ref,
    /// Type stored.
    pub dtype: DType,
}

/// A straight-line scalar program with typed inputs and outputs. Every input broadcasts to the common shape.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Expr {
    /// Types of the inputs.
    pub inputs: SmallVec<[DType; 4]>,
    /// Steps, each reading inputs and earlier steps.
    pub steps: Vec<Step>,
    /// Outputs, at least one.
    pub outputs: SmallVec<[Output; 1]>,
}

/// Why an expression is not well formed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExprError {
    /// A step reads a later value or one that does not exist.
    #[error("step {0} reads value {1}, which is not defined before it")]
    Undefined(usize, Ref),
    /// Wrong number of arguments.
    #[error("`{0}` takes {1} arguments, got {2}")]
    Arity(&'static str, usize, usize),
    /// A type that the op does not take.
    #[error("`{0}` does not take {1}")]
    Domain(&'static str, DType),
    /// Arguments of different types.
    #[error("`{0}` takes arguments of one type, got {1} and {2}; cast one of them")]
    Mixed(&'static str, DType, DType),
    /// `where` with a condition that is not bool.
    #[error("the condition of `where` must be bool, not {0}")]
    Condition(DType),
    /// A storage-only type as an operand.
    #[error(
        "{0} is a storage type; scalar expressions take f64, f32, f16, bf16, whole-byte integers and bool"
    )]
    Storage(DType),
    /// An output whose type differs in kind from its value (write a cast).
    #[error("output {0} has type {1} but its value is {2}; add a cast")]
    Output(usize, DType, DType),
    /// No outputs, or more than 65 000 values.
    #[error("an expression has at least one output and at most 65000 values")]
    Size,
}

/// The type that values of `d` have inside an expression.
pub fn compute_type(d: DType) -> DType {
    match d {
        DType::F16 | DType::BF16 => DType::F32,
        _ => d,
    }
}

/// A scalar in the reference evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// Float, exact in f64.
    Float(f64),
    /// Integer or bool.
    Int(i64),
}

impl Scalar {
    /// The value as f64.
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::Float(v) => v,
            Scalar::Int(v) => v as f64,
        }
    }

    /// Rounded, wrapped or converted to `to`; `from` says how an integer is to be read.
    pub fn cast(self, from: DType, to: DType) -> Scalar {
        let float = match self {
            Scalar::Float(v) => v,
            Scalar::Int(v) if from == DType::U64 => v as u64 as f64,
            Scalar::Int(v) => v as f64,
        };
        match (to, self) {
            (DType::F64, _) => Scalar::Float(float),
            (DType::F16, _) => Scalar::Float(round::to_f16(float).to_f64()),
            (DType::BF16, _) => Scalar::Float(round::to_bf16(float).to_f64()),
            (DType::Bool, _) => Scalar::Int(i64::from(float != 0.0)),
            (d, _) if d.is_float() => Scalar::Float((float as f32).into()),
            (d, Scalar::Int(v)) => Scalar::Int(wrap(v, d)),
            (d, Scalar::Float(v)) => Scalar::Int(saturate(v, d)),
        }
    }
}

/// `v` wrapped to the width of the integer type `d`.
fn wrap(v: i64, d: DType) -> i64 {
    match d {
        DType::I32 => v as i32 as i64,
        DType::I16 => v as i16 as i64,
        DType::I8 => v as i8 as i64,
        DType::U32 => v as u32 as i64,
        DType::U16 => v as u16 as i64,
        DType::U8 => v as u8 as i64,
        DType::Bool => i64::from(v != 0),
        _ => v,
    }
}

/// A float truncated to the integer type `d`, saturating; NaN gives 0.
fn saturate(v: f64, d: DType) -> i64 {
    match d {
        DType::I32 => v as i32 as i64,
        DType::I16 => v as i16 as i64,
        DType::I8 => v as i8 as i64,
        DType::U64 => v as u64 as i64,
        DType::U32 => v as u32 as i64,
        DType::U16 => v as u16 as i64,
        DType::U8 => v as u8 as i64,
        _ => v as i64,
    }
}

impl Expr {
    /// An expression with inputs of these types and no step yet.
    pub fn new(inputs: &[DType]) -> Expr {
        Expr { inputs: inputs.into(), ..Expr::default() }
    }

    /// The one-step expression `op(inputs…)` stored as `out`.
    pub fn single(op: ScalarOp, inputs: &[DType], out: DType) -> Expr {
        let mut e = Expr::new(inputs);
        let args: Vec<Ref> = (0..inputs.len() as Ref).collect();
        let v = e.push(op, &args);
        e.output(v, out);
        e
    }

    /// Appends a step and gives its value. The type follows the table.
    pub fn push(&mut self, op: ScalarOp, args: &[Ref]) -> Ref {
        let dtype = match op.info().gives {
            scalar::Gives::Bool => DType::Bool,
            _ => args.last().map_or(DType::F32, |a| self.value_type(*a)),
        };
        self.push_step(Step { op, args: args.into(), dtype, imm: 0 })
    }

    /// Appends a conversion to `to`.
    pub fn cast(&mut self, value: Ref, to: DType) -> Ref {
        self.push_step(Step { op: ScalarOp::Cast, args: SmallVec::from_slice(&[value]), dtype: to, imm: 0 })
    }

    /// Appends a constant of type `dtype`.
    pub fn constant(&mut self, dtype: DType, value: f64) -> Ref {
        let imm = if dtype.is_float() { value.to_bits() } else { value as i64 as u64 };
        self.push_step(Step { op: ScalarOp::Const, args: SmallVec::new(), dtype, imm })
    }

    /// Appends a finished step.
    pub fn push_step(&mut self, step: Step) -> Ref {
        self.steps.push(step);
        (self.inputs.len() + self.steps.len() - 1) as Ref
    }

    /// Declares `value` as the next output, stored as `dtype`.
    pub fn output(&mut self, value: Ref, dtype: DType) {
        self.outputs.push(Output { value, dtype });
    }

    /// The compute type of a value; f32 for one that does not exist (which `check` reports).
    pub fn value_type(&self, r: Ref) -> DType {
        let r = r as usize;
        let d = match self.inputs.get(r) {
            Some(d) => Some(*d),
            None => self.steps.get(r - self.inputs.len()).map(|s| s.dtype),
        };
        d.map_or(DType::F32, compute_type)
    }

    /// Whether it is `output = input 0`, stored unchanged.
    pub fn is_identity(&self) -> bool {
        self.inputs.len() == 1
            && self.outputs.len() == 1
            && self.outputs[0].value == 0
            && self.outputs[0].dtype == self.inputs[0]
    }

    /// Checks the whole expression.
    ///
    /// # Errors
    /// See [`ExprError`].
    pub fn check(&self) -> Result<(), ExprError> {
        if self.outputs.is_empty() || self.inputs.len() + self.steps.len() > 65_000 {
            return Err(ExprError::Size);
        }
        let storage = |d: DType| if d.is_compute() { Ok(()) } else { Err(ExprError::Storage(d)) };
        self.inputs.iter().copied().try_for_each(storage)?;
        for (i, s) in self.steps.iter().enumerate() {
            storage(s.dtype)?;
            self.check_step(i, s)?;
        }
        for (i, o) in self.outputs.iter().enumerate() {
            storage(o.dtype)?;
            if o.value as usize >= self.inputs.len() + self.steps.len() {
                return Err(ExprError::Undefined(self.steps.len(), o.value));
            }
            let v = self.value_type(o.value);
            if compute_type(o.dtype) != v {
                return Err(ExprError::Output(i, o.dtype, v));
            }
        }
        Ok(())
    }

    fn check_step(&self, i: usize, s: &Step) -> Result<(), ExprError> {
        let info = s.op.info();
        if s.args.len() != info.arity {
            return Err(ExprError::Arity(info.name, info.arity, s.args.len()));
        }
        if let Some(a) = s.args.iter().find(|a| **a as usize >= self.inputs.len() + i) {
            return Err(ExprError::Undefined(i, *a));
        }
        let mut args = s.args.iter().map(|a| self.value_type(*a));
        if s.op == ScalarOp::Where {
            let c = args.next().unwrap_or(DType::Bool);
            if c != DType::Bool {
                return Err(ExprError::Condition(c));
            }
        }
        let Some(first) = args.next() else { return Ok(()) };
        if !info.domain.holds(first) {
            return Err(ExprError::Domain(info.name, first));
        }
        match args.find(|d| *d != first) {
            Some(d) => Err(ExprError::Mixed(info.name, first, d)),
            None => Ok(()),
        }
    }

    /// Evaluates at one point, each step rounded to its compute type: the reference.
    pub fn eval(&self, inputs: &[Scalar]) -> Vec<Scalar> {
        let mut v = inputs.to_vec();
        for s in &self.steps {
            v.push(self.eval_step(s, &v));
        }
        self.outputs.iter().map(|o| v[o.value as usize].cast(self.value_type(o.value), o.dtype)).collect()
    }

    fn eval_step(&self, s: &Step, v: &[Scalar]) -> Scalar {
        let kind = |d: DType| if d.is_float() || d == DType::Bool { Kind::Float } else { Kind::Signed };
        match s.op {
            ScalarOp::Const if s.dtype.is_float() => {
                Scalar::Float(f64::from_bits(s.imm)).cast(DType::F64, s.dtype)
            }
            ScalarOp::Const => Scalar::Int(s.imm as i64),
            ScalarOp::Cast => v[s.args[0] as usize].cast(self.value_type(s.args[0]), s.dtype),
            op => {
                let domain = self.value_type(*s.args.last().unwrap_or(&0));
                let r = if kind(domain) == Kind::Float {
                    let a: SmallVec<[f64; 3]> = s.args.iter().map(|a| v[*a as usize].to_f64()).collect();
                    Scalar::Float((op.info().float)(&a))
                } else {
                    let int = |s: Scalar| match s {
                        Scalar::Int(i) => i,
                        Scalar::Float(f) => f as i64,
                    };
                    let a: SmallVec<[i64; 3]> = s.args.iter().map(|a| int(v[*a as usize])).collect();
                    Scalar::Int((op.info().int)(&a, domain))
                };
                r.cast(compute_type(s.dtype), compute_type(s.dtype))
            }
        }
    }

    /// The expression `self` with its input `at` computed by output `which` of `inner`. Inputs are those of `self` without `at`,
    /// then those of `inner`. A value stored as f16 or bf16 by `inner` is rounded to it on the way.
    pub fn compose(&self, at: usize, inner: &Expr, which: usize) -> Expr {
        let mut inputs: SmallVec<[DType; 4]> = self.inputs.clone();
        inputs.remove(at);
        let outer_inputs = inputs.len() as Ref;
        inputs.extend(inner.inputs.iter().copied());
        let n = inputs.len() as Ref;
        let mut e = Expr { inputs, ..Expr::default() };
        let inner_n = inner.inputs.len() as Ref;
        for s in &inner.steps {
            let args = s
                .args
                .iter()
                .map(|a| if *a < inner_n { outer_inputs + a } else { n + a - inner_n })
                .collect();
            e.steps.push(Step { args, ..s.clone() });
        }
        let o = inner.outputs[which];
        let mut fed = if o.value < inner_n { outer_inputs + o.value } else { n + o.value - inner_n };
        if o.dtype != compute_type(o.dtype) {
            fed = e.cast(fed, o.dtype);
        }
        let shift = n + e.steps.len() as Ref;
        let old = self.inputs.len() as Ref;
        let map = |a: Ref| match a {
            a if a as usize == at => fed,
            a if a >= old => shift + a - old,
            a if (a as usize) < at => a,
            a => a - 1,
        };
        for s in &self.steps {
            e.steps.push(Step { args: s.args.iter().map(|a| map(*a)).collect(), ..s.clone() });
        }
        e.outputs = self.outputs.iter().map(|o| Output { value: map(o.value), dtype: o.dtype }).collect();
        e
    }
}

/// Prints as `{(f32, f32) 2=mul(0,1) 3=silu(2) -> 3:f32}`; constants as `4=const:f32(0.5)`, casts as `5=cast:f16(4)`.
impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{(")?;
        for (i, d) in self.inputs.iter().enumerate() {
            write!(f, "{}{d}", if i > 0 { ", " } else { "" })?;
        }
        f.write_str(")")?;
        for (i, s) in self.steps.iter().enumerate() {
            write!(f, " {}={}", self.inputs.len() + i, s.op.name())?;
            if s.op.info().gives == scalar::Gives::Stated {
                write!(f, ":{}", s.dtype)?;
            }
            f.write_str("(")?;
            if s.op == ScalarOp::Const {
                match s.dtype.is_float() {
                    true => write!(f, "{:?}", f64::from_bits(s.imm))?,
                    false => write!(f, "{}", s.imm as i64)?,
                }
            }
            for (j, a) in s.args.iter().enumerate() {
                write!(f, "{}{a}", if j > 0 { "," } else { "" })?;
            }
            f.write_str(")")?;
        }
        f.write_str(" ->")?;
        for (i, o) in self.outputs.iter().enumerate() {
            write!(f, "{} {}:{}", if i > 0 { "," } else { "" }, o.value, o.dtype)?;
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compose_feeds_one_into_the_other() {
        let mul = Expr::single(ScalarOp::Mul, &[DType::F32, DType::F32], DType::F32);
        let silu = Expr::single(ScalarOp::Silu, &[DType::F32], DType::F32);
        let e = mul.compose(0, &silu, 0);
        e.check().unwrap();
        // Inputs: mul's second operand, then silu's operand.
        let v = e.eval(&[Scalar::Float(3.0), Scalar::Float(0.0)]);
        assert_eq!(v, [Scalar::Float(0.0)]);
        assert_eq!(e.to_string(), "{(f32, f32) 2=silu(1) 3=mul(2,0) -> 3:f32}");
    }

    #[test]
    fn nan_and_integer_rules() {
        let max = Expr::single(ScalarOp::Max, &[DType::F32; 2], DType::F32);
        assert!(max.eval(&[Scalar::Float(f64::NAN), Scalar::Float(1.0)])[0].to_f64().is_nan());
        let add = Expr::single(ScalarOp::Add, &[DType::I8; 2], DType::I8);
        assert_eq!(add.eval(&[Scalar::Int(127), Scalar::Int(1)]), [Scalar::Int(-128)]);
        let sp = Expr::single(ScalarOp::Softplus, &[DType::F32], DType::F32);
        let v = sp.eval(&[Scalar::Float(-12.3392)])[0].to_f64();
        assert!((v - 4.3768e-6).abs() < 1e-9, "{v}");
    }

    #[test]
    fn check_names_the_fault() {
        let e = Expr::single(ScalarOp::Add, &[DType::F32, DType::I32], DType::I32);
        assert_eq!(e.check(), Err(ExprError::Mixed("add", DType::F32, DType::I32)));
        let e = Expr::single(ScalarOp::Exp, &[DType::I32], DType::I32);
        assert_eq!(e.check(), Err(ExprError::Domain("exp", DType::I32)));
    }
}
