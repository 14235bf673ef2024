//! Golden data in `tests/data` and fetched models in `target/models`.

use std::path::{Path, PathBuf};

/// The workspace's folder: where this was built, or the current folder for a program that was carried to another machine.
pub fn root() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).parent().filter(|p| p.exists());
    built.unwrap_or(Path::new(".")).to_path_buf()
}

/// The folder of the golden model `name`.
pub fn folder(name: &str) -> PathBuf {
    root().join("tests/data/goldens").join(name)
}

/// The real SmolLM2 model.
///
/// # Panics
/// It was not fetched; says how.
pub fn smollm2() -> PathBuf {
    fetched("SmolLM2-135M-Instruct.Q4_1.gguf", "cargo xtask fetch")
}

/// The real Gemma 3 270M model.
///
/// # Panics
/// It was not fetched; says how.
pub fn gemma3() -> PathBuf {
    fetched("gemma-3-270m-q4_k_m.gguf", "cargo xtask fetch gemma")
}

fn fetched(file: &str, command: &str) -> PathBuf {
    let p = root().join("target/models").join(file);
    assert!(p.exists(), "{} is missing: run `{command}`", p.display());
    p
}

/// The folder of the real all-MiniLM-L6-v2 model.
///
/// # Panics
/// It was not fetched; says how.
pub fn minilm() -> PathBuf {
    fetched("all-MiniLM-L6-v2", "cargo xtask fetch")
}
