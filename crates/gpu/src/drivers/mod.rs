//! The drivers, a folder each: everything that is particular to one way of reaching a device; and the table of them, which
//! is all that others need to know.

use std::sync::Arc;

use crate::driver::{DeviceInfo, Driver};
use crate::error::GpuError;

mod common;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(any(test, target_os = "macos"))]
pub mod metal;
pub mod null;
#[cfg(feature = "opencl")]
pub mod opencl;
#[cfg(any(feature = "cuda", target_os = "macos"))]
mod slots;

/// A way of reaching devices.
#[derive(Clone, Copy, Debug)]
pub struct Api {
    /// Its name, [`DeviceInfo::api`].
    pub name: &'static str,
    /// The devices there are; an error says why it cannot be told.
    pub devices: fn() -> Result<Vec<DeviceInfo>, GpuError>,
    /// Opens the device of this number in that list.
    pub open: fn(usize) -> Result<Arc<dyn Driver>, GpuError>,
}

/// Those of this build, the fastest first.
pub static APIS: &[Api] = &[
    #[cfg(feature = "cuda")]
    Api { name: "cuda", devices: cuda::devices, open: |i| Ok(cuda::Cuda::open(i)?) },
    #[cfg(target_os = "macos")]
    Api { name: "metal", devices: metal::devices, open: |i| Ok(metal::Metal::open(i)?) },
    #[cfg(feature = "opencl")]
    Api { name: "opencl", devices: opencl::devices, open: |i| Ok(opencl::OpenCl::open(i)?) },
];
