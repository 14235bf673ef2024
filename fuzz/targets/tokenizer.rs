//! Tokenizers: `tokenizer.json` (input starts with `{`), GGUF vocabularies (starts with `GGUF`), and otherwise a byte-level
//! vocabulary with every byte, whose merges come from the input, which must give every text back.
//!
//! Whatever the vocabulary: ids are in it, text and stream of the same ids agree, and an id outside is a typed error.

#![no_main]

use frit_formats::{EncodeOptions, Gguf, TokenStream, Tokenizer};
use libfuzzer_sys::fuzz_target;

const OPTIONS: [EncodeOptions; 2] = [
    EncodeOptions { add_special: false, parse_special: false },
    EncodeOptions { add_special: true, parse_special: true },
];

/// Texts that every tokenizer must take.
const TEXTS: [&str; 4] = ["", "a b\n\tab  ", "<s>ab<eos>", "é😀\u{301}\u{0}…"];

/// Panics of the tokenizer library that loading turns into errors are no findings, so the hook that aborts at any panic gives
/// way to one that prints; a panic that nobody catches still ends the run.
fn print_panics() {
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
}

fuzz_target!(init: print_panics(), |data: &[u8]| {
    match data {
        [b'{', ..] => {
            if let Ok(t) = Tokenizer::from_json_bytes(data) {
                TEXTS.iter().for_each(|text| check(&t, text));
            }
        }
        [b'G', b'G', b'U', b'F', ..] => {
            let tokenizer = Gguf::from_bytes(data.to_vec()).and_then(|gguf| Tokenizer::from_gguf(&gguf));
            if let Ok(t) = tokenizer {
                TEXTS.iter().for_each(|text| check(&t, text));
            }
        }
        [pre, rest @ ..] => {
            let (merges, text) = rest.split_at(rest.iter().position(|b| *b == 0).unwrap_or(rest.len()));
            let t = every_byte(*pre, merges);
            let text = String::from_utf8_lossy(text);
            check(&t, &text);
            let ids = t.encode(&text, OPTIONS[0]).expect("every text can be encoded");
            assert_eq!(t.decode(&ids).expect("ids of the vocabulary"), text);
        }
        [] => {}
    }
});

fn check(t: &Tokenizer, text: &str) {
    for options in OPTIONS {
        let Ok(ids) = t.encode(text, options) else { continue };
        assert!(ids.iter().all(|id| (*id as usize) < t.vocab_size()), "{ids:?}");
        let bytes = t.decode_bytes(&ids, true).expect("ids of the vocabulary");
        let _ = t.decode(&ids).expect("ids of the vocabulary");
        let mut stream = TokenStream::with_special(t.clone());
        let mut streamed: String = ids.iter().map(|id| stream.push(*id).expect("an id").to_owned()).collect();
        streamed.push_str(stream.finish());
        assert_eq!(streamed, String::from_utf8_lossy(&bytes));
        let outside = u32::try_from(t.vocab_size()).expect("ids are u32");
        assert!(t.decode(&[outside]).is_err() && t.token_bytes(outside).is_none());
    }
}

/// The character that stands for a byte in byte-level vocabularies.
fn letter(byte: u8) -> char {
    let prints = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if prints(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|b| !prints(*b)).count() as u32;
    char::from_u32(0x100 + before).expect("below the surrogates")
}

/// The tokenizer of a GGUF file with every byte as a token; each pair of bytes of `merges` joins two earlier tokens.
fn every_byte(pre: u8, merges: &[u8]) -> Tokenizer {
    const PRE: [&str; 8] =
        ["default", "gpt-2", "smollm", "falcon", "qwen2", "dbrx", "deepseek-coder", "llama-bpe"];
    let mut tokens: Vec<String> = (0..=255).map(|b| letter(b).to_string()).collect();
    let mut rules = Vec::new();
    for pair in merges.chunks_exact(2).take(200) {
        let (a, b) =
            (&tokens[usize::from(pair[0]) % tokens.len()], &tokens[usize::from(pair[1]) % tokens.len()]);
        let joined = format!("{a}{b}");
        if joined.len() < 200 && !tokens.contains(&joined) {
            rules.push(format!("{a} {b}"));
            tokens.push(joined);
        }
    }
    let mut file = b"GGUF\x03\0\0\0".to_vec();
    file.extend(0u64.to_le_bytes());
    file.extend(5u64.to_le_bytes());
    // Some pre-tokenizers add it to every text.
    text(&mut file, "tokenizer.ggml.bos_token_id");
    file.extend([4u32.to_le_bytes(), 0u32.to_le_bytes()].concat());
    put_text(&mut file, "tokenizer.ggml.model", "gpt2");
    put_text(&mut file, "tokenizer.ggml.pre", PRE[usize::from(pre) % PRE.len()]);
    put_texts(&mut file, "tokenizer.ggml.tokens", &tokens);
    put_texts(&mut file, "tokenizer.ggml.merges", &rules);
    Gguf::from_bytes(file).and_then(|gguf| Tokenizer::from_gguf(&gguf)).expect("a right vocabulary")
}

fn text(out: &mut Vec<u8>, s: &str) {
    out.extend((s.len() as u64).to_le_bytes());
    out.extend(s.as_bytes());
}

fn put_text(out: &mut Vec<u8>, key: &str, value: &str) {
    text(out, key);
    out.extend(8u32.to_le_bytes());
    text(out, value);
}

fn put_texts(out: &mut Vec<u8>, key: &str, values: &[String]) {
    text(out, key);
    out.extend([9u32.to_le_bytes(), 8u32.to_le_bytes()].concat());
    out.extend((values.len() as u64).to_le_bytes());
    values.iter().for_each(|v| text(out, v));
}
