//! Writing results: JSON with a schema number, and figures in words.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

/// Version of every `--json` output; it changes when a field is renamed, removed or given another meaning.
pub const SCHEMA: u32 = 1;

/// Writes `value` as one indented JSON document.
pub fn json(value: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    out.write_all(b"\n")?;
    out.flush()
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
