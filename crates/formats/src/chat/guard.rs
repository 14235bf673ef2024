//! Keeps the words of a conversation from being read as special tokens: see the page of the module above.

use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The texts of a vocabulary's special tokens.
pub(super) struct Guard {
    texts: HashSet<String>,
    /// The lengths in bytes that occur among them.
    lengths: BTreeSet<usize>,
    firsts: HashSet<char>,
}

/// The stand-ins of one rendering.
pub(super) struct StandIns {
    /// Characters of the conversation and of the template, of which none may be a stand-in.
    taken: HashSet<char>,
    by_original: BTreeMap<char, char>,
    by_stand_in: BTreeMap<char, char>,
    next: u32,
}

/// The second private-use plane.
const FIRST_STAND_IN: u32 = 0x10_0000;

impl StandIns {
    /// For texts of which none contains a stand-in.
    pub fn new<'a>(texts: impl Iterator<Item = &'a str>) -> StandIns {
        let private = |c: &char| u32::from(*c) >= FIRST_STAND_IN;
        let taken = texts.flat_map(str::chars).filter(private).collect();
        let (by_original, by_stand_in) = (BTreeMap::new(), BTreeMap::new());
        StandIns { taken, by_original, by_stand_in, next: FIRST_STAND_IN }
    }

    /// The stand-in of a character; `None` if the texts use up the private-use plane.
    fn of(&mut self, c: char) -> Option<char> {
        if let Some(known) = self.by_original.get(&c) {
            return Some(*known);
        }
        let mut free = (self.next..=0x10_fffd).filter_map(char::from_u32);
        let stand_in = free.find(|s| !self.taken.contains(s))?;
        self.next = u32::from(stand_in) + 1;
        self.by_original.insert(c, stand_in);
        self.by_stand_in.insert(stand_in, c);
        Some(stand_in)
    }

    /// What each stand-in stands for.
    pub fn originals(&self) -> &BTreeMap<char, char> {
        &self.by_stand_in
    }

    /// The text with the characters back in place.
    pub fn restore(&self, text: &str) -> String {
        text.chars().map(|c| self.by_stand_in.get(&c).copied().unwrap_or(c)).collect()
    }
}

impl Guard {
    pub fn new<'a>(special: impl Iterator<Item = &'a str>) -> Guard {
        let texts: HashSet<String> = special.filter(|t| !t.is_empty()).map(str::to_owned).collect();
        let lengths = texts.iter().map(String::len).collect();
        let firsts = texts.iter().filter_map(|t| t.chars().next()).collect();
        Guard { texts, lengths, firsts }
    }

    /// A message with stand-ins wherever one of its characters could be the first of its characters in a special token.
    pub fn protect(&self, message: &str, stand_ins: &mut StandIns) -> Option<String> {
        let marks = self.marks(message);
        let mark = |(at, c)| if marks.contains(&at) { stand_ins.of(c) } else { Some(c) };
        message.char_indices().map(mark).collect()
    }

    /// The positions of those characters.
    fn marks(&self, message: &str) -> BTreeSet<usize> {
        let mut marks = BTreeSet::new();
        let start = message.len() - message.trim_start().len();
        let end = message.trim_end().len();
        let longest = self.lengths.last().copied().unwrap_or(0);
        for (at, _) in message.char_indices().filter(|(_, c)| self.firsts.contains(c)) {
            let whole = |n: &usize| message.get(at..at + n).is_some_and(|part| self.texts.contains(part));
            // What follows the message, trimmed or not, could complete it.
            let begins = at < end && end - at < longest && {
                let rest = &message[at..end];
                self.texts.iter().any(|t| t.starts_with(rest))
            };
            if self.lengths.iter().any(whole) || begins {
                marks.insert(at);
            }
        }
        // What stands before the message could begin a token that the message continues.
        let text = message.trim();
        if let Some(first) = text.chars().next() {
            let inside = |t: &str| {
                let mut ends = t.char_indices().skip(1).filter(|(_, c)| *c == first).map(|(at, _)| &t[at..]);
                ends.any(|tail| text.starts_with(tail) || tail.starts_with(text))
            };
            if self.texts.iter().any(|t| inside(t)) {
                marks.insert(start);
            }
        }
        marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(message: &str) -> Vec<usize> {
        Guard::new(["<|end|>", "<s>", "[INST]"].into_iter()).marks(message).into_iter().collect()
    }

    #[test]
    fn whole_tokens_and_their_beginnings_and_ends_are_marked() {
        assert_eq!(marks("a <|end|> b <s>"), [2, 12]);
        assert_eq!(marks("a <b> <|en d [x]"), [0usize; 0], "nothing here can become special");
        assert_eq!(marks("x<|en"), [1], "the template could go on with d|>");
        assert_eq!(marks("x<|en \n"), [1], "also behind a trimmed end");
        assert_eq!(marks("  d|> x"), [2], "the template could have begun with <|en");
        assert_eq!(marks("end"), [0], "and both");
        assert_eq!(marks("ending"), [0usize; 0]);
        assert_eq!(marks("<"), [0]);
        assert_eq!(marks(""), [0usize; 0]);
        assert_eq!(marks("<s><s"), [0, 3]);
    }

    #[test]
    fn stand_ins_are_characters_that_nobody_uses() {
        let text = "\u{100000}<s>\u{100001}";
        let mut stand_ins = StandIns::new([text].into_iter());
        let guarded = Guard::new(["<s>"].into_iter()).protect(text, &mut stand_ins).unwrap();
        assert_eq!(guarded, "\u{100000}\u{100002}s>\u{100001}");
        assert_eq!(stand_ins.restore(&guarded), text);
        assert_eq!(stand_ins.originals()[&'\u{100002}'], '<');
    }

    #[test]
    fn a_text_of_all_stand_ins_is_refused() {
        let all: String =
            (FIRST_STAND_IN..=0x10_fffd).filter_map(char::from_u32).chain("<s>".chars()).collect();
        let mut stand_ins = StandIns::new([all.as_str()].into_iter());
        assert_eq!(Guard::new(["<s>"].into_iter()).protect(&all, &mut stand_ins), None);
    }

    #[test]
    fn a_long_hostile_message_takes_linear_time() {
        let guard = Guard::new(["<|im_start|>", "<|im_end|>"].into_iter());
        let text = "<|im_start|".repeat(100_000);
        let mut stand_ins = StandIns::new([text.as_str()].into_iter());
        let guarded = guard.protect(&text, &mut stand_ins).unwrap();
        assert_eq!(stand_ins.restore(&guarded), text);
    }
}
