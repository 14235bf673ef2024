//! Models from the Hugging Face hub, or from whoever speaks its interface: list a repository, choose what makes a model, fetch
//! it at one commit, check every file. What the hub says of names and sizes is believed only as far as it can do no harm.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use ureq::http::StatusCode;

use super::{Expect, Lock, http, kept, part};
use crate::failure::Failure;
use crate::output::megabytes;

/// Where the hub is.
pub const HUB: &str = "https://huggingface.co";

/// The longest description of a repository that is read, in bytes.
const MOST: u64 = 32 << 20;

/// What is wanted: `hf:OWNER/REPO` or `hf:OWNER/REPO/FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    repo: String,
    file: Option<String>,
}

/// A repository at one commit.
#[derive(Deserialize)]
struct Description {
    sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
    #[serde(default)]
    tags: Vec<String>,
}

/// A file of a repository.
#[derive(Clone, Debug, Deserialize, PartialEq)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    #[serde(rename = "blobId")]
    blob: Option<String>,
    lfs: Option<Lfs>,
}

/// What is known of a large file.
#[derive(Clone, Debug, Deserialize, PartialEq)]
struct Lfs {
    sha256: String,
}

/// The files that make a model.
#[derive(Debug, PartialEq)]
enum Choice<'a> {
    File(&'a Sibling),
    Folder(Vec<&'a Sibling>),
}

/// The files of a Hugging Face folder that a model may need, beside its weights.
const BESIDE: &[&str] = &[
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "modules.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
];

/// Whether `name` can be a part of a path here: no way out of its folder, nothing that a system reads otherwise.
fn plain(name: &str) -> bool {
    let ok = |c: char| c.is_ascii_alphanumeric() || "._-+=@ ()".contains(c);
    !name.is_empty() && !name.starts_with('.') && !name.ends_with(['.', ' ']) && name.chars().all(ok)
}

impl Source {
    /// Reads what follows `hf:`.
    ///
    /// # Errors
    /// It is not of that form.
    pub fn parse(text: &str) -> Result<Source, String> {
        let mut parts = text.splitn(3, '/');
        let (owner, repo, file) = (parts.next(), parts.next(), parts.next());
        match (owner, repo, file) {
            (Some(o), Some(r), f) if plain(o) && plain(r) && f.is_none_or(|f| f.split('/').all(plain)) => {
                Ok(Source { repo: format!("{o}/{r}"), file: f.map(str::to_owned) })
            }
            _ => Err(format!("`hf:{text}` is not of the form hf:OWNER/REPO or hf:OWNER/REPO/FILE")),
        }
    }

    fn folder(&self, cache: &Path) -> PathBuf {
        cache.join("hf").join(&self.repo)
    }

    /// Where the path of what was fetched last is kept.
    fn pin(&self, cache: &Path) -> PathBuf {
        let name =
            self.file.as_ref().map_or("model.last".into(), |f| format!("{}.last", f.replace('/', "--")));
        self.folder(cache).join(name)
    }

    /// What was fetched last, if it is still there.
    pub fn cached(&self, cache: &Path) -> Option<PathBuf> {
        let name = fs::read_to_string(self.pin(cache)).ok()?;
        let path = self.folder(cache).join(name);
        path.exists().then_some(path)
    }

    /// Fetches it into `cache` and gives the path of its file or folder.
    ///
    /// # Errors
    /// The hub refuses or cannot be reached; the repository holds no model, or several; a file is not what the hub says.
    pub fn fetch(
        &self,
        client: &http::Client,
        hub: &str,
        cache: &Path,
        force: bool,
        sha256: Option<&str>,
    ) -> Result<PathBuf, Failure> {
        let hub = hub.trim_end_matches('/');
        let url = format!("{hub}/api/models/{}?blobs=true", self.repo);
        let text = client.text(&url, MOST)?;
        let described: Description = serde_json::from_str(&text)
            .map_err(|e| format!("{url}: the answer does not describe a repository: {e}"))?;
        let commit = &described.sha;
        if commit.is_empty() || !commit.chars().all(|c| c.is_ascii_hexdigit()) {
            return Err(Failure::Error(format!("{url}: `{commit}` is no commit")));
        }
        let licence = described.tags.iter().find_map(|t| t.strip_prefix("license:")).unwrap_or("not stated");
        let get =
            Get { client, source: self, from: format!("{hub}/{}/resolve/{commit}", self.repo), licence };
        let at = self.folder(cache).join(commit);
        let path = match choose(&self.repo, &described.siblings, self.file.as_deref())? {
            Choice::File(f) => get.file(f, &at, force, sha256)?,
            Choice::Folder(_) if sha256.is_some() => {
                let why = "--sha256 is for a single file; the hub's own hashes are always checked";
                return Err(Failure::Error(why.into()));
            }
            Choice::Folder(all) => get.folder(&all, &at, force)?,
        };
        let relative = path.strip_prefix(self.folder(cache)).unwrap_or(&path);
        let pin = self.pin(cache);
        fs::write(&pin, relative.to_string_lossy().as_bytes())
            .map_err(|e| format!("{}: {e}", pin.display()))?;
        Ok(path)
    }
}

/// One fetch.
struct Get<'a> {
    client: &'a http::Client,
    source: &'a Source,
    from: String,
    licence: &'a str,
}

impl Get<'_> {
    fn say(&self, files: &[&Sibling]) {
        let bytes: u64 = files.iter().filter_map(|f| f.size).fold(0, u64::saturating_add);
        let what = match files {
            [f] => f.rfilename.clone(),
            all => format!("{} files", all.len()),
        };
        let (repo, licence) = (&self.source.repo, self.licence);
        eprintln!("fetching {what} of {repo} ({}, licence {licence})", megabytes(bytes));
    }

    fn download(&self, f: &Sibling, to: &Path, sha256: Option<&str>) -> Result<(), Failure> {
        let url = format!("{}/{}", self.from, f.rfilename.replace(' ', "%20"));
        let lfs = f.lfs.as_ref().map(|l| l.sha256.as_str());
        if let (Some(a), Some(b)) = (sha256, lfs)
            && !a.eq_ignore_ascii_case(b)
        {
            return Err(Failure::Error(format!("{url}: the hub states the SHA-256 {b}, expected {a}")));
        }
        let git = f.blob.clone().filter(|_| f.lfs.is_none());
        let expect = Expect { bytes: f.size, sha256: sha256.or(lfs).map(str::to_owned), git };
        http::download(self.client, &url, to, &expect)
    }

    /// A single file, in the folder `at` of its commit.
    fn file(&self, f: &Sibling, at: &Path, force: bool, sha256: Option<&str>) -> Result<PathBuf, Failure> {
        let path = at.join(f.rfilename.rsplit('/').next().unwrap_or_default());
        if kept(&path, force, sha256)? {
            return Ok(path);
        }
        let _lock = Lock::of(&path)?;
        // Another process may have fetched it while this one waited.
        if kept(&path, force, sha256)? {
            return Ok(path);
        }
        self.say(&[f]);
        self.download(f, &path, sha256)?;
        Ok(path)
    }

    /// A folder: its files are gathered beside it; it gets its name when all are there. What is whole is kept for a later call
    /// if that can go on.
    fn folder(&self, files: &[&Sibling], at: &Path, force: bool) -> Result<PathBuf, Failure> {
        let path = at.join("model");
        if kept(&path, force, None)? {
            return Ok(path);
        }
        let _lock = Lock::of(&path)?;
        if kept(&path, force, None)? {
            return Ok(path);
        }
        let stage = part(&path);
        let say = |e: io::Error| Failure::Error(format!("{}: {e}", path.display()));
        self.say(files);
        for f in files {
            let to = stage.join(&f.rfilename);
            if to.exists() && !force {
                continue;
            }
            let make = to.parent().map_or(Ok(()), fs::create_dir_all).map_err(say);
            if let Err(e) = make.and_then(|()| self.download(f, &to, None)) {
                // Nothing to go on with: nothing is left behind.
                if !part(&to).exists() {
                    let _ = fs::remove_dir_all(&stage);
                }
                return Err(e);
            }
        }
        if path.exists() {
            fs::remove_dir_all(&path).map_err(say)?;
        }
        fs::rename(&stage, &path).map_err(say)?;
        Ok(path)
    }
}

/// The files to fetch of `all`: the one called `wanted`, else the only GGUF file, else a Hugging Face folder.
fn choose<'a>(repo: &str, all: &'a [Sibling], wanted: Option<&str>) -> Result<Choice<'a>, String> {
    let find = |name: &str| all.iter().find(|f| f.rfilename == name);
    if let Some(name) = wanted {
        return find(name).map(Choice::File).ok_or_else(|| {
            format!("{repo} has no file `{name}`; it has: {}", list(repo, all.iter().filter(|f| weights(f))))
        });
    }
    // A projector of images is no model by itself.
    let gguf = |f: &&Sibling| f.rfilename.ends_with(".gguf") && !f.rfilename.contains("mmproj");
    let ggufs: Vec<&Sibling> = all.iter().filter(gguf).collect();
    match ggufs.as_slice() {
        [] => {}
        [f] if f.rfilename.split('/').all(plain) => return Ok(Choice::File(f)),
        [f] => return Err(format!("{repo}: `{}` is no plain file name", f.rfilename.escape_default())),
        many => {
            let list = list(repo, many.iter().copied());
            return Err(format!("{repo} has {} GGUF files; name one of: {list}", many.len()));
        }
    }
    let single = find("model.safetensors");
    let shard = |f: &&Sibling| {
        let n = &f.rfilename;
        n == "model.safetensors.index.json"
            || (n.starts_with("model-") && n.ends_with(".safetensors") && plain(n))
    };
    let weights: Vec<&Sibling> = match single {
        Some(f) => vec![f],
        None => all.iter().filter(shard).collect(),
    };
    if weights.is_empty() || find("config.json").is_none() {
        let names: Vec<String> =
            all.iter().take(12).map(|f| f.rfilename.escape_default().to_string()).collect();
        return Err(format!(
            "{repo} has neither a GGUF file nor config.json with model.safetensors; it has: {}",
            names.join(", ")
        ));
    }
    Ok(Choice::Folder(BESIDE.iter().filter_map(|n| find(n)).chain(weights).collect()))
}

fn weights(f: &Sibling) -> bool {
    f.rfilename.ends_with(".gguf") || f.rfilename.ends_with(".safetensors")
}

/// `hf:o/r/a.gguf (12.0 MB), …`, in the order of sizes.
fn list<'a>(repo: &str, files: impl Iterator<Item = &'a Sibling>) -> String {
    let mut files: Vec<&Sibling> = files.collect();
    files.sort_by_key(|f| f.size);
    let entry = |f: &&Sibling| {
        let name = f.rfilename.escape_default();
        format!("hf:{repo}/{name} ({})", f.size.map_or("size unknown".into(), megabytes))
    };
    match files.is_empty() {
        true => "no weights".into(),
        false => files.iter().map(entry).collect::<Vec<_>>().join(", "),
    }
}

/// What an answer of the hub means to a user with or without a token.
pub fn explain(status: StatusCode, code: &str, token: bool) -> String {
    let ask = match token {
        true => "the token in HF_TOKEN may not read it",
        false => "set HF_TOKEN to a token that may read it",
    };
    match (status, code) {
        (_, "GatedRepo") => format!("the repository is gated: accept its terms on the hub, and {ask}"),
        (_, "RepoNotFound") if token => "there is no such repository, or the token may not read it".into(),
        (StatusCode::UNAUTHORIZED, _) => format!("there is no such repository, or it is private: {ask}"),
        (StatusCode::FORBIDDEN, _) => ask.into(),
        (StatusCode::NOT_FOUND, _) => "there is no such repository or file".into(),
        (StatusCode::TOO_MANY_REQUESTS, _) => "too many requests; wait and run again".into(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(names: &[&str]) -> Vec<Sibling> {
        let one =
            |n: &&str| Sibling { rfilename: (*n).into(), size: Some(n.len() as u64), blob: None, lfs: None };
        names.iter().map(one).collect()
    }

    #[test]
    fn sources_are_an_owner_a_name_and_perhaps_a_file() {
        let s = |t| Source::parse(t).map(|s| (s.repo, s.file));
        assert_eq!(s("a/b").unwrap(), ("a/b".into(), None));
        assert_eq!(s("a/b.c/d/e.gguf").unwrap(), ("a/b.c".into(), Some("d/e.gguf".into())));
        for bad in ["", "a", "a/", "/b", "../b", "a/..", "a/b/../c", "a/b/c//d", "a/b?x", "a/b/", "a\\b/c"] {
            assert!(Source::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_model_is_one_gguf_file_or_a_folder() {
        let name = |c: Choice| match c {
            Choice::File(f) => vec![f.rfilename.clone()],
            Choice::Folder(all) => all.iter().map(|f| f.rfilename.clone()).collect(),
        };
        let pick = |names: &[&str], wanted| choose("o/r", &files(names), wanted).map(name);
        assert_eq!(pick(&["README.md", "a.gguf", "mmproj-a.gguf"], None).unwrap(), ["a.gguf"]);
        let two = pick(&["q8_0.gguf", "q4.gguf"], None).unwrap_err();
        assert!(two.contains("2 GGUF files; name one of: hf:o/r/q4.gguf (0.0 MB), hf:o/r/q8_0"), "{two}");
        assert_eq!(pick(&["q8_0.gguf", "q4.gguf"], Some("q4.gguf")).unwrap(), ["q4.gguf"]);
        assert!(pick(&["q4.gguf"], Some("q5.gguf")).unwrap_err().contains("hf:o/r/q4.gguf"));
        let folder = ["onnx/model.onnx", "model.safetensors", "config.json", "tokenizer.json"];
        assert_eq!(pick(&folder, None).unwrap(), ["config.json", "tokenizer.json", "model.safetensors"]);
        let shards = [
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
        ];
        assert_eq!(pick(&[&["config.json"], &shards[..]].concat(), None).unwrap().len(), 4);
        assert!(pick(&["config.json"], None).unwrap_err().contains("neither a GGUF file"));
        assert!(pick(&["../../x.gguf"], None).is_err());
    }
}
