//! The command as a user sees it: streams, exit status, JSON.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

fn frit() -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_frit"));
    // No test may fetch: an empty cache that cannot be written shows it.
    c.env("FRIT_CACHE_DIR", "/nonexistent").stdin(Stdio::null());
    c
}

fn run(args: &[&str]) -> Output {
    frit().args(args).output().unwrap()
}

fn smollm2() -> String {
    let p =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/models/SmolLM2-135M-Instruct.Q4_1.gguf");
    assert!(p.exists(), "{} is missing: run `cargo xtask fetch`", p.display());
    p.to_string_lossy().into_owned()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Names of the fields of a JSON object, in order of the document.
fn keys(json: &str) -> Vec<String> {
    let v: serde_json::Value = serde_json::from_str(json).unwrap();
    let mut all: Vec<String> = v.as_object().unwrap().keys().cloned().collect();
    all.sort();
    all
}

#[test]
fn help_opens_with_an_example() {
    for command in [
        &["--help"][..],
        &["generate", "--help"],
        &["embed", "--help"],
        &["chat", "--help"],
        &["inspect", "--help"],
        &["bench", "--help"],
        &["pull", "--help"],
    ] {
        let out = run(command);
        assert_eq!(out.status.code(), Some(0));
        assert!(text(&out.stdout).starts_with("Example: frit "), "{}", text(&out.stdout));
    }
}

#[test]
fn wrong_usage_is_status_2() {
    for args in [&["no-such-command"][..], &["generate"], &["generate", "m", "p", "--top-k", "x"], &[]] {
        let out = run(args);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert!(out.stdout.is_empty());
    }
}

#[test]
fn failures_are_one_line_and_status_1() {
    let model = smollm2();
    let cases: &[(&[&str], &str)] = &[
        (&["generate", "no/such/file.gguf", "x"], "neither a file"),
        (&["generate", env!("CARGO_MANIFEST_DIR"), "x"], "config.json"),
        (&["generate", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), "x"], "not a GGUF file"),
        (&["generate", &model, ""], "prompt is empty"),
        (&["generate", &model, "one two three four five", "--context", "2"], "context"),
    ];
    for (args, message) in cases {
        let out = run(args);
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{args:?}: {err}");
        assert!(out.stdout.is_empty(), "{args:?}");
        assert_eq!(err.lines().count(), 1, "{args:?}: {err}");
        assert!(err.starts_with("frit: ") && err.contains(message), "{args:?}: {err}");
    }
}

#[test]
fn generate_streams_text_and_reports_on_stderr() {
    let out = run(&["generate", &smollm2(), "The capital of France is", "--max-tokens", "2"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_eq!(text(&out.stdout), "The capital of France is Paris.\n");
    let err = text(&out.stderr);
    assert!(err.contains("tok/s") && err.contains("max_tokens"), "{err}");
}

#[test]
fn generate_reads_standard_input_and_writes_json() {
    let mut child = frit()
        .args(["generate", &smollm2(), "-", "--max-tokens", "2", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"The capital of France is").unwrap();
    let out = child.wait_with_output().unwrap();
    let json = text(&out.stdout);
    let want = [
        "generate_seconds",
        "generated_tokens",
        "prompt_seconds",
        "prompt_tokens",
        "schema",
        "stop",
        "text",
        "tokens",
    ];
    assert_eq!(keys(&json), want);
    let v: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(v["schema"], 1);
    assert_eq!(v["text"], " Paris.");
    assert_eq!(v["prompt_tokens"], 5);
    assert_eq!(v["tokens"], serde_json::json!([7042, 30]));
}

#[test]
fn the_same_seed_gives_the_same_text() {
    let model = smollm2();
    let once = |seed: &str| {
        let out = run(&[
            "generate",
            &model,
            "Once upon a time",
            "--max-tokens",
            "12",
            "--temperature",
            "0.9",
            "--seed",
            seed,
        ]);
        text(&out.stdout)
    };
    assert_eq!(once("7"), once("7"));
    assert_ne!(once("7"), once("8"));
}

#[test]
fn bench_has_its_json_fields() {
    let out = run(&["bench", &smollm2(), "--prompt", "8", "--tokens", "2", "--runs", "1", "--json"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let want = [
        "compile_seconds",
        "decode_tokens_per_second",
        "device",
        "generated_tokens",
        "load_seconds",
        "model",
        "peak_memory_bytes",
        "prefill_tokens_per_second",
        "prompt_tokens",
        "runs",
        "schema",
        "threads",
        "time_to_first_token_seconds",
    ];
    assert_eq!(keys(&text(&out.stdout)), want);
}

#[test]
fn inspect_shows_every_part() {
    let model = smollm2();
    for (show, word) in [
        ("graph", "rms_norm"),
        ("fused", "linear"),
        ("placement", "linear"),
        ("schedule", "arena"),
        ("memory", "arena"),
        ("passes", "ms"),
        ("summary", "steps"),
    ] {
        let out = run(&["inspect", &model, "--show", show]);
        assert!(out.status.success(), "{show}: {}", text(&out.stderr));
        assert!(
            text(&out.stdout).contains(word),
            "{show}: {}",
            &text(&out.stdout)[..200.min(out.stdout.len())]
        );
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let mut child: Child = frit()
        .args(["inspect", &smollm2(), "--show", "schedule"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 1];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert_eq!(text(&out.stderr), "");
    assert_eq!(out.status.code(), Some(0));
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_with_130() {
    let mut child = frit()
        .args(["generate", &smollm2(), "Once upon a time", "--max-tokens", "100000", "--ignore-end"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The first bytes show that generation runs.
    let mut first = [0; 20];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(130));
    assert!(text(&out.stderr).contains("cancelled"));
}
