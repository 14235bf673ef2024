//! Kernels that sum products: `linear`, `matmul` and `attention`.

use frit_ir::DType;

use crate::row::{
    BLOCKS, COMPUTE, Cmp, Count, Exprs, F32S, FLOATS, GpuRow, Guard, KERNEL, KernelRow, LayoutClass, Needs,
    OperandSpec, PLAIN, ParamSpec, WEIGHTS, int, one, optional, real, rest,
};

/// Rows of x up to which 32 lanes sum a column.
const FEW: i64 = 8;

const ARITIES: &[&str] = &["arity0", "arity1", "arity2", "arity3", "arity4", "arity5", "arity6", "arity7"];

const fn most(param: &'static str, value: i64) -> Guard {
    Guard { param, cmp: Cmp::Le, value }
}

/// What a text holds at most, for `m` rows of x at most: its length grows with groups times weights. Steps of more are
/// expanded.
const fn guards(m: i64) -> [Guard; 6] {
    [
        most("groups", 4),
        most("arity0", 2),
        most("arity1", 2),
        most("arity2", 2),
        most("arity3", 2),
        most("m", m),
    ]
}

const LINEAR: &[ParamSpec] = &[
    int("m"),
    int("n"),
    int("weights"),
    int("groups"),
    int("bits"),
    int("arity0"),
    int("arity1"),
    int("arity2"),
    int("arity3"),
    int("arity4"),
    int("arity5"),
    int("arity6"),
    int("arity7"),
];

const RESULTS: OperandSpec = rest("results", COMPUTE, LayoutClass::Dense);

const LINEAR_INPUTS: &[OperandSpec] = &[
    one("x", F32S, LayoutClass::Rows),
    OperandSpec {
        name: "weights",
        dtypes: WEIGHTS,
        layout: LayoutClass::Rows,
        count: Count::Param("weights"),
        packing: None,
    },
    rest("extras", COMPUTE, LayoutClass::Strided),
];

/// Rows and weights of one 16-bit type, for Hopper's matrix units.
const fn wgmma(name: &'static str, inputs: &'static [OperandSpec]) -> GpuRow {
    GpuRow {
        row: KernelRow {
            name,
            op: "linear",
            inputs,
            outputs: &[RESULTS],
            guards: WGMMA,
            params: LINEAR,
            scratch: "threads*128*(weights + 1)",
            ..PLAIN
        },
        source: concat!(
            include_str!("../../kernels/special/cuda/hopper.h"),
            include_str!("../../kernels/special/cuda/linear_wgmma.k")
        ),
        group: 384,
        // The ring, what aligns it, and where results leave the registers.
        shared: 192 * 1024 + 1024 + 32 * 1024,
        needs: Some(Needs::Hopper),
        // Whole clusters of 2.
        grid: "max(2, 2*ceildiv(m, 128)*ceildiv(n, 64))",
        per_unit: 1,
        ..linear("", &[])
    }
}

/// Rows of x that are not rounded.
const PLAIN_X: Guard = Guard { param: "bits", cmp: Cmp::Eq, value: 0 };
const WGMMA: &[Guard] = &{
    let [groups, a, b, c, d, _] = guards(i64::MAX);
    [groups, a, b, c, d, PLAIN_X]
};
const ONE_PLAIN: &[Guard] = &{
    let [groups, a, b, c, d, rows] = guards(1);
    [groups, a, b, c, d, rows, PLAIN_X]
};

const fn halves(dtypes: &'static [DType]) -> [OperandSpec; 3] {
    [
        one("x", dtypes, LayoutClass::Rows),
        OperandSpec { dtypes, ..LINEAR_INPUTS[1] },
        rest("extras", COMPUTE, LayoutClass::Strided),
    ]
}
const BF16: &[DType] = &[DType::BF16];
const F16: &[DType] = &[DType::F16];

const fn linear(name: &'static str, guards: &'static [Guard]) -> GpuRow {
    GpuRow {
        row: KernelRow {
            name,
            op: "linear",
            inputs: LINEAR_INPUTS,
            outputs: &[RESULTS],
            guards,
            params: LINEAR,
            ..PLAIN
        },
        constants: &[
            "weights", "bits", "arity0", "arity1", "arity2", "arity3", "arity4", "arity5", "arity6", "arity7",
        ],
        exprs: Some(Exprs { values: ARITIES, from: "weights", inputs: "extras", outputs: "results" }),
        ..KERNEL
    }
}

const I32: &[DType] = &[DType::I32];
const ATTENTION: &[OperandSpec] = &[
    one("q", F32S, LayoutClass::Rows),
    one("k", F32S, LayoutClass::Rows),
    one("v", F32S, LayoutClass::Rows),
    optional("kv_len", I32, LayoutClass::Dense),
    optional("offset", I32, LayoutClass::Dense),
    optional("table", I32, LayoutClass::Rows),
    optional("bias", F32S, LayoutClass::Strided),
    optional("sinks", &[DType::F32], LayoutClass::Dense),
    optional("key_mask", &[DType::Bool], LayoutClass::Rows),
];

const ATTENTION_PARAMS: &[ParamSpec] = &[
    real("scale"),
    int("causal"),
    int("window_left"),
    int("window_right"),
    real("softcap"),
    int("ring"),
    int("t"),
    int("d"),
    int("dv"),
];

/// An operand that this row does without.
const fn never(name: &'static str) -> OperandSpec {
    optional(name, &[], LayoutClass::Dense)
}

const fn whole(param: &'static str) -> Guard {
    Guard { param, cmp: Cmp::MultipleOf, value: 8 }
}

/// Without pages, a bias, sinks, a mask of keys and the logarithms of sums.
const PLAIN_ATTENTION: KernelRow = KernelRow {
    op: "attention",
    inputs: &plain_inputs(F32S),
    outputs: &plain_outputs(F32S),
    params: ATTENTION_PARAMS,
    ..PLAIN
};

const fn plain_inputs(dtypes: &'static [DType]) -> [OperandSpec; 9] {
    [
        one("q", dtypes, LayoutClass::Rows),
        one("k", dtypes, LayoutClass::Rows),
        one("v", dtypes, LayoutClass::Rows),
        optional("kv_len", I32, LayoutClass::Dense),
        optional("offset", I32, LayoutClass::Dense),
        never("table"),
        never("bias"),
        never("sinks"),
        never("key_mask"),
    ]
}

const fn plain_outputs(dtypes: &'static [DType]) -> [OperandSpec; 2] {
    [one("out", dtypes, LayoutClass::Dense), never("lse")]
}

/// Queries, keys and values of one 16-bit type, for Hopper's matrix units; columns are filled up to 64, or 128 if `wide`.
const fn flash(
    name: &'static str,
    inputs: &'static [OperandSpec],
    outputs: &'static [OperandSpec],
    wide: bool,
) -> GpuRow {
    GpuRow {
        row: KernelRow { name, inputs, outputs, guards: if wide { WIDE } else { NARROW }, ..PLAIN_ATTENTION },
        source: concat!(
            include_str!("../../kernels/special/cuda/hopper.h"),
            include_str!("../../kernels/special/cuda/attention_flash.k")
        ),
        defines: if wide { "#define WIDTH 128\n" } else { "#define WIDTH 64\n" },
        group: 384,
        // Tiles of keys, values and queries, and what aligns them.
        shared: if wide { 7 * 32 * 1024 + 1024 } else { 9 * 16 * 1024 + 1024 },
        needs: Some(Needs::Hopper),
        grid: "q_d0*q_d2*ceildiv(t, 128)",
        per_unit: 1,
        ..KERNEL
    }
}
const NARROW: &[Guard] = &[whole("d"), whole("dv"), most("d", 64), most("dv", 64)];
const WIDE: &[Guard] = &[whole("d"), whole("dv"), most("d", 128), most("dv", 128)];

/// Few queries; `HEADS` of `defines` share a key head in one reading of it.
const fn decode(name: &'static str, guards: &'static [Guard], defines: &'static str) -> GpuRow {
    GpuRow {
        row: KernelRow { name, guards, ..PLAIN_ATTENTION },
        source: include_str!("../../kernels/special/cuda/attention_decode.k"),
        defines,
        needs: Some(Needs::Hopper),
        // Whole clusters of 8.
        grid: "max(8, q_d0*t*k_d1*8)",
        ..KERNEL
    }
}
const DECODE: [Guard; 5] = [most("t", 8), whole("d"), whole("dv"), most("d", 256), most("dv", 256)];
const DECODE_TWO: [Guard; 6] = {
    let [t, d, dv, most_d, most_dv] = DECODE;
    [t, d, dv, most_d, most_dv, most("shared", 2)]
};

/// Rows of this file.
pub(super) static ROWS: &[GpuRow] = &[
    // The elements of a lane share the head of their block.
    GpuRow {
        row: KernelRow {
            inputs: &[LINEAR_INPUTS[0], OperandSpec { dtypes: BLOCKS, ..LINEAR_INPUTS[1] }, LINEAR_INPUTS[2]],
            guards: ONE_PLAIN,
            ..linear("linear.one.blocks", &[]).row
        },
        source: include_str!("../../kernels/linear_few.k"),
        defines: "#define BLOCK_ROWS 1\n#define SPAN 4\n",
        grid: "m*ceildiv(n, 8)*max(1, min(8, floordiv(x_last, 1024)))",
        ..linear("", &[])
    },
    GpuRow {
        source: include_str!("../../kernels/linear_few.k"),
        defines: "#define BLOCK_ROWS 1\n#define SPAN 1\n",
        grid: "m*ceildiv(n, 8)*max(1, min(8, floordiv(x_last, 512)))",
        ..linear("linear.one", &guards(1))
    },
    GpuRow {
        source: include_str!("../../kernels/linear_few.k"),
        defines: "#define BLOCK_ROWS 4\n#define SPAN 1\n",
        grid: "ceildiv(m, 4)*ceildiv(n, 8)*max(1, min(8, floordiv(x_last, 512)))",
        ..linear("linear.few", &guards(FEW))
    },
    wgmma("linear.wgmma.bf16", &halves(BF16)),
    wgmma("linear.wgmma.f16", &halves(F16)),
    GpuRow {
        source: include_str!("../../kernels/linear.k"),
        grid: "ceildiv(m, 64)*ceildiv(n, 64)",
        ..linear("linear", &guards(i64::MAX))
    },
    GpuRow {
        row: KernelRow {
            name: "matmul",
            op: "matmul",
            inputs: &[one("a", FLOATS, LayoutClass::Strided), one("b", FLOATS, LayoutClass::Strided)],
            outputs: &[one("out", FLOATS, LayoutClass::Dense)],
            ..PLAIN
        },
        source: include_str!("../../kernels/matmul.k"),
        grid: "ceildiv(out_len, 2048)",
        ..KERNEL
    },
    decode("attention.decode.two", &DECODE_TWO, "#define HEADS 2\n#define BATCH 4\n"),
    decode("attention.decode", &DECODE, "#define HEADS 4\n#define BATCH 4\n"),
    flash("attention.flash64.bf16", &plain_inputs(BF16), &plain_outputs(BF16), false),
    flash("attention.flash64.f16", &plain_inputs(F16), &plain_outputs(F16), false),
    flash("attention.flash.bf16", &plain_inputs(BF16), &plain_outputs(BF16), true),
    flash("attention.flash.f16", &plain_inputs(F16), &plain_outputs(F16), true),
    GpuRow {
        row: KernelRow {
            name: "attention",
            op: "attention",
            inputs: ATTENTION,
            outputs: &[
                one("out", F32S, LayoutClass::Dense),
                optional("lse", &[DType::F32], LayoutClass::Dense),
            ],
            params: ATTENTION_PARAMS,
            ..PLAIN
        },
        source: include_str!("../../kernels/attention.k"),
        group: 128,
        grid: "q_len",
        ..KERNEL
    },
];
