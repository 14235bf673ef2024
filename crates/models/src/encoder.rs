//! Hyperparameters of an encoder, whatever file they come from, and the options it is built with.

use frit_ir::ScalarOp;

use crate::config::MAX_LAYERS;
use crate::error::ModelError;

/// Hyperparameters. Sizes are in elements.
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderConfig {
    /// Tokens in the vocabulary.
    pub vocab: usize,
    /// Width of the residual stream, and of an embedding.
    pub hidden: usize,
    /// Width of the MLP.
    pub intermediate: usize,
    /// Attention heads; divides `hidden`.
    pub heads: usize,
    /// Layers.
    pub layers: usize,
    /// Positions that the model has embeddings for: the most tokens of a text.
    pub context: usize,
    /// Token types (segments) that the model has embeddings for; a text is of type 0. 0: the model has none.
    pub types: usize,
    /// Added to the variance in layer norms.
    pub norm_eps: f64,
    /// Activation of the MLP.
    pub activation: ScalarOp,
}

impl EncoderConfig {
    /// Checks what the fields must hold together.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), ModelError> {
        let bad = |key: &str, value: usize, want: String| {
            Err(ModelError::BadValue { key: key.into(), value: value.to_string(), want })
        };
        if self.heads == 0 || !self.hidden.is_multiple_of(self.heads) {
            return bad("heads", self.heads, format!("a divisor of the width {}", self.hidden));
        }
        if self.layers == 0 || self.layers > MAX_LAYERS {
            return bad("layers", self.layers, format!("from 1 to {MAX_LAYERS}"));
        }
        Ok(())
    }
}

/// How an encoder's graph is built. Sizes are upper bounds of the graph's symbols.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EncoderOptions {
    /// Most tokens of a text (symbol `T`); `None`: what the model has positions for.
    pub context: Option<usize>,
    /// Most tokens in one run, every text counted at the length of the longest (bound on `B*T`). One text of `context` tokens
    /// always fits.
    pub chunk: usize,
}

impl Default for EncoderOptions {
    fn default() -> EncoderOptions {
        EncoderOptions { context: None, chunk: 512 }
    }
}

impl EncoderOptions {
    /// With texts of at most `context` tokens.
    pub fn context(self, context: usize) -> EncoderOptions {
        EncoderOptions { context: Some(context), ..self }
    }

    /// With runs of at most `chunk` tokens.
    pub fn chunk(self, chunk: usize) -> EncoderOptions {
        EncoderOptions { chunk, ..self }
    }

    /// The sizes that a model of `config` is built with.
    ///
    /// # Errors
    /// An option out of range.
    pub fn resolve(&self, config: &EncoderConfig) -> Result<EncoderSizes, ModelError> {
        let bad =
            |option, value: usize, want| Err(ModelError::Option { option, value: value.to_string(), want });
        let context = self.context.unwrap_or(config.context);
        if context == 0 || context > config.context {
            let want = format!("from 1 to the model's {} positions", config.context);
            return bad("context", context, want);
        }
        if self.chunk == 0 || self.chunk > MAX_CHUNK {
            return bad("chunk", self.chunk, format!("from 1 to {MAX_CHUNK}"));
        }
        Ok(EncoderSizes { context, chunk: self.chunk.max(context) })
    }
}

/// More tokens in one run win nothing, and the arena is planned for them.
const MAX_CHUNK: usize = 1 << 20;

/// What an encoder was built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncoderSizes {
    /// Upper bound of the symbol `T`.
    pub context: usize,
    /// Upper bound of `B*T`.
    pub chunk: usize,
}
