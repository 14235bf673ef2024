//! Reading dimension expressions.

use super::ParseError;
use super::cursor::Cursor;
use crate::Dim;

/// Most terms that a product of sums may have in normal form.
const MAX_TERMS: usize = 4096;

/// Reads a dimension expression: integers, symbols, `+`, `-`, `*`, parentheses and `floordiv(a, b)`, `ceildiv(a, b)`,
/// `min(a, b)`, `max(a, b)`, as [`Dim`] prints them. Kernel rows state their scratch bytes so.
///
/// # Errors
/// Anything else; nesting or a product of sums beyond the limits.
pub fn parse_dim(text: &str) -> Result<Dim, ParseError> {
    let mut c = Cursor::new(text, 1);
    let d = dim(&mut c)?;
    c.end()?;
    Ok(d)
}

pub(super) fn dim(c: &mut Cursor) -> Result<Dim, ParseError> {
    let mut sum = if c.eat("-") { Dim::from(-1i64) * term(c)? } else { term(c)? };
    loop {
        if c.eat("+") {
            sum = sum + term(c)?;
        } else if c.eat("-") {
            sum = sum - term(c)?;
        } else {
            return Ok(sum);
        }
        if sum.terms().len() > MAX_TERMS {
            return Err(c.error(format!("a dimension has at most {MAX_TERMS} terms")));
        }
    }
}

fn term(c: &mut Cursor) -> Result<Dim, ParseError> {
    let mut product = factor(c)?;
    while c.eat("*") {
        let f = factor(c)?;
        let atoms = |d: &Dim| d.terms().iter().map(|(m, _)| m.len()).max().unwrap_or(0);
        if product.terms().len() * f.terms().len() > MAX_TERMS || atoms(&product) + atoms(&f) > 64 {
            return Err(c.error(format!("a product has at most {MAX_TERMS} terms of at most 64 factors")));
        }
        product = product * f;
    }
    Ok(product)
}

fn factor(c: &mut Cursor) -> Result<Dim, ParseError> {
    if c.eat("(") {
        let d = c.nested(dim)?;
        c.expect(")")?;
        return Ok(d);
    }
    if c.peek().is_some_and(|x| x.is_ascii_digit()) {
        return c.integer().map(Dim::from);
    }
    let at = c.position();
    let name = c.word().map_err(|_| c.error_at(at, "expected an integer, a symbol or `(`"))?;
    if !c.eat("(") {
        return Ok(Dim::sym(name));
    }
    let Some((_, f)) = FUNCTIONS.iter().find(|(n, _)| *n == name) else {
        return Err(c.error_at(at, format!("`{name}` is no function; known are floordiv, ceildiv, min, max")));
    };
    let args = c.nested(|c| c.list(")", dim))?;
    match args.as_slice() {
        [a, b] => Ok(f(a, b)),
        _ => Err(c.error_at(at, format!("`{name}` takes 2 arguments, got {}", args.len()))),
    }
}

type Binary = fn(&Dim, &Dim) -> Dim;

const FUNCTIONS: &[(&str, Binary)] =
    &[("floordiv", Dim::floor_div), ("ceildiv", Dim::ceil_div), ("min", Dim::lesser), ("max", Dim::greater)];
