//! Tokenizers against reference vectors, over real vocabularies in `target/models`.

#![cfg(feature = "text")]

use frit_formats::{EncodeOptions, Gguf, OpenOptions, TokenStream, Tokenizer};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

const TEXT: EncodeOptions = EncodeOptions { add_special: false, parse_special: false };
const TEMPLATE: EncodeOptions = EncodeOptions { add_special: false, parse_special: true };
const WHOLE: EncodeOptions = EncodeOptions { add_special: true, parse_special: false };

static LLAMA: LazyLock<Tokenizer> = LazyLock::new(|| load("vocab/ggml-vocab-llama-bpe.gguf"));
static QWEN2: LazyLock<Tokenizer> = LazyLock::new(|| load("vocab/ggml-vocab-qwen2.gguf"));
static GPT2: LazyLock<Tokenizer> = LazyLock::new(|| load("vocab/ggml-vocab-gpt-2.gguf"));
static SPM: LazyLock<Tokenizer> = LazyLock::new(|| load("vocab/ggml-vocab-llama-spm.gguf"));
static SMOLLM2: LazyLock<Tokenizer> = LazyLock::new(|| load("SmolLM2-135M-Instruct.Q4_1.gguf"));

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn load(name: &str) -> Tokenizer {
    let path = root().join("target/models").join(name);
    assert!(path.is_file(), "target/models/{name} is not there: run cargo xtask fetch");
    Tokenizer::from_gguf(&Gguf::open(&path, OpenOptions::default()).unwrap()).unwrap()
}

fn data(name: &str) -> String {
    std::fs::read_to_string(root().join("tests/data/tokenizers").join(name)).unwrap()
}

/// The text of ids, one at a time through a stream.
fn streamed(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let mut stream = TokenStream::new(tokenizer.clone());
    let mut text: String = ids.iter().map(|id| stream.push(*id).unwrap().to_owned()).collect();
    text.push_str(stream.finish());
    text
}

/// How decoding a set's ids gives its text back.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Back {
    /// Exactly; a stream too.
    Exact,
    /// Exactly, but a stream keeps the space that the vocabulary puts in front of every text.
    SpaceInFront,
    /// The vocabulary normalizes text (case, accents, spaces): only the ids come back.
    Ids,
}

/// Every set of vectors: vocabulary and results, texts, how they decode.
const SETS: &[(&str, &str, Back)] = &[
    ("bert-bge", "vectors", Back::Ids),
    ("command-r", "vectors", Back::Exact),
    ("deepseek-coder", "vectors", Back::Exact),
    ("deepseek-llm", "vectors", Back::Exact),
    ("falcon", "vectors", Back::Exact),
    ("gemma-4", "gemma-4", Back::Exact),
    ("gpt-2", "vectors", Back::Exact),
    ("llama-bpe", "vectors", Back::Exact),
    ("llama-spm", "vectors", Back::SpaceInFront),
    ("mpt", "vectors", Back::Exact),
    ("nomic-bert-moe", "vectors", Back::Ids),
    ("phi-3", "vectors", Back::SpaceInFront),
    ("qwen2", "vectors", Back::Exact),
    ("qwen35", "qwen35", Back::Exact),
    ("refact", "vectors", Back::Exact),
    ("starcoder", "vectors", Back::Exact),
];

fn check_set(name: &str, texts: &str, back: Back) -> Result<(), String> {
    let tokenizer = load(&format!("vocab/ggml-vocab-{name}.gguf"));
    let texts = data(&format!("{texts}.inp"));
    let texts = texts.strip_suffix("\n__ggml_vocab_test__\n").unwrap_or(&texts);
    let texts: Vec<&str> = texts.split("\n__ggml_vocab_test__\n").collect();
    let expected = data(&format!("{name}.out"));
    let lines: Vec<&str> = expected.lines().collect();
    assert!(texts.len() == lines.len() && texts.len() > 40, "{} texts, {} results", texts.len(), lines.len());
    for (text, line) in texts.iter().zip(lines) {
        let right: Vec<u32> = line.split_whitespace().map(|id| id.parse().unwrap()).collect();
        let ids = tokenizer.encode(text, TEXT).map_err(|e| e.to_string())?;
        if ids != right {
            return Err(format!("{name}: {text:?}\n gives {ids:?}\n not   {right:?}"));
        }
        let decoded = tokenizer.decode(&ids).unwrap();
        if back == Back::Ids {
            // What has no token is lost.
            if ids.iter().all(|id| !tokenizer.is_special(*id)) {
                let again = tokenizer.encode(&decoded, TEXT).unwrap();
                assert_eq!(again, ids, "{name}: {text:?} is {decoded:?}");
            }
            continue;
        }
        assert_eq!(decoded, **text, "{name}");
        let start = if back == Back::SpaceInFront && !text.is_empty() { " " } else { "" };
        assert_eq!(streamed(&tokenizer, &ids), format!("{start}{text}"), "{name}");
    }
    Ok(())
}

#[test]
fn every_set_of_vectors_is_equal() {
    let wrong: Vec<String> = SETS.iter().filter_map(|(n, t, b)| check_set(n, t, *b).err()).collect();
    assert!(wrong.is_empty(), "{} sets differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn llama_sentence_piece_begins_texts() {
    assert_eq!(SPM.encode("Hello", WHOLE).unwrap(), [1, 15043]);
}

#[derive(Deserialize)]
struct Prompt {
    prompt: String,
    ids: Vec<u32>,
    greedy: Vec<u32>,
    greedy_text: String,
}

#[test]
fn smollm2_matches_the_reference() {
    let prompts: Vec<Prompt> = serde_json::from_str(&data("smollm2.json")).unwrap();
    assert!(prompts.len() >= 4);
    for p in prompts {
        assert_eq!(SMOLLM2.encode(&p.prompt, TEXT).unwrap(), p.ids, "{:?}", p.prompt);
        assert_eq!(SMOLLM2.decode(&p.ids).unwrap(), p.prompt);
        assert_eq!(SMOLLM2.decode(&p.greedy).unwrap(), p.greedy_text);
        assert_eq!(streamed(&SMOLLM2, &p.greedy), p.greedy_text);
    }
}

#[test]
fn a_users_text_cannot_forge_special_tokens() {
    let text = "hi<|eot_id|>";
    let eot = LLAMA.token_id("<|eot_id|>").unwrap();
    assert_eq!(eot, 128_009);
    let read = LLAMA.encode(text, TEMPLATE).unwrap();
    assert_eq!(read.last(), Some(&eot));
    let user = LLAMA.encode(text, TEXT).unwrap();
    assert!(user.iter().all(|id| !LLAMA.is_special(*id)), "{user:?}");
    assert_eq!(LLAMA.decode(&user).unwrap(), text);
    assert_eq!(LLAMA.decode(&read).unwrap(), "hi");
    assert_eq!(LLAMA.decode_bytes(&read, true).unwrap(), text.as_bytes());
}

#[test]
fn begin_and_end_tokens_are_the_models() {
    // Llama 3 begins every text although its file does not say so; the others do not.
    assert_eq!(LLAMA.encode("Hello", WHOLE).unwrap(), [128_000, 9906]);
    assert_eq!(GPT2.encode("Hello", WHOLE).unwrap(), [15496]);
    assert_eq!(SMOLLM2.encode("The", WHOLE).unwrap(), [504]);
    assert_eq!((LLAMA.bos(), LLAMA.eos(), LLAMA.eot()), (Some(128_000), Some(128_001), Some(128_009)));
    assert_eq!((SMOLLM2.bos(), SMOLLM2.eos(), SMOLLM2.eot()), (Some(1), Some(2), Some(2)));
    assert_eq!(LLAMA.eog_ids().collect::<Vec<_>>(), [128_001, 128_009]);
    assert!(QWEN2.is_eog(QWEN2.token_id("<|im_end|>").unwrap()));
    assert!(SMOLLM2.chat_template().unwrap().contains("<|im_start|>"));
    assert_eq!(LLAMA.chat_template(), None);
    assert_eq!((LLAMA.vocab_size(), SMOLLM2.vocab_size()), (128_256, 49_152));
}

#[test]
fn a_stream_holds_half_a_character() {
    let ids = GPT2.encode("😁", TEXT).unwrap();
    assert!(ids.len() > 1);
    let mut stream = TokenStream::new(GPT2.clone());
    for id in &ids[..ids.len() - 1] {
        assert_eq!(stream.push(*id).unwrap(), "");
    }
    assert_eq!(stream.push(ids[ids.len() - 1]).unwrap(), "😁");
    stream.push(ids[0]).unwrap();
    assert_eq!(stream.finish(), "\u{fffd}");
    assert_eq!(stream.finish(), "");
}

#[test]
fn ids_outside_the_vocabulary_are_errors() {
    let e = GPT2.decode(&[1, 50_257]).unwrap_err();
    assert_eq!(e.to_string(), "token 50257 is not in the vocabulary; ids are 0 to 50256");
    assert!(TokenStream::new(GPT2.clone()).push(u32::MAX).is_err());
    assert_eq!(GPT2.token_bytes(50_257), None);
    assert_eq!(GPT2.token_bytes(6342), Some(&b" Paris"[..]));
}
