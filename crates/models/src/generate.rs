//! Generation: prompts in chunks, one token after another, stop conditions. It knows neither executor nor tokenizer: a
//! step function runs the model, a text function turns tokens into text.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::sampling::{Sampler, SamplingError, SamplingOptions, log_prob, top_log_probs};
use crate::stop::StopStrings;

/// How a text is continued.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GenerateOptions {
    /// Tokens generated at most; 0 only runs the prompt.
    pub max_tokens: usize,
    /// Tokens that end the text. They are not part of it.
    pub end_tokens: Vec<u32>,
    /// Strings that end the text. They are not part of it. None may be empty.
    pub stop: Vec<String>,
    /// How tokens are chosen.
    pub sampling: SamplingOptions,
    /// `Some(n)`: give the log-probability of each token, and of the `n` most likely ones in its place (under softmax
    /// of the model's logits, before any sampling filter).
    pub log_probs: Option<usize>,
    /// Positions that the session holds.
    pub context: usize,
    /// Tokens that one step takes at most.
    pub chunk: usize,
}

impl GenerateOptions {
    /// Greedy, 256 tokens at most, no stop condition, for a session of `context` positions and steps of `chunk` tokens.
    pub fn new(context: usize, chunk: usize) -> GenerateOptions {
        GenerateOptions {
            max_tokens: 256,
            end_tokens: Vec::new(),
            stop: Vec::new(),
            sampling: SamplingOptions::default(),
            log_probs: None,
            context,
            chunk,
        }
    }

    /// With another limit on the number of tokens.
    pub fn max_tokens(self, max_tokens: usize) -> GenerateOptions {
        GenerateOptions { max_tokens, ..self }
    }

    /// With other end tokens.
    pub fn end_tokens(self, end_tokens: Vec<u32>) -> GenerateOptions {
        GenerateOptions { end_tokens, ..self }
    }

    /// With other stop strings.
    pub fn stop(self, stop: Vec<String>) -> GenerateOptions {
        GenerateOptions { stop, ..self }
    }

    /// With other sampling options.
    pub fn sampling(self, sampling: SamplingOptions) -> GenerateOptions {
        GenerateOptions { sampling, ..self }
    }

    /// With log-probabilities, and those of the `n` most likely tokens.
    pub fn log_probs(self, n: usize) -> GenerateOptions {
        GenerateOptions { log_probs: Some(n), ..self }
    }
}

/// Why a text ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// The model gave this end token.
    EndToken(u32),
    /// `max_tokens` were generated.
    MaxTokens,
    /// The session has no position left for another step.
    ContextFull,
    /// The text came to this stop string.
    StopString(String),
    /// [`Cancel::cancel`] was called.
    Cancelled,
}

/// Why a generation cannot start.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StartError {
    /// Nothing to run.
    #[error("the prompt is empty; generation needs at least one token")]
    EmptyPrompt,
    /// The prompt does not fit.
    #[error("the prompt takes {prompt} positions after {used}, but the context has {context}")]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Positions taken before it.
        used: usize,
        /// Positions there are.
        context: usize,
    },
    /// An option outside its range.
    #[error("option `{option}` is {value}; it must be {want}")]
    Option {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        want: &'static str,
    },
    /// A sampling option outside its range.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
}

/// Why generation failed. `E` is the error of the step and text functions.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GenerateError<E> {
    /// No token could be chosen.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// The step or the text function failed.
    #[error("{0}")]
    Caller(E),
}

/// Stops a generation within one step, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A handle that has not been cancelled.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Asks to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`Cancel::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// One run of the model: `tokens` at positions `start`, `start + 1`, …
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// The tokens, between 1 and `chunk`.
    pub tokens: &'a [u32],
    /// Position of the first; also the number of positions in use before the step.
    pub start: usize,
    /// Whether the logits of the last token are wanted; if not, the step function may give an empty slice.
    pub logits: bool,
}

/// A part of the text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Piece {
    /// The token; `None` for text that was held back until the end.
    pub token: Option<u32>,
    /// Text that is now certain. May be empty: half a character, or the possible beginning of a stop string, is held back.
    pub text: String,
    /// Log-probability of the token, if asked for.
    pub log_prob: Option<f32>,
    /// The most likely tokens with their log-probabilities, most likely first, if asked for.
    pub top: Vec<(u32, f32)>,
}

/// Counts and times of a generation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Tokens of the prompt that were run.
    pub prompt_tokens: usize,
    /// Tokens generated, an end token not counted.
    pub generated_tokens: usize,
    /// From the first step's start to the first token chosen.
    pub prompt_time: Duration,
    /// From the first token chosen to the last.
    pub decode_time: Duration,
}

/// A text being generated.
#[derive(Debug)]
pub struct Generation {
    options: GenerateOptions,
    sampler: Sampler,
    stop_strings: StopStrings,
    cancel: Cancel,
    /// Prompt and generated tokens that stand at positions `base`, `base + 1`, …
    tokens: Vec<u32>,
    /// What stands before them and they themselves, for the repetition penalty; empty if nothing does.
    seen: Vec<u32>,
    base: usize,
    prompt: usize,
    /// How many of `tokens` the model has run.
    ran: usize,
    /// Why the text ends, once it does; held-back text may still have to come out.
    end: Option<StopReason>,
    flushed: bool,
    stats: Stats,
    started: Option<Instant>,
    first_token: Option<Instant>,
}

impl Generation {
    /// A generation that runs `prompt` at positions `used`, `used + 1`, … of a session and continues it.
    ///
    /// # Errors
    /// An empty prompt, one that does not fit the context, an option outside its range.
    pub fn new(
        prompt: &[u32],
        used: usize,
        options: GenerateOptions,
        cancel: Cancel,
    ) -> Result<Generation, StartError> {
        if options.chunk == 0 {
            return Err(StartError::Option { option: "chunk", value: "0".into(), want: "at least 1" });
        }
        if prompt.is_empty() {
            return Err(StartError::EmptyPrompt);
        }
        let context = options.context;
        if used.checked_add(prompt.len()).is_none_or(|n| n > context) {
            return Err(StartError::PromptTooLong { prompt: prompt.len(), used, context });
        }
        let stop_strings = StopStrings::new(&options.stop).ok_or_else(|| StartError::Option {
            option: "stop",
            value: format!("{:?}", options.stop),
            want: "a list of strings that are not empty",
        })?;
        let mut tokens = Vec::with_capacity(prompt.len() + options.max_tokens.min(context - used));
        tokens.extend_from_slice(prompt);
        Ok(Generation {
            sampler: Sampler::new(options.sampling.clone())?,
            stop_strings,
            cancel,
            tokens,
            seen: Vec::new(),
            base: used,
            prompt: prompt.len(),
            ran: 0,
            end: None,
            flushed: false,
            stats: Stats::default(),
            started: None,
            first_token: None,
            options,
        })
    }

    /// With the tokens that stand before the prompt: the repetition penalty looks at them too, so that it does not matter
    /// how much of a text was run before.
    pub fn after(mut self, before: &[u32]) -> Generation {
        let sampling = &self.options.sampling;
        let before = &before[before.len().saturating_sub(sampling.penalty_window)..];
        if sampling.repetition_penalty != 1.0 && !before.is_empty() {
            // All at once: choosing a token does not allocate.
            self.seen = Vec::with_capacity(before.len() + self.tokens.capacity());
            self.seen.extend_from_slice(before);
            self.seen.extend_from_slice(&self.tokens);
        }
        self
    }

    /// The tokens generated so far, without an end token.
    pub fn generated(&self) -> &[u32] {
        &self.tokens[self.prompt..]
    }

    /// The tokens that the session holds from this generation: the prompt and what was generated, as far as it was run.
    pub fn cached(&self) -> &[u32] {
        &self.tokens[..self.ran]
    }

    /// Why the text ended, once it has.
    pub fn stop_reason(&self) -> Option<&StopReason> {
        self.end.as_ref()
    }

    /// Counts and times so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Runs until the next token is chosen and gives it with its text; `None` after the end. Repeated calls after the end or
    /// after an error of the sampler give `None` or the same error; a failed step may be repeated.
    ///
    /// `step` runs the model on `session` and gives the logits of the step's last token. `text` is given each token in turn and
    /// gives the text that is certain by then, and once `None` at the end for what is still held back.
    ///
    /// # Errors
    /// What `step` or `text` returned; logits that no token can be chosen from.
    pub fn advance<S, E>(
        &mut self,
        session: &mut S,
        mut step: impl for<'x> FnMut(&'x mut S, Step<'_>) -> Result<&'x [f32], E>,
        mut text: impl FnMut(Option<u32>) -> Result<String, E>,
    ) -> Result<Option<Piece>, GenerateError<E>> {
        loop {
            let Some(run) = self.next_step() else { return self.last_piece(text) };
            let logits = step(session, run).map_err(GenerateError::Caller)?;
            if let Some(piece) = self.take_logits(logits, &mut text)? {
                return Ok(Some(piece));
            }
        }
    }

    /// What the model has to run next; `None` once the text has ended and only [`Generation::last_piece`] is left. For callers
    /// that run several generations in one step; others use [`Generation::advance`].
    pub fn next_step(&mut self) -> Option<Step<'_>> {
        self.started.get_or_insert_with(Instant::now);
        if self.end.is_none() {
            self.end = self.must_stop();
        }
        self.end.is_none().then(|| self.step())
    }

    /// The step that [`Generation::next_step`] gave, again.
    pub fn step(&self) -> Step<'_> {
        let last = self.tokens.len().min(self.ran + self.options.chunk);
        let logits = last == self.tokens.len() && self.options.max_tokens > 0;
        Step { tokens: &self.tokens[self.ran..last], start: self.base + self.ran, logits }
    }

    /// Takes the logits of the last token of the step at hand, which has run, and gives the token chosen with its text; `None`
    /// if the step asked for no logits or an end token was chosen.
    ///
    /// # Errors
    /// What `text` returned; logits that no token can be chosen from.
    pub fn take_logits<E>(
        &mut self,
        logits: &[f32],
        mut text: impl FnMut(Option<u32>) -> Result<String, E>,
    ) -> Result<Option<Piece>, GenerateError<E>> {
        let Step { tokens, logits: wanted, .. } = self.step();
        let last = self.ran + tokens.len();
        if !wanted {
            self.ran = last;
            self.stats.prompt_tokens = last;
            return Ok(None);
        }
        let piece = self.choose(logits)?;
        self.ran = last;
        self.count();
        match piece.token {
            Some(token) => self.speak(piece, text(Some(token)).map_err(GenerateError::Caller)?).map(Some),
            None => Ok(None),
        }
    }

    /// Text that was held back until the end, if there is some; `None` from the second call on.
    ///
    /// # Errors
    /// What `text` returned.
    pub fn last_piece<E>(
        &mut self,
        mut text: impl FnMut(Option<u32>) -> Result<String, E>,
    ) -> Result<Option<Piece>, GenerateError<E>> {
        if self.flushed {
            return Ok(None);
        }
        self.flushed = true;
        let mut held = String::new();
        if !matches!(self.end, Some(StopReason::StopString(_))) {
            let tail = text(None).map_err(GenerateError::Caller)?;
            self.push_text(&tail, &mut held);
            held.push_str(&self.stop_strings.finish());
        }
        Ok((!held.is_empty()).then(|| Piece { text: held, ..Piece::default() }))
    }

    /// What forbids another step.
    fn must_stop(&self) -> Option<StopReason> {
        let decoding = self.ran >= self.prompt;
        if self.cancel.is_cancelled() {
            Some(StopReason::Cancelled)
        } else if decoding && self.tokens.len() - self.prompt >= self.options.max_tokens {
            Some(StopReason::MaxTokens)
        } else if self.base + self.ran >= self.options.context {
            Some(StopReason::ContextFull)
        } else {
            None
        }
    }

    /// Chooses a token; a piece without one if it is an end token.
    fn choose(&mut self, logits: &[f32]) -> Result<Piece, SamplingError> {
        let seen = if self.seen.is_empty() { &self.tokens } else { &self.seen };
        let token = self.sampler.sample(logits, seen)?;
        let mut piece = Piece::default();
        if self.options.end_tokens.contains(&token) {
            self.end = Some(StopReason::EndToken(token));
            return Ok(piece);
        }
        if let Some(n) = self.options.log_probs {
            piece.log_prob = Some(log_prob(logits, token)?);
            top_log_probs(logits, n, &mut piece.top)?;
        }
        piece.token = Some(token);
        self.tokens.push(token);
        if !self.seen.is_empty() {
            self.seen.push(token);
        }
        Ok(piece)
    }

    fn count(&mut self) {
        let now = Instant::now();
        let first = *self.first_token.get_or_insert(now);
        self.stats.prompt_tokens = self.prompt;
        self.stats.generated_tokens = self.tokens.len() - self.prompt;
        self.stats.prompt_time = self.started.map_or(Duration::ZERO, |s| first - s);
        self.stats.decode_time = now - first;
    }

    fn speak<E>(&mut self, mut piece: Piece, text: String) -> Result<Piece, GenerateError<E>> {
        let mut out = String::new();
        self.push_text(&text, &mut out);
        piece.text = out;
        Ok(piece)
    }

    fn push_text(&mut self, text: &str, out: &mut String) {
        if let Some(hit) = self.stop_strings.push(text, out) {
            self.end = Some(StopReason::StopString(hit));
        }
    }
}
