//! Several texts at once: a [`Batch`] runs a row of tokens of each in one step, so that weights are read once for all of them.

use std::collections::VecDeque;

use frit_models::generate::Generation;

use crate::decoder::{Decoder, Part};
use crate::error::{Error, Result};
use crate::generator::{self, Cancel, End, Options, Piece, Text};
use crate::model::Model;

/// A text to generate: its prompt, its own options and its own cancel handle.
#[derive(Clone, Debug)]
pub struct Request {
    prompt: Prompt,
    options: Option<Options>,
    cancel: Cancel,
}

#[derive(Clone, Debug)]
enum Prompt {
    Tokens(Vec<u32>),
    #[cfg(feature = "text")]
    Text(String),
}

impl Request {
    fn new(prompt: Prompt) -> Request {
        Request { prompt, options: None, cancel: Cancel::new() }
    }

    /// Continues `tokens`.
    pub fn tokens(tokens: impl Into<Vec<u32>>) -> Request {
        Request::new(Prompt::Tokens(tokens.into()))
    }

    /// Continues `text`.
    #[cfg(feature = "text")]
    pub fn text(text: impl Into<String>) -> Request {
        Request::new(Prompt::Text(text.into()))
    }

    /// With options of its own instead of the batch's. `context` is the batch's all the same.
    pub fn options(mut self, options: Options) -> Request {
        self.options = Some(options);
        self
    }

    /// A handle that ends this text within one step, from any thread.
    pub fn cancel(&self) -> Cancel {
        self.cancel.clone()
    }
}

/// Room for several sequences of one model: owns their KV caches, holds the model, may move between threads.
///
/// A step computes as many tokens for every sequence as the one with the most has to run, so prompts of like lengths belong
/// together.
///
/// Which tokens share a step changes the rounding of logits a little (with the default activations and cache by up to 0.01 on
/// SmolLM2-135M). The most likely token is the same but for ties; at a temperature above 0 a text can part from what its
/// request gives alone.
pub struct Batch {
    model: Model,
    options: Options,
    decoder: Decoder,
    context: usize,
}

impl Batch {
    pub(crate) fn new(model: &Model, rows: usize, options: Options) -> Result<Batch> {
        let limits = model.limits();
        if rows == 0 || rows > limits.batch {
            let most = limits.batch;
            return Err(Error::value(format!(
                "a batch of {rows} sequences; this model was loaded for 1 to {most} (load option `batch`)"
            )));
        }
        let context = generator::context_of(model, &options)?;
        let exe = model.compiled().executable();
        let decoder = Decoder::new(exe, rows, context, limits.chunk, limits.rows)?;
        Ok(Batch { model: model.clone(), options, decoder, context })
    }

    /// Sequences that run at once.
    pub fn rows(&self) -> usize {
        self.decoder.batch()
    }

    /// Positions of each sequence.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Bytes this batch holds: (arena, KV caches, inputs and outputs).
    pub fn memory(&self) -> (usize, usize, usize) {
        self.decoder.memory()
    }

    /// Generates the texts of `requests`, each from an empty context. There may be more of them than rows: a row whose text has
    /// ended takes the next.
    ///
    /// # Errors
    /// As [`Generator::complete`](crate::Generator::complete) for the first request that cannot start; its number, counted from 0, is named.
    pub fn generate(&mut self, requests: impl IntoIterator<Item = Request>) -> Result<BatchReply<'_>> {
        let sizes = (self.context, self.decoder.chunk());
        let start = |r: Request| {
            let tokens = match r.prompt {
                Prompt::Tokens(t) => t,
                #[cfg(feature = "text")]
                Prompt::Text(t) => generator::encode(&self.model, &t)?,
            };
            let options = r.options.as_ref().unwrap_or(&self.options);
            let generation = generator::start(&self.model, &tokens, 0, options, sizes, &r.cancel)?;
            Ok(Run { generation, text: Text::new(&self.model), failed: false })
        };
        let numbered = |(i, r)| start(r).map_err(|e: Error| e.within(&format!("request {i}")));
        let runs = requests.into_iter().enumerate().map(numbered).collect::<Result<Vec<_>>>()?;
        let rows = vec![None; self.rows()];
        Ok(BatchReply { batch: self, runs, rows, next: 0, ready: VecDeque::new(), failed: false })
    }
}

/// A text being generated.
struct Run {
    generation: Generation,
    text: Text,
    /// No token could be chosen.
    failed: bool,
}

impl Run {
    /// Whether it has a step to run; if not, what is still held back of its text.
    fn ready(&mut self) -> (bool, Option<Result<Piece>>) {
        if self.failed {
            return (false, None);
        }
        if self.generation.next_step().is_some() {
            return (true, None);
        }
        let text = &mut self.text;
        let last = self.generation.last_piece(|t| text.push(t)).map_err(generator::failure);
        (false, last.transpose())
    }
}

/// Texts being generated: an iterator of (number of the request, piece). Dropping it early leaves the batch usable.
pub struct BatchReply<'a> {
    batch: &'a mut Batch,
    runs: Vec<Run>,
    /// Which of `runs` each row works on.
    rows: Vec<Option<usize>>,
    /// The first of `runs` that has had no row yet.
    next: usize,
    ready: VecDeque<Result<(usize, Piece)>>,
    failed: bool,
}

impl BatchReply<'_> {
    /// Runs what is left and gives how each text ended, in the order of the requests.
    ///
    /// # Errors
    /// The first failure of a step or of a text.
    pub fn finish(mut self) -> Result<Vec<End>> {
        for piece in &mut self {
            piece?;
        }
        Ok(self.runs.iter().map(|r| generator::end(&r.generation)).collect())
    }

    /// Gives every row a text that has a step to run, as far as there are any. Whether any has.
    fn assign(&mut self) -> bool {
        for row in &mut self.rows {
            loop {
                let Some(i) = *row else {
                    if self.next == self.runs.len() {
                        break;
                    }
                    *row = Some(self.next);
                    self.next += 1;
                    continue;
                };
                let (more, last) = self.runs[i].ready();
                self.ready.extend(last.map(|p| p.map(|p| (i, p))));
                if more {
                    break;
                }
                *row = None;
            }
        }
        self.rows.iter().any(Option::is_some)
    }

    /// Runs one step of every row.
    fn step(&mut self) -> Result<()> {
        let BatchReply { batch, runs, rows, ready, .. } = self;
        let part = |row: &Option<usize>| {
            row.map_or(Part::IDLE, |i| {
                let s = runs[i].generation.step();
                let n = s.tokens.len();
                Part { tokens: s.tokens, start: s.start, logits: if s.logits { n - 1..n } else { n..n } }
            })
        };
        let parts: Vec<Part<'_>> = rows.iter().map(part).collect();
        let vocabulary = batch.decoder.vocabulary();
        let mut logits = batch.decoder.step_all(&parts)?;
        for i in rows.iter().flatten() {
            let r = &mut runs[*i];
            let wanted = if r.generation.step().logits { vocabulary } else { 0 };
            let (own, rest) = logits.split_at(wanted);
            logits = rest;
            let text = &mut r.text;
            let piece = r.generation.take_logits(own, |t| text.push(t)).map_err(generator::failure);
            r.failed = piece.is_err();
            ready.extend(piece.transpose().map(|p| p.map(|p| (*i, p))));
        }
        Ok(())
    }
}

impl Iterator for BatchReply<'_> {
    type Item = Result<(usize, Piece)>;

    fn next(&mut self) -> Option<Result<(usize, Piece)>> {
        loop {
            if let Some(p) = self.ready.pop_front() {
                return Some(p);
            }
            if self.failed {
                return None;
            }
            if self.assign() {
                if let Err(e) = self.step() {
                    self.failed = true;
                    return Some(Err(e));
                }
            } else if self.ready.is_empty() {
                return None;
            }
        }
    }
}
