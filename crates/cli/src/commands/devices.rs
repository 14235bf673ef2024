//! `frit devices`: what there is to run on.

use std::io::Write;
use std::path::Path;

use frit::DeviceKind;
use serde::Serialize;

use crate::args::DevicesArgs;
use crate::env;
use crate::failure::Failure;
use crate::output::{self, megabytes};

/// The JSON document.
#[derive(Serialize)]
struct Document {
    schema: u32,
    devices: Vec<Device>,
    missing: Vec<Missing>,
}

#[derive(Serialize)]
struct Device {
    name: String,
    model: Option<String>,
    memory_bytes: Option<u64>,
    available_bytes: Option<u64>,
    #[serde(flatten)]
    kind: Kind,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Kind {
    Cpu {
        architecture: &'static str,
        instruction_set: &'static str,
        extensions: &'static [&'static str],
        threads: usize,
    },
    Gpu {
        vendor: String,
        driver: String,
        units: u32,
        largest_buffer_bytes: u64,
        f64: bool,
        unified_memory: bool,
        host: bool,
        /// `passed`, `failed` or `not run`.
        self_check: &'static str,
        self_check_error: Option<String>,
    },
}

#[derive(Serialize)]
struct Missing {
    name: &'static str,
    why: String,
}

/// Runs the command.
pub fn run(a: &DevicesArgs) -> Result<(), Failure> {
    let cache = env::cache_dir().ok().map(|c| c.join("kernels"));
    let devices = frit::devices().into_iter().map(|d| describe(d, a.check, cache.as_deref())).collect();
    let missing = frit::missing_devices().into_iter().map(|m| Missing { name: m.name, why: m.why }).collect();
    let document = Document { schema: output::SCHEMA, devices, missing };
    if a.json {
        output::json(&document)?;
    } else {
        print(&document)?;
    }
    let failed = |d: &&Device| matches!(d.kind, Kind::Gpu { self_check: "failed", .. });
    match document.devices.iter().filter(failed).map(|d| d.name.as_str()).collect::<Vec<_>>()[..] {
        [_, ..] if !a.check => Ok(()),
        [] => Ok(()),
        ref failed => Err(Failure::Error(format!("the self-check fails on {}", failed.join(", ")))),
    }
}

fn describe(d: frit::Device, check: bool, cache: Option<&Path>) -> Device {
    let result = match &d.kind {
        DeviceKind::Gpu { .. } if check => Some(d.check(cache, true)),
        _ => d.last_check(cache),
    };
    let (self_check, self_check_error) = match result {
        None => ("not run", None),
        Some(Ok(())) => ("passed", None),
        Some(Err(e)) => ("failed", Some(e.to_string())),
    };
    let name = d.spec.to_string();
    let kind = match d.kind {
        DeviceKind::Cpu { architecture, instruction_set, extensions, threads, .. } => {
            Kind::Cpu { architecture, instruction_set, extensions, threads }
        }
        DeviceKind::Gpu { vendor, driver, units, max_buffer, f64, unified_memory, host, .. } => Kind::Gpu {
            vendor,
            driver,
            units,
            largest_buffer_bytes: max_buffer,
            f64,
            unified_memory,
            host,
            self_check,
            self_check_error,
        },
        _ => unreachable!("a kind of device that this command does not know"),
    };
    Device { name, model: d.model, memory_bytes: d.memory, available_bytes: d.available, kind }
}

fn print(document: &Document) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for d in &document.devices {
        writeln!(out, "{}", d.name)?;
        for (name, value) in in_words(d) {
            writeln!(out, "  {name:<16} {value}")?;
        }
    }
    for m in &document.missing {
        writeln!(out, "{}\n  {:<16} {}", m.name, "not here", m.why)?;
    }
    out.flush()
}

fn in_words(d: &Device) -> Vec<(&'static str, String)> {
    let bytes = |b: Option<u64>| b.map_or("unknown".into(), megabytes);
    let model = d.model.as_deref().unwrap_or("unknown");
    match &d.kind {
        Kind::Cpu { architecture, instruction_set, extensions, threads } => vec![
            ("model", format!("{model} ({architecture})")),
            ("instruction set", (*instruction_set).into()),
            ("extensions", if extensions.is_empty() { "none needed".into() } else { extensions.join(", ") }),
            ("threads", threads.to_string()),
            ("memory", format!("{}, {} available", bytes(d.memory_bytes), bytes(d.available_bytes))),
        ],
        Kind::Gpu { vendor, driver, units, largest_buffer_bytes, f64, host, self_check_error, .. } => {
            let f64 = if *f64 { "with f64" } else { "without f64" };
            let largest = megabytes(*largest_buffer_bytes);
            let check = match (&d.kind, self_check_error) {
                (_, Some(why)) => format!("failed: {why}"),
                (Kind::Gpu { self_check: "not run", .. }, _) => {
                    "not run; the first use or --check runs it".into()
                }
                _ => "passed".into(),
            };
            let mut words = vec![
                ("model", format!("{model} ({vendor})")),
                ("driver", driver.clone()),
                ("compute units", format!("{units}, {f64}")),
                ("memory", format!("{}, buffers of at most {largest}", bytes(d.memory_bytes))),
                ("self-check", check),
            ];
            if *host {
                words.push(("note", "this is the CPU itself, by a slower way".into()));
            }
            words
        }
    }
}
