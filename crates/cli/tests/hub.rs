//! `frit pull hf:…` against a server on this machine that plays the hub, well and badly.

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use common::{Cache, Request, hex, one_line, serve, text};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// The content of a file called `name`.
fn content(name: &str, bytes: usize) -> Vec<u8> {
    let seed = name.bytes().fold(7u32, |a, b| a.wrapping_mul(31).wrapping_add(b.into()));
    (0..bytes as u32).map(|i| (i.wrapping_mul(31).wrapping_add(seed) % 251) as u8).collect()
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    hex(&Sha256::digest(bytes))
}

fn git_sha1(bytes: &[u8]) -> String {
    use sha1::{Digest, Sha1};
    hex(&Sha1::new_with_prefix(format!("blob {}\0", bytes.len())).chain_update(bytes).finalize())
}

/// A file of the repository: name, size, whether it is a large one (with a SHA-256).
type File = (&'static str, usize, bool);

fn description(files: &[File]) -> String {
    let entry = |(name, bytes, large): &File| {
        let c = content(name, *bytes);
        let mut v = serde_json::json!({ "rfilename": name, "size": bytes, "blobId": git_sha1(&c) });
        if *large {
            v["lfs"] = serde_json::json!({ "sha256": sha256(&c), "size": bytes, "pointerSize": 134 });
        }
        v
    };
    let siblings: Vec<_> = files.iter().map(entry).collect();
    let tags = ["gguf", "license:mit"];
    serde_json::json!({ "id": "o/r", "sha": COMMIT, "gated": false, "tags": tags, "siblings": siblings })
        .to_string()
}

fn answer(s: &mut TcpStream, status: &str, headers: &str, body: &[u8]) {
    let _ = write!(
        s,
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = s.write_all(body);
}

/// Answers a request for a file from where it wants it, at most `most` bytes.
fn send(s: &mut TcpStream, r: &Request, name: &str, bytes: usize, most: usize) {
    let all = content(name, bytes);
    let head = match r.start {
        0 => "HTTP/1.1 200 OK\r\n".to_owned(),
        n => format!("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {n}-{}/{bytes}\r\n", bytes - 1),
    };
    let _ = write!(s, "{head}Content-Length: {}\r\nConnection: close\r\n\r\n", bytes - r.start);
    let _ = s.write_all(&all[r.start..bytes.min(r.start + most)]);
}

/// A hub that has `files`, with `special` asked first: it says whether it has answered.
fn hub(
    files: &'static [File],
    special: impl Fn(&Request, &mut TcpStream) -> bool + Send + Sync + 'static,
) -> String {
    let (url, _) = serve(move |_, r, s| {
        if special(r, s) {
            return;
        }
        if r.path.starts_with("/api/models/o/r") {
            return answer(s, "200 OK", "Content-Type: application/json\r\n", description(files).as_bytes());
        }
        let name = r.path.strip_prefix(&format!("/o/r/resolve/{COMMIT}/"));
        match files.iter().find(|f| Some(f.0) == name) {
            Some((name, bytes, _)) => send(s, r, name, *bytes, *bytes),
            None => answer(s, "404 Not Found", "X-Error-Code: EntryNotFound\r\n", b""),
        }
    });
    url
}

const ONE: &[File] = &[("README.md", 40, false), ("tiny-q4.gguf", 200_000, true)];
const TWO: &[File] = &[("tiny-q8.gguf", 2_400_000, true), ("tiny-q4.gguf", 1_200_000, true)];
const FOLDER: &[File] = &[
    ("README.md", 40, false),
    ("config.json", 700, false),
    ("tokenizer.json", 9000, false),
    ("1_Pooling/config.json", 190, false),
    ("onnx/model.onnx", 5000, true),
    ("model-00001-of-00002.safetensors", 70_000, true),
    ("model-00002-of-00002.safetensors", 50_000, true),
    ("model.safetensors.index.json", 300, false),
];

#[test]
fn the_only_gguf_file_is_fetched_and_kept() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let url = hub(ONE, move |r, _| {
        log.lock().unwrap().push(r.path.clone());
        false
    });
    let cache = Cache::new("hub-one");
    for _ in 0..2 {
        let out = cache.pull(&["hf:o/r", "--hub", &url]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        let path = text(&out.stdout);
        assert_eq!(std::fs::read(path.trim()).unwrap(), content("tiny-q4.gguf", 200_000));
        assert!(path.trim().ends_with(&format!("hf/o/r/{COMMIT}/tiny-q4.gguf")), "{path}");
    }
    assert_eq!(cache.files(), ["model.last", "tiny-q4.gguf"]);
    // The second call asked what there is, and fetched nothing.
    let files = asked.lock().unwrap().iter().filter(|p| p.contains("resolve")).count();
    assert_eq!((files, asked.lock().unwrap().len()), (1, 3));
    // Other commands take what was pulled without asking anybody: the file is not a model, which is as far as they get.
    let out = cache.frit(&["inspect", "hf:o/r"]);
    assert!(text(&out.stderr).contains("tiny-q4.gguf"), "{}", text(&out.stderr));
}

#[test]
fn a_kept_file_must_have_the_hash_that_is_asked_for() {
    let url = hub(ONE, |_, _| false);
    let cache = Cache::new("hub-kept");
    assert!(cache.pull(&["hf:o/r", "--hub", &url]).status.success());
    let (right, zeros) = (sha256(&content("tiny-q4.gguf", 200_000)), "0".repeat(64));
    let out = cache.pull(&["hf:o/r", "--hub", &url, "--sha256", &zeros]);
    let message =
        format!("tiny-q4.gguf: the file's SHA-256 is {right}, expected {zeros}; --force fetches it again");
    one_line(&out, &message);
    let out = cache.pull(&["hf:o/r", "--hub", &url, "--sha256", &right]);
    assert!(out.status.success(), "{}", text(&out.stderr));
}

#[test]
fn several_gguf_files_are_listed_and_one_can_be_named() {
    let url = hub(TWO, |_, _| false);
    let cache = Cache::new("hub-two");
    let out = cache.pull(&["hf:o/r", "--hub", &url]);
    one_line(&out, "2 GGUF files; name one of: hf:o/r/tiny-q4.gguf (1.2 MB), hf:o/r/tiny-q8.gguf (2.4 MB)");
    assert!(cache.files().is_empty());
    let out = cache.pull(&["hf:o/r/tiny-q8.gguf", "--hub", &url]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("2.4 MB, licence mit"), "{}", text(&out.stderr));
    one_line(
        &cache.pull(&["hf:o/r/tiny-q5.gguf", "--hub", &url]),
        "no file `tiny-q5.gguf`; it has: hf:o/r/tiny-q4.gguf",
    );
}

#[test]
fn a_folder_comes_whole_or_not_at_all() {
    // The second shard breaks off three times; then it can be had.
    let broken = Arc::new(Mutex::new(0));
    let count = broken.clone();
    let url = hub(FOLDER, move |r, s| {
        let name = "model-00002-of-00002.safetensors";
        let mut n = count.lock().unwrap();
        if r.path.ends_with(name) && *n < 4 {
            *n += 1;
            send(s, r, name, 50_000, if *n == 1 { 20_000 } else { 0 });
            return true;
        }
        false
    });
    let cache = Cache::new("hub-folder");
    let out = cache.pull(&["hf:o/r", "--hub", &url]);
    assert_eq!(*broken.lock().unwrap(), 4);
    // Three attempts that bring nothing are borne.
    assert!(out.status.success(), "{}", text(&out.stderr));
    let path = std::path::PathBuf::from(text(&out.stdout).trim());
    for (name, bytes, _) in FOLDER.iter().filter(|f| !f.0.contains("onnx") && f.0 != "README.md") {
        assert_eq!(std::fs::read(path.join(name)).unwrap(), content(name, *bytes), "{name}");
    }
    assert!(!path.join("onnx").exists() && !path.join("README.md").exists());
    assert!(cache.files().iter().all(|f| !f.ends_with(".part")), "{:?}", cache.files());
}

#[test]
fn a_folder_that_breaks_off_is_gone_on_with() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let url = hub(FOLDER, move |r, s| {
        let mut all = log.lock().unwrap();
        all.push((r.path.clone(), r.start));
        let name = "model-00001-of-00002.safetensors";
        let of = all.iter().filter(|(p, _)| p.ends_with(name)).count();
        if r.path.ends_with(name) && of <= 5 {
            send(s, r, name, 70_000, if of == 1 { 30_000 } else { 0 });
            return true;
        }
        false
    });
    let cache = Cache::new("hub-later");
    one_line(&cache.pull(&["hf:o/r", "--hub", &url]), "run again to go on");
    let before = asked.lock().unwrap().len();
    let out = cache.pull(&["hf:o/r", "--hub", &url]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let asked = asked.lock().unwrap();
    let later: Vec<_> = asked[before..].iter().map(|(p, n)| (p.rsplit('/').next().unwrap(), *n)).collect();
    // What was whole is not fetched again, what was half goes on where it broke off.
    let want = [
        ("r?blobs=true", 0),
        ("model-00001-of-00002.safetensors", 30_000),
        ("model-00002-of-00002.safetensors", 0),
        ("model.safetensors.index.json", 0),
    ];
    assert_eq!(later, want);
}

#[test]
fn files_that_are_not_what_the_hub_says_leave_nothing() {
    for (name, message) in [("model-00002-of-00002.safetensors", "SHA-256"), ("tokenizer.json", "git SHA-1")]
    {
        let url = hub(FOLDER, move |r, s| {
            let bytes = FOLDER.iter().find(|f| f.0 == name).unwrap().1;
            let hit = r.path.ends_with(name);
            if hit {
                answer(s, "200 OK", "", &vec![b'x'; bytes]);
            }
            hit
        });
        let cache = Cache::new(&format!("hub-wrong-{}", name.len()));
        one_line(&cache.pull(&["hf:o/r", "--hub", &url]), message);
        assert!(cache.files().is_empty(), "{:?}", cache.files());
    }
}

#[test]
fn refusals_say_what_the_user_can_do() {
    let refuse = |status: &'static str, headers: &'static str| {
        hub(ONE, move |_, s| {
            answer(s, status, headers, b"{\"error\": \"no\"}");
            true
        })
    };
    let cache = Cache::new("hub-refused");
    let cases = [
        ("401 Unauthorized", "", "private: set HF_TOKEN"),
        (
            "401 Unauthorized",
            "X-Error-Code: RepoNotFound\r\n",
            "no such repository, or it is private: set HF_TOKEN",
        ),
        (
            "401 Unauthorized",
            "X-Error-Code: GatedRepo\r\n",
            "gated: accept its terms on the hub, and set HF_TOKEN",
        ),
        ("403 Forbidden", "X-Error-Code: GatedRepo\r\n", "gated: accept its terms"),
        ("404 Not Found", "", "no such repository or file"),
        ("429 Too Many Requests", "", "wait and run again"),
        ("503 Service Unavailable", "", "503 Service Unavailable (4 attempts)"),
        ("200 OK", "", "does not describe a repository"),
    ];
    for (status, headers, message) in cases {
        one_line(&cache.pull(&["hf:o/r", "--hub", &refuse(status, headers)]), message);
    }
    let out = cache.with_token("t0ken", &["hf:o/r", "--hub", &refuse("403 Forbidden", "")]);
    one_line(&out, "the token in HF_TOKEN may not read it");
    one_line(&cache.pull(&["hf:../r"]), "not of the form hf:OWNER/REPO");
    assert!(cache.files().is_empty());
}

#[test]
fn a_gated_file_is_refused_after_the_listing() {
    let url = hub(ONE, |r, s| {
        let file = r.path.contains("resolve");
        if file {
            answer(s, "401 Unauthorized", "X-Error-Code: GatedRepo\r\n", b"");
        }
        file
    });
    let cache = Cache::new("hub-gated");
    one_line(&cache.pull(&["hf:o/r", "--hub", &url]), "the repository is gated");
    assert!(cache.files().is_empty());
}

#[test]
fn the_token_goes_to_the_hub_and_not_to_where_it_redirects() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let (storage, _) = serve(move |_, r, s| {
        log.lock().unwrap().push(r.authorization.clone());
        send(s, r, "tiny-q4.gguf", 200_000, 200_000);
    });
    // Another name of the same machine is another host.
    let storage = storage.replace("127.0.0.1", "localhost");
    let at_hub = Arc::new(Mutex::new(Vec::new()));
    let log = at_hub.clone();
    let url = hub(ONE, move |r, s| {
        log.lock().unwrap().push(r.authorization.clone());
        let file = r.path.contains("resolve");
        if file {
            answer(s, "302 Found", &format!("Location: {storage}/blob?signature=1\r\n"), b"");
        }
        file
    });
    let cache = Cache::new("hub-token");
    let out = cache.with_token("t0ken", &["hf:o/r", "--hub", &url]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let bearer = Some("Bearer t0ken".to_owned());
    assert_eq!(*at_hub.lock().unwrap(), [bearer.clone(), bearer]);
    assert_eq!(*seen.lock().unwrap(), [None]);
}

#[test]
fn names_that_leave_their_folder_are_refused() {
    let cache = Cache::new("hub-names");
    for name in ["../evil.gguf", "/etc/evil.gguf", "a\\\\evil.gguf", ".hidden.gguf", "a/../../evil.gguf"] {
        let (url, _) = serve(move |_, _, s| {
            let d = format!(
                "{{\"sha\": \"{COMMIT}\", \"siblings\": [{{\"rfilename\": \"{name}\", \"size\": 4}}]}}"
            );
            answer(s, "200 OK", "", d.as_bytes());
        });
        one_line(&cache.pull(&["hf:o/r", "--hub", &url]), "no plain file name");
    }
    let (url, _) = serve(|_, _, s| answer(s, "200 OK", "", b"{\"sha\": \"../..\", \"siblings\": []}"));
    one_line(&cache.pull(&["hf:o/r", "--hub", &url]), "is no commit");
    assert!(cache.files().is_empty());
}
