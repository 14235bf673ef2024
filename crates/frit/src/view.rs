//! Read access to the outputs of a run.

use frit_ir::DType;
use frit_ir::element::Element;
use smallvec::SmallVec;

use crate::error::{Error, Result};

/// An output of the last run, in the session's own memory: valid until its next run.
#[derive(Clone, Debug)]
pub struct TensorView<'a> {
    name: &'a str,
    dtype: DType,
    shape: SmallVec<[usize; 8]>,
    bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    pub(crate) fn new(
        name: &'a str,
        dtype: DType,
        shape: SmallVec<[usize; 8]>,
        bytes: &'a [u8],
    ) -> TensorView<'a> {
        TensorView { name, dtype, shape, bytes }
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents, outermost first; the data is dense and row-major.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The raw bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The values, without a copy.
    ///
    /// # Errors
    /// [`Error::Value`] when the output has another element type.
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T]> {
        if T::DTYPE != self.dtype {
            let (name, have, want) = (self.name, self.dtype, T::DTYPE);
            return Err(Error::value(format!("output `{name}` holds {have}, it cannot be read as {want}")));
        }
        // No bytes lie nowhere in particular, so they need not lie where a `T` may.
        if self.bytes.is_empty() {
            return Ok(&[]);
        }
        bytemuck::try_cast_slice(self.bytes)
            .map_err(|e| Error::value(format!("output `{}` cannot be read as {}: {e}", self.name, T::DTYPE)))
    }
}
