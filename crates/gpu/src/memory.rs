//! Buffers that free themselves.

use std::sync::Arc;

use crate::device::Device;
use crate::driver::BufferId;
use crate::error::GpuError;
use crate::launch::Span;

/// A buffer of a device; dropping it frees it.
pub(crate) struct Buffer {
    device: Arc<Device>,
    pub id: BufferId,
    /// Bytes of contents.
    pub bytes: u64,
}

impl Buffer {
    /// `bytes` zeroed bytes.
    pub fn zeroed(device: &Arc<Device>, what: &str, bytes: u64) -> Result<Buffer, GpuError> {
        let b = Buffer::new(device, what, bytes)?;
        if bytes > 0 {
            device.driver().zero(b.span(0, bytes))?;
        }
        Ok(b)
    }

    /// `bytes` bytes of no certain contents.
    pub fn new(device: &Arc<Device>, what: &str, bytes: u64) -> Result<Buffer, GpuError> {
        let id = device.driver().allocate(what, bytes)?;
        Ok(Buffer { device: device.clone(), id, bytes })
    }

    /// `bytes` of its contents from `offset` on.
    pub fn span(&self, offset: u64, bytes: u64) -> Span {
        Span { buffer: self.id, offset, bytes }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.device.driver().free(self.id);
    }
}
