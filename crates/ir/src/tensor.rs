//! Dense host tensors: constants, inputs of the reference implementation and test data.

use std::sync::Arc;

use half::{bf16, f16};

use crate::{DType, round, small};

/// A dense, row-major tensor in host memory. Cloning shares the bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    bytes: Arc<[u8]>,
}

/// Why a tensor could not be made or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// The byte count does not fit the shape.
    #[error("a tensor {dtype}{shape:?} takes {want} bytes, got {got}")]
    Bytes {
        /// Element type.
        dtype: DType,
        /// Extents.
        shape: Vec<usize>,
        /// Bytes that the shape takes.
        want: usize,
        /// Bytes given.
        got: usize,
    },
    /// The shape overflows, or a block row is cut.
    #[error("a tensor {dtype}{shape:?} is not possible: {why}")]
    Shape {
        /// Element type.
        dtype: DType,
        /// Extents.
        shape: Vec<usize>,
        /// What is wrong.
        why: &'static str,
    },
    /// Values of the type cannot be read as numbers here.
    #[error("values of {0} cannot be read or written one by one")]
    Values(DType),
    /// A value that the type has no code for.
    #[error("{0} has no NaN")]
    NotANumber(DType),
}

/// Bytes of a dense tensor; rows of sub-byte and block types must fill whole units.
fn bytes_of(dtype: DType, shape: &[usize]) -> Result<usize, TensorError> {
    let err = |why| TensorError::Shape { dtype, shape: shape.to_vec(), why };
    let unit = dtype.info().unit_elements;
    let row = shape.last().copied().unwrap_or(1);
    if dtype.is_block() && row % unit != 0 {
        return Err(err("the row length must be a multiple of the block length"));
    }
    let n =
        shape.iter().try_fold(1usize, |a, b| a.checked_mul(*b)).ok_or_else(|| err("too many elements"))?;
    dtype.bytes_of(n).ok_or_else(|| err("too many bytes"))
}

impl Tensor {
    /// A tensor over `bytes` (little-endian elements, row-major).
    ///
    /// # Errors
    /// The byte count differs from what the shape takes; the shape is impossible.
    pub fn new(dtype: DType, shape: &[usize], bytes: impl Into<Arc<[u8]>>) -> Result<Tensor, TensorError> {
        let bytes = bytes.into();
        let want = bytes_of(dtype, shape)?;
        if want != bytes.len() {
            return Err(TensorError::Bytes { dtype, shape: shape.to_vec(), want, got: bytes.len() });
        }
        Ok(Tensor { dtype, shape: shape.to_vec(), bytes })
    }

    /// A tensor of `dtype` from f64 values, each rounded to the type: floats to nearest even (those of 8 bits and less
    /// saturate), integers towards zero and saturating.
    ///
    /// # Errors
    /// A wrong count; a block format; NaN for a type that has none.
    pub fn from_f64(dtype: DType, shape: &[usize], values: &[f64]) -> Result<Tensor, TensorError> {
        let unit = dtype.info().unit_elements;
        let mut bytes = Vec::with_capacity(values.len() * 4);
        if unit > 1 && !dtype.is_block() {
            let bits = 8 / unit;
            for group in values.chunks(unit) {
                let mut byte = 0;
                for (i, v) in group.iter().enumerate() {
                    byte |= code(dtype, *v)? << (bits * i);
                }
                bytes.push(byte);
            }
        } else {
            for v in values {
                put(dtype, *v, &mut bytes)?;
            }
        }
        Tensor::new(dtype, shape, bytes)
    }

    /// An f32 tensor.
    ///
    /// # Errors
    /// A wrong count.
    pub fn from_f32(shape: &[usize], values: &[f32]) -> Result<Tensor, TensorError> {
        Tensor::new(DType::F32, shape, bytemuck::cast_slice(values).to_vec())
    }

    /// An i32 tensor.
    ///
    /// # Errors
    /// A wrong count.
    pub fn from_i32(shape: &[usize], values: &[i32]) -> Result<Tensor, TensorError> {
        Tensor::new(DType::I32, shape, bytemuck::cast_slice(values).to_vec())
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The raw bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same bytes under another shape.
    ///
    /// # Errors
    /// The byte count differs.
    pub fn reshaped(&self, shape: &[usize]) -> Result<Tensor, TensorError> {
        Tensor::new(self.dtype, shape, self.bytes.clone())
    }

    /// Every element as f64 (i64 and u64 beyond 2^53 round). Block formats are decoded.
    ///
    /// # Errors
    /// Bytes that are no blocks of the format.
    pub fn to_f64(&self) -> Result<Vec<f64>, TensorError> {
        if self.dtype.is_block() {
            let mut out = vec![0f32; self.len()];
            crate::block::dequantize(self.dtype, &self.bytes, &mut out)
                .map_err(|_| TensorError::Values(self.dtype))?;
            return Ok(out.into_iter().map(f64::from).collect());
        }
        let unit = self.dtype.info().unit_elements;
        if unit > 1 {
            let bits = 8 / unit;
            let code = |i: usize| self.bytes[i / unit] >> (bits * (i % unit)) & (u8::MAX >> (8 - bits));
            return (0..self.len()).map(|i| value(self.dtype, code(i))).collect();
        }
        let size = self.dtype.info().unit_bytes;
        self.bytes.chunks_exact(size).map(|b| get(self.dtype, b)).collect()
    }

    /// Every element as f32, for f32 tensors without a copy of precision, else rounded.
    ///
    /// # Errors
    /// As [`Tensor::to_f64`].
    pub fn to_f32(&self) -> Result<Vec<f32>, TensorError> {
        Ok(self.to_f64()?.into_iter().map(|v| v as f32).collect())
    }

    /// Every element as i64 (floats truncate).
    ///
    /// # Errors
    /// As [`Tensor::to_f64`].
    pub fn to_i64(&self) -> Result<Vec<i64>, TensorError> {
        match self.dtype {
            DType::I64 => Ok(self.bytes.chunks_exact(8).map(|b| i64::from_le_bytes(array(b))).collect()),
            DType::U64 => {
                Ok(self.bytes.chunks_exact(8).map(|b| u64::from_le_bytes(array(b)) as i64).collect())
            }
            _ => Ok(self.to_f64()?.into_iter().map(|v| v as i64).collect()),
        }
    }
}

fn array<const N: usize>(b: &[u8]) -> [u8; N] {
    let mut a = [0; N];
    a.copy_from_slice(b);
    a
}

fn get(dtype: DType, b: &[u8]) -> Result<f64, TensorError> {
    Ok(match dtype {
        DType::F64 => f64::from_le_bytes(array(b)),
        DType::F32 => f32::from_le_bytes(array(b)).into(),
        DType::F16 => f16::from_le_bytes(array(b)).into(),
        DType::BF16 => bf16::from_le_bytes(array(b)).into(),
        DType::I64 => i64::from_le_bytes(array(b)) as f64,
        DType::I32 => i32::from_le_bytes(array(b)).into(),
        DType::I16 => i16::from_le_bytes(array(b)).into(),
        DType::I8 => i8::from_le_bytes(array(b)).into(),
        DType::U64 => u64::from_le_bytes(array(b)) as f64,
        DType::U32 => u32::from_le_bytes(array(b)).into(),
        DType::U16 => u16::from_le_bytes(array(b)).into(),
        DType::U8 => b[0].into(),
        DType::Bool => f64::from(b[0] != 0),
        _ => return value(dtype, b[0]),
    })
}

/// The value of a code of 8 bits or less.
fn value(dtype: DType, code: u8) -> Result<f64, TensorError> {
    Ok(match dtype {
        // The sign bit is moved to the top and back.
        DType::I4 => f64::from((code << 4) as i8 >> 4),
        DType::I2 => f64::from((code << 6) as i8 >> 6),
        DType::U4 | DType::U2 => f64::from(code),
        _ => return small::decode(dtype, code).ok_or(TensorError::Values(dtype)),
    })
}

/// The code of 8 bits or less for a value; the bits above it are 0.
fn code(dtype: DType, v: f64) -> Result<u8, TensorError> {
    Ok(match dtype {
        DType::I4 => v.clamp(-8.0, 7.0) as i8 as u8 & 0xf,
        DType::I2 => v.clamp(-2.0, 1.0) as i8 as u8 & 0x3,
        DType::U4 => v.clamp(0.0, 15.0) as u8,
        DType::U2 => v.clamp(0.0, 3.0) as u8,
        _ if v.is_nan() => return small::encode(dtype, v).ok_or(TensorError::NotANumber(dtype)),
        _ => return small::encode(dtype, v).ok_or(TensorError::Values(dtype)),
    })
}

fn put(dtype: DType, v: f64, out: &mut Vec<u8>) -> Result<(), TensorError> {
    match dtype {
        DType::F64 => out.extend(v.to_le_bytes()),
        DType::F32 => out.extend((v as f32).to_le_bytes()),
        DType::F16 => out.extend(round::to_f16(v).to_le_bytes()),
        DType::BF16 => out.extend(round::to_bf16(v).to_le_bytes()),
        DType::I64 => out.extend((v as i64).to_le_bytes()),
        DType::I32 => out.extend((v as i32).to_le_bytes()),
        DType::I16 => out.extend((v as i16).to_le_bytes()),
        DType::I8 => out.extend((v as i8).to_le_bytes()),
        DType::U64 => out.extend((v as u64).to_le_bytes()),
        DType::U32 => out.extend((v as u32).to_le_bytes()),
        DType::U16 => out.extend((v as u16).to_le_bytes()),
        DType::U8 => out.push(v as u8),
        DType::Bool => out.push(u8::from(v != 0.0)),
        _ if dtype.is_block() => return Err(TensorError::Values(dtype)),
        _ => out.push(code(dtype, v)?),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_checked() {
        assert!(Tensor::new(DType::F32, &[2, 2], vec![0; 15]).is_err());
        assert!(Tensor::new(DType::F32, &[usize::MAX, 2], vec![]).is_err());
        assert!(Tensor::new(DType::Q8_0, &[2, 16], vec![0; 34]).is_err());
    }

    #[test]
    fn packed_values_start_in_the_low_bits() {
        for (dtype, bytes) in
            [(DType::I4, vec![0x98, 0x07]), (DType::U4, vec![0x10, 0x0f]), (DType::F4E2M1, vec![0xf2, 0x07])]
        {
            let t = Tensor::new(dtype, &[3], bytes).unwrap();
            let values = t.to_f64().unwrap();
            assert_eq!(Tensor::from_f64(dtype, &[3], &values).unwrap(), t);
            let want = match dtype {
                DType::I4 => [-8.0, -7.0, 7.0],
                DType::U4 => [0.0, 1.0, 15.0],
                _ => [1.0, -6.0, 6.0],
            };
            assert_eq!(values, want, "{dtype}");
        }
        let t = Tensor::new(DType::I2, &[5], vec![0b_11_10_01_00, 0b01]).unwrap();
        assert_eq!(t.to_f64().unwrap(), [0.0, 1.0, -2.0, -1.0, 1.0]);
        assert_eq!(Tensor::from_f64(DType::I2, &[2], &[9.0, -9.0]).unwrap().bytes(), [0b10_01]);
        let e = Tensor::from_f64(DType::F4E2M1, &[1], &[f64::NAN]);
        assert_eq!(e, Err(TensorError::NotANumber(DType::F4E2M1)));
    }

    #[test]
    fn small_floats_saturate() {
        let t = Tensor::from_f64(DType::F8E4M3FN, &[4], &[464.0, f64::NAN, 256.0, -0.0]).unwrap();
        assert_eq!(t.bytes(), [0x7e, 0x7f, 0x78, 0x80]);
        let v = t.to_f64().unwrap();
        assert!(v[0] == 448.0 && v[1].is_nan() && v[2] == 256.0);
        let t = Tensor::from_f64(DType::F8E5M2, &[2], &[58000.0, f64::INFINITY]).unwrap();
        assert_eq!(t.to_f64().unwrap(), [57344.0, f64::INFINITY]);
    }

    #[test]
    fn values_round_trip() {
        for d in [DType::F64, DType::F16, DType::BF16, DType::I8, DType::U16, DType::Bool] {
            let t = Tensor::from_f64(d, &[2], &[1.0, 0.0]).unwrap();
            assert_eq!(t.to_f64().unwrap(), [1.0, 0.0]);
        }
    }
}
