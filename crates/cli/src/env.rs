//! The only place that reads the environment: where the cache is, who the user is to the hub, what is logged. Behaviour is set
//! by flags alone.

use std::path::PathBuf;

use tracing_subscriber::filter::LevelFilter;

/// The user's token for the hub: `HF_TOKEN`.
pub fn hub_token() -> Option<String> {
    let token = std::env::var("HF_TOKEN").ok()?;
    Some(token.trim().to_owned()).filter(|t| !t.is_empty())
}

/// Writes traces of the level in `FRIT_LOG` to standard error, if it is set.
///
/// # Errors
/// It is not a level.
pub fn start_log() -> Result<(), String> {
    let Some(level) = std::env::var("FRIT_LOG").ok().filter(|v| !v.is_empty()) else { return Ok(()) };
    let level: LevelFilter = level
        .parse()
        .map_err(|_| format!("FRIT_LOG takes off, error, warn, info, debug or trace, got `{level}`"))?;
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_ansi(false).init();
    Ok(())
}

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
