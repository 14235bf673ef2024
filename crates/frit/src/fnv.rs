//! The hash FNV-1a of 64 bits (Fowler, Noll and Vo): tells models apart and finds changed bytes. It is no protection against
//! somebody who means to deceive.

/// A running hash.
#[derive(Clone, Copy)]
pub(crate) struct Fnv(u64);

impl Fnv {
    /// The hash of nothing.
    pub fn new() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }

    /// Appends bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3));
    }

    /// The hash so far.
    pub fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_values() {
        for (text, want) in
            [("", 0xcbf2_9ce4_8422_2325u64), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            let mut h = Fnv::new();
            h.add(text.as_bytes());
            assert_eq!(h.value(), want);
        }
    }
}
