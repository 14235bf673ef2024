//! The kinds of tokenizers that GGUF files name: from the lists of a file to the parts of a [`Tokenizer`](super::Tokenizer).

use super::bytes::{SPACE, Spelling, hex_byte};
use super::gguf::{
    BYTE, CONTROL, MERGES, NORMAL, PRE, SCORES, TOKENS, UNKNOWN, broken, strings, unsupported,
};
use super::scored::{Bytes, Scored};
use super::unigram::Unigram;
use super::{Own, pre};
use crate::error::{FormatError, quote};
use crate::gguf::{Array, Gguf};
use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::replace::ReplacePattern;
use tokenizers::normalizers::{self, BertNormalizer, NormalizerWrapper, Precompiled, Prepend, Replace};
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{ModelWrapper, PreTokenizerWrapper, SplitDelimiterBehavior};

/// What the kinds differ in.
pub(super) struct Core {
    pub core: tokenizers::Tokenizer,
    pub own: Option<Own>,
    pub spelling: Spelling,
    /// The flags `add_bos_token`, `add_eos_token` and `add_sep_token` of a file that does not have them.
    pub add: [bool; 3],
    pub strip_space: bool,
}

/// The lists of a file.
#[derive(Clone, Copy)]
pub(super) struct Lists<'a> {
    pub gguf: &'a Gguf,
    pub tokens: &'a [&'a str],
    pub types: &'a [i32],
}

type Build = fn(Lists<'_>) -> Result<Core, FormatError>;

/// The value of `tokenizer.ggml.model`, what it is, and its builder.
pub(super) const KINDS: &[(&str, &str, Build)] = &[
    ("gpt2", "byte-level BPE", byte_level),
    ("llama", "SentencePiece BPE", sentence_piece),
    ("gemma4", "BPE over characters", character_level),
    ("bert", "WordPiece", word_piece),
    ("t5", "unigram", unigram),
];

fn byte_level(lists: Lists<'_>) -> Result<Core, FormatError> {
    let gguf = lists.gguf;
    let name = gguf.find::<&str>(PRE)?.unwrap_or(pre::DEFAULT);
    let Some(words) = pre::find(name) else {
        let known: Vec<&str> = pre::TABLE.iter().flat_map(|row| row.names).copied().collect();
        let right = format!("supported are {}", known.join(", "));
        return Err(unsupported(gguf, PRE, format!("pre-tokenizer {}", quote(name)), right));
    };
    let model = bpe(lists, BPE::builder().ignore_merges(words.whole_words))?;
    let mut core = tokenizers::Tokenizer::new(model);
    core.with_pre_tokenizer(Some(splitter(words).map_err(|e| broken(gguf, PRE, e.to_string()))?));
    let add = [words.add_bos, false, false];
    Ok(Core { core, own: None, spelling: Spelling::ByteLevel, add, strip_space: false })
}

/// BPE over characters, spaces written as `▁`, characters without a token as bytes; lines and runs of line ends apart.
fn character_level(lists: Lists<'_>) -> Result<Core, FormatError> {
    let gguf = lists.gguf;
    let invalid = |e: tokenizers::Error| broken(gguf, TOKENS, e.to_string());
    let mut core = tokenizers::Tokenizer::new(bpe(lists, BPE::builder().byte_fallback(true))?);
    let space: NormalizerWrapper = Replace::new(" ".to_owned(), SPACE).map_err(invalid)?.into();
    core.with_normalizer(Some(space)).map_err(invalid)?;
    let lines = SplitPattern::Regex(r"\n+".into());
    let lines = Split::new(lines, SplitDelimiterBehavior::Isolated, false).map_err(invalid)?;
    core.with_pre_tokenizer(Some(lines));
    let add = [true, false, false];
    Ok(Core { core, own: None, spelling: Spelling::SentencePiece, add, strip_space: false })
}

/// The library's model holds the vocabulary here, and merges nothing.
fn sentence_piece(lists: Lists<'_>) -> Result<Core, FormatError> {
    let gguf = lists.gguf;
    let mut scored = Scored::new(unknown(lists));
    for (id, text, kind, score) in with_scores(lists)? {
        match (kind, hex_byte(text)) {
            (BYTE, Some(byte)) => scored.add_byte(byte, id),
            (NORMAL, _) => scored.add(text, id, score),
            _ => (),
        }
    }
    let prefix = gguf.find::<bool>("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    let mut core = holder(lists)?;
    with_steps(&mut core, spaces(prefix)).map_err(|e| broken(gguf, TOKENS, e.to_string()))?;
    let (own, add) = (Some(Own::Scored(scored)), [true, false, false]);
    Ok(Core { core, own, spelling: Spelling::SentencePiece, add, strip_space: prefix })
}

/// Files write the pieces of BERT vocabularies in the SentencePiece way: `▁go` for `go` and `ing` for `##ing`.
fn word_piece(lists: Lists<'_>) -> Result<Core, FormatError> {
    let gguf = lists.gguf;
    let unknown = gguf.find::<u32>("tokenizer.ggml.unknown_token_id")?.or(unknown(lists)).unwrap_or(100);
    let Some(unknown) = lists.tokens.get(unknown as usize) else {
        let found = format!("unknown token {unknown} of {}", lists.tokens.len());
        return Err(broken(gguf, TOKENS, found));
    };
    let vocab = (0..).zip(lists.tokens.iter().zip(lists.types)).map(|(id, (text, kind))| {
        let text = match text.strip_prefix(SPACE) {
            Some(word) => word.to_owned(),
            None if matches!(*kind, UNKNOWN | CONTROL) || text == unknown => (*text).to_owned(),
            None => format!("##{text}"),
        };
        (text, id)
    });
    let model = WordPiece::builder().vocab(vocab.collect::<Vocab>()).unk_token((*unknown).to_owned());
    let model = model.build().map_err(|e| broken(gguf, TOKENS, e.to_string()))?;
    let lower = gguf.find::<bool>("tokenizer.ggml.normalizer.lowercase")?.unwrap_or(true);
    let accents = gguf.find::<bool>("tokenizer.ggml.normalizer.strip_accents")?;
    let mut core = tokenizers::Tokenizer::new(model);
    core.with_normalizer(Some(BertNormalizer::new(true, true, accents, lower)))
        .map_err(|e| broken(gguf, TOKENS, e.to_string()))?;
    core.with_pre_tokenizer(Some(BertPreTokenizer));
    let add = [true, false, true];
    Ok(Core { core, own: None, spelling: Spelling::SentencePiece, add, strip_space: true })
}

const CHARS_MAP: &str = "tokenizer.ggml.precompiled_charsmap";

fn unigram(lists: Lists<'_>) -> Result<Core, FormatError> {
    let gguf = lists.gguf;
    let mut bytes = Bytes::default();
    let mut pieces = Vec::new();
    for (id, text, kind, score) in with_scores(lists)? {
        match (kind, hex_byte(text)) {
            (BYTE, Some(byte)) => bytes.add(byte, id),
            (NORMAL, _) => pieces.push((text.to_owned(), id, f64::from(score))),
            _ => (),
        }
    }
    let unknown = gguf.find::<u32>("tokenizer.ggml.unknown_token_id")?.or(unknown(lists));
    let own = Some(Own::Unigram(Unigram::new(pieces, bytes, unknown)));
    let prefix = gguf.find::<bool>("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    let squeeze = gguf.find::<bool>("tokenizer.ggml.remove_extra_whitespaces")?.unwrap_or(false);
    let invalid = |e: tokenizers::Error| broken(gguf, TOKENS, e.to_string());
    let mut steps = Vec::new();
    if let Some(map) = gguf.find::<&Array>(CHARS_MAP)? {
        steps.push(NormalizerWrapper::Precompiled(chars_map(gguf, map)?));
    }
    if squeeze {
        for (pattern, by) in [("^ +| +$", ""), (" +", " ")] {
            let pattern = ReplacePattern::Regex(pattern.into());
            steps.push(Replace::new(pattern, by).map_err(invalid)?.into());
        }
    }
    let mut core = holder(lists)?;
    with_steps(&mut core, steps.into_iter().map(Ok).chain(spaces(prefix))).map_err(invalid)?;
    let add = [false, true, false];
    Ok(Core { core, own, spelling: Spelling::SentencePiece, add, strip_space: prefix })
}

/// The character map of a SentencePiece model: length in bytes (u32) of a double array of u32, the array, the replacement
/// texts, each ended by a zero byte. The library follows the array without looking, so every step is checked here.
fn chars_map(gguf: &Gguf, array: &Array) -> Result<Precompiled, FormatError> {
    // Files write them as signed or unsigned bytes.
    let byte = |v: i64| u8::try_from(v).ok().or_else(|| i8::try_from(v).ok().map(i8::cast_unsigned));
    let bytes: Option<Vec<u8>> = array.scalars::<i64>().and_then(|all| all.into_iter().map(byte).collect());
    let bytes =
        bytes.ok_or_else(|| broken(gguf, CHARS_MAP, format!("{} {}", array.len(), array.kind().name())))?;
    check_chars_map(&bytes).map_err(|found| broken(gguf, CHARS_MAP, found))?;
    Precompiled::from(&bytes).map_err(|e| broken(gguf, CHARS_MAP, e.to_string()))
}

/// Fields of a unit of the double array (darts-clone): bit 31 marks a value, bit 8 that a value follows; the offset stands
/// from bit 10 on, in units of 256 if bit 9 is set.
fn check_chars_map(bytes: &[u8]) -> Result<(), String> {
    let units = bytes.first_chunk::<4>().map_or(0, |n| u32::from_le_bytes(*n) as usize / 4);
    let Some((units, texts)) = bytes.get(4..).and_then(|rest| rest.split_at_checked(units * 4)) else {
        return Err(format!("{} bytes for {units} units of the map", bytes.len()));
    };
    let texts = std::str::from_utf8(texts).map_err(|e| e.to_string())?;
    let units: Vec<usize> =
        units.chunks_exact(4).map(|u| u32::from_le_bytes([u[0], u[1], u[2], u[3]]) as usize).collect();
    if units.is_empty() {
        return Err("no units in the map".into());
    }
    for (i, unit) in units.iter().enumerate().filter(|(_, u)| **u >> 31 == 0) {
        let next = i ^ ((unit >> 10) << ((unit & 1 << 9) >> 6));
        if next | 0xff >= units.len() {
            return Err(format!("unit {i} leads to {next} of {}", units.len()));
        }
        let value = units[next] & 0x7fff_ffff;
        if unit >> 8 & 1 == 1 && !texts.is_char_boundary(value) {
            return Err(format!("unit {i} names text {value} of {}", texts.len()));
        }
    }
    Ok(())
}

/// Each token with its type and score.
fn with_scores(lists: Lists<'_>) -> Result<impl Iterator<Item = (u32, &str, i32, f32)>, FormatError> {
    let Lists { gguf, tokens, types } = lists;
    let scores: &Array = gguf.get(SCORES)?;
    let scores = scores.scalars::<f32>().filter(|s| s.len() == tokens.len()).ok_or_else(|| {
        broken(gguf, SCORES, format!("{} {} for {} tokens", scores.len(), scores.kind().name(), tokens.len()))
    })?;
    let all = (0..).zip(tokens).zip(types).zip(scores);
    Ok(all.map(|(((id, text), kind), score)| (id, *text, *kind, score)))
}

/// A tokenizer of the library that knows the tokens by their texts and merges nothing.
fn holder(lists: Lists<'_>) -> Result<tokenizers::Tokenizer, FormatError> {
    let model = BPE::builder().vocab_and_merges(vocab(lists.tokens), Merges::new()).build();
    let model = model.map_err(|e| broken(lists.gguf, TOKENS, e.to_string()))?;
    Ok(tokenizers::Tokenizer::new(ModelWrapper::from(model)))
}

/// Spaces as `▁`, and one in front of the text if `prefix`.
fn spaces(prefix: bool) -> impl Iterator<Item = tokenizers::Result<NormalizerWrapper>> {
    let space = Replace::new(" ".to_owned(), SPACE).map(NormalizerWrapper::from);
    let prefix = prefix.then(|| Ok(Prepend::new(SPACE.into()).into()));
    std::iter::once(space).chain(prefix)
}

fn with_steps(
    core: &mut tokenizers::Tokenizer,
    steps: impl IntoIterator<Item = tokenizers::Result<NormalizerWrapper>>,
) -> tokenizers::Result<()> {
    let steps: tokenizers::Result<Vec<NormalizerWrapper>> = steps.into_iter().collect();
    core.with_normalizer(Some(normalizers::Sequence::new(steps?)))?;
    Ok(())
}

fn unknown(lists: Lists<'_>) -> Option<u32> {
    (0..).zip(lists.types).find(|(_, kind)| **kind == UNKNOWN).map(|(id, _)| id)
}

/// The id of each text; of the last token, if several have the same.
fn vocab(tokens: &[&str]) -> Vocab {
    (0..).zip(tokens).map(|(id, text)| ((*text).to_owned(), id)).collect()
}

/// The model. Every merge is checked here: the library takes it for granted that they name tokens.
fn bpe(lists: Lists<'_>, builder: tokenizers::models::bpe::BpeBuilder) -> Result<BPE, FormatError> {
    let gguf = lists.gguf;
    let vocab = vocab(lists.tokens);
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
    builder.vocab_and_merges(vocab, merges).build().map_err(|e| broken(gguf, MERGES, e.to_string()))
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

#[cfg(test)]
mod tests {
    use super::check_chars_map;

    /// A map of 256 units whose unit at `at` is `unit`, with the texts `a` and `é`.
    fn map(at: usize, unit: u32) -> Vec<u8> {
        let mut bytes = 1024u32.to_le_bytes().to_vec();
        (0..256).for_each(|i| bytes.extend(if i == at { unit } else { 0 }.to_le_bytes()));
        bytes.extend("a\0é\0".as_bytes());
        bytes
    }

    #[test]
    fn damaged_character_maps_are_refused() {
        assert_eq!(check_chars_map(&map(0, 0)), Ok(()));
        // Unit 1 has a value; the one it names (0) is text 3 for unit 0, which is inside é.
        let mut named = map(1, 1 << 8 | 1 << 10);
        named[4] = 3;
        for (bytes, part) in [
            (vec![], "0 bytes for 0 units"),
            (vec![0; 4], "no units"),
            (vec![8, 0, 0, 0, 1], "5 bytes for 2 units"),
            (4u32.to_le_bytes().iter().chain(&[0; 4]).copied().collect(), "leads to 0 of 1"),
            (map(7, 3 << 18), "unit 7 leads to"),
            (named, "unit 1 names text 3"),
            ([&map(0, 0)[..], &[0xff]].concat(), "utf-8"),
        ] {
            let e = check_chars_map(&bytes).expect_err(part);
            assert!(e.contains(part), "{e:?} lacks {part:?}");
        }
    }
}
