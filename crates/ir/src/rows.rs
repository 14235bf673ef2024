//! Shorthand for writing kernel rows: lists of types, operands and parameters. The tables of every backend are made of it.

use crate::DType;
use crate::target::{Count, KernelRow, LayoutClass, OperandSpec, ParamSpec, ParamType};

/// Float types that are computed with in f32.
pub const F32S: &[DType] = &[DType::F32, DType::F16, DType::BF16];

/// Types of scalar expressions and reductions.
pub const COMPUTE: &[DType] = &[
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F64,
    DType::I64,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U64,
    DType::U32,
    DType::U16,
    DType::U8,
    DType::Bool,
];

/// Types of whole bytes.
pub const WHOLE: &[DType] = &[
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F64,
    DType::I64,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U64,
    DType::U32,
    DType::U16,
    DType::U8,
    DType::Bool,
    DType::F8E4M3FN,
    DType::F8E5M2,
    DType::F8E4M3FNUZ,
    DType::F8E5M2FNUZ,
    DType::F8E8M0,
];

/// The block formats.
pub const BLOCKS: &[DType] = &[
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q8_0,
    DType::Q2K,
    DType::Q3K,
    DType::Q4K,
    DType::Q5K,
    DType::Q6K,
];

/// Types whose elements share bytes, block formats included.
pub const UNITS: &[DType] = &[
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q8_0,
    DType::Q2K,
    DType::Q3K,
    DType::Q4K,
    DType::Q5K,
    DType::Q6K,
    DType::F4E2M1,
    DType::I4,
    DType::I2,
    DType::U4,
    DType::U2,
];

/// One operand.
pub const fn one(name: &'static str, dtypes: &'static [DType], layout: LayoutClass) -> OperandSpec {
    OperandSpec { name, dtypes, layout, count: Count::One, packing: None }
}

/// An operand that may be absent.
pub const fn optional(name: &'static str, dtypes: &'static [DType], layout: LayoutClass) -> OperandSpec {
    OperandSpec { name, dtypes, layout, count: Count::Optional, packing: None }
}

/// All operands that are left.
pub const fn rest(name: &'static str, dtypes: &'static [DType], layout: LayoutClass) -> OperandSpec {
    OperandSpec { name, dtypes, layout, count: Count::Rest, packing: None }
}

/// An integer parameter.
pub const fn int(name: &'static str) -> ParamSpec {
    ParamSpec { name, ty: ParamType::I64 }
}

/// A real parameter.
pub const fn real(name: &'static str) -> ParamSpec {
    ParamSpec { name, ty: ParamType::F32 }
}

/// A row without guards, scratch and shared memory, to be completed by `..`.
pub const PLAIN: KernelRow = KernelRow {
    name: "",
    op: "",
    inputs: &[],
    outputs: &[],
    guards: &[],
    params: &[],
    scratch: "",
    alias: &[],
};
