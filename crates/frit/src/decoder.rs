//! A language model's session: tokens in at positions, logits out. It keeps its scratch, so that a step allocates nothing.

use std::sync::Arc;

use frit_cpu::executor::{Executable, Session};

use crate::error::{Error, Result};

/// The inputs of a text model's graph, by their slots.
struct Slots {
    tokens: usize,
    positions: usize,
    kv_len: usize,
    rows: usize,
    logits: usize,
    t: usize,
    r: usize,
}

/// See the module's page.
pub(crate) struct Decoder {
    session: Session,
    slots: Slots,
    vocabulary: usize,
    ids: Vec<i32>,
    positions: Vec<i32>,
    rows: Vec<i32>,
}

impl Decoder {
    /// A session of `context` positions, for steps of at most `chunk` tokens with at most `rows` rows of logits.
    pub fn new(exe: &Arc<Executable>, context: usize, chunk: usize, rows: usize) -> Result<Decoder> {
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
        Ok(Decoder {
            session: Session::new(exe, &[("C", context as i64)])?,
            slots,
            vocabulary: vocabulary as usize,
            ids: Vec::with_capacity(chunk),
            positions: Vec::with_capacity(chunk),
            rows: Vec::with_capacity(rows),
        })
    }

    /// Runs `tokens` at positions `start`, `start + 1`, … and gives the logits of the tokens numbered `rows` (within this
    /// step), one row of the vocabulary's size each.
    pub fn step(&mut self, tokens: &[u32], start: usize, rows: std::ops::Range<usize>) -> Result<&[f32]> {
        if let Some(bad) = tokens.iter().find(|t| **t as usize >= self.vocabulary) {
            let n = self.vocabulary;
            return Err(Error::value(format!("token {bad} is outside the vocabulary of {n} tokens")));
        }
        self.ids.clear();
        self.ids.extend(tokens.iter().map(|t| *t as i32));
        self.positions.clear();
        self.positions.extend((start..start + tokens.len()).map(|p| p as i32));
        self.rows.clear();
        self.rows.extend(rows.map(|r| r as i32));
        let kv_len = [(start + tokens.len()) as i32];
        let s = &mut self.session;
        s.set_size(self.slots.t, tokens.len() as i64)?;
        s.set_size(self.slots.r, self.rows.len() as i64)?;
        s.set_input(self.slots.tokens, bytemuck::cast_slice(&self.ids))?;
        s.set_input(self.slots.positions, bytemuck::cast_slice(&self.positions))?;
        s.set_input(self.slots.kv_len, bytemuck::cast_slice(&kv_len))?;
        s.set_input(self.slots.rows, bytemuck::cast_slice(&self.rows))?;
        s.run()?;
        let bytes = s.output(self.slots.logits);
        bytemuck::try_cast_slice(bytes).map_err(|e| Error::value(format!("logits: {e}")))
    }

    /// Size of the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Bytes of (arena, KV cache, inputs and outputs).
    pub fn memory(&self) -> (usize, usize, usize) {
        self.session.memory()
    }
}
