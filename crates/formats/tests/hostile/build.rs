//! Writes GGUF files, right or wrong.

/// Types of metadata values in the file.
pub const U32: u32 = 4;
pub const I32: u32 = 5;
pub const BOOL: u32 = 7;
pub const STRING: u32 = 8;
pub const ARRAY: u32 = 9;

/// The parts of a file; each can be set to what a test needs.
pub struct Build {
    pub magic: [u8; 4],
    pub version: u32,
    pub tensor_count: Option<u64>,
    pub key_count: Option<u64>,
    pub alignment: usize,
    keys: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    pub data: usize,
}

pub fn text(s: impl AsRef<[u8]>) -> Vec<u8> {
    let s = s.as_ref();
    [&(s.len() as u64).to_le_bytes()[..], s].concat()
}

/// The value of an array key.
pub fn array(kind: u32, len: u64, elements: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &len.to_le_bytes(), elements].concat()
}

pub fn strings(items: &[&str]) -> Vec<u8> {
    array(STRING, items.len() as u64, &items.iter().flat_map(text).collect::<Vec<u8>>())
}

impl Build {
    pub fn new() -> Build {
        Build {
            magic: *b"GGUF",
            version: 3,
            tensor_count: None,
            key_count: None,
            alignment: 32,
            keys: Vec::new(),
            tensors: Vec::new(),
            data: 0,
        }
    }

    pub fn key(mut self, name: impl AsRef<[u8]>, kind: u32, value: impl AsRef<[u8]>) -> Build {
        self.keys.push([&text(name)[..], &kind.to_le_bytes(), value.as_ref()].concat());
        self
    }

    /// A tensor; `dims` innermost first, as in the file.
    pub fn tensor(mut self, name: impl AsRef<[u8]>, dims: &[u64], kind: u32, offset: u64) -> Build {
        let mut row = text(name);
        row.extend((dims.len() as u32).to_le_bytes());
        row.extend(dims.iter().flat_map(|d| d.to_le_bytes()));
        row.extend(kind.to_le_bytes());
        row.extend(offset.to_le_bytes());
        self.tensors.push(row);
        self
    }

    /// Bytes of tensor data, counting up.
    pub fn data(mut self, bytes: usize) -> Build {
        self.data = bytes;
        self
    }

    pub fn header(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.key_count.unwrap_or(self.keys.len() as u64).to_le_bytes());
        out.extend(self.keys.concat());
        out.extend(self.tensors.concat());
        out
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.header();
        if self.data > 0 {
            out.resize(out.len().next_multiple_of(self.alignment), 0);
            out.extend((0..self.data).map(|i| i as u8));
        }
        out
    }
}
