//! Kernels to which the order along an axis matters: `cumsum`, `sort` and `top_k`.

use frit_ir::DType;

use crate::row::{
    COMPUTE, FLOATS, GpuRow, INTS, KERNEL, KernelRow, LayoutClass, OperandSpec, PLAIN, ParamSpec, int, one,
};

const CUMSUM: KernelRow = KernelRow {
    op: "cumsum",
    params: &[int("axis"), int("exclusive"), int("reverse")],
    alias: &[(0, 0)],
    ..PLAIN
};

const fn cumsum(row: KernelRow) -> GpuRow {
    // Rows of up to 64 elements are an item's, longer ones a group's.
    GpuRow { row, source: include_str!("../../kernels/cumsum.k"), grid: "ceildiv(out_len, 64)", ..KERNEL }
}

const RANKED: &[OperandSpec] = &[one("x", COMPUTE, LayoutClass::Strided)];
const FIRST: &[OperandSpec] =
    &[one("values", COMPUTE, LayoutClass::Dense), one("indices", &[DType::I32], LayoutClass::Dense)];
const RANKING: &[ParamSpec] = &[int("axis"), int("descending"), int("signed"), int("infinity"), int("rows")];

/// Types of one size share a text: how their bits rank is a matter of the parameters `signed` and `infinity`.
const fn first(op: &'static str) -> GpuRow {
    let row = KernelRow {
        name: op,
        op,
        inputs: RANKED,
        outputs: FIRST,
        params: RANKING,
        // A second list of indices for each group.
        scratch: "min(threads, rows)*k*4",
        ..PLAIN
    };
    GpuRow { row, source: include_str!("../../kernels/sort.k"), grid: "rows", bits: true, ..KERNEL }
}

/// Rows of this file.
pub(super) static ROWS: &[GpuRow] = &[
    cumsum(KernelRow {
        name: "cumsum",
        inputs: &[one("x", FLOATS, LayoutClass::Strided)],
        outputs: &[one("out", FLOATS, LayoutClass::Dense)],
        ..CUMSUM
    }),
    // Sums that wrap are the same bits with a sign and without.
    GpuRow {
        bits: true,
        ..cumsum(KernelRow {
            name: "cumsum.int",
            inputs: &[one("x", INTS, LayoutClass::Strided)],
            outputs: &[one("out", INTS, LayoutClass::Dense)],
            ..CUMSUM
        })
    },
    first("sort"),
    first("top_k"),
];
