//! Text generation: a [`Generator`] owns its session, a [`Reply`] streams one text.

use frit_models::generate::{self, GenerateError, Generation};

use crate::decoder::Decoder;
use crate::error::{Error, Result};
use crate::model::Model;
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
    context: usize,
    used: usize,
    cancel: Cancel,
}

impl Generator {
    pub(crate) fn new(model: &Model, options: Options) -> Result<Generator> {
        let limits = model.limits();
        let context = options.context.unwrap_or(limits.context);
        if context == 0 || context > limits.context {
            let most = limits.context;
            return Err(Error::value(format!(
                "`context` is {context}; this model was loaded for 1 to {most} positions"
            )));
        }
        options.sampling.check().map_err(|e| Error::value(e.to_string()))?;
        let decoder = Decoder::new(model.compiled().executable(), context, limits.chunk, limits.rows)?;
        Ok(Generator { model: model.clone(), options, decoder, context, used: 0, cancel: Cancel::new() })
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
        self.used
    }

    /// Whether no position is in use.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Positions there are.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Forgets everything: the next reply starts at position 0.
    pub fn clear(&mut self) {
        self.used = 0;
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
        let tokenizer = self.model.tokenizer()?;
        let ids = tokenizer.encode(text, EncodeOptions { add_special: true, ..EncodeOptions::default() });
        let ids = ids.map_err(Error::format)?;
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
        let limits = self.model.limits();
        let mut o = generate::GenerateOptions::new(self.context, limits.chunk)
            .max_tokens(self.options.max_tokens)
            .stop(self.options.stop.clone())
            .sampling(self.options.sampling.clone());
        o.log_probs = self.options.log_probs;
        if !self.options.ignore_end {
            o.end_tokens = self.model.end_tokens().to_vec();
        }
        let base = self.used;
        let generation = Generation::new(tokens, base, o, self.cancel.clone()).map_err(|e| match e {
            generate::StartError::PromptTooLong { prompt, used, context } => {
                Error::ContextFull { capacity: context, needed: prompt + used }
            }
            e => Error::value(e.to_string()),
        })?;
        let text = Text::new(&self.model);
        if let Some(bad) = tokens.iter().find(|t| **t as usize >= self.decoder.vocabulary()) {
            let n = self.decoder.vocabulary();
            return Err(Error::value(format!("token {bad} is outside the vocabulary of {n} tokens")));
        }
        Ok(Reply { generator: self, generation, text, base })
    }

    /// Runs `tokens` behind what the context holds and gives the logits of the last one.
    ///
    /// # Errors
    /// [`Error::Value`] for no tokens or one outside the vocabulary, [`Error::ContextFull`].
    pub fn feed(&mut self, tokens: &[u32]) -> Result<&[f32]> {
        let needed = self.used + tokens.len();
        if needed > self.context {
            return Err(Error::ContextFull { capacity: self.context, needed });
        }
        let Some(last) = tokens.len().checked_sub(1) else {
            return Err(Error::value("no tokens were given"));
        };
        let chunk = self.model.limits().chunk;
        let mut at = 0;
        while at + chunk <= last {
            self.decoder.step(&tokens[at..at + chunk], self.used, 0..1)?;
            at += chunk;
            self.used += chunk;
        }
        let rest = &tokens[at..];
        let logits = self.decoder.step(rest, self.used, rest.len() - 1..rest.len())?;
        self.used = needed;
        Ok(logits)
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
        let needed = self.used + tokens.len();
        if needed > self.context {
            return Err(Error::ContextFull { capacity: self.context, needed });
        }
        let logits = self.decoder.step(tokens, self.used, 0..tokens.len())?;
        self.used = needed;
        Ok(logits)
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
            let logits = self.decoder.step(part, self.used, 0..part.len())?;
            self.used += part.len();
            for (i, row) in logits.chunks_exact(vocabulary).enumerate() {
                let Some(next) = tokens.get(self.used - part.len() + i + 1) else { break };
                let p =
                    frit_models::sampling::log_prob(row, *next).map_err(|e| Error::value(e.to_string()))?;
                out.push(p);
            }
        }
        Ok(out)
    }
}

/// Text of a reply: nothing without a tokenizer.
struct Text {
    #[cfg(feature = "text")]
    stream: Option<TokenStream>,
}

impl Text {
    #[cfg(feature = "text")]
    fn new(model: &Model) -> Text {
        Text { stream: model.tokenizer().ok().map(|t| TokenStream::new(t.clone())) }
    }

    #[cfg(not(feature = "text"))]
    fn new(_: &Model) -> Text {
        Text {}
    }

    #[cfg(feature = "text")]
    fn push(&mut self, token: Option<u32>) -> Result<String> {
        match (&mut self.stream, token) {
            (Some(s), Some(t)) => s.push(t).map(str::to_owned).map_err(Error::format),
            (Some(s), None) => Ok(s.finish().to_owned()),
            (None, _) => Ok(String::new()),
        }
    }

    #[cfg(not(feature = "text"))]
    fn push(&mut self, _: Option<u32>) -> Result<String> {
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
        let reason = self.generation.stop_reason().cloned().unwrap_or(StopReason::Cancelled);
        let tokens = self.generation.generated().to_vec();
        Ok(End { reason, stats: self.generation.stats().clone(), tokens })
    }
}

impl Iterator for Reply<'_> {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Result<Piece>> {
        let text = &mut self.text;
        let piece = self.generation.advance(
            &mut self.generator.decoder,
            |decoder, step| {
                let n = step.tokens.len();
                decoder.step(step.tokens, step.start, n - 1..n)
            },
            |token| text.push(token),
        );
        self.generator.used = self.base + self.generation.cached().len();
        match piece {
            Ok(p) => p.map(Ok),
            Err(GenerateError::Caller(e)) => Some(Err(e)),
            Err(GenerateError::Sampling(e)) => Some(Err(Error::value(e.to_string()))),
        }
    }
}
