//! Metadata values of GGUF files. Strings and arrays stay in the file and are decoded when asked for.

use super::read::Reader;
use crate::blob::Blob;
use std::fmt;

/// The types of metadata values, in the order of their identifiers in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ValueKind {
    /// Unsigned, one byte.
    U8,
    /// Signed, one byte.
    I8,
    /// Unsigned, two bytes.
    U16,
    /// Signed, two bytes.
    I16,
    /// Unsigned, four bytes.
    U32,
    /// Signed, four bytes.
    I32,
    /// IEEE binary32.
    F32,
    /// One byte, 0 or 1.
    Bool,
    /// Length and bytes.
    Str,
    /// Element type, length and elements.
    Array,
    /// Unsigned, eight bytes.
    U64,
    /// Signed, eight bytes.
    I64,
    /// IEEE binary64.
    F64,
}

/// Kind, name in messages, size in bytes (0 where it varies).
const KINDS: [(ValueKind, &str, usize); 13] = [
    (ValueKind::U8, "u8", 1),
    (ValueKind::I8, "i8", 1),
    (ValueKind::U16, "u16", 2),
    (ValueKind::I16, "i16", 2),
    (ValueKind::U32, "u32", 4),
    (ValueKind::I32, "i32", 4),
    (ValueKind::F32, "f32", 4),
    (ValueKind::Bool, "bool", 1),
    (ValueKind::Str, "string", 0),
    (ValueKind::Array, "array", 0),
    (ValueKind::U64, "u64", 8),
    (ValueKind::I64, "i64", 8),
    (ValueKind::F64, "f64", 8),
];

impl ValueKind {
    pub(super) fn from_id(id: u32) -> Option<ValueKind> {
        KINDS.get(id as usize).map(|row| row.0)
    }

    /// The name in messages.
    pub fn name(self) -> &'static str {
        KINDS[self as usize].1
    }

    /// Bytes of one value; `None` for strings and arrays.
    pub fn size(self) -> Option<usize> {
        Some(KINDS[self as usize].2).filter(|size| *size > 0)
    }
}

/// A metadata value.
#[derive(Clone, Debug)]
pub enum Value {
    /// Any unsigned integer.
    Unsigned(ValueKind, u64),
    /// Any signed integer.
    Signed(ValueKind, i64),
    /// `f32` (widened) or `f64`.
    Float(ValueKind, f64),
    /// A truth value.
    Bool(bool),
    /// Bytes that ought to be UTF-8; checked when read as text.
    Str(Blob),
    /// An array.
    Array(Array),
}

impl Value {
    /// The type in the file.
    pub fn kind(&self) -> ValueKind {
        match self {
            Value::Unsigned(kind, _) | Value::Signed(kind, _) | Value::Float(kind, _) => *kind,
            Value::Bool(_) => ValueKind::Bool,
            Value::Str(_) => ValueKind::Str,
            Value::Array(_) => ValueKind::Array,
        }
    }

    /// The value as `T`, if it is of that family and fits.
    pub fn get<'a, T: FromValue<'a>>(&'a self) -> Option<T> {
        T::from_value(self)
    }

    pub(super) fn scalar(kind: ValueKind, raw: &[u8]) -> Option<Value> {
        let mut wide = [0u8; 8];
        wide[..raw.len()].copy_from_slice(raw);
        let bits = u64::from_le_bytes(wide);
        Some(match kind {
            ValueKind::U8 | ValueKind::U16 | ValueKind::U32 | ValueKind::U64 => Value::Unsigned(kind, bits),
            ValueKind::I8 | ValueKind::I16 | ValueKind::I32 | ValueKind::I64 => {
                let unused = 64 - 8 * raw.len() as u32;
                Value::Signed(kind, (bits << unused) as i64 >> unused)
            }
            ValueKind::F32 => Value::Float(kind, f32::from_bits(bits as u32).into()),
            ValueKind::F64 => Value::Float(kind, f64::from_bits(bits)),
            ValueKind::Bool if bits < 2 => Value::Bool(bits == 1),
            ValueKind::Bool | ValueKind::Str | ValueKind::Array => return None,
        })
    }
}

/// Shows scalars and strings in full, arrays as their first elements and their length.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Unsigned(_, v) => write!(f, "{v}"),
            Value::Signed(_, v) => write!(f, "{v}"),
            Value::Float(ValueKind::F32, v) => write!(f, "{}", *v as f32),
            Value::Float(_, v) => write!(f, "{v}"),
            Value::Bool(v) => write!(f, "{v}"),
            Value::Str(v) => write!(f, "{:?}", String::from_utf8_lossy(v)),
            Value::Array(array) => {
                const SHOWN: usize = 6;
                f.write_str("[")?;
                for (i, value) in array.iter().take(SHOWN).enumerate() {
                    write!(f, "{}{value}", if i > 0 { ", " } else { "" })?;
                }
                if array.len() > SHOWN {
                    write!(f, ", … {} in all", array.len())?;
                }
                f.write_str("]")
            }
        }
    }
}

/// An array of metadata values, decoded on the way through.
#[derive(Clone, Debug)]
pub struct Array {
    pub(super) kind: ValueKind,
    pub(super) len: usize,
    /// The elements as in the file, already validated.
    pub(super) bytes: Blob,
}

impl Array {
    /// The element type.
    pub fn kind(&self) -> ValueKind {
        self.kind
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements in order.
    pub fn iter(&self) -> impl Iterator<Item = Value> + use<> {
        let (mut reader, kind) = (Reader::new(self.bytes.clone()), self.kind);
        (0..self.len).map_while(move |_| reader.value(kind, 0).ok())
    }

    /// The bytes of the strings of an array of strings, in order; empty for arrays of other types.
    pub fn strings(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest: &[u8] = if self.kind == ValueKind::Str { &self.bytes } else { &[] };
        std::iter::from_fn(move || {
            let (len, tail) = rest.split_first_chunk()?;
            let (text, tail) = tail.split_at_checked(u64::from_le_bytes(*len) as usize)?;
            rest = tail;
            Some(text)
        })
    }

    /// The elements as scalars of type `T`; `None` if one is of another family or does not fit.
    pub fn scalars<T: for<'a> FromValue<'a>>(&self) -> Option<Vec<T>> {
        self.iter().map(|v| T::from_value(&v)).collect()
    }
}

/// Types that a metadata value can be read as. Integers of any width are read if the value fits.
pub trait FromValue<'a>: Sized {
    /// What the value must be, for messages.
    const RIGHT: &'static str;
    /// The value, if it is of this type and fits.
    fn from_value(value: &'a Value) -> Option<Self>;
}

fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Unsigned(_, v) => Some((*v).into()),
        Value::Signed(_, v) => Some((*v).into()),
        _ => None,
    }
}

macro_rules! integers {
    ($($t:ty: $right:literal;)*) => {
        $(impl<'a> FromValue<'a> for $t {
            const RIGHT: &'static str = $right;
            fn from_value(value: &'a Value) -> Option<Self> {
                integer(value)?.try_into().ok()
            }
        })*
    };
}

integers! {
    u32: "an integer in 0..2^32";
    u64: "an integer in 0..2^64";
    usize: "a non-negative integer";
    i32: "an integer in -2^31..2^31";
    i64: "an integer in -2^63..2^63";
}

impl<'a> FromValue<'a> for f64 {
    const RIGHT: &'static str = "a number with a fraction";
    fn from_value(value: &'a Value) -> Option<Self> {
        if let Value::Float(_, v) = value { Some(*v) } else { None }
    }
}

impl<'a> FromValue<'a> for f32 {
    const RIGHT: &'static str = "a number with a fraction";
    fn from_value(value: &'a Value) -> Option<Self> {
        f64::from_value(value).map(|v| v as f32)
    }
}

impl<'a> FromValue<'a> for bool {
    const RIGHT: &'static str = "true or false";
    fn from_value(value: &'a Value) -> Option<Self> {
        if let Value::Bool(v) = value { Some(*v) } else { None }
    }
}

impl<'a> FromValue<'a> for &'a str {
    const RIGHT: &'static str = "a UTF-8 string";
    fn from_value(value: &'a Value) -> Option<Self> {
        if let Value::Str(v) = value { std::str::from_utf8(v).ok() } else { None }
    }
}

impl<'a> FromValue<'a> for &'a Array {
    const RIGHT: &'static str = "an array";
    fn from_value(value: &'a Value) -> Option<Self> {
        if let Value::Array(v) = value { Some(v) } else { None }
    }
}
