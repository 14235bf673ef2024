//! Hyperparameters of a decoder-only language model, whatever file they come from, and the options it is built with.

use frit_ir::{DType, ScalarOp};
use frit_ops::rope_scaling::RopeScaling;

use crate::error::ModelError;

/// The most layers that a configuration may name.
pub const MAX_LAYERS: usize = 4096;

/// Which elements of a head rotary embedding turns together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// Element i with element i + dims/2: Hugging Face files.
    Half,
    /// Element 2i with element 2i + 1: GGUF files of the `llama` architecture, whose query and key rows are permuted for it.
    Interleaved,
}

/// Rotary position embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f64,
    /// Leading elements of each head that turn; even.
    pub dims: usize,
    /// Which elements turn together.
    pub style: RopeStyle,
    /// How the frequencies are changed for long contexts.
    pub scaling: RopeScaling,
    /// Whether the file has a weight `rope_freqs.weight` `f32 [dims/2]` that divides the frequencies.
    pub divisors: bool,
}

/// Hyperparameters. Sizes are in elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Tokens in the vocabulary.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the gated MLP.
    pub intermediate: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head; `heads · head_dim` may differ from `hidden`.
    pub head_dim: usize,
    /// The longest context that the model is for, in positions.
    pub context: usize,
    /// Added to the mean square in RMS norms.
    pub norm_eps: f64,
    /// Activation of the gate.
    pub activation: ScalarOp,
    /// Rotary embedding.
    pub rope: Rope,
    /// One entry per layer: `Some(n)` if a position sees only itself and the n − 1 before it.
    pub windows: Vec<Option<usize>>,
    /// Whether query, key and value projections have biases.
    pub qkv_bias: bool,
    /// Whether the attention's output projection has a bias.
    pub out_bias: bool,
    /// Whether the MLP's projections have biases.
    pub mlp_bias: bool,
    /// Whether the embedding table is also the output head.
    pub tied: bool,
    /// Token that begins a text, if the file names one.
    pub bos: Option<u32>,
    /// Tokens that end a text, as far as the file names them.
    pub eos: Vec<u32>,
}

impl Config {
    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.windows.len()
    }

    /// Checks what the fields must hold together.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), ModelError> {
        let bad = |key: &str, value: usize, want: String| {
            Err(ModelError::BadValue { key: key.into(), value: value.to_string(), want })
        };
        if self.kv_heads == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            return bad("key/value heads", self.kv_heads, format!("a divisor of the {} heads", self.heads));
        }
        let dims = self.rope.dims;
        if dims == 0 || !dims.is_multiple_of(2) || dims > self.head_dim {
            let want = format!("even, above 0 and at most the head width {}", self.head_dim);
            return bad("rotary dimensions", dims, want);
        }
        if self.layers() == 0 || self.layers() > MAX_LAYERS {
            return bad("layers", self.layers(), format!("from 1 to {MAX_LAYERS}"));
        }
        if self.windows.contains(&Some(0)) {
            return bad("sliding window", 0, "at least 1".into());
        }
        Ok(())
    }
}

/// How a model's graph is built. Sizes are upper bounds of the graph's symbols.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BuildOptions {
    /// Largest number of positions that a session may hold (symbol `C`); `None`: the model's own context.
    pub context: Option<usize>,
    /// Most tokens in one step (symbol `T`).
    pub chunk: usize,
    /// Most rows of logits in one step (symbol `R`).
    pub rows: usize,
    /// Element type of the stored keys and values: f32, f16 or bf16.
    pub kv_dtype: DType,
}

impl Default for BuildOptions {
    fn default() -> BuildOptions {
        BuildOptions { context: None, chunk: 512, rows: 1, kv_dtype: DType::F32 }
    }
}

impl BuildOptions {
    /// With another context.
    pub fn context(self, context: usize) -> BuildOptions {
        BuildOptions { context: Some(context), ..self }
    }

    /// With another chunk.
    pub fn chunk(self, chunk: usize) -> BuildOptions {
        BuildOptions { chunk, ..self }
    }

    /// With another number of rows.
    pub fn rows(self, rows: usize) -> BuildOptions {
        BuildOptions { rows, ..self }
    }

    /// With another type of keys and values.
    pub fn kv_dtype(self, kv_dtype: DType) -> BuildOptions {
        BuildOptions { kv_dtype, ..self }
    }

    /// The sizes that a model of `config` is built with; chunk and rows are cut to the context.
    ///
    /// # Errors
    /// An option out of range.
    pub fn resolve(&self, config: &Config) -> Result<Sizes, ModelError> {
        let bad = |option, value: String, want| Err(ModelError::Option { option, value, want });
        let context = self.context.unwrap_or(config.context);
        if context == 0 || context > config.context {
            let want = format!("from 1 to the model's context of {} positions", config.context);
            return bad("context", context.to_string(), want);
        }
        for (option, value) in [("chunk", self.chunk), ("rows", self.rows)] {
            if value == 0 {
                return bad(option, "0".into(), "at least 1".into());
            }
        }
        if !matches!(self.kv_dtype, DType::F32 | DType::F16 | DType::BF16) {
            return bad("kv_dtype", self.kv_dtype.to_string(), "f32, f16 or bf16".into());
        }
        let chunk = self.chunk.min(context);
        Ok(Sizes { context, chunk, rows: self.rows.min(chunk), kv_dtype: self.kv_dtype })
    }
}

/// What a model was built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Upper bound of the symbol `C`.
    pub context: usize,
    /// Upper bound of the symbol `T`.
    pub chunk: usize,
    /// Upper bound of the symbol `R`.
    pub rows: usize,
    /// Element type of the stored keys and values.
    pub kv_dtype: DType,
}
