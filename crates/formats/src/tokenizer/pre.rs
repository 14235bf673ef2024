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

/// Letters with case, as the model's authors list them.
const CASED: &str = concat!(
    r"\s?[",
    r"A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}\x{295}-\x{2af}",
    r"\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1}\x{3a3}-\x{3f5}",
    r"\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}\x{13f8}-\x{13fd}",
    r"\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a}\x{1e00}-\x{1f15}",
    r"\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d}",
    r"\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}",
    r"\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}",
    r"\x{2124}\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}",
    r"\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}",
    r"\x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787}\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}",
    r"\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}",
    r"\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943}",
    "]+",
);

const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|",
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
const GPT4O: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
const DEEPSEEK3: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"##,
    r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";

const fn plain(names: &'static [&'static str], patterns: &'static [&'static str]) -> Pre {
    Pre { names, patterns, whole_words: false, add_bos: false }
}

const fn whole_words(names: &'static [&'static str], patterns: &'static [&'static str]) -> Pre {
    Pre { names, patterns, whole_words: true, add_bos: true }
}

pub(super) static TABLE: &[Pre] = &[
    plain(&[DEFAULT], &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]),
    plain(
        &["gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4", "modern-bert"],
        &[GPT2],
    ),
    plain(&["jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat", "a.x-4.0", "mellum"], &[GPT2]),
    plain(
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"],
        &[r"\p{N}", GPT2],
    ),
    plain(&["falcon"], &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"]),
    plain(&["qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan", "solar-open", "grok-2"], &[QWEN2]),
    plain(&["qwen35"], &[QWEN35]),
    plain(&["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"], &[LLAMA3]),
    plain(
        &["deepseek-coder"],
        &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-\x{d7ff}]+", r"\p{N}"],
    ),
    plain(
        &["deepseek-llm"],
        &[
            r"[\r\n]",
            CASED,
            r"\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+",
            r"\s+$",
            r"[一-龥ࠀ-一가-\x{d7ff}]+",
            r"\p{N}+",
        ],
    ),
    plain(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm"],
        &[r"\p{N}{1,3}", r"[一-龥\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+", DEEPSEEK3],
    ),
    plain(&["gpt-4o", "llama4", "kanana2", "minimax-m2"], &[GPT4O]),
    plain(&["bloom", "poro-chat", "gpt3-finnish"], &[BLOOM]),
    plain(&["viking"], &[BLOOM, r"\p{N}"]),
    whole_words(&["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2"], &[LLAMA3]),
    whole_words(&["midm-2.0", "jina-v5-nano"], &[LLAMA3]),
    whole_words(&["tekken"], &[TEKKEN]),
];

/// The row of a name.
pub(super) fn find(name: &str) -> Option<&'static Pre> {
    TABLE.iter().find(|row| row.names.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::TABLE;
    use std::collections::HashSet;
    use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

    #[test]
    fn names_are_unique_and_every_pattern_compiles() {
        let names: Vec<&str> = TABLE.iter().flat_map(|row| row.names).copied().collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        for pattern in TABLE.iter().flat_map(|row| row.patterns) {
            split(pattern, "x");
        }
    }

    fn split(pattern: &str, text: &str) -> Vec<String> {
        let pattern = SplitPattern::Regex(pattern.to_owned());
        let split = Split::new(pattern, tokenizers::SplitDelimiterBehavior::Isolated, false).unwrap();
        let mut words = PreTokenizedString::from(text);
        split.pre_tokenize(&mut words).unwrap();
        let words = words.get_splits(OffsetReferential::Original, OffsetType::Byte);
        words.into_iter().map(|(word, ..)| word.to_owned()).collect()
    }

    #[test]
    fn words_of_the_patterns_without_vectors() {
        let text = "Don't HTTPServer1234 été\n x";
        let cases = [
            (super::TEKKEN, "Don|'t| HTTPServer|1|2|3|4| été|\n| x"),
            (super::GPT4O, "Don't| HTTPServer|123|4| été|\n| x"),
            (super::DEEPSEEK3, "Don|'t| HTTPServer|1234| été|\n| x"),
            (super::BLOOM, "Don't| HTTPServer1234| été|\n| x"),
        ];
        for (pattern, right) in cases {
            assert_eq!(split(pattern, text).join("|"), right);
        }
    }
}
