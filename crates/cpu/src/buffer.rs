//! Zeroed, page-aligned memory for arenas, states, packed weights, inputs and outputs.

use memmap2::MmapMut;

/// A zeroed block of memory of fixed size. It gives out raw pointers; who holds them sees to it that writes do not race.
#[derive(Debug)]
pub struct Buffer {
    map: Option<MmapMut>,
    ptr: *mut u8,
    len: usize,
}

// SAFETY: the pointer is to memory that this value owns; access is synchronized by the executor (`&mut` sessions, barriers).
unsafe impl Send for Buffer {}
// SAFETY: as above; `&Buffer` only hands out the pointer.
unsafe impl Sync for Buffer {}

/// Blocks from this size on ask for huge pages: fewer page walks when weights stream through.
#[cfg(target_os = "linux")]
const HUGE: usize = 4 << 20;

impl Buffer {
    /// `len` zeroed bytes, aligned to a page. Pages are taken from the system as they are first touched.
    ///
    /// # Errors
    /// The system refuses the memory.
    pub fn zeroed(len: usize) -> std::io::Result<Buffer> {
        if len == 0 {
            return Ok(Buffer { map: None, ptr: std::ptr::dangling_mut::<u64>().cast(), len: 0 });
        }
        let mut map = MmapMut::map_anon(len)?;
        #[cfg(target_os = "linux")]
        if len >= HUGE {
            // A refusal only costs speed.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        let ptr = map.as_mut_ptr();
        Ok(Buffer { map: Some(map), ptr, len })
    }

    /// The first byte.
    pub fn ptr(&self) -> *mut u8 {
        self.ptr
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&[])
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.map.as_deref_mut().unwrap_or(&mut [])
    }
}
