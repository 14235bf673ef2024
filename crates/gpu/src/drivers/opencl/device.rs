//! Which OpenCL devices there are, and their facts.

use std::sync::{Mutex, PoisonError};

use cl3::device::{
    CL_DEVICE_DOUBLE_FP_CONFIG, CL_DEVICE_GLOBAL_MEM_SIZE, CL_DEVICE_HOST_UNIFIED_MEMORY,
    CL_DEVICE_LOCAL_MEM_SIZE, CL_DEVICE_MAX_COMPUTE_UNITS, CL_DEVICE_MAX_MEM_ALLOC_SIZE,
    CL_DEVICE_MAX_WORK_GROUP_SIZE, CL_DEVICE_NAME, CL_DEVICE_SINGLE_FP_CONFIG, CL_DEVICE_TYPE,
    CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_CPU, CL_DEVICE_VENDOR, CL_DEVICE_VERSION, CL_DRIVER_VERSION,
    CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT, get_device_data, get_device_ids,
};
use cl3::is_opencl_runtime_available;
use cl3::platform::get_platform_ids;
use cl3::types::{cl_device_id, cl_device_info, cl_platform_id};

use crate::driver::{DeviceInfo, Dialect, Features};
use crate::error::GpuError;

/// Alignment of values: what vector loads and cache lines of GPUs want.
const ALIGN: u64 = 256;

/// How to get what is missing.
const HINT: &str = "install an OpenCL loader (Debian: ocl-icd-libopencl1) and the driver of the device; \
                    for the CPU, pocl-opencl-icd";

/// The devices of all platforms, in the loader's order.
pub(super) fn all() -> Result<Vec<(cl_platform_id, cl_device_id)>, GpuError> {
    // Loaders and platforms set themselves up at the first call, and not all of them bear two first calls at once.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _held = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if !is_opencl_runtime_available() {
        return Err(GpuError::Library { library: "libOpenCL", hint: HINT.into() });
    }
    // A loader without any platform gives an error, which means that there is none.
    let platforms = get_platform_ids().unwrap_or_default();
    let devices = |p: cl_platform_id| get_device_ids(p, CL_DEVICE_TYPE_ALL).unwrap_or_default();
    Ok(platforms.into_iter().flat_map(|p| devices(p).into_iter().map(move |d| (p, d))).collect())
}

fn number(d: cl_device_id, what: cl_device_info) -> u64 {
    let mut bytes = get_device_data(d, what).unwrap_or_default();
    bytes.resize(8, 0);
    u64::from_le_bytes(bytes.try_into().unwrap_or_default())
}

fn text(d: cl_device_id, what: cl_device_info) -> String {
    let bytes = get_device_data(d, what).unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim_matches(['\0', ' ']).into()
}

/// Whether `d` can round `/` and `sqrt` of f32 correctly when it is asked to.
pub(super) fn rounds_division(d: cl_device_id) -> bool {
    number(d, CL_DEVICE_SINGLE_FP_CONFIG) & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT != 0
}

/// The facts of `d`.
pub(super) fn info(d: cl_device_id) -> DeviceInfo {
    let small = |what| u32::try_from(number(d, what)).unwrap_or(u32::MAX);
    DeviceInfo {
        api: "opencl",
        name: text(d, CL_DEVICE_NAME),
        vendor: text(d, CL_DEVICE_VENDOR),
        driver: format!("{}, {}", text(d, CL_DEVICE_VERSION), text(d, CL_DRIVER_VERSION)),
        dialect: Dialect::OpenCl,
        memory: number(d, CL_DEVICE_GLOBAL_MEM_SIZE),
        max_buffer: number(d, CL_DEVICE_MAX_MEM_ALLOC_SIZE),
        shared_memory: small(CL_DEVICE_LOCAL_MEM_SIZE),
        max_group: small(CL_DEVICE_MAX_WORK_GROUP_SIZE),
        units: small(CL_DEVICE_MAX_COMPUTE_UNITS),
        align: ALIGN,
        features: Features {
            f64: number(d, CL_DEVICE_DOUBLE_FP_CONFIG) != 0,
            unified_memory: number(d, CL_DEVICE_HOST_UNIFIED_MEMORY) != 0,
            host: number(d, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU != 0,
        },
    }
}
