//! Tokenizers: from GGUF metadata or `tokenizer.json`, over the `tokenizers` crate.
//!
//! Special tokens (begin of sequence, end of turn) are recognised in a text only if the caller asks for it, so that a
//! user's words cannot forge them. Tokens that a model's author has added as ordinary text always are.

mod bytes;
mod eog;
mod gguf;
mod json;
mod kinds;
mod pre;
mod scored;
mod stream;
mod unigram;

use bytes::Pieces;
use scored::Scored;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
pub use stream::TokenStream;
use tokenizers::{
    AddedVocabulary, Model, NormalizedString, Normalizer, NormalizerWrapper, OffsetType, PreTokenizedString,
    PreTokenizer, Token,
};
use unigram::Unigram;

/// Why a text or a token was refused.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A token id outside the vocabulary.
    #[error("token {id} is not in the vocabulary; ids are 0 to {}", size.saturating_sub(1))]
    Token {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        size: usize,
    },
    /// The tokenizer could not encode a text, e.g. because a pattern would take too long on it.
    #[error("the text of {bytes} bytes cannot be encoded: {reason}")]
    Encode {
        /// Length of the text.
        bytes: usize,
        /// What the tokenizer says.
        reason: String,
    },
}

/// How a text is encoded. The default is for a user's text inside a prompt: neither is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Add the begin and end tokens that the model was trained with.
    pub add_special: bool,
    /// Read special tokens in the text as such. Only for text from a trusted template.
    pub parse_special: bool,
}

/// A tokenizer. Clones are cheap and share the vocabulary.
#[derive(Clone)]
pub struct Tokenizer(Arc<Inner>);

struct Inner {
    core: tokenizers::Tokenizer,
    /// The model, where that of `core` only holds the vocabulary.
    own: Option<Own>,
    /// The added tokens without the special ones.
    plain: AddedVocabulary,
    pieces: Pieces,
    /// Ids left out of decoded text.
    special: BTreeSet<u32>,
    /// One space at the start of a decoded text is the vocabulary's, not the text's.
    strip_space: bool,
    ends: Ends,
    /// By name; [`DEFAULT_TEMPLATE`] if a file has only one.
    chat_templates: BTreeMap<String, String>,
}

/// The name of the chat template that is used if no other is asked for.
const DEFAULT_TEMPLATE: &str = "default";

/// The models written here. Special tokens are not among the pieces that they make of a text.
enum Own {
    Scored(Scored),
    Unigram(Unigram),
}

/// Puts characters back in place of their stand-ins, then normalizes: see [`Tokenizer::encode_rendered`].
struct Restore<'a> {
    stand_ins: &'a BTreeMap<char, char>,
    then: Option<&'a NormalizerWrapper>,
}

impl Normalizer for Restore<'_> {
    fn normalize(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        text.map(|c| self.stand_ins.get(&c).copied().unwrap_or(c));
        self.then.map_or(Ok(()), |n| n.normalize(text))
    }
}

/// The ids at the ends of sequences, and whether encoding adds them.
#[derive(Debug, Default)]
struct Ends {
    bos: Option<u32>,
    eos: Option<u32>,
    eot: Option<u32>,
    /// Every id that ends a generation.
    eog: BTreeSet<u32>,
    /// Added in front and behind; a `tokenizer.json` has its own rule instead.
    prefix: Option<u32>,
    suffix: Option<u32>,
}

impl Tokenizer {
    /// Encodes a text.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>, TextError> {
        self.try_encode(text, options)
            .map_err(|e| TextError::Encode { bytes: text.len(), reason: e.to_string() })
    }

    /// Encodes what a chat template has rendered: special tokens are read, nothing is added. Characters of the conversation
    /// that could be read as part of a special token come as stand-ins, which are put back once special tokens are found.
    pub(crate) fn encode_rendered(
        &self,
        text: &str,
        stand_ins: &BTreeMap<char, char>,
    ) -> Result<Vec<u32>, TextError> {
        let core = &self.0.core;
        let restore = Restore { stand_ins, then: core.get_normalizer() };
        let words = core.get_added_vocabulary().extract_and_normalize(Some(&restore), text);
        self.ids(words, EncodeOptions::default())
            .map_err(|e| TextError::Encode { bytes: text.len(), reason: e.to_string() })
    }

    fn try_encode(&self, text: &str, options: EncodeOptions) -> tokenizers::Result<Vec<u32>> {
        let Inner { core, plain, .. } = &*self.0;
        let added = if options.parse_special { core.get_added_vocabulary() } else { plain };
        self.ids(added.extract_and_normalize(core.get_normalizer(), text), options)
    }

    /// The ids of a text from which the added tokens are extracted.
    fn ids(&self, mut words: PreTokenizedString, options: EncodeOptions) -> tokenizers::Result<Vec<u32>> {
        let Inner { core, own, ends, .. } = &*self.0;
        if let Some(pre) = core.get_pre_tokenizer() {
            pre.pre_tokenize(&mut words)?;
        }
        words.tokenize(|word| match own {
            Some(Own::Scored(scored)) => Ok(scored.tokenize(word.get())),
            Some(Own::Unigram(unigram)) => Ok(unigram.tokenize(word.get())),
            None => self.word(word.get()),
        })?;
        let encoding = words.into_encoding(None, 0, OffsetType::None)?;
        let encoding = core.post_process(encoding, None, options.add_special)?;
        if !options.add_special || (ends.prefix.is_none() && ends.suffix.is_none()) {
            return Ok(encoding.get_ids().to_vec());
        }
        Ok(ends.prefix.into_iter().chain(encoding.get_ids().iter().copied()).chain(ends.suffix).collect())
    }

    /// The tokens of a word by the library's model. Some models look a whole word up among all tokens; where that finds a
    /// special one, the word is taken apart, since special tokens are found before words are made.
    fn word(&self, word: &str) -> tokenizers::Result<Vec<Token>> {
        let model = self.0.core.get_model();
        let tokens = model.tokenize(word)?;
        if !tokens.iter().any(|t| self.is_special(t.id) && word.contains(&t.value)) {
            return Ok(tokens);
        }
        let mut apart = Vec::new();
        for c in word.chars() {
            apart.extend(model.tokenize(c.encode_utf8(&mut [0; 4]))?);
        }
        Ok(apart)
    }

    /// The text of tokens, special ones left out, bytes that are not UTF-8 replaced by U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TextError> {
        let mut bytes = self.decode_bytes(ids, false)?;
        if self.0.strip_space && bytes.first() == Some(&b' ') {
            bytes.remove(0);
        }
        Ok(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
    }

    /// The bytes of tokens one after the other, with the text of special ones if `special`.
    pub fn decode_bytes(&self, ids: &[u32], special: bool) -> Result<Vec<u8>, TextError> {
        let mut bytes = Vec::new();
        for id in ids {
            let piece = self.piece(*id)?;
            if special || !self.is_special(*id) {
                bytes.extend_from_slice(piece);
            }
        }
        Ok(bytes)
    }

    fn piece(&self, id: u32) -> Result<&[u8], TextError> {
        self.token_bytes(id).ok_or(TextError::Token { id, size: self.vocab_size() })
    }

    /// The bytes of one token (its text, for a special token); `None` outside the vocabulary. Ids that a vocabulary
    /// skips have no bytes.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.0.pieces.get(id)
    }

    /// The id of a token as the vocabulary spells it, e.g. `<|im_end|>`.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.0.core.token_to_id(token)
    }

    /// One more than the greatest id.
    pub fn vocab_size(&self) -> usize {
        self.0.pieces.len()
    }

    /// Whether a token is special: left out of decoded text, read in a text only on request.
    pub fn is_special(&self, id: u32) -> bool {
        self.0.special.contains(&id)
    }

    /// The begin-of-sequence token.
    pub fn bos(&self) -> Option<u32> {
        self.0.ends.bos
    }

    /// The end-of-sequence token.
    pub fn eos(&self) -> Option<u32> {
        self.0.ends.eos
    }

    /// The end-of-turn token of a chat model.
    pub fn eot(&self) -> Option<u32> {
        self.0.ends.eot
    }

    /// Whether a token ends a generation.
    pub fn is_eog(&self, id: u32) -> bool {
        self.0.ends.eog.contains(&id)
    }

    /// The ids for which [`is_eog`](Self::is_eog) holds, ascending.
    pub fn eog_ids(&self) -> impl Iterator<Item = u32> {
        self.0.ends.eog.iter().copied()
    }

    /// The chat template (Jinja) that came with the model; of several, the default one.
    pub fn chat_template(&self) -> Option<&str> {
        self.chat_template_named(DEFAULT_TEMPLATE)
    }

    /// The chat template of a name, e.g. `tool_use`.
    pub fn chat_template_named(&self, name: &str) -> Option<&str> {
        self.0.chat_templates.get(name).map(String::as_str)
    }

    /// The names of the chat templates, in alphabetical order.
    pub fn chat_template_names(&self) -> impl Iterator<Item = &str> {
        self.0.chat_templates.keys().map(String::as_str)
    }

    /// The texts of the special tokens.
    pub(crate) fn special_texts(&self) -> impl Iterator<Item = &str> {
        self.0.special.iter().filter_map(|id| std::str::from_utf8(self.token_bytes(*id)?).ok())
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocab_size", &self.vocab_size())
            .field("ends", &self.0.ends)
            .finish_non_exhaustive()
    }
}
