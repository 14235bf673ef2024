//! From tokens to bytes: the ways in which vocabularies write bytes as text.

use std::sync::LazyLock;

/// How SentencePiece vocabularies write a space.
pub(super) const SPACE: &str = "\u{2581}";

/// How a vocabulary spells its ordinary tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// Every byte is one character, the table of GPT-2.
    ByteLevel,
    /// `▁` is a space and `<0xNN>` a byte.
    SentencePiece,
    /// `##` continues a word, anything else starts one.
    WordPiece,
    /// Text as it is.
    Plain,
}

impl Spelling {
    /// Appends the bytes of a token.
    pub fn append(self, token: &str, out: &mut Vec<u8>) {
        match self {
            Spelling::ByteLevel => {
                for c in token.chars() {
                    match byte_of(c) {
                        Some(byte) => out.push(byte),
                        None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                    }
                }
            }
            Spelling::SentencePiece => match hex_byte(token) {
                Some(byte) => out.push(byte),
                None => out.extend_from_slice(token.replace(SPACE, " ").as_bytes()),
            },
            Spelling::WordPiece => match token.strip_prefix("##") {
                Some(rest) => out.extend_from_slice(rest.as_bytes()),
                None => {
                    out.push(b' ');
                    out.extend_from_slice(token.as_bytes());
                }
            },
            Spelling::Plain => out.extend_from_slice(token.as_bytes()),
        }
    }
}

/// The byte that a token of the form `<0xNN>` stands for.
pub(super) fn hex_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
        .then(|| u8::from_str_radix(digits, 16).ok())?
}

/// Where the characters for bytes that do not print begin.
const SHIFTED: usize = 0x100;

/// Byte of each character below `SHIFTED + 68`; printable Latin-1 stands for itself, the rest follows in order.
static BYTES: LazyLock<Vec<Option<u8>>> = LazyLock::new(|| {
    let prints = |b: &u8| matches!(*b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut table = vec![None; SHIFTED];
    (0..=255).filter(prints).for_each(|b| table[usize::from(b)] = Some(b));
    table.extend((0..=255).filter(|b| !prints(b)).map(Some));
    table
});

fn byte_of(c: char) -> Option<u8> {
    BYTES.get(c as usize).copied().flatten()
}

/// The bytes of all tokens, end to end.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Pieces {
    /// Adds the next token; `write` appends its bytes.
    pub fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn get(&self, id: u32) -> Option<&[u8]> {
        let i = id as usize;
        let end = *self.ends.get(i)?;
        let start = i.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.bytes[start..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spell(spelling: Spelling, token: &str) -> Vec<u8> {
        let mut out = Vec::new();
        spelling.append(token, &mut out);
        out
    }

    #[test]
    fn byte_level_is_a_bijection_on_bytes() {
        let mut bytes: Vec<u8> = BYTES.iter().copied().flatten().collect();
        bytes.sort_unstable();
        assert!(bytes.iter().copied().eq(0..=255));
        assert_eq!(spell(Spelling::ByteLevel, "ĠParis"), b" Paris");
        assert_eq!(spell(Spelling::ByteLevel, "ðŁĺģ"), "😁".as_bytes());
        assert_eq!(spell(Spelling::ByteLevel, "Ċ"), b"\n");
    }

    #[test]
    fn other_spellings() {
        assert_eq!(spell(Spelling::SentencePiece, "▁a▁b"), b" a b");
        assert_eq!(spell(Spelling::SentencePiece, "<0xE2>"), [0xe2]);
        assert_eq!(spell(Spelling::SentencePiece, "<0x+2>"), b"<0x+2>");
        assert_eq!(spell(Spelling::WordPiece, "##ing"), b"ing");
        assert_eq!(spell(Spelling::WordPiece, "go"), b" go");
    }
}
