//! [`TensorInfo`]: a named tensor of a file.

use crate::blob::Blob;
use frit_ir::DType;

/// A named tensor of a file: its type, its shape and its bytes.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// The name in the file.
    pub name: String,
    /// The element type.
    pub dtype: DType,
    /// Extents, outermost first; the last one is contiguous. Empty for a scalar.
    pub shape: Vec<usize>,
    /// The elements, dense and little-endian: exactly `dtype.bytes_of(elements)` bytes.
    pub data: Blob,
}

impl TensorInfo {
    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}
