//! Bounds-checked reading of the parts of a GGUF header.

use super::value::{Array, Value, ValueKind};
use crate::blob::Blob;
use crate::error::{Fail, Fault, fail};

/// Arrays of arrays beyond this depth are refused; no published key nests even once.
const DEEPEST: usize = 4;

/// A cursor over a file. Nothing is allocated for what the file merely declares.
pub(super) struct Reader {
    blob: Blob,
    pos: usize,
}

impl Reader {
    pub fn new(blob: Blob) -> Reader {
        Reader { blob, pos: 0 }
    }

    pub fn pos(&self) -> usize {
        self.pos
    }

    pub fn left(&self) -> usize {
        self.blob.len() - self.pos
    }

    /// The next `n` bytes, which are `what`.
    fn take(&mut self, n: u64, what: &str, fault: Fault) -> Result<Blob, Fail> {
        let part = usize::try_from(n)
            .ok()
            .and_then(|n| self.pos.checked_add(n))
            .and_then(|end| self.blob.slice(self.pos..end));
        match part {
            Some(part) => {
                self.pos += part.len();
                Ok(part)
            }
            None => fail(
                fault,
                format!("{what} at byte {} takes {n} bytes", self.pos),
                format!("{} bytes are left in the file", self.left()),
            ),
        }
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Fail> {
        match self.blob[self.pos..].first_chunk() {
            Some(bytes) => {
                self.pos += N;
                Ok(*bytes)
            }
            None => self.take(N as u64, what, Fault::Truncated).map(|_| [0; N]),
        }
    }

    pub fn u32(&mut self, what: &str) -> Result<u32, Fail> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub fn u64(&mut self, what: &str) -> Result<u64, Fail> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A length and that many bytes.
    fn bytes(&mut self, what: &str) -> Result<Blob, Fail> {
        let n = self.u64(what)?;
        self.take(n, what, Fault::Length)
    }

    /// A key or a tensor name: UTF-8 of at most 65535 bytes.
    pub fn name(&mut self, what: &str) -> Result<String, Fail> {
        let start = self.pos;
        let bytes = self.bytes(what)?;
        if bytes.len() > usize::from(u16::MAX) {
            return fail(
                Fault::Length,
                format!("{what} at byte {start} is {} bytes long", bytes.len()),
                "at most 65535 are allowed",
            );
        }
        match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(e) => fail(
                Fault::Utf8,
                format!("{what} at byte {start} has a bad byte at {}", e.valid_up_to()),
                "names must be UTF-8",
            ),
        }
    }

    pub fn kind(&mut self) -> Result<ValueKind, Fail> {
        let id = self.u32("a value type")?;
        match ValueKind::from_id(id) {
            Some(kind) => Ok(kind),
            None => fail(Fault::Type, format!("value type {id}"), "value types are 0 to 12"),
        }
    }

    /// A value of type `kind`, inside `depth` arrays.
    pub fn value(&mut self, kind: ValueKind, depth: usize) -> Result<Value, Fail> {
        if let Some(size) = kind.size() {
            let raw = self.take(size as u64, "a value", Fault::Truncated)?;
            return Value::scalar(kind, &raw).map_or_else(|| bad_bool(raw[0]), Ok);
        }
        if kind == ValueKind::Str {
            return self.bytes("a string").map(Value::Str);
        }
        if depth == DEEPEST {
            return fail(
                Fault::Depth,
                format!("arrays nested {} deep", depth + 1),
                format!("at most {DEEPEST}"),
            );
        }
        let kind = self.kind()?;
        let len = self.u64("an array length")?;
        let start = self.pos;
        // A string takes at least its length, an array its type and length: so `len` is bounded before any loop.
        let least = kind.size().unwrap_or(if kind == ValueKind::Str { 8 } else { 12 });
        if len > (self.left() / least) as u64 {
            return fail(
                Fault::Count,
                format!("an array of {len} {} at byte {start}", kind.name()),
                format!("{} bytes are left in the file", self.left()),
            );
        }
        let len = len as usize;
        match kind.size() {
            Some(size) => {
                let raw = self.take((len * size) as u64, "an array", Fault::Truncated)?;
                if let Some(bad) = raw.iter().find(|b| kind == ValueKind::Bool && **b > 1) {
                    return bad_bool(*bad);
                }
            }
            None => {
                for _ in 0..len {
                    self.value(kind, depth + 1)?;
                }
            }
        }
        // The range was just walked.
        let bytes = self.blob.slice(start..self.pos).unwrap_or_else(|| Blob::new([]));
        Ok(Value::Array(Array { kind, len, bytes }))
    }
}

fn bad_bool(byte: u8) -> Result<Value, Fail> {
    fail(Fault::Value, format!("a bool of value {byte}"), "bools are 0 or 1")
}
