//! Symbolic dimensions: integer-weighted sums of products of atoms, in a normal form, so that equal expressions are
//! equal values. An atom is a symbol or an opaque quotient, minimum or maximum.
//!
//! Coefficients saturate at ±(2^63 − 1); sizes that large are refused where types are checked.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

/// A dimension bound by the host before a run. Two symbols are the same if their names are.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sym(Arc<str>);

impl Sym {
    /// The symbol called `name` (letters, digits and `_`, not starting with a digit).
    pub fn new(name: &str) -> Sym {
        Sym(name.into())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Sym {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An indivisible factor of a [`Dim`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Atom {
    /// A symbol.
    Sym(Sym),
    /// Quotient rounded down.
    FloorDiv(Box<(Dim, Dim)>),
    /// Quotient rounded up.
    CeilDiv(Box<(Dim, Dim)>),
    /// The smaller of two.
    Min(Box<(Dim, Dim)>),
    /// The larger of two.
    Max(Box<(Dim, Dim)>),
}

/// A product of atoms, sorted; empty for the constant term.
pub type Monomial = SmallVec<[Atom; 1]>;

/// A dimension expression in normal form: terms sorted by monomial, no zero coefficient.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dim {
    terms: SmallVec<[(Monomial, i64); 1]>,
}

/// Why a dimension could not be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DimError {
    /// A symbol has no value.
    #[error("symbol `{0}` has no value; bind it before the run")]
    Unbound(String),
    /// The value does not fit i64.
    #[error("dimension `{0}` overflows 64 bits")]
    Overflow(String),
    /// A divisor is not positive.
    #[error("dimension `{0}` divides by {1}; divisors must be positive")]
    Divisor(String, i64),
}

/// Coefficients are symmetric about 0, so that the sign and the magnitude of each can be printed and read apart.
fn clamp(v: i128) -> i64 {
    v.clamp(-(i64::MAX as i128), i64::MAX as i128) as i64
}

impl From<i64> for Dim {
    fn from(v: i64) -> Dim {
        let v = clamp(v.into());
        let mut terms = SmallVec::new();
        if v != 0 {
            terms.push((Monomial::new(), v));
        }
        Dim { terms }
    }
}

impl From<usize> for Dim {
    fn from(v: usize) -> Dim {
        Dim::from(i64::try_from(v).unwrap_or(i64::MAX))
    }
}

impl From<i32> for Dim {
    fn from(v: i32) -> Dim {
        Dim::from(v as i64)
    }
}

impl From<&Sym> for Dim {
    fn from(s: &Sym) -> Dim {
        Dim::atom(Atom::Sym(s.clone()))
    }
}

impl Dim {
    /// The symbol called `name` as a dimension.
    pub fn sym(name: &str) -> Dim {
        Dim::from(&Sym::new(name))
    }

    fn atom(a: Atom) -> Dim {
        let mut m = Monomial::new();
        m.push(a);
        let mut terms = SmallVec::new();
        terms.push((m, 1));
        Dim { terms }
    }

    fn from_terms(all: impl IntoIterator<Item = (Monomial, i128)>) -> Dim {
        let mut map: BTreeMap<Monomial, i128> = BTreeMap::new();
        for (m, c) in all {
            *map.entry(m).or_default() += c;
        }
        Dim { terms: map.into_iter().filter(|(_, c)| *c != 0).map(|(m, c)| (m, clamp(c))).collect() }
    }

    /// The terms: (product of atoms, coefficient).
    pub fn terms(&self) -> &[(Monomial, i64)] {
        &self.terms
    }

    /// The value, if it holds no symbol.
    pub fn as_const(&self) -> Option<i64> {
        match self.terms.as_slice() {
            [] => Some(0),
            [(m, c)] if m.is_empty() => Some(*c),
            _ => None,
        }
    }

    /// Whether this is the constant `v`.
    pub fn is(&self, v: i64) -> bool {
        self.as_const() == Some(v)
    }

    /// The quotient rounded down; simplified when every coefficient is divisible.
    pub fn floor_div(&self, by: &Dim) -> Dim {
        self.quotient(by, Atom::FloorDiv, i64::div_euclid)
    }

    /// The quotient rounded up.
    pub fn ceil_div(&self, by: &Dim) -> Dim {
        self.quotient(by, Atom::CeilDiv, |a, b| -((-a).div_euclid(b)))
    }

    fn quotient(&self, by: &Dim, atom: fn(Box<(Dim, Dim)>) -> Atom, constant: fn(i64, i64) -> i64) -> Dim {
        if by.is(1) {
            return self.clone();
        }
        if let Some(d) = by.as_const().filter(|d| *d > 0) {
            if let Some(v) = self.as_const().filter(|v| *v > i64::MIN) {
                return Dim::from(constant(v, d));
            }
            if self.terms.iter().all(|(_, c)| c % d == 0) {
                return Dim { terms: self.terms.iter().map(|(m, c)| (m.clone(), c / d)).collect() };
            }
        } else if let Some(q) = self.exact_quotient(by) {
            return q;
        }
        Dim::atom(atom(Box::new((self.clone(), by.clone()))))
    }

    /// Division of every term by a one-term divisor, when each divides without a remainder.
    fn exact_quotient(&self, by: &Dim) -> Option<Dim> {
        let [(bm, bc)] = by.terms.as_slice() else { return None };
        let mut out = Vec::new();
        for (m, c) in &self.terms {
            let mut m = m.clone();
            for a in bm {
                let at = m.iter().position(|x| x == a)?;
                m.remove(at);
            }
            if *bc <= 0 || c % bc != 0 {
                return None;
            }
            out.push((m, (c / bc) as i128));
        }
        Some(Dim::from_terms(out))
    }

    /// The smaller of two.
    pub fn lesser(&self, other: &Dim) -> Dim {
        self.extremum(other, Atom::Min, i64::min)
    }

    /// The larger of two.
    pub fn greater(&self, other: &Dim) -> Dim {
        self.extremum(other, Atom::Max, i64::max)
    }

    fn extremum(&self, other: &Dim, atom: fn(Box<(Dim, Dim)>) -> Atom, constant: fn(i64, i64) -> i64) -> Dim {
        if self == other {
            return self.clone();
        }
        if let (Some(a), Some(b)) = (self.as_const(), other.as_const()) {
            return Dim::from(constant(a, b));
        }
        let (a, b) = if self <= other { (self, other) } else { (other, self) };
        Dim::atom(atom(Box::new((a.clone(), b.clone()))))
    }

    /// Every symbol in it, each once.
    pub fn symbols(&self, into: &mut Vec<Sym>) {
        for a in self.terms.iter().flat_map(|(m, _)| m) {
            match a {
                Atom::Sym(s) if !into.contains(s) => into.push(s.clone()),
                Atom::Sym(_) => {}
                Atom::FloorDiv(p) | Atom::CeilDiv(p) | Atom::Min(p) | Atom::Max(p) => {
                    p.0.symbols(into);
                    p.1.symbols(into);
                }
            }
        }
    }

    /// The expression with every symbol replaced by `f` of it (or kept, where `f` gives none).
    pub fn substitute(&self, f: &dyn Fn(&Sym) -> Option<Dim>) -> Dim {
        let mut sum = Dim::from(0i64);
        for (m, c) in &self.terms {
            let mut product = Dim::from(*c);
            for a in m {
                let v = match a {
                    Atom::Sym(s) => f(s).unwrap_or_else(|| Dim::from(s)),
                    Atom::FloorDiv(p) => p.0.substitute(f).floor_div(&p.1.substitute(f)),
                    Atom::CeilDiv(p) => p.0.substitute(f).ceil_div(&p.1.substitute(f)),
                    Atom::Min(p) => p.0.substitute(f).lesser(&p.1.substitute(f)),
                    Atom::Max(p) => p.0.substitute(f).greater(&p.1.substitute(f)),
                };
                product = product * v;
            }
            sum = sum + product;
        }
        sum
    }

    /// The value under `bind`, which gives each symbol's value.
    ///
    /// # Errors
    /// A symbol without a value, a result outside i64, a divisor that is not positive.
    pub fn eval(&self, bind: &dyn Fn(&Sym) -> Option<i64>) -> Result<i64, DimError> {
        let mut sum = 0i64;
        for (m, c) in &self.terms {
            let mut product = *c;
            for a in m {
                let v = match a {
                    Atom::Sym(s) => bind(s).ok_or_else(|| DimError::Unbound(s.name().into()))?,
                    Atom::FloorDiv(p) => self.divide(p, bind, i64::div_euclid)?,
                    Atom::CeilDiv(p) => self.divide(p, bind, |a, b| -((-a).div_euclid(b)))?,
                    Atom::Min(p) => p.0.eval(bind)?.min(p.1.eval(bind)?),
                    Atom::Max(p) => p.0.eval(bind)?.max(p.1.eval(bind)?),
                };
                product = product.checked_mul(v).ok_or_else(|| DimError::Overflow(self.to_string()))?;
            }
            sum = sum.checked_add(product).ok_or_else(|| DimError::Overflow(self.to_string()))?;
        }
        Ok(sum)
    }

    fn divide(
        &self,
        p: &(Dim, Dim),
        bind: &dyn Fn(&Sym) -> Option<i64>,
        f: fn(i64, i64) -> i64,
    ) -> Result<i64, DimError> {
        let (a, b) = (p.0.eval(bind)?, p.1.eval(bind)?);
        if b <= 0 {
            return Err(DimError::Divisor(self.to_string(), b));
        }
        if a == i64::MIN {
            return Err(DimError::Overflow(self.to_string()));
        }
        Ok(f(a, b))
    }
}

impl std::ops::Add for Dim {
    type Output = Dim;
    fn add(self, o: Dim) -> Dim {
        if let (Some(a), Some(b)) = (self.as_const(), o.as_const()) {
            return Dim::from(a.saturating_add(b));
        }
        Dim::from_terms(self.terms.into_iter().chain(o.terms).map(|(m, c)| (m, c as i128)))
    }
}

impl std::ops::Sub for Dim {
    type Output = Dim;
    fn sub(self, o: Dim) -> Dim {
        self + o * Dim::from(-1i64)
    }
}

impl std::ops::Mul for Dim {
    type Output = Dim;
    fn mul(self, o: Dim) -> Dim {
        if let (Some(a), Some(b)) = (self.as_const(), o.as_const()) {
            return Dim::from(a.saturating_mul(b));
        }
        let mut out = Vec::with_capacity(self.terms.len() * o.terms.len());
        for (am, ac) in &self.terms {
            for (bm, bc) in &o.terms {
                let mut m = am.clone();
                m.extend(bm.iter().cloned());
                m.sort();
                out.push((m, *ac as i128 * *bc as i128));
            }
        }
        Dim::from_terms(out)
    }
}

impl std::iter::Sum for Dim {
    fn sum<I: Iterator<Item = Dim>>(iter: I) -> Dim {
        Dim::from_terms(iter.flat_map(|d| d.terms).map(|(m, c)| (m, c as i128)))
    }
}

impl std::iter::Product for Dim {
    fn product<I: Iterator<Item = Dim>>(iter: I) -> Dim {
        iter.fold(Dim::from(1i64), |a, b| a * b)
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, p) = match self {
            Atom::Sym(s) => return f.write_str(s.name()),
            Atom::FloorDiv(p) => ("floordiv", p),
            Atom::CeilDiv(p) => ("ceildiv", p),
            Atom::Min(p) => ("min", p),
            Atom::Max(p) => ("max", p),
        };
        write!(f, "{name}({}, {})", p.0, p.1)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return f.write_str("0");
        }
        // The constant term sorts first; printing it last reads better.
        let (constant, rest): (Vec<_>, Vec<_>) = self.terms.iter().partition(|(m, _)| m.is_empty());
        for (i, (m, c)) in rest.into_iter().chain(constant).enumerate() {
            let sign = match (i, *c < 0) {
                (0, false) => "",
                (0, true) => "-",
                (_, false) => "+",
                (_, true) => "-",
            };
            f.write_str(sign)?;
            let magnitude = c.unsigned_abs();
            if m.is_empty() || magnitude != 1 {
                write!(f, "{magnitude}")?;
            }
            for (j, a) in m.iter().enumerate() {
                let star = if j > 0 || magnitude != 1 { "*" } else { "" };
                write!(f, "{star}{a}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_form_makes_equal_expressions_equal() {
        let (b, t) = (Dim::sym("B"), Dim::sym("T"));
        assert_eq!((b.clone() + 1.into()) * t.clone(), t.clone() + t.clone() * b.clone());
        assert_eq!(b.clone() - b.clone(), Dim::from(0i64));
        assert_eq!((t.clone() * 6.into()).floor_div(&3.into()), t.clone() * 2.into());
        assert_eq!((t.clone() * b.clone()).floor_div(&t), b);
        assert_eq!(Dim::from(7i64).ceil_div(&2.into()), Dim::from(4i64));
        assert_eq!((t.clone() * 3.into() - 1.into()).to_string(), "3*T-1");
    }

    #[test]
    fn eval_reports_what_is_wrong() {
        let t = Dim::sym("T");
        let bind = |s: &Sym| (s.name() == "T").then_some(5);
        assert_eq!((t.clone() * t.clone() - 1.into()).eval(&bind), Ok(24));
        assert_eq!(t.ceil_div(&2.into()).eval(&bind), Ok(3));
        assert_eq!(Dim::sym("X").eval(&bind), Err(DimError::Unbound("X".into())));
        assert!(matches!((t * i64::MAX.into()).eval(&bind), Err(DimError::Overflow(_))));
    }
}
