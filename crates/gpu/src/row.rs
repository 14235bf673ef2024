//! A kernel row together with its text: what each table of the catalog is made of. Plain data, no functions.

pub use frit_ir::rows::{
    BLOCKS, COMPUTE, F32S, FLOATS, INTS, PLAIN, UNITS, WEIGHTS, WHOLE, int, one, optional, real, rest,
};
pub use frit_ir::target::{Cmp, Count, Guard, KernelRow, LayoutClass, OperandSpec, ParamSpec, ParamType};

/// How the scalar expressions of a step get their arguments. Expression `g` takes first the values that the kernel has
/// computed, as many as the parameter `values[g]` says (none if the list is shorter), then one element of each of as many
/// operands of the list `inputs` as are left, where the expression before it stopped; its outputs go to the next operands
/// of the list `outputs`. The kernel runs it at element `i` of the result by `APPLY_g(i, values…)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exprs {
    /// For each expression, the parameter that says how many values the kernel gives.
    pub values: &'static [&'static str],
    /// Name of the list of operands from which the kernel computes those values, one from each in order; "" for none.
    pub from: &'static str,
    /// Name of the list of inputs; its operands broadcast to the extents of the outputs.
    pub inputs: &'static str,
    /// Name of the list of outputs.
    pub outputs: &'static str,
}

/// What not every device has; see [`Features`](crate::driver::Features).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// `hopper`.
    Hopper,
}

/// A row of a GPU target. Weights are read as they lie in the file: rows ask for no packing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuRow {
    /// What the compiler sees.
    pub row: KernelRow,
    /// The text of the kernel, `kernels/NAME.k`; several rows may share one.
    pub source: &'static str,
    /// Lines put before it, such as the tile of this row: `#define TILE 16`.
    pub defines: &'static str,
    /// Items of a group, a multiple of 32; at most 1024.
    pub group: u32,
    /// Bytes of shared memory that a launch brings, beside what the text declares.
    pub shared: u32,
    /// What the device must have for this row to be in its table.
    pub needs: Option<Needs>,
    /// Groups that have work, as a dimension expression over the row's integer parameters and, for an operand `x`
    /// (`x_0` in a list), `x_len` (elements), `x_last` (the last extent), `x_rows` (elements over the last extent) and
    /// `x_d0` … `x_d7` (extents). What is launched is a power of two, at most as many as fill the device.
    pub grid: &'static str,
    /// Most groups of a launch for each compute unit, where groups walk through their work and gain nothing from more of
    /// them than the device holds; 0 for no bound but that.
    pub per_unit: u32,
    /// Integer parameters that are constants of the graph and become part of the text. Never extents.
    pub constants: &'static [&'static str],
    /// Whether elements are only moved: types of one size then share a text, as unsigned integers.
    pub bits: bool,
    /// For rows that run expressions.
    pub exprs: Option<Exprs>,
}

/// A row to be completed by `..`: groups of 256 items, no expressions.
pub const KERNEL: GpuRow = GpuRow {
    row: PLAIN,
    source: "",
    defines: "",
    group: 256,
    shared: 0,
    needs: None,
    grid: "1",
    per_unit: 0,
    constants: &[],
    bits: false,
    exprs: None,
};
