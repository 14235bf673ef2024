//! Attributes of a node: named, typed values, in the order of their names.

use std::fmt;
use std::sync::Arc;

use crate::DType;
use crate::dim::Dim;
use crate::expr::Expr;

/// One attribute value. Real numbers are equal if their bits are, so that 0.0 differs from −0.0 and NaN equals itself.
#[derive(Clone, Debug)]
pub enum Attr {
    /// Integer.
    Int(i64),
    /// Real number.
    Float(f64),
    /// Truth value.
    Bool(bool),
    /// Word.
    Str(Arc<str>),
    /// Element type.
    DType(DType),
    /// Dimension expression.
    Dim(Dim),
    /// Scalar expression.
    Expr(Arc<Expr>),
    /// List of values.
    List(Vec<Attr>),
}

impl Attr {
    /// A dimension or an integer as one.
    fn as_dim(&self) -> Option<Dim> {
        match self {
            Attr::Int(v) => Some(Dim::from(*v)),
            Attr::Dim(d) => Some(d.clone()),
            _ => None,
        }
    }
}

impl PartialEq for Attr {
    fn eq(&self, other: &Attr) -> bool {
        match (self, other) {
            (Attr::Int(a), Attr::Int(b)) => a == b,
            (Attr::Float(a), Attr::Float(b)) => a.to_bits() == b.to_bits(),
            (Attr::Bool(a), Attr::Bool(b)) => a == b,
            (Attr::Str(a), Attr::Str(b)) => a == b,
            (Attr::DType(a), Attr::DType(b)) => a == b,
            (Attr::Dim(a), Attr::Dim(b)) => a == b,
            (Attr::Expr(a), Attr::Expr(b)) => a == b,
            (Attr::List(a), Attr::List(b)) => a == b,
            _ => false,
        }
    }
}

/// Why an attribute could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttrError {
    /// Not there.
    #[error("attribute `{0}` is missing")]
    Missing(String),
    /// There, but of another type.
    #[error("attribute `{0}` must be {1}")]
    Kind(String, &'static str),
    /// There, but not a value that the op takes.
    #[error("attribute `{0}` {1}")]
    Value(String, String),
    /// Not known to the op.
    #[error("attribute `{0}` is not known; known are: {1}")]
    Unknown(String, String),
}

/// The attributes of a node, sorted by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attrs(Vec<(Arc<str>, Attr)>);

macro_rules! getters {
    ($($(#[$doc:meta])* $get:ident $variant:ident $ty:ty, $what:literal;)*) => {
        $($(#[$doc])*
        ///
        /// # Errors
        /// Missing, or of another type.
        pub fn $get(&self, name: &str) -> Result<$ty, AttrError> {
            match self.need(name)? {
                Attr::$variant(v) => Ok(v.clone()),
                _ => Err(AttrError::Kind(name.into(), $what)),
            }
        })*
    };
}

impl Attrs {
    /// No attributes.
    pub fn new() -> Attrs {
        Attrs::default()
    }

    /// With `name` set to `value`.
    pub fn with(mut self, name: &str, value: impl Into<Attr>) -> Attrs {
        self.set(name, value);
        self
    }

    /// Sets `name` to `value`.
    pub fn set(&mut self, name: &str, value: impl Into<Attr>) {
        let value = value.into();
        match self.0.binary_search_by(|(n, _)| n.as_ref().cmp(name)) {
            Ok(i) => self.0[i].1 = value,
            Err(i) => self.0.insert(i, (name.into(), value)),
        }
    }

    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&Attr> {
        self.0.binary_search_by(|(n, _)| n.as_ref().cmp(name)).ok().map(|i| &self.0[i].1)
    }

    fn need(&self, name: &str) -> Result<&Attr, AttrError> {
        self.get(name).ok_or_else(|| AttrError::Missing(name.into()))
    }

    /// Names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Attr)> {
        self.0.iter().map(|(n, v)| (n.as_ref(), v))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Refuses attributes outside `known`.
    ///
    /// # Errors
    /// Names the first unknown one.
    pub fn only(&self, known: &[&str]) -> Result<(), AttrError> {
        match self.iter().find(|(n, _)| !known.contains(n)) {
            Some((n, _)) => Err(AttrError::Unknown(n.into(), known.join(", "))),
            None => Ok(()),
        }
    }

    getters! {
        /// The integer `name`.
        int Int i64, "an integer";
        /// The truth value `name`.
        bool Bool bool, "true or false";
        /// The word `name`.
        str Str Arc<str>, "a word";
        /// The element type `name`.
        dtype DType DType, "an element type";
        /// The scalar expression `name`.
        expr Expr Arc<Expr>, "a scalar expression";
        /// The list `name`.
        list List Vec<Attr>, "a list";
    }

    /// The real number `name` (an integer will do).
    ///
    /// # Errors
    /// Missing, or of another type.
    pub fn float(&self, name: &str) -> Result<f64, AttrError> {
        match self.need(name)? {
            Attr::Float(v) => Ok(*v),
            Attr::Int(v) => Ok(*v as f64),
            _ => Err(AttrError::Kind(name.into(), "a number")),
        }
    }

    /// The dimension `name` (an integer will do).
    ///
    /// # Errors
    /// Missing, or of another type.
    pub fn dim(&self, name: &str) -> Result<Dim, AttrError> {
        self.need(name)?.as_dim().ok_or_else(|| AttrError::Kind(name.into(), "a dimension"))
    }

    /// The list of integers `name`.
    ///
    /// # Errors
    /// Missing, or of another type.
    pub fn ints(&self, name: &str) -> Result<Vec<i64>, AttrError> {
        let all = self.list(name)?;
        let one = |a: &Attr| if let Attr::Int(v) = a { Some(*v) } else { None };
        all.iter()
            .map(one)
            .collect::<Option<_>>()
            .ok_or_else(|| AttrError::Kind(name.into(), "a list of integers"))
    }

    /// The list of dimensions `name` (integers will do).
    ///
    /// # Errors
    /// Missing, or of another type.
    pub fn dims(&self, name: &str) -> Result<Vec<Dim>, AttrError> {
        let all = self.list(name)?;
        all.iter()
            .map(Attr::as_dim)
            .collect::<Option<_>>()
            .ok_or_else(|| AttrError::Kind(name.into(), "a list of dimensions"))
    }

    /// The list of expressions `name`.
    ///
    /// # Errors
    /// Missing, or of another type.
    pub fn exprs(&self, name: &str) -> Result<Vec<Arc<Expr>>, AttrError> {
        let all = self.list(name)?;
        let one = |a: &Attr| if let Attr::Expr(v) = a { Some(v.clone()) } else { None };
        all.iter()
            .map(one)
            .collect::<Option<_>>()
            .ok_or_else(|| AttrError::Kind(name.into(), "a list of expressions"))
    }
}

impl From<i64> for Attr {
    fn from(v: i64) -> Attr {
        Attr::Int(v)
    }
}

impl From<f64> for Attr {
    fn from(v: f64) -> Attr {
        Attr::Float(v)
    }
}

impl From<bool> for Attr {
    fn from(v: bool) -> Attr {
        Attr::Bool(v)
    }
}

impl From<&str> for Attr {
    fn from(v: &str) -> Attr {
        Attr::Str(v.into())
    }
}

impl From<DType> for Attr {
    fn from(v: DType) -> Attr {
        Attr::DType(v)
    }
}

/// A constant dimension becomes an integer, so that equal attributes print alike.
impl From<Dim> for Attr {
    fn from(v: Dim) -> Attr {
        v.as_const().map_or_else(|| Attr::Dim(v.clone()), Attr::Int)
    }
}

impl From<Arc<Expr>> for Attr {
    fn from(v: Arc<Expr>) -> Attr {
        Attr::Expr(v)
    }
}

impl<T: Into<Attr>> From<Vec<T>> for Attr {
    fn from(v: Vec<T>) -> Attr {
        Attr::List(v.into_iter().map(Into::into).collect())
    }
}

impl fmt::Display for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attr::Int(v) => write!(f, "{v}"),
            Attr::Float(v) => write!(f, "{v:?}"),
            Attr::Bool(v) => write!(f, "{v}"),
            Attr::Str(v) => write!(f, "{v:?}"),
            Attr::DType(v) => write!(f, "{v}"),
            Attr::Dim(v) => write!(f, "({v})"),
            Attr::Expr(v) => write!(f, "{v}"),
            Attr::List(v) => {
                f.write_str("[")?;
                for (i, a) in v.iter().enumerate() {
                    write!(f, "{}{a}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str("]")
            }
        }
    }
}
