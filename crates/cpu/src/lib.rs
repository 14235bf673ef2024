//! The CPU backend: kernels for every instruction set behind one table, a thread pool and the executor.

pub mod args;
mod bind;
pub mod buffer;
mod clock;
pub mod error;
pub mod executor;
pub mod expr;
pub mod host;
pub mod isa;
pub mod kernels;
pub mod math;
pub mod pack;
pub mod pool;
pub mod target;
