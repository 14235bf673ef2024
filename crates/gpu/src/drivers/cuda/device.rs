//! Which CUDA devices there are, and their facts.

use std::sync::OnceLock;

use cudarc::driver::sys::{
    self, CUdevice, CUdevice_attribute as Attribute, CUdevice_attribute_enum as A, CUresult as Code,
};

use super::nvrtc;
use super::objects::{made, text_of};
use crate::driver::{DeviceInfo, Dialect, Features};
use crate::error::GpuError;

/// Alignment of values: what vector loads and memory segments want.
const ALIGN: u64 = 256;

/// The oldest driver that has every function used here, as `1000 * major + 10 * minor` of its CUDA version.
const OLDEST: i32 = 12080;

const HINT: &str = "install NVIDIA's driver for the device (CUDA 12.8 or later)";

/// The devices, by number.
pub(super) fn all() -> Result<Vec<CUdevice>, GpuError> {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: opens the library and closes it again.
    if !*PRESENT.get_or_init(|| unsafe { sys::is_culib_present() }) {
        return Err(GpuError::Library { library: "libcuda", hint: HINT.into() });
    }
    let failed =
        |what: &str, code| GpuError::Device { device: "CUDA".into(), what: what.into(), why: text_of(code) };
    // SAFETY: the one call that every version of the library takes before all others.
    let have =
        made(|v| unsafe { sys::cuDriverGetVersion(v) }).map_err(|c| failed("asking for its version", c))?;
    if have < OLDEST {
        let (have, want) = (version(have), version(OLDEST));
        return Err(GpuError::TooOld { api: "cuda", have, want, hint: HINT.into() });
    }
    // SAFETY: may be called any number of times.
    match unsafe { sys::cuInit(0) } {
        Code::CUDA_SUCCESS => {}
        Code::CUDA_ERROR_NO_DEVICE => return Ok(vec![]),
        code => return Err(failed("starting the driver", code)),
    }
    // SAFETY: the driver has been started.
    let count = made(|n| unsafe { sys::cuDeviceGetCount(n) }).map_err(|c| failed("counting devices", c))?;
    // SAFETY: the numbers are below the count.
    let one = |i| made(|d| unsafe { sys::cuDeviceGet(d, i) }).map_err(|c| failed("finding a device", c));
    (0..count).map(one).collect()
}

fn version(v: i32) -> String {
    format!("{}.{}", v / 1000, v % 1000 / 10)
}

/// An attribute; 0 where the driver does not know it.
pub(super) fn number(d: CUdevice, what: Attribute) -> u32 {
    // SAFETY: `d` is a device.
    made(|v| unsafe { sys::cuDeviceGetAttribute(v, what, d) }).map_or(0, |v| v.max(0) as u32)
}

/// Compute capability: 90 for 9.0.
pub(super) fn capability(d: CUdevice) -> u32 {
    let major = number(d, A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    10 * major + number(d, A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
}

/// The facts of `d`, whose kernels `compiler` builds.
pub(super) fn info(d: CUdevice, compiler: &nvrtc::Compiler) -> DeviceInfo {
    // SAFETY: `d` is a device.
    let memory = made(|v| unsafe { sys::cuDeviceTotalMem_v2(v, d) }).unwrap_or(0) as u64;
    // SAFETY: writes the version.
    let driver = made(|v| unsafe { sys::cuDriverGetVersion(v) }).unwrap_or(0);
    let (major, minor) = compiler.version;
    DeviceInfo {
        api: "cuda",
        name: name(d),
        vendor: "NVIDIA".into(),
        driver: format!("CUDA {}, sm_{}, NVRTC {major}.{minor}", version(driver), capability(d)),
        dialect: Dialect::Cuda,
        memory,
        max_buffer: memory,
        shared_memory: number(d, A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
        max_group: number(d, A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        units: number(d, A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        align: ALIGN,
        features: Features {
            f64: true,
            unified_memory: number(d, A::CU_DEVICE_ATTRIBUTE_INTEGRATED) != 0,
            host: false,
        },
    }
}

fn name(d: CUdevice) -> String {
    let mut bytes = [0u8; 256];
    // SAFETY: writes at most 256 bytes, the last of them 0.
    let code = unsafe { sys::cuDeviceGetName(bytes.as_mut_ptr().cast(), 256, d) };
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(0);
    match code {
        Code::CUDA_SUCCESS => String::from_utf8_lossy(&bytes[..end]).trim().into(),
        _ => "unknown".into(),
    }
}
