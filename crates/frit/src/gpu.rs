//! GPUs: which there are, and opening them. A build without GPUs has `no_gpu.rs` in its place.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use frit_gpu::device::Device as Gpu;
use frit_gpu::driver::DeviceInfo;
use frit_gpu::drivers::{APIS, Api};

use crate::backend::Backend;
use crate::device::{Device, DeviceKind, DeviceSpec};
use crate::error::{Error, Result};
use crate::selfcheck;

fn find(name: &str) -> Option<&'static Api> {
    APIS.iter().find(|a| a.name == name)
}

/// What the API `name` finds; nothing if this build does not have it.
pub(crate) fn devices(name: &str) -> Vec<Device> {
    let found = find(name).and_then(|api| (api.devices)().ok()).unwrap_or_default();
    let described =
        found.into_iter().enumerate().map(|(i, info)| Some(describe(DeviceSpec::of(name, i)?, info)));
    described.flatten().collect()
}

fn describe(spec: DeviceSpec, info: DeviceInfo) -> Device {
    Device {
        spec,
        model: Some(info.name).filter(|n| !n.is_empty()),
        memory: Some(info.memory),
        available: None,
        kind: DeviceKind::Gpu {
            vendor: info.vendor,
            driver: info.driver,
            units: info.units,
            max_buffer: info.max_buffer,
            f64: info.features.f64,
            unified_memory: info.features.unified_memory,
            host: info.features.host,
        },
    }
}

/// Why the API `name` finds no device, if it finds none; nothing at all for one that this build does not have.
pub(crate) fn why_missing(name: &str) -> Option<Option<String>> {
    Some(match (find(name)?.devices)() {
        Err(e) => Some(e.to_string()),
        Ok(all) if all.is_empty() => Some("there is no such device".into()),
        Ok(_) => None,
    })
}

/// What tells an open device from others: API, number, and the folder of its compiled kernels.
type Key = (&'static str, usize, Option<PathBuf>);

/// Opens what `spec` names after its self-check, which `anew` repeats; `None` if it is no GPU, or none that this build reaches.
pub(crate) fn open(spec: &DeviceSpec, cache: Option<&Path>, anew: bool) -> Option<Result<Backend>> {
    let (name, index) = spec.gpu()?;
    let api = find(name)?;
    let checked = |gpu: Arc<Gpu>| match selfcheck::check(&gpu, cache, anew) {
        Ok(()) => Ok(Backend::Gpu(gpu)),
        Err(why) => Err(failed(spec, &gpu.info().name, &why)),
    };
    Some(shared(api, index, cache).and_then(checked))
}

/// The device, opened once for all models that use it at the same time: they share its memory and its built kernels.
fn shared(api: &'static Api, index: usize, cache: Option<&Path>) -> Result<Arc<Gpu>> {
    static OPEN: Mutex<Option<HashMap<Key, Weak<Gpu>>>> = Mutex::new(None);
    // The map is whole after every call; a panic elsewhere does not make it wrong.
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let open = open.get_or_insert_default();
    let key = (api.name, index, cache.map(Path::to_path_buf));
    if let Some(gpu) = open.get(&key).and_then(Weak::upgrade) {
        return Ok(gpu);
    }
    let gpu = Gpu::new((api.open)(index)?, key.2.clone());
    open.insert(key, Arc::downgrade(&gpu));
    Ok(gpu)
}

/// See [`Device::last_check`].
pub(crate) fn last_check(d: &Device, cache: Option<&Path>) -> Option<Result<()>> {
    let DeviceKind::Gpu { vendor, driver, .. } = &d.kind else { return None };
    let (api, model) = (d.spec.gpu()?.0, d.model.as_deref().unwrap_or(""));
    let last = selfcheck::last(api, vendor, model, driver, cache)?;
    Some(last.map_err(|why| failed(&d.spec, model, &why)))
}

fn failed(spec: &DeviceSpec, model: &str, why: &str) -> Error {
    let message = format!("{spec} ({model}) fails its self-check: {why}");
    Error::Device { message, source: None }
}
