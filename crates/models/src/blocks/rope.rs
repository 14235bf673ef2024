//! Rotary position embedding.

use frit_ir::{Tensor, ValueId};
use frit_ops::build::Rotary;
use frit_ops::rope_scaling::inverse_frequencies;

use crate::config::{DIVISORS, Rope, RopeStyle};
use crate::error::ModelError;
use crate::net::Net;

/// A rotation that layers share.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// `f32 [dims/2]`.
    frequencies: ValueId,
    options: Rotary,
}

impl Rotation {
    /// Declares the frequencies of `rope` under `{name}.frequencies`.
    ///
    /// # Errors
    /// Scaling parameters out of range; a missing weight.
    pub fn new(net: &mut Net, name: &str, rope: &Rope) -> Result<Rotation, ModelError> {
        let (inverse, factor) = inverse_frequencies(rope.dims, rope.theta, &rope.scaling)?;
        let pairs = rope.dims / 2;
        let table = Tensor::from_f32(&[pairs], &inverse)?;
        let mut frequencies = net.b.constant(&format!("{name}.frequencies"), table)?;
        if rope.divisors {
            let by = net.vector(DIVISORS, pairs)?;
            frequencies = net.b.div(frequencies, by)?;
        }
        let interleaved = rope.style == RopeStyle::Interleaved;
        let options = Rotary { dims: Some(rope.dims as i64), interleaved, factor: Some(factor) };
        Ok(Rotation { frequencies, options })
    }

    /// `x f32 [B, T, H, D]` turned by its positions `i32 [B, T]`.
    ///
    /// # Errors
    /// Extents that do not fit.
    pub fn turn(&self, net: &mut Net, x: ValueId, positions: ValueId) -> Result<ValueId, ModelError> {
        Ok(net.b.rotary(x, positions, self.frequencies, self.options)?)
    }
}
