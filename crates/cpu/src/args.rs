//! What a kernel is given: operands as pointers with extents, the row's parameters, scratch and its place in the team.

use frit_ir::DType;

use crate::expr::Program;
use crate::pool::Team;

/// The most dimensions an operand can have.
pub const MAX_RANK: usize = 8;

/// One operand of a step with its real extents of this run.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    /// First element. For block formats and packed weights, first byte of the storage.
    pub ptr: *mut u8,
    /// Element type of the storage.
    pub dtype: DType,
    /// Number of dimensions in use.
    pub rank: u8,
    /// Extents, outermost first.
    pub dims: [i64; MAX_RANK],
    /// Strides in elements, outermost first; 0 repeats.
    pub strides: [i64; MAX_RANK],
}

// SAFETY: an operand is an address with extents; the executor keeps the accesses through it apart.
unsafe impl Send for Operand {}
// SAFETY: as above.
unsafe impl Sync for Operand {}

impl Operand {
    /// Stands for an optional operand that was left out.
    pub const ABSENT: Operand = Operand {
        ptr: std::ptr::null_mut(),
        dtype: DType::U8,
        rank: 0,
        dims: [1; MAX_RANK],
        strides: [0; MAX_RANK],
    };

    /// Whether this is [`Operand::ABSENT`].
    pub fn is_absent(&self) -> bool {
        self.ptr.is_null()
    }

    /// Extents, outermost first.
    pub fn dims(&self) -> &[i64] {
        &self.dims[..self.rank as usize]
    }

    /// Strides in elements.
    pub fn strides(&self) -> &[i64] {
        &self.strides[..self.rank as usize]
    }

    /// Number of elements.
    pub fn len(&self) -> i64 {
        self.dims().iter().product()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A parameter value; which field is meant stands in the row's parameter table.
#[derive(Clone, Copy, Debug)]
pub enum Param {
    /// An integer (extents, counts, flags).
    Int(i64),
    /// A real number.
    Float(f64),
}

impl Param {
    /// The integer value; 0 for a float (the row's table decides, and the executor checks it once at load).
    pub fn int(self) -> i64 {
        match self {
            Param::Int(v) => v,
            Param::Float(_) => 0,
        }
    }

    /// The value as f64.
    pub fn float(self) -> f64 {
        match self {
            Param::Int(v) => v as f64,
            Param::Float(v) => v,
        }
    }
}

/// The arguments of one kernel call. Every thread of the team calls the kernel with the same arguments but its own `team`.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    /// Inputs in the op's order, then outputs.
    pub operands: &'a [Operand],
    /// Parameters in the order of the row's table.
    pub params: &'a [Param],
    /// Compiled scalar expressions (epilogues, prologue or the region itself).
    pub programs: &'a [Program],
    /// Scratch that the row declared, aligned to 64 bytes, shared by the team.
    pub scratch: *mut u8,
    /// Bytes of scratch.
    pub scratch_bytes: usize,
    /// This thread's place.
    pub team: Team<'a>,
}

/// A kernel. It splits its work by `team.thread` of `team.threads`, may meet the others at `team.barrier()`, and leaves
/// its outputs complete once every thread has returned.
///
/// # Safety
/// Operand pointers must be valid for their extents and strides, as the executor ensures.
pub type Kernel = unsafe fn(&Args);
