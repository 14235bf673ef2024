//! Embeddings: an [`Embedder`] owns its session and makes a vector of each text.

use frit_models::embed::{Recipe, batches, normalize, pool};
use frit_models::generate::Cancel;

use crate::backend::Session;
use crate::error::{Error, Result};
use crate::model::Model;
#[cfg(feature = "text")]
use frit_formats::tokenizer::EncodeOptions;

pub use frit_models::embed::Pooling;

/// How embeddings are made. Start from `EmbedOptions::default()`, which does what the model's files say, and set what differs.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct EmbedOptions {
    /// How the vectors of a text's tokens become one; `None`: what the model's files say, or the mean if they say nothing.
    pub pooling: Option<Pooling>,
    /// Whether embeddings are scaled to length 1, so that the product of two is their cosine similarity; `None`: what the model's
    /// files say, or yes if they say nothing.
    pub normalize: Option<bool>,
    /// Most tokens of a text, special ones counted; `None`: what the model's files say, at most what it was loaded for.
    pub max_tokens: Option<usize>,
    /// Cut longer texts, special tokens kept, instead of refusing them.
    pub truncate: bool,
}

impl EmbedOptions {
    /// With this pooling.
    pub fn pooling(mut self, p: Pooling) -> Self {
        self.pooling = Some(p);
        self
    }

    /// Whether to scale to length 1.
    pub fn normalize(mut self, yes: bool) -> Self {
        self.normalize = Some(yes);
        self
    }

    /// With texts of at most `n` tokens.
    pub fn max_tokens(mut self, n: usize) -> Self {
        self.max_tokens = Some(n);
        self
    }

    /// Whether to cut texts that are too long.
    pub fn truncate(mut self, yes: bool) -> Self {
        self.truncate = yes;
        self
    }
}

#[cfg(feature = "text")]
const WITH_SPECIAL: EncodeOptions = EncodeOptions { add_special: true, parse_special: false };

/// What is known of an encoder besides its graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoder {
    /// What its files say about embeddings.
    pub recipe: Recipe,
    /// Tokens of its vocabulary.
    pub vocab: usize,
}

/// One user of an encoder: owns its memory, holds the model, may move between threads.
///
/// Texts run in batches of like length. The padding of a batch is masked out, so an embedding does not depend on the texts beside it
/// but for rounding; the same call gives the same bits, whatever the number of threads.
pub struct Embedder {
    model: Model,
    session: Session,
    slots: Slots,
    width: usize,
    vocab: usize,
    pooling: Pooling,
    normalize: bool,
    max_tokens: usize,
    #[cfg_attr(not(feature = "text"), expect(dead_code, reason = "texts are not read without a tokenizer"))]
    truncate: bool,
    #[cfg_attr(not(feature = "text"), expect(dead_code, reason = "texts are not read without a tokenizer"))]
    lowercase: bool,
    /// Tokens that the tokenizer adds to every text.
    #[cfg(feature = "text")]
    special: usize,
    cancel: Cancel,
    ids: Vec<i32>,
    lengths: Vec<i32>,
}

/// Inputs, output and symbols of the graph.
struct Slots {
    tokens: usize,
    lengths: usize,
    hidden: usize,
    b: usize,
    t: usize,
}

impl Embedder {
    pub(crate) fn new(model: &Model, encoder: Encoder, o: EmbedOptions) -> Result<Embedder> {
        let most = model.limits().context;
        let max_tokens = match o.max_tokens {
            Some(n) if n == 0 || n > most => {
                let why =
                    format!("`max_tokens` is {n}; this model was loaded for texts of 1 to {most} tokens");
                return Err(Error::value(why));
            }
            Some(n) => n,
            None => encoder.recipe.max_tokens.map_or(most, |n| n.min(most)),
        };
        let exe = model.compiled().executable();
        let s = exe.schedule();
        let no = |what: &str| Error::name(format!("the graph of an encoder has no {what}"));
        let input = |name: &str| s.inputs.iter().position(|p| p.name == name).ok_or_else(|| no(name));
        let hidden =
            s.outputs.iter().position(|p| p.name == "hidden").ok_or_else(|| no("output `hidden`"))?;
        let width = s.outputs[hidden].ty.shape.last().and_then(|d| d.as_const());
        let slots = Slots {
            tokens: input("tokens")?,
            lengths: input("lengths")?,
            hidden,
            b: exe.symbol("B")?,
            t: exe.symbol("T")?,
        };
        Ok(Embedder {
            session: exe.session(&[])?,
            model: model.clone(),
            slots,
            width: width.and_then(|w| usize::try_from(w).ok()).ok_or_else(|| no("constant width"))?,
            vocab: encoder.vocab,
            pooling: o.pooling.or(encoder.recipe.pooling).unwrap_or(Pooling::Mean),
            normalize: o.normalize.or(encoder.recipe.normalize).unwrap_or(true),
            max_tokens,
            truncate: o.truncate,
            lowercase: encoder.recipe.lowercase,
            #[cfg(feature = "text")]
            special: match model.tokenizer() {
                Ok(t) => t.encode("", WITH_SPECIAL).map_err(Error::from)?.len(),
                Err(_) => 0,
            },
            cancel: Cancel::new(),
            ids: Vec::new(),
            lengths: Vec::new(),
        })
    }

    /// Length of an embedding.
    pub fn dimensions(&self) -> usize {
        self.width
    }

    /// The pooling in use.
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// Whether embeddings have length 1.
    pub fn normalizes(&self) -> bool {
        self.normalize
    }

    /// Most tokens of a text, special ones counted.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Bytes that this embedder holds.
    pub fn memory(&self) -> usize {
        let (arena, states, ports) = self.session.memory();
        arena + states + ports
    }

    /// A handle that stops the work after the batch at hand, from any thread. It stays cancelled: make a new embedder, or a new
    /// handle with [`Embedder::reset_cancel`].
    pub fn cancel(&self) -> Cancel {
        self.cancel.clone()
    }

    /// Makes a new cancel handle; earlier ones no longer act on this embedder.
    pub fn reset_cancel(&mut self) -> Cancel {
        self.cancel = Cancel::new();
        self.cancel.clone()
    }

    /// The tokens of `text` as the model reads them: with its special tokens, cut if the options say so.
    ///
    /// # Errors
    /// [`Error::WrongTask`] without a tokenizer, [`Error::Value`] for a text without tokens, [`Error::TextTooLong`].
    #[cfg(feature = "text")]
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_nth(text, 0, 1)
    }

    /// One embedding of [`Embedder::dimensions`] numbers for each text, in the order given.
    ///
    /// # Errors
    /// [`Error::Value`] for no texts or one without tokens, [`Error::TextTooLong`] unless the options say to cut,
    /// [`Error::WrongTask`] without a tokenizer, [`Error::Cancelled`].
    #[cfg(feature = "text")]
    pub fn embed<S: AsRef<str>>(&mut self, texts: &[S]) -> Result<Vec<Vec<f32>>> {
        let encode = |(i, t): (usize, &S)| self.encode_nth(t.as_ref(), i, texts.len());
        let ids = texts.iter().enumerate().map(encode).collect::<Result<Vec<_>>>()?;
        self.embed_tokens(&ids)
    }

    /// As [`Embedder::embed`] for texts that are tokens already, with the special tokens that the model wants; nothing is added.
    /// Works without a tokenizer.
    ///
    /// # Errors
    /// [`Error::Value`] for no texts, one without tokens, or a token outside the vocabulary; [`Error::TextTooLong`], whatever the
    /// options say; [`Error::Cancelled`].
    pub fn embed_tokens<T: AsRef<[u32]>>(&mut self, texts: &[T]) -> Result<Vec<Vec<f32>>> {
        if texts.is_empty() {
            return Err(Error::value("no texts were given"));
        }
        for (i, ids) in texts.iter().enumerate() {
            self.check(ids.as_ref(), i, texts.len())?;
        }
        let lengths: Vec<usize> = texts.iter().map(|t| t.as_ref().len()).collect();
        let mut out = vec![Vec::new(); texts.len()];
        for batch in batches(&lengths, self.model.limits().chunk) {
            if self.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let rows: Vec<&[u32]> = batch.iter().map(|i| texts[*i].as_ref()).collect();
            for (i, v) in batch.iter().zip(self.run(&rows)?) {
                if v.iter().any(|x| !x.is_finite()) {
                    let message = format!("the embedding of {} is not finite", nth(*i, texts.len()));
                    return Err(Error::Device { message, source: None });
                }
                out[*i] = v;
            }
        }
        Ok(out)
    }

    fn check(&self, ids: &[u32], i: usize, of: usize) -> Result<()> {
        if ids.is_empty() {
            return Err(Error::value(format!("{} has no tokens", nth(i, of))));
        }
        if ids.len() > self.max_tokens {
            return Err(Error::TextTooLong { text: i, tokens: ids.len(), max: self.max_tokens });
        }
        match ids.iter().find(|t| **t as usize >= self.vocab) {
            None => Ok(()),
            Some(bad) => {
                let (which, n) = (nth(i, of), self.vocab);
                Err(Error::value(format!("token {bad} of {which} is outside the vocabulary of {n} tokens")))
            }
        }
    }

    /// Runs one batch and pools.
    fn run(&mut self, rows: &[&[u32]]) -> Result<Vec<Vec<f32>>> {
        let longest = rows.iter().map(|r| r.len()).max().unwrap_or(0);
        self.ids.clear();
        self.lengths.clear();
        for (i, r) in rows.iter().enumerate() {
            self.ids.extend(r.iter().map(|t| *t as i32));
            // What stands behind a text is masked; it must only be some token.
            self.ids.resize((i + 1) * longest, 0);
            self.lengths.push(r.len() as i32);
        }
        let s = &mut self.session;
        s.set_size(self.slots.b, rows.len() as i64)?;
        s.set_size(self.slots.t, longest as i64)?;
        s.set_input(self.slots.tokens, bytemuck::cast_slice(&self.ids))?;
        s.set_input(self.slots.lengths, bytemuck::cast_slice(&self.lengths))?;
        s.run()?;
        let hidden: &[f32] = bytemuck::try_cast_slice(s.output(self.slots.hidden))
            .map_err(|e| Error::value(format!("hidden states: {e}")))?;
        let each = hidden.chunks_exact(longest * self.width).zip(rows);
        let pooled = each.map(|(h, r)| {
            let mut v = pool(self.pooling, &h[..r.len() * self.width], self.width);
            if self.normalize {
                normalize(&mut v);
            }
            v
        });
        Ok(pooled.collect())
    }
}

#[cfg(feature = "text")]
impl Embedder {
    fn encode_nth(&self, text: &str, i: usize, of: usize) -> Result<Vec<u32>> {
        let tokenizer = self.model.tokenizer()?;
        let lowered = self.lowercase.then(|| text.to_lowercase());
        let text = lowered.as_deref().unwrap_or(text);
        let ids = tokenizer.encode(text, WITH_SPECIAL).map_err(Error::from)?;
        if ids.len() <= self.special {
            return Err(Error::value(format!("{} is empty: it has no tokens", nth(i, of))));
        }
        let max = self.max_tokens;
        if ids.len() <= max {
            return Ok(ids);
        }
        let too_long = Error::TextTooLong { text: i, tokens: ids.len(), max };
        if !self.truncate {
            return Err(too_long);
        }
        // Special tokens stand around the text's own: those behind move up to where the text is cut.
        let own = tokenizer.encode(text, EncodeOptions::default()).map_err(Error::from)?;
        let Some(front) = (0..=ids.len().saturating_sub(own.len())).find(|p| ids[*p..].starts_with(&own))
        else {
            return Err(too_long);
        };
        let behind = ids.len() - front - own.len();
        match max.checked_sub(behind).filter(|n| *n > front) {
            Some(n) => Ok([&ids[..n], &ids[ids.len() - behind..]].concat()),
            None => Err(too_long),
        }
    }
}

/// `text 2 of 5`, counted from 1; `the text` if there is one.
fn nth(i: usize, of: usize) -> String {
    if of == 1 { "the text".into() } else { format!("text {} of {of}", i + 1) }
}
