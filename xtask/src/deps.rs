//! The sizes of the dependency trees against their limits; with `--build` also clean build times and the size of the
//! command.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::root;

/// A tree: what it is, the package with its features, the most crates it may have, the goal for a clean release build in
/// minutes on two cores.
type Tree = (&'static str, &'static [&'static str], usize, u64);

const TREES: &[Tree] = &[
    ("frit without default features", &["-p", "frit", "--no-default-features"], 40, 2),
    ("frit", &["-p", "frit"], 100, 3),
    ("the command", &["-p", "frit-cli"], 180, 5),
];

/// The goal for the stripped command, in bytes.
const BINARY: u64 = 25_000_000;

/// Prints the counts and fails if one is above its limit.
pub fn run(args: &[String]) -> Result<(), String> {
    let build = match args {
        [] => false,
        [a] if a == "--build" => true,
        _ => return Err("takes nothing or --build".into()),
    };
    let mut over = Vec::new();
    for (name, package, most, minutes) in TREES {
        let crates = crates(package)?;
        let mut line = format!("{name}: {} crates, at most {most}", crates.len());
        if build {
            let seconds = build_time(package)?;
            line += &format!("; clean release build {seconds} s, goal {} s", minutes * 60);
        }
        println!("{line}");
        if crates.len() > *most {
            over.push(format!("{name} has {} crates, {most} are allowed: {}", crates.len(), join(&crates)));
        }
    }
    if build {
        let size = stripped(&folder().join("release/frit"))?;
        println!("stripped command: {:.1} MB, goal {:.0} MB", size as f64 / 1e6, BINARY as f64 / 1e6);
    }
    if over.is_empty() { Ok(()) } else { Err(over.join("; ")) }
}

fn join(crates: &BTreeSet<String>) -> String {
    crates.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Every crate that is compiled for the package on this platform, its own, those of proc-macros and build scripts included.
fn crates(package: &[&str]) -> Result<BTreeSet<String>, String> {
    let args = ["tree", "--locked", "--edges", "normal,build", "--prefix", "none", "--format", "{p}"];
    let out = Command::new("cargo").args(args).args(package).current_dir(root()).output();
    let out = out.map_err(|e| format!("cargo: {e}"))?;
    if !out.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&out.stderr).trim()));
    }
    let text = String::from_utf8_lossy(&out.stdout);
    // A line is `name vVERSION`, then perhaps a path, `(proc-macro)` and `(*)`.
    let of =
        |l: &str| Some(l.split_whitespace().take(2).collect::<Vec<_>>().join(" ")).filter(|n| !n.is_empty());
    Ok(text.lines().filter_map(of).collect())
}

fn folder() -> std::path::PathBuf {
    root().join("target/deps")
}

/// Seconds of a release build from nothing.
fn build_time(package: &[&str]) -> Result<u64, String> {
    let folder = folder();
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let start = Instant::now();
    let status = Command::new("cargo")
        .args(["build", "--release", "--locked", "--quiet", "--target-dir"])
        .arg(&folder)
        .args(package)
        .current_dir(root())
        .status()
        .map_err(|e| format!("cargo: {e}"))?;
    if status.success() { Ok(start.elapsed().as_secs()) } else { Err("the build failed".into()) }
}

/// The size of a program without its symbols.
fn stripped(program: &Path) -> Result<u64, String> {
    let copy = program.with_extension("stripped");
    let status = Command::new("strip").arg("-o").arg(&copy).arg(program).status();
    match status {
        Ok(s) if s.success() => {}
        Ok(s) => return Err(format!("strip {}: {s}", program.display())),
        Err(e) => return Err(format!("strip: {e}")),
    }
    std::fs::metadata(&copy).map(|m| m.len()).map_err(|e| format!("{}: {e}", copy.display()))
}
