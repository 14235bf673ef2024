//! Text to graphs.

use std::sync::Arc;

use smallvec::SmallVec;

use super::ParseError;
use super::cursor::{Cursor, one_nan};
use super::dim::{MAX_FACTORS, dim, factors};
use crate::attr::{Attr, Attrs};
use crate::expr::{Expr, Output, Ref, ScalarOp, Step, scalar};
use crate::graph::{Graph, Type, ValueId};
use crate::op::Registry;
use crate::symbols::{DimGuard, Relation};
use crate::tensor::Tensor;
use crate::{DType, Dim};

/// Highest rank of a value.
const MAX_RANK: usize = 32;

/// Most terms that the element count of a value may have.
const MAX_SHAPE_TERMS: usize = 64;

/// Reads a graph; the ops in it must be in `registry`, and the types that it states must be those that the ops infer.
///
/// # Errors
/// What is wrong, at which line and column.
pub fn parse(text: &str, registry: &Registry) -> Result<Graph, ParseError> {
    let mut g = Graph::default();
    for (i, line) in text.lines().enumerate() {
        let mut c = Cursor::new(line, i + 1);
        match c.peek() {
            None | Some('#') => continue,
            Some('%' | '=') => node(&mut c, &mut g, registry)?,
            Some(_) => statement(&mut c, &mut g)?,
        }
        c.end()?;
    }
    Ok(g)
}

type Statement = fn(&mut Cursor, &mut Graph) -> Result<(), ParseError>;

const STATEMENTS: &[(&str, Statement)] = &[
    ("graph", |c, g| {
        g.name = c.quoted()?;
        Ok(())
    }),
    ("symbol", symbol),
    ("bound", bound),
    ("guard", guard),
    ("input", |c, g| declare(c, g, Graph::input)),
    ("param", |c, g| declare(c, g, Graph::param)),
    ("state", |c, g| declare(c, g, Graph::state)),
    ("const", constant),
    ("output", output),
    ("update", update),
];

fn statement(c: &mut Cursor, g: &mut Graph) -> Result<(), ParseError> {
    let at = c.position();
    let word = c.take_while(|x| x.is_ascii_alphanumeric());
    match STATEMENTS.iter().find(|(n, _)| *n == word) {
        Some((_, f)) => f(c, g),
        None => {
            let known = STATEMENTS.iter().map(|(n, _)| *n).collect::<Vec<_>>().join(", ");
            Err(c.error_at(at, format!("a line starts with `%`, `#` or one of {known}")))
        }
    }
}

/// What inference proves depends on the symbols, so all are declared before the first value.
fn before_values(c: &Cursor, g: &Graph) -> Result<(), ParseError> {
    match g.values().is_empty() && g.nodes().is_empty() {
        true => Ok(()),
        false => Err(c.error("symbols and bounds stand before all values")),
    }
}

fn symbol(c: &mut Cursor, g: &mut Graph) -> Result<(), ParseError> {
    before_values(c, g)?;
    let at = c.position();
    let name = c.word()?;
    if name.starts_with(|x: char| x.is_ascii_digit()) {
        return Err(c.error_at(at, "a symbol's name does not start with a digit"));
    }
    let min = c.integer()?;
    c.expect("..=")?;
    let max = c.integer()?;
    g.symbols.declare(name, min, max).map_err(|e| c.error_at(at, e.to_string()))?;
    Ok(())
}

fn bound(c: &mut Cursor, g: &mut Graph) -> Result<(), ParseError> {
    before_values(c, g)?;
    let d = dim(c)?;
    c.expect("<=")?;
    let max = c.integer()?;
    g.symbols.bound(d, max);
    Ok(())
}

fn guard(c: &mut Cursor, g: &mut Graph) -> Result<(), ParseError> {
    let left = dim(c)?;
    let relation = match c.eat("==") {
        true => Relation::Equal,
        false => {
            c.expect("<=")?;
            Relation::AtMost
        }
    };
    let right = dim(c)?;
    let why = c.quoted()?;
    g.guards.push(DimGuard { left, relation, right, why });
    Ok(())
}

type Declare = fn(&mut Graph, &str, Type) -> Result<ValueId, crate::graph::GraphError>;

fn declare(c: &mut Cursor, g: &mut Graph, f: Declare) -> Result<(), ParseError> {
    let at = c.position();
    let (name, ty) = typed_name(c)?;
    f(g, &name, ty).map_err(|e| c.error_at(at, e.to_string()))?;
    Ok(())
}

/// `%name: type`.
fn typed_name(c: &mut Cursor) -> Result<(String, Type), ParseError> {
    c.expect("%")?;
    let name = c.name()?;
    c.expect(":")?;
    Ok((name, ty(c)?))
}

fn ty(c: &mut Cursor) -> Result<Type, ParseError> {
    let at = c.position();
    let dtype = dtype(c)?;
    c.expect("[")?;
    let shape = c.list("]", dim)?;
    let terms = shape.iter().try_fold(1usize, |a, d| a.checked_mul(d.terms().len().max(1)));
    let simple = terms.is_some_and(|t| t <= MAX_SHAPE_TERMS)
        && shape.iter().map(factors).sum::<usize>() <= MAX_FACTORS;
    if shape.len() > MAX_RANK || !simple {
        return Err(c.error_at(
            at,
            format!(
                "a shape has at most {MAX_RANK} extents, whose product has at most {MAX_SHAPE_TERMS} terms of at most {MAX_FACTORS} factors"
            ),
        ));
    }
    Ok(Type { dtype, shape: shape.into() })
}

fn dtype(c: &mut Cursor) -> Result<DType, ParseError> {
    let at = c.position();
    let w = c.word()?;
    DType::parse(w).ok_or_else(|| {
        let all = DType::all().map(DType::name).collect::<Vec<_>>().join(", ");
        c.error_at(at, format!("`{w}` is no element type; known are {all}"))
    })
}

fn constant(c: &mut Cursor, g: &mut Graph) -> Result<(), ParseError> {
    let (name, ty) = typed_name(c)?;
    c.expect("=")?;
    let at = c.position();
    let extent = |d: &Dim| d.as_const().and_then(|v| usize::try_from(v).ok());
    let shape: Option<Vec<usize>> = ty.shape.iter().map(extent).collect();
    let shape = shape.ok_or_else(|| c.error_at(at, "the extents of a constant are integers"))?;
    let tensor = if c.eat("[") {
        let values = c.list("]", Cursor::float)?;
        Tensor::from_f64(ty.dtype, &shape, &values)
    } else {
        c.expect("0x")?;
        let hex = c.take_while(|x| x.is_ascii_hexdigit());
        let bytes: Option<Vec<u8>> = hex
            .len()
            .is_multiple_of(2)
            .then(|| (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).ok()).collect())
            .flatten();
        Tensor::new(ty.dtype, &shape, bytes.ok_or_else(|| c.error_at(at, "an odd number of hex digits"))?)
    };
    let tensor = tensor.map_err(|e| c.error_at(at, e.to_string()))?;
    g.constant(&name, tensor).map_err(|e| c.error_at(at, e.to_string()))?;
    Ok(())
}

fn value(c: &mut Cursor, g: &Graph) -> Result<ValueId, ParseError> {
    let at = c.position();
    c.expect("%")?;
    let name = c.name()?;
    g.find(&name).ok_or_else(|| c.error_at(at, format!("`%{name}` is not defined before this line")))
}

fn output(c: &mut Cursor, g: &mut Graph) -> Result<(), ParseError> {
    let at = c.position();
    let name = c.quoted()?;
    c.expect("=")?;
    let v = value(c, g)?;
    g.output(&name, v).map_err(|e| c.error_at(at, e.to_string()))
}

fn update(c: &mut Cursor, g: &mut Graph) -> Result<(), ParseError> {
    let at = c.position();
    let first = value(c, g)?;
    c.expect("=")?;
    let last = value(c, g)?;
    g.update(first, last).map_err(|e| c.error_at(at, e.to_string()))
}

fn node(c: &mut Cursor, g: &mut Graph, registry: &Registry) -> Result<(), ParseError> {
    let start = c.position();
    let results = c.list("=", typed_name)?;
    let at = c.position();
    let op = c.name()?;
    c.expect("(")?;
    let inputs = c.list(")", |c| if c.eat("_") { Ok(ValueId::NONE) } else { value(c, g) })?;
    let mut attrs = Attrs::new();
    if c.eat("{") {
        for (name, a) in c.list("}", named_attr)? {
            if attrs.get(&name).is_some() {
                return Err(c.error(format!("the attribute `{name}` is given twice")));
            }
            attrs.set(&name, a);
        }
    }
    let names: Vec<&str> = results.iter().map(|(n, _)| n.as_str()).collect();
    if let Some(n) = names.iter().enumerate().find(|(i, n)| g.find(n).is_some() || names[..*i].contains(n)) {
        return Err(c.error_at(start, format!("the name `%{}` is taken", n.1)));
    }
    let made = g.push(registry, &op, attrs, &inputs, &names).map_err(|e| c.error_at(at, e.to_string()))?;
    if made.len() != results.len() {
        return Err(c.error_at(start, format!("`{op}` gives {} results", made.len())));
    }
    for (v, (name, ty)) in made.iter().zip(&results) {
        if g.ty(*v) != ty {
            return Err(c.error_at(start, format!("`%{name}` has the type {}, not {ty}", g.ty(*v))));
        }
    }
    Ok(())
}

fn named_attr(c: &mut Cursor) -> Result<(String, Attr), ParseError> {
    let name = c.name()?;
    c.expect("=")?;
    Ok((name, attr(c)?))
}

fn attr(c: &mut Cursor) -> Result<Attr, ParseError> {
    match c.peek() {
        Some('[') => {
            c.expect("[")?;
            c.nested(|c| c.list("]", attr)).map(Attr::List)
        }
        Some('{') => expr(c).map(|e| Attr::Expr(Arc::new(e))),
        Some('"') => c.quoted().map(|s| Attr::Str(s.into())),
        Some('(') => {
            c.expect("(")?;
            let d = c.nested(dim)?;
            c.expect(")")?;
            Ok(Attr::Dim(d))
        }
        Some(x) if x.is_ascii_digit() || x == '-' => number(c),
        _ => word(c),
    }
}

fn number(c: &mut Cursor) -> Result<Attr, ParseError> {
    let at = c.position();
    let text = c.number()?;
    if let Ok(v) = text.parse::<i64>() {
        return Ok(Attr::Int(v));
    }
    let error = |_| c.error_at(at, format!("`{text}` is no number, or an integer beyond 64 bits"));
    match text.contains(['.', 'e', 'E', 'i', 'N']) {
        true => text.parse().map(|v| Attr::Float(one_nan(v))).map_err(|_| error(())),
        false => Err(error(())),
    }
}

fn word(c: &mut Cursor) -> Result<Attr, ParseError> {
    let at = c.position();
    let w = c.word().map_err(|_| c.error_at(at, "expected an attribute value"))?;
    Ok(match w {
        "true" => Attr::Bool(true),
        "false" => Attr::Bool(false),
        "NaN" => Attr::Float(f64::NAN),
        "inf" => Attr::Float(f64::INFINITY),
        _ => Attr::DType(DType::parse(w).ok_or_else(|| {
            c.error_at(at, format!("`{w}` is no attribute value: a number, true, false, an element type, \"a word\", (a dimension), {{an expression}} or [a list]"))
        })?),
    })
}

/// Reads a scalar expression as [`Expr`] prints it.
///
/// # Errors
/// Anything else, and whatever [`Expr::check`] finds.
pub fn parse_expr(text: &str) -> Result<Expr, ParseError> {
    let mut c = Cursor::new(text, 1);
    let e = expr(&mut c)?;
    c.end()?;
    Ok(e)
}

fn expr(c: &mut Cursor) -> Result<Expr, ParseError> {
    let at = c.position();
    c.expect("{")?;
    c.expect("(")?;
    let inputs = c.list(")", dtype)?;
    let mut e = Expr::new(&inputs);
    while !c.eat("->") {
        step(c, &mut e)?;
    }
    let outputs = c.list("}", |c| {
        let value = reference(c)?;
        c.expect(":")?;
        Ok(Output { value, dtype: dtype(c)? })
    })?;
    e.outputs = outputs.into();
    e.check().map_err(|x| c.error_at(at, x.to_string()))?;
    Ok(e)
}

fn reference(c: &mut Cursor) -> Result<Ref, ParseError> {
    let at = c.position();
    let v = c.integer()?;
    Ref::try_from(v).map_err(|_| c.error_at(at, "values of an expression are numbered 0 to 65535"))
}

fn step(c: &mut Cursor, e: &mut Expr) -> Result<(), ParseError> {
    let at = c.position();
    let number = reference(c)?;
    if number as usize != e.inputs.len() + e.steps.len() {
        let want = e.inputs.len() + e.steps.len();
        return Err(c.error_at(at, format!("inputs and steps are numbered in order: expected {want}")));
    }
    c.expect("=")?;
    let name_at = c.position();
    let name = c.word()?;
    let op = ScalarOp::parse(name)
        .ok_or_else(|| c.error_at(name_at, format!("there is no scalar op `{name}`")))?;
    let stated = match op.info().gives == scalar::Gives::Stated {
        true => {
            c.expect(":")?;
            Some(dtype(c)?)
        }
        false => None,
    };
    c.expect("(")?;
    let (mut args, mut imm) = (SmallVec::new(), 0u64);
    match (op, stated) {
        (ScalarOp::Const, Some(d)) if d.is_float() => {
            imm = c.float()?.to_bits();
            c.expect(")")?;
        }
        (ScalarOp::Const, _) => {
            imm = c.integer()? as u64;
            c.expect(")")?;
        }
        _ => args = c.list(")", reference)?.into(),
    }
    match stated {
        Some(dtype) => e.push_step(Step { op, args, dtype, imm }),
        None => e.push(op, &args),
    };
    Ok(())
}
