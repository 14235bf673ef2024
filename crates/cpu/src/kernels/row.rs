//! A kernel row together with its functions: what each kernel file exports and the target is assembled from.

use frit_ir::DType;
use frit_ir::target::{Count, KernelRow, LayoutClass, OperandSpec, ParamSpec, ParamType};

use crate::args::{Args, Kernel};
use crate::isa::Isa;

/// A row of the CPU target. Every file of kernels exports `pub static ROWS: &[CpuRow]`, in the order of preference. A static,
/// so that other crates do not compile the kernels again.
#[derive(Clone, Copy)]
pub struct CpuRow {
    /// What the compiler sees.
    pub row: KernelRow,
    /// The kernel for an instruction set, which must be available.
    pub kernel: fn(Isa) -> Kernel,
}

/// A kernel written once over [`Lanes`](super::lanes::Lanes); [`kernel`] builds it for each instruction set.
pub(crate) trait Body {
    /// The kernel. Must be `#[inline(always)]`, and so must what it calls in its inner loops.
    ///
    /// # Safety
    /// As [`Kernel`]; the machine has the instruction set of `L`.
    unsafe fn run<L: super::lanes::Lanes>(args: &Args);
}

/// `B` for `isa` (or for the best set that the machine has, if it lacks that one).
pub(crate) fn kernel<B: Body>(isa: Isa) -> Kernel {
    match isa.min(Isa::detect()) {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::<B>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::<B>,
        _ => portable::<B>,
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
unsafe fn avx512<B: Body>(args: &Args) {
    // SAFETY: the caller's, and `kernel` chose this function for a machine that has the set.
    unsafe { B::run::<super::lanes::Avx512>(args) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn avx2<B: Body>(args: &Args) {
    // SAFETY: as `avx512`.
    unsafe { B::run::<super::lanes::Avx2>(args) }
}

unsafe fn portable<B: Body>(args: &Args) {
    // SAFETY: the caller's.
    unsafe { B::run::<super::lanes::Portable>(args) }
}

/// Float types that are computed with in f32.
pub(crate) const F32S: &[DType] = &[DType::F32, DType::F16, DType::BF16];

/// Types of scalar expressions and reductions.
pub(crate) const COMPUTE: &[DType] = &[
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F64,
    DType::I64,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U64,
    DType::U32,
    DType::U16,
    DType::U8,
    DType::Bool,
];

/// Types of whole bytes.
pub(crate) const WHOLE: &[DType] = &[
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F64,
    DType::I64,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U64,
    DType::U32,
    DType::U16,
    DType::U8,
    DType::Bool,
    DType::F8E4M3FN,
    DType::F8E5M2,
    DType::F8E4M3FNUZ,
    DType::F8E5M2FNUZ,
    DType::F8E8M0,
];

/// The block formats.
pub(crate) const BLOCKS: &[DType] = &[
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q8_0,
    DType::Q2K,
    DType::Q3K,
    DType::Q4K,
    DType::Q5K,
    DType::Q6K,
];

/// Types whose elements share bytes, block formats included.
pub(crate) const UNITS: &[DType] = &[
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q8_0,
    DType::Q2K,
    DType::Q3K,
    DType::Q4K,
    DType::Q5K,
    DType::Q6K,
    DType::F4E2M1,
    DType::I4,
    DType::I2,
    DType::U4,
    DType::U2,
];

/// One operand.
pub(crate) const fn one(name: &'static str, dtypes: &'static [DType], layout: LayoutClass) -> OperandSpec {
    OperandSpec { name, dtypes, layout, count: Count::One, packing: None }
}

/// An operand that may be absent.
pub(crate) const fn optional(
    name: &'static str,
    dtypes: &'static [DType],
    layout: LayoutClass,
) -> OperandSpec {
    OperandSpec { name, dtypes, layout, count: Count::Optional, packing: None }
}

/// All operands that are left.
pub(crate) const fn rest(name: &'static str, dtypes: &'static [DType], layout: LayoutClass) -> OperandSpec {
    OperandSpec { name, dtypes, layout, count: Count::Rest, packing: None }
}

/// An integer parameter.
pub(crate) const fn int(name: &'static str) -> ParamSpec {
    ParamSpec { name, ty: ParamType::I64 }
}

/// A real parameter.
pub(crate) const fn real(name: &'static str) -> ParamSpec {
    ParamSpec { name, ty: ParamType::F32 }
}

/// A row without guards, scratch and shared memory, to be completed by `..`.
pub(crate) const PLAIN: KernelRow = KernelRow {
    name: "",
    op: "",
    inputs: &[],
    outputs: &[],
    guards: &[],
    params: &[],
    scratch: "",
    alias: &[],
};
