//! The CPU backend: kernels for every instruction set behind one table, a thread pool and the executor.

pub mod args;
pub mod expr;
pub mod kernels;
pub mod pool;
