//! The ops of Frit, one file each: attributes, inference, reference, cost, lowering and the cases that every device must
//! pass. Nothing here knows a device.
//!
//! A new op is a file that exports `def()` and a line in [`OPS`].

mod util;

pub mod cases;
pub mod interpret;

use frit_ir::{OpDef, Registry};

/// The op list.
const OPS: &[fn() -> OpDef] = &[];

/// The registry of every op of this crate. A user's crate may add its own to it.
pub fn registry() -> Registry {
    let mut r = Registry::new();
    for def in OPS {
        r.add(def());
    }
    r
}
