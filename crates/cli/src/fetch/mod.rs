//! Fetching files into the cache: under a temporary name, checked, then renamed. A file under its final name is whole.

pub mod http;
pub mod hub;
pub mod wheel;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// What a file must be.
#[derive(Clone, Debug, Default)]
pub struct Expect {
    /// Size in bytes, if known beforehand.
    pub bytes: Option<u64>,
    /// SHA-256 in hexadecimal, if known beforehand.
    pub sha256: Option<String>,
    /// SHA-1 of the file as a git blob, in hexadecimal, if known beforehand.
    pub git: Option<String>,
}

/// The file `path` is being written to before it is whole.
pub fn part(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".part");
    path.with_file_name(name)
}

/// Holds the right to fetch `path`; other processes that want it wait until this is dropped.
pub struct Lock(#[expect(dead_code, reason = "held for its lock")] File);

impl Lock {
    /// Waits for the right to fetch `path`, making its folder.
    pub fn of(path: &Path) -> Result<Lock, String> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let say = |e: io::Error| format!("{}: {e}", folder.display());
        fs::create_dir_all(folder).map_err(say)?;
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(".lock");
        let file = File::options().create(true).append(true).open(path.with_file_name(name)).map_err(say)?;
        file.lock().map_err(say)?;
        Ok(Lock(file))
    }
}

/// Checks the whole temporary file and gives it its final name; a wrong one is removed.
pub fn finish(path: &Path, expect: &Expect) -> Result<(), String> {
    let temporary = part(path);
    let done = check(&temporary, expect).and_then(|()| {
        fs::rename(&temporary, path).map_err(|e| format!("{}: cannot rename into place: {e}", path.display()))
    });
    if done.is_err() {
        // The error that is on its way says more than a failed removal could.
        let _ = fs::remove_file(&temporary);
    }
    done
}

/// Whether the cache has `path` already, so that nothing need be fetched. A file that is kept must have the SHA-256 that is
/// asked for, as one that is fetched must.
///
/// # Errors
/// It is there and has another.
pub fn kept(path: &Path, force: bool, sha256: Option<&str>) -> Result<bool, String> {
    if force || !path.exists() {
        return Ok(false);
    }
    let expect = Expect { sha256: sha256.map(str::to_owned), ..Expect::default() };
    let say = |e| format!("{}: {e}; --force fetches it again", path.display());
    check(path, &expect).map(|()| true).map_err(say)
}

/// Whether `file` is what is expected.
pub fn check(file: &Path, expect: &Expect) -> Result<(), String> {
    let say = |e: io::Error| format!("{}: {e}", file.display());
    let bytes = fs::metadata(file).map_err(say)?.len();
    if let Some(want) = expect.bytes.filter(|w| *w != bytes) {
        return Err(format!("the file has {bytes} bytes, expected {want}"));
    }
    if let Some(want) = &expect.sha256 {
        compare("SHA-256", &hash(Sha256::new(), file).map_err(say)?, want)?;
    }
    if let Some(want) = &expect.git {
        // What git hashes is the file behind a header.
        let start = Sha1::new_with_prefix(format!("blob {bytes}\0"));
        compare("git SHA-1", &hash(start, file).map_err(say)?, want)?;
    }
    Ok(())
}

fn compare(kind: &str, got: &str, want: &str) -> Result<(), String> {
    match got.eq_ignore_ascii_case(want) {
        true => Ok(()),
        false => Err(format!("the file's {kind} is {got}, expected {want}")),
    }
}

/// The digest of what `start` has seen and the file, in hexadecimal.
fn hash<D: Digest>(mut start: D, file: &Path) -> io::Result<String> {
    let mut from = File::open(file)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(start.finalize().iter().map(|b| format!("{b:02x}")).collect()),
            n => start.update(&buffer[..n]),
        }
    }
}

/// A bar on standard error if that is a terminal, else nothing.
pub fn bar(total: Option<u64>) -> ProgressBar {
    let style = |t: &str| ProgressStyle::with_template(t).unwrap_or_else(|_| ProgressStyle::default_bar());
    match total {
        Some(n) => {
            ProgressBar::new(n).with_style(style("{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}"))
        }
        None => ProgressBar::no_length().with_style(style("{spinner} {bytes} {bytes_per_sec}")),
    }
}
