//! The only place that reads the environment: where the cache is. Behaviour is set by flags alone.

use std::path::PathBuf;

/// The folder of fetched models: `FRIT_CACHE_DIR`, else `frit` in `XDG_CACHE_HOME`, else `~/.cache/frit`.
///
/// # Errors
/// None of them is set.
pub fn cache_dir() -> Result<PathBuf, String> {
    let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(p) = var("FRIT_CACHE_DIR") {
        return Ok(p);
    }
    let base =
        var("XDG_CACHE_HOME").or_else(|| Some(var("HOME").or_else(|| var("USERPROFILE"))?.join(".cache")));
    base.map(|b| b.join("frit")).ok_or_else(|| {
        "there is no cache folder: set FRIT_CACHE_DIR (XDG_CACHE_HOME and HOME are not set either)".into()
    })
}
