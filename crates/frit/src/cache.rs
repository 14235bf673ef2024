//! What a text model's session keeps of the tokens that it has run: which positions are there, and copies of them.

use frit_ir::{Graph, ValueId};

use crate::backend::Session;
use crate::error::{Error, Result};
use crate::snapshot::{Part, buffer};

/// The rings of sliding layers that have the same window and size.
#[derive(Clone, PartialEq)]
struct Ring {
    /// A query sees itself and the `window - 1` positions before it; `None`: all that the ring holds.
    window: Option<usize>,
    /// Position p stands in slot p mod `slots`.
    slots: usize,
    /// The first position from which on every one in use is still there.
    kept: usize,
}

impl Ring {
    /// The first position that the query at position `n` sees.
    fn first_seen(&self, n: usize) -> usize {
        self.window.map_or(0, |w| (n + 1).saturating_sub(w))
    }

    /// Whether the ring holds what the query at position `n` sees of the positions before it.
    fn serves(&self, n: usize) -> bool {
        let first = self.first_seen(n);
        first >= n || first >= self.kept
    }
}

/// See the module's page.
#[derive(Clone)]
pub(crate) struct Cache {
    /// The numbers, among the session's states, of keys and values: `[1, kv_heads, slots, head_dim]`.
    states: Vec<usize>,
    rings: Vec<Ring>,
}

impl Cache {
    /// The cache of a session of `graph`.
    ///
    /// # Errors
    /// A state that is not written by position: going back in it would need what is no longer there.
    pub fn of(graph: &Graph, session: &Session) -> Result<Cache> {
        let ports = &session.schedule().states;
        let mut cache = Cache { states: Vec::new(), rings: Vec::new() };
        for s in graph.states() {
            let name = &*graph.value(s.first).name;
            let slot = ports.iter().position(|p| p.name == name);
            let write = graph
                .producer(s.last)
                .map(|(n, _)| n)
                .filter(|n| &*n.op == "write_kv" && n.inputs.first() == Some(&s.first));
            let (Some(slot), Some(write)) = (slot, write) else {
                let message = format!("the state `{name}` is not a cache of keys or values");
                return Err(Error::Unsupported { message });
            };
            if write.attrs.bool("ring").map_err(|e| Error::value(e.to_string()))? {
                let slots = session.state_dims(slot)?.get(2).copied().unwrap_or(0);
                let ring = Ring { window: window(graph, s.last), slots, kept: 0 };
                if !cache.rings.contains(&ring) {
                    cache.rings.push(ring);
                }
            }
            cache.states.push(slot);
        }
        Ok(cache)
    }

    /// Notes that a step writes every position up to `end`.
    pub fn wrote(&mut self, end: usize) {
        for r in &mut self.rings {
            r.kept = r.kept.max(end.saturating_sub(r.slots));
        }
    }

    /// Goes back to the first `n` positions.
    ///
    /// # Errors
    /// A sliding layer no longer holds what the next token would see.
    pub fn truncate(&mut self, n: usize) -> Result<()> {
        if let Some(r) = self.rings.iter().find(|r| !r.serves(n)) {
            let least = r.window.map_or(String::new(), |w| format!("{} or to ", r.kept + w - 1));
            return Err(Error::value(format!(
                "cannot go back to {n} tokens: layers with a sliding window hold the positions from {} on, enough to go back to \
                 {least}0",
                r.kept
            )));
        }
        for r in &mut self.rings {
            r.kept = r.kept.min(n);
        }
        Ok(())
    }

    /// The first position that each ring still holds.
    pub fn kept(&self) -> Vec<usize> {
        self.rings.iter().map(|r| r.kept).collect()
    }

    /// Takes over what [`Cache::kept`] of another session with `n` positions gave.
    ///
    /// # Errors
    /// Numbers that no session can have.
    pub fn set_kept(&mut self, kept: &[usize], n: usize) -> Result<()> {
        let mut rings = self.rings.clone();
        for (r, k) in rings.iter_mut().zip(kept) {
            r.kept = *k;
            if *k > n || !r.serves(n) {
                let message = format!("a saved state of {n} tokens says that it holds them from {k} on");
                return Err(Error::Format { message, source: None });
            }
        }
        self.rings = rings;
        Ok(())
    }

    /// The parts of the states that `n` positions take.
    ///
    /// # Errors
    /// A state that has no positions.
    pub fn parts(&self, session: &Session, n: usize) -> Result<Vec<Part>> {
        let ports = &session.schedule().states;
        let part = |slot: &usize| {
            let mut dims = session.state_dims(*slot)?;
            let [_, _, slots, _] = &mut dims[..] else {
                let message = format!("the state `{}` has no positions", ports[*slot].name);
                return Err(Error::Shape { message });
            };
            *slots = n.min(*slots);
            Ok(Part { dtype: ports[*slot].ty.dtype, dims })
        };
        self.states.iter().map(part).collect()
    }

    /// Copies of the parts that `n` positions take.
    ///
    /// # Errors
    /// No memory.
    pub fn copy_out(&self, session: &Session, n: usize) -> Result<Vec<(Part, Vec<u8>)>> {
        let parts = self.parts(session, n)?;
        let copy = |(slot, p): (&usize, Part)| {
            let mut to = buffer(&p)?;
            let all = lines(session.state_bytes(*slot), &p);
            for (from, to) in all.zip(to.chunks_exact_mut(p.line().max(1))) {
                session.read_state(*slot, from.start, to)?;
            }
            Ok((p, to))
        };
        self.states.iter().zip(parts).map(copy).collect()
    }

    /// Writes copies that were checked against [`Cache::parts`].
    ///
    /// # Errors
    /// A lost device.
    pub fn copy_in(&self, session: &mut Session, copies: &[(Part, Vec<u8>)]) -> Result<()> {
        for (slot, (p, from)) in self.states.iter().zip(copies) {
            let all = lines(session.state_bytes(*slot), p);
            for (to, from) in all.zip(from.chunks_exact(p.line().max(1))) {
                session.write_state(*slot, to.start, from)?;
            }
        }
        Ok(())
    }
}

/// Where the positions of each head stand in a state of `bytes` bytes.
fn lines(bytes: usize, p: &Part) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
    let (heads, line) = (p.dims[0] * p.dims[1], p.line());
    let whole = bytes / heads.max(1);
    (0..heads).map(move |h| h * whole..h * whole + line)
}

/// The widest window through which an attention reads the ring `state`; `None` if one reads all of it.
fn window(graph: &Graph, state: ValueId) -> Option<usize> {
    let reads = graph.nodes().iter().filter(|n| &*n.op == "attention" && n.inputs[1..3].contains(&state));
    let left = reads.map(|n| n.attrs.int("window_left").unwrap_or(-1)).map(|w| usize::try_from(w).ok());
    left.reduce(|a, b| Some(a?.max(b?))).flatten().map(|w| w + 1)
}
