//! Stop strings over a text that comes in pieces.

/// Finds the first stop string, wherever pieces are cut, and holds back what may yet become one.
#[derive(Clone, Debug)]
pub struct StopStrings {
    stops: Vec<String>,
    held: String,
}

impl StopStrings {
    /// A matcher for `stops`; `None` if one of them is empty.
    pub fn new(stops: &[String]) -> Option<StopStrings> {
        let ok = stops.iter().all(|s| !s.is_empty());
        ok.then(|| StopStrings { stops: stops.to_vec(), held: String::new() })
    }

    /// Takes the next piece and appends the text that is certain to `out`. Gives the stop string that the text has come to: the
    /// one that ends first (so that it does not matter how the text was cut), of those that end together the longest. The
    /// text before it is then in `out`.
    pub fn push(&mut self, piece: &str, out: &mut String) -> Option<String> {
        self.held.push_str(piece);
        let first = self.stops.iter().filter_map(|s| self.held.find(s.as_str()).map(|at| (at, s)));
        if let Some((at, stop)) = first.min_by_key(|(at, s)| (at + s.len(), *at)) {
            out.push_str(&self.held[..at]);
            let stop = stop.clone();
            self.held.clear();
            return Some(stop);
        }
        let sure = self.held.len() - self.possible_start();
        out.push_str(&self.held[..sure]);
        self.held.drain(..sure);
        None
    }

    /// What is still held back, at the end of the text.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Length of the longest end of the held text with which a stop string begins.
    fn possible_start(&self) -> usize {
        let one = |s: &String| {
            let most = self.held.len().min(s.len() - 1);
            let end = |n: &usize| self.held.get(self.held.len() - n..);
            (1..=most).rev().find(|n| end(n).is_some_and(|e| s.starts_with(e))).unwrap_or(0)
        };
        self.stops.iter().map(one).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, Option<String>, String) {
        let stops: Vec<String> = stops.iter().map(|s| s.to_string()).collect();
        let mut m = StopStrings::new(&stops).unwrap();
        let mut out = String::new();
        for p in pieces {
            if let Some(hit) = m.push(p, &mut out) {
                return (out, Some(hit), m.finish());
            }
        }
        (out, None, m.finish())
    }

    #[test]
    fn a_stop_string_is_found_across_pieces() {
        let text = "one\n\nUser: two";
        for cut in 0..=text.len() {
            for second in cut..=text.len() {
                let pieces = [&text[..cut], &text[cut..second], &text[second..]];
                assert_eq!(
                    run(&["\nUser:"], &pieces),
                    ("one\n".into(), Some("\nUser:".into()), String::new())
                );
            }
        }
    }

    #[test]
    fn possible_beginnings_are_held_and_released() {
        assert_eq!(run(&["abab"], &["xab", "a"]), ("x".into(), None, "aba".into()));
        assert_eq!(run(&["abab"], &["xab", "a", "c"]), ("xabac".into(), None, String::new()));
        // The last beginning counts, not the first that was thought of.
        assert_eq!(run(&["aab"], &["a", "a", "a", "b"]).0, "a");
        assert_eq!(run(&["é!"], &["caf", "é", "?"]), ("café?".into(), None, String::new()));
    }

    #[test]
    fn the_first_to_end_wins_and_empty_is_refused() {
        for pieces in [&["abcd"][..], &["abc", "d"], &["a", "b", "c", "d"]] {
            assert_eq!(run(&["cd", "bc"], pieces), ("a".into(), Some("bc".into()), String::new()));
            assert_eq!(run(&["bcd", "c"], pieces).1, Some("c".into()));
            assert_eq!(run(&["c", "bc"], pieces).1, Some("bc".into()));
        }
        assert!(StopStrings::new(&[String::new()]).is_none());
    }
}
