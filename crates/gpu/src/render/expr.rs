//! Scalar expressions as text: a function for each expression, and the macro that feeds it from operands and stores what
//! it gives. The table below is the only place that knows scalar ops; their meaning is that of `frit_ir::expr::scalar`.

use std::fmt::Write;

use frit_ir::DType;
use frit_ir::dtype::Kind;
use frit_ir::expr::{Expr, ScalarOp, Step, compute_type};

use super::{List, Spec, c_types, ident, misfit, param};
use crate::error::GpuError;

/// Templates of an op on floats and on integers (and bool). `{0}` to `{2}` are its arguments, `{t}` the type of its
/// operands, `{s}` that type's name in functions, `{w}` an unsigned type that is at least as wide as `int`.
static OPS: &[(ScalarOp, &str, &str)] = &[
    (ScalarOp::Neg, "-{0}", "({t})(0 - ({w}){0})"),
    (ScalarOp::Abs, "abs_{s}({0})", "({t})({0} < 0 ? 0 - ({w}){0} : ({w}){0})"),
    (ScalarOp::Relu, "max_{s}({0}, 0)", "({t})({0} < 0 ? 0 : {0})"),
    (ScalarOp::Exp, "exp_{s}({0})", ""),
    (ScalarOp::Log, "log_{s}({0})", ""),
    (ScalarOp::Sqrt, "sqrt_{s}({0})", ""),
    (ScalarOp::Rsqrt, "1 / sqrt_{s}({0})", ""),
    (ScalarOp::Sin, "sin_{s}({0})", ""),
    (ScalarOp::Cos, "cos_{s}({0})", ""),
    (ScalarOp::Tan, "tan_{s}({0})", ""),
    (ScalarOp::Atan, "atan_{s}({0})", ""),
    (ScalarOp::Tanh, "tanh_{s}({0})", ""),
    (ScalarOp::Erf, "erf_{s}({0})", ""),
    (ScalarOp::Sigmoid, "sigmoid_{s}({0})", ""),
    (ScalarOp::Silu, "silu_{s}({0})", ""),
    (ScalarOp::Gelu, "gelu_{s}({0})", ""),
    (ScalarOp::GeluTanh, "gelu_tanh_{s}({0})", ""),
    (ScalarOp::Softplus, "softplus_{s}({0})", ""),
    (ScalarOp::Round, "round_{s}({0})", ""),
    (ScalarOp::Floor, "floor_{s}({0})", ""),
    (ScalarOp::Ceil, "ceil_{s}({0})", ""),
    (ScalarOp::Not, "", "({t})~{0}"),
    (ScalarOp::Add, "{0} + {1}", "({t})(({w}){0} + ({w}){1})"),
    (ScalarOp::Sub, "{0} - {1}", "({t})(({w}){0} - ({w}){1})"),
    (ScalarOp::Mul, "{0} * {1}", "({t})(({w}){0} * ({w}){1})"),
    (ScalarOp::Div, "{0} / {1}", "div_{s}({0}, {1})"),
    (ScalarOp::Max, "max_{s}({0}, {1})", "({0} < {1} ? {1} : {0})"),
    (ScalarOp::Min, "min_{s}({0}, {1})", "({0} < {1} ? {0} : {1})"),
    (ScalarOp::Pow, "pow_{s}({0}, {1})", "pow_{s}({0}, {1})"),
    (ScalarOp::Mod, "mod_{s}({0}, {1})", "mod_{s}({0}, {1})"),
    (ScalarOp::Eq, "({0} == {1})", "({0} == {1})"),
    (ScalarOp::Ne, "({0} != {1})", "({0} != {1})"),
    (ScalarOp::Lt, "({0} < {1})", "({0} < {1})"),
    (ScalarOp::Le, "({0} <= {1})", "({0} <= {1})"),
    (ScalarOp::Gt, "({0} > {1})", "({0} > {1})"),
    (ScalarOp::Ge, "({0} >= {1})", "({0} >= {1})"),
    (ScalarOp::And, "", "({t})({0} & {1})"),
    (ScalarOp::Or, "", "({t})({0} | {1})"),
    (ScalarOp::Xor, "", "({t})({0} ^ {1})"),
    (ScalarOp::Where, "({0} ? {1} : {2})", "({0} ? {1} : {2})"),
    (
        ScalarOp::Clamp,
        "min_{s}(max_{s}({0}, {1}), {2})",
        "({2} < ({0} < {1} ? {1} : {0}) ? {2} : ({0} < {1} ? {1} : {0}))",
    ),
];

/// The type of a value and its name in functions.
fn value(d: DType) -> (&'static str, String) {
    let d = compute_type(d);
    (c_types(d).1, ident(d))
}

/// The right side of a step.
fn step(e: &Expr, s: &Step) -> String {
    match s.op {
        ScalarOp::Const => return constant(s.dtype, s.imm),
        ScalarOp::Cast => {
            let from = e.value_type(s.args[0]);
            return cast(&format!("v{}", s.args[0]), from, s.dtype);
        }
        _ => {}
    }
    let d = s.args.last().map_or(DType::F32, |a| e.value_type(*a));
    let (t, name) = value(d);
    let template = OPS.iter().find(|r| r.0 == s.op).map_or("", |r| if d.is_float() { r.1 } else { r.2 });
    // The complement of a truth value is the other one, not that of its bits.
    let template = if (s.op, d) == (ScalarOp::Not, DType::Bool) { "!{0}" } else { template };
    let wide = if d.info().unit_bytes == 8 { "u64" } else { "u32" };
    let mut out = template.replace("{t}", t).replace("{s}", &name).replace("{w}", wide);
    for (i, a) in s.args.iter().enumerate() {
        out = out.replace(&format!("{{{i}}}"), &format!("v{a}"));
    }
    out
}

fn constant(d: DType, imm: u64) -> String {
    let (t, _) = value(d);
    match d {
        _ if !d.is_float() => format!("({t})0x{imm:x}"),
        DType::F64 => double(f64::from_bits(imm)),
        DType::F16 => float(half(f64::from_bits(imm), 10, -14, 65504.0)),
        DType::BF16 => float(half(f64::from_bits(imm), 7, -126, f64::from(f32::MAX))),
        _ => float(f64::from_bits(imm) as f32),
    }
}

/// `v` rounded to `bits` bits of mantissa with exponents from `least` on, halves to even; beyond `most` infinite.
fn half(v: f64, bits: i32, least: i32, most: f64) -> f32 {
    if !v.is_finite() || v == 0.0 {
        return v as f32;
    }
    let exponent = (v.abs().log2().floor() as i32).max(least);
    let unit = 2f64.powi(exponent - bits);
    let r = (v / unit).round_ties_even() * unit;
    if r.abs() > most { f32::INFINITY.copysign(r as f32) } else { r as f32 }
}

fn float(v: f32) -> String {
    if v.is_finite() { format!("({v:?}f)") } else { format!("AS_FLOAT(0x{:x})", v.to_bits()) }
}

fn double(v: f64) -> String {
    match v {
        _ if v.is_finite() => format!("({v:?})"),
        _ if v.is_nan() => format!("((double)AS_FLOAT(0x{:x}))", f32::NAN.to_bits()),
        _ => format!("((double)AS_FLOAT(0x{:x}))", (v as f32).to_bits()),
    }
}

/// `v` of type `from` as `to`; f16 and bf16 round and go on in f32.
fn cast(v: &str, from: DType, to: DType) -> String {
    let (t, _) = value(to);
    let wide = from.size().is_some_and(|n| n >= if from.is_float() { 8 } else { 4 });
    let narrow = if wide { format!("FLOAT_FOR_HALF({v})") } else { format!("(float){v}") };
    match to {
        DType::F16 => format!("f16_to_f32(f32_to_f16({narrow}))"),
        DType::BF16 => format!("bf16_to_f32(f32_to_bf16({narrow}))"),
        DType::Bool => format!("({v} != 0)"),
        _ if from.is_float() && to.is_int() => {
            let (bits, signed) = (8 * to.info().unit_bytes as i32, to.info().kind == Kind::Signed);
            let most = if signed { u64::MAX >> (65 - bits) } else { u64::MAX >> (64 - bits) };
            let (lo, least) = match signed {
                true => (-2f64.powi(bits - 1), format!("({t})(-({t})0x{most:x} - 1)")),
                false => (0.0, format!("({t})0")),
            };
            let hi = 2f64.powi(if signed { bits - 1 } else { bits });
            let real = |x: f64| if from == DType::F64 { double(x) } else { float(x as f32) };
            format!("SATURATE({t}, {v}, {}, {}, {least}, ({t})0x{most:x})", real(lo), real(hi))
        }
        _ => format!("({t}){v}"),
    }
}

/// The function of expression `g`: its values in, a struct of its outputs out.
fn function(t: &mut String, g: usize, e: &Expr) {
    let _ = write!(t, "\nstruct frit_expr_{g} {{");
    for (i, o) in e.outputs.iter().enumerate() {
        let _ = write!(t, " {} y{i};", value(o.dtype).0);
    }
    let args: Vec<String> =
        e.inputs.iter().enumerate().map(|(i, d)| format!("{} v{i}", value(*d).0)).collect();
    let args = if args.is_empty() { "void".into() } else { args.join(", ") };
    let _ = writeln!(t, " }};\nHELPER struct frit_expr_{g} frit_run_{g}({args}) {{");
    for (i, s) in e.steps.iter().enumerate() {
        let _ = writeln!(t, "    const {} v{} = {};", value(s.dtype).0, e.inputs.len() + i, step(e, s));
    }
    let _ = writeln!(t, "    struct frit_expr_{g} r;");
    for (i, o) in e.outputs.iter().enumerate() {
        let _ = writeln!(t, "    r.y{i} = v{};", o.value);
    }
    t.push_str("    return r;\n}\n");
}

/// The operands `first..first + n` of `list` from which the values of expression `g` come.
fn sources(t: &mut String, g: usize, list: &str, first: usize, n: usize) {
    let each: Vec<String> = (0..n).map(|j| format!("M({list}_{}, {j})", first + j)).collect();
    let values: String = (0..n).map(|j| format!(", V({j})")).collect();
    let _ = writeln!(t, "#define COUNT_OF_{g} {n}\n#define EACH_OF_{g}(M) {}", each.join(" "));
    let _ = writeln!(t, "#define DIM_OF_{g}(d) DIM({list}_{first}, d)");
    let _ = writeln!(t, "#define APPLY_OF_{g}(i, V) APPLY_{g}(i{values})");
}

/// Every expression of the step, and how the kernel applies it.
pub(super) fn render(t: &mut String, spec: &Spec, lists: &[List]) -> Result<(), GpuError> {
    let each: Vec<String> = (0..spec.exprs.len()).map(|g| format!("M({g})")).collect();
    let _ = writeln!(t, "#define EXPRS {}\n#define EACH_EXPR(M) {}", spec.exprs.len(), each.join(" "));
    let Some(binding) = spec.row.exprs else {
        return match spec.exprs.len() {
            0 => Ok(()),
            _ => Err(misfit(spec.row, "its kernel runs no expressions")),
        };
    };
    let length = |name: &str| lists.iter().find(|l| l.name == name).map_or(0, |l| l.count);
    let (mut input, mut output, mut source) = (0, 0, 0);
    for (g, e) in spec.exprs.iter().enumerate() {
        function(t, g, e);
        let given = match binding.values.get(g) {
            Some(name) => param(spec, name)
                .and_then(|v| usize::try_from(v).ok())
                .ok_or_else(|| misfit(spec.row, format!("the parameter `{name}` is no constant")))?,
            None => 0,
        };
        let Some(rest) = e.inputs.len().checked_sub(given) else {
            return Err(misfit(spec.row, format!("expression {g} takes fewer than {given} values")));
        };
        let mut args: Vec<String> = (0..given).map(|i| format!("(a{i})")).collect();
        let out = format!("{}_{output}", binding.outputs);
        let extras: Vec<String> = (input..input + rest).map(|i| format!("{}_{i}", binding.inputs)).collect();
        let broadcast =
            |x: &String| format!("LOAD({x}, frit_broadcast(OPERAND({x}), OPERAND({out}), frit_i))");
        args.extend(extras.iter().map(broadcast));
        let names: String = (0..given).map(|i| format!(", a{i}")).collect();
        let call = args.join(", ");
        let _ = write!(t, "#define APPLY_{g}(frit_i{names}) do {{ ");
        let _ = write!(t, "const struct frit_expr_{g} frit_r = frit_run_{g}({call}); ");
        for i in 0..e.outputs.len() {
            let _ = write!(t, "STORE({}_{}, frit_i, frit_r.y{i}); ", binding.outputs, output + i);
        }
        t.push_str("} while (0)\n");
        if !binding.from.is_empty() {
            sources(t, g, binding.from, source, given);
            let at = |x: &String| format!("LOAD({x}, INDEX({x}, {out}))");
            let args: Vec<String> =
                (0..given).map(|j| format!("V({j})")).chain(extras.iter().map(at)).collect();
            let _ = writeln!(t, "#define EVAL_OF_{g}(INDEX, V) frit_run_{g}({})", args.join(", "));
            let each: Vec<String> = extras.iter().map(|x| format!("M({x}, {out})")).collect();
            let _ = writeln!(t, "#define EXTRAS_OF_{g}(M) {}", each.join(" "));
            let result = |i| format!("M({}_{}, y{i})", binding.outputs, output + i);
            let each: Vec<String> = (0..e.outputs.len()).map(result).collect();
            let _ = writeln!(t, "#define RESULTS_OF_{g}(M) {}", each.join(" "));
        }
        (input, output, source) = (input + rest, output + e.outputs.len(), source + given);
    }
    if input != length(binding.inputs) || output != length(binding.outputs) {
        return Err(misfit(spec.row, "its expressions take other operands than there are"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_op_has_a_text_for_every_type_it_takes() {
        for op in ScalarOp::all().filter(|op| !matches!(op, ScalarOp::Const | ScalarOp::Cast)) {
            let row = OPS.iter().find(|r| r.0 == op).unwrap_or_else(|| panic!("{}", op.name()));
            let domain = op.info().domain;
            assert_eq!(domain.holds(DType::F32), !row.1.is_empty(), "{}", op.name());
            assert_eq!(domain.holds(DType::I32), !row.2.is_empty(), "{}", op.name());
        }
    }

    #[test]
    fn constants_are_rounded_to_their_type() {
        let text = |d, v: f64| constant(d, v.to_bits());
        assert_eq!(text(DType::F32, 0.1), "(0.1f)");
        assert_eq!(text(DType::F16, 0.1), "(0.099975586f)");
        assert_eq!(text(DType::BF16, 0.1), "(0.100097656f)");
        assert_eq!(text(DType::F16, 65520.0), "AS_FLOAT(0x7f800000)");
        assert_eq!(text(DType::F16, 2f64.powi(-24) * 0.75), "(5.9604645e-8f)");
        assert_eq!(constant(DType::I32, -5i64 as u64), "(i32)0xfffffffffffffffb");
    }

    #[test]
    fn steps_read_as_they_are_meant() {
        let mut e = Expr::new(&[DType::I16, DType::F32]);
        let sum = e.push(ScalarOp::Add, &[0, 0]);
        let i = e.cast(1, DType::I8);
        assert_eq!(step(&e, &e.steps[sum as usize - 2]), "(i16)((u32)v0 + (u32)v0)");
        let want = "SATURATE(i8, v1, (-128.0f), (128.0f), (i8)(-(i8)0x7f - 1), (i8)0x7f)";
        assert_eq!(step(&e, &e.steps[i as usize - 2]), want);
    }
}
