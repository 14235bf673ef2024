//! The ops of Frit, one file each: attributes, inference, reference, cost, lowering and the cases that every device must
//! pass. Nothing here knows a device.
//!
//! A new op is a file that exports `def()` and a line in `OPS`.

mod attention;
mod attention_cases;
mod broadcast;
mod concat;
mod copy;
mod cumsum;
mod dequantize;
mod expr;
mod flip;
mod gather;
mod layer_norm;
mod linear_cases;
mod matmul;
mod norm;
mod pad;
mod quantize;
mod ranking;
mod reduce;
mod reshape;
mod residual_norm;
mod rms_norm;
mod rotary;
mod rotary_write_kv;
mod shapes;
mod slice;
mod softmax;
mod sort;
mod top_k;
mod transpose;
mod util;
mod write_kv;

pub mod build;
pub mod case_graph;
pub mod cases;
pub mod interpret;
pub mod linear;
pub mod rope_scaling;

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
    cumsum::def,
    sort::def,
    top_k::def,
    dequantize::def,
    matmul::def,
    quantize::def,
    linear::def,
    rms_norm::def,
    layer_norm::def,
    residual_norm::def,
    rotary::def,
    rotary_write_kv::def,
    attention::def,
    write_kv::def,
];

/// The registry of every op of this crate. A user's crate may add its own to it.
pub fn registry() -> Registry {
    let mut r = Registry::new();
    for def in OPS {
        let added = r.add(def());
        debug_assert_eq!(added, Ok(()));
    }
    r
}
