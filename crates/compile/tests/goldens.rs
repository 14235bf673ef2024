//! Passes, text to text: every `.frit` file in the folders beside this one, which also computes the same before and after.

use std::path::Path;

use frit_compile::testing::{difference, files, golden, random_values};
use frit_ops::interpret::interpret;

#[test]
fn passes_make_what_the_files_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let all = files(&root).unwrap();
    assert!(all.len() >= 20, "only {} golden files", all.len());
    let registry = frit_ops::registry();
    for file in all {
        let text = std::fs::read_to_string(&file).unwrap();
        let g = golden(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        assert_eq!(g.text, text, "{}: run `cargo xtask bless` if the change is meant", file.display());

        let sizes: Vec<(&str, i64)> =
            g.before.symbols.iter().map(|(s, r)| (s.name(), r.max.min(3))).collect();
        let values = random_values(&g.before, &sizes, 7);
        let run = |x| {
            interpret(x, &registry, &sizes, &values).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
        };
        let (before, after) = (run(&g.before), run(&g.after));
        let low = text.contains("#! precision") || text.contains("#! activations");
        let results = |r: &frit_ops::interpret::Results| -> Vec<_> {
            r.outputs.iter().chain(&r.states).cloned().collect()
        };
        for ((name, want), (_, got)) in results(&before).iter().zip(results(&after)) {
            let d = difference(&got, want, if low { 0.03 } else { 1e-4 }).unwrap();
            assert_eq!(d, None, "{}: {name}", file.display());
        }
    }
}
