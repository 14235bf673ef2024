//! A device with its built kernels: each text is built once, and its compiled form kept on disk if there is a place.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::driver::{DeviceInfo, Driver, KernelId, KernelSource};
use crate::error::GpuError;

/// A device and the kernels that were built on it. Shared by everything that runs there.
pub struct Device {
    driver: Arc<dyn Driver>,
    kernels: Mutex<HashMap<KernelSource, KernelId>>,
    cache: Option<PathBuf>,
}

impl Device {
    /// The device behind `driver`. Compiled kernels are kept in the folder `cache`, which may be deleted at any time;
    /// what cannot be read or written there is built again.
    pub fn new(driver: Arc<dyn Driver>, cache: Option<PathBuf>) -> Arc<Device> {
        Arc::new(Device { driver, kernels: Mutex::default(), cache })
    }

    /// Its driver.
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    /// The device in facts.
    pub fn info(&self) -> &DeviceInfo {
        self.driver.info()
    }

    /// Number of distinct kernels built so far.
    pub fn builds(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<KernelSource, KernelId>> {
        // A map is whole after every call; a panic elsewhere does not make it wrong.
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel of this text, built if it is new.
    ///
    /// # Errors
    /// [`GpuError::Build`].
    pub fn kernel(&self, source: &KernelSource) -> Result<KernelId, GpuError> {
        let mut kernels = self.lock();
        if let Some(id) = kernels.get(source) {
            return Ok(*id);
        }
        let path = self.cache.as_deref().map(|dir| dir.join(self.file_name(source)));
        let stored = path.as_ref().and_then(|p| std::fs::read(p).ok());
        let id = self.driver.build(source, stored.as_deref())?;
        if let (Some(path), None) = (&path, stored)
            && let Some(binary) = self.driver.binary(id)
        {
            store(path, &binary);
        }
        kernels.insert(source.clone(), id);
        Ok(id)
    }

    /// A name that another device, driver or text does not have: two 64-bit hashes from different starts.
    fn file_name(&self, source: &KernelSource) -> String {
        let info = self.info();
        let parts = [info.api, &info.vendor, &info.name, &info.driver, &source.text];
        let hash = |start| parts.iter().fold(start, |h, p| fnv(fnv(h, p.as_bytes()), &[0xff]));
        format!("{:016x}{:016x}.bin", hash(0xcbf2_9ce4_8422_2325), hash(0x9e37_79b9_7f4a_7c15))
    }
}

/// FNV-1a from the state `h` on.
fn fnv(h: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(h, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

/// Writes a file whole or not at all. A cache that cannot be written only costs time.
fn store(path: &Path, bytes: &[u8]) {
    let part = path.with_extension(format!("{}.part", std::process::id()));
    let written =
        path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(&part, bytes));
    if written.and_then(|()| std::fs::rename(&part, path)).is_err() {
        let _ = std::fs::remove_file(&part);
    }
}
