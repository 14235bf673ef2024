//! `frit embed` as a user sees it.

mod common;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use common::Folder;
use serde_json::{Value, json};

fn minilm() -> String {
    let p = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/models/all-MiniLM-L6-v2");
    assert!(p.exists(), "{} is missing: run `cargo xtask fetch`", p.display());
    p.to_string_lossy().into_owned()
}

/// Runs `frit embed MINILM args…` with `input` on standard input.
fn embed(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_frit"))
        .args(["embed", &minilm()])
        .args(args)
        .env("FRIT_CACHE_DIR", "/nonexistent")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input may have ended.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn good(args: &[&str], input: &str) -> String {
    let out = embed(args, input);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

fn bad(args: &[&str], input: &str, message: &str) {
    let out = embed(args, input);
    let err = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(err.starts_with("frit: ") && err.contains(message), "{err}");
}

fn numbers(v: &Value) -> Vec<f64> {
    v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn length(v: &[f64]) -> f64 {
    v.iter().map(|x| x * x).sum::<f64>().sqrt()
}

const CAT: &str = "The cat sits outside";

#[test]
fn a_line_of_numbers_for_each_text_in_order() {
    let lines = good(&["-", CAT], "A man is playing guitar\nThe new movie is awesome\n");
    let rows: Vec<Vec<f64>> =
        lines.lines().map(|l| l.split(' ').map(|n| n.parse().unwrap()).collect()).collect();
    assert_eq!((rows.len(), rows[0].len()), (3, 384));
    // As the reference implementation says: see tests/data/goldens/real/minilm.json.
    assert!((rows[2][0] - 0.139191).abs() < 1e-4, "{}", rows[2][0]);
    assert!((length(&rows[0]) - 1.0).abs() < 1e-4);
    assert_eq!(good(&["--no-normalize", "--pooling", "mean", CAT], "").split(' ').count(), 384);
}

#[test]
fn the_json_document_has_its_fields() {
    let text = good(&["--json", "--matrix", CAT, "A cat is outside"], "");
    let mut v: Value = serde_json::from_str(&text).unwrap();
    for t in v["texts"].as_array_mut().unwrap() {
        assert_eq!(numbers(&t["embedding"]).len(), 384);
        t["embedding"] = Value::Null;
    }
    let table: Vec<Vec<f64>> = v["similarities"].as_array().unwrap().iter().map(numbers).collect();
    assert!((table[0][0] - 1.0).abs() < 1e-6 && table[0][1] > 0.5 && table[0][1] == table[1][0], "{table:?}");
    v["similarities"] = Value::Null;
    v["model"] = Value::Null;
    let want = json!({
        "schema": 1,
        "model": null,
        "pooling": "mean",
        "normalized": true,
        "dimensions": 384,
        "texts": [
            {"text": CAT, "tokens": 6, "embedding": null},
            {"text": "A cat is outside", "tokens": 6, "embedding": null},
        ],
        "similarities": null,
    });
    assert_eq!(v, want);
}

#[test]
fn json_lines_come_out_with_their_embeddings() {
    let input = "{\"id\": 7, \"text\": \"The cat sits outside\"}\n\"A man\\tsings\"\n";
    let out = good(&["--json-lines", "-", "--pooling", "cls", "--no-normalize"], input);
    let lines: Vec<Value> = out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!((&lines[0]["id"], &lines[0]["text"]), (&json!(7), &json!(CAT)));
    assert_eq!(lines[1]["text"], "A man\tsings");
    let (first, keys) = (numbers(&lines[0]["embedding"]), lines[1].as_object().unwrap().len());
    assert!(first.len() == 384 && (length(&first) - 1.0).abs() > 0.01);
    assert_eq!(keys, 2);
}

#[test]
fn fields_beside_the_text_come_out_as_they_were() {
    let before = r#"{"z": 123456789012345678901234567890, "price":0.10000000000000000001, "text": "The cat sits \u006futside""#;
    let after = r#""b":{"y": 1e400,"a":[-0.0,  1E2]}, "a": "\u00e9", "empty": {}}"#;
    let out = good(&["--json-lines", "-"], &format!("{before}, {after}\n"));
    let want = concat!(
        r#"{"z":123456789012345678901234567890,"price":0.10000000000000000001,"text":"The cat sits \u006futside","#,
        r#""b":{"y": 1e400,"a":[-0.0,  1E2]},"a":"\u00e9","empty":{},"embedding":[0.13"#,
    );
    assert!(out.starts_with(want), "{}", &out[..300]);
    let bad = |line: &str, message: &str| bad(&["--json-lines", "-"], &format!("\"x\"\n{line}\n"), message);
    bad(
        r#"{"text": "x", "embedding": null}"#,
        "standard input, line 2: the object has an `embedding` already",
    );
    bad(r#"{"text": "x", "text": "y"}"#, "line 2: the object has two fields `text`");
    bad(r#"{"text": ["x"]}"#, "line 2: the object has no string `text`");
    bad(r#"{"text": "\ud800"}"#, "line 2: `text`: ");
    bad("7", "line 2: neither a string nor an object");
    bad(r#"{"text": "x"} {}"#, "line 2: not JSON: trailing characters");
    // A text of the command line is no JSON.
    let out = good(&["--json-lines", CAT], "");
    assert!(out.starts_with(r#"{"text":"The cat sits outside","embedding":[0.13"#), "{}", &out[..80]);
}

#[test]
fn the_matrix_is_a_table() {
    let table = good(&["--matrix", CAT, "A feline is outdoors", "Stocks fell"], "");
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 4);
    let cell = |row: usize, column: usize| -> f64 {
        lines[row].split_whitespace().nth(column).unwrap().parse().unwrap()
    };
    assert!(cell(1, 1) == 1.0 && cell(1, 2) > cell(1, 3) && cell(1, 2) == cell(2, 1), "{table}");
    assert!(lines[3].ends_with("Stocks fell"));
}

#[test]
fn texts_from_a_file_and_long_ones_cut() {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("embed-{}.txt", std::process::id()));
    std::fs::write(&file, format!("{CAT}\r\n{}", "a ".repeat(300))).unwrap();
    let path = file.to_str().unwrap();
    bad(&["--file", path], "", "line 2: 302 tokens, and the model takes 256");
    let text = good(&["--file", path, "--truncate", "--json"], "");
    std::fs::remove_file(&file).unwrap();
    let v: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&v["texts"][0]["text"], &v["texts"][1]["tokens"]), (&json!(CAT), &json!(256)));
}

#[test]
fn what_cannot_be_embedded_is_one_line() {
    bad(&["-"], "one\n\nthree\n", "standard input, line 2: the text is empty");
    bad(&[CAT, ""], "", "text 2: the text is empty");
    bad(&["-"], "", "no texts");
    bad(&["--file", "no/such/file"], "", "no/such/file");
    bad(&["-", "--json-lines"], "{\"id\": 3}\n", "line 1: the object has no string `text`");
    bad(&["-", "--json-lines"], "plain\n", "line 1: not JSON");
    bad(&["-"], "\u{0}\u{1}\n", "line 1");
    for usage in [&[][..], &[CAT, "--pooling", "median"], &[CAT, "--normalize", "--no-normalize"]] {
        assert_eq!(embed(usage, "").status.code(), Some(2), "{usage:?}");
    }
}

/// A copy of the model without the file `without`; large files are links.
fn copy(name: &str, without: &str) -> Folder {
    let f = Folder::new(&format!("embed-{name}"));
    std::fs::create_dir(f.0.join("1_Pooling")).unwrap();
    for entry in std::fs::read_dir(minilm()).unwrap() {
        let from = entry.unwrap().path();
        let name = from.file_name().unwrap().to_str().unwrap().to_owned();
        match name.as_str() {
            n if n == without || from.is_dir() => {}
            "model.safetensors" => {
                let to = f.0.join(name);
                let linked = std::fs::hard_link(&from, &to);
                linked.or_else(|_| std::fs::copy(&from, to).map(drop)).unwrap();
            }
            _ => drop(std::fs::copy(&from, f.0.join(name)).unwrap()),
        }
    }
    if without != "1_Pooling" {
        let config = "1_Pooling/config.json";
        std::fs::copy(PathBuf::from(minilm()).join(config), f.0.join(config)).unwrap();
    }
    f
}

#[test]
fn a_folder_that_is_not_whole_names_the_file() {
    let say = |f: &Folder, message: &str| {
        let out = common::frit().args(["embed", &f.path(""), CAT]).output().unwrap();
        common::one_line(&out, message);
    };
    let f = copy("whole", "");
    let out = common::frit().args(["embed", &f.path(""), CAT]).output().unwrap();
    assert!(out.status.success(), "{}", common::text(&out.stderr));
    say(&copy("no-tokenizer", "tokenizer.json"), ": there is no tokenizer.json, and this command takes text");
    let f = copy("no-pooling", "1_Pooling");
    say(&f, &format!("frit: {}: the file is missing; modules.json", f.path("1_Pooling/config.json")));
    let write = |file: &str, text: &str| std::fs::write(f.0.join(file), text).unwrap();
    for (text, message) in [
        ("{}", "no pooling is chosen"),
        (r#"{"pooling_mode_mean_tokens": "yes"}"#, "`pooling_mode_mean_tokens` is \"yes\""),
        (
            r#"{"pooling_mode_mean_tokens": true, "word_embedding_dimension": 768}"#,
            "must be 384, the width of the model",
        ),
    ] {
        write("1_Pooling/config.json", text);
        say(&f, &format!("frit: {}: ", f.path("1_Pooling/config.json")));
        say(&f, message);
    }
    write("1_Pooling/config.json", r#"{"pooling_mode_mean_tokens": true}"#);
    write("sentence_bert_config.json", "[]");
    say(&f, &format!("frit: {}: ", f.path("sentence_bert_config.json")));
    // What says how text is split must be what it is taken for.
    for (file, what) in
        [("tokenizer_config.json", "[]"), ("tokenizer_config.json", ""), ("generation_config.json", "[7]")]
    {
        let f = copy("config", file);
        std::fs::write(f.0.join(file), what).unwrap();
        say(&f, &format!("frit: {}", f.path(file)));
    }
    for file in ["tokenizer_config.json", "chat_template.jinja", "tokenizer.json"] {
        let f = copy("folder", file);
        std::fs::create_dir(f.0.join(file)).unwrap();
        say(&f, &format!("frit: {}: not a regular file", f.path(file)));
    }
}

#[test]
fn other_commands_know_an_encoder() {
    let frit = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_frit"))
            .args(args)
            .env("FRIT_CACHE_DIR", "/nonexistent")
            .output()
            .unwrap()
    };
    let out = frit(&["generate", &minilm(), "Once"]);
    let err = String::from_utf8(out.stderr).unwrap();
    assert_eq!((out.status.code(), err.lines().count()), (Some(1), 1), "{err}");
    assert!(err.contains("is an encoder (bert)"), "{err}");
    let out = frit(&["inspect", &minilm(), "--json"]);
    let v: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&v["architecture"], &v["layers"], &v["kv_bytes"]), (&json!("bert"), &json!(6), &json!(0)));
}
