//! SentencePiece-style BPE: no list of merges, but a score for every token; the pair of neighbours that makes the token of
//! the highest score is merged first, the leftmost of equals.
//!
//! Written here because the `tokenizers` library knows only ranked pairs: with several ways to make one token it would
//! prefer one of them wherever it stands.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use tokenizers::Token;

/// A vocabulary with scores. Spaces are `▁` in it.
pub(super) struct Scored {
    /// Tokens that text may become: neither special nor single bytes.
    tokens: HashMap<String, (u32, f32)>,
    bytes: Bytes,
    unknown: Option<u32>,
}

/// The token of each byte, for characters without a token of their own.
#[derive(Default)]
pub(super) struct Bytes(HashMap<u8, u32>);

impl Bytes {
    pub fn add(&mut self, byte: u8, id: u32) {
        self.0.insert(byte, id);
    }

    /// The tokens of the bytes of a text, if all of them have one.
    pub fn of(&self, text: &str) -> Option<Vec<u32>> {
        text.bytes().map(|b| self.0.get(&b).copied()).collect()
    }
}

/// A part of the text and its neighbours. A part that was merged into another is empty.
#[derive(Clone, Copy)]
struct Part {
    start: usize,
    end: usize,
    before: Option<usize>,
    after: Option<usize>,
}

/// A pair of neighbours that would make a token of this score; stale once one of them has changed.
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    start: usize,
    end: usize,
}

impl Ord for Pair {
    fn cmp(&self, other: &Pair) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Pair) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Pair) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Pair {}

impl Scored {
    pub fn new(unknown: Option<u32>) -> Scored {
        Scored { tokens: HashMap::new(), bytes: Bytes::default(), unknown }
    }

    pub fn add(&mut self, text: &str, id: u32, score: f32) {
        self.tokens.insert(text.to_owned(), (id, score));
    }

    pub fn add_byte(&mut self, byte: u8, id: u32) {
        self.bytes.add(byte, id);
    }

    /// The tokens of a text.
    pub fn tokenize(&self, text: &str) -> Vec<Token> {
        let mut ids = Vec::new();
        for part in self.merge(text) {
            let word = &text[part.start..part.end];
            match self.tokens.get(word) {
                Some((id, _)) => ids.push(*id),
                // Only a single character can be left without a token.
                None => match self.bytes.of(word) {
                    Some(bytes) => ids.extend(bytes),
                    None => ids.extend(self.unknown),
                },
            }
        }
        // Only the id is ever read.
        ids.into_iter().map(|id| Token::new(id, String::new(), (0, 0))).collect()
    }

    /// The parts that are left when nothing can be merged any more.
    fn merge(&self, text: &str) -> Vec<Part> {
        let count = text.chars().count();
        let mut parts: Vec<Part> = (0..)
            .zip(text.char_indices())
            .map(|(i, (start, c))| Part {
                start,
                end: start + c.len_utf8(),
                before: (i > 0).then(|| i - 1),
                after: (i + 1 < count).then_some(i + 1),
            })
            .collect();
        let mut pairs = BinaryHeap::new();
        for left in 0..count {
            pairs.extend(self.pair(text, &parts, Some(left), parts[left].after));
        }
        while let Some(Pair { left, right, start, end, .. }) = pairs.pop() {
            let (l, r) = (parts[left], parts[right]);
            if (l.start, r.end) != (start, end) || l.end != r.start || r.start == r.end {
                continue;
            }
            parts[left] = Part { end, after: r.after, ..l };
            parts[right] = Part { end: r.start, ..r };
            if let Some(after) = r.after {
                parts[after].before = Some(left);
            }
            pairs.extend(self.pair(text, &parts, l.before, Some(left)));
            pairs.extend(self.pair(text, &parts, Some(left), r.after));
        }
        parts.retain(|p| p.start < p.end);
        parts
    }

    fn pair(&self, text: &str, parts: &[Part], left: Option<usize>, right: Option<usize>) -> Option<Pair> {
        let (left, right) = (left?, right?);
        let (start, end) = (parts[left].start, parts[right].end);
        let (_, score) = self.tokens.get(&text[start..end])?;
        Some(Pair { score: *score, left, right, start, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(scored: &Scored, text: &str) -> Vec<u32> {
        scored.tokenize(text).iter().map(|t| t.id).collect()
    }

    #[test]
    fn the_best_pair_goes_first_and_the_leftmost_of_equals() {
        let mut scored = Scored::new(Some(0));
        for (text, id, score) in
            [("a", 1, 0.0), ("b", 2, 0.0), ("ab", 3, -2.0), ("ba", 4, -1.0), ("aa", 5, -3.0)]
        {
            scored.add(text, id, score);
        }
        assert_eq!(ids(&scored, "ab"), [3]);
        assert_eq!(ids(&scored, "aba"), [1, 4]);
        assert_eq!(ids(&scored, "aaa"), [5, 1]);
        scored.add("aaa", 6, -4.0);
        assert_eq!(ids(&scored, "aaaaa"), [5, 6], "aa aa a");
        assert_eq!(ids(&scored, ""), [0u32; 0]);
    }

    #[test]
    fn characters_without_a_token_become_bytes_or_unknown() {
        let mut scored = Scored::new(Some(0));
        scored.add("a", 1, 0.0);
        assert_eq!(ids(&scored, "aéa"), [1, 0, 1]);
        scored.add_byte(0xc3, 10);
        scored.add_byte(0xa9, 11);
        assert_eq!(ids(&scored, "aéa"), [1, 10, 11, 1]);
    }
}
