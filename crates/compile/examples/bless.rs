//! Rewrites the golden files of the compiler with what its passes make now: `cargo xtask bless` runs it.

use std::path::Path;

fn main() -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let changed = frit_compile::testing::bless(&root)?;
    println!("{changed} golden files changed");
    Ok(())
}
