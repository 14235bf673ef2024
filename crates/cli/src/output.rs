//! Writing results: JSON with a schema number, files, and figures in words.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::failure::Failure;

/// Version of every `--json` output; it changes when a field is renamed, removed or given another meaning.
pub const SCHEMA: u32 = 1;

/// Writes `value` as one indented JSON document.
pub fn json(value: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Writes `bytes` to the file `name`, under another name first.
///
/// # Errors
/// What the system gives, with the name.
pub fn file(name: &str, bytes: &[u8]) -> Result<(), Failure> {
    let (path, part) = (Path::new(name), format!("{name}.part"));
    // A device or a pipe is written to, not replaced.
    if path.metadata().is_ok_and(|m| !m.is_file()) {
        return fs::write(path, bytes).map_err(|e| Failure::Error(format!("{name}: {e}")));
    }
    let written = fs::write(&part, bytes).and_then(|()| fs::rename(&part, path));
    written.map_err(|e| {
        // The error that is on its way says more than a failed removal could.
        let _ = fs::remove_file(&part);
        Failure::Error(format!("{name}: {e}"))
    })
}

/// `n` per second; 0 for no time.
pub fn rate(n: usize, time: Duration) -> f64 {
    let s = time.as_secs_f64();
    if s > 0.0 { n as f64 / s } else { 0.0 }
}

/// Bytes as `12.3 MB` (10^6).
pub fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
