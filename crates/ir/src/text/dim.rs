//! Reading dimension expressions.

use super::ParseError;
use super::cursor::Cursor;
use crate::Dim;
use crate::dim::Atom;

/// Most terms of a dimension.
const MAX_TERMS: usize = 4096;

/// Most factors of one term.
pub(super) const MAX_FACTORS: usize = 64;

/// Most terms and factors of a product of sums in normal form.
const MAX_PRODUCT: usize = 1024;

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
    let negative = c.eat("-");
    let mut parts = vec![signed(term(c)?, negative)];
    let mut terms = parts[0].terms().len();
    loop {
        let negative = c.peek() == Some('-');
        if !(c.eat("+") || c.eat("-")) {
            return Ok(parts.into_iter().sum());
        }
        let part = signed(term(c)?, negative);
        terms += part.terms().len();
        if terms > MAX_TERMS {
            return Err(c.error(format!("a dimension has at most {MAX_TERMS} terms")));
        }
        parts.push(part);
    }
}

fn signed(d: Dim, negative: bool) -> Dim {
    if negative { Dim::from(-1i64) * d } else { d }
}

/// Terms and atoms of a dimension, those inside of atoms too.
fn size(d: &Dim) -> usize {
    let atom = |a: &Atom| match a {
        Atom::Sym(_) => 1,
        Atom::FloorDiv(p) | Atom::CeilDiv(p) | Atom::Min(p) | Atom::Max(p) => 1 + size(&p.0) + size(&p.1),
    };
    d.terms().iter().map(|(m, _)| 1 + m.iter().map(atom).sum::<usize>()).sum()
}

/// The most factors of one term.
pub(super) fn factors(d: &Dim) -> usize {
    d.terms().iter().map(|(m, _)| m.len()).max().unwrap_or(0)
}

fn term(c: &mut Cursor) -> Result<Dim, ParseError> {
    let mut product = factor(c)?;
    while c.eat("*") {
        let f = factor(c)?;
        // A normal form has no products of sums: those are written by hand, and are what could grow beyond the text.
        let plain = |d: &Dim| d.terms().len() <= 1;
        let grows = !(plain(&product) && plain(&f)) && product.as_const().is_none() && f.as_const().is_none();
        let grown = product.terms().len() * size(&f) + f.terms().len() * size(&product);
        if grows && grown > MAX_PRODUCT || factors(&product) + factors(&f) > MAX_FACTORS {
            return Err(c.error(format!(
                "a product has at most {MAX_FACTORS} factors, and {MAX_PRODUCT} factors in all when it is multiplied out"
            )));
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
