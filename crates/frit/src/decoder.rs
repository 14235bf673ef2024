//! A language model's session: tokens in at positions, logits out. It keeps its scratch, so that a step allocates nothing.

use std::iter::repeat_n;
use std::ops::Range;

use crate::backend::{Executable, Session};
use crate::error::{Error, Result};
use crate::trace::Trace;

/// The inputs of a text model's graph, by their slots.
#[derive(Clone, Copy)]
struct Slots {
    tokens: usize,
    positions: usize,
    kv_len: usize,
    rows: usize,
    logits: usize,
    t: usize,
    r: usize,
}

/// What one sequence runs in a step.
pub(crate) struct Part<'a> {
    /// Its tokens; a sequence without any only waits.
    pub tokens: &'a [u32],
    /// Position of the first.
    pub start: usize,
    /// The tokens to give logits for, counted within this step.
    pub logits: Range<usize>,
}

impl Part<'_> {
    /// A sequence that waits.
    pub const IDLE: Part<'static> = Part { tokens: &[], start: 0, logits: 0..0 };
}

/// See the module's page.
pub(crate) struct Decoder {
    session: Session,
    slots: Slots,
    vocabulary: usize,
    batch: usize,
    chunk: usize,
    ids: Vec<i32>,
    positions: Vec<i32>,
    kv_len: Vec<i32>,
    rows: Vec<i32>,
    /// The steps so far, while they are timed.
    trace: Option<Trace>,
}

impl Decoder {
    /// A session of `batch` sequences of `context` positions each, for steps of at most `chunk` tokens with at most `rows` rows of
    /// logits.
    pub fn new(exe: &Executable, batch: usize, context: usize, chunk: usize, rows: usize) -> Result<Decoder> {
        let s = exe.schedule();
        let input = |name: &str| {
            let at = s.inputs.iter().position(|p| p.name == name);
            at.ok_or_else(|| Error::name(format!("the graph of a text model has no input `{name}`")))
        };
        let logits = s.outputs.iter().position(|p| p.name == "logits");
        let logits = logits.ok_or_else(|| Error::name("the graph of a text model has no output `logits`"))?;
        let vocabulary = s.outputs[logits].ty.shape.last().and_then(|d| d.as_const()).unwrap_or(0);
        let slots = Slots {
            tokens: input("tokens")?,
            positions: input("positions")?,
            kv_len: input("kv_len")?,
            rows: input("rows")?,
            logits,
            t: exe.symbol("T")?,
            r: exe.symbol("R")?,
        };
        // A graph for one sequence at a time has no symbol for their number.
        let mut fixed = vec![("C", context as i64)];
        fixed.extend(exe.symbol("B").is_ok().then_some(("B", batch as i64)));
        Ok(Decoder {
            session: exe.session(&fixed)?,
            slots,
            vocabulary: vocabulary as usize,
            batch,
            chunk,
            ids: Vec::with_capacity(chunk.max(batch)),
            positions: Vec::with_capacity(chunk.max(batch)),
            kv_len: Vec::with_capacity(batch),
            rows: Vec::with_capacity(rows.max(batch)),
            trace: None,
        })
    }

    /// Another one with its state zeroed.
    pub fn fresh(&self) -> Result<Decoder> {
        Ok(Decoder {
            session: self.session.fresh()?,
            ids: Vec::with_capacity(self.ids.capacity()),
            positions: Vec::with_capacity(self.positions.capacity()),
            kv_len: Vec::with_capacity(self.kv_len.capacity()),
            rows: Vec::with_capacity(self.rows.capacity()),
            trace: None,
            ..*self
        })
    }

    /// Runs `tokens` of the only sequence at positions `start`, `start + 1`, … and gives the logits of the tokens numbered `rows`
    /// (within this step), one row of the vocabulary's size each.
    pub fn step(&mut self, tokens: &[u32], start: usize, rows: Range<usize>) -> Result<&[f32]> {
        self.step_all(&[Part { tokens, start, logits: rows }])
    }

    /// Runs a part of every sequence and gives the logits asked for, in the order of the parts.
    ///
    /// Shorter parts are padded on the left: position −1 is not written, and what the padding computes is not read.
    pub fn step_all(&mut self, parts: &[Part<'_>]) -> Result<&[f32]> {
        let asked = self.set(parts)?;
        match &mut self.trace {
            None => self.session.run()?,
            Some(trace) => trace.append(self.session.run_timed()?),
        }
        self.logits(asked)
    }

    /// The first rows of logits of the last step.
    pub fn logits(&self, rows: usize) -> Result<&[f32]> {
        let logits: &[f32] = bytemuck::try_cast_slice(self.session.output(self.slots.logits))
            .map_err(|e| Error::value(format!("logits: {e}")))?;
        Ok(&logits[..rows * self.vocabulary])
    }

    /// Sets sizes and inputs for a step of these parts, and gives how many rows of logits they ask for.
    fn set(&mut self, parts: &[Part<'_>]) -> Result<usize> {
        let vocabulary = self.vocabulary;
        if let Some(bad) = parts.iter().flat_map(|p| p.tokens).find(|t| **t as usize >= vocabulary) {
            return Err(Error::value(format!(
                "token {bad} is outside the vocabulary of {vocabulary} tokens"
            )));
        }
        let t = parts.iter().map(|p| p.tokens.len()).max().unwrap_or(0);
        self.ids.clear();
        self.positions.clear();
        self.kv_len.clear();
        self.rows.clear();
        for (b, p) in parts.iter().enumerate() {
            let (n, pad) = (p.tokens.len(), t - p.tokens.len());
            self.ids.extend(repeat_n(0, pad).chain(p.tokens.iter().map(|t| *t as i32)));
            self.positions.extend(repeat_n(-1, pad).chain((p.start..p.start + n).map(|p| p as i32)));
            self.kv_len.push(if n == 0 { 0 } else { (p.start + n) as i32 });
            self.rows.extend(p.logits.clone().map(|i| (b * t + pad + i) as i32));
        }
        let asked = self.rows.len();
        if asked == 0 {
            // The graph gives at least one row.
            self.rows.push(0);
        }
        let s = &mut self.session;
        s.set_size(self.slots.t, t as i64)?;
        s.set_size(self.slots.r, self.rows.len() as i64)?;
        s.set_input(self.slots.tokens, bytemuck::cast_slice(&self.ids))?;
        s.set_input(self.slots.positions, bytemuck::cast_slice(&self.positions))?;
        s.set_input(self.slots.kv_len, bytemuck::cast_slice(&self.kv_len))?;
        s.set_input(self.slots.rows, bytemuck::cast_slice(&self.rows))?;
        Ok(asked)
    }

    /// Times the next steps until [`Decoder::end_trace`].
    pub fn start_trace(&mut self) {
        self.trace = Some(Trace::default());
    }

    /// What was timed since [`Decoder::start_trace`].
    pub fn end_trace(&mut self) -> Trace {
        self.trace.take().unwrap_or_default()
    }

    /// Size of the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Sequences.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Tokens of each sequence that one step takes, if all have as many.
    pub fn chunk(&self) -> usize {
        (self.chunk / self.batch).max(1)
    }

    /// The session beneath.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The session beneath, to write its states.
    pub fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Bytes of (arena, KV cache, inputs and outputs).
    pub fn memory(&self) -> (usize, usize, usize) {
        self.session.memory()
    }
}
