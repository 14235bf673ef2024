//! `frit pull` against a server on this machine that misbehaves.

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::Cache;

/// SHA-256 of [`content`].
fn hash() -> String {
    use sha2::{Digest, Sha256};
    common::hex(&Sha256::digest(content()))
}

fn content() -> Vec<u8> {
    (0..300_000u32).map(|i| (i * 31 % 251) as u8).collect()
}

/// Serves each connection with `answer(number, range start, stream)`; gives the address of a file.
fn serve(
    answer: impl Fn(usize, usize, &mut TcpStream) + Send + Sync + 'static,
) -> (String, Arc<AtomicUsize>) {
    let (url, count) = common::serve(move |i, r, s| answer(i, r.start, s));
    (format!("{url}/model.gguf"), count)
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

fn good(cache: &Cache, out: &Output) {
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{err}");
    let path = String::from_utf8(out.stdout.clone()).unwrap();
    assert_eq!(std::fs::read(path.trim()).unwrap(), content());
    assert_eq!(cache.files(), ["model.gguf"]);
}

fn bad(out: &Output, message: &str) {
    common::one_line(out, message);
}

#[test]
fn a_connection_that_is_cut_is_resumed() {
    let (url, count) = serve(|i, start, s| send(s, start, content().len().min(start + 100_000 + i)));
    let cache = Cache::new("pull-cut");
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
    let cache = Cache::new("pull-later");
    bad(&cache.pull(&[&url]), "run again to go on");
    assert!(cache.files().contains(&"model.gguf.part".to_owned()));
    good(&cache, &cache.pull(&[&url]));
}

#[test]
fn a_server_that_ignores_ranges_is_read_from_the_start() {
    let (url, _) = serve(|i, _, s| send(s, 0, if i == 0 { 70_000 } else { content().len() }));
    let cache = Cache::new("pull-ranges");
    good(&cache, &cache.pull(&[&url]));
}

#[test]
fn a_server_that_stalls_is_given_up() {
    let (url, count) = serve(|_, start, s| {
        send(s, start, start);
        std::thread::sleep(Duration::from_secs(2));
    });
    let cache = Cache::new("pull-stall");
    bad(&cache.pull(&[&url, "--stall", "0.2"]), "sent nothing");
    assert!(count.load(Ordering::SeqCst) >= 1);
    assert!(!cache.files().contains(&"model.gguf".to_owned()));
}

#[test]
fn missing_files_are_an_error_at_once() {
    let (url, count) = serve(|_, _, s| {
        let _ = s.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    });
    let cache = Cache::new("pull-missing");
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
    let cache = Cache::new("pull-lie");
    bad(&cache.pull(&[&url]), "broke");
    assert!(!cache.files().contains(&"model.gguf".to_owned()));
}

#[test]
fn a_wrong_hash_leaves_nothing_behind() {
    let (url, _) = serve(|_, start, s| send(s, start, content().len()));
    let cache = Cache::new("pull-hash");
    bad(&cache.pull(&[&url, "--sha256", &"0".repeat(64)]), "SHA-256");
    assert!(cache.files().is_empty(), "{:?}", cache.files());
    good(&cache, &cache.pull(&[&url, "--sha256", &hash()]));
}

#[test]
fn a_kept_file_must_have_the_hash_that_is_asked_for() {
    let (url, count) = serve(|_, start, s| send(s, start, content().len()));
    let cache = Cache::new("pull-kept");
    good(&cache, &cache.pull(&[&url]));
    let zeros = "0".repeat(64);
    let out = cache.pull(&[&url, "--sha256", &zeros]);
    let file = folder(&cache, &url).join("model.gguf");
    let (file, hash) = (file.display(), hash());
    bad(&out, &format!("{file}: the file's SHA-256 is {hash}, expected {zeros}; --force fetches it again"));
    assert!(out.stdout.is_empty());
    // The right hash is found in the cache, in any case of letters.
    good(&cache, &cache.pull(&[&url, "--sha256", &hash.to_uppercase()]));
    assert_eq!(count.load(Ordering::SeqCst), 1);
    // What was damaged here is fetched anew.
    std::fs::write(folder(&cache, &url).join("model.gguf"), "damaged").unwrap();
    bad(&cache.pull(&[&url, "--sha256", &hash]), "--force");
    good(&cache, &cache.pull(&[&url, "--sha256", &hash, "--force"]));
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

/// The folder in the cache that a URL's file goes to.
fn folder(cache: &Cache, url: &str) -> std::path::PathBuf {
    use sha2::{Digest, Sha256};
    cache.0.0.join("url").join(common::hex(&Sha256::digest(url.as_bytes())[..8]))
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_nothing_behind() {
    let (url, _) = serve(|_, start, s| send(s, start, content().len()));
    let cache = Cache::new("pull-full");
    // What is written to this device finds no space.
    let folder = folder(&cache, &url);
    std::fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink("/dev/full", folder.join("model.gguf.part")).unwrap();
    bad(&cache.pull(&[&url]), "No space left on device");
    assert!(cache.files().is_empty(), "{:?}", cache.files());
    assert!(Path::new("/dev/full").exists());
    good(&cache, &cache.pull(&[&url]));
}

#[cfg(unix)]
#[test]
fn a_limit_on_file_sizes_leaves_nothing_behind() {
    let (url, _) = serve(|_, start, s| send(s, start, content().len()));
    let cache = Cache::new("pull-limit");
    let script = "trap '' XFSZ; ulimit -f 100; exec \"$0\" pull \"$1\"";
    let out = std::process::Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_frit"), &url])
        .env("FRIT_CACHE_DIR", &cache.0.0)
        .output()
        .unwrap();
    bad(&out, "File too large");
    assert!(cache.files().is_empty(), "{:?}", cache.files());
}

#[test]
fn a_cache_that_cannot_be_made_is_named() {
    let (url, count) = serve(|_, start, s| send(s, start, content().len()));
    let cache = Cache::new("pull-no-cache");
    // A file stands where the folder should be.
    std::fs::write(cache.0.0.join("url"), "").unwrap();
    bad(&cache.pull(&[&url]), "pull-no-cache");
    assert_eq!(count.load(Ordering::SeqCst), 0);
    assert_eq!(cache.files(), ["url"]);
}

#[test]
fn unknown_names_and_odd_urls_are_refused() {
    let cache = Cache::new("pull-names");
    bad(&cache.pull(&["no-such-model"]), "smollm2");
    bad(&cache.pull(&["http://127.0.0.1:9/"]), "plain file name");
    bad(&cache.pull(&["http://127.0.0.1:9/.."]), "plain file name");
    bad(&cache.pull(&["smollm2", "--sha256", &hash()]), "whose hash is known");
}
