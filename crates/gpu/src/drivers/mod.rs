//! The drivers, a folder each: everything that is particular to one way of reaching a device.

#[cfg(any(feature = "opencl", feature = "cuda"))]
mod common;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(feature = "opencl")]
pub mod opencl;
