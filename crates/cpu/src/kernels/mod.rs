//! The kernels, a file or folder per family. Each family gives its functions for an instruction set, chosen once at load.

pub(crate) mod lanes;
pub mod linear;
pub mod matmul;
pub mod row;
