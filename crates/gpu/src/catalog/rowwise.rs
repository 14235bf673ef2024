//! Kernels that work row by row: `softmax`, the norms, `reduce`, `rotary` and `quantize`.

use frit_ir::DType;

use crate::row::{
    COMPUTE, F32S, FLOATS, GpuRow, KERNEL, KernelRow, LayoutClass, OperandSpec, PLAIN, ParamSpec, int, one,
    optional, real,
};

const WEIGHT: OperandSpec = optional("weight", F32S, LayoutClass::Dense);
const BIAS: OperandSpec = optional("bias", F32S, LayoutClass::Dense);
const X: OperandSpec = one("x", F32S, LayoutClass::Rows);
const OUT: OperandSpec = one("out", F32S, LayoutClass::Dense);
const POSITIONS: OperandSpec = one("positions", &[DType::I32], LayoutClass::Rows);
const FREQUENCIES: OperandSpec = one("inv_freq", &[DType::F32], LayoutClass::Dense);
const NORM: &[ParamSpec] = &[real("eps"), int("plus_one"), int("rms")];

const fn norm(op: &'static str) -> GpuRow {
    let row = KernelRow {
        name: op,
        op,
        inputs: &[X, WEIGHT, BIAS],
        outputs: &[OUT],
        params: NORM,
        alias: &[(0, 0)],
        ..PLAIN
    };
    GpuRow {
        row,
        source: include_str!("../../kernels/norm.k"),
        defines: "#define RESIDUAL 0\n",
        grid: "x_rows",
        ..KERNEL
    }
}

/// Rows of this file.
pub(super) static ROWS: &[GpuRow] = &[
    norm("rms_norm"),
    norm("layer_norm"),
    GpuRow {
        row: KernelRow {
            name: "residual_norm",
            op: "residual_norm",
            inputs: &[X, one("residual", F32S, LayoutClass::Rows), WEIGHT, BIAS],
            outputs: &[one("sum", F32S, LayoutClass::Dense), OUT],
            params: NORM,
            alias: &[(0, 0), (1, 0)],
            ..PLAIN
        },
        source: include_str!("../../kernels/norm.k"),
        defines: "#define RESIDUAL 1\n",
        grid: "x_rows",
        ..KERNEL
    },
    GpuRow {
        row: KernelRow {
            name: "softmax",
            op: "softmax",
            inputs: &[one("x", FLOATS, LayoutClass::Rows)],
            outputs: &[one("out", FLOATS, LayoutClass::Dense)],
            params: &[int("axis"), int("log")],
            alias: &[(0, 0)],
            ..PLAIN
        },
        source: include_str!("../../kernels/softmax.k"),
        grid: "x_rows",
        ..KERNEL
    },
    GpuRow {
        row: KernelRow {
            name: "reduce",
            op: "reduce",
            inputs: &[one("x", COMPUTE, LayoutClass::Strided)],
            outputs: &[one("out", COMPUTE, LayoutClass::Dense)],
            params: &[int("op"), int("axes")],
            ..PLAIN
        },
        source: include_str!("../../kernels/reduce.k"),
        grid: "out_len",
        ..KERNEL
    },
    GpuRow {
        row: KernelRow {
            name: "rotary",
            op: "rotary",
            inputs: &[X, POSITIONS, FREQUENCIES],
            outputs: &[OUT],
            params: &[int("dims"), int("interleaved"), real("factor")],
            alias: &[(0, 0)],
            ..PLAIN
        },
        source: concat!(include_str!("../../kernels/rotary.h"), include_str!("../../kernels/rotary.k")),
        grid: "ceildiv(x_len, 512)",
        ..KERNEL
    },
    GpuRow {
        row: KernelRow {
            name: "rotary_write_kv",
            op: "rotary_write_kv",
            inputs: &[
                one("keys", F32S, LayoutClass::Dense),
                one("values", F32S, LayoutClass::Dense),
                one("q", F32S, LayoutClass::Rows),
                one("k", F32S, LayoutClass::Rows),
                one("v", F32S, LayoutClass::Rows),
                POSITIONS,
                FREQUENCIES,
                optional("table", &[DType::I32], LayoutClass::Rows),
                optional("q_weight", F32S, LayoutClass::Dense),
                optional("k_weight", F32S, LayoutClass::Dense),
            ],
            outputs: &[
                one("next_keys", F32S, LayoutClass::Dense),
                one("next_values", F32S, LayoutClass::Dense),
                OUT,
            ],
            params: &[
                int("dims"),
                int("interleaved"),
                real("factor"),
                int("ring"),
                real("eps"),
                int("plus_one"),
            ],
            alias: &[(0, 0), (1, 1), (2, 2)],
            ..PLAIN
        },
        source: concat!(
            include_str!("../../kernels/cache.h"),
            include_str!("../../kernels/rotary.h"),
            include_str!("../../kernels/rotary_write_kv.k")
        ),
        grid: "ceildiv(q_rows + 2*k_rows, 8)",
        ..KERNEL
    },
    GpuRow {
        row: KernelRow {
            name: "quantize",
            op: "quantize",
            inputs: &[X],
            outputs: &[one("out", &[DType::F32], LayoutClass::Dense)],
            params: &[int("bits")],
            alias: &[(0, 0)],
            ..PLAIN
        },
        source: include_str!("../../kernels/quantize.k"),
        grid: "ceildiv(x_len, 256)",
        ..KERNEL
    },
];
