//! Shorthand for writing kernel rows: lists of types, operands and parameters. The tables of every backend are made of it.

use crate::DType;
use crate::target::{Count, KernelRow, LayoutClass, OperandSpec, ParamSpec, ParamType};

/// Types of whole bytes. The lists below are its beginnings.
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

/// Types of scalar expressions and reductions.
pub const COMPUTE: &[DType] = WHOLE.split_at(13).0;

/// Those that are no truth values.
pub const NUMBERS: &[DType] = WHOLE.split_at(12).0;

/// Integer types of whole bytes.
pub const INTS: &[DType] = NUMBERS.split_at(4).1;

/// Float types.
pub const FLOATS: &[DType] = WHOLE.split_at(4).0;

/// Float types that are computed with in f32.
pub const F32S: &[DType] = WHOLE.split_at(3).0;

/// Types of weights: floats that are computed with in f32, and the block formats.
pub const WEIGHTS: &[DType] = &[
    DType::F32,
    DType::F16,
    DType::BF16,
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

/// The block formats.
pub const BLOCKS: &[DType] = WEIGHTS.split_at(3).1;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_hold_what_they_are_named_for() {
        let floats: Vec<DType> = NUMBERS.iter().copied().filter(|d| d.is_float()).collect();
        assert_eq!(floats, FLOATS);
        assert!(F32S.iter().all(|d| d.is_float() && *d != DType::F64));
        assert_eq!(COMPUTE.last(), Some(&DType::Bool));
        assert!(NUMBERS.iter().all(|d| d.is_float() || d.is_int()));
        assert!(INTS.iter().all(|d| d.is_int()));
        let blocks: Vec<DType> = DType::all().filter(|d| d.is_block()).collect();
        assert_eq!((blocks.len(), BLOCKS), (BLOCKS.len(), &UNITS[..BLOCKS.len()]));
        assert!(BLOCKS.iter().all(|d| d.is_block()));
        let whole = DType::all().filter(|d| d.info().unit_elements == 1).count();
        assert_eq!((whole, DType::all().count()), (WHOLE.len(), WHOLE.len() + UNITS.len()));
    }
}
