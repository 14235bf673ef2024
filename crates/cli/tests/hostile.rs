//! What people give the command by mistake or malice: one clear line on standard error, the right exit status, nothing left.

mod common;

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use common::{Folder, frit, one_line, text};

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/goldens/llama")
}

/// A copy of the golden Llama: a Hugging Face folder with random weights.
fn model(name: &str) -> Folder {
    let f = Folder::new(&format!("hostile-{name}"));
    for file in ["config.json", "model.safetensors"] {
        fs::copy(golden().join(file), f.0.join(file)).unwrap();
    }
    f
}

fn inspect(path: &str) -> Output {
    frit().args(["inspect", path]).output().unwrap()
}

/// Changes one key of `config.json`.
fn set(f: &Folder, key: &str, value: serde_json::Value) {
    let path = f.0.join("config.json");
    let mut v: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    v[key] = value;
    fs::write(path, v.to_string()).unwrap();
}

type Tensors = Vec<(String, serde_json::Value, Vec<u8>)>;

/// Writes `model.safetensors` anew, as `change` makes it.
fn rewrite(f: &Folder, change: impl Fn(&mut Tensors)) {
    let path = f.0.join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let map: serde_json::Map<_, _> = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    let mut all: Tensors = Vec::new();
    for (name, v) in map.into_iter().filter(|(n, _)| n != "__metadata__") {
        let at = |i: usize| 8 + header + v["data_offsets"][i].as_u64().unwrap() as usize;
        all.push((name, v.clone(), bytes[at(0)..at(1)].to_vec()));
    }
    change(&mut all);
    let (mut map, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, mut v, bytes) in all {
        v["data_offsets"] = serde_json::json!([data.len(), data.len() + bytes.len()]);
        map.insert(name, v);
        data.extend(bytes);
    }
    let header = serde_json::Value::Object(map).to_string();
    fs::write(path, [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()).unwrap();
}

const GATE: &str = "model.layers.0.mlp.gate_proj.weight";

#[test]
fn a_rewritten_golden_loads() {
    let f = model("as-it-is");
    rewrite(&f, |_| {});
    let out = inspect(&f.path(""));
    assert!(out.status.success(), "{}", text(&out.stderr));
}

#[test]
fn truncated_weights() {
    let whole = fs::read(golden().join("model.safetensors")).unwrap();
    let f = model("truncated");
    for n in [0, 4, 8, 9, 100, 1000, 100_000, whole.len() - 1] {
        fs::write(f.0.join("model.safetensors"), &whole[..n]).unwrap();
        one_line(&inspect(&f.path("")), "model.safetensors");
    }
}

#[test]
fn truncated_gguf() {
    let f = Folder::new("hostile-gguf");
    let real =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/models/SmolLM2-135M-Instruct.Q4_1.gguf");
    let mut head = vec![0; 4_000_000];
    fs::File::open(real).expect("run `cargo xtask fetch`").read_exact(&mut head).unwrap();
    let path = f.path("cut.gguf");
    for n in [0, 3, 4, 8, 24, 1000, 1_000_000, head.len()] {
        fs::write(&path, &head[..n]).unwrap();
        one_line(&inspect(&path), "cut.gguf");
    }
}

#[test]
fn unknown_architectures() {
    let f = model("martian");
    set(&f, "model_type", "martian".into());
    one_line(&inspect(&f.path("")), "martian");
    // A GGUF file of one key: version 3, no tensors.
    let s = |t: &str| [&(t.len() as u64).to_le_bytes()[..], t.as_bytes()].concat();
    let header = [&b"GGUF"[..], &3u32.to_le_bytes(), &0u64.to_le_bytes(), &1u64.to_le_bytes()].concat();
    let file = [header, s("general.architecture"), 8u32.to_le_bytes().to_vec(), s("martian")].concat();
    fs::write(f.0.join("m.gguf"), &file).unwrap();
    one_line(&inspect(&f.path("m.gguf")), &format!("{}: the architecture `martian`", f.path("m.gguf")));
    // What a file says cannot forge a second line or a colour.
    let evil = [&file[..file.len() - 7], b"a\nb\x1b[1m"].concat();
    fs::write(f.0.join("m.gguf"), evil).unwrap();
    one_line(&inspect(&f.path("m.gguf")), "a\\nb\\u{1b}[1");
}

#[test]
fn tensors_that_are_missing_or_wrong() {
    let f = model("tensors");
    rewrite(&f, |all| all.retain(|t| t.0 != GATE));
    one_line(&inspect(&f.path("")), GATE);
    let f = model("shape");
    rewrite(&f, |all| {
        let t = all.iter_mut().find(|t| t.0 == GATE).unwrap();
        t.1["shape"].as_array_mut().unwrap().reverse();
    });
    one_line(&inspect(&f.path("")), GATE);
    let f = model("type");
    rewrite(&f, |all| all.iter_mut().filter(|t| t.0 == GATE).for_each(|t| t.1["dtype"] = "I32".into()));
    one_line(&inspect(&f.path("")), GATE);
}

#[test]
fn configurations_that_make_no_sense() {
    let cases: &[(&str, serde_json::Value)] = &[
        ("num_hidden_layers", 0.into()),
        ("num_hidden_layers", 4_000_000_000u64.into()),
        ("num_attention_heads", (-1).into()),
        ("num_attention_heads", 0.into()),
        ("num_key_value_heads", 3.into()),
        ("hidden_size", "wide".into()),
        ("vocab_size", i64::MAX.into()),
        ("max_position_embeddings", 0.into()),
        ("model_type", 7.into()),
        ("rms_norm_eps", "small".into()),
    ];
    for (key, value) in cases {
        let f = model("config");
        set(&f, key, value.clone());
        let out = inspect(&f.path(""));
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{key}={value}: {err}");
        assert_eq!(err.lines().count(), 1, "{key}={value}: {err}");
        // What contradicts the weights is told of the folder, all else of the file.
        let place = format!("frit: {}", f.path(""));
        assert!(err.starts_with(&place), "{key}={value}: {err}");
    }
    let f = model("no-json");
    fs::write(f.0.join("config.json"), "{\"model_type\": ").unwrap();
    one_line(
        &inspect(&f.path("")),
        &format!("{}: the configuration is not a JSON object: ", f.path("config.json")),
    );
    fs::write(f.0.join("config.json"), "{}").unwrap();
    one_line(
        &inspect(&f.path("")),
        &format!("{}: the configuration has no `model_type`", f.path("config.json")),
    );
    let f = model("no-size");
    set(&f, "hidden_size", serde_json::Value::Null);
    one_line(
        &inspect(&f.path("")),
        &format!("{}: the configuration has no `hidden_size`", f.path("config.json")),
    );
}

#[test]
fn the_wrong_kind_of_path() {
    let f = model("paths");
    one_line(&inspect(&f.path("nothing")), "neither a file");
    one_line(&inspect(&f.path("config.json")), "not a GGUF file");
    one_line(&inspect(&f.path("config.json/")), "neither a file");
    one_line(&inspect(&f.path("model.safetensors/x")), "neither a file");
    // A folder without a model, and folders where files should be.
    fs::create_dir(f.0.join("empty")).unwrap();
    one_line(&inspect(&f.path("empty")), "config.json");
    fs::rename(f.0.join("model.safetensors"), f.0.join("x.safetensors")).unwrap();
    let neither = "neither model.safetensors nor model.safetensors.index.json is in the folder";
    one_line(&inspect(&f.path("")), neither);
    fs::rename(f.0.join("x.safetensors"), f.0.join("model.safetensors")).unwrap();
    for file in ["model.safetensors", "config.json"] {
        fs::remove_file(f.0.join(file)).unwrap();
        one_line(&inspect(&f.path("")), file.split('.').next().unwrap());
        fs::create_dir(f.0.join(file)).unwrap();
        one_line(&inspect(&f.path("")), file);
    }
}

/// Waits for a command that should end by itself.
fn ends(mut child: std::process::Child) -> Output {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("the command hangs");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

#[cfg(unix)]
#[test]
fn pipes_and_devices_are_no_models() {
    let f = Folder::new("hostile-pipe");
    let pipe = f.path("pipe.gguf");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [pipe.as_str(), "/dev/zero", "/dev/null"] {
        let child =
            frit().args(["inspect", path]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        one_line(&ends(child), "neither a regular file nor a folder");
    }
}

#[test]
fn flags_out_of_range() {
    let path = golden();
    let m = path.to_str().unwrap();
    // What the parser can see is wrong usage; what depends on the model is a failure.
    let cases: &[(i32, &[&str])] = &[
        (2, &["inspect", m, "--threads", "many"]),
        (2, &["inspect", m, "--threads", "-1"]),
        (2, &["inspect", m, "--threads", "1025"]),
        (2, &["inspect", m, "--context", "1.5"]),
        (2, &["inspect", m, "--context", "99999999999999999999999"]),
        (2, &["inspect", m, "--activations", "q7"]),
        (2, &["inspect", m, "--device", "gpu"]),
        (2, &["inspect", m, "--device", "cpu:1"]),
        (2, &["inspect", m, "--device", "opencl:-1"]),
        (2, &["inspect", m, "--graphs", "all"]),
        (1, &["inspect", m, "--device", "cpu", "--graphs", "whole"]),
        (1, &["inspect", m, "--device", "cuda:99"]),
        (1, &["inspect", m, "--device", "metal:99"]),
        (1, &["inspect", m, "--device", "opencl:99"]),
        (2, &["inspect", m, "--show", "everything"]),
        (2, &["inspect", m, "--json", "--html", "x"]),
        (2, &["inspect", m, "--json", "--show", "graph"]),
        (2, &["inspect", m, "extra"]),
        (2, &["inspect"]),
        (2, &["pull"]),
        (2, &["pull", "x", "--stall", "0"]),
        (2, &["pull", "x", "--stall", "nan"]),
        (2, &["generate", m, "x", "--seed", "-1"]),
        (2, &["generate", m, "x", "--temperature", "hot"]),
        (2, &["generate", m, "x", "--temperature", "nan"]),
        (2, &["generate", m, "x", "--temperature", "-1"]),
        (2, &["generate", m, "x", "--temperature", "inf"]),
        (2, &["generate", m, "x", "--top-p", "0"]),
        (2, &["generate", m, "x", "--top-p", "1.1"]),
        (2, &["generate", m, "x", "--min-p", "-0.1"]),
        (2, &["generate", m, "x", "--repeat-penalty", "0"]),
        (2, &["generate", m, "x", "--stop", ""]),
        (2, &["chat", m, "--stop", ""]),
        (2, &["bench", m, "--tokens", "0"]),
        (2, &["pull", "http://127.0.0.1:9/x", "--sha256", "00"]),
        (2, &["pull", "hf:o/r", "--hub", "ftp://x"]),
        (2, &["completions", "tcsh"]),
        (2, &["devices", "gpu"]),
        (2, &["inspect", m, "--threads", "0"]),
        (2, &["inspect", m, "--threads", "100000"]),
        (2, &["inspect", m, "--context", "0"]),
        (1, &["inspect", m, "--context", "18446744073709551615"]),
        (2, &["bench", m, "--prompt", "0"]),
        (1, &["bench", m, "--prompt", "18446744073709551615"]),
        (1, &["bench", m, "--tokens", "18446744073709551615"]),
        (1, &["bench", m, "--prompt", "4294967296", "--context", "8"]),
        (2, &["bench", m, "--runs", "0"]),
        (1, &["man", "nothing"]),
    ];
    for (status, args) in cases {
        let out = frit().args(*args).output().unwrap();
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(*status), "{args:?}: {err}");
        assert!(out.stdout.is_empty(), "{args:?}");
        assert!(!err.contains("panicked"), "{args:?}: {err}");
        if *status == 1 {
            one_line(&out, "");
        }
        // A flag with a value that it does not take is named.
        if let (2, [.., flag, _]) = (status, args)
            && flag.starts_with("--")
            && *flag != "--json"
        {
            assert!(err.contains(flag), "{args:?}: {err}");
        }
    }
}

#[test]
fn a_bench_beyond_the_context_says_which_flags() {
    let m = golden().to_str().unwrap().to_owned();
    let out =
        frit().args(["bench", &m, "--prompt", "18446744073709551615", "--tokens", "1"]).output().unwrap();
    one_line(&out, "--prompt 18446744073709551615 and --tokens 1 must be at most 4294967295 tokens together");
    let out =
        frit().args(["bench", &m, "--prompt", "7", "--tokens", "2", "--context", "8"]).output().unwrap();
    one_line(&out, "--prompt 7 and --tokens 2 take 9 tokens, and --context is 8");
}

#[test]
fn text_that_is_none() {
    let f = model("stdin");
    fs::write(f.0.join("in"), b"\xff\xfe").unwrap();
    let stdin = fs::File::open(f.0.join("in")).unwrap();
    let out = frit().args(["generate", &f.path(""), "-"]).stdin(stdin).output().unwrap();
    one_line(&out, "standard input");
    // A model without a tokenizer takes no text, which no command can do without.
    let want = format!("frit: {}: there is no tokenizer.json, and this command takes text", f.path(""));
    for args in [&["generate", &f.path(""), "x"][..], &["chat", &f.path("")]] {
        one_line(&frit().args(args).output().unwrap(), &want);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn results_that_find_no_space() {
    let m = golden().to_str().unwrap().to_owned();
    for args in [
        &["inspect", &m][..],
        &["inspect", &m, "--json"],
        &["inspect", &m, "--html"],
        &["devices"],
        &["completions", "bash"],
        &["man"],
    ] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let out = frit().args(args).stdout(full).output().unwrap();
        one_line(&out, "cannot write the result: No space left on device");
    }
    one_line(
        &frit().args(["inspect", &m, "--html", "/dev/full"]).output().unwrap(),
        "/dev/full: No space left",
    );
    assert!(!std::path::Path::new("/dev/full.part").exists());
}

#[test]
fn pages_go_to_new_files_or_nowhere() {
    let m = golden().to_str().unwrap().to_owned();
    let f = Folder::new("hostile-html");
    let write = |to: &str| frit().args(["inspect", &m, "--html", &f.path(to)]).output().unwrap();
    one_line(&write("no/such/folder.html"), "folder.html");
    one_line(&write(""), "Is a directory");
    assert_eq!(fs::read_dir(&f.0).unwrap().count(), 0);
    let out = write("page.html");
    assert!(out.status.success() && out.stdout.is_empty() && out.stderr.is_empty());
    assert_eq!(fs::read_dir(&f.0).unwrap().count(), 1);
}

#[test]
fn traces_of_runs_go_to_new_files_or_nowhere() {
    let m = golden().to_str().unwrap().to_owned();
    let f = Folder::new("hostile-trace");
    let write = |to: &str| {
        let args =
            ["bench", &m, "--prompt", "4", "--tokens", "1", "--runs", "1", "--device", "cpu", "--trace"];
        frit().args(args).arg(f.path(to)).output().unwrap()
    };
    one_line(&write("no/such/folder.json"), "folder.json");
    one_line(&write(""), "Is a directory");
    assert_eq!(fs::read_dir(&f.0).unwrap().count(), 0);
    let out = write("trace.json");
    assert!(out.status.success() && out.stderr.is_empty(), "{}", text(&out.stderr));
    assert!(!text(&out.stdout).contains("encode"), "{}", text(&out.stdout));
    assert_eq!(fs::read_dir(&f.0).unwrap().count(), 1);
}

#[cfg(unix)]
#[test]
fn readers_that_leave_early() {
    let m = golden().to_str().unwrap().to_owned();
    for args in [
        &["inspect", &m, "--json"][..],
        &["inspect", &m, "--html"],
        &["completions", "zsh"],
        &["man"],
        &["--help"],
    ] {
        let mut child = frit().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let out = ends(child);
        assert_eq!((text(&out.stderr), out.status.code()), (String::new(), Some(0)), "{args:?}");
    }
}

#[test]
fn causes_are_told_when_asked_for() {
    let f = Folder::new("hostile-causes");
    let run = |args: &[&str]| text(&frit().args(args).output().unwrap().stderr);
    let plain = run(&["inspect", &f.path("")]);
    let verbose = run(&["-v", "inspect", &f.path("")]);
    assert_eq!(plain.lines().count(), 1);
    assert!(verbose.starts_with(&plain), "{verbose}");
    assert!(verbose.lines().nth(1).is_some_and(|l| l.starts_with("  caused by: No such file")), "{verbose}");
    assert_eq!(run(&["inspect", &f.path(""), "--verbose"]), verbose);
}

#[test]
fn traces_are_written_when_asked_for() {
    let run = |level: &str| {
        frit().args(["inspect", golden().to_str().unwrap()]).env("FRIT_LOG", level).output().unwrap()
    };
    let traced = run("debug");
    assert!(traced.status.success());
    assert!(text(&traced.stderr).contains("canonicalize"), "{}", text(&traced.stderr));
    assert!(text(&run("off").stderr).is_empty());
    one_line(&run("loud"), "FRIT_LOG takes");
}
