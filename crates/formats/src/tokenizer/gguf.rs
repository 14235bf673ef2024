//! Tokenizers from GGUF metadata, with llama.cpp's defaults where the file is silent.

use super::bytes::{Pieces, Spelling};
use super::kinds::{Core, KINDS, Lists};
use super::{DEFAULT_TEMPLATE, Ends, Inner, Tokenizer, eog};
use crate::error::{Fail, Fault, FormatError, fail, quote};
use crate::gguf::{Array, Gguf};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokenizers::{AddedToken, AddedVocabulary, NormalizerWrapper};

pub(super) const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
pub(super) const MERGES: &str = "tokenizer.ggml.merges";
pub(super) const SCORES: &str = "tokenizer.ggml.scores";
pub(super) const PRE: &str = "tokenizer.ggml.pre";

/// Values of `tokenizer.ggml.token_type`.
pub(super) const NORMAL: i32 = 1;
pub(super) const UNKNOWN: i32 = 2;
pub(super) const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
pub(super) const BYTE: i32 = 6;

impl Tokenizer {
    /// The tokenizer inside a GGUF file: byte-level BPE with the pre-tokenizers of our table, BPE over characters, SentencePiece
    /// BPE, WordPiece or unigram. A kind or a pre-tokenizer that is not known is an error that lists those that are.
    pub fn from_gguf(gguf: &Gguf) -> Result<Tokenizer, FormatError> {
        let model: &str = gguf.get("tokenizer.ggml.model")?;
        let Some((_, _, build)) = KINDS.iter().find(|(name, ..)| *name == model) else {
            let known: Vec<String> =
                KINDS.iter().map(|(name, what, _)| format!("'{name}' ({what})")).collect();
            let right = format!("supported are {}", known.join(", "));
            let found = format!("tokenizer {}", quote(model));
            return Err(unsupported(gguf, "tokenizer.ggml.model", found, right));
        };
        let tokens = strings(gguf, TOKENS)?;
        let types = types(gguf, &tokens)?;
        let lists = Lists { gguf, tokens: &tokens, types: &types };
        let Core { mut core, own, spelling, add, strip_space } = build(lists)?;
        let (mut all, mut user) = (Vec::new(), Vec::new());
        let mut special = BTreeSet::new();
        let mut pieces = Pieces::default();
        let strips = strips(gguf)?;
        for (id, (text, kind)) in (0..).zip(tokens.iter().zip(&types)) {
            let ordinary = !matches!(*kind, UNKNOWN | CONTROL | USER_DEFINED);
            let spelling = if ordinary { spelling } else { Spelling::Plain };
            pieces.push(|out| spelling.append(text, out));
            if ordinary {
                continue;
            }
            let token = AddedToken::from(*text, *kind != USER_DEFINED).normalized(false);
            let token = token.rstrip(strips && !matches!(*text, "<unk>" | "<s>" | "<|endoftext|>"));
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
        let ends = ends(lists, add)?;
        let chat_templates = chat_templates(gguf)?;
        let inner = Inner { core, own, plain, pieces, special, strip_space, ends, chat_templates };
        Ok(Tokenizer(Arc::new(inner)))
    }
}

pub(super) fn unsupported(gguf: &Gguf, key: &str, found: String, right: String) -> FormatError {
    FormatError::Unsupported { file: gguf.file().into(), at: format!("metadata key '{key}'"), found, right }
}

pub(super) fn broken(gguf: &Gguf, key: &str, found: String) -> FormatError {
    Fail { fault: Fault::Value, found, right: "the vocabulary must be consistent".into() }
        .at(gguf.file(), format!("metadata key '{key}'"))
}

/// The strings of an array.
pub(super) fn strings<'a>(gguf: &'a Gguf, key: &str) -> Result<Vec<&'a str>, FormatError> {
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

/// Whether special tokens swallow the spaces behind them. Files do not say it; the tokenizers of Phi 3 are the ones that do.
fn strips(gguf: &Gguf) -> Result<bool, FormatError> {
    let name = gguf.find::<&str>("general.name")?.unwrap_or_default().to_ascii_lowercase();
    Ok(name.contains("phi-3") || name.contains("phi3"))
}

/// The chat templates: `tokenizer.chat_template`, and `tokenizer.chat_template.NAME` for those with a name.
fn chat_templates(gguf: &Gguf) -> Result<BTreeMap<String, String>, FormatError> {
    let mut all = BTreeMap::new();
    for (key, _) in gguf.metadata() {
        let name = match key.strip_prefix("tokenizer.chat_template") {
            Some("") => DEFAULT_TEMPLATE,
            Some(rest) if rest.len() > 1 && rest.starts_with('.') => &rest[1..],
            _ => continue,
        };
        all.insert(name.to_owned(), gguf.get::<&str>(key)?.to_owned());
    }
    Ok(all)
}

/// The ends of sequences; `add` are the flags of a file that does not have them: for begin, end and separator.
fn ends(Lists { gguf, tokens, types }: Lists<'_>, add: [bool; 3]) -> Result<Ends, FormatError> {
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
    let (bos, eos) = (id("bos")?.or(id("cls")?), id("eos")?);
    // The key is spelled so in files.
    let sep = id("seperator")?;
    let eot = id("eot")?.or_else(|| eog::end_of_turn(by_text));
    let mut all: BTreeSet<u32> = [eos, eot, id("eom")?].into_iter().flatten().collect();
    let known = |(id, (text, kind)): (u32, (&&str, &i32))| {
        (*kind == CONTROL && eog::ends_generation(text)).then_some(id)
    };
    all.extend((0..).zip(tokens.iter().zip(types)).filter_map(known));
    let edge = |name: &str, default: bool, token: Option<u32>| {
        let flag = gguf.find::<bool>(&format!("tokenizer.ggml.add_{name}_token"))?;
        if !flag.unwrap_or(default) {
            return Ok(None);
        }
        token.map(Some).ok_or_else(|| FormatError::MissingKey {
            file: gguf.file().into(),
            key: format!("tokenizer.ggml.{}_token_id", if name == "sep" { "seperator" } else { name }),
            right: "the token that this tokenizer adds to every text".into(),
        })
    };
    let prefix = edge("bos", add[0], bos)?;
    let suffix = edge("eos", add[1], eos)?.or(edge("sep", add[2], sep)?);
    Ok(Ends { bos, eos, eot, eog: all, prefix, suffix })
}
