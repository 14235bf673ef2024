//! Work for the vendor's own compiler and library: stretches of a schedule as graphs of MPSGraph, single products as MPS
//! matrix multiplications. All of it is decided here, as plain data and on every platform; a driver carries it out.
//!
//! What becomes of an op stands in one table (`table`), which takes only what Apple's documentation states exactly; the rest
//! stays a step of our own. A plan is made for the sizes of a run, since graphs are compiled for their shapes. Nothing here
//! touches a device.

mod attention;
pub mod call;
mod plan;
mod product;
mod scalar;
mod steps;
mod table;
mod window;

pub use plan::{Binding, GraphPiece, Piece, Plan};
pub use product::{Matrix, Product};
pub use scalar::scalars;
pub use table::ops;

pub(crate) use plan::{Frame, plan};
pub(crate) use steps::{Sight, concrete};

use frit_ir::DType;

/// Which steps go to the vendor's compiler and library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GraphMode {
    /// None.
    #[default]
    Off,
    /// Products of f32 matrices, each by itself, by the library's matrix multiplication.
    Products,
    /// Stretches of steps that the table has and that are worth it, and products that stand alone; our own steps between them.
    Hybrid,
    /// All steps as one graph; a schedule with a step that the table lacks is an error.
    Whole,
}

/// How the vendor's compiler is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphOptions {
    /// Which steps.
    pub mode: GraphMode,
    /// Bytes of weights that may become constants of graphs, the first used first; 0 for none. The compiler may lay them out
    /// anew, at the price of a second copy.
    pub constants: u64,
    /// Operations in products and attention from which on a stretch is worth a graph.
    pub least_flops: u64,
}

impl Default for GraphOptions {
    fn default() -> GraphOptions {
        GraphOptions { mode: GraphMode::Off, constants: 0, least_flops: LEAST_FLOPS }
    }
}

impl GraphOptions {
    /// These options with another mode.
    pub fn mode(self, mode: GraphMode) -> GraphOptions {
        GraphOptions { mode, ..self }
    }

    /// These options with another cap on constants, in bytes.
    pub fn constants(self, constants: u64) -> GraphOptions {
        GraphOptions { constants, ..self }
    }

    /// These options with another number of operations from which on a stretch is worth a graph.
    pub fn least_flops(self, least_flops: u64) -> GraphOptions {
        GraphOptions { least_flops, ..self }
    }
}

/// A graph has a command buffer of its own, which costs host and device some 100 µs; on a device of a few TFLOP/s that is the
/// time of so many operations. A guess until a Mac has measured it.
const LEAST_FLOPS: u64 = 1 << 28;

/// Why a step does not become calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unsupported(pub String);

/// Whether programs hold values of this type. Quantized blocks, f64 and types below a byte are not MPSGraph's.
pub(crate) fn has_type(d: DType) -> bool {
    use DType::{BF16, Bool, F16, F32, I8, I16, I32, I64, U8, U16, U32, U64};
    matches!(d, F32 | F16 | BF16 | I64 | I32 | I16 | I8 | U64 | U32 | U16 | U8 | Bool)
}
