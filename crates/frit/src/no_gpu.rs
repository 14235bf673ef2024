//! What a build without GPUs has in place of `gpu.rs`: there are none.

use std::path::Path;

use crate::backend::Backend;
use crate::device::{Device, DeviceSpec};
use crate::error::Result;

/// None.
pub(crate) fn devices(_: &str) -> Vec<Device> {
    Vec::new()
}

/// No API is in this build.
pub(crate) fn why_missing(_: &str) -> Option<Option<String>> {
    None
}

/// None that this build reaches.
pub(crate) fn open(_: &DeviceSpec, _: Option<&Path>, _: bool) -> Option<Result<Backend>> {
    None
}

/// Nothing is known.
pub(crate) fn last_check(_: &Device, _: Option<&Path>) -> Option<Result<()>> {
    None
}
