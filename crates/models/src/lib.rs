//! Model architectures of Frit.
pub mod error;
pub mod generate;
pub mod metadata;
pub mod names;
pub mod philox;
pub mod sampling;
pub mod stop;
pub mod weights;
