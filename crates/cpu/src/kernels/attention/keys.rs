//! Which keys a query sees and where they lie: lengths, offsets, windows, pages and rings.

use std::ops::Range;

use super::TILE;
use crate::args::{Args, Operand};

/// The keys of a call.
pub(super) struct Keys<'a> {
    kv_len: Option<&'a Operand>,
    offset: Option<&'a Operand>,
    table: Option<&'a Operand>,
    mask: Option<&'a Operand>,
    causal: bool,
    left: i64,
    right: i64,
    ring: bool,
    queries: i64,
    pages: i64,
    slots: i64,
}

/// Keys that lie one after another.
pub(super) struct Piece {
    /// First key.
    pub key: i64,
    /// Number, at most [`TILE`].
    pub n: usize,
    pub page: i64,
    pub slot: i64,
}

/// Element `i` of an i32 vector (one of one element is repeated).
unsafe fn int_at(o: &Operand, i: usize) -> i64 {
    let at = if o.dims[0] == 1 { 0 } else { i as i64 * o.strides[0] };
    // SAFETY: the caller's: `i` is below the extent.
    i64::from(unsafe { *o.ptr.cast::<i32>().offset(at as isize) })
}

impl<'a> Keys<'a> {
    /// From the operands kv_len, offset, table and key_mask.
    pub fn of(args: &Args, k: &Operand, queries: usize, options: [Option<&'a Operand>; 4]) -> Keys<'a> {
        let [kv_len, offset, table, mask] = options;
        let p = |i: usize| args.params[i].int();
        Keys {
            kv_len,
            offset,
            table,
            mask,
            causal: p(1) != 0,
            left: p(2),
            right: p(3),
            ring: p(5) != 0,
            queries: queries as i64,
            pages: k.dims[0],
            slots: k.dims[2],
        }
    }

    /// The keys that exist for row `b`, pages out of range aside, and its offset.
    pub unsafe fn row(&self, b: usize) -> (Range<i64>, i64) {
        let keys = self.table.map_or(1, |t| t.dims[1]) * self.slots;
        // SAFETY: the caller's: `b` is a row.
        let (len, offset) =
            unsafe { (self.kv_len.map_or(keys, |o| int_at(o, b).max(0)), self.offset.map(|o| int_at(o, b))) };
        let len = if self.ring { len } else { len.min(keys) };
        let start = if self.ring { (len - keys).max(0) } else { 0 };
        (start..len, offset.unwrap_or(len - self.queries))
    }

    /// The keys of `all` that query `i` sees, the key mask and the bias aside.
    pub fn seen(&self, all: &Range<i64>, offset: i64, i: usize) -> Range<i64> {
        let at = i as i64 + offset;
        let mut r = all.clone();
        if self.causal {
            r.end = r.end.min(at + 1);
        }
        if self.right >= 0 {
            r.end = r.end.min(at + self.right + 1);
        }
        if self.left >= 0 {
            r.start = r.start.max(at - self.left);
        }
        r
    }

    /// The keys from `key` on, up to `end`, that lie together; the page may be out of range, then it has no keys.
    pub unsafe fn piece(&self, b: usize, key: i64, end: i64) -> Piece {
        let slot = key % self.slots;
        let n = (end - key).min(self.slots - slot).min(TILE as i64) as usize;
        let page = match self.table {
            // SAFETY: the caller's: `key` is below the keys of the table's row.
            Some(t) => unsafe {
                let at = b as i64 * t.strides[0] + key / self.slots * t.strides[1];
                i64::from(*t.ptr.cast::<i32>().offset(at as isize))
            },
            None => b as i64,
        };
        Piece { key, n, page, slot }
    }

    /// Whether the piece's page exists.
    pub fn exists(&self, p: &Piece) -> bool {
        (0..self.pages).contains(&p.page)
    }

    /// The truth values of the key mask from `key` on, with their stride.
    pub fn mask(&self, b: usize, key: i64) -> Option<(*const u8, isize)> {
        let m = self.mask?;
        let at = b as i64 * m.strides[0] + key * m.strides[1];
        Some((m.ptr.wrapping_offset(at as isize), m.strides[1] as isize))
    }
}
