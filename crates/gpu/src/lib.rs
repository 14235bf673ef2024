//! The GPU layer: kernels written once in a small C dialect, rendered for OpenCL, CUDA and Metal, and one executor over a
//! thin driver for each of them. Nothing here knows an op: what a kernel takes stands in its row.

mod bind;
pub mod catalog;
pub mod device;
pub mod driver;
pub mod drivers;
pub mod error;
pub mod executor;
pub mod graphs;
pub mod launch;
mod memory;
pub mod render;
pub mod row;
pub mod session;

pub use error::GpuError;
