//! The one error of the public API: its variants say what a caller can do about it.

use std::error::Error as StdError;
use std::path::{Path, PathBuf};

type Source = Box<dyn StdError + Send + Sync>;

/// What went wrong. One line says what, where, and what would be right; `source()` keeps the causes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file or its content is malformed.
    #[error("{message}")]
    Format {
        /// What is wrong, and where.
        message: String,
        /// The cause, if there is one beneath.
        source: Option<Source>,
    },
    /// The model, op or option is sound but not supported.
    #[error("{message}")]
    Unsupported {
        /// What is not supported, and what is.
        message: String,
    },
    /// Extents that do not fit.
    #[error("{message}")]
    Shape {
        /// Which, and what would fit.
        message: String,
    },
    /// A name that does not exist, is missing or is used twice.
    #[error("{message}")]
    Name {
        /// Which, and what there is.
        message: String,
    },
    /// A value that is not allowed.
    #[error("{message}")]
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
    #[error("{message}")]
    WrongTask {
        /// What it can do.
        message: String,
    },
    /// The device failed.
    #[error("{message}")]
    Device {
        /// What failed, and where.
        message: String,
        /// The cause.
        source: Option<Source>,
    },
    /// There is not enough memory.
    #[error("{message}")]
    OutOfMemory {
        /// For what, and how much.
        message: String,
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

    pub(crate) fn format(source: impl StdError + Send + Sync + 'static) -> Error {
        Error::Format { message: source.to_string(), source: source.source().map(|s| s.to_string().into()) }
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
        let message = e.to_string();
        match e {
            E::WeightMissing(_) | E::Name { .. } | E::InputMissing(_) | E::Symbol { .. } => {
                Error::Name { message }
            }
            E::WeightBytes { .. } | E::InputBytes { .. } | E::Guard { .. } | E::Range { .. } => {
                Error::Shape { message }
            }
            E::Fixed { .. } | E::DType { .. } | E::Dim(_) => Error::Value { message },
            E::OutOfMemory { .. } => Error::OutOfMemory { message },
            other => Error::Device { message, source: Some(Box::new(other)) },
        }
    }
}

impl From<frit_models::ModelError> for Error {
    fn from(e: frit_models::ModelError) -> Error {
        use frit_models::ModelError as M;
        let message = e.to_string();
        match e {
            M::UnknownArch { .. } | M::Unsupported { .. } => Error::Unsupported { message },
            M::Option { .. } => Error::Value { message },
            other => Error::Format { message, source: other.source().map(|s| s.to_string().into()) },
        }
    }
}

impl From<frit_cpu::pool::PoolError> for Error {
    fn from(e: frit_cpu::pool::PoolError) -> Error {
        match e {
            frit_cpu::pool::PoolError::Threads(_) => Error::Value { message: e.to_string() },
            other => Error::Device { message: other.to_string(), source: Some(Box::new(other)) },
        }
    }
}

impl From<frit_compile::CompileError> for Error {
    fn from(e: frit_compile::CompileError) -> Error {
        Error::Unsupported { message: e.to_string() }
    }
}
