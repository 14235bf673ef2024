//! Tokenizing speed at two lengths, to see that time grows with the length and no faster:
//! `cargo run --release -p frit-formats --example tokenize_speed -- MODEL.gguf…`.

use frit_formats::{EncodeOptions, Gguf, OpenOptions, Tokenizer};
use std::time::Instant;

/// Texts by what repeats in them.
const TEXTS: &[(&str, &str)] = &[
    ("prose", "The quick brown fox, aged 37, didn't jump over the lazy dog's 1234 bones. Ça va? Да!\n"),
    ("one word", "a"),
    ("spaces", " "),
    ("line ends", "\n"),
    ("digits", "7"),
    ("marks", "!"),
    ("Chinese", "我想在家工作"),
    ("accents", "e\u{301}"),
    ("emoji", "🦙"),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "{:24} {:10} {:>10} {:>10} {:>8} {:>6}",
        "vocabulary", "text", "256 KiB", "1 MiB", "tokens", "ratio"
    );
    for path in std::env::args().skip(1) {
        let path = std::path::Path::new(&path);
        let tokenizer = Tokenizer::from_gguf(&Gguf::open(path, OpenOptions::default())?)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().replace("ggml-vocab-", "");
        for (what, part) in TEXTS {
            let time = |bytes: usize| {
                let text = part.repeat(bytes / part.len());
                let start = Instant::now();
                let ids = tokenizer.encode(&text, EncodeOptions::default());
                (start.elapsed(), ids.map(|ids| ids.len()))
            };
            let (small, _) = time(1 << 18);
            let (large, tokens) = time(1 << 20);
            let tokens = tokens.map_or_else(|e| e.to_string(), |n| n.to_string());
            let ratio = large.as_secs_f64() / small.as_secs_f64();
            println!("{name:24} {what:10} {small:>10.1?} {large:>10.1?} {tokens:>8} {ratio:>6.1}");
        }
    }
    Ok(())
}
