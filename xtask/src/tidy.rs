//! Habits that no compiler checks. Each check gives the lines that break it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::root;

/// Longest source file: the habit is about 600 lines.
const MAX_LINES: usize = 700;

/// Words that have no place in the sources, with the reason.
const FORBIDDEN: &[(&str, &str)] = &[
    ("TODO", "finish it, or write it into docs/status.md"),
    ("FIXME", "fix it, or write it into docs/status.md"),
    ("XXX", "say what is meant"),
    ("todo!", "build it or leave it out"),
    ("unimplemented!", "give a typed error"),
    ("#[ignore", "a test runs or is not there"),
    ("/work/", "no path of one machine"),
    ("/tmp/", "no path of one machine"),
];

/// Where behaviour may read the environment.
const ENVIRONMENT: &[&str] = &["crates/cli/src/env.rs", "xtask/"];

/// Modules in which `unsafe` may stand.
const UNSAFE: &[&str] = &[
    "crates/cpu/",
    "crates/gpu/src/drivers/",
    "crates/formats/src/map",
    "crates/frit/src/custom.rs",
    "examples/custom_op/src/snake.rs",
    "tests/",
    "crates/models/tests/allocation.rs",
    "crates/formats/tests/hostile/memory.rs",
];

/// Runs every check.
pub fn run(_: &[String]) -> Result<(), String> {
    let files = tracked()?;
    let mut faults = Vec::new();
    for f in &files {
        let Ok(text) = std::fs::read_to_string(root().join(f)) else { continue };
        check(f, &text, &mut faults);
    }
    for f in &faults {
        eprintln!("{f}");
    }
    crate::docs::run(&["--check".to_owned()])?;
    if faults.is_empty() { Ok(()) } else { Err(format!("{} faults", faults.len())) }
}

fn tracked() -> Result<Vec<PathBuf>, String> {
    let out = Command::new("git").args(["ls-files", "*.rs"]).current_dir(root()).output();
    let out = out.map_err(|e| format!("git: {e}"))?;
    Ok(String::from_utf8_lossy(&out.stdout).lines().map(PathBuf::from).collect())
}

fn check(file: &Path, text: &str, faults: &mut Vec<String>) {
    let name = file.to_string_lossy();
    let lines = text.lines().count();
    if lines > MAX_LINES {
        faults.push(format!("{name}: {lines} lines; split it (at most {MAX_LINES})"));
    }
    let within = |list: &[&str]| list.iter().any(|p| name.starts_with(p));
    for (i, line) in text.lines().enumerate() {
        let at = format!("{name}:{}", i + 1);
        if name != "xtask/src/tidy.rs" {
            for (word, why) in FORBIDDEN.iter().filter(|(w, _)| line.contains(w)) {
                faults.push(format!("{at}: `{word}`: {why}"));
            }
        }
        if line.contains("env::var") && !within(ENVIRONMENT) {
            faults.push(format!("{at}: reads the environment outside {}", ENVIRONMENT[0]));
        }
        let code = line.trim_start();
        let is_unsafe =
            code.contains("unsafe {") || code.contains("unsafe fn") || code.contains("unsafe impl");
        if is_unsafe && !code.starts_with("//") && !within(UNSAFE) && name != "xtask/src/tidy.rs" {
            faults.push(format!("{at}: unsafe outside {}", UNSAFE.join(", ")));
        }
    }
    if name.ends_with("src/lib.rs") && !text.starts_with("//!") {
        faults.push(format!("{name}: a crate opens with what it is for"));
    }
}
