//! Text generation: a [`Generator`] owns its session, a [`Reply`] streams one text.

use frit_models::generate::{self, GenerateError, Generation};

use std::io::{Read, Write};

use crate::cache::Cache;
use crate::decoder::Decoder;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::snapshot::{Snapshot, Taker};
use crate::trace::Trace;
#[cfg(feature = "text")]
use frit_formats::tokenizer::{EncodeOptions, TokenStream};

pub use frit_models::generate::{Cancel, Piece, Stats, StopReason};
pub use frit_models::sampling::SamplingOptions;

/// How text is generated. Start from `Options::default()` and set what differs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Tokens generated at most.
    pub max_tokens: usize,
    /// How tokens are chosen; greedy by default.
    pub sampling: SamplingOptions,
    /// Strings that end the text. They are not part of it.
    pub stop: Vec<String>,
    /// `Some(n)`: each piece carries its log-probability and the `n` most likely tokens.
    pub log_probs: Option<usize>,
    /// Go on past the model's end-of-text tokens.
    pub ignore_end: bool,
    /// Positions of this generator's KV cache; `None` takes the model's `context`.
    pub context: Option<usize>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            max_tokens: 256,
            sampling: SamplingOptions::default(),
            stop: Vec::new(),
            log_probs: None,
            ignore_end: false,
            context: None,
        }
    }
}

impl Options {
    /// With at most `n` tokens.
    pub fn max_tokens(mut self, n: usize) -> Self {
        self.max_tokens = n;
        self
    }

    /// With these sampling options.
    pub fn sampling(mut self, s: SamplingOptions) -> Self {
        self.sampling = s;
        self
    }

    /// With these stop strings.
    pub fn stop(mut self, stop: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.stop = stop.into_iter().map(Into::into).collect();
        self
    }

    /// With log-probabilities, and those of the `n` most likely tokens.
    pub fn log_probs(mut self, n: usize) -> Self {
        self.log_probs = Some(n);
        self
    }

    /// Whether to go on past end-of-text tokens.
    pub fn ignore_end(mut self, yes: bool) -> Self {
        self.ignore_end = yes;
        self
    }

    /// With a KV cache of `n` positions.
    pub fn context(mut self, n: usize) -> Self {
        self.context = Some(n);
        self
    }
}

/// One user of a text model: owns its KV cache, holds the model, may move between threads.
pub struct Generator {
    model: Model,
    options: Options,
    decoder: Decoder,
    cache: Cache,
    context: usize,
    /// The tokens that stand at positions 0, 1, …
    tokens: Vec<u32>,
    cancel: Cancel,
}

impl Generator {
    pub(crate) fn new(model: &Model, options: Options) -> Result<Generator> {
        let limits = model.limits();
        let context = context_of(model, &options)?;
        let exe = model.compiled().executable();
        let decoder = Decoder::new(exe, 1, context, limits.chunk, limits.rows)?;
        let cache = Cache::of(model.graph(), decoder.session())?;
        let (model, tokens, cancel) = (model.clone(), Vec::with_capacity(context), Cancel::new());
        Ok(Generator { model, options, decoder, cache, context, tokens, cancel })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Sets how the next replies choose their tokens.
    ///
    /// # Errors
    /// [`Error::Value`] for an option out of range; nothing is changed then.
    pub fn set_sampling(&mut self, sampling: SamplingOptions) -> Result<()> {
        sampling.check().map_err(|e| Error::value(e.to_string()))?;
        self.options.sampling = sampling;
        Ok(())
    }

    /// A handle that stops the current and the next reply within one step, from any thread, until it is reset by
    /// [`Generator::reset_cancel`].
    pub fn cancel(&self) -> Cancel {
        self.cancel.clone()
    }

    /// Makes a new cancel handle; earlier ones no longer act on this generator.
    pub fn reset_cancel(&mut self) -> Cancel {
        self.cancel = Cancel::new();
        self.cancel.clone()
    }

    /// Positions in use.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether no position is in use.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The tokens that the context holds, one for each position in use.
    pub fn history(&self) -> &[u32] {
        &self.tokens
    }

    /// Positions there are.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Forgets everything: the next reply starts at position 0.
    pub fn clear(&mut self) {
        // Nothing before position 0 is ever needed.
        let _ = self.truncate(0);
    }

    /// Forgets all but the first `n` tokens. What was computed for those is kept.
    ///
    /// Layers with a sliding window keep their window and one step's tokens more, so a model with such layers can always go
    /// back by [`LoadOptions::chunk`](crate::LoadOptions) tokens, by more while less than window + chunk tokens have been run, and to 0.
    ///
    /// # Errors
    /// [`Error::Value`] for more tokens than there are, or fewer than the sliding layers can go back to; nothing is changed then.
    pub fn truncate(&mut self, n: usize) -> Result<()> {
        if n > self.len() {
            let have = self.len();
            return Err(Error::value(format!("cannot go back to {n} tokens: there are {have}")));
        }
        self.cache.truncate(n)?;
        self.tokens.truncate(n);
        Ok(())
    }

    /// A copy of the state: the tokens and what was computed for them.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn snapshot(&self) -> Result<Snapshot> {
        Ok(Snapshot {
            identity: self.model.compiled().identity(),
            tokens: Some(self.tokens.clone()),
            kept: self.cache.kept(),
            states: self.cache.copy_out(self.decoder.session(), self.len())?,
        })
    }

    /// Goes on from a snapshot that any generator of the same model made.
    ///
    /// # Errors
    /// [`Error::Value`] for another model's, [`Error::WrongTask`] for a session's, [`Error::ContextFull`] for more tokens than this
    /// generator's context holds; nothing is changed then.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<()> {
        snapshot.check(&self.taker())?;
        self.take(snapshot)
    }

    /// Another generator with the same options and a copy of the state; it has a cancel handle of its own.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn fork(&self) -> Result<Generator> {
        let mut decoder = self.decoder.fresh()?;
        let copies = self.cache.copy_out(self.decoder.session(), self.len())?;
        self.cache.copy_in(decoder.session_mut(), &copies)?;
        let mut tokens = Vec::with_capacity(self.context);
        tokens.extend_from_slice(&self.tokens);
        Ok(Generator {
            model: self.model.clone(),
            options: self.options.clone(),
            decoder,
            cache: self.cache.clone(),
            context: self.context,
            tokens,
            cancel: Cancel::new(),
        })
    }

    /// Writes the state, to be read by [`Generator::load`] of the same model loaded with the same options.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::OutOfMemory`].
    pub fn save(&self, writer: impl Write) -> Result<()> {
        self.snapshot()?.write(writer)
    }

    /// Goes on from a state that [`Generator::save`] wrote. It reads in small pieces: wrap a file in a `BufReader`.
    ///
    /// # Errors
    /// As [`Generator::restore`]; [`Error::Format`] for bytes that are no saved state, cut short or changed, [`Error::Unsupported`] for
    /// another version of the format, [`Error::Io`]. Nothing is changed then.
    pub fn load(&mut self, reader: impl Read) -> Result<()> {
        let snapshot = Snapshot::read(reader, &self.taker())?;
        self.take(&snapshot)
    }

    fn taker(&self) -> Taker<'_> {
        Taker {
            identity: self.model.compiled().identity(),
            limits: Some((self.context, self.decoder.vocabulary())),
            rings: self.cache.kept().len(),
            parts: Box::new(|n| self.cache.parts(self.decoder.session(), n)),
        }
    }

    /// Takes over a snapshot that was checked.
    fn take(&mut self, s: &Snapshot) -> Result<()> {
        self.cache.set_kept(&s.kept, s.tokens().len())?;
        self.cache.copy_in(self.decoder.session_mut(), &s.states)?;
        self.tokens.clear();
        self.tokens.extend_from_slice(s.tokens());
        Ok(())
    }

    /// Bytes this generator holds: (arena, KV cache, inputs and outputs).
    pub fn memory(&self) -> (usize, usize, usize) {
        self.decoder.memory()
    }

    /// Size of the vocabulary: the length of a row of logits.
    pub fn vocabulary(&self) -> usize {
        self.decoder.vocabulary()
    }

    /// Continues `text` from an empty context.
    ///
    /// # Errors
    /// [`Error::WrongTask`] without a tokenizer, [`Error::Value`] for an empty prompt, [`Error::ContextFull`] for one that
    /// does not fit.
    #[cfg(feature = "text")]
    pub fn complete(&mut self, text: &str) -> Result<Reply<'_>> {
        let ids = encode(&self.model, text)?;
        self.tokens(&ids)
    }

    /// Continues `tokens` from an empty context. Works without a tokenizer; pieces then have tokens but no text.
    ///
    /// # Errors
    /// [`Error::Value`] for an empty prompt, [`Error::ContextFull`] for one that does not fit.
    pub fn tokens(&mut self, tokens: &[u32]) -> Result<Reply<'_>> {
        self.clear();
        self.append(tokens)
    }

    /// Continues `tokens` behind what the context already holds.
    ///
    /// # Errors
    /// As [`Generator::tokens`].
    pub fn append(&mut self, tokens: &[u32]) -> Result<Reply<'_>> {
        let base = self.len();
        let chunk = self.model.limits().chunk;
        let generation =
            start(&self.model, tokens, base, &self.options, (self.context, chunk), &self.cancel)?
                .after(&self.tokens);
        let text = Text::new(&self.model);
        Ok(Reply { generator: self, generation, text, base })
    }

    /// One step of tokens behind what the context holds.
    fn step(&mut self, tokens: &[u32], rows: std::ops::Range<usize>) -> Result<&[f32]> {
        self.cache.wrote(self.tokens.len() + tokens.len());
        let logits = self.decoder.step(tokens, self.tokens.len(), rows)?;
        self.tokens.extend_from_slice(tokens);
        Ok(logits)
    }

    /// Runs `tokens` behind what the context holds and gives the logits of the last one.
    ///
    /// # Errors
    /// [`Error::Value`] for no tokens or one outside the vocabulary, [`Error::ContextFull`].
    pub fn feed(&mut self, tokens: &[u32]) -> Result<&[f32]> {
        let needed = self.len() + tokens.len();
        if needed > self.context {
            return Err(Error::ContextFull { capacity: self.context, needed });
        }
        let Some(last) = tokens.len().checked_sub(1) else {
            return Err(Error::value("no tokens were given"));
        };
        let chunk = self.model.limits().chunk;
        let mut at = 0;
        while at + chunk <= last {
            self.step(&tokens[at..at + chunk], 0..1)?;
            at += chunk;
        }
        let rest = &tokens[at..];
        self.step(rest, rest.len() - 1..rest.len())
    }

    /// As [`Generator::feed`], noting when each step of each run runs: one run for every `chunk` tokens. Slower.
    ///
    /// # Errors
    /// As [`Generator::feed`].
    pub fn feed_timed(&mut self, tokens: &[u32]) -> Result<(&[f32], Trace)> {
        self.decoder.start_trace();
        let fed = self.feed(tokens).map(drop);
        let trace = self.decoder.end_trace();
        fed?;
        Ok((self.decoder.logits(1)?, trace))
    }

    /// Runs `tokens` behind what the context holds and gives the logits of every one, a row of the vocabulary's size each.
    ///
    /// # Errors
    /// As [`Generator::feed`]; [`Error::Value`] for more tokens than the model was loaded for (`rows` and `chunk`).
    pub fn feed_all(&mut self, tokens: &[u32]) -> Result<&[f32]> {
        let limits = self.model.limits();
        let most = limits.rows.min(limits.chunk);
        if tokens.is_empty() || tokens.len() > most {
            let n = tokens.len();
            return Err(Error::value(format!(
                "{n} tokens were given; this model was loaded for 1 to {most} rows"
            )));
        }
        let needed = self.len() + tokens.len();
        if needed > self.context {
            return Err(Error::ContextFull { capacity: self.context, needed });
        }
        self.step(tokens, 0..tokens.len())
    }

    /// Runs `tokens` from an empty context and gives the natural log-probability of each token after the first, given those
    /// before it. Logits are computed for `rows` (see [`LoadOptions`](crate::LoadOptions)) tokens at a time.
    ///
    /// # Errors
    /// As [`Generator::feed`].
    pub fn score(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.clear();
        if tokens.len() > self.context {
            return Err(Error::ContextFull { capacity: self.context, needed: tokens.len() });
        }
        let (limits, vocabulary) = (self.model.limits(), self.decoder.vocabulary());
        let mut out = Vec::with_capacity(tokens.len());
        for part in tokens.chunks(limits.rows.min(limits.chunk)) {
            let at = self.len();
            let logits = self.step(part, 0..part.len())?;
            for (i, row) in logits.chunks_exact(vocabulary).enumerate() {
                let Some(next) = tokens.get(at + i + 1) else { break };
                let p =
                    frit_models::sampling::log_prob(row, *next).map_err(|e| Error::value(e.to_string()))?;
                out.push(p);
            }
        }
        Ok(out)
    }
}

/// The number of positions that `options` ask for.
pub(crate) fn context_of(model: &Model, options: &Options) -> Result<usize> {
    let most = model.limits().context;
    let context = options.context.unwrap_or(most);
    if context == 0 || context > most {
        let why = format!("`context` is {context}; this model was loaded for 1 to {most} positions");
        return Err(Error::value(why));
    }
    options.sampling.check().map_err(|e| Error::value(e.to_string()))?;
    Ok(context)
}

/// Checks a prompt that goes behind `base` positions, for steps of `chunk` tokens in a context of so many positions.
pub(crate) fn start(
    model: &Model,
    tokens: &[u32],
    base: usize,
    options: &Options,
    (context, chunk): (usize, usize),
    cancel: &Cancel,
) -> Result<Generation> {
    let mut o = generate::GenerateOptions::new(context, chunk)
        .max_tokens(options.max_tokens)
        .stop(options.stop.clone())
        .sampling(options.sampling.clone());
    o.log_probs = options.log_probs;
    if !options.ignore_end {
        o.end_tokens = model.end_tokens().to_vec();
    }
    if let Some(bad) = tokens.iter().find(|t| **t as usize >= model.vocabulary()) {
        let n = model.vocabulary();
        return Err(Error::value(format!("token {bad} is outside the vocabulary of {n} tokens")));
    }
    Generation::new(tokens, base, o, cancel.clone()).map_err(|e| match e {
        generate::StartError::PromptTooLong { prompt, used, context } => {
            Error::ContextFull { capacity: context, needed: prompt + used }
        }
        e => Error::value(e.to_string()),
    })
}

/// The error of the public API.
pub(crate) fn failure(e: GenerateError<Error>) -> Error {
    match e {
        GenerateError::Caller(e) => e,
        GenerateError::Sampling(e) => Error::value(e.to_string()),
    }
}

/// The end of a generation that has ended.
pub(crate) fn end(g: &Generation) -> End {
    let reason = g.stop_reason().cloned().unwrap_or(StopReason::Cancelled);
    End { reason, stats: g.stats().clone(), tokens: g.generated().to_vec() }
}

/// The tokens of a prompt in words.
#[cfg(feature = "text")]
pub(crate) fn encode(model: &Model, text: &str) -> Result<Vec<u32>> {
    let options = EncodeOptions { add_special: true, ..EncodeOptions::default() };
    model.tokenizer()?.encode(text, options).map_err(Error::from)
}

/// Text of a reply: nothing without a tokenizer.
pub(crate) struct Text {
    #[cfg(feature = "text")]
    stream: Option<TokenStream>,
}

impl Text {
    #[cfg(feature = "text")]
    pub fn new(model: &Model) -> Text {
        Text { stream: model.tokenizer().ok().map(|t| TokenStream::new(t.clone())) }
    }

    #[cfg(not(feature = "text"))]
    pub fn new(_: &Model) -> Text {
        Text {}
    }

    #[cfg(feature = "text")]
    pub fn push(&mut self, token: Option<u32>) -> Result<String> {
        match (&mut self.stream, token) {
            (Some(s), Some(t)) => s.push(t).map(str::to_owned).map_err(Error::from),
            (Some(s), None) => Ok(s.finish().to_owned()),
            (None, _) => Ok(String::new()),
        }
    }

    #[cfg(not(feature = "text"))]
    pub fn push(&mut self, _: Option<u32>) -> Result<String> {
        Ok(String::new())
    }
}

/// A text being generated: an iterator of pieces. Dropping it early leaves the generator usable.
pub struct Reply<'a> {
    generator: &'a mut Generator,
    generation: Generation,
    text: Text,
    base: usize,
}

/// How a reply ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct End {
    /// Why.
    pub reason: StopReason,
    /// Counts and times.
    pub stats: Stats,
    /// The tokens generated, without an end token.
    pub tokens: Vec<u32>,
}

impl Reply<'_> {
    /// A handle that stops this reply within one step, from any thread.
    pub fn cancel(&self) -> Cancel {
        self.generator.cancel()
    }

    /// Runs what is left and gives how the reply ended.
    ///
    /// # Errors
    /// A step that failed.
    pub fn finish(mut self) -> Result<End> {
        for piece in &mut self {
            piece?;
        }
        Ok(end(&self.generation))
    }
}

impl Iterator for Reply<'_> {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Result<Piece>> {
        let text = &mut self.text;
        let Generator { decoder, cache, tokens, .. } = &mut *self.generator;
        let piece = self.generation.advance(
            &mut (decoder, cache),
            |(decoder, cache), step| {
                let n = step.tokens.len();
                cache.wrote(step.start + n);
                decoder.step(step.tokens, step.start, n - 1..n)
            },
            |token| text.push(token),
        );
        let ran = self.generation.cached();
        tokens.extend_from_slice(&ran[tokens.len() - self.base..]);
        piece.map_err(failure).transpose()
    }
}
