//! The one error of the public API: its variants say what a caller can do about it.

use std::error::Error as StdError;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use frit_formats::error::FormatError;

type Source = Box<dyn StdError + Send + Sync>;

/// What went wrong. One line says what, where, and what would be right; `source()` keeps the causes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    #[error("{}", OneLine(&format!("{}: {source}", path.display())))]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file or its content is malformed.
    #[error("{}", OneLine(message))]
    Format {
        /// What is wrong, and where.
        message: String,
        /// The cause, if there is one beneath.
        source: Option<Source>,
    },
    /// The model, op or option is sound but not supported.
    #[error("{}", OneLine(message))]
    Unsupported {
        /// What is not supported, and what is.
        message: String,
    },
    /// Extents that do not fit.
    #[error("{}", OneLine(message))]
    Shape {
        /// Which, and what would fit.
        message: String,
    },
    /// A name that does not exist, is missing or is used twice.
    #[error("{}", OneLine(message))]
    Name {
        /// Which, and what there is.
        message: String,
    },
    /// A value that is not allowed.
    #[error("{}", OneLine(message))]
    Value {
        /// Which, and what is allowed.
        message: String,
    },
    /// The context holds no more tokens.
    #[error(
        "the context of {capacity} tokens is full: {needed} are needed; load the model with a larger `context`"
    )]
    ContextFull {
        /// Tokens that the session holds at most.
        capacity: usize,
        /// Tokens that were asked for.
        needed: usize,
    },
    /// A text has more tokens than an embedder takes.
    #[error(
        "text {} has {tokens} tokens, {max} are taken at most; shorten it, or choose to truncate",
        .text + 1
    )]
    TextTooLong {
        /// Which of the texts given, counted from 0 (the message counts from 1).
        text: usize,
        /// Its tokens, special ones counted.
        tokens: usize,
        /// The most that are taken.
        max: usize,
    },
    /// The model cannot do what was asked (e.g. generate text from an encoder, or from one without a tokenizer).
    #[error("{}", OneLine(message))]
    WrongTask {
        /// What it can do.
        message: String,
    },
    /// The device failed.
    #[error("{}", OneLine(message))]
    Device {
        /// What failed, and where.
        message: String,
        /// The cause.
        source: Option<Source>,
    },
    /// There is not enough memory.
    #[error("{}", OneLine(message))]
    OutOfMemory {
        /// For what, and how much.
        message: String,
        /// The system's reason, where it gave one.
        source: Option<Source>,
    },
    /// The work was cancelled through its [`Cancel`](crate::Cancel) handle.
    #[error("cancelled")]
    Cancelled,
}

/// The result of everything public.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Error {
        Error::Io { path: path.into(), source }
    }

    pub(crate) fn value(message: impl Into<String>) -> Error {
        Error::Value { message: message.into() }
    }

    pub(crate) fn name(message: impl Into<String>) -> Error {
        Error::Name { message: message.into() }
    }

    pub(crate) fn shape(message: impl Into<String>) -> Error {
        Error::Shape { message: message.into() }
    }

    /// The same with `place` before its message, where it has one.
    pub(crate) fn within(mut self, place: &str) -> Error {
        match &mut self {
            Error::Format { message, .. }
            | Error::Unsupported { message }
            | Error::Shape { message }
            | Error::Name { message }
            | Error::Value { message }
            | Error::WrongTask { message }
            | Error::Device { message, .. }
            | Error::OutOfMemory { message, .. } => *message = format!("{place}: {message}"),
            Error::Io { .. } | Error::ContextFull { .. } | Error::TextTooLong { .. } | Error::Cancelled => {}
        }
        self
    }
}

/// A message on one line, whatever names from files it quotes.
struct OneLine<'a>(&'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c.is_control() {
                true => write!(f, "{}", c.escape_default())?,
                false => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// The cause of an error whose own text stands in a message already.
#[derive(Debug)]
struct Cause(Source);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.source() {
            Some(s) => write!(f, "{s}"),
            None => Ok(()),
        }
    }
}

impl StdError for Cause {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source()?.source()
    }
}

/// What is beneath `e`, if anything.
fn causes(e: impl StdError + Send + Sync + 'static) -> Option<Source> {
    e.source().is_some().then(|| Source::from(Cause(Box::new(e))))
}

impl From<FormatError> for Error {
    fn from(e: FormatError) -> Error {
        match e {
            FormatError::Io { file, source } => Error::Io { path: file.into(), source },
            FormatError::Unsupported { .. } => Error::Unsupported { message: e.to_string() },
            e => Error::Format { message: e.to_string(), source: causes(e) },
        }
    }
}

#[cfg(feature = "text")]
impl From<frit_formats::tokenizer::TextError> for Error {
    fn from(e: frit_formats::tokenizer::TextError) -> Error {
        Error::value(e.to_string())
    }
}

#[cfg(feature = "text")]
impl From<frit_formats::chat::TemplateError> for Error {
    fn from(e: frit_formats::chat::TemplateError) -> Error {
        use frit_formats::chat::TemplateError as T;
        match e {
            T::Text(e) => e.into(),
            T::Failed { .. } => Error::Format { message: e.to_string(), source: causes(e) },
            e => Error::value(e.to_string()),
        }
    }
}

impl From<frit_ir::graph::GraphError> for Error {
    fn from(e: frit_ir::graph::GraphError) -> Error {
        use frit_ir::graph::GraphError as G;
        use frit_ir::op::OpError as O;
        let message = e.to_string();
        match e {
            G::Name(_) | G::Value(_) | G::Op(_) | G::NotState(_) => Error::Name { message },
            G::State(..) => Error::Shape { message },
            G::Infer { source: O::Shape(_) | O::Operands { .. }, .. } => Error::Shape { message },
            G::Infer { .. } => Error::Value { message },
        }
    }
}

impl From<frit_ir::op::RegistryError> for Error {
    fn from(e: frit_ir::op::RegistryError) -> Error {
        Error::Name { message: e.to_string() }
    }
}

impl From<frit_ir::tensor::TensorError> for Error {
    fn from(e: frit_ir::tensor::TensorError) -> Error {
        Error::Shape { message: e.to_string() }
    }
}

impl From<frit_ir::symbols::SymbolError> for Error {
    fn from(e: frit_ir::symbols::SymbolError) -> Error {
        Error::Value { message: e.to_string() }
    }
}

impl From<frit_cpu::error::ExecError> for Error {
    fn from(e: frit_cpu::error::ExecError) -> Error {
        use frit_cpu::error::ExecError as E;
        use frit_ir::sizes::SizeError;
        let message = e.to_string();
        match e {
            E::WeightMissing(_) | E::Name { .. } | E::InputMissing(_) | E::Size(SizeError::Symbol { .. }) => {
                Error::Name { message }
            }
            E::DType { .. } | E::Size(SizeError::Fixed { .. } | SizeError::Dim(_)) => {
                Error::Value { message }
            }
            E::WeightBytes { .. } | E::InputBytes { .. } | E::Size(_) => Error::Shape { message },
            E::OutOfMemory { .. } => Error::OutOfMemory { message, source: causes(e) },
            other => Error::Device { message, source: causes(other) },
        }
    }
}

#[cfg(feature = "gpu")]
impl From<frit_gpu::GpuError> for Error {
    fn from(e: frit_gpu::GpuError) -> Error {
        use frit_gpu::GpuError as E;
        use frit_ir::sizes::SizeError;
        let message = e.to_string();
        match e {
            E::WeightMissing(_) | E::InputMissing(_) | E::Size(SizeError::Symbol { .. }) => {
                Error::Name { message }
            }
            E::Size(SizeError::Fixed { .. } | SizeError::Dim(_)) => Error::Value { message },
            E::WeightBytes { .. } | E::Bytes { .. } | E::Size(_) => Error::Shape { message },
            E::OutOfMemory { .. } | E::BufferTooLarge { .. } => {
                Error::OutOfMemory { message, source: causes(e) }
            }
            other => Error::Device { message, source: causes(other) },
        }
    }
}

impl From<frit_models::ModelError> for Error {
    fn from(e: frit_models::ModelError) -> Error {
        use frit_models::ModelError as M;
        let message = e.to_string();
        match e {
            M::InFile { file, source } => Error::from(*source).within(&file),
            M::UnknownArch { .. } | M::Unsupported { .. } => Error::Unsupported { message },
            M::Option { .. } => Error::Value { message },
            other => Error::Format { message, source: causes(other) },
        }
    }
}

impl From<frit_cpu::pool::PoolError> for Error {
    fn from(e: frit_cpu::pool::PoolError) -> Error {
        match e {
            frit_cpu::pool::PoolError::Threads(_) => Error::Value { message: e.to_string() },
            other => Error::Device { message: other.to_string(), source: causes(other) },
        }
    }
}

impl From<frit_compile::CompileError> for Error {
    fn from(e: frit_compile::CompileError) -> Error {
        Error::Unsupported { message: e.to_string() }
    }
}
