//! A kernel row together with its functions: what each kernel file exports and the target is assembled from.

pub(crate) use frit_ir::rows::{
    BLOCKS, COMPUTE, F32S, NUMBERS, PLAIN, UNITS, WEIGHTS, WHOLE, int, one, optional, real, rest,
};
use frit_ir::target::KernelRow;

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
