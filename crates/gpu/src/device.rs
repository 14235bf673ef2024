//! A device with its built kernels: each text is built once, and its compiled form kept on disk if there is a place.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frit_ir::target::{RowId, Target};

use crate::catalog;
use crate::driver::{DeviceInfo, Driver, KernelId, KernelSource};
use crate::error::GpuError;
use crate::row::GpuRow;

/// First bytes of a file of the cache.
const MAGIC: &[u8] = b"frit kernel 1\n";

/// Where FNV-1a starts.
const START: u64 = 0xcbf2_9ce4_8422_2325;

/// Built kernels by their texts.
type Kernels = Mutex<HashMap<KernelSource, Arc<Mutex<Option<KernelId>>>>>;

/// A device and the kernels that were built on it. Shared by everything that runs there.
pub struct Device {
    driver: Arc<dyn Driver>,
    rows: Vec<&'static GpuRow>,
    kernels: Arc<Kernels>,
    cache: Option<PathBuf>,
}

impl Device {
    /// The device behind `driver`. Compiled kernels are kept in the folder `cache`, which may be deleted at any time;
    /// what cannot be read or written there is built again.
    pub fn new(driver: Arc<dyn Driver>, cache: Option<PathBuf>) -> Arc<Device> {
        let rows = catalog::rows_of(driver.info()).collect();
        Arc::new(Device { driver, rows, kernels: Arc::default(), cache })
    }

    /// The same device with rows of its user's, which come before all others; those that need what it lacks are left out. Built
    /// kernels are shared.
    pub fn with_rows(&self, rows: &[&'static GpuRow]) -> Arc<Device> {
        let fitting = rows.iter().filter(|r| catalog::fits(r, self.info()));
        let rows = fitting.chain(&self.rows).copied().collect();
        let (driver, kernels, cache) = (self.driver.clone(), self.kernels.clone(), self.cache.clone());
        Arc::new(Device { driver, rows, kernels, cache })
    }

    /// The device as the compiler sees it, with the rows of its users.
    pub fn target(&self) -> Target {
        Target { rows: self.rows.iter().map(|r| r.row).collect(), ..catalog::target(self.info()) }
    }

    /// Its driver.
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    /// The device in facts.
    pub fn info(&self) -> &DeviceInfo {
        self.driver.info()
    }

    /// The row of its target with this number.
    pub fn row(&self, id: RowId) -> Option<&'static GpuRow> {
        self.rows.get(id.0 as usize).copied()
    }

    /// Number of distinct kernels built so far.
    pub fn builds(&self) -> usize {
        lock(&self.kernels).values().filter(|k| lock(k).is_some()).count()
    }

    /// The kernel of this text, built if it is new. Different texts are built at the same time; one that is being built is
    /// waited for.
    ///
    /// # Errors
    /// [`GpuError::Build`].
    pub fn kernel(&self, source: &KernelSource) -> Result<KernelId, GpuError> {
        let place = lock(&self.kernels).entry(source.clone()).or_default().clone();
        let mut kernel = lock(&place);
        let id = match *kernel {
            Some(id) => id,
            None => self.make(source)?,
        };
        *kernel = Some(id);
        Ok(id)
    }

    /// The kernels of these texts in their order, built on as many threads as there are processors.
    ///
    /// # Errors
    /// [`GpuError::Build`]: the first of them.
    pub fn kernels(&self, sources: &[KernelSource]) -> Result<Vec<KernelId>, GpuError> {
        let mut texts: Vec<&KernelSource> = sources.iter().collect::<HashSet<_>>().into_iter().collect();
        texts.sort_by_key(|s| std::cmp::Reverse(s.text.len()));
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(s) = texts.get(next.fetch_add(1, Ordering::Relaxed)) {
                // What goes wrong is met again below, where it is reported.
                let _ = self.kernel(s);
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(texts.len());
        std::thread::scope(|s| (1..threads).for_each(|_| drop(s.spawn(work))));
        sources.iter().map(|s| self.kernel(s)).collect()
    }

    /// The kernel from its file in the cache, or built; then the file is written anew.
    fn make(&self, source: &KernelSource) -> Result<KernelId, GpuError> {
        let Some(dir) = &self.cache else { return self.driver.build(source) };
        let name = self.file_name(source);
        let path = dir.join(&name);
        let stored = std::fs::read(&path).ok();
        let stored = stored.as_deref().and_then(|file| unseal(&name, file));
        if let Some(id) = stored.and_then(|binary| self.driver.load(source, binary)) {
            return Ok(id);
        }
        let id = self.driver.build(source)?;
        if let Some(binary) = self.driver.binary(id) {
            store(&path, &seal(&name, &binary));
        }
        Ok(id)
    }

    /// A name that another device, driver or text does not have: two 64-bit hashes from different starts.
    fn file_name(&self, source: &KernelSource) -> String {
        let info = self.info();
        let parts = [info.api, &info.vendor, &info.name, &info.driver, &source.text];
        let hash = |start| parts.iter().fold(start, |h, p| fnv(fnv(h, p.as_bytes()), &[0xff]));
        format!("{:016x}{:016x}.bin", hash(START), hash(0x9e37_79b9_7f4a_7c15))
    }
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is kept is whole after every call; a panic elsewhere does not make it wrong.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file of the cache: what it is, whose it is, how long it is and a sum, then the binary. Drivers take binaries on trust.
fn seal(name: &str, binary: &[u8]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(&(binary.len() as u64).to_le_bytes());
    out.extend_from_slice(&fnv(START, binary).to_le_bytes());
    out.extend_from_slice(binary);
    out
}

/// The binary of the file `name`, if it is that one's and whole.
fn unseal<'f>(name: &str, file: &'f [u8]) -> Option<&'f [u8]> {
    let rest = file.strip_prefix(MAGIC)?.strip_prefix(name.as_bytes())?;
    let (length, rest) = rest.split_first_chunk::<8>()?;
    let (sum, binary) = rest.split_first_chunk::<8>()?;
    let whole = u64::from_le_bytes(*length) == binary.len() as u64
        && u64::from_le_bytes(*sum) == fnv(START, binary)
        && !binary.is_empty();
    whole.then_some(binary)
}

/// FNV-1a from the state `h` on.
fn fnv(h: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(h, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

/// Writes a file whole or not at all. A cache that cannot be written only costs time.
fn store(path: &Path, bytes: &[u8]) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let nth = NEXT.fetch_add(1, Ordering::Relaxed);
    let part = path.with_extension(format!("{}-{nth}.part", std::process::id()));
    let written =
        path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(&part, bytes));
    if written.and_then(|()| std::fs::rename(&part, path)).is_err() {
        let _ = std::fs::remove_file(&part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_another_or_not_whole_is_refused() {
        let sealed = seal("a.bin", b"\x7fELF and more");
        assert_eq!(unseal("a.bin", &sealed), Some(b"\x7fELF and more".as_slice()));
        assert_eq!(unseal("b.bin", &sealed), None);
        for n in 0..sealed.len() {
            assert_eq!(unseal("a.bin", &sealed[..n]), None, "{n}");
            let mut other = sealed.clone();
            other[n] ^= 4;
            assert_eq!(unseal("a.bin", &other), None, "{n}");
        }
        assert_eq!(unseal("a.bin", &[sealed.as_slice(), &[0]].concat()), None);
        assert_eq!(unseal("a.bin", &seal("a.bin", b"")), None);
    }
}
