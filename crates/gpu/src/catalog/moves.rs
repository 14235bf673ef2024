//! Kernels that move elements: `concat`, `flip`, `pad`, `gather`, `dequantize` and `write_kv`.

use frit_ir::DType;

use crate::row::{
    BLOCKS, COMPUTE, F32S, GpuRow, KERNEL, KernelRow, LayoutClass, PLAIN, ParamSpec, ParamType, WHOLE, int,
    one, optional, rest,
};

/// `before0..7`, the mode and the value. What comes after follows from the extents.
const PAD: &[ParamSpec] = &[
    int("before0"),
    int("before1"),
    int("before2"),
    int("before3"),
    int("before4"),
    int("before5"),
    int("before6"),
    int("before7"),
    int("mode"),
    ParamSpec { name: "value", ty: ParamType::Stored },
];

const INDEX: &[DType] = &[DType::I32, DType::I64];

/// Rows of this file.
pub(super) static ROWS: &[GpuRow] = &[
    GpuRow {
        row: KernelRow {
            name: "concat",
            op: "concat",
            inputs: &[rest("inputs", WHOLE, LayoutClass::Strided)],
            outputs: &[one("out", WHOLE, LayoutClass::Dense)],
            params: &[int("axis")],
            ..PLAIN
        },
        source: include_str!("../../kernels/concat.k"),
        grid: "ceildiv(out_len, 256)",
        bits: true,
        ..KERNEL
    },
    GpuRow {
        row: KernelRow {
            name: "flip",
            op: "flip",
            inputs: &[one("x", WHOLE, LayoutClass::Strided)],
            outputs: &[one("out", WHOLE, LayoutClass::Dense)],
            params: &[int("axes")],
            ..PLAIN
        },
        source: include_str!("../../kernels/flip.k"),
        grid: "ceildiv(out_len, 256)",
        bits: true,
        ..KERNEL
    },
    GpuRow {
        row: KernelRow {
            name: "pad",
            op: "pad",
            inputs: &[one("x", COMPUTE, LayoutClass::Strided)],
            outputs: &[one("out", COMPUTE, LayoutClass::Dense)],
            params: PAD,
            ..PLAIN
        },
        source: include_str!("../../kernels/pad.k"),
        grid: "ceildiv(out_len, 256)",
        bits: true,
        ..KERNEL
    },
    GpuRow {
        row: KernelRow {
            name: "gather",
            op: "gather",
            inputs: &[one("table", WHOLE, LayoutClass::Strided), one("indices", INDEX, LayoutClass::Strided)],
            outputs: &[one("out", WHOLE, LayoutClass::Dense)],
            params: &[int("axis")],
            ..PLAIN
        },
        source: include_str!("../../kernels/gather.k"),
        grid: "ceildiv(out_len, 256)",
        bits: true,
        ..KERNEL
    },
    GpuRow {
        row: KernelRow {
            name: "gather.blocks",
            op: "gather",
            inputs: &[one("table", BLOCKS, LayoutClass::Rows), one("indices", INDEX, LayoutClass::Strided)],
            outputs: &[one("out", F32S, LayoutClass::Dense)],
            ..PLAIN
        },
        source: include_str!("../../kernels/gather_blocks.k"),
        grid: "ceildiv(out_len, 2048)",
        ..KERNEL
    },
    GpuRow {
        row: KernelRow {
            name: "dequantize",
            op: "dequantize",
            inputs: &[one("x", BLOCKS, LayoutClass::Rows)],
            outputs: &[one("out", F32S, LayoutClass::Dense)],
            ..PLAIN
        },
        source: include_str!("../../kernels/dequantize.k"),
        grid: "ceildiv(out_len, 2048)",
        ..KERNEL
    },
    GpuRow {
        row: KernelRow {
            name: "write_kv",
            op: "write_kv",
            inputs: &[
                one("state", F32S, LayoutClass::Dense),
                one("value", F32S, LayoutClass::Rows),
                one("positions", &[DType::I32], LayoutClass::Rows),
                optional("table", &[DType::I32], LayoutClass::Rows),
            ],
            outputs: &[one("next", F32S, LayoutClass::Dense)],
            params: &[int("ring")],
            alias: &[(0, 0)],
            ..PLAIN
        },
        source: concat!(include_str!("../../kernels/cache.h"), include_str!("../../kernels/write_kv.k")),
        grid: "ceildiv(value_len, 256)",
        ..KERNEL
    },
];
