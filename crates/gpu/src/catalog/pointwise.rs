//! `expr` and `copy`: kernels that see points, not axes.

use crate::row::{COMPUTE, Exprs, GpuRow, KERNEL, KernelRow, LayoutClass, PLAIN, UNITS, WHOLE, one, rest};

/// Rows of this file.
pub(super) static ROWS: &[GpuRow] = &[
    GpuRow {
        row: KernelRow {
            name: "expr",
            op: "expr",
            inputs: &[rest("inputs", COMPUTE, LayoutClass::Strided)],
            outputs: &[rest("outputs", COMPUTE, LayoutClass::Dense)],
            alias: &[(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0), (7, 0)],
            ..PLAIN
        },
        source: include_str!("../../kernels/expr.k"),
        grid: "ceildiv(outputs_0_len, 256)",
        exprs: Some(Exprs { values: &[], from: "", inputs: "inputs", outputs: "outputs" }),
        ..KERNEL
    },
    GpuRow {
        row: KernelRow {
            name: "copy",
            op: "copy",
            inputs: &[one("x", WHOLE, LayoutClass::Strided)],
            outputs: &[one("out", WHOLE, LayoutClass::Dense)],
            ..PLAIN
        },
        source: include_str!("../../kernels/copy.k"),
        grid: "ceildiv(out_len, 256)",
        bits: true,
        ..KERNEL
    },
    GpuRow {
        row: KernelRow {
            name: "copy.units",
            op: "copy",
            inputs: &[one("x", UNITS, LayoutClass::Rows)],
            outputs: &[one("out", UNITS, LayoutClass::Dense)],
            ..PLAIN
        },
        source: include_str!("../../kernels/copy_units.k"),
        grid: "ceildiv(out_len, 256)",
        ..KERNEL
    },
];
