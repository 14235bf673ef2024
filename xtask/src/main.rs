//! Project chores: `cargo xtask COMMAND`. Run without a command for the list.

mod deps;
mod docs;
mod fetch;
mod fuzz;
mod metal;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// A chore: name, what it does, and the function. An error message ends the program with status 1.
type Chore = (&'static str, &'static str, fn(&[String]) -> Result<(), String>);

const CHORES: &[Chore] = &[
    (
        "fetch",
        "fetch what the tests read into target/models (`gemma`: what the lane of that name reads)",
        fetch::run,
    ),
    ("test", "fetch, then run every test", test),
    ("test-gemma", "fetch Gemma 3 270M (253 MB), then run the tests that read it", test_gemma),
    ("tidy", "check the habits that no compiler checks", tidy::run),
    ("docs", "regenerate the tables in README and docs (--check: only compare)", docs::run),
    (
        "deps",
        "count the crates of each package against its limit (--build: build times and the command's size)",
        deps::run,
    ),
    ("fuzz", "run the fuzz targets ([TARGET…] [--seconds N], 600 each unless given)", fuzz::run),
    ("kernels", "type-check the Metal text of every kernel that an op case asks for (needs clang)", kernels),
    (
        "verify-metal",
        "on a Mac, run all that shows whether Metal works, and write target/verify-metal.md",
        metal::run,
    ),
    ("examples", "run every example on the real models, those outside the workspace too", examples),
    ("bless", "rewrite the expected results of the text goldens", bless),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((_, _, run)) = args.first().and_then(|a| CHORES.iter().find(|(n, ..)| n == a)) else {
        for (name, what, _) in CHORES {
            eprintln!("cargo xtask {name:12} {what}");
        }
        return ExitCode::from(2);
    };
    match run(&args[1..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask {}: {why}", args[0]);
            ExitCode::FAILURE
        }
    }
}

/// The workspace's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_path_buf()
}

/// Runs a program in the workspace's folder.
fn sh(program: &str, args: &[&str]) -> Result<(), String> {
    let status = Command::new(program).args(args).current_dir(root()).status();
    match status {
        Ok(s) if s.success() => Ok(()),
        Ok(s) => Err(format!("`{program} {}` ended with {s}", args.join(" "))),
        Err(e) => Err(format!("cannot start `{program}`: {e}")),
    }
}

fn test(_: &[String]) -> Result<(), String> {
    fetch::run(&[])?;
    sh("cargo", &["test", "--workspace"])?;
    println!(
        "left out: 2 test targets, gemma3 and gemma3_memory (253 MB to fetch); `cargo xtask test-gemma` runs them"
    );
    Ok(())
}

/// The tests behind the feature `gemma`. Asked for by name, a target that is not there or not built is an error.
fn test_gemma(_: &[String]) -> Result<(), String> {
    fetch::run(&["gemma".to_owned()])?;
    let run = |target| sh("cargo", &["test", "-p", "frit-tests", "--features", "gemma", "--test", target]);
    ["gemma3", "gemma3_memory"].into_iter().try_for_each(run)
}

fn kernels(_: &[String]) -> Result<(), String> {
    sh(
        "cargo",
        &[
            "test",
            "--quiet",
            "-p",
            "frit-tests",
            "--features",
            "kernels",
            "--test",
            "kernels",
            "--",
            "--nocapture",
        ],
    )
}

fn bless(_: &[String]) -> Result<(), String> {
    sh("cargo", &["run", "--quiet", "-p", "frit-compile", "--example", "bless"])
}

fn examples(_: &[String]) -> Result<(), String> {
    fetch::run(&[])?;
    let folder = root().join("crates/frit/examples");
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .map_err(|e| format!("{}: {e}", folder.display()))?
        .filter_map(|f| f.ok()?.path().file_stem()?.to_str().map(str::to_owned))
        .collect();
    names.sort();
    let full = |path: &str| root().join(path).to_string_lossy().into_owned();
    for n in &names {
        let model = full(if n == "embed" { fetch::MINILM_FOLDER } else { fetch::SMOLLM2 });
        println!("-- example {n}");
        sh("cargo", &["run", "--release", "--quiet", "-p", "frit", "--example", n, "--", &model])?;
    }
    // Packages outside the workspace, with their arguments; one folder for all builds what they share once.
    for (n, args) in [
        ("app", vec![full(fetch::SMOLLM2), full(fetch::MINILM_FOLDER)]),
        ("web", vec![full(fetch::SMOLLM2), "--check".to_owned()]),
        ("custom_op", vec![]),
    ] {
        println!("-- {n}, outside the workspace");
        let manifest = format!("examples/{n}/Cargo.toml");
        let run = ["run", "--release", "--quiet", "--locked", "--target-dir", "target/examples"];
        let mut run = [&run[..], &["--manifest-path", &manifest, "--"]].concat();
        run.extend(args.iter().map(String::as_str));
        sh("cargo", &run)?;
    }
    Ok(())
}
