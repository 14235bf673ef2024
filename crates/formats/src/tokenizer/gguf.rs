//! Tokenizers from GGUF metadata, with llama.cpp's defaults where the file is silent.

use super::bytes::{Pieces, SPACE, Spelling, hex_byte};
use super::scored::Scored;
use super::{Ends, Inner, Tokenizer, eog, pre};
use crate::error::{Fail, Fault, FormatError, fail, quote};
use crate::gguf::{Array, Gguf};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::normalizers::{self, NormalizerWrapper, Prepend, Replace};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, AddedVocabulary, PreTokenizerWrapper, SplitDelimiterBehavior};

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";
const SCORES: &str = "tokenizer.ggml.scores";
const PRE: &str = "tokenizer.ggml.pre";

/// Values of `tokenizer.ggml.token_type`.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const BYTE: i32 = 6;

/// What the kinds of tokenizers differ in.
struct Core {
    core: tokenizers::Tokenizer,
    scored: Option<Scored>,
    spelling: Spelling,
    /// Whether texts begin with the begin-of-sequence token when the file does not say.
    add_bos: bool,
    strip_space: bool,
}

impl Tokenizer {
    /// The tokenizer inside a GGUF file. Supported are byte-level BPE (`tokenizer.ggml.model` = `gpt2`) with the
    /// pre-tokenizers of our table, and SentencePiece BPE (`llama`); anything else is an error that says so.
    pub fn from_gguf(gguf: &Gguf) -> Result<Tokenizer, FormatError> {
        let model: &str = gguf.get("tokenizer.ggml.model")?;
        let build = match model {
            "gpt2" => byte_level,
            "llama" => sentence_piece,
            _ => {
                let right =
                    "supported are 'gpt2' (byte-level BPE) and 'llama' (SentencePiece BPE)".to_owned();
                let found = format!("tokenizer {}", quote(model));
                return Err(unsupported(gguf, "tokenizer.ggml.model", found, right));
            }
        };
        let tokens = strings(gguf, TOKENS)?;
        let types = types(gguf, &tokens)?;
        let Core { mut core, scored, spelling, add_bos, strip_space } = build(gguf, &tokens, &types)?;
        let (mut all, mut user) = (Vec::new(), Vec::new());
        let mut special = BTreeSet::new();
        let mut pieces = Pieces::default();
        for (id, (text, kind)) in (0..).zip(tokens.iter().zip(&types)) {
            let ordinary = !matches!(*kind, UNKNOWN | CONTROL | USER_DEFINED);
            let spelling = if ordinary { spelling } else { Spelling::Plain };
            pieces.push(|out| spelling.append(text, out));
            if ordinary {
                continue;
            }
            let token = AddedToken::from(*text, *kind != USER_DEFINED).normalized(false);
            if *kind == USER_DEFINED {
                user.push(token.clone());
            } else {
                special.insert(id);
            }
            all.push(token);
        }
        let invalid = |e: tokenizers::Error| broken(gguf, TOKENS, e.to_string());
        let mut plain = AddedVocabulary::new();
        plain.add_tokens(user, core.get_model(), None::<&NormalizerWrapper>).map_err(invalid)?;
        core.add_tokens(all).map_err(invalid)?;
        let ends = ends(gguf, &tokens, &types, add_bos)?;
        let chat_template = gguf.find::<&str>("tokenizer.chat_template")?.map(str::to_owned);
        let inner = Inner { core, scored, plain, pieces, special, strip_space, ends, chat_template };
        Ok(Tokenizer(Arc::new(inner)))
    }
}

fn byte_level(gguf: &Gguf, tokens: &[&str], _types: &[i32]) -> Result<Core, FormatError> {
    let words = gguf.find::<&str>(PRE)?.unwrap_or(pre::DEFAULT);
    let Some(words) = pre::find(words) else {
        let known: Vec<&str> = pre::TABLE.iter().flat_map(|row| row.names).copied().collect();
        let right = format!("supported are {}", known.join(", "));
        return Err(unsupported(gguf, PRE, format!("pre-tokenizer {}", quote(words)), right));
    };
    let model = bpe(gguf, tokens, words.whole_words)?;
    let mut core = tokenizers::Tokenizer::new(model);
    core.with_pre_tokenizer(Some(splitter(words).map_err(|e| broken(gguf, PRE, e.to_string()))?));
    let add_bos = words.add_bos;
    Ok(Core { core, scored: None, spelling: Spelling::ByteLevel, add_bos, strip_space: false })
}

/// The library's model holds the vocabulary here, and merges nothing.
fn sentence_piece(gguf: &Gguf, tokens: &[&str], types: &[i32]) -> Result<Core, FormatError> {
    let scores: &Array = gguf.get(SCORES)?;
    let scores = scores.scalars::<f32>().filter(|s| s.len() == tokens.len()).ok_or_else(|| {
        broken(gguf, SCORES, format!("{} {} for {} tokens", scores.len(), scores.kind().name(), tokens.len()))
    })?;
    let unknown = (0..).zip(types).find(|(_, kind)| **kind == UNKNOWN).map(|(id, _)| id);
    let mut scored = Scored::new(unknown);
    for (id, ((text, kind), score)) in (0..).zip(tokens.iter().zip(types).zip(scores)) {
        match (*kind, hex_byte(text)) {
            (BYTE, Some(byte)) => scored.add_byte(byte, id),
            (NORMAL, _) => scored.add(text, id, score),
            _ => (),
        }
    }
    let model = BPE::builder().vocab_and_merges(vocab(tokens), Merges::new()).build();
    let mut core = tokenizers::Tokenizer::new(model.map_err(|e| broken(gguf, TOKENS, e.to_string()))?);
    let prefix = gguf.find::<bool>("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    let space = Replace::new(" ", SPACE).map_err(|e| broken(gguf, TOKENS, e.to_string()))?;
    let mut steps: Vec<NormalizerWrapper> = vec![space.into()];
    if prefix {
        steps.push(Prepend::new(SPACE.into()).into());
    }
    core.with_normalizer(Some(normalizers::Sequence::new(steps)))
        .map_err(|e| broken(gguf, TOKENS, e.to_string()))?;
    let spelling = Spelling::SentencePiece;
    Ok(Core { core, scored: Some(scored), spelling, add_bos: true, strip_space: prefix })
}

fn unsupported(gguf: &Gguf, key: &str, found: String, right: String) -> FormatError {
    FormatError::Unsupported { file: gguf.file().into(), at: format!("metadata key '{key}'"), found, right }
}

fn broken(gguf: &Gguf, key: &str, found: String) -> FormatError {
    Fail { fault: Fault::Value, found, right: "the vocabulary must be consistent".into() }
        .at(gguf.file(), format!("metadata key '{key}'"))
}

/// The strings of an array.
fn strings<'a>(gguf: &'a Gguf, key: &str) -> Result<Vec<&'a str>, FormatError> {
    let array: &Array = gguf.get(key)?;
    let texts: Vec<&str> = array.strings().map_while(|bytes| std::str::from_utf8(bytes).ok()).collect();
    if texts.len() != array.len() || texts.len() > i32::MAX as usize {
        let found = format!("element {} of {} is not a UTF-8 string", texts.len(), array.len());
        return fail(Fault::Utf8, found, "all must be")
            .map_err(|f: Fail| f.at(gguf.file(), format!("metadata key '{key}'")));
    }
    Ok(texts)
}

/// The type of each token. One that ends a generation is special even where a file has it as text.
fn types(gguf: &Gguf, tokens: &[&str]) -> Result<Vec<i32>, FormatError> {
    let Some(array) = gguf.find::<&Array>(TYPES)? else { return Ok(vec![NORMAL; tokens.len()]) };
    match array.scalars::<i32>() {
        Some(mut types) if types.len() == tokens.len() => {
            for (kind, text) in types.iter_mut().zip(tokens) {
                if *kind == USER_DEFINED && eog::ends_generation(text) {
                    *kind = CONTROL;
                }
            }
            Ok(types)
        }
        _ => {
            let found = format!("{} {} for {} tokens", array.len(), array.kind().name(), tokens.len());
            Err(broken(gguf, TYPES, found))
        }
    }
}

/// The id of each text; of the last token, if several have the same.
fn vocab(tokens: &[&str]) -> Vocab {
    (0..).zip(tokens).map(|(id, text)| ((*text).to_owned(), id)).collect()
}

/// The model. Every merge is checked here: the library takes it for granted that they name tokens.
fn bpe(gguf: &Gguf, tokens: &[&str], whole_words: bool) -> Result<BPE, FormatError> {
    let vocab = vocab(tokens);
    let mut merges = Merges::new();
    let mut joined = String::new();
    for (i, merge) in strings(gguf, MERGES)?.into_iter().enumerate() {
        // A token may itself begin with a space, so the separator is looked for behind the first character.
        let first = merge.chars().next().map_or(0, char::len_utf8);
        let Some((left, right)) =
            merge[first..].find(' ').map(|n| (&merge[..first + n], &merge[first + n + 1..]))
        else {
            return Err(broken(gguf, MERGES, format!("merge {i}, {}, is not two tokens", quote(merge))));
        };
        joined.clear();
        joined.extend([left, right]);
        if let Some(bad) = [left, right, &joined].into_iter().find(|t| !vocab.contains_key(*t)) {
            let found = format!("merge {i}, {}, needs {}, which is no token", quote(merge), quote(bad));
            return Err(broken(gguf, MERGES, found));
        }
        merges.push((left.to_owned(), right.to_owned()));
    }
    let model = BPE::builder().vocab_and_merges(vocab, merges).ignore_merges(whole_words).build();
    model.map_err(|e| broken(gguf, MERGES, e.to_string()))
}

fn splitter(words: &pre::Pre) -> tokenizers::Result<PreTokenizerWrapper> {
    let mut steps = Vec::new();
    for pattern in words.patterns {
        let pattern = SplitPattern::Regex((*pattern).to_owned());
        steps.push(Split::new(pattern, SplitDelimiterBehavior::Isolated, false)?.into());
    }
    steps.push(ByteLevel::new(false, true, false).into());
    Ok(Sequence::new(steps).into())
}

fn ends(gguf: &Gguf, tokens: &[&str], types: &[i32], add_bos: bool) -> Result<Ends, FormatError> {
    let id = |name: &str| -> Result<Option<u32>, FormatError> {
        let key = format!("tokenizer.ggml.{name}_token_id");
        match gguf.find::<u32>(&key)? {
            Some(id) if id as usize >= tokens.len() => Err(FormatError::KeyType {
                file: gguf.file().into(),
                key,
                found: format!("token {id}"),
                right: format!("an id below {}", tokens.len()),
            }),
            id => Ok(id),
        }
    };
    let by_text = |text: &str| {
        (0..)
            .zip(tokens.iter().zip(types))
            .find(|(_, (t, k))| **t == text && **k == CONTROL)
            .map(|(id, _)| id)
    };
    let (bos, eos) = (id("bos")?, id("eos")?);
    let eot = id("eot")?.or_else(|| eog::end_of_turn(by_text));
    let mut all: BTreeSet<u32> = [eos, eot, id("eom")?].into_iter().flatten().collect();
    let known = |(id, (text, kind)): (u32, (&&str, &i32))| {
        (*kind == CONTROL && eog::ends_generation(text)).then_some(id)
    };
    all.extend((0..).zip(tokens.iter().zip(types)).filter_map(known));
    let edge = |flag: &str, default: bool, token: Option<u32>, name: &str| match gguf.find::<bool>(flag)? {
        Some(false) => Ok(None),
        None if !default => Ok(None),
        _ => token.map(Some).ok_or_else(|| FormatError::MissingKey {
            file: gguf.file().into(),
            key: format!("tokenizer.ggml.{name}_token_id"),
            right: "the token that this tokenizer adds to every text".into(),
        }),
    };
    let prefix = edge("tokenizer.ggml.add_bos_token", add_bos, bos, "bos")?;
    let suffix = edge("tokenizer.ggml.add_eos_token", false, eos, "eos")?;
    Ok(Ends { bos, eos, eot, eog: all, prefix, suffix })
}
