//! `frit pull` against a server on this machine that misbehaves.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// SHA-256 of [`content`].
fn hash() -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(content()).iter().map(|b| format!("{b:02x}")).collect()
}

fn content() -> Vec<u8> {
    (0..300_000u32).map(|i| (i * 31 % 251) as u8).collect()
}

/// Serves each connection with `answer(number, range start, stream)`, on a thread; gives the address.
fn serve(
    answer: impl Fn(usize, usize, &mut TcpStream) + Send + Sync + 'static,
) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/model.gguf", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let n = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut start = 0;
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|n| n > 2) {
                let lower = line.to_lowercase();
                if let Some(r) = lower.strip_prefix("range: bytes=") {
                    start = r.trim().trim_end_matches('-').parse().unwrap();
                }
                line.clear();
            }
            answer(n.fetch_add(1, Ordering::SeqCst), start, &mut stream);
        }
    });
    (url, count)
}

/// Sends `from..to` of the content as a correct answer to a request from `from` on; the client may have gone.
fn send(stream: &mut TcpStream, from: usize, to: usize) {
    let all = content();
    let n = all.len();
    let head = match from {
        0 => format!("HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Length: {n}\r\n\r\n"),
        _ => format!(
            "HTTP/1.1 206 Partial Content\r\nETag: \"v1\"\r\nContent-Range: bytes {from}-{}/{n}\r\nContent-Length: {}\r\n\r\n",
            n - 1,
            n - from
        ),
    };
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(&all[from..to]);
}

struct Cache(PathBuf);

impl Cache {
    fn new(name: &str) -> Cache {
        let p = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("pull-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&p);
        Cache(p)
    }

    fn pull(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_frit"))
            .arg("pull")
            .args(args)
            .env("FRIT_CACHE_DIR", &self.0)
            .output()
            .unwrap()
    }

    /// Every file in the cache but locks.
    fn files(&self) -> Vec<String> {
        fn walk(p: &Path, out: &mut Vec<String>) {
            for f in std::fs::read_dir(p).into_iter().flatten().flatten() {
                match f.file_type().unwrap().is_dir() {
                    true => walk(&f.path(), out),
                    false => out.push(f.file_name().into_string().unwrap()),
                }
            }
        }
        let mut out = Vec::new();
        walk(&self.0, &mut out);
        out.retain(|f| !f.ends_with(".lock"));
        out.sort();
        out
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn good(cache: &Cache, out: &Output) {
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{err}");
    let path = String::from_utf8(out.stdout.clone()).unwrap();
    assert_eq!(std::fs::read(path.trim()).unwrap(), content());
    assert_eq!(cache.files(), ["model.gguf"]);
}

fn bad(out: &Output, message: &str) {
    assert_eq!(out.status.code(), Some(1));
    assert!(out.stdout.is_empty());
    let err = String::from_utf8_lossy(&out.stderr);
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(err.contains(message), "{err}");
}

#[test]
fn a_connection_that_is_cut_is_resumed() {
    let (url, count) = serve(|i, start, s| send(s, start, content().len().min(start + 100_000 + i)));
    let cache = Cache::new("cut");
    good(&cache, &cache.pull(&[&url]));
    assert_eq!(count.load(Ordering::SeqCst), 3);
    // The second time nothing is asked of the server.
    good(&cache, &cache.pull(&[&url]));
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

#[test]
fn a_later_call_goes_on_where_an_earlier_one_gave_up() {
    let (url, _) = serve(|i, start, s| match i {
        0 => send(s, 0, 50_000),
        1..=4 => {}
        _ => send(s, start, content().len()),
    });
    let cache = Cache::new("later");
    bad(&cache.pull(&[&url]), "run again to go on");
    assert!(cache.files().contains(&"model.gguf.part".to_owned()));
    good(&cache, &cache.pull(&[&url]));
}

#[test]
fn a_server_that_ignores_ranges_is_read_from_the_start() {
    let (url, _) = serve(|i, _, s| send(s, 0, if i == 0 { 70_000 } else { content().len() }));
    let cache = Cache::new("ranges");
    good(&cache, &cache.pull(&[&url]));
}

#[test]
fn a_server_that_stalls_is_given_up() {
    let (url, count) = serve(|_, start, s| {
        send(s, start, start);
        std::thread::sleep(Duration::from_secs(2));
    });
    let cache = Cache::new("stall");
    bad(&cache.pull(&[&url, "--stall", "0.2"]), "sent nothing");
    assert!(count.load(Ordering::SeqCst) >= 1);
    assert!(!cache.files().contains(&"model.gguf".to_owned()));
}

#[test]
fn missing_files_are_an_error_at_once() {
    let (url, count) = serve(|_, _, s| {
        let _ = s.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    });
    let cache = Cache::new("missing");
    bad(&cache.pull(&[&url]), "404");
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert!(cache.files().is_empty());
}

#[test]
fn a_length_that_is_a_lie_is_noticed() {
    let (url, _) = serve(|_, _, s| {
        let n = content().len();
        let _ = s.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", n + 5).as_bytes());
        let _ = s.write_all(&content());
    });
    let cache = Cache::new("lie");
    bad(&cache.pull(&[&url]), "broke");
    assert!(!cache.files().contains(&"model.gguf".to_owned()));
}

#[test]
fn a_wrong_hash_leaves_nothing_behind() {
    let (url, _) = serve(|_, start, s| send(s, start, content().len()));
    let cache = Cache::new("hash");
    bad(&cache.pull(&[&url, "--sha256", &"0".repeat(64)]), "SHA-256");
    assert!(cache.files().is_empty(), "{:?}", cache.files());
    good(&cache, &cache.pull(&[&url, "--sha256", &hash()]));
}

#[test]
fn unknown_names_and_odd_urls_are_refused() {
    let cache = Cache::new("names");
    bad(&cache.pull(&["no-such-model"]), "smollm2");
    bad(&cache.pull(&["http://127.0.0.1:9/"]), "plain file name");
    bad(&cache.pull(&["http://127.0.0.1:9/.."]), "plain file name");
    bad(&cache.pull(&["http://127.0.0.1:9/x.gguf", "--sha256", "12"]), "64 hexadecimal");
}
