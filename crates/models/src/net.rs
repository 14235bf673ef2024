//! A model's graph while it is built: a [`Builder`] with parameters checked against the file.

use frit_ir::{DType, Registry, ValueId};
use frit_ops::build::Builder;

use crate::error::ModelError;
use crate::weights::Weights;

/// A graph under construction over the weights of a file.
pub struct Net<'a> {
    /// The graph so far.
    pub b: Builder,
    weights: &'a Weights,
}

impl<'a> Net<'a> {
    /// An empty graph.
    pub fn new(name: &str, registry: &Registry, weights: &'a Weights) -> Net<'a> {
        Net { b: Builder::with_registry(name, registry.clone()), weights }
    }

    /// The parameter `name`, which the file must have with this shape. The first use declares it.
    ///
    /// # Errors
    /// The weight is missing or has another shape, or an element type other than a float or (for matrices) a block format.
    pub fn weight(&mut self, name: &str, shape: &[usize]) -> Result<ValueId, ModelError> {
        let w = self.weights.get(name).ok_or_else(|| ModelError::MissingWeight(name.into()))?;
        if w.shape != shape {
            let (want, got) = (shape.to_vec(), w.shape.clone());
            return Err(ModelError::WeightShape { name: name.into(), want, got });
        }
        let float = matches!(w.dtype, DType::F32 | DType::F16 | DType::BF16);
        if !(float || w.dtype.is_block() && shape.len() == 2) {
            let supported = "f32, f16, bf16, and block formats for matrices";
            return Err(ModelError::WeightType { name: name.into(), dtype: w.dtype, supported });
        }
        match self.b.graph().find(name) {
            Some(v) => Ok(v),
            None => Ok(self.b.param(name, w.dtype, shape.iter().copied())?),
        }
    }

    /// The parameter `name` in a float type, for a table that is not read row by chosen row.
    ///
    /// # Errors
    /// As [`Net::weight`]; it is in a block format.
    pub fn float_weight(&mut self, name: &str, shape: &[usize]) -> Result<ValueId, ModelError> {
        match self.weights.get(name) {
            Some(w) if w.dtype.is_block() => {
                Err(ModelError::WeightType { name: name.into(), dtype: w.dtype, supported: "f32, f16, bf16" })
            }
            _ => self.weight(name, shape),
        }
    }

    /// The parameter `name`, which is no matrix, as f32.
    ///
    /// # Errors
    /// As [`Net::weight`].
    pub fn vector(&mut self, name: &str, n: usize) -> Result<ValueId, ModelError> {
        let v = self.weight(name, &[n])?;
        Ok(self.b.cast(v, DType::F32)?)
    }
}
