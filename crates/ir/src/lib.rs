//! The types that the compiler, the backends and the models share: element types, symbolic dimensions, graphs,
//! scalar expressions, the target description and the schedule.
//!
//! Nothing in this crate knows an op by name, touches a device or allocates device memory.

pub mod attr;
pub mod block;
pub mod dim;
pub mod dtype;
pub mod element;
pub mod expr;
pub mod graph;
pub mod op;
pub mod round;
pub mod rows;
pub mod schedule;
pub mod sizes;
pub mod small;
pub mod symbols;
pub mod target;
pub mod tensor;
pub mod text;
pub mod times;
pub mod verify;

pub use attr::{Attr, Attrs};
pub use dim::{Dim, Sym};
pub use dtype::DType;
pub use expr::{Expr, ScalarOp};
pub use graph::{Graph, Shape, Type, ValueId};
pub use op::{OpDef, OpError, Registry};
pub use symbols::Symbols;
pub use tensor::Tensor;
