//! GGUF, versions 2 and 3, little-endian: metadata and tensors over a mapped file or bytes in memory.
//!
//! The whole header is checked before a file is handed out, so that no later access can fail: every count, length,
//! offset and type against the file itself. Nothing is allocated in proportion to a number that the file only claims.

mod read;
mod value;

use crate::blob::{Blob, OpenOptions};
use crate::error::{Fail, Fault, FormatError, fail, quote};
use crate::tensor::TensorInfo;
use frit_ir::DType;
use read::Reader;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
pub use value::{Array, FromValue, Value, ValueKind};

/// The most dimensions a tensor may have: what the format's specification allows.
pub const MAX_DIMS: usize = 4;

/// The alignment of tensor data when the file does not say.
const DEFAULT_ALIGNMENT: u64 = 32;

/// Identifier in the file, name, and our type where it is supported. Identifiers not listed are retired or unknown.
const TYPES: &[(u32, &str, Option<DType>)] = &[
    (0, "F32", Some(DType::F32)),
    (1, "F16", Some(DType::F16)),
    (2, "Q4_0", Some(DType::Q4_0)),
    (3, "Q4_1", Some(DType::Q4_1)),
    (6, "Q5_0", Some(DType::Q5_0)),
    (7, "Q5_1", Some(DType::Q5_1)),
    (8, "Q8_0", Some(DType::Q8_0)),
    (9, "Q8_1", None),
    (10, "Q2_K", Some(DType::Q2K)),
    (11, "Q3_K", Some(DType::Q3K)),
    (12, "Q4_K", Some(DType::Q4K)),
    (13, "Q5_K", Some(DType::Q5K)),
    (14, "Q6_K", Some(DType::Q6K)),
    (15, "Q8_K", None),
    (16, "IQ2_XXS", None),
    (17, "IQ2_XS", None),
    (18, "IQ3_XXS", None),
    (19, "IQ1_S", None),
    (20, "IQ4_NL", None),
    (21, "IQ3_S", None),
    (22, "IQ2_S", None),
    (23, "IQ4_XS", None),
    (24, "I8", Some(DType::I8)),
    (25, "I16", Some(DType::I16)),
    (26, "I32", Some(DType::I32)),
    (27, "I64", Some(DType::I64)),
    (28, "F64", Some(DType::F64)),
    (29, "IQ1_M", None),
    (30, "BF16", Some(DType::BF16)),
    (34, "TQ1_0", None),
    (35, "TQ2_0", None),
    (39, "MXFP4", None),
    (40, "NVFP4", None),
];

/// An opened GGUF file. Clones are cheap and share the file.
#[derive(Clone, Debug)]
pub struct Gguf(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: String,
    version: u32,
    alignment: u64,
    meta: Vec<(String, Value)>,
    meta_at: HashMap<String, usize>,
    tensors: Vec<TensorInfo>,
    tensor_at: HashMap<String, usize>,
}

/// A tensor's row of the header, before its data is located.
struct Entry {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    offset: u64,
    bytes: usize,
}

impl Gguf {
    /// Opens and checks a file.
    pub fn open(path: &Path, options: OpenOptions) -> Result<Gguf, FormatError> {
        Gguf::from_blob(&path.display().to_string(), Blob::open(path, options)?)
    }

    /// Checks a file in memory; errors call it "GGUF bytes". A `Vec<u8>` or `Arc<[u8]>` is shared, not copied.
    pub fn from_bytes(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Gguf, FormatError> {
        Gguf::from_blob("GGUF bytes", Blob::new(bytes))
    }

    /// Checks the bytes of a file that errors call `file`.
    pub fn from_blob(file: &str, blob: Blob) -> Result<Gguf, FormatError> {
        let mut reader = Reader::new(blob.clone());
        let (version, tensors, keys) = header(&mut reader).map_err(|f| f.at(file, "header"))?;
        let (meta, meta_at) = metadata(&mut reader, keys, file)?;
        let alignment = match meta_at.get("general.alignment").map(|i| &meta[*i].1) {
            None => DEFAULT_ALIGNMENT,
            Some(value) => match value.get::<u64>() {
                Some(n) if n.is_power_of_two() => n,
                _ => {
                    let (found, right) = (format!("alignment {value}"), "it must be a power of two");
                    return fail(Fault::Alignment, found, right)
                        .map_err(|f: Fail| f.at(file, "metadata key 'general.alignment'"));
                }
            },
        };
        let mut entries = Vec::new();
        let mut tensor_at = HashMap::new();
        for i in 0..tensors {
            let entry = entry(&mut reader, i, file)?;
            if tensor_at.insert(entry.name.clone(), entries.len()).is_some() {
                return fail(Fault::Duplicate, "the name occurs twice", "tensor names must be unique")
                    .map_err(|f: Fail| f.at(file, format!("tensor {}", quote(&entry.name))));
            }
            entries.push(entry);
        }
        let start = (reader.pos() as u64).checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
        let tensors = locate(entries, &blob, start, alignment, file)?;
        let gguf = Gguf(Arc::new(Inner {
            file: file.into(),
            version,
            alignment,
            meta,
            meta_at,
            tensors,
            tensor_at,
        }));
        gguf.refuse_splits()?;
        Ok(gguf)
    }

    /// A part of a model in several files would show as missing tensors much later.
    fn refuse_splits(&self) -> Result<(), FormatError> {
        match self.find::<u64>("split.count")? {
            Some(n) if n > 1 => Err(FormatError::Unsupported {
                file: self.0.file.clone(),
                at: "metadata key 'split.count'".into(),
                found: format!("a model in {n} files"),
                right: "join the parts into one GGUF file first".into(),
            }),
            _ => Ok(()),
        }
    }

    /// What errors call the file: its path, or "GGUF bytes".
    pub fn file(&self) -> &str {
        &self.0.file
    }

    /// The version of the format, 2 or 3.
    pub fn version(&self) -> u32 {
        self.0.version
    }

    /// Alignment of tensor data in bytes.
    pub fn alignment(&self) -> u64 {
        self.0.alignment
    }

    /// All metadata, in file order.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.meta.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// The value of a metadata key.
    pub fn meta(&self, key: &str) -> Option<&Value> {
        self.0.meta_at.get(key).map(|i| &self.0.meta[*i].1)
    }

    /// The value of a key as `T`; `None` if the key is absent, an error that names the key if its value is no `T`.
    pub fn find<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, FormatError> {
        let Some(value) = self.meta(key) else { return Ok(None) };
        match value.get() {
            Some(v) => Ok(Some(v)),
            None => Err(FormatError::KeyType {
                file: self.0.file.clone(),
                key: key.into(),
                found: match value {
                    Value::Str(_) => "a string".into(),
                    Value::Array(a) => format!("an array of {} {}", a.len(), a.kind().name()),
                    _ => format!("the {} {value}", value.kind().name()),
                },
                right: T::RIGHT.into(),
            }),
        }
    }

    /// The value of a key as `T`; an error that names the key if it is absent or its value is no `T`.
    pub fn get<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, FormatError> {
        self.find(key)?.ok_or_else(|| FormatError::MissingKey {
            file: self.0.file.clone(),
            key: key.into(),
            right: T::RIGHT.into(),
        })
    }

    /// The tensors, in file order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.0.tensors
    }

    /// The tensor called `name`.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.0.tensor_at.get(name).map(|i| &self.0.tensors[*i])
    }
}

/// Version, number of tensors, number of keys.
fn header(reader: &mut Reader) -> Result<(u32, u64, u64), Fail> {
    let magic = reader.u32("the magic")?.to_le_bytes();
    if magic != *b"GGUF" {
        return fail(
            Fault::Magic,
            format!("the file starts with {}", magic.escape_ascii()),
            "not a GGUF file",
        );
    }
    let version = reader.u32("the version")?;
    if (1..=3).contains(&version.swap_bytes()) {
        return fail(Fault::Endian, "a big-endian file", "convert it to little-endian");
    }
    if !(2..=3).contains(&version) {
        return fail(Fault::Version, format!("version {version}"), "versions 2 and 3 are known");
    }
    let tensors = reader.u64("the tensor count")?;
    let keys = reader.u64("the key count")?;
    // The least that an entry takes: a key its length, type and one byte; a tensor name length, rank, type and offset.
    for (n, least, what) in [(keys, 13, "metadata keys"), (tensors, 24, "tensors")] {
        if n > (reader.left() / least) as u64 {
            let right =
                format!("the {} bytes of the file hold at most {}", reader.left(), reader.left() / least);
            return fail(Fault::Count, format!("{n} {what} are declared"), right);
        }
    }
    Ok((version, tensors, keys))
}

type Metadata = (Vec<(String, Value)>, HashMap<String, usize>);

fn metadata(reader: &mut Reader, keys: u64, file: &str) -> Result<Metadata, FormatError> {
    let mut meta = Vec::new();
    let mut meta_at = HashMap::new();
    for i in 0..keys {
        let key = reader.name("a key").map_err(|f| f.at(file, format!("metadata key {i}")))?;
        let at = |f: Fail| f.at(file, format!("metadata key {}", quote(&key)));
        let value = reader.kind().and_then(|kind| reader.value(kind, 0)).map_err(at)?;
        if meta_at.insert(key.clone(), meta.len()).is_some() {
            return fail(Fault::Duplicate, "the key occurs twice", "keys must be unique").map_err(at);
        }
        meta.push((key, value));
    }
    Ok((meta, meta_at))
}

fn entry(reader: &mut Reader, index: u64, file: &str) -> Result<Entry, FormatError> {
    let name = reader.name("a tensor name").map_err(|f| f.at(file, format!("tensor {index}")))?;
    let at = || format!("tensor {}", quote(&name));
    let shape = shape(reader).map_err(|f| f.at(file, at()))?;
    let id = reader.u32("a tensor type").map_err(|f| f.at(file, at()))?;
    let offset = reader.u64("a tensor offset").map_err(|f| f.at(file, at()))?;
    let row = TYPES.iter().find(|row| row.0 == id);
    let Some(dtype) = row.and_then(|row| row.2) else {
        let known: Vec<&str> = TYPES.iter().filter(|row| row.2.is_some()).map(|row| row.1).collect();
        return Err(FormatError::Unsupported {
            file: file.into(),
            at: at(),
            found: format!("type {id} ({})", row.map_or("unknown", |row| row.1)),
            right: format!("supported are {}", known.join(", ")),
        });
    };
    let bytes = size(dtype, &shape).map_err(|f| f.at(file, at()))?;
    Ok(Entry { name, dtype, shape, offset, bytes })
}

/// The extents, outermost first (the file has them innermost first).
fn shape(reader: &mut Reader) -> Result<Vec<usize>, Fail> {
    let rank = reader.u32("a rank")?;
    if rank as usize > MAX_DIMS {
        return fail(Fault::Shape, format!("{rank} dimensions"), format!("at most {MAX_DIMS} are allowed"));
    }
    let mut shape = Vec::with_capacity(MAX_DIMS);
    for i in 0..rank {
        let n = reader.u64("a dimension")?;
        match usize::try_from(n) {
            Ok(n) if n > 0 => shape.insert(0, n),
            _ => return fail(Fault::Shape, format!("dimension {i} is {n}"), "dimensions start at 1"),
        }
    }
    Ok(shape)
}

/// Bytes of a tensor.
fn size(dtype: DType, shape: &[usize]) -> Result<usize, Fail> {
    let (row, unit) = (shape.last().copied().unwrap_or(1), dtype.info().unit_elements);
    if !row.is_multiple_of(unit) {
        let right = format!("rows of {dtype} must be a multiple of {unit} long");
        return fail(Fault::Row, format!("rows of {row} elements"), right);
    }
    let bytes = shape
        .iter()
        .try_fold(1usize, |n, d| n.checked_mul(*d))
        .and_then(|n| dtype.bytes_of(n))
        .filter(|n| *n <= isize::MAX as usize);
    match bytes {
        Some(bytes) => Ok(bytes),
        None => fail(Fault::Shape, format!("the size of shape {shape:?} overflows"), "it must fit the file"),
    }
}

/// Checks where the data of each tensor lies, `start` being where the data begins.
fn locate(
    entries: Vec<Entry>,
    blob: &Blob,
    start: u64,
    alignment: u64,
    file: &str,
) -> Result<Vec<TensorInfo>, FormatError> {
    let mut tensors = Vec::with_capacity(entries.len());
    for Entry { name, dtype, shape, offset, bytes } in entries {
        let at = |f: Fail| f.at(file, format!("tensor {}", quote(&name)));
        if !offset.is_multiple_of(alignment) {
            let right = format!("offsets must be multiples of {alignment}");
            return fail(Fault::Offset, format!("data at offset {offset}"), right).map_err(at);
        }
        let begin = start.checked_add(offset).and_then(|n| usize::try_from(n).ok());
        let range = begin.and_then(|b| Some(b..b.checked_add(bytes)?));
        let Some(data) = range.and_then(|r| blob.slice(r)) else {
            let found = format!("{bytes} bytes at offset {offset} of the data, which begins at {start}");
            return fail(Fault::Offset, found, format!("the file ends at {}", blob.len())).map_err(at);
        };
        tensors.push(TensorInfo { name, dtype, shape, data });
    }
    let mut order: Vec<&TensorInfo> = tensors.iter().collect();
    order.sort_by_key(|t| t.data.range().start);
    for pair in order.windows(2) {
        let (a, b) = (pair[0].data.range(), pair[1].data.range());
        if a.end > b.start {
            let found = format!("its bytes {b:?} overlap {a:?} of tensor {}", quote(&pair[0].name));
            return fail(Fault::Overlap, found, "tensors must not share bytes")
                .map_err(|f: Fail| f.at(file, format!("tensor {}", quote(&pair[1].name))));
        }
    }
    Ok(tensors)
}
