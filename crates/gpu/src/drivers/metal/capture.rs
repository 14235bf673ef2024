//! Recordings of what runs on a device, for Xcode.

use std::path::Path;

use objc2::rc::{Retained, autoreleasepool};
use objc2_foundation::NSURL;
use objc2_metal::{MTLCaptureDescriptor, MTLCaptureDestination, MTLCaptureManager};

use super::driver::{Metal, failure};
use super::objects;
use crate::error::GpuError;

/// A recording of what runs on a device ([`Metal::capture`]); it ends when this is dropped.
pub struct Capture {
    manager: Retained<MTLCaptureManager>,
}

impl Drop for Capture {
    fn drop(&mut self) {
        autoreleasepool(|_| self.manager.stopCapture());
    }
}

impl Metal {
    /// Records all that runs on the device into the new folder `to`, a `.gputrace` for Xcode, until the value is dropped.
    ///
    /// # Errors
    /// [`GpuError::Device`] if the system does not let this process record: it must have been started with the environment
    /// variable `MTL_CAPTURE_ENABLED=1`.
    pub fn capture(&self, to: &Path) -> Result<Capture, GpuError> {
        autoreleasepool(|_| {
            let failed = |why: &str| failure(&self.info, "recording what runs", why);
            // SAFETY: there is one for the process, at any time.
            let manager = unsafe { MTLCaptureManager::sharedCaptureManager() };
            let destination = MTLCaptureDestination::GPUTraceDocument;
            if !manager.supportsDestination(destination) {
                return Err(failed("start the program with MTL_CAPTURE_ENABLED=1"));
            }
            let wanted = MTLCaptureDescriptor::new();
            wanted.set_capture_device(&self.device);
            wanted.setDestination(destination);
            let url = NSURL::from_file_path(to).ok_or_else(|| failed("the path is no name of a file"))?;
            wanted.setOutputURL(Some(&url));
            manager.startCaptureWithDescriptor_error(&wanted).map_err(|e| failed(&objects::text(&e)))?;
            Ok(Capture { manager })
        })
    }
}
