//! The plan's checker. It shares no code with the planner: lifetimes, sizes and places come from the operands of the
//! steps alone, and the legalized schedule says only which value each operand means.

use std::collections::BTreeMap;

use frit_ir::dim::Dim;
use frit_ir::schedule::{KernelStep, Operand, Region, Schedule, Step};
use frit_ir::symbols::Symbols;
use frit_ir::target::Target;

use crate::legalize::Legalized;

/// What is wrong with a memory plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Overlap {
    /// The planned schedule is not the legalized one with offsets filled in.
    #[error("step {0}: the planned schedule differs from the legalized one in more than arena offsets")]
    Changed(usize),
    /// A value lies at two places, or at one that depends on the sizes.
    #[error("step {step}: value {value} has no single place in the arena")]
    Moved {
        /// The step.
        step: usize,
        /// Number of the value.
        value: u32,
    },
    /// An offset is not aligned.
    #[error("step {step}: offset {offset} is not a multiple of {align}")]
    Alignment {
        /// The step.
        step: usize,
        /// The offset in bytes.
        offset: u64,
        /// The target's alignment.
        align: u64,
    },
    /// A value is read before any step has written it.
    #[error("step {step} reads value {value}, which no earlier step has written")]
    Unwritten {
        /// The step.
        step: usize,
        /// Number of the value.
        value: u32,
    },
    /// An operand reaches outside of its value or the arena.
    #[error("step {step}: bytes {from}..{to} reach outside of the {limit} bytes that are there")]
    Outside {
        /// The step.
        step: usize,
        /// First byte.
        from: i64,
        /// Byte after the last.
        to: i64,
        /// Bytes there.
        limit: u64,
    },
    /// Two live values, or a value and scratch, share bytes.
    #[error("step {step}: {first} at {first_at:?} and {second} at {second_at:?} overlap")]
    Shared {
        /// The step at which both live.
        step: usize,
        /// One of them.
        first: String,
        /// Its bytes in the arena: offset and end.
        first_at: (u64, u64),
        /// The other.
        second: String,
        /// Its bytes in the arena.
        second_at: (u64, u64),
    },
}

/// A value as its operands show it.
#[derive(Clone, Debug)]
struct Seen {
    base: u64,
    size: u64,
    first: usize,
    last: usize,
}

/// Proves that in `planned` no two live values overlap (but where a row lets a result take over the memory of an operand
/// that dies), that scratch is free, that reads see written memory, and that everything lies inside the arena, at the
/// upper bounds of the symbols.
///
/// # Errors
/// The first violation found.
pub fn check(planned: &Schedule, legalized: &Legalized, target: &Target) -> Result<(), Overlap> {
    let seen = survey(planned, legalized, target)?;
    for s in seen.iter().flatten() {
        let end = s.base.saturating_add(s.size);
        if end > planned.memory.arena {
            let (from, to) = (s.base as i64, end as i64);
            return Err(Overlap::Outside { step: s.first, from, to, limit: planned.memory.arena });
        }
    }
    let mut starts: Vec<Vec<u32>> = vec![Vec::new(); planned.steps.len()];
    for (v, s) in seen.iter().enumerate() {
        if let Some(s) = s {
            starts[s.first].push(v as u32);
        }
    }
    let name = |v: u32| format!("`{}`", legalized.arena[v as usize].name);
    // Live values by offset; they are disjoint, so that a newcomer need look only at its neighbours.
    let mut live: BTreeMap<u64, u32> = BTreeMap::new();
    for (i, step) in planned.steps.iter().enumerate() {
        let Step::Kernel(k) = step else { continue };
        let taken = take_over(i, k, legalized, &seen);
        for (old, _) in &taken {
            live.remove(&range(&seen, *old).0);
        }
        for v in starts[i].iter().copied().filter(|v| range(&seen, *v).1 > range(&seen, *v).0) {
            let at = range(&seen, v);
            if let Some(other) = neighbour(&live, &seen, at) {
                let (first, first_at) = (name(other), range(&seen, other));
                return Err(Overlap::Shared { step: i, first, first_at, second: name(v), second_at: at });
            }
            live.insert(at.0, v);
        }
        check_scratch(i, k, planned, target, &live, &seen, &name)?;
        live.retain(|_, v| seen[*v as usize].as_ref().is_some_and(|s| s.last > i));
    }
    Ok(())
}

fn range(seen: &[Option<Seen>], v: u32) -> (u64, u64) {
    seen[v as usize].as_ref().map_or((0, 0), |s| (s.base, s.base.saturating_add(s.size)))
}

/// A live value that shares bytes with `at`.
fn neighbour(live: &BTreeMap<u64, u32>, seen: &[Option<Seen>], at: (u64, u64)) -> Option<u32> {
    let below = live.range(..at.1).next_back()?;
    (range(seen, *below.1).1 > at.0).then_some(*below.1)
}

fn check_scratch(
    i: usize,
    k: &KernelStep,
    planned: &Schedule,
    target: &Target,
    live: &BTreeMap<u64, u32>,
    seen: &[Option<Seen>],
    name: &dyn Fn(u32) -> String,
) -> Result<(), Overlap> {
    let most = k.candidates.iter().map(|c| planned.symbols.upper(&c.scratch)).max().unwrap_or(0).max(0);
    if most == 0 {
        return Ok(());
    }
    let at = (k.scratch, k.scratch.saturating_add(most as u64));
    if !at.0.is_multiple_of(target.align) {
        return Err(Overlap::Alignment { step: i, offset: at.0, align: target.align });
    }
    if at.1 > planned.memory.arena {
        let limit = planned.memory.arena;
        return Err(Overlap::Outside { step: i, from: at.0 as i64, to: at.1 as i64, limit });
    }
    match neighbour(live, seen, at) {
        None => Ok(()),
        Some(v) => {
            let (first, first_at) = (name(v), range(seen, v));
            let second = format!("the scratch of `{}`", k.name);
            Err(Overlap::Shared { step: i, first, first_at, second, second_at: at })
        }
    }
}

/// Place, size and life of every value.
fn survey(planned: &Schedule, legalized: &Legalized, target: &Target) -> Result<Vec<Option<Seen>>, Overlap> {
    let symbols = &planned.symbols;
    let mut seen: Vec<Option<Seen>> = vec![None; legalized.arena.len()];
    if planned.steps.len() != legalized.schedule.steps.len() {
        return Err(Overlap::Changed(planned.steps.len()));
    }
    for (i, (new, old)) in planned.steps.iter().zip(&legalized.schedule.steps).enumerate() {
        let (Step::Kernel(new), Step::Kernel(old)) = (new, old) else { return Err(Overlap::Changed(i)) };
        if new.operands.len() != old.operands.len()
            || new.inputs != old.inputs
            || new.candidates != old.candidates
        {
            return Err(Overlap::Changed(i));
        }
        for (at, (n, o)) in new.operands.iter().zip(&old.operands).enumerate() {
            let Some((n, o)) = n.as_ref().zip(o.as_ref()) else {
                if n.is_some() || o.is_some() {
                    return Err(Overlap::Changed(i));
                }
                continue;
            };
            if o.region != Region::Arena {
                if n != o {
                    return Err(Overlap::Changed(i));
                }
                continue;
            }
            if n.region != Region::Arena || n.buffer != 0 || !same_window(n, o) {
                return Err(Overlap::Changed(i));
            }
            operand(i, at >= new.inputs, n, o, symbols, target, &mut seen)?;
        }
    }
    Ok(seen)
}

fn same_window(a: &Operand, b: &Operand) -> bool {
    a.dtype == b.dtype && a.dims == b.dims && a.strides == b.strides
}

/// Takes one arena operand into account. `n` is planned, `o` says which value it is.
fn operand(
    step: usize,
    writes: bool,
    n: &Operand,
    o: &Operand,
    symbols: &Symbols,
    target: &Target,
    seen: &mut [Option<Seen>],
) -> Result<(), Overlap> {
    let value = o.buffer;
    let base = (n.offset.clone() - o.offset.clone()).as_const().and_then(|b| u64::try_from(b).ok());
    let base = base.ok_or(Overlap::Moved { step, value })?;
    if !base.is_multiple_of(target.align) {
        return Err(Overlap::Alignment { step, offset: base, align: target.align });
    }
    let (from, to) = extent(o, symbols);
    let Some(s) = seen.get_mut(value as usize) else { return Err(Overlap::Changed(step)) };
    match s {
        Some(s) if s.base != base => return Err(Overlap::Moved { step, value }),
        Some(s) => {
            if from < 0 || to > s.size as i64 {
                return Err(Overlap::Outside { step, from, to, limit: s.size });
            }
            s.last = step;
        }
        None if !writes => return Err(Overlap::Unwritten { step, value }),
        None => {
            if from < 0 {
                return Err(Overlap::Outside { step, from, to, limit: 0 });
            }
            *s = Some(Seen { base, size: to as u64, first: step, last: step });
        }
    }
    Ok(())
}

/// First byte and byte after the last that an operand can reach in its value.
fn extent(o: &Operand, symbols: &Symbols) -> (i64, i64) {
    let info = o.dtype.info();
    let unit = Dim::from(info.unit_elements);
    if o.dims.iter().any(|d| symbols.upper(d) <= 0) {
        return (0, 0);
    }
    // Elements after the first, counted in one expression: bounds on products and cancelling terms stay exact so.
    let span: Dim = o
        .dims
        .iter()
        .zip(&o.strides)
        .fold(Dim::from(0i64), |sum, (d, s)| sum + (d.clone() - Dim::from(1i64)) * s.clone());
    let last = (span + Dim::from(1i64)).ceil_div(&unit) * Dim::from(info.unit_bytes);
    let from = symbols.interval(&o.offset).0;
    (from, symbols.upper(&(o.offset.clone() + last)))
}

/// Pairs (dying operand's value, new value) that share memory by leave of the rows.
fn take_over(step: usize, k: &KernelStep, legalized: &Legalized, seen: &[Option<Seen>]) -> Vec<(u32, u32)> {
    let Step::Kernel(old) = &legalized.schedule.steps[step] else { return Vec::new() };
    let pairs = &legalized.aliases[step];
    let arena = |i: usize| old.operands.get(i)?.as_ref().filter(|o| o.region == Region::Arena);
    let mut out: Vec<(u32, u32)> = Vec::new();
    for (a, b) in pairs {
        let (Some(x), Some(y)) = (arena(*a), arena(*b)) else { continue };
        let (Some(sx), Some(sy)) = (&seen[x.buffer as usize], &seen[y.buffer as usize]) else { continue };
        let meets = sx.last == step && sy.first == step && sx.first < step;
        let exact = (sx.base, sx.size) == (sy.base, sy.size);
        // Every operand that reads the old value must touch exactly the element that is written.
        let readers = (0..k.inputs).filter(|i| arena(*i).is_some_and(|o| o.buffer == x.buffer));
        let mut readers = readers.filter_map(|i| arena(i).map(|o| (i, o)));
        let allowed = readers.all(|(i, o)| {
            pairs.contains(&(i, *b)) && o.offset == y.offset && o.dims == y.dims && o.strides == y.strides
        });
        if meets && exact && allowed && !out.contains(&(x.buffer, y.buffer)) {
            out.push((x.buffer, y.buffer));
        }
    }
    out
}
