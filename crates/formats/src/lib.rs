//! Model file formats and tokenizers of Frit.
//!
//! Files are mapped or read, checked whole, and then handed out as named tensors over shared bytes ([`Blob`]). Whatever a
//! file claims is checked against the file before it is believed: a damaged or hostile file gives a [`FormatError`],
//! never a panic, a hang or an allocation that the file's own size does not justify.

pub mod blob;
#[cfg(feature = "text")]
pub mod chat;
pub mod error;
pub mod gguf;
mod map;
pub mod safetensors;
pub mod tensor;
#[cfg(feature = "text")]
pub mod tokenizer;

pub use blob::{Blob, OpenOptions};
#[cfg(feature = "text")]
pub use chat::{ChatTemplate, TemplateError, Turn};
pub use error::{Fault, FormatError};
pub use gguf::Gguf;
pub use safetensors::SafeTensors;
pub use tensor::TensorInfo;
#[cfg(feature = "text")]
pub use tokenizer::{EncodeOptions, TokenStream, Tokenizer};
