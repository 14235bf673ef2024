//! The plan as a map: what lies where in the arena, from which step to which. For reports; nothing is decided here.

use frit_ir::graph::Type;
use frit_ir::schedule::{Region, Schedule, Step};

use crate::CompileError;
use crate::legalize::{Legalized, scratch_bytes};

/// A stretch of the arena in use.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Name of the value, or of the step whose scratch this is.
    pub name: String,
    /// Type of the value; `None` for scratch.
    pub ty: Option<Type>,
    /// First byte in the arena.
    pub offset: u64,
    /// Bytes at the upper bounds of the symbols.
    pub bytes: u64,
    /// The step that writes it first.
    pub first: u32,
    /// The last step that touches it.
    pub last: u32,
}

/// Every value and every scratch of `planned`, which [`super::plan`] made from `legalized`, in the order of their first
/// steps. Two that live at one step overlap only where the step computes in place.
///
/// # Errors
/// Scratch of more bytes than can be addressed.
pub fn map(legalized: &Legalized, planned: &Schedule) -> Result<Vec<Placed>, CompileError> {
    let mut at: Vec<Option<usize>> = vec![None; legalized.arena.len()];
    let mut all: Vec<Placed> = Vec::new();
    for (i, (from, to)) in legalized.schedule.steps.iter().zip(&planned.steps).enumerate() {
        let (Step::Kernel(from), Step::Kernel(to)) = (from, to) else { continue };
        let step = i as u32;
        let bytes = scratch_bytes(&planned.symbols, &to.name, &to.candidates)?;
        if bytes > 0 {
            let (name, ty, offset) = (to.name.clone(), None, to.scratch);
            all.push(Placed { name, ty, offset, bytes, first: step, last: step });
        }
        for (a, b) in from.operands.iter().flatten().zip(to.operands.iter().flatten()) {
            if a.region != Region::Arena {
                continue;
            }
            let v = a.buffer as usize;
            if let Some(n) = at[v] {
                all[n].last = step;
                continue;
            }
            at[v] = Some(all.len());
            let value = &legalized.arena[v];
            let base = (b.offset.clone() - a.offset.clone()).as_const().unwrap_or(0);
            all.push(Placed {
                name: value.name.clone(),
                ty: Some(value.ty.clone()),
                offset: u64::try_from(base).unwrap_or(0),
                bytes: value.bytes,
                first: step,
                last: step,
            });
        }
    }
    Ok(all)
}
