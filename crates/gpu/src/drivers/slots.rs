//! Host memory of runs in flight: each run has a slot of its own, which is given out again once its run has ended.

/// Slots kept for runs to come: making one may wait for the device.
const MOST_IDLE: usize = 8;

/// Bytes of the smallest slot, and above which sizes are no longer doubled.
const LEAST: usize = 1 << 16;
const STEP: usize = 1 << 26;

/// Slots that no run holds, though the device may not have finished with them. Told what has ended, it knows nothing of a
/// device.
pub(super) struct Slots<S> {
    idle: Vec<(usize, S)>,
}

impl<S> Default for Slots<S> {
    fn default() -> Self {
        Slots { idle: Vec::new() }
    }
}

/// Bytes of a new slot for `bytes` bytes: rounded up, so that runs that grow a little do not need one each.
pub(super) fn capacity(bytes: usize) -> usize {
    if bytes > STEP { bytes.next_multiple_of(STEP) } else { bytes.max(LEAST).next_power_of_two() }
}

impl<S> Slots<S> {
    /// The smallest slot that holds `bytes` bytes and whose run has ended, with its capacity.
    pub fn take(&mut self, bytes: usize, ended: impl Fn(&S) -> bool) -> Option<(usize, S)> {
        let fit = |(_, (capacity, s)): &(usize, &(usize, S))| *capacity >= bytes && ended(s);
        let (at, _) = self.idle.iter().enumerate().filter(fit).min_by_key(|(_, (capacity, _))| *capacity)?;
        Some(self.idle.swap_remove(at))
    }

    /// Takes a slot back, whether or not its run has ended; gives one that is one too many.
    pub fn give(&mut self, capacity: usize, slot: S, ended: impl Fn(&S) -> bool) -> Option<S> {
        self.idle.push((capacity, slot));
        if self.idle.len() <= MOST_IDLE {
            return None;
        }
        let (at, _) =
            self.idle.iter().enumerate().filter(|(_, (_, s))| ended(s)).min_by_key(|(_, (n, _))| *n)?;
        Some(self.idle.swap_remove(at).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_given_out_again_only_when_its_run_has_ended() {
        let mut slots = Slots::default();
        assert!(slots.give(100, 1, |_| false).is_none());
        assert_eq!(slots.take(50, |_| false), None);
        assert_eq!(slots.take(101, |_| true), None);
        assert_eq!(slots.take(100, |_| true), Some((100, 1)));
        assert_eq!(slots.take(0, |_| true), None);
    }

    #[test]
    fn the_smallest_that_fits_is_taken_and_the_smallest_that_ended_goes() {
        let mut slots = Slots::default();
        for (i, n) in [300, 100, 200].into_iter().enumerate() {
            slots.give(n, i, |_| true);
        }
        assert_eq!(slots.take(150, |_| true), Some((200, 2)));
        assert_eq!(slots.take(50, |s| *s != 1), Some((300, 0)));
        for i in 10..10 + MOST_IDLE - 1 {
            assert_eq!(slots.give(500, i, |_| true), None);
        }
        assert_eq!(slots.give(600, 99, |_| false), None, "none has ended: all stay");
        assert_eq!(slots.give(600, 100, |s| *s != 1), Some(10), "slot 1 is smaller, but in use");
    }

    #[test]
    fn capacities_are_rounded_up() {
        for (bytes, want) in [(0, LEAST), (LEAST + 1, 2 * LEAST), (STEP, STEP), (STEP + 1, 2 * STEP)] {
            assert_eq!(capacity(bytes), want);
        }
        assert_eq!(capacity(5 * STEP - 3), 5 * STEP);
    }
}
