//! The kernels, a file or folder per family. Each family gives its functions for an instruction set, chosen once at load.

pub mod attention;
pub mod concat;
pub mod copy;
pub mod cumsum;
pub mod dequantize;
pub mod expr;
pub mod flip;
pub mod gather;
pub(crate) mod lanes;
pub mod linear;
pub mod matmul;
pub mod norm;
pub mod pad;
pub mod quantize;
pub(crate) mod real;
pub mod reduce;
pub mod rotary;
pub mod row;
pub mod softmax;
pub mod sort;
pub(crate) mod walk;
pub mod write_kv;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
