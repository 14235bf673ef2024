//! Hyperparameters of a decoder-only language model, whatever file they come from, and the options it is built with.

use frit_ir::symbols::SymbolError;
use frit_ir::{DType, Dim, ScalarOp};
use frit_ops::build::Builder;
use frit_ops::rope_scaling::RopeScaling;

use crate::error::ModelError;
use crate::metadata::Metadata;

/// The weight that divides the rotary frequencies, in files that have one.
pub const DIVISORS: &str = "rope_freqs.weight";

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
    /// Whether the weight [`DIVISORS`] `f32 [dims/2]` divides the frequencies.
    pub divisors: bool,
}

impl Rope {
    /// Unscaled.
    pub fn plain(theta: f64, dims: usize, style: RopeStyle) -> Rope {
        Rope { theta, dims, style, scaling: RopeScaling::None, divisors: false }
    }
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
    /// Whether RMS norms multiply by 1 + weight.
    pub norm_plus_one: bool,
    /// Activation of the gate.
    pub activation: ScalarOp,
    /// Rotary embedding.
    pub rope: Rope,
    /// The same in layers that have a window, if they differ.
    pub local_rope: Option<Rope>,
    /// One entry per layer: `Some(n)` if a position sees only itself and the n − 1 before it.
    pub windows: Vec<Option<usize>>,
    /// Whether each head of queries and keys goes through an RMS norm before it turns.
    pub qk_norm: bool,
    /// Factor on the scores of attention.
    pub attention_scale: f64,
    /// Scores s become c·tanh(s / c).
    pub attention_softcap: Option<f64>,
    /// Whether query, key and value projections have biases.
    pub qkv_bias: bool,
    /// Whether the attention's output projection has a bias.
    pub out_bias: bool,
    /// Whether the MLP's projections have biases.
    pub mlp_bias: bool,
    /// Factor on the embedded tokens.
    pub embedding_scale: f64,
    /// Whether the embedding table is also the output head.
    pub tied: bool,
    /// Logits y become c·tanh(y / c).
    pub logit_softcap: Option<f64>,
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
        for dims in self.local_rope.iter().chain([&self.rope]).map(|r| r.dims) {
            if dims == 0 || !dims.is_multiple_of(2) || dims > self.head_dim {
                let want = format!("even, above 0 and at most the head width {}", self.head_dim);
                return bad("rotary dimensions", dims, want);
            }
        }
        if self.layers() == 0 || self.layers() > MAX_LAYERS {
            return bad("layers", self.layers(), format!("from 1 to {MAX_LAYERS}"));
        }
        if self.windows.contains(&Some(0)) {
            return bad("sliding window", 0, "at least 1".into());
        }
        Ok(())
    }

    /// The configuration, if [`Config::check`] accepts it.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn checked(self) -> Result<Config, ModelError> {
        self.check()?;
        Ok(self)
    }
}

/// The number of layers that `key` names.
pub(crate) fn layers(m: &Metadata, key: &str) -> Result<usize, ModelError> {
    let n = m.need_size(key)?;
    let bad = || ModelError::BadValue {
        key: key.into(),
        value: n.to_string(),
        want: format!("at most {MAX_LAYERS}"),
    };
    if n > MAX_LAYERS { Err(bad()) } else { Ok(n) }
}

/// `whole / parts`, which must be exact where no key says the width of a head.
pub(crate) fn even_share(key: &str, whole: usize, parts: usize) -> Result<usize, ModelError> {
    if whole.is_multiple_of(parts) {
        return Ok(whole / parts);
    }
    let want = format!("a multiple of the {parts} heads");
    Err(ModelError::BadValue { key: key.into(), value: whole.to_string(), want })
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
    /// Most sequences of a session (symbol `B`; without it, one).
    pub batch: usize,
    /// Element type of the stored keys and values: f32, f16 or bf16.
    pub kv_dtype: DType,
}

impl Default for BuildOptions {
    fn default() -> BuildOptions {
        BuildOptions { context: None, chunk: 512, rows: 1, batch: 1, kv_dtype: DType::F32 }
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

    /// With sessions of up to `batch` sequences.
    pub fn batch(self, batch: usize) -> BuildOptions {
        BuildOptions { batch, ..self }
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
        for (option, value) in [("chunk", self.chunk), ("rows", self.rows), ("batch", self.batch)] {
            if value == 0 {
                return bad(option, "0".into(), "at least 1".into());
            }
        }
        if !matches!(self.kv_dtype, DType::F32 | DType::F16 | DType::BF16) {
            return bad("kv_dtype", self.kv_dtype.to_string(), "f32, f16 or bf16".into());
        }
        let chunk = self.chunk.min(context);
        let rows = self.rows.min(chunk).max(self.batch);
        Ok(Sizes { context, chunk, rows, batch: self.batch, kv_dtype: self.kv_dtype })
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
    /// Upper bound of the symbol `B`; 1: there is none.
    pub batch: usize,
    /// Element type of the stored keys and values.
    pub kv_dtype: DType,
}

impl Sizes {
    /// The number of sequences in a step of `tokens` tokens each: 1, or the symbol `B`. All sequences together then have at most
    /// `chunk` tokens in a step, or one each if that is more.
    ///
    /// # Errors
    /// The symbol is declared with another range.
    pub fn sequences(&self, b: &mut Builder, tokens: &Dim) -> Result<Dim, SymbolError> {
        if self.batch == 1 {
            return Ok(Dim::from(1i64));
        }
        let batch = b.symbol("B", 1, self.batch as i64)?;
        b.bound(batch.clone() * tokens.clone(), self.chunk.max(self.batch) as i64);
        Ok(batch)
    }
}
