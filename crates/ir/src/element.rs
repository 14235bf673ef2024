//! Rust types whose values are elements of tensors.

use crate::DType;

/// A type whose values are elements of one element type, bit for bit.
pub trait Element: bytemuck::Pod {
    /// The element type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($t:ty, $d:ident;)*) => { $(impl Element for $t { const DTYPE: DType = DType::$d; })* };
}

elements! {
    f64, F64; f32, F32; half::f16, F16; half::bf16, BF16;
    i64, I64; i32, I32; i16, I16; i8, I8; u64, U64; u32, U32; u16, U16; u8, U8;
}
