//! [`FormatError`]: what is wrong with a file, where, and what would be right.

use std::io;

/// The kinds of damage in a file, for code that tells them apart. The message says the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The file does not start as its format does.
    Magic,
    /// The file was written for the other byte order.
    Endian,
    /// A version this program does not know.
    Version,
    /// The file ends before what it declares.
    Truncated,
    /// A count that the file cannot hold.
    Count,
    /// A length that the file cannot hold or the format does not allow.
    Length,
    /// The declared alignment is not a power of two.
    Alignment,
    /// A shape that is not valid: a zero or overflowing dimension, or too many dimensions.
    Shape,
    /// A row that is not a whole number of blocks.
    Row,
    /// Data misplaced: misaligned, inverted or outside the file.
    Offset,
    /// Two tensors share bytes.
    Overlap,
    /// A name that occurs twice.
    Duplicate,
    /// Text that is not UTF-8.
    Utf8,
    /// Nesting deeper than any real file has.
    Depth,
    /// A type identifier that the format does not define.
    Type,
    /// A header that is not valid JSON or lacks a field.
    Json,
    /// A tensor or a file that is named but not there.
    Missing,
    /// A value outside what its key allows.
    Value,
}

/// Why a file was refused. Displays on one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The file cannot be read.
    #[error("{file}: {source}")]
    Io {
        /// The file.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// The file contradicts its format.
    #[error("{file}: {at}: {found}; {right}")]
    Malformed {
        /// The file.
        file: String,
        /// What kind of damage.
        fault: Fault,
        /// The part of the file.
        at: String,
        /// What is there.
        found: String,
        /// What would be right.
        right: String,
    },
    /// The file is well formed but uses something that is not supported.
    #[error("{file}: {at}: {found} is not supported; {right}")]
    Unsupported {
        /// The file.
        file: String,
        /// The part of the file.
        at: String,
        /// What is not supported.
        found: String,
        /// What is.
        right: String,
    },
    /// A metadata key that is needed is not there.
    #[error("{file}: metadata key '{key}' is missing; it must hold {right}")]
    MissingKey {
        /// The file.
        file: String,
        /// The key.
        key: String,
        /// What it must hold.
        right: String,
    },
    /// A metadata key holds a value of another type, or one that does not fit.
    #[error("{file}: metadata key '{key}' holds {found}; it must hold {right}")]
    KeyType {
        /// The file.
        file: String,
        /// The key.
        key: String,
        /// What it holds.
        found: String,
        /// What it must hold.
        right: String,
    },
}

impl FormatError {
    /// The kind of damage, for malformed files.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            FormatError::Malformed { fault, .. } => Some(*fault),
            _ => None,
        }
    }
}

/// A fault before the file and the place are known.
#[derive(Debug)]
pub(crate) struct Fail {
    pub fault: Fault,
    pub found: String,
    pub right: String,
}

pub(crate) fn fail<T>(fault: Fault, found: impl Into<String>, right: impl Into<String>) -> Result<T, Fail> {
    Err(Fail { fault, found: found.into(), right: right.into() })
}

impl Fail {
    pub fn at(self, file: &str, at: impl Into<String>) -> FormatError {
        let Fail { fault, found, right } = self;
        FormatError::Malformed { file: file.into(), fault, at: at.into(), found, right }
    }
}

/// A name from a file as it appears in messages: quoted, on one line and not too long.
pub(crate) fn quote(name: &str) -> String {
    const LONGEST: usize = 96;
    let mut shown: String = name.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if name.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    format!("'{shown}'")
}
