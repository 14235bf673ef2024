//! Unigram language models (Kudo, "Subword Regularization", 2018): the segmentation whose tokens have the largest sum of
//! log-probabilities, found by dynamic programming.
//!
//! Written here because the `tokenizers` library's model keeps special tokens among the pieces that text may become, so that
//! a user's `</s>` would turn into the token.

use super::scored::Bytes;
use tokenizers::Token;

/// How far below the least likely piece a character without one lies, as in SentencePiece.
const UNKNOWN_PENALTY: f64 = 10.0;

/// A vocabulary with log-probabilities.
pub(super) struct Unigram {
    /// Sorted by text, so that the pieces with a common prefix stand together.
    pieces: Vec<Piece>,
    /// Where the pieces of each first byte begin; one entry more for the end.
    first: Vec<usize>,
    bytes: Bytes,
    unknown: Option<u32>,
    unknown_score: f64,
}

struct Piece {
    text: Box<str>,
    id: u32,
    score: f64,
}

/// The best way to reach a position: the score, where its last token began, and that token (`None`: unknown).
#[derive(Clone, Copy)]
struct Step {
    score: f64,
    start: usize,
    token: Option<u32>,
}

impl Unigram {
    /// Of `pieces` (text, id, log-probability), the pieces that text may become. Characters that no piece covers become bytes if
    /// `bytes` has all of them, else `unknown`, one for each run.
    pub fn new(
        pieces: impl IntoIterator<Item = (String, u32, f64)>,
        bytes: Bytes,
        unknown: Option<u32>,
    ) -> Unigram {
        let piece = |(text, id, score): (String, u32, f64)| Piece { text: text.into(), id, score };
        let mut pieces: Vec<Piece> = pieces.into_iter().map(piece).filter(|p| !p.text.is_empty()).collect();
        let least = pieces.iter().map(|p| p.score).fold(f64::INFINITY, f64::min);
        // Of equal texts the later one counts, as in a map.
        pieces.sort_by(|a, b| a.text.cmp(&b.text).then(b.id.cmp(&a.id)));
        pieces.dedup_by(|b, a| a.text == b.text);
        let first = (0..=256).map(|b| pieces.partition_point(|p| usize::from(p.text.as_bytes()[0]) < b));
        let first = first.collect();
        Unigram { pieces, first, bytes, unknown, unknown_score: least.min(0.0) - UNKNOWN_PENALTY }
    }

    /// The tokens of a text in which spaces are already spelled as the vocabulary spells them.
    pub fn tokenize(&self, text: &str) -> Vec<Token> {
        let best = self.best(text);
        let mut spans = Vec::new();
        let mut end = text.len();
        while end > 0 {
            let Step { start, token, .. } = best[end];
            spans.push((start, end, token));
            end = start;
        }
        let mut ids = Vec::with_capacity(spans.len());
        let mut unknown_before = false;
        for (start, end, token) in spans.into_iter().rev() {
            let fallback = if token.is_none() { self.bytes.of(&text[start..end]) } else { None };
            let unknown = token.is_none() && fallback.is_none();
            match (token, fallback) {
                (Some(id), _) => ids.push(id),
                (None, Some(bytes)) => ids.extend(bytes),
                (None, None) if !unknown_before => ids.extend(self.unknown),
                (None, None) => (),
            }
            unknown_before = unknown;
        }
        // Only the id is ever read.
        ids.into_iter().map(|id| Token::new(id, String::new(), (0, 0))).collect()
    }

    /// For every character boundary of the text, and 0, the best way to get there.
    fn best(&self, text: &str) -> Vec<Step> {
        let nowhere = Step { score: f64::NEG_INFINITY, start: 0, token: None };
        let mut best = vec![nowhere; text.len() + 1];
        best[0].score = 0.0;
        for (start, c) in text.char_indices() {
            let here = best[start].score;
            let after = start + c.len_utf8();
            let mut covered = false;
            self.each_prefix(&text.as_bytes()[start..], |piece| {
                let end = start + piece.text.len();
                covered |= end == after;
                let score = here + piece.score;
                if score > best[end].score {
                    best[end] = Step { score, start, token: Some(piece.id) };
                }
            });
            let score = here + self.unknown_score;
            if !covered && score > best[after].score {
                best[after] = Step { score, start, token: None };
            }
        }
        best
    }

    /// Calls `found` for every piece that `text` begins with, shortest first.
    fn each_prefix(&self, text: &[u8], mut found: impl FnMut(&Piece)) {
        let Some(byte) = text.first() else { return };
        let b = usize::from(*byte);
        let mut range = &self.pieces[self.first[b]..self.first[b + 1]];
        for (depth, byte) in text.iter().enumerate() {
            // Within the range all pieces agree before `depth`; one that ends there has been reported.
            let at = |p: &Piece| p.text.as_bytes().get(depth).copied();
            let low = range.partition_point(|p| at(p) < Some(*byte));
            let high = low + range[low..].partition_point(|p| at(p) == Some(*byte));
            range = &range[low..high];
            match range.first() {
                Some(piece) if piece.text.len() == depth + 1 => found(piece),
                Some(_) => (),
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(bytes: Bytes) -> Unigram {
        let pieces = [
            ("a", 1, -2.0),
            ("b", 2, -2.0),
            ("ab", 3, -3.0),
            ("abc", 4, -9.0),
            ("c", 5, -1.0),
            ("bc", 6, -2.5),
            ("é", 7, -4.0),
        ];
        let pieces = pieces.map(|(text, id, score)| (text.to_owned(), id, score));
        Unigram::new(pieces, bytes, Some(0))
    }

    fn ids(model: &Unigram, text: &str) -> Vec<u32> {
        model.tokenize(text).iter().map(|t| t.id).collect()
    }

    #[test]
    fn the_largest_sum_wins() {
        let m = model(Bytes::default());
        // ab+c = -4, a+bc = -4.5, abc = -9, a+b+c = -5.
        assert_eq!(ids(&m, "abc"), [3, 5]);
        assert_eq!(ids(&m, "bc"), [6]);
        assert_eq!(ids(&m, "aé"), [1, 7]);
        assert_eq!(ids(&m, ""), [0u32; 0]);
    }

    #[test]
    fn a_run_of_unknown_characters_is_one_token_or_their_bytes() {
        assert_eq!(ids(&model(Bytes::default()), "aüöb"), [1, 0, 2]);
        let mut bytes = Bytes::default();
        (0..=255).for_each(|b| bytes.add(b, 1000 + u32::from(b)));
        assert_eq!(ids(&model(bytes), "aüb"), [1, 1000 + 0xc3, 1000 + 0xbc, 2]);
    }

    /// The definition: every segmentation tried.
    fn exhaustive(m: &Unigram, text: &str) -> f64 {
        if text.is_empty() {
            return 0.0;
        }
        let pieces = m.pieces.iter().filter(|p| text.starts_with(&*p.text));
        let mut best =
            pieces.map(|p| p.score + exhaustive(m, &text[p.text.len()..])).fold(f64::MIN, f64::max);
        let first = text.chars().next().map_or(0, char::len_utf8);
        if !m.pieces.iter().any(|p| *p.text == text[..first]) {
            best = best.max(m.unknown_score + exhaustive(m, &text[first..]));
        }
        best
    }

    #[test]
    fn it_agrees_with_trying_everything() {
        let m = model(Bytes::default());
        for n in 0..4usize.pow(6) {
            let text: String = (0..6).map(|i| ['a', 'b', 'c', 'ü'][n / 4usize.pow(i) % 4]).collect();
            let got = m.best(&text)[text.len()].score;
            assert!((got - exhaustive(&m, &text)).abs() < 1e-9, "{text}");
        }
    }
}
