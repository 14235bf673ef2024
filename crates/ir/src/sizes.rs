//! The dimension expressions of a schedule, each kept once, and their values at the sizes of a run. Backends bind a run
//! by evaluating this table and then read values by number.

use std::collections::HashMap;

use crate::dim::{Dim, DimError, Sym};
use crate::schedule::{Port, Schedule};
use crate::symbols::{DimGuard, Relation};

/// Number of a dimension expression in its [`Sizes`].
pub type DimId = u32;

/// Sizes that a schedule does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// A symbol without a value, or a value that overflows.
    #[error(transparent)]
    Dim(#[from] DimError),
    /// A size outside its declared range.
    #[error("`{name}` = {value} is outside {min}..={max}")]
    Range {
        /// The symbol or bounded expression.
        name: String,
        /// Value given.
        value: i64,
        /// Least value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// Sizes that do not fit each other.
    #[error("{why}: {left} and {right} do not fit")]
    Guard {
        /// What the guard is for.
        why: String,
        /// Left side.
        left: i64,
        /// Right side.
        right: i64,
    },
    /// A symbol that the schedule does not have.
    #[error("there is no symbol `{name}`; there are: {known}")]
    Symbol {
        /// Name asked for.
        name: String,
        /// Names there are.
        known: String,
    },
    /// A symbol that was fixed when the session was made has another value now.
    #[error("`{name}` was fixed to {fixed} when the session was made, this run asks for {value}")]
    Fixed {
        /// The symbol.
        name: String,
        /// The session's value.
        fixed: i64,
        /// The run's value.
        value: i64,
    },
    /// An extent that the sizes make negative.
    #[error("{place}: extent {extent} is {value} at {sizes}; extents must be at least 0")]
    Extent {
        /// Whose: a port or an operand of a step.
        place: String,
        /// The extent.
        extent: String,
        /// Its value.
        value: i64,
        /// The symbols in it and their values.
        sizes: String,
    },
}

/// The extents of a port by number.
#[derive(Clone, Debug)]
pub struct PortDims {
    /// Outermost first.
    pub dims: Vec<DimId>,
    /// Bytes of its value.
    pub bytes: DimId,
}

/// The sizes of one session, by position of the symbol: those fixed for its life, and all of them for the next run.
#[derive(Clone, Debug)]
pub struct SessionSizes {
    fixed: Vec<Option<i64>>,
    next: Vec<i64>,
}

impl SessionSizes {
    /// The values for the next run.
    pub fn next(&self) -> &[i64] {
        &self.next
    }
}

/// The table: symbols with their ranges, conditions, and every expression that was added.
#[derive(Clone, Debug, Default)]
pub struct Sizes {
    symbols: Vec<(Sym, i64, i64)>,
    bounds: Vec<(DimId, i64)>,
    guards: Vec<(DimId, DimGuard, DimId)>,
    /// Every extent that could be negative, once, and whose it is.
    extents: Vec<(DimId, String)>,
    dims: Vec<Dim>,
    index: HashMap<Dim, DimId>,
}

impl Sizes {
    /// The symbols, bounds and guards of `s`, no other expression yet.
    pub fn new(s: &Schedule) -> Sizes {
        let symbols = s.symbols.iter().map(|(n, r)| (n.clone(), r.min, r.max)).collect();
        let mut t = Sizes { symbols, ..Sizes::default() };
        for (d, most) in s.symbols.bounds() {
            let id = t.add(d);
            t.bounds.push((id, *most));
        }
        for g in &s.guards {
            let (left, right) = (t.add(&g.left), t.add(&g.right));
            t.guards.push((left, g.clone(), right));
        }
        t
    }

    /// The number of `d`, which is added if it is new.
    pub fn add(&mut self, d: &Dim) -> DimId {
        if let Some(i) = self.index.get(d) {
            return *i;
        }
        let i = self.dims.len() as DimId;
        self.dims.push(d.clone());
        self.index.insert(d.clone(), i);
        i
    }

    /// The numbers of the extents `dims` of a port or operand; none of them may become negative. `place` says whose they are.
    pub fn extents(&mut self, dims: &[Dim], place: impl Fn() -> String) -> Vec<DimId> {
        let ids = self.all(dims);
        for (d, id) in dims.iter().zip(&ids) {
            if d.as_const().is_none_or(|v| v < 0) && self.extents.iter().all(|(known, _)| known != id) {
                self.extents.push((*id, place()));
            }
        }
        ids
    }

    /// The numbers of `dims`.
    pub fn all(&mut self, dims: &[Dim]) -> Vec<DimId> {
        dims.iter().map(|d| self.add(d)).collect()
    }

    /// Symbols with their least and largest values.
    pub fn symbols(&self) -> &[(Sym, i64, i64)] {
        &self.symbols
    }

    /// Position of the symbol `name`.
    ///
    /// # Errors
    /// No such symbol.
    pub fn position(&self, name: &str) -> Result<usize, SizeError> {
        let at = self.symbols.iter().position(|(s, ..)| s.name() == name);
        at.ok_or_else(|| SizeError::Symbol {
            name: name.into(),
            known: self.symbols.iter().map(|(s, ..)| s.name()).collect::<Vec<_>>().join(", "),
        })
    }

    /// The numbers of the extents of `ports`, which are `what` in messages: inputs or outputs.
    pub fn ports(&mut self, what: &str, ports: &[Port]) -> Vec<PortDims> {
        let one = |p: &Port| PortDims {
            dims: self.extents(&p.ty.shape, || format!("{what} `{}`", p.name)),
            bytes: self.add(&p.ty.bytes()),
        };
        ports.iter().map(one).collect()
    }

    /// The sizes of a session that fixes `fixed`, in any order; the others begin at their least.
    ///
    /// # Errors
    /// A symbol that there is not, a value outside its range.
    pub fn session(&self, fixed: &[(&str, i64)]) -> Result<SessionSizes, SizeError> {
        let mut s = SessionSizes {
            fixed: vec![None; self.symbols.len()],
            next: self.symbols.iter().map(|(_, min, _)| *min).collect(),
        };
        for (name, v) in fixed {
            let i = self.position(name)?;
            self.in_range(i, *v)?;
            (s.fixed[i], s.next[i]) = (Some(*v), *v);
        }
        Ok(s)
    }

    /// The names and values that a session has fixed.
    pub fn fixed(&self, s: &SessionSizes) -> Vec<(&str, i64)> {
        let all = self.symbols.iter().zip(&s.fixed);
        all.filter_map(|((name, ..), v)| Some((name.name(), (*v)?))).collect()
    }

    /// The value to which a session has fixed `symbol`.
    pub fn fixed_value(&self, s: &SessionSizes, symbol: &Sym) -> Option<i64> {
        self.symbols.iter().position(|(n, ..)| n == symbol).and_then(|i| s.fixed[i])
    }

    /// Sets the symbol at `slot` for the next runs; gives whether that is a change.
    ///
    /// # Errors
    /// The session has fixed it to another value.
    pub fn set(&self, s: &mut SessionSizes, slot: usize, value: i64) -> Result<bool, SizeError> {
        if let Some(fixed) = s.fixed[slot].filter(|f| *f != value) {
            let name = self.symbols[slot].0.name().into();
            return Err(SizeError::Fixed { name, fixed, value });
        }
        Ok(std::mem::replace(&mut s.next[slot], value) != value)
    }

    /// Extents of a state of a session, and its bytes.
    ///
    /// # Errors
    /// A symbol in them that the session has not fixed, a negative extent, an overflow.
    pub fn state(&self, s: &SessionSizes, port: &Port) -> Result<(Vec<usize>, usize), SizeError> {
        let fixed = |n: &Sym| self.fixed_value(s, n);
        let mut dims = Vec::with_capacity(port.ty.rank());
        for d in &port.ty.shape {
            let v = d.eval(&fixed)?;
            not_negative(d, v, &fixed, || format!("state `{}`", port.name))?;
            dims.push(usize::try_from(v).unwrap_or(usize::MAX));
        }
        let bytes = port.ty.bytes().eval(&fixed)?;
        Ok((dims, usize::try_from(bytes).unwrap_or(usize::MAX)))
    }

    fn in_range(&self, slot: usize, value: i64) -> Result<(), SizeError> {
        let (name, min, max) = &self.symbols[slot];
        if (*min..=*max).contains(&value) {
            return Ok(());
        }
        Err(SizeError::Range { name: name.name().into(), value, min: *min, max: *max })
    }

    /// Number of expressions.
    pub fn len(&self) -> usize {
        self.dims.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.dims.is_empty()
    }

    /// The value of expression `id` where symbol `i` is `sizes[i]`; no range is checked.
    ///
    /// # Errors
    /// It overflows or divides by what is not positive.
    pub fn value(&self, id: DimId, sizes: &[i64]) -> Result<i64, DimError> {
        self.dims[id as usize].eval(&|s: &Sym| self.bound(s, sizes))
    }

    fn bound(&self, s: &Sym, sizes: &[i64]) -> Option<i64> {
        self.symbols.iter().position(|(n, ..)| n == s).map(|i| sizes[i])
    }

    /// The values of all expressions where symbol `i` is `sizes[i]`, into `values`, after checking ranges, bounds,
    /// guards and extents.
    ///
    /// # Errors
    /// See [`SizeError`].
    pub fn evaluate(&self, sizes: &[i64], values: &mut Vec<i64>) -> Result<(), SizeError> {
        for (slot, v) in sizes.iter().enumerate() {
            self.in_range(slot, *v)?;
        }
        values.clear();
        for d in &self.dims {
            values.push(d.eval(&|s: &Sym| self.bound(s, sizes))?);
        }
        for (d, max) in &self.bounds {
            let value = values[*d as usize];
            if value > *max {
                let name = self.dims[*d as usize].to_string();
                return Err(SizeError::Range { name, value, min: i64::MIN, max: *max });
            }
        }
        for (l, g, r) in &self.guards {
            let (left, right) = (values[*l as usize], values[*r as usize]);
            let holds = match g.relation {
                Relation::Equal => left == right,
                Relation::AtMost => left <= right,
            };
            if !holds {
                return Err(SizeError::Guard { why: g.why.clone(), left, right });
            }
        }
        for (d, place) in &self.extents {
            let bind = |s: &Sym| self.bound(s, sizes);
            not_negative(&self.dims[*d as usize], values[*d as usize], &bind, || place.clone())?;
        }
        Ok(())
    }
}

/// Refuses the extent `d` of `place` whose value is below 0. `bind` gives the symbols.
///
/// # Errors
/// [`SizeError::Extent`].
fn not_negative(
    d: &Dim,
    value: i64,
    bind: &dyn Fn(&Sym) -> Option<i64>,
    place: impl FnOnce() -> String,
) -> Result<(), SizeError> {
    if value >= 0 {
        return Ok(());
    }
    let mut symbols = Vec::new();
    d.symbols(&mut symbols);
    let size = |s: &Sym| Some(format!("{} = {}", s.name(), bind(s)?));
    let sizes = symbols.iter().filter_map(size).collect::<Vec<_>>().join(", ");
    Err(SizeError::Extent { place: place(), extent: d.to_string(), value, sizes })
}
