//! Parts that architectures are made of. Each takes and gives f32 activations; names of weights are canonical.

pub mod attention;
pub mod embedding;
pub mod head;
pub mod layer;
pub mod linear;
pub mod mlp;
pub mod norm;
pub mod rope;
