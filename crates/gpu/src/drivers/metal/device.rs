//! Which Metal devices there are, and their facts.

use objc2_foundation::{NSOperatingSystemVersion, NSProcessInfo};
use objc2_metal::{MTLCopyAllDevices, MTLCounterSamplingPoint, MTLDevice, MTLGPUFamily};

use super::objects::Device;
use super::plan::{self, Abilities};
use super::times;
use crate::driver::{DeviceInfo, Dialect, Features};
use crate::error::GpuError;

/// Alignment of values: what vector loads want, and more than Metal asks of a parameter block's offset (32 bytes at most).
const ALIGN: u64 = 256;

/// The oldest system whose compiler reads Metal 2.4.
const OLDEST: isize = 12;

/// Apple's families are numbered from 1001 on.
const APPLE: isize = 1000;

/// The latest family that is asked for.
const LATEST: u32 = 20;

/// The devices: built in before pluggable, fast before frugal, else in the system's order.
pub(super) fn all() -> Result<Vec<Device>, GpuError> {
    let system = NSProcessInfo::processInfo();
    let want = NSOperatingSystemVersion { majorVersion: OLDEST, minorVersion: 0, patchVersion: 0 };
    if !system.isOperatingSystemAtLeastVersion(want) {
        let v = system.operatingSystemVersion();
        let (have, want) = (format!("{}.{}", v.majorVersion, v.minorVersion), OLDEST.to_string());
        let hint = format!("it comes with macOS {OLDEST}");
        return Err(GpuError::TooOld { api: "metal", have, want, hint });
    }
    let mut all = MTLCopyAllDevices().to_vec();
    all.sort_by_key(|d| (d.isRemovable(), d.isLowPower()));
    Ok(all)
}

/// The latest of Apple's families that `d` belongs to.
fn family(d: &Device) -> u32 {
    let is = |n: &u32| d.supportsFamily(MTLGPUFamily(APPLE + *n as isize));
    (1..=LATEST).rev().find(is).unwrap_or(0)
}

/// What decides how the driver works on `d`.
pub(super) fn abilities(d: &Device) -> Abilities {
    let samples =
        d.supportsCounterSampling(MTLCounterSamplingPoint::AtStageBoundary) && times::set(d).is_some();
    Abilities { unified: d.hasUnifiedMemory(), apple: family(d), samples }
}

/// The facts of `d`.
pub(super) fn info(d: &Device) -> DeviceInfo {
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let name = d.name().to_string();
    let a = abilities(d);
    let system = NSProcessInfo::processInfo().operatingSystemVersionString();
    let family = if a.apple > 0 { format!(", family Apple{}", a.apple) } else { String::new() };
    DeviceInfo {
        api: "metal",
        vendor: name.split(' ').next().unwrap_or_default().into(),
        // Metal and its compiler are parts of the system. The device's registry ID is none of it: a restart may change it.
        driver: format!("macOS {system}{family}"),
        dialect: Dialect::Metal,
        memory: d.recommendedMaxWorkingSetSize(),
        max_buffer: d.maxBufferLength() as u64,
        shared_memory: small(d.maxThreadgroupMemoryLength()),
        max_group: small(d.maxThreadsPerThreadgroup().width),
        units: plan::units(&name),
        align: ALIGN,
        features: Features { f64: false, unified_memory: a.unified, host: false, hopper: false },
        name,
    }
}
