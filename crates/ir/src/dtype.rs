//! Element types: scalars, sub-byte storage types and the self-contained block formats of GGUF.
//!
//! One table ([`DType::info`]) says everything that other code asks of a type; nothing here computes.

use std::fmt;

/// What family a [`DType`] belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// IEEE-like floating point.
    Float,
    /// Two's complement integer.
    Signed,
    /// Unsigned integer.
    Unsigned,
    /// One byte, 0 or 1.
    Bool,
    /// A GGUF block format: a fixed number of elements in a fixed number of bytes.
    Block,
}

/// The facts of one [`DType`].
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The name used in the text format and in messages, e.g. `f32`, `Q4_K`.
    pub name: &'static str,
    /// The family.
    pub kind: Kind,
    /// Elements in one indivisible unit: 1 for whole-byte types, 2 or 4 for sub-byte types, the block length otherwise.
    pub unit_elements: usize,
    /// Bytes of one unit.
    pub unit_bytes: usize,
}

macro_rules! dtypes {
    ($($(#[$doc:meta])* $id:ident $name:literal $kind:ident $elements:literal $bytes:literal;)*) => {
        /// An element type. Block formats have a logical shape and are read only by dequantize, quantized matmul and gather.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum DType { $($(#[$doc])* $id,)* }
        const TABLE: &[(DType, Info)] = &[
            $((DType::$id, Info { name: $name, kind: Kind::$kind, unit_elements: $elements, unit_bytes: $bytes }),)*
        ];
    };
}

dtypes! {
    /// IEEE binary64.
    F64 "f64" Float 1 8;
    /// IEEE binary32.
    F32 "f32" Float 1 4;
    /// IEEE binary16.
    F16 "f16" Float 1 2;
    /// bfloat16: the upper half of binary32.
    BF16 "bf16" Float 1 2;
    /// 8-bit float, 4 exponent and 3 mantissa bits, finite plus NaN.
    F8E4M3FN "f8e4m3fn" Float 1 1;
    /// 8-bit float, 5 exponent and 2 mantissa bits, with infinities.
    F8E5M2 "f8e5m2" Float 1 1;
    /// `F8E4M3FN` without negative zero and with bias 8.
    F8E4M3FNUZ "f8e4m3fnuz" Float 1 1;
    /// `F8E5M2` without negative zero and infinities, with bias 16.
    F8E5M2FNUZ "f8e5m2fnuz" Float 1 1;
    /// 8-bit power-of-two scale.
    F8E8M0 "f8e8m0" Float 1 1;
    /// 4-bit float, 2 exponent bits and 1 mantissa bit.
    F4E2M1 "f4e2m1" Float 2 1;
    /// 64-bit signed integer.
    I64 "i64" Signed 1 8;
    /// 32-bit signed integer.
    I32 "i32" Signed 1 4;
    /// 16-bit signed integer.
    I16 "i16" Signed 1 2;
    /// 8-bit signed integer.
    I8 "i8" Signed 1 1;
    /// 4-bit signed integer, two to a byte, low nibble first.
    I4 "i4" Signed 2 1;
    /// 2-bit signed integer, four to a byte, low bits first.
    I2 "i2" Signed 4 1;
    /// 64-bit unsigned integer.
    U64 "u64" Unsigned 1 8;
    /// 32-bit unsigned integer.
    U32 "u32" Unsigned 1 4;
    /// 16-bit unsigned integer.
    U16 "u16" Unsigned 1 2;
    /// 8-bit unsigned integer.
    U8 "u8" Unsigned 1 1;
    /// 4-bit unsigned integer.
    U4 "u4" Unsigned 2 1;
    /// 2-bit unsigned integer.
    U2 "u2" Unsigned 4 1;
    /// Truth value, one byte.
    Bool "bool" Bool 1 1;
    /// 32 4-bit codes with an f16 scale; value = d·(q − 8).
    Q4_0 "Q4_0" Block 32 18;
    /// 32 4-bit codes with f16 scale and minimum; value = d·q + m.
    Q4_1 "Q4_1" Block 32 20;
    /// 32 5-bit codes with an f16 scale; value = d·(q − 16).
    Q5_0 "Q5_0" Block 32 22;
    /// 32 5-bit codes with f16 scale and minimum.
    Q5_1 "Q5_1" Block 32 24;
    /// 32 8-bit codes with an f16 scale.
    Q8_0 "Q8_0" Block 32 34;
    /// 256 2-bit codes in 16 sub-blocks.
    Q2K "Q2_K" Block 256 84;
    /// 256 3-bit codes in 16 sub-blocks.
    Q3K "Q3_K" Block 256 110;
    /// 256 4-bit codes in 8 sub-blocks with 6-bit scales and minimums.
    Q4K "Q4_K" Block 256 144;
    /// 256 5-bit codes in 8 sub-blocks with 6-bit scales and minimums.
    Q5K "Q5_K" Block 256 176;
    /// 256 6-bit codes in 16 sub-blocks with 8-bit scales.
    Q6K "Q6_K" Block 256 210;
}

impl DType {
    /// Every type, in declaration order.
    pub fn all() -> impl Iterator<Item = DType> {
        TABLE.iter().map(|(d, _)| *d)
    }

    /// The row of the type table.
    pub fn info(self) -> &'static Info {
        &TABLE[self as usize].1
    }

    /// The name in the text format.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// The type called `name`, if there is one.
    pub fn parse(name: &str) -> Option<DType> {
        TABLE.iter().find(|(_, i)| i.name == name).map(|(d, _)| *d)
    }

    /// Whether this is a GGUF block format.
    pub fn is_block(self) -> bool {
        self.info().kind == Kind::Block
    }

    /// Whether this is a floating-point scalar type.
    pub fn is_float(self) -> bool {
        self.info().kind == Kind::Float
    }

    /// Whether this is an integer type (`bool` is not).
    pub fn is_int(self) -> bool {
        matches!(self.info().kind, Kind::Signed | Kind::Unsigned)
    }

    /// Whether arithmetic is defined on the type: f64, f32, f16, bf16, whole-byte integers and bool. The rest is storage.
    pub fn is_compute(self) -> bool {
        self.info().unit_elements == 1 && !(self.is_float() && self.info().unit_bytes == 1)
    }

    /// Bytes of one element; `None` for sub-byte and block types.
    pub fn size(self) -> Option<usize> {
        let i = self.info();
        (i.unit_elements == 1).then_some(i.unit_bytes)
    }

    /// Bytes that `elements` consecutive elements take, a partly filled last unit counted whole; `None` on overflow.
    pub fn bytes_of(self, elements: usize) -> Option<usize> {
        let i = self.info();
        elements.div_ceil(i.unit_elements).checked_mul(i.unit_bytes)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_order_and_names_parse() {
        for (i, (d, info)) in TABLE.iter().enumerate() {
            assert_eq!(*d as usize, i);
            assert_eq!(DType::parse(info.name), Some(*d));
        }
    }

    #[test]
    fn bytes_count_partial_units() {
        assert_eq!(DType::I4.bytes_of(3), Some(2));
        assert_eq!(DType::Q4K.bytes_of(512), Some(288));
        assert_eq!(DType::F32.bytes_of(usize::MAX), None);
    }
}
