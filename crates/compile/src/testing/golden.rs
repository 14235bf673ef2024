//! Golden files: a graph, a line `---`, and the graph that passes make of it, both in the text format. Lines `#! word word`
//! at the top set options: `#! passes canonicalize` (default `all`), `#! activations q8`, `#! precision f16`.

use std::path::Path;

use frit_ir::graph::Graph;
use frit_ir::text::{parse, print};

use super::every_op;
use crate::{Activations, CompileOptions, Precision, Storage, fuse, optimize, passes};

/// What [`golden`] makes of a file.
pub struct Golden {
    /// The graph before.
    pub before: Graph,
    /// The graph that the passes made of it.
    pub after: Graph,
    /// The file as it should be.
    pub text: String,
}

/// Reads the graph of a golden file and runs its passes on it.
///
/// # Errors
/// Says in words what cannot be read or compiled, and where patterns are ambiguous.
pub fn golden(text: &str) -> Result<Golden, String> {
    let head = text.split("\n---\n").next().unwrap_or_default().trim_end();
    let registry = frit_ops::registry();
    let target = every_op(&registry);
    let before = parse(head, &registry).map_err(|e| e.to_string())?;
    let mut options = CompileOptions::default();
    let mut canonicalize_only = false;
    for line in head.lines().filter_map(|l| l.strip_prefix("#!")) {
        match line.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["passes", "canonicalize"] => canonicalize_only = true,
            ["activations", "q8"] => options.activations = Activations::Q8,
            ["activations", "q16"] => options.activations = Activations::Q16,
            ["precision", "f16"] => options.precision = Precision::new(Storage::F16),
            ["precision", "bf16"] => options.precision = Precision::new(Storage::BF16),
            ["keep", op] => options.precision = options.precision.with_op(op, Storage::F32),
            _ => return Err(format!("unknown option `#!{line}`")),
        }
    }
    let after = match canonicalize_only {
        true => passes::canonicalize(&before, &registry).map_err(|e| e.to_string())?,
        false => {
            let plain = passes::canonicalize(&before, &registry).map_err(|e| e.to_string())?;
            let twice = fuse::ambiguities(&plain, &registry, &target, options.activations);
            if let Some((node, a, b)) = twice.first() {
                return Err(format!("`{node}` is claimed by both `{a}` and `{b}`"));
            }
            optimize(&before, &registry, &target, &options).map_err(|e| e.to_string())?.graph
        }
    };
    frit_ir::verify::verify(&after, &registry).map_err(|e| e.to_string())?;
    let text = format!("{head}\n---\n{}", print(&after));
    Ok(Golden { before, after, text })
}

/// Rewrites every `.frit` file in the folders of `root` with what the passes make now; gives the number of files changed.
///
/// # Errors
/// Says in words what went wrong, with the file.
pub fn bless(root: &Path) -> Result<usize, String> {
    let mut changed = 0;
    for file in files(root)? {
        let fail = |e: String| format!("{}: {e}", file.display());
        let old = std::fs::read_to_string(&file).map_err(|e| fail(e.to_string()))?;
        let new = golden(&old).map_err(fail)?.text;
        if new != old {
            std::fs::write(&file, new).map_err(|e| fail(e.to_string()))?;
            changed += 1;
        }
    }
    Ok(changed)
}

/// The `.frit` files in the folders of `root`, sorted.
///
/// # Errors
/// A folder that cannot be read.
pub fn files(root: &Path) -> Result<Vec<std::path::PathBuf>, String> {
    let list = |dir: &Path| -> Result<Vec<std::path::PathBuf>, String> {
        let entries = std::fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        entries.map(|e| e.map(|e| e.path()).map_err(|e| e.to_string())).collect()
    };
    let mut all = Vec::new();
    for dir in list(root)?.into_iter().filter(|d| d.is_dir()) {
        all.extend(list(&dir)?.into_iter().filter(|f| f.extension().is_some_and(|e| e == "frit")));
    }
    all.sort();
    Ok(all)
}
