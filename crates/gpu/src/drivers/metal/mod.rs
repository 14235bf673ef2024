//! Metal, on macOS. `plan` decides everything as plain data and is tested on every platform; the rest carries it out and is
//! built on macOS alone. One command queue; a run is one command buffer: upload by blits, launches in one encoder with
//! barriers where they must wait (or as indirect command buffers encoded once), downloads by blits into memory of its own. Graphs of the vendor's compiler stand between command
//! buffers, its matrix multiplications between encoders.

#[cfg(target_os = "macos")]
mod capture;
#[cfg(target_os = "macos")]
mod device;
#[cfg(target_os = "macos")]
mod driver;
#[cfg(target_os = "macos")]
mod encode;
#[cfg(target_os = "macos")]
mod objects;
mod plan;
#[cfg(target_os = "macos")]
mod times;
#[cfg(target_os = "macos")]
mod vendor;

#[cfg(target_os = "macos")]
pub use capture::Capture;
#[cfg(target_os = "macos")]
pub use driver::{Metal, devices};
