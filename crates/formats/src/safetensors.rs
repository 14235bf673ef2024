//! Safetensors: one file, bytes in memory, or a folder with an index of shards.
//!
//! The header is parsed by the `safetensors` crate, which checks that the tensors cover the data exactly. When it refuses
//! a file, the header is read a second time to say which tensor is at fault.

use crate::blob::{Blob, OpenOptions};
use crate::error::{Fail, Fault, FormatError, fail, quote};
use crate::tensor::TensorInfo;
use frit_ir::DType;
use safetensors::tensor::{Dtype, Metadata, SafeTensorError, TensorInfo as Entry};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The file that a folder with a single file holds.
const SINGLE: &str = "model.safetensors";
/// The index of a folder with shards.
const INDEX: &str = "model.safetensors.index.json";
/// The longest header that the format's library reads.
const LONGEST_HEADER: u64 = 100_000_000;

const TYPES: &[(Dtype, DType)] = &[
    (Dtype::F64, DType::F64),
    (Dtype::F32, DType::F32),
    (Dtype::F16, DType::F16),
    (Dtype::BF16, DType::BF16),
    (Dtype::F8_E4M3, DType::F8E4M3FN),
    (Dtype::F8_E5M2, DType::F8E5M2),
    (Dtype::F8_E8M0, DType::F8E8M0),
    (Dtype::F4, DType::F4E2M1),
    (Dtype::I64, DType::I64),
    (Dtype::I32, DType::I32),
    (Dtype::I16, DType::I16),
    (Dtype::I8, DType::I8),
    (Dtype::U64, DType::U64),
    (Dtype::U32, DType::U32),
    (Dtype::U16, DType::U16),
    (Dtype::U8, DType::U8),
    (Dtype::BOOL, DType::Bool),
];

/// An opened safetensors file, or a folder of them read as one. Clones are cheap and share the data.
#[derive(Clone, Debug)]
pub struct SafeTensors(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: String,
    metadata: BTreeMap<String, String>,
    tensors: Vec<TensorInfo>,
    at: HashMap<String, usize>,
}

impl SafeTensors {
    /// Opens and checks a file, an index (`*.index.json`), or a folder that holds `model.safetensors` or
    /// `model.safetensors.index.json`. Every shard that the index names is opened and checked.
    pub fn open(path: &Path, options: OpenOptions) -> Result<SafeTensors, FormatError> {
        if path.is_dir() {
            let (single, index) = (path.join(SINGLE), path.join(INDEX));
            if single.is_file() {
                return SafeTensors::open(&single, options);
            }
            if !index.is_file() {
                return fail(Fault::Missing, "no weights", format!("a folder must hold {SINGLE} or {INDEX}"))
                    .map_err(|f: Fail| f.at(&path.display().to_string(), "folder"));
            }
            return sharded(&index, options);
        }
        if path.extension().is_some_and(|e| e == "json") {
            return sharded(path, options);
        }
        SafeTensors::from_blob(&path.display().to_string(), &Blob::open(path, options)?)
    }

    /// Checks a file in memory; errors call it "safetensors bytes". A `Vec<u8>` or `Arc<[u8]>` is shared, not copied.
    pub fn from_bytes(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<SafeTensors, FormatError> {
        SafeTensors::from_blob("safetensors bytes", &Blob::new(bytes))
    }

    /// Checks the bytes of a file that errors call `file`.
    pub fn from_blob(file: &str, blob: &Blob) -> Result<SafeTensors, FormatError> {
        let (start, header) = match safetensors::SafeTensors::read_metadata(blob) {
            Ok((n, header)) => (n + 8, header),
            Err(e) => return Err(explain(&e, blob, file)),
        };
        let mut tensors = Vec::new();
        for name in header.offset_keys() {
            if let Some(entry) = header.info(&name) {
                tensors.push(tensor(name, entry, blob, start, file)?);
            }
        }
        let metadata = strings(&header);
        Ok(SafeTensors::new(file.into(), metadata, tensors))
    }

    fn new(file: String, metadata: BTreeMap<String, String>, tensors: Vec<TensorInfo>) -> SafeTensors {
        let at = tensors.iter().enumerate().map(|(i, t)| (t.name.clone(), i)).collect();
        SafeTensors(Arc::new(Inner { file, metadata, tensors, at }))
    }

    /// What errors call the file: its path, or "safetensors bytes".
    pub fn file(&self) -> &str {
        &self.0.file
    }

    /// The strings under `__metadata__`, of all shards together.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.0.metadata
    }

    /// The tensors: in file order, shards in order of their names.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.0.tensors
    }

    /// The tensor called `name`.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.0.at.get(name).map(|i| &self.0.tensors[*i])
    }
}

fn strings(header: &Metadata) -> BTreeMap<String, String> {
    header.metadata().iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn tensor(
    name: String,
    entry: &Entry,
    blob: &Blob,
    start: usize,
    file: &str,
) -> Result<TensorInfo, FormatError> {
    let at = format!("tensor {}", quote(&name));
    let Some((_, dtype)) = TYPES.iter().find(|row| row.0 == entry.dtype) else {
        let known: Vec<String> = TYPES.iter().map(|row| format!("{:?}", row.0)).collect();
        return Err(FormatError::Unsupported {
            file: file.into(),
            at,
            found: format!("type {:?}", entry.dtype),
            right: format!("supported are {}", known.join(", ")),
        });
    };
    let (begin, end) = entry.data_offsets;
    // The library has checked the offsets against the file; this only keeps the arithmetic in sight.
    let data = blob.slice(start.saturating_add(begin)..start.saturating_add(end));
    let data = data.ok_or_else(|| outside(entry, blob.len() - start).at(file, at))?;
    Ok(TensorInfo { name, dtype: *dtype, shape: entry.shape.clone(), data })
}

fn outside(entry: &Entry, data: usize) -> Fail {
    let (begin, end) = entry.data_offsets;
    let found = format!("offsets [{begin}, {end}]");
    Fail { fault: Fault::Offset, found, right: format!("the file has {data} bytes of data") }
}

/// Says what is wrong with a file that the library has refused.
fn explain(error: &SafeTensorError, blob: &Blob, file: &str) -> FormatError {
    let Some(len) = blob.first_chunk().map(|n| u64::from_le_bytes(*n)) else {
        let (found, right) =
            (format!("{} bytes", blob.len()), "a file starts with an 8-byte header length".into());
        return Fail { fault: Fault::Truncated, found, right }.at(file, "header");
    };
    let most = (blob.len() as u64 - 8).min(LONGEST_HEADER);
    if len > most {
        let (found, right) = (format!("a header of {len} bytes"), format!("at most {most} are possible"));
        return Fail { fault: Fault::Length, found, right }.at(file, "header");
    }
    let (header, data) = blob[8..].split_at(len as usize);
    let header: Map<String, Value> = match serde_json::from_slice(header) {
        Ok(header) => header,
        Err(e) => {
            let fault = if std::str::from_utf8(header).is_err() { Fault::Utf8 } else { Fault::Json };
            return Fail { fault, found: e.to_string(), right: "the header must be a JSON object".into() }
                .at(file, "header");
        }
    };
    let mut entries = Vec::new();
    for (name, value) in header.into_iter().filter(|(name, _)| name != "__metadata__") {
        match read(value) {
            Ok(entry) => entries.push((name, entry)),
            Err(f) => return f.at(file, format!("tensor {}", quote(&name))),
        }
    }
    match misplaced(&mut entries, data.len()) {
        Some((at, f)) => f.at(file, at),
        None => Fail {
            fault: Fault::Json,
            found: error.to_string(),
            right: "see the format's specification".into(),
        }
        .at(file, "header"),
    }
}

fn read(value: Value) -> Result<Entry, Fail> {
    if let Some(Value::String(dtype)) = value.get("dtype")
        && serde_json::from_value::<Dtype>(dtype.as_str().into()).is_err()
    {
        return fail(Fault::Type, format!("dtype {}", quote(dtype)), "the format does not define it");
    }
    serde_json::from_value(value).or_else(|e| {
        fail(Fault::Json, e.to_string(), "a tensor has dtype, shape and data_offsets, all non-negative")
    })
}

/// The first tensor, in order of offsets, whose offsets do not follow the one before or do not fit its shape.
fn misplaced(entries: &mut [(String, Entry)], data: usize) -> Option<(String, Fail)> {
    entries.sort_by_key(|(_, e)| e.data_offsets);
    let mut next = 0;
    for (name, entry) in entries {
        let at = || format!("tensor {}", quote(name));
        let (begin, end) = entry.data_offsets;
        let found = format!("offsets [{begin}, {end}]");
        if end < begin {
            let right = "the end must not lie before the begin".into();
            return Some((at(), Fail { fault: Fault::Offset, found, right }));
        }
        if end > data {
            return Some((at(), outside(entry, data)));
        }
        if begin != next {
            let fault = if begin < next { Fault::Overlap } else { Fault::Offset };
            let right = format!("the tensor before ends at {next}, where this one must begin");
            return Some((at(), Fail { fault, found, right }));
        }
        let bits = entry
            .shape
            .iter()
            .try_fold(entry.dtype.bitsize(), |n, d| n.checked_mul(*d))
            .filter(|n| n % 8 == 0);
        if bits.map(|n| n / 8) != Some(end - begin) {
            let (shape, dtype) = (&entry.shape, entry.dtype);
            let right = match bits {
                Some(n) => {
                    format!("{dtype:?} {shape:?} takes {} bytes, the offsets give {}", n / 8, end - begin)
                }
                None => format!("{dtype:?} {shape:?} is not a whole number of bytes in 64 bits"),
            };
            return Some((at(), Fail { fault: Fault::Shape, found, right }));
        }
        next = end;
    }
    (next != data).then(|| {
        let (found, right) = (format!("{data} bytes of data"), format!("the tensors take {next}"));
        ("data".into(), Fail { fault: Fault::Offset, found, right })
    })
}

/// Reads an index and the shards beside it.
fn sharded(index: &Path, options: OpenOptions) -> Result<SafeTensors, FormatError> {
    let file = index.display().to_string();
    let map = weight_map(&Blob::open(index, options)?).map_err(|f| f.at(&file, "index"))?;
    let names: BTreeSet<&str> = map.values().map(String::as_str).collect();
    let mut shards = BTreeMap::new();
    for name in names {
        let path = shard_path(index, name).map_err(|f| f.at(&file, "weight_map"))?;
        if !path.is_file() {
            return fail(
                Fault::Missing,
                format!("shard {} is missing", quote(name)),
                "it must lie beside the index",
            )
            .map_err(|f: Fail| f.at(&file, "weight_map"));
        }
        shards.insert(name, SafeTensors::open(&path, options)?);
    }
    for (tensor, shard) in &map {
        if shards[shard.as_str()].tensor(tensor).is_none() {
            let found = format!("tensor {} is not in shard {}", quote(tensor), quote(shard));
            return fail(Fault::Missing, found, "the index and the shards must agree")
                .map_err(|f: Fail| f.at(&file, "weight_map"));
        }
    }
    let mut tensors = Vec::with_capacity(map.len());
    let mut metadata = BTreeMap::new();
    for (shard, opened) in &shards {
        let listed = |t: &&TensorInfo| map.get(&t.name).is_some_and(|s| s == shard);
        tensors.extend(opened.tensors().iter().filter(listed).cloned());
        metadata.extend(opened.metadata().clone());
    }
    Ok(SafeTensors::new(file, metadata, tensors))
}

/// Tensor name to shard name.
fn weight_map(json: &[u8]) -> Result<BTreeMap<String, String>, Fail> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    match serde_json::from_slice::<Index>(json) {
        Ok(index) => Ok(index.weight_map),
        Err(e) => fail(Fault::Json, e.to_string(), "an index has a weight_map of tensor names to file names"),
    }
}

/// A shard must be a file in the folder of its index, not somewhere else on the disk.
fn shard_path(index: &Path, name: &str) -> Result<PathBuf, Fail> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(_)), None) if name.ends_with(".safetensors") => {
            Ok(index.with_file_name(name))
        }
        _ => fail(
            Fault::Value,
            format!("shard {}", quote(name)),
            "a shard must be the plain name of a .safetensors file",
        ),
    }
}
