//! What the tests of the command share: a cache folder, a server on this machine, checks of what a user sees.

// Each test program uses its own part.
#![allow(dead_code)]

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `bytes` as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// `bytes` in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The command, without any variable that it reads; its cache cannot be written.
pub fn frit() -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_frit"));
    c.env("FRIT_CACHE_DIR", "/nonexistent")
        .env_remove("HF_TOKEN")
        .env_remove("FRIT_LOG")
        .stdin(Stdio::null());
    c
}

/// A folder that is removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    /// An empty one, with `name` in its name.
    pub fn new(name: &str) -> Folder {
        let p = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&p);
        std::fs::create_dir_all(&p).unwrap();
        Folder(p)
    }

    /// The path of `name` in it, as text.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A cache of models.
pub struct Cache(pub Folder);

impl Cache {
    /// An empty one.
    pub fn new(name: &str) -> Cache {
        Cache(Folder::new(name))
    }

    /// Runs the command with this cache.
    pub fn frit(&self, args: &[&str]) -> Output {
        frit().args(args).env("FRIT_CACHE_DIR", &self.0.0).output().unwrap()
    }

    /// Runs `frit pull`, without speaking of what is fetched.
    pub fn pull(&self, args: &[&str]) -> Output {
        self.frit(&[&["pull"], args].concat())
    }

    /// Runs `frit pull` with a token.
    pub fn with_token(&self, token: &str, args: &[&str]) -> Output {
        frit()
            .arg("pull")
            .args(args)
            .env("FRIT_CACHE_DIR", &self.0.0)
            .env("HF_TOKEN", token)
            .output()
            .unwrap()
    }

    /// Every file in the cache but locks.
    pub fn files(&self) -> Vec<String> {
        fn walk(p: &Path, out: &mut Vec<String>) {
            for f in std::fs::read_dir(p).into_iter().flatten().flatten() {
                match f.file_type().unwrap().is_dir() {
                    true => walk(&f.path(), out),
                    false => out.push(f.file_name().into_string().unwrap()),
                }
            }
        }
        let mut out = Vec::new();
        walk(&self.0.0, &mut out);
        out.retain(|f| !f.ends_with(".lock"));
        out.sort();
        out
    }
}

/// Checks that `out` is a failure told in one line with `message`; lines that say what is being fetched may precede it.
pub fn one_line(out: &Output, message: &str) {
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{err}");
    assert!(out.stdout.is_empty(), "{err}");
    let lines: Vec<&str> = err.lines().filter(|l| !l.starts_with("fetching ")).collect();
    assert_eq!(lines.len(), 1, "{err}");
    assert!(lines[0].starts_with("frit: ") && lines[0].contains(message), "`{message}` is not in: {err}");
}

/// What a client asked for.
pub struct Request {
    /// Path and query.
    pub path: String,
    /// First byte of the range, 0 without one.
    pub start: usize,
    /// The header.
    pub authorization: Option<String>,
}

/// Serves each connection with `answer(number, request, stream)`, on a thread; gives the address.
pub fn serve(
    answer: impl Fn(usize, &Request, &mut TcpStream) + Send + Sync + 'static,
) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let n = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut r = Request { path: String::new(), start: 0, authorization: None };
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|n| n > 2) {
                let (name, value) = line.split_once(':').unwrap_or(("", ""));
                match name.to_lowercase().as_str() {
                    "range" => {
                        r.start =
                            value.trim().trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap()
                    }
                    "authorization" => r.authorization = Some(value.trim().to_owned()),
                    _ if r.path.is_empty() => r.path = line.split(' ').nth(1).unwrap_or("").to_owned(),
                    _ => {}
                }
                line.clear();
            }
            answer(n.fetch_add(1, Ordering::SeqCst), &r, &mut stream);
        }
    });
    (url, count)
}
