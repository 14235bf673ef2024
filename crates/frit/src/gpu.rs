//! GPUs: which there are, and opening them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use frit_gpu::device::Device as Gpu;
use frit_gpu::driver::DeviceInfo;
use frit_gpu::drivers::{APIS, Api};

use crate::device::{Device, DeviceKind, DeviceSpec};
use crate::error::{Error, Result};
use crate::selfcheck;

fn find(name: &str) -> Option<&'static Api> {
    APIS.iter().find(|a| a.name == name)
}

/// Whether this build reaches devices by the API `name`.
pub(crate) fn has(name: &str) -> bool {
    find(name).is_some()
}

/// What each API of this build finds.
pub(crate) fn devices() -> Vec<Device> {
    let of = |api: &Api| {
        let found = (api.devices)().unwrap_or_default().into_iter().enumerate();
        found.filter_map(|(i, info)| Some(describe(DeviceSpec::of(api.name, i)?, info))).collect::<Vec<_>>()
    };
    APIS.iter().flat_map(of).collect()
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
type Key = (String, usize, Option<PathBuf>);

/// The device, opened once for all models that use it at the same time: they share its memory and its built kernels.
pub(crate) fn open(name: &str, index: usize, cache: Option<&Path>) -> Result<Arc<Gpu>> {
    static OPEN: Mutex<Option<HashMap<Key, Weak<Gpu>>>> = Mutex::new(None);
    let api = find(name).ok_or_else(|| Error::name(format!("this build has no driver for {name}")))?;
    // The map is whole after every call; a panic elsewhere does not make it wrong.
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let open = open.get_or_insert_default();
    let key = (name.to_owned(), index, cache.map(Path::to_path_buf));
    if let Some(gpu) = open.get(&key).and_then(Weak::upgrade) {
        return Ok(gpu);
    }
    let gpu = Gpu::new((api.open)(index)?, key.2.clone());
    open.insert(key, Arc::downgrade(&gpu));
    Ok(gpu)
}

/// The self-check of `gpu`, which is `spec`: see [`Device::check`].
pub(crate) fn check(gpu: &Arc<Gpu>, spec: &DeviceSpec, cache: Option<&Path>, anew: bool) -> Result<()> {
    selfcheck::check(gpu, cache, anew).map_err(|why| failed(spec, &gpu.info().name, &why))
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
