//! The text of graphs: any text gives a graph or an error with its place; a graph prints as a text that reads as the same
//! graph, and can be verified.

#![no_main]

use std::sync::LazyLock;

use frit_ir::Registry;
use frit_ir::text::{parse, parse_dim, parse_expr, print};
use frit_ir::verify::verify;
use libfuzzer_sys::fuzz_target;

static REGISTRY: LazyLock<Registry> = LazyLock::new(frit_ops::registry);

fuzz_target!(|text: &str| {
    if let Ok(d) = parse_dim(text) {
        let printed = d.to_string();
        assert_eq!(parse_dim(&printed).as_ref(), Ok(&d), "{printed}");
    }
    if let Ok(e) = parse_expr(text) {
        let printed = e.to_string();
        assert_eq!(parse_expr(&printed).as_ref(), Ok(&e), "{printed}");
    }
    match parse(text, &REGISTRY) {
        Ok(g) => {
            let printed = print(&g);
            let again = parse(&printed, &REGISTRY).unwrap_or_else(|e| panic!("{e}\n{printed}"));
            assert_eq!(again, g, "{printed}");
            assert_eq!(print(&again), printed);
            let _ = verify(&g, &REGISTRY);
        }
        Err(e) => assert!(e.line >= 1 && e.column >= 1),
    }
});
