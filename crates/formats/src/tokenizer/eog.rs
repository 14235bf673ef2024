//! Tokens that end a generation, known by their text: files rarely list more than one of them.

/// Texts of tokens that end a generation.
const EOG: &[&str] = &[
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<turn|>",
    "<end_of_utterance>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<eos>",
    "<｜end▁of▁sentence｜>",
];

/// Texts of tokens that end a turn, by preference.
const EOT: &[&str] =
    &["<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<turn|>", "<EOT>", "_<EOT>", "[EOT]"];

/// Whether a special token of this text ends a generation.
pub(super) fn ends_generation(text: &str) -> bool {
    EOG.contains(&text)
}

/// The end of turn among special tokens, found by `id`.
pub(super) fn end_of_turn(id: impl Fn(&str) -> Option<u32>) -> Option<u32> {
    EOT.iter().find_map(|text| id(text))
}
