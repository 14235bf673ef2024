//! The symbols of a graph: declared ranges, bounds on expressions, and what can be proved from them.

use crate::dim::{Atom, Dim, Monomial, Sym};
use crate::graph::Type;

/// The answer to a question about dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Holds for every value in range.
    Yes,
    /// Holds for no value in range.
    No,
    /// Depends on the values: it becomes a guard.
    Unknown,
}

/// Inclusive range of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Smallest value, at least 0.
    pub min: i64,
    /// Largest value.
    pub max: i64,
}

/// The symbols in scope with their ranges, and upper bounds on expressions such as `B*T <= 4096`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    ranges: Vec<(Sym, Range)>,
    bounds: Vec<(Dim, i64)>,
}

/// Why a symbol could not be declared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SymbolError {
    /// Declared before with another range.
    #[error("symbol `{0}` is declared twice with different ranges")]
    Twice(String),
    /// The range is empty or negative.
    #[error("symbol `{0}` has the range {1}..={2}; it must hold 0 <= min <= max")]
    Range(String, i64, i64),
    /// Used but never declared.
    #[error("symbol `{0}` is not declared")]
    Unknown(String),
}

impl Symbols {
    /// Declares `name` with the inclusive range `min..=max` and gives it as a dimension.
    ///
    /// # Errors
    /// An empty or negative range; a second declaration with another range.
    pub fn declare(&mut self, name: &str, min: i64, max: i64) -> Result<Dim, SymbolError> {
        if min < 0 || max < min {
            return Err(SymbolError::Range(name.into(), min, max));
        }
        let (sym, range) = (Sym::new(name), Range { min, max });
        match self.range(&sym) {
            Some(r) if r != range => Err(SymbolError::Twice(name.into())),
            Some(_) => Ok(Dim::from(&sym)),
            None => {
                self.ranges.push((sym.clone(), range));
                Ok(Dim::from(&sym))
            }
        }
    }

    /// Adds the promise `expr <= max`, checked when sizes are bound.
    pub fn bound(&mut self, expr: Dim, max: i64) {
        self.bounds.push((expr, max));
    }

    /// The declared range of `s`.
    pub fn range(&self, s: &Sym) -> Option<Range> {
        self.ranges.iter().find(|(n, _)| n == s).map(|(_, r)| *r)
    }

    /// Symbols and ranges in the order of declaration.
    pub fn iter(&self) -> impl Iterator<Item = (&Sym, Range)> {
        self.ranges.iter().map(|(s, r)| (s, *r))
    }

    /// The promised upper bounds.
    pub fn bounds(&self) -> &[(Dim, i64)] {
        &self.bounds
    }

    /// The smallest interval that this arithmetic can prove for `d`: (lower, upper).
    pub fn interval(&self, d: &Dim) -> (i64, i64) {
        let (mut lo, mut hi) = (0i128, 0i128);
        for (m, c) in d.terms() {
            let (a, b) = self.monomial(m);
            let (x, y) = (a as i128 * *c as i128, b as i128 * *c as i128);
            lo += x.min(y);
            hi += x.max(y);
        }
        let clamp = |v: i128| v.clamp(i64::MIN as i128, i64::MAX as i128) as i64;
        (clamp(lo), clamp(hi))
    }

    fn monomial(&self, m: &Monomial) -> (i64, i64) {
        let (mut lo, mut hi) = (1i64, 1i64);
        for a in m {
            let (x, y) = self.atom(a);
            let all =
                [lo.saturating_mul(x), lo.saturating_mul(y), hi.saturating_mul(x), hi.saturating_mul(y)];
            lo = all.into_iter().min().unwrap_or(0);
            hi = all.into_iter().max().unwrap_or(0);
        }
        for (e, max) in &self.bounds {
            if let [(em, c)] = e.terms()
                && em == m
                && *c > 0
            {
                hi = hi.min(max / c);
            }
        }
        (lo, hi)
    }

    fn atom(&self, a: &Atom) -> (i64, i64) {
        match a {
            Atom::Sym(s) => self.range(s).map_or((0, i64::MAX), |r| (r.min, r.max)),
            Atom::FloorDiv(p) => self.quotient(p, 0),
            Atom::CeilDiv(p) => self.quotient(p, 1),
            Atom::Min(p) => {
                let ((a, b), (c, d)) = (self.interval(&p.0), self.interval(&p.1));
                (a.min(c), b.min(d))
            }
            Atom::Max(p) => {
                let ((a, b), (c, d)) = (self.interval(&p.0), self.interval(&p.1));
                (a.max(c), b.max(d))
            }
        }
    }

    /// Bounds of a quotient; rounding up adds at most `round`.
    fn quotient(&self, p: &(Dim, Dim), round: i64) -> (i64, i64) {
        let ((a, b), (c, d)) = (self.interval(&p.0), self.interval(&p.1));
        let (c, d) = (c.max(1), d.max(1));
        let up = |v: i64, by: i64| v.div_euclid(by) + if v.rem_euclid(by) != 0 { round } else { 0 };
        let all = [up(a, c), up(a, d), up(b, c), up(b, d)];
        (all.into_iter().min().unwrap_or(0), all.into_iter().max().unwrap_or(0))
    }

    /// The largest value that `d` can take.
    pub fn upper(&self, d: &Dim) -> i64 {
        self.interval(d).1
    }

    /// Bytes that a value of type `ty` takes at most while the symbols that `fixed` knows keep their values: what a buffer
    /// for it must hold. Extents are taken to be at least 0, as sizes that make one negative are refused.
    pub fn most_bytes(&self, ty: &Type, fixed: &dyn Fn(&Sym) -> Option<i64>) -> i64 {
        let mut at = self.clone();
        for (s, r) in &mut at.ranges {
            *r = fixed(s).map_or(*r, |v| Range { min: v, max: v });
        }
        // Each alone can be the tighter: extent by extent where one falls as another grows, their product where it is
        // bounded as a whole.
        let largest = Type::new(ty.dtype, ty.shape.iter().map(|d| at.upper(d).max(0)));
        at.upper(&ty.bytes()).min(at.upper(&largest.bytes())).max(0)
    }

    /// Whether `a == b`.
    pub fn equal(&self, a: &Dim, b: &Dim) -> Proof {
        if a == b {
            return Proof::Yes;
        }
        match self.interval(&(a.clone() - b.clone())) {
            (0, 0) => Proof::Yes,
            (lo, hi) if lo > 0 || hi < 0 => Proof::No,
            _ => Proof::Unknown,
        }
    }

    /// Whether `a <= b`.
    pub fn at_most(&self, a: &Dim, b: &Dim) -> Proof {
        match self.interval(&(a.clone() - b.clone())) {
            (_, hi) if hi <= 0 => Proof::Yes,
            (lo, _) if lo > 0 => Proof::No,
            _ => Proof::Unknown,
        }
    }
}

/// How the sides of a [`DimGuard`] relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    /// Left equals right.
    Equal,
    /// Left is at most right.
    AtMost,
}

/// What shape inference could neither prove nor refute; checked when sizes are bound.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DimGuard {
    /// Left side.
    pub left: Dim,
    /// Relation.
    pub relation: Relation,
    /// Right side.
    pub right: Dim,
    /// What the guard is for, e.g. `matmul: inner extents`.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proofs_follow_the_ranges() {
        let mut s = Symbols::default();
        let t = s.declare("T", 1, 512).unwrap();
        let b = s.declare("B", 1, 8).unwrap();
        assert_eq!(s.equal(&t, &1.into()), Proof::Unknown);
        assert_eq!(s.equal(&t, &0.into()), Proof::No);
        assert_eq!(s.at_most(&t, &512.into()), Proof::Yes);
        assert_eq!(s.interval(&(t.clone() * b.clone())), (1, 4096));
        s.bound(t.clone() * b.clone(), 1024);
        assert_eq!(s.upper(&(t.clone() * b * 2.into())), 2048);
        assert_eq!(s.interval(&t.ceil_div(&32.into())), (1, 16));
        assert!(s.declare("T", 1, 5).is_err());
        assert!(s.declare("Z", 3, 2).is_err());
    }

    #[test]
    fn the_most_bytes_are_at_the_worst_sizes() {
        let mut s = Symbols::default();
        let t = s.declare("T", 0, 5).unwrap();
        let b = s.declare("B", 1, 8).unwrap();
        let f32 = |shape: Vec<Dim>| Type::new(crate::DType::F32, shape);
        let rest = Dim::from(5) - t.clone();
        let free = |_: &Sym| None;
        let at_3 = |s: &Sym| (s.name() == "T").then_some(3);
        let falling = f32(vec![rest.clone()]);
        assert_eq!((s.most_bytes(&falling, &free), s.most_bytes(&falling, &at_3)), (20, 8));
        assert_eq!(s.most_bytes(&f32(vec![rest.clone(), rest.clone()]), &free), 100);
        // At most 24, at T = 2; extent by extent that cannot be seen.
        assert!((24..=100).contains(&s.most_bytes(&f32(vec![rest, t.clone()]), &free)));
        let both = f32(vec![b.clone(), t.clone()]);
        assert_eq!((s.most_bytes(&both, &free), s.most_bytes(&both, &at_3)), (160, 96));
        s.bound(b * t, 20);
        assert_eq!(s.most_bytes(&both, &free), 80);
        let odd = |s: &Sym| (s.name() == "T").then_some(9);
        assert_eq!(s.most_bytes(&falling, &odd), 0);
    }
}
