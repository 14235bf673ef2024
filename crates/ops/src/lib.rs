//! The ops of Frit, one file each: attributes, inference, reference, cost, lowering and the cases that every device must
//! pass. Nothing here knows a device.
//!
//! A new op is a file that exports `def()` and a line in [`OPS`].

mod broadcast;
mod concat;
mod copy;
mod dequantize;
mod expr;
mod flip;
mod gather;
mod matmul;
mod pad;
mod reduce;
mod reshape;
mod slice;
mod softmax;
mod transpose;
mod util;

pub mod cases;
pub mod interpret;

use frit_ir::{OpDef, Registry};

/// The op list.
const OPS: &[fn() -> OpDef] = &[
    expr::def,
    reshape::def,
    transpose::def,
    broadcast::def,
    slice::def,
    copy::def,
    concat::def,
    pad::def,
    flip::def,
    gather::def,
    reduce::def,
    softmax::def,
    dequantize::def,
    matmul::def,
];

/// The registry of every op of this crate. A user's crate may add its own to it.
pub fn registry() -> Registry {
    let mut r = Registry::new();
    for def in OPS {
        r.add(def());
    }
    r
}
