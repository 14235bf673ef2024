//! Everything that shows whether Metal works, in one command for whoever has a Mac, and a report of it to send.

use std::fmt::Write;
use std::process::Command;
use std::time::Instant;

use crate::{fetch, root};

/// Where the report goes.
const REPORT: &str = "target/verify-metal.md";

/// Most lines of a step's output in the report; the first are left out.
const MOST_LINES: usize = 400;

/// What tells the machine apart: what it is, and the command that says it.
const FACTS: &[(&str, &[&str])] = &[
    ("machine", &["sysctl", "-n", "hw.model"]),
    ("processor", &["sysctl", "-n", "machdep.cpu.brand_string"]),
    ("bytes of memory", &["sysctl", "-n", "hw.memsize"]),
    ("macOS", &["sw_vers", "-productVersion"]),
    ("its build", &["sw_vers", "-buildVersion"]),
    ("Rust", &["rustc", "--version"]),
    ("Frit", &["git", "rev-parse", "HEAD"]),
];

/// The steps: name, and the arguments of cargo, separated by spaces. `MODEL` stands for the path of SmolLM2, `TESTS` for op
/// cases and models as tests, `BENCH` for its benchmark.
const STEPS: &[(&str, &str)] = &[
    ("unit tests", "test --release -p frit-gpu --lib"),
    ("devices and self-check", "run --release -p frit-cli -- devices --check"),
    ("op cases on Metal", "TESTS metal,every-case --test conformance_gpu --test custom -- --nocapture"),
    ("models on Metal", "TESTS metal --test gpu_models -- --nocapture"),
    ("graphs of MPSGraph, products of MPS", "TESTS metal --test graphs -- --nocapture"),
    ("cost of a run", "run --release -p frit-gpu --example submit"),
    ("SmolLM2 on Metal", "BENCH metal"),
    ("SmolLM2 on Metal, products by MPS", "BENCH metal --graphs products"),
    ("SmolLM2 on Metal, stretches by MPSGraph", "BENCH metal --graphs hybrid"),
    ("SmolLM2 on the CPU", "BENCH cpu"),
];
const TESTS: &str = "test --release -p frit-tests --features";
const BENCH: &str = "run --release -p frit-cli -- bench MODEL --prompt 512 --tokens 64 --device";

/// How a step went.
struct Outcome {
    name: &'static str,
    command: String,
    passed: bool,
    seconds: u64,
    output: String,
}

/// Runs all steps, whatever fails, and writes the report; fails if one did.
pub fn run(_: &[String]) -> Result<(), String> {
    if !cfg!(target_os = "macos") {
        return Err(format!("needs a Mac, this is {}", std::env::consts::OS));
    }
    fetch::run(&[])?;
    let facts: Vec<(&str, String)> = FACTS.iter().map(|(name, c)| (*name, said(c))).collect();
    facts.iter().for_each(|(name, value)| println!("{name}: {value}"));
    let outcomes: Vec<Outcome> = STEPS.iter().map(|(name, args)| step(name, args)).collect();
    let path = root().join(REPORT);
    std::fs::write(&path, report(&facts, &outcomes)).map_err(|e| format!("{}: {e}", path.display()))?;
    println!("the report is in {REPORT}");
    match outcomes.iter().filter(|o| !o.passed).map(|o| o.name).collect::<Vec<_>>()[..] {
        [] => Ok(()),
        ref failed => Err(format!("failed: {}", failed.join(", "))),
    }
}

/// What a command says, in one line.
fn said(command: &[&str]) -> String {
    let out = Command::new(command[0]).args(&command[1..]).current_dir(root()).output();
    out.map_or_else(|e| e.to_string(), |o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
}

/// The arguments of cargo that a step's text stands for.
fn arguments(text: &str, model: &str) -> Vec<String> {
    let text = text.replace("TESTS", TESTS).replace("BENCH", BENCH);
    text.split(' ').map(|a| if a == "MODEL" { model } else { a }.to_owned()).collect()
}

fn step(name: &'static str, text: &str) -> Outcome {
    let args = arguments(text, &root().join(fetch::SMOLLM2).to_string_lossy());
    let command = format!("cargo {}", args.join(" "));
    println!("== {name}: {command}");
    let start = Instant::now();
    let out = Command::new("cargo").args(&args).current_dir(root()).output();
    let (passed, output) = match out {
        Ok(o) => (
            o.status.success(),
            [o.stdout, o.stderr].map(|b| String::from_utf8_lossy(&b).into_owned()).join("\n"),
        ),
        Err(e) => (false, e.to_string()),
    };
    let seconds = start.elapsed().as_secs();
    if !passed {
        println!("{output}");
    }
    println!("== {name}: {}, {seconds} s", word(passed));
    Outcome { name, command, passed, seconds, output }
}

fn word(passed: bool) -> &'static str {
    if passed { "passed" } else { "FAILED" }
}

fn report(facts: &[(&str, String)], outcomes: &[Outcome]) -> String {
    let mut t = String::from("# Frit on Metal\n\n| | |\n|---|---|\n");
    for (name, value) in facts {
        let _ = writeln!(t, "| {name} | {value} |");
    }
    t += "\n| step | result | seconds |\n|---|---|---|\n";
    for o in outcomes {
        let _ = writeln!(t, "| {} | {} | {} |", o.name, word(o.passed), o.seconds);
    }
    for o in outcomes {
        let lines: Vec<&str> = o.output.lines().collect();
        let left_out = lines.len().saturating_sub(MOST_LINES);
        let _ = write!(t, "\n## {}: {}\n\n`{}`\n\n~~~\n", o.name, word(o.passed), o.command);
        if left_out > 0 {
            let _ = writeln!(t, "({left_out} lines left out)");
        }
        let _ = writeln!(t, "{}\n~~~", lines[left_out..].join("\n"));
    }
    t
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_the_machine_and_every_step() {
        let output = (0..=MOST_LINES).map(|i| format!("line {i}\n")).collect();
        let outcome =
            Outcome { name: "a step", command: "cargo x".into(), passed: false, seconds: 7, output };
        let t = report(&[("macOS", "15.1".into())], &[outcome]);
        for part in
            ["| macOS | 15.1 |", "| a step | FAILED | 7 |", "`cargo x`", "(1 lines left out)\nline 1\n"]
        {
            assert!(t.contains(part), "{part}: {t}");
        }
    }

    #[test]
    fn texts_of_steps_become_arguments() {
        let args = arguments("BENCH metal --graphs hybrid", "/my models/a.gguf");
        assert_eq!(args[..6], ["run", "--release", "-p", "frit-cli", "--", "bench"]);
        assert_eq!(args[6], "/my models/a.gguf");
        assert_eq!(args[args.len() - 4..], ["--device", "metal", "--graphs", "hybrid"]);
        assert_eq!(arguments("TESTS metal --test x", "m")[4..], ["--features", "metal", "--test", "x"]);
    }

    #[test]
    fn elsewhere_it_says_in_a_line_that_it_needs_a_mac() {
        if !cfg!(target_os = "macos") {
            assert!(run(&[]).unwrap_err().starts_with("needs a Mac"));
        }
    }
}
