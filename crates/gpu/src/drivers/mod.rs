//! The drivers, a folder each: everything that is particular to one way of reaching a device.

#[cfg(feature = "opencl")]
pub mod opencl;
