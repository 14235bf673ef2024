//! `frit devices`: what there is to run on.

use std::io::Write;

use serde::Serialize;

use crate::args::DevicesArgs;
use crate::failure::Failure;
use crate::output::{self, megabytes};

/// The JSON document.
#[derive(Serialize)]
struct Document {
    schema: u32,
    devices: Vec<Device>,
}

#[derive(Serialize)]
struct Device {
    name: &'static str,
    model: Option<String>,
    architecture: &'static str,
    instruction_set: &'static str,
    extensions: &'static [&'static str],
    threads: usize,
    memory_bytes: Option<u64>,
    available_bytes: Option<u64>,
}

/// Runs the command.
pub fn run(a: &DevicesArgs) -> Result<(), Failure> {
    let devices = frit::devices();
    let devices = devices.into_iter().map(|d| Device {
        name: d.name,
        model: d.model,
        architecture: d.architecture,
        instruction_set: d.instruction_set,
        extensions: d.extensions,
        threads: d.threads,
        memory_bytes: d.memory,
        available_bytes: d.available,
    });
    let document = Document { schema: output::SCHEMA, devices: devices.collect() };
    if a.json {
        return Ok(output::json(&document)?);
    }
    let mut out = std::io::stdout().lock();
    for d in &document.devices {
        writeln!(out, "{}", d.name)?;
        for (name, value) in in_words(d) {
            writeln!(out, "  {name:<16} {value}")?;
        }
    }
    Ok(out.flush()?)
}

fn in_words(d: &Device) -> [(&'static str, String); 5] {
    let extensions = if d.extensions.is_empty() { String::new() } else { d.extensions.join(", ") };
    let bytes = |b: Option<u64>| b.map_or("unknown".into(), megabytes);
    [
        ("model", format!("{} ({})", d.model.as_deref().unwrap_or("unknown"), d.architecture)),
        ("instruction set", d.instruction_set.into()),
        ("extensions", if extensions.is_empty() { "none needed".into() } else { extensions }),
        ("threads", d.threads.to_string()),
        ("memory", format!("{}, {} available", bytes(d.memory_bytes), bytes(d.available_bytes))),
    ]
}
