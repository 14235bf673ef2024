//! Tokenizers from `tokenizer.json`, and the files that lie beside it in a model's folder.

use super::bytes::{Pieces, Spelling, hex_byte};
use super::scored::Bytes;
use super::unigram::Unigram;
use super::{DEFAULT_TEMPLATE, Ends, Inner, Own, Tokenizer, eog};
use crate::blob::{Blob, OpenOptions};
use crate::error::{Fail, Fault, FormatError, fail, quote};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokenizers::{AddedToken, Encoding, ModelWrapper};

/// A vocabulary larger than this is taken for a damaged file: the largest published ones have an eighth of it.
const LARGEST_ID: u32 = 1 << 21;

/// What the files beside `tokenizer.json` add.
#[derive(Default)]
struct Extras {
    bos: Option<String>,
    eos: Option<String>,
    eog: Vec<u32>,
    chat_templates: BTreeMap<String, String>,
}

/// The part of a `tokenizer.json` that is read besides the library.
#[derive(Deserialize)]
struct Declared {
    #[serde(default)]
    added_tokens: Vec<Added>,
    model: Model,
}

#[derive(Deserialize)]
struct Model {
    unk_id: Option<u32>,
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    content: String,
}

impl Tokenizer {
    /// The tokenizer of a `tokenizer.json`. The file does not say which tokens begin and end a sequence; the ends are
    /// known by their usual texts only. Truncation and padding settings of the file are not used.
    pub fn from_file(path: &Path) -> Result<Tokenizer, FormatError> {
        let bytes = Blob::open(path, OpenOptions { map: false })?;
        build(&path.display().to_string(), &bytes, Extras::default())
    }

    /// Like [`from_file`](Self::from_file) for bytes in memory; errors call them "tokenizer.json bytes".
    pub fn from_json_bytes(bytes: &[u8]) -> Result<Tokenizer, FormatError> {
        build("tokenizer.json bytes", bytes, Extras::default())
    }

    /// The tokenizer of a model's folder: `tokenizer.json`, with the begin and end tokens and the chat template from
    /// `tokenizer_config.json`, `generation_config.json` and `chat_template.jinja` where these exist.
    pub fn from_folder(folder: &Path) -> Result<Tokenizer, FormatError> {
        let path = folder.join("tokenizer.json");
        let bytes = Blob::open(&path, OpenOptions { map: false })?;
        build(&path.display().to_string(), &bytes, extras(folder)?)
    }
}

fn build(file: &str, json: &[u8], extras: Extras) -> Result<Tokenizer, FormatError> {
    let (core, declared) = load(json).map_err(|found| {
        Fail { fault: Fault::Json, found, right: "it must be a file of the tokenizers library".into() }
            .at(file, "tokenizer")
    })?;
    let (spelling, strip_space) = spelling(&core);
    let vocab = core.get_vocab(true);
    let size = vocab.values().max().map_or(0, |id| id + 1);
    let mut texts = vec![""; size as usize];
    for (text, id) in &vocab {
        texts[*id as usize] = text;
    }
    let added = core.get_added_tokens_decoder();
    let special: BTreeSet<u32> = added.iter().filter(|(_, t)| t.special).map(|(id, _)| *id).collect();
    let mut pieces = Pieces::default();
    for (id, text) in (0..).zip(&texts) {
        let spelling = if added.contains_key(&id) { Spelling::Plain } else { spelling };
        if !text.is_empty() {
            pieces.push(|out| spelling.append(text, out));
        } else {
            pieces.push(|_| ());
        }
    }
    let named = |text: &Option<String>| text.as_ref().and_then(|t| core.token_to_id(t));
    let (bos, eos) = (named(&extras.bos), named(&extras.eos));
    let eot = eog::end_of_turn(|text| core.token_to_id(text).filter(|id| special.contains(id)));
    let mut all: BTreeSet<u32> = extras.eog.into_iter().chain(eos).chain(eot).collect();
    all.extend(special.iter().filter(|id| eog::ends_generation(texts[**id as usize])));
    let mut plain = core.get_added_vocabulary().clone();
    plain.set_encode_special_tokens(true);
    let ends = Ends { bos, eos, eot, eog: all, prefix: None, suffix: None };
    let own = own(&core, &special, declared.model.unk_id);
    let chat_templates = extras.chat_templates;
    let inner = Inner { core, own, plain, pieces, special, strip_space, ends, chat_templates };
    Ok(Tokenizer(Arc::new(inner)))
}

/// Our own model in place of the library's where that one would read special tokens in a text.
fn own(core: &tokenizers::Tokenizer, special: &BTreeSet<u32>, unknown: Option<u32>) -> Option<Own> {
    let ModelWrapper::Unigram(model) = core.get_model() else { return None };
    let mut bytes = Bytes::default();
    let mut pieces = Vec::new();
    for (id, (text, score)) in (0..).zip(model.iter()) {
        match hex_byte(text).filter(|_| model.byte_fallback()) {
            Some(byte) => bytes.add(byte, id),
            None if special.contains(&id) => (),
            None => pieces.push((text.clone(), id, *score)),
        }
    }
    Some(Own::Unigram(Unigram::new(pieces, bytes, unknown)))
}

/// Parses and checks a `tokenizer.json`; the error is what is wrong with it.
fn load(json: &[u8]) -> Result<(tokenizers::Tokenizer, Declared), String> {
    // The library panics on some inconsistent models, e.g. merges longer than any token.
    let mut core = match catch_unwind(AssertUnwindSafe(|| tokenizers::Tokenizer::from_bytes(json))) {
        Ok(Ok(core)) => core,
        Ok(Err(e)) => return Err(e.to_string()),
        Err(_) => return Err("an inconsistent model".into()),
    };
    // The library numbers added tokens itself and only logs it when the file has other numbers.
    let declared: Declared = serde_json::from_slice(json).map_err(|e| e.to_string())?;
    for Added { id, content } in &declared.added_tokens {
        let given = core.token_to_id(content).unwrap_or(u32::MAX);
        if given != *id {
            return Err(format!(
                "added token {} has id {id}, its place in the vocabulary is {given}",
                quote(content)
            ));
        }
    }
    // Special tokens are looked for in the text as it is written, never in what normalizing has made of it.
    let special = core.get_added_tokens_decoder().into_values().filter(|t| t.special && t.normalized);
    let special: Vec<AddedToken> = special.map(|t| t.normalized(false)).collect();
    core.add_special_tokens(special).map_err(|e| e.to_string())?;
    core.with_truncation(None).map_err(|e| e.to_string())?;
    core.with_padding(None);
    let far = |id: &u32| *id >= LARGEST_ID;
    if let Some(id) = core.get_vocab(true).into_values().find(far) {
        return Err(format!("token id {id}"));
    }
    check_frame(&core)?;
    Ok((core, declared))
}

/// Checks that what the post-processor puts around a text are tokens. It has ids of its own, which the library takes as they
/// are, and it panics where a template names a token that the file does not define.
fn check_frame(core: &tokenizers::Tokenizer) -> Result<(), String> {
    let frame = catch_unwind(AssertUnwindSafe(|| core.post_process(Encoding::default(), None, true)));
    let ids = match frame {
        Ok(Ok(encoding)) => encoding.get_ids().to_vec(),
        Ok(Err(e)) => return Err(e.to_string()),
        Err(_) => return Err("an inconsistent post-processor".into()),
    };
    match ids.into_iter().find(|id| core.id_to_token(*id).is_none()) {
        Some(id) => Err(format!("the post-processor adds token {id}, which is not in the vocabulary")),
        None => Ok(()),
    }
}

/// How the decoder reads tokens, and whether it drops a space in front.
fn spelling(core: &tokenizers::Tokenizer) -> (Spelling, bool) {
    let decoder = core.get_decoder().and_then(|d| serde_json::to_value(d).ok()).unwrap_or(Value::Null);
    let mut kinds = Vec::new();
    collect_types(&decoder, &mut kinds);
    let has = |kind: &str| kinds.iter().any(|k| k == kind);
    let spelling = if has("ByteLevel") {
        Spelling::ByteLevel
    } else if has("Metaspace") || has("ByteFallback") {
        Spelling::SentencePiece
    } else if has("WordPiece") {
        Spelling::WordPiece
    } else {
        Spelling::Plain
    };
    (spelling, has("Metaspace") || has("Strip") || has("WordPiece"))
}

/// The `type` of a decoder and of those inside it.
fn collect_types(decoder: &Value, kinds: &mut Vec<String>) {
    if let Some(kind) = decoder.get("type").and_then(Value::as_str) {
        kinds.push(kind.to_owned());
    }
    for inner in decoder.get("decoders").and_then(Value::as_array).into_iter().flatten() {
        collect_types(inner, kinds);
    }
}

/// A token in `tokenizer_config.json`: its text, or an object with it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Token {
    Text(String),
    Object { content: String },
}

/// A chat template: one text, or several by name.
#[derive(Deserialize)]
#[serde(untagged)]
enum Template {
    Text(String),
    Named(Vec<Named>),
}

#[derive(Deserialize)]
struct Named {
    name: String,
    template: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenizerConfig {
    bos_token: Option<Token>,
    eos_token: Option<Token>,
    chat_template: Option<Template>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Ids {
    One(u32),
    Many(Vec<u32>),
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GenerationConfig {
    eos_token_id: Option<Ids>,
}

fn extras(folder: &Path) -> Result<Extras, FormatError> {
    let config: TokenizerConfig = config(&folder.join("tokenizer_config.json"))?;
    let generation: GenerationConfig = self::config(&folder.join("generation_config.json"))?;
    let text = |token: Option<Token>| {
        token.map(|t| match t {
            Token::Text(content) | Token::Object { content } => content,
        })
    };
    let mut chat_templates: BTreeMap<String, String> = match config.chat_template {
        Some(Template::Text(text)) => [(DEFAULT_TEMPLATE.to_owned(), text)].into(),
        Some(Template::Named(all)) => all.into_iter().map(|t| (t.name, t.template)).collect(),
        None => BTreeMap::new(),
    };
    // Files beside the configuration come before what stands in it.
    for (name, path) in template_files(folder)? {
        let text = utf8(&path, &Blob::open(&path, OpenOptions { map: false })?)?;
        chat_templates.insert(name, text);
    }
    Ok(Extras {
        bos: text(config.bos_token),
        eos: text(config.eos_token),
        eog: generation.eos_token_id.map_or(Vec::new(), |ids| match ids {
            Ids::One(id) => vec![id],
            Ids::Many(ids) => ids,
        }),
        chat_templates,
    })
}

/// The files with chat templates by name: `chat_template.jinja`, and `additional_chat_templates/NAME.jinja`.
fn template_files(folder: &Path) -> Result<Vec<(String, PathBuf)>, FormatError> {
    let mut all = vec![(DEFAULT_TEMPLATE.to_owned(), folder.join("chat_template.jinja"))];
    let more = folder.join("additional_chat_templates");
    if more.is_dir() {
        let io = |source| FormatError::Io { file: more.display().to_string(), source };
        for entry in std::fs::read_dir(&more).map_err(io)? {
            let path = entry.map_err(io)?.path();
            if let (Some(name), Some("jinja")) =
                (path.file_stem().and_then(|n| n.to_str()), path.extension().and_then(|e| e.to_str()))
            {
                all.push((name.to_owned(), path));
            }
        }
    }
    // What is there and is no file is an error when it is read.
    all.retain(|(_, path)| path.exists());
    Ok(all)
}

/// A file with a JSON object, or the default if it is not there.
fn config<T: Default + for<'a> Deserialize<'a>>(path: &Path) -> Result<T, FormatError> {
    if !path.exists() {
        return Ok(T::default());
    }
    let bytes = Blob::open(path, OpenOptions { map: false })?;
    // A list would be taken for the fields in their order.
    let read = match bytes.trim_ascii_start().first() {
        Some(b'{') => serde_json::from_slice(&bytes).map_err(|e| e.to_string()),
        _ => Err("no JSON object".to_owned()),
    };
    read.or_else(|e| {
        fail(Fault::Json, e, "it must be a JSON object, as the tokenizers library writes it")
            .map_err(|f: Fail| f.at(&path.display().to_string(), "configuration"))
    })
}

fn utf8(path: &Path, bytes: &[u8]) -> Result<String, FormatError> {
    String::from_utf8(bytes.to_vec()).or_else(|e| {
        fail(Fault::Utf8, e.to_string(), "a template must be UTF-8")
            .map_err(|f: Fail| f.at(&path.display().to_string(), "chat template"))
    })
}
