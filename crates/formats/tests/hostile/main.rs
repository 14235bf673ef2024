//! Damaged and hostile files: each gives a typed error that says what is wrong, never a panic or a large allocation.

mod build;
mod gguf;
mod memory;
mod safetensors;
#[cfg(feature = "text")]
mod tokenizer;
