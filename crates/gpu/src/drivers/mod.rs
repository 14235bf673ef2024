//! The drivers, a folder each: everything that is particular to one way of reaching a device.

mod common;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod null;
#[cfg(feature = "opencl")]
pub mod opencl;
