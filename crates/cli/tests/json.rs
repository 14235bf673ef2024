//! The form of every `--json` document: each path in it with the type of what stands there. A field that is renamed, removed or
//! of another type shows here, and wants a new schema number.

mod common;

use std::collections::BTreeSet;
use std::path::PathBuf;

use common::{Folder, frit, text};
use serde_json::Value;

fn golden() -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/goldens/llama").to_str().unwrap().into()
}

fn document(args: &[&str]) -> Value {
    let out = frit().args(args).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// Maps whose keys are data, not fields.
const MAPS: &[&str] = &["fused", "steps_by_op", "weights_by_dtype", "attributes", "params", "values"];

fn walk(v: &Value, path: &str, out: &mut BTreeSet<String>) {
    match v {
        Value::Object(map) => {
            let keyed = MAPS.iter().any(|m| path.rsplit('.').next() == Some(m));
            for (k, v) in map {
                let k = if keyed { "*" } else { k };
                walk(v, &format!("{path}.{k}"), out);
            }
        }
        Value::Array(all) => all.iter().for_each(|v| walk(v, &format!("{path}[]"), out)),
        Value::Null => drop(out.insert(format!("{path}: null"))),
        Value::Bool(_) => drop(out.insert(format!("{path}: bool"))),
        Value::Number(_) => drop(out.insert(format!("{path}: number"))),
        Value::String(_) => drop(out.insert(format!("{path}: string"))),
    }
}

/// Compares the form of `v` with the file `tests/data/NAME.txt`.
fn form(name: &str, v: &Value) {
    let mut paths = BTreeSet::new();
    walk(v, "", &mut paths);
    let got: String = paths.iter().map(|p| format!("{p}\n")).collect();
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/{name}.txt"));
    let want = std::fs::read_to_string(&file).unwrap_or_default();
    if got != want {
        let new = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.txt"));
        std::fs::write(&new, &got).unwrap();
        panic!("the form of `{name}` has changed; if that is meant: cp {} {}", new.display(), file.display());
    }
}

fn list<'a>(v: &'a Value, path: &str) -> &'a Vec<Value> {
    v.pointer(path).and_then(Value::as_array).unwrap_or_else(|| panic!("{path}"))
}

#[test]
fn inspect_is_one_document_whose_parts_agree() {
    let v = document(&["inspect", &golden(), "--json", "--threads", "2"]);
    form("inspect", &v);
    assert_eq!(v["schema"], 1);
    assert_eq!(v["threads"], 2);
    let number = |v: &Value| v.as_u64().unwrap();
    let (steps, values) = (list(&v, "/schedule/steps"), list(&v, "/memory/values"));
    assert_eq!(steps.len() as u64, number(&v["steps"]));
    assert_eq!(list(&v, "/graph/before").len() as u64, number(&v["nodes"]));
    assert_eq!(list(&v, "/graph/after").len() as u64, number(&v["fused_nodes"]));
    assert_eq!(list(&v, "/memory/live").iter().map(number).max(), Some(number(&v["live_bytes"])));
    assert_eq!(
        list(&v, "/fusions/sites").len() as u64,
        v["fused"].as_object().unwrap().values().map(number).sum::<u64>()
    );
    for x in values {
        assert!(number(&x["offset"]) + number(&x["bytes"]) <= number(&v["arena_bytes"]), "{x}");
        assert!(number(&x["first"]) <= number(&x["last"]) && number(&x["last"]) < steps.len() as u64, "{x}");
    }
    // Every operand in the arena has the name of a value that lives at its step.
    for (i, s) in steps.iter().enumerate() {
        for o in list(s, "/inputs").iter().chain(list(s, "/outputs")).filter(|o| o["region"] == "arena") {
            let lives = |x: &&Value| {
                x["name"] == o["name"] && (number(&x["first"])..=number(&x["last"])).contains(&(i as u64))
            };
            assert!(values.iter().any(|x| lives(&x)), "step {i}: {o}");
        }
    }
    // Fused steps name nodes of the graph as it was before.
    let before: BTreeSet<&str> =
        list(&v, "/graph/before").iter().flat_map(|n| list(n, "/names")).filter_map(Value::as_str).collect();
    let linear = steps.iter().filter(|s| s["op"] == "linear");
    let mut fused = 0;
    for n in linear.flat_map(|s| list(s, "/fused_from")) {
        fused += 1;
        assert!(list(n, "/names").iter().any(|m| before.contains(m.as_str().unwrap())), "{n}");
    }
    assert!(fused > 10, "{fused}");
}

#[test]
fn a_profile_says_where_the_time_goes() {
    let f = Folder::new("json-trace");
    let (model, file) = (golden(), f.path("trace.json"));
    let args = ["bench", &model, "--prompt", "20", "--tokens", "2", "--runs", "1", "--device", "cpu"];
    let v = document(&[&args[..], &["--json", "--profile", "--trace", &file]].concat());
    form("bench", &v);
    let mut steps = 0;
    for part in ["prefill", "decode"] {
        let kernels = list(&v, &format!("/profile/{part}/kernels"));
        steps += kernels.iter().map(|k| k["steps"].as_u64().unwrap()).sum::<u64>();
        let share: f64 = kernels.iter().map(|k| k["share"].as_f64().unwrap()).sum();
        assert!((share - 1.0).abs() < 1e-9, "{share}");
    }
    let trace: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let events = list(&trace, "/traceEvents");
    let of = |category: &str| events.iter().filter(|e| e["cat"] == category).count() as u64;
    assert_eq!((of("step"), of("run")), (steps, 2));
    // In words it follows the figures.
    let out = frit().args(args).arg("--profile").output().unwrap();
    let words = text(&out.stdout);
    assert!(out.status.success() && out.stderr.is_empty(), "{}", text(&out.stderr));
    let lines = |start: &str| words.lines().filter(|l| l.starts_with(start)).count();
    assert_eq!(
        (
            lines("prefill: encode"),
            lines("decode of one token: encode"),
            lines("kernel "),
            lines("attention ")
        ),
        (1, 1, 2, 2),
        "{words}"
    );
}

#[test]
fn the_page_holds_the_document_and_loads_nothing() {
    let f = Folder::new("json-page");
    let file = f.path("page.html");
    let out = frit().args(["inspect", &golden(), "--threads", "2", "--html", &file]).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    let page = std::fs::read_to_string(file).unwrap();
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    let (data, _) = rest.split_once("</script>").unwrap();
    let mut shown: Value = serde_json::from_str(data).unwrap();
    let mut said = document(&["inspect", &golden(), "--json", "--threads", "2"]);
    for v in [&mut shown, &mut said] {
        v["compile_seconds"] = 0.into();
        v["passes"].as_array_mut().unwrap().iter_mut().for_each(|p| p["milliseconds"] = 0.into());
    }
    assert_eq!(shown, said);
    for word in ["http://", "https://", " src=", "@import", "url(", "fetch(", "innerHTML"] {
        let rest = page.replace(data, "").replace("http://www.w3.org/2000/svg", "");
        assert!(!rest.contains(word), "the page contains `{word}`");
    }
    // Without FILE the page is the result.
    let out = frit().args(["inspect", &golden(), "--threads", "2", "--html"]).output().unwrap();
    assert!(text(&out.stdout).starts_with("<!doctype html>"));
}

#[test]
fn a_name_in_a_model_cannot_break_out_of_the_page() {
    let f = Folder::new("json-evil");
    let evil = f.path("</script><b>evil");
    std::fs::create_dir_all(&evil).unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(format!("{}/{file}", golden()), format!("{evil}/{file}")).unwrap();
    }
    let out = frit().args(["inspect", &evil, "--html"]).output().unwrap();
    let page = text(&out.stdout);
    assert!(page.contains("evil") && !page.contains("<b>evil"), "{}", &page[..200.min(page.len())]);
}

#[test]
fn devices_are_listed() {
    let v = document(&["devices", "--json"]);
    let keys = |v: &Value| v.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    // Which extensions and sizes there are depends on the machine; the names do not.
    assert_eq!(keys(&v), "devices missing schema");
    let want = "architecture available_bytes extensions instruction_set memory_bytes model name threads";
    assert_eq!(keys(&v["devices"][0]), want);
    // Whether there is more depends on the machine.
    let gpu = "available_bytes driver f64 host largest_buffer_bytes memory_bytes model name self_check self_check_error \
               unified_memory units vendor";
    list(&v, "/devices").iter().skip(1).for_each(|d| assert_eq!(keys(d), gpu));
    list(&v, "/missing").iter().for_each(|m| assert_eq!(keys(m), "name why"));
    // An API has devices or stands among the missing ones.
    for name in ["cuda", "metal", "opencl"] {
        let of = |d: &&Value| d["name"].as_str().unwrap().split(':').next() == Some(name);
        let found = list(&v, "/devices").iter().filter(of).count();
        assert_eq!(list(&v, "/missing").iter().filter(of).count(), usize::from(found == 0), "{name}");
    }
    assert_eq!(v["devices"][0]["name"], "cpu");
    assert!(v["devices"][0]["threads"].as_u64() > Some(0));
    let words = text(&frit().arg("devices").output().unwrap().stdout);
    assert!(words.contains(v["devices"][0]["instruction_set"].as_str().unwrap()), "{words}");
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    let help = text(&frit().arg("--help").output().unwrap().stdout);
    let commands: Vec<&str> =
        help.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty()).collect();
    let commands: Vec<&str> =
        commands.iter().filter_map(|l| l.split_whitespace().next()).filter(|c| *c != "help").collect();
    assert!(commands.len() >= 7, "{commands:?}");
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = text(&frit().args(["completions", shell]).output().unwrap().stdout);
        assert!(commands.iter().all(|c| script.contains(c)), "{shell}");
    }
    let top = text(&frit().arg("man").output().unwrap().stdout);
    for c in commands {
        assert!(top.contains(c), "{c}");
        let page = text(&frit().args(["man", c]).output().unwrap().stdout);
        assert!(page.starts_with(".ie") && page.contains(".TH") && page.contains("EXAMPLE"), "{c}: {page}");
        assert!(page.contains(&format!("frit {c} ")) || page.contains(&format!("frit {c}\n")), "{c}: {page}");
    }
}
