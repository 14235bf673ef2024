//! [`TokenStream`]: text as it is generated, never cut inside a character.

use super::{TextError, Tokenizer};

/// Turns token ids into text piece by piece. Bytes that only begin a character are held back until the rest comes, and
/// become U+FFFD once no continuation can make them valid.
#[derive(Clone, Debug)]
pub struct TokenStream {
    tokenizer: Tokenizer,
    special: bool,
    /// What came in and has not gone out: at most the start of one character between calls.
    held: Vec<u8>,
    text: String,
}

impl TokenStream {
    /// A stream that leaves special tokens (such as an end of turn) out.
    pub fn new(tokenizer: Tokenizer) -> TokenStream {
        TokenStream { tokenizer, special: false, held: Vec::new(), text: String::new() }
    }

    /// A stream that writes special tokens as their text.
    pub fn with_special(tokenizer: Tokenizer) -> TokenStream {
        TokenStream { special: true, ..TokenStream::new(tokenizer) }
    }

    /// The text that `id` completes, possibly none. An id outside the vocabulary is an error and changes nothing.
    pub fn push(&mut self, id: u32) -> Result<&str, TextError> {
        let bytes = self.tokenizer.piece(id)?;
        if self.special || !self.tokenizer.is_special(id) {
            self.held.extend_from_slice(bytes);
        }
        self.text.clear();
        let kept = complete(&self.held, &mut self.text);
        self.held.drain(..self.held.len() - kept);
        Ok(&self.text)
    }

    /// Ends the text: U+FFFD if it ends inside a character, else nothing. The stream can be used again.
    pub fn finish(&mut self) -> &str {
        self.text.clear();
        if !self.held.is_empty() {
            self.held.clear();
            self.text.push(char::REPLACEMENT_CHARACTER);
        }
        &self.text
    }
}

/// Appends to `text` all that is decided in `bytes`; returns how many bytes at the end may yet become a character.
fn complete(bytes: &[u8], text: &mut String) -> usize {
    let mut chunks = bytes.utf8_chunks().peekable();
    while let Some(chunk) = chunks.next() {
        text.push_str(chunk.valid());
        let bad = chunk.invalid();
        if chunks.peek().is_none() && std::str::from_utf8(bad).is_err_and(|e| e.error_len().is_none()) {
            return bad.len();
        }
        if !bad.is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds bytes one at a time, as the worst tokenizer would.
    fn pieces(bytes: &[u8]) -> Vec<String> {
        let mut held = Vec::new();
        let mut out = Vec::new();
        for b in bytes {
            held.push(*b);
            let mut text = String::new();
            let kept = complete(&held, &mut text);
            held.drain(..held.len() - kept);
            out.push(text);
        }
        out
    }

    #[test]
    fn half_an_emoji_waits() {
        assert_eq!(pieces("a😁b".as_bytes()), ["a", "", "", "", "😁", "b"]);
    }

    #[test]
    fn invalid_bytes_are_replaced_once_decided() {
        assert_eq!(pieces(b"\xff"), ["\u{fffd}"]);
        assert_eq!(pieces(b"\xf0\x9fA"), ["", "", "\u{fffd}A"]);
        assert_eq!(pieces(b"\xe2\x82\xe2\x82\xac"), ["", "", "\u{fffd}", "", "€"]);
        assert_eq!(pieces(b"\xf5"), ["\u{fffd}"]);
    }

    #[test]
    fn pieces_join_to_what_lossy_decoding_gives() {
        let bytes: Vec<u8> = (0..2000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut joined = pieces(&bytes).concat();
        let whole = String::from_utf8_lossy(&bytes);
        if joined.len() < whole.len() {
            joined.push(char::REPLACEMENT_CHARACTER);
        }
        assert_eq!(joined, whole);
    }
}
