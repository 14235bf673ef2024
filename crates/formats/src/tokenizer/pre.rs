//! How text is cut into words before byte pairs are merged: one row per value of `tokenizer.ggml.pre`.
//!
//! The patterns are those of the models' own tokenizers, applied in order; each cuts the pieces that the one before has
//! left, and what it does not match stays a piece.

/// What a name of `tokenizer.ggml.pre` stands for.
pub(super) struct Pre {
    pub names: &'static [&'static str],
    pub patterns: &'static [&'static str],
    /// A word that is a token as a whole is that token, whatever the merges say.
    pub whole_words: bool,
    /// Whether a beginning-of-sequence token is added when the file does not say.
    pub add_bos: bool,
}

/// The name used when a file has none.
pub(super) const DEFAULT: &str = "default";

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const fn plain(names: &'static [&'static str], patterns: &'static [&'static str]) -> Pre {
    Pre { names, patterns, whole_words: false, add_bos: false }
}

pub(super) static TABLE: &[Pre] = &[
    plain(&[DEFAULT], &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]),
    plain(&["gpt-2", "phi-2", "mpt", "olmo", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de"], &[GPT2]),
    plain(&["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"], &[r"\p{N}", GPT2]),
    plain(&["falcon"], &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"]),
    plain(&["qwen2", "deepseek-r1-qwen", "stablelm2"], &[QWEN2]),
    plain(&["qwen35"], &[QWEN35]),
    plain(&["dbrx", "smaug-bpe"], &[LLAMA3]),
    plain(
        &["deepseek-coder"],
        &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-\x{d7ff}]+", r"\p{N}"],
    ),
    Pre {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2"],
        patterns: &[LLAMA3],
        whole_words: true,
        add_bos: true,
    },
];

/// The row of a name.
pub(super) fn find(name: &str) -> Option<&'static Pre> {
    TABLE.iter().find(|row| row.names.contains(&name))
}
