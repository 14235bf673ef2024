//! The drivers, a folder each: everything that is particular to one way of reaching a device.

#[cfg(any(feature = "opencl", feature = "cuda"))]
mod common;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(test)]
mod metal;
#[cfg(feature = "opencl")]
pub mod opencl;
#[cfg(feature = "cuda")]
mod slots;
