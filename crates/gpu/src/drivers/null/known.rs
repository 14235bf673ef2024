//! Which bytes of a buffer something has written.

use std::collections::BTreeMap;

/// A set of bytes as stretches that neither touch nor overlap: first byte, and one past the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known(BTreeMap<u64, u64>);

impl Known {
    /// Adds `from..to`.
    pub fn add(&mut self, mut from: u64, mut to: u64) {
        if from >= to {
            return;
        }
        while let Some((&a, &b)) = self.0.range(..=to).next_back() {
            if b < from {
                break;
            }
            self.0.remove(&a);
            (from, to) = (from.min(a), to.max(b));
        }
        self.0.insert(from, to);
    }

    /// The first byte of `from..to` that is missing.
    pub fn lacks(&self, from: u64, to: u64) -> Option<u64> {
        let end = self.0.range(..=from).next_back().map_or(from, |(_, b)| from.max(*b));
        (end < to).then_some(end)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_grow_together_and_gaps_are_found() {
        let mut k = Known::default();
        assert_eq!(k.lacks(0, 1), Some(0));
        assert_eq!(k.lacks(5, 5), None);
        k.add(10, 20);
        k.add(30, 40);
        assert_eq!((k.lacks(10, 20), k.lacks(12, 21), k.lacks(9, 12)), (None, Some(20), Some(9)));
        k.add(20, 25);
        assert_eq!((k.lacks(10, 25), k.lacks(10, 40)), (None, Some(25)));
        k.add(15, 35);
        assert_eq!(k, Known([(10, 40)].into()));
        k.add(3, 3);
        k.add(12, 13);
        assert_eq!(k, Known([(10, 40)].into()));
        k.add(0, 50);
        assert_eq!(k, Known([(0, 50)].into()));
    }
}
