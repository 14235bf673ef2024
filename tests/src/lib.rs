//! What the tests of the whole share: op cases as graphs, running them on a device, golden data.

pub mod calls;
pub mod check;
pub mod cpu;
pub mod decoders;
pub mod encoders;
pub mod gguf;
pub mod golden;
pub mod gpu;
pub mod guarded;
pub mod interpreted;
pub mod msl;
pub mod null;
pub mod random;
pub mod recorder;
pub mod reference;
/// The op of the example with one of its own.
#[path = "../../examples/custom_op/src/snake.rs"]
pub mod snake;
pub mod timing;
