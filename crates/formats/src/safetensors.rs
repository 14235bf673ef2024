//! Safetensors: one file, bytes in memory, or a folder with an index of shards.
//!
//! The `safetensors` crate knows the types; the header is read here, because the crate keeps one of two tensors of the same
//! name and adds up offsets that may overflow. As in the format's specification, the tensors must cover the data exactly.
//!
//! A file with a tensor of a type that Frit does not have (complex numbers, floats of 6 bits) is refused as a whole, with the
//! name of the tensor: a list of tensors that leaves some out would be wrong.

use crate::blob::{Blob, OpenOptions};
use crate::error::{Fail, Fault, FormatError, fail, quote};
use crate::tensor::TensorInfo;
use frit_ir::DType;
use safetensors::tensor::Dtype;
use serde::Deserialize;
use serde::de::value::{Error as UnknownName, StrDeserializer};
use serde::de::{Deserializer, MapAccess, Visitor};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, btree_map};
use std::fmt;
use std::marker::PhantomData;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The file that a folder with a single file holds.
const SINGLE: &str = "model.safetensors";
/// The index of a folder with shards.
const INDEX: &str = "model.safetensors.index.json";
/// The longest header that the format allows.
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
        let (header, data) = split(blob).map_err(|f| f.at(file, "header"))?;
        let header = parse(&header).map_err(|(at, f)| f.at(file, at))?;
        check_places(&header.entries, data.len()).map_err(|(at, f)| f.at(file, at))?;
        let tensors = header.entries.into_iter().map(|e| tensor(e, &data, file)).collect::<Result<_, _>>()?;
        Ok(SafeTensors::new(file.into(), header.metadata, tensors))
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

/// A tensor's entry of the header.
struct Entry {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    begin: usize,
    end: usize,
}

/// What a header says, entries in order of their data.
#[derive(Default)]
struct Header {
    metadata: BTreeMap<String, String>,
    entries: Vec<Entry>,
}

/// What is wrong, with the part of the file where it is.
type Located<T> = Result<T, (String, Fail)>;

fn at_tensor(name: &str) -> String {
    format!("tensor {}", quote(name))
}

/// The header and the data behind it.
fn split(blob: &Blob) -> Result<(Blob, Blob), Fail> {
    let Some(len) = blob.first_chunk().map(|n| u64::from_le_bytes(*n)) else {
        let found = format!("{} bytes", blob.len());
        return fail(Fault::Truncated, found, "a file starts with an 8-byte header length");
    };
    let most = (blob.len() as u64 - 8).min(LONGEST_HEADER);
    // A length that is in bounds fits `usize`.
    let parts = usize::try_from(len).ok().filter(|_| len <= most).and_then(|len| {
        let header = blob.slice(8..8 + len)?;
        Some((header, blob.slice(8 + len..blob.len())?))
    });
    match parts {
        Some(parts) => Ok(parts),
        None => {
            fail(Fault::Length, format!("a header of {len} bytes"), format!("at most {most} are possible"))
        }
    }
}

fn parse(json: &[u8]) -> Located<Header> {
    let mut state = Reading::default();
    let mut from = serde_json::Deserializer::from_slice(json);
    let read = from.deserialize_map(&mut state).and_then(|()| from.end());
    if let Some(found) = state.found {
        return Err(found);
    }
    if let Err(e) = read {
        let utf8 = std::str::from_utf8(json).is_err();
        let (at, right) = match state.current {
            Some(name) => (at_tensor(&name), "a tensor has dtype, shape and data_offsets, all non-negative"),
            None => ("header".into(), "the header must be a JSON object of tensors"),
        };
        let fault = if utf8 { Fault::Utf8 } else { Fault::Json };
        return Err((at, Fail { fault, found: e.to_string(), right: right.into() }));
    }
    state.header.entries.sort_by_key(|e| (e.begin, e.end));
    Ok(state.header)
}

/// The state of reading a header.
#[derive(Default)]
struct Reading {
    header: Header,
    seen: HashSet<String>,
    /// The tensor whose entry is being read.
    current: Option<String>,
    /// What is wrong although it is JSON of the right form.
    found: Option<(String, Fail)>,
}

#[derive(Deserialize)]
struct Raw {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

impl<'de> Visitor<'de> for &mut Reading {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                let Unique { entries, twice } = map.next_value::<Unique<String>>()?;
                self.header.metadata = entries;
                if let Some(twice) = twice {
                    self.found.get_or_insert(("__metadata__".into(), repeated(&twice)));
                }
            } else {
                self.current = Some(name.clone());
                let Raw { dtype, shape, data_offsets: (begin, end) } = map.next_value()?;
                match Dtype::deserialize(StrDeserializer::<UnknownName>::new(&dtype)) {
                    Ok(dtype) => {
                        self.header.entries.push(Entry { name: name.clone(), dtype, shape, begin, end });
                    }
                    Err(_) => {
                        let found = format!("dtype {}", quote(&dtype));
                        let right = "the format does not define it".into();
                        let f = Fail { fault: Fault::Type, found, right };
                        self.found.get_or_insert((at_tensor(&name), f));
                    }
                }
                self.current = None;
            }
            if let Some(twice) = self.seen.replace(name) {
                self.found.get_or_insert((at_tensor(&twice), repeated(&twice)));
            }
        }
        Ok(())
    }
}

fn repeated(name: &str) -> Fail {
    Fail {
        fault: Fault::Duplicate,
        found: format!("the name {} occurs twice", quote(name)),
        right: "names must be unique".into(),
    }
}

/// A JSON object, and the first name that it holds twice: a plain map would keep one of the values and say nothing.
struct Unique<V> {
    entries: BTreeMap<String, V>,
    twice: Option<String>,
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Unique<V> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(UniqueVisitor(PhantomData))
    }
}

struct UniqueVisitor<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for UniqueVisitor<V> {
    type Value = Unique<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unique<V>, A::Error> {
        let mut all = Unique { entries: BTreeMap::new(), twice: None };
        while let Some((name, value)) = map.next_entry::<String, V>()? {
            match all.entries.entry(name) {
                btree_map::Entry::Vacant(free) => {
                    free.insert(value);
                }
                btree_map::Entry::Occupied(taken) => {
                    all.twice.get_or_insert_with(|| taken.key().clone());
                }
            }
        }
        Ok(all)
    }
}

/// Checks that the tensors, which are in order, cover `data` bytes without gap or overlap, each with the bytes of its shape.
fn check_places(entries: &[Entry], data: usize) -> Located<()> {
    let mut next = 0;
    for entry in entries {
        place(entry, next, data).map_err(|f| (at_tensor(&entry.name), f))?;
        next = entry.end;
    }
    if next != data {
        let (found, right) = (format!("{data} bytes of data"), format!("the tensors take {next}"));
        return Err(("data".into(), Fail { fault: Fault::Offset, found, right }));
    }
    Ok(())
}

/// Checks one tensor; `next` is where the one before ends.
fn place(entry: &Entry, next: usize, data: usize) -> Result<(), Fail> {
    let Entry { dtype, shape, begin, end, .. } = entry;
    let found = format!("offsets [{begin}, {end}]");
    if end < begin {
        return fail(Fault::Offset, found, "the end must not lie before the begin");
    }
    if *end > data {
        return fail(Fault::Offset, found, format!("the file has {data} bytes of data"));
    }
    if *begin != next {
        let fault = if *begin < next { Fault::Overlap } else { Fault::Offset };
        return fail(fault, found, format!("the tensor before ends at {next}, where this one must begin"));
    }
    let bits =
        shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d)).and_then(|n| n.checked_mul(dtype.bitsize()));
    match bits.filter(|n| n % 8 == 0).map(|n| n / 8) {
        Some(bytes) if bytes == end - begin => Ok(()),
        Some(bytes) => {
            let right = format!("{dtype} {shape:?} takes {bytes} bytes, the offsets give {}", end - begin);
            fail(Fault::Shape, found, right)
        }
        None => {
            let right = format!("{dtype} {shape:?} is not a whole number of bytes in 64 bits");
            fail(Fault::Shape, found, right)
        }
    }
}

/// The tensor of a checked entry.
fn tensor(entry: Entry, data: &Blob, file: &str) -> Result<TensorInfo, FormatError> {
    let Entry { name, dtype, shape, begin, end } = entry;
    let Some((_, known)) = TYPES.iter().find(|row| row.0 == dtype) else {
        let all: Vec<String> = TYPES.iter().map(|row| row.0.to_string()).collect();
        return Err(FormatError::Unsupported {
            file: file.into(),
            at: at_tensor(&name),
            found: format!("type {dtype}"),
            right: format!("supported are {}", all.join(", ")),
        });
    };
    match data.slice(begin..end) {
        Some(data) => Ok(TensorInfo { name, dtype: *known, shape, data }),
        None => {
            let found = format!("offsets [{begin}, {end}]");
            fail(Fault::Offset, found, format!("the file has {} bytes of data", data.len()))
                .map_err(|f: Fail| f.at(file, at_tensor(&name)))
        }
    }
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
    #[derive(Deserialize)]
    struct Index {
        weight_map: Unique<String>,
    }
    match serde_json::from_slice(json) {
        Ok(Index { weight_map: Unique { twice: Some(name), .. } }) => Err(repeated(&name)),
        Ok(Index { weight_map }) => Ok(weight_map.entries),
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
