//! Choosing the next token from a row of logits.
//!
//! Filters apply in a fixed order: repetition penalty, top-k, top-p, min-p, temperature, then one draw. Top-p and min-p look
//! at the distribution before temperature. A temperature of 0 takes the largest logit after the penalty; equal logits
//! are ordered by the lower index everywhere. Given options, seed, logits and history the choice is always the same.

use crate::philox;

/// How tokens are chosen. The default is greedy.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SamplingOptions {
    /// Divides the logits before the draw; 0 always takes the most likely token. Finite, at least 0.
    pub temperature: f32,
    /// Keep the `top_k` most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep the shortest list of most likely tokens whose probabilities reach `top_p`; 1 keeps all. In (0, 1].
    pub top_p: f32,
    /// Keep tokens at least `min_p` times as likely as the most likely one; 0 keeps all. In `[0, 1]`.
    pub min_p: f32,
    /// Logits of tokens seen in the last `penalty_window` tokens are divided by this if positive, else multiplied
    /// (Keskar et al., "CTRL", 2019); 1 changes nothing. Finite, above 0.
    pub repetition_penalty: f32,
    /// How many tokens back the repetition penalty looks.
    pub penalty_window: usize,
    /// Seed of the draws.
    pub seed: u64,
}

impl Default for SamplingOptions {
    fn default() -> SamplingOptions {
        SamplingOptions {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            penalty_window: 64,
            seed: 0,
        }
    }
}

impl SamplingOptions {
    /// With another temperature.
    pub fn temperature(self, temperature: f32) -> SamplingOptions {
        SamplingOptions { temperature, ..self }
    }

    /// With another `top_k`.
    pub fn top_k(self, top_k: usize) -> SamplingOptions {
        SamplingOptions { top_k, ..self }
    }

    /// With another `top_p`.
    pub fn top_p(self, top_p: f32) -> SamplingOptions {
        SamplingOptions { top_p, ..self }
    }

    /// With another `min_p`.
    pub fn min_p(self, min_p: f32) -> SamplingOptions {
        SamplingOptions { min_p, ..self }
    }

    /// With another repetition penalty over the last `window` tokens.
    pub fn repetition_penalty(self, penalty: f32, window: usize) -> SamplingOptions {
        SamplingOptions { repetition_penalty: penalty, penalty_window: window, ..self }
    }

    /// With another seed.
    pub fn seed(self, seed: u64) -> SamplingOptions {
        SamplingOptions { seed, ..self }
    }

    /// Checks every value.
    ///
    /// # Errors
    /// Names the first option outside its range.
    pub fn check(&self) -> Result<(), SamplingError> {
        let rows: [(&'static str, f32, bool, &'static str); 4] = [
            ("temperature", self.temperature, self.temperature >= 0.0, "a finite number, at least 0"),
            ("top_p", self.top_p, self.top_p > 0.0 && self.top_p <= 1.0, "above 0 and at most 1"),
            ("min_p", self.min_p, (0.0..=1.0).contains(&self.min_p), "between 0 and 1"),
            (
                "repetition_penalty",
                self.repetition_penalty,
                self.repetition_penalty > 0.0,
                "a finite number above 0",
            ),
        ];
        for (option, value, ok, want) in rows {
            if !ok || !value.is_finite() {
                return Err(SamplingError::Option { option, value, want });
            }
        }
        Ok(())
    }
}

/// Why no token could be chosen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SamplingError {
    /// An option outside its range.
    #[error("sampling option `{option}` is {value}; it must be {want}")]
    Option {
        /// The option.
        option: &'static str,
        /// Its value.
        value: f32,
        /// What it must be.
        want: &'static str,
    },
    /// A logit is NaN or +infinity.
    #[error("the logit of token {token} is {value}; the model's output is not usable")]
    Logit {
        /// The first such token.
        token: u32,
        /// Its logit.
        value: f32,
    },
    /// There is nothing to choose from: no logits, or all of them are −infinity.
    #[error("none of the {0} logits is above -infinity")]
    Empty(usize),
    /// A token outside the vocabulary.
    #[error("token {token} is outside the vocabulary of {vocab}")]
    Token {
        /// The token.
        token: u32,
        /// Tokens in the vocabulary.
        vocab: usize,
    },
}

/// A token that may be chosen.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    token: u32,
    logit: f32,
}

/// Most likely first, equal logits by the lower index. Logits hold no NaN here.
fn order(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token))
}

/// Chooses tokens. It allocates at the first token only (again if the vocabulary grows).
#[derive(Clone, Debug)]
pub struct Sampler {
    options: SamplingOptions,
    draws: u64,
    candidates: Vec<Candidate>,
    /// For each token the number of the call that last penalized it, so that a repeated token is penalized once.
    penalized: Vec<u64>,
    calls: u64,
}

impl Sampler {
    /// A sampler at the start of its random sequence.
    ///
    /// # Errors
    /// An option is out of range.
    pub fn new(options: SamplingOptions) -> Result<Sampler, SamplingError> {
        options.check()?;
        Ok(Sampler { options, draws: 0, candidates: Vec::new(), penalized: Vec::new(), calls: 0 })
    }

    /// The options.
    pub fn options(&self) -> &SamplingOptions {
        &self.options
    }

    /// Chooses a token from `logits` (one per token of the vocabulary); `history` is the sequence so far, oldest first.
    ///
    /// # Errors
    /// A logit is NaN or +infinity; all are −infinity; a token of the history is outside the vocabulary.
    pub fn sample(&mut self, logits: &[f32], history: &[u32]) -> Result<u32, SamplingError> {
        check_logits(logits)?;
        if self.options.temperature == 0.0 && self.options.repetition_penalty == 1.0 {
            return most_likely(logits).ok_or(SamplingError::Empty(0));
        }
        self.candidates.clear();
        self.candidates
            .extend(logits.iter().enumerate().map(|(i, l)| Candidate { token: i as u32, logit: l + 0.0 }));
        self.penalize(history)?;
        if self.options.temperature == 0.0 {
            let best = self.candidates.iter().min_by(|a, b| order(a, b));
            return best.map(|c| c.token).ok_or(SamplingError::Empty(0));
        }
        self.filter();
        let u = philox::uniform(self.options.seed, self.draws);
        self.draws += 1;
        Ok(draw(&self.candidates, self.options.temperature, u))
    }

    fn penalize(&mut self, history: &[u32]) -> Result<(), SamplingError> {
        let p = self.options.repetition_penalty;
        if p == 1.0 {
            return Ok(());
        }
        let vocab = self.candidates.len();
        self.calls += 1;
        if self.penalized.len() < vocab {
            self.penalized.resize(vocab, 0);
        }
        for &token in &history[history.len().saturating_sub(self.options.penalty_window)..] {
            let i = token as usize;
            if i >= vocab {
                return Err(SamplingError::Token { token, vocab });
            }
            if self.penalized[i] != self.calls {
                self.penalized[i] = self.calls;
                let l = &mut self.candidates[i].logit;
                // A finite logit stays finite, so that no token becomes certain or impossible, and a zero the one zero that
                // the order knows.
                let new = if *l > 0.0 { *l / p } else { *l * p };
                *l = if l.is_finite() { new.clamp(f32::MIN, f32::MAX) + 0.0 } else { *l };
            }
        }
        Ok(())
    }

    /// Drops the candidates that fail top-k, top-p or min-p; at least one stays. Top-p is measured over what top-k leaves;
    /// min-p compares with the most likely token, so it may come before the sort that top-p needs.
    fn filter(&mut self) {
        let (c, o) = (&mut self.candidates, &self.options);
        let mut sorted = 0;
        if o.top_k > 0 && o.top_k < c.len() {
            c.select_nth_unstable_by(o.top_k, order);
            c.truncate(o.top_k);
            c.sort_unstable_by(order);
            sorted = c.len();
        }
        let top = largest(c);
        let weight = |c: &Candidate| (f64::from(c.logit) - top).exp();
        let mass: f64 = if o.top_p < 1.0 { c.iter().map(weight).sum() } else { 0.0 };
        if o.min_p > 0.0 {
            c.retain(|c| weight(c) >= f64::from(o.min_p));
            sorted = sorted.min(c.len());
        }
        if o.top_p == 1.0 {
            return;
        }
        let (mut reached, mut kept) = (0.0, 0);
        while kept < c.len() && reached < f64::from(o.top_p) * mass {
            if kept == sorted {
                // Sorting a growing front part: a full sort of a large vocabulary costs more than a small model's step.
                let n = c.len().min((sorted * 4).max(256)) - sorted;
                let rest = &mut c[sorted..];
                if n < rest.len() {
                    rest.select_nth_unstable_by(n, order);
                }
                rest[..n].sort_unstable_by(order);
                sorted += n;
            }
            reached += weight(&c[kept]);
            kept += 1;
        }
        c.truncate(kept.max(1));
    }
}

fn largest(c: &[Candidate]) -> f64 {
    c.iter().map(|c| f64::from(c.logit)).fold(f64::NEG_INFINITY, f64::max)
}

/// Walks the cumulative weights of `kept` to `u`, uniform in [0, 1).
fn draw(kept: &[Candidate], temperature: f32, u: f64) -> u32 {
    let top = largest(kept);
    let weight = |c: &Candidate| ((f64::from(c.logit) - top) / f64::from(temperature)).exp();
    let mut left = u * kept.iter().map(weight).sum::<f64>();
    // Rounding may leave a rest behind the last token; a token of weight zero is never taken.
    let mut last = 0;
    for c in kept {
        let w = weight(c);
        if w > 0.0 {
            last = c.token;
            if left < w {
                break;
            }
        }
        left -= w;
    }
    last
}

/// Logits that are looked at together.
const PIECE: usize = 1024;

/// The first of the largest logits, none of which is NaN; `None` if there are none.
fn most_likely(logits: &[f32]) -> Option<u32> {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    // Several maxima at a time, so that the loop waits for none of them.
    let mut most = [f32::NEG_INFINITY; 32];
    let (pieces, rest) = logits.as_chunks::<32>();
    for piece in pieces {
        most.iter_mut().zip(piece).for_each(|(m, l)| *m = larger(*m, *l));
    }
    let most = most.iter().chain(rest).copied().fold(f32::NEG_INFINITY, larger);
    logits.iter().position(|l| *l == most).map(|i| i as u32)
}

fn check_logits(logits: &[f32]) -> Result<(), SamplingError> {
    let bad = |l: &f32| l.is_nan() || *l == f32::INFINITY;
    // All of a piece at a time, so that the loop has no branch.
    for (n, piece) in logits.chunks(PIECE).enumerate() {
        if piece.iter().fold(false, |any, l| any | bad(l))
            && let Some(i) = piece.iter().position(bad)
        {
            return Err(SamplingError::Logit { token: (n * PIECE + i) as u32, value: piece[i] });
        }
    }
    if logits.iter().all(|l| *l == f32::NEG_INFINITY) {
        return Err(SamplingError::Empty(logits.len()));
    }
    Ok(())
}

/// Natural logarithm of the probability of `token` under softmax of `logits`, summed in f64.
///
/// # Errors
/// A logit is NaN or +infinity; all are −infinity; the token is outside the vocabulary.
pub fn log_prob(logits: &[f32], token: u32) -> Result<f32, SamplingError> {
    check_logits(logits)?;
    let l = logits.get(token as usize).ok_or(SamplingError::Token { token, vocab: logits.len() })?;
    Ok((f64::from(*l) - log_sum(logits)) as f32)
}

/// The `n` most likely tokens under softmax of `logits` with their log-probabilities, most likely first, into `out`
/// (cleared first; it allocates only when it grows).
///
/// # Errors
/// A logit is NaN or +infinity; all are −infinity.
pub fn top_log_probs(logits: &[f32], n: usize, out: &mut Vec<(u32, f32)>) -> Result<(), SamplingError> {
    check_logits(logits)?;
    out.clear();
    let n = n.min(logits.len());
    for (i, &l) in logits.iter().enumerate() {
        if out.len() == n && out.last().is_none_or(|(_, least)| l <= *least) {
            continue;
        }
        if out.len() == n {
            out.pop();
        }
        let at = out.partition_point(|(_, o)| *o >= l);
        out.insert(at, (i as u32, l));
    }
    let sum = log_sum(logits);
    for (_, l) in out {
        *l = (f64::from(*l) - sum) as f32;
    }
    Ok(())
}

fn log_sum(logits: &[f32]) -> f64 {
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    f64::from(top) + logits.iter().map(|l| f64::from(l - top).exp()).sum::<f64>().ln()
}
