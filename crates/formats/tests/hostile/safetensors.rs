//! Safetensors.

use crate::memory;
use frit_formats::{Fault, FormatError, OpenOptions, SafeTensors};
use frit_ir::DType;
use std::fs;
use std::path::{Path, PathBuf};

fn file(header: &str, data: usize) -> Vec<u8> {
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.as_bytes());
    out.extend((0..data).map(|i| i as u8));
    out
}

fn entry(name: &str, dtype: &str, shape: &str, begin: i64, end: i64) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
}

fn one(dtype: &str, shape: &str, begin: i64, end: i64, data: usize) -> Vec<u8> {
    file(&format!("{{{}}}", entry("w", dtype, shape, begin, end)), data)
}

fn valid() -> Vec<u8> {
    let (a, b) = (entry("a", "F32", "[2,3]", 0, 24), entry("b", "F8_E4M3", "[]", 24, 25));
    file(&format!(r#"{{"__metadata__":{{"format":"pt"}},{b},{a}}}"#), 25)
}

#[test]
fn a_valid_file_reads_back() {
    let read = SafeTensors::from_bytes(valid()).unwrap();
    let (a, b) = (read.tensor("a").unwrap(), read.tensor("b").unwrap());
    assert_eq!((a.dtype, &a.shape[..], a.data.len()), (DType::F32, &[2, 3][..], 24));
    assert_eq!((b.dtype, &b.shape[..], &b.data[..]), (DType::F8E4M3FN, &[][..], &[24][..]));
    assert_eq!(read.metadata()["format"], "pt");
    assert_eq!(read.tensors().iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn every_known_type_maps() {
    let types = [
        ("F64", DType::F64),
        ("F32", DType::F32),
        ("F16", DType::F16),
        ("BF16", DType::BF16),
        ("F8_E4M3", DType::F8E4M3FN),
        ("F8_E5M2", DType::F8E5M2),
        ("F8_E8M0", DType::F8E8M0),
        ("I64", DType::I64),
        ("I32", DType::I32),
        ("I16", DType::I16),
        ("I8", DType::I8),
        ("U64", DType::U64),
        ("U32", DType::U32),
        ("U16", DType::U16),
        ("U8", DType::U8),
        ("BOOL", DType::Bool),
        ("F4", DType::F4E2M1),
    ];
    for (name, dtype) in types {
        let n = dtype.bytes_of(2).unwrap();
        let read = SafeTensors::from_bytes(one(name, "[2]", 0, n as i64, n)).unwrap();
        assert_eq!((read.tensor("w").unwrap().dtype, read.tensor("w").unwrap().data.len()), (dtype, n));
    }
    for (name, shape, bytes) in [("C64", "[1]", 8), ("F6_E2M3", "[4]", 3), ("F6_E3M2", "[8]", 6)] {
        let e = SafeTensors::from_bytes(one(name, shape, 0, bytes, bytes as usize)).unwrap_err();
        assert!(matches!(e, FormatError::Unsupported { .. }), "{e}");
        assert!(e.to_string().contains(&format!("tensor 'w': type {name} is not supported")), "{e}");
    }
}

/// Small floats of a file read as the numbers that the format's types mean.
#[test]
fn small_floats_have_their_values() {
    let read = |dtype: &str, bytes: &[u8]| {
        let header =
            format!("{{{}}}", entry("w", dtype, &format!("[{}]", bytes.len()), 0, bytes.len() as i64));
        let file = [file(&header, 0), bytes.to_vec()].concat();
        let t = SafeTensors::from_bytes(file).unwrap().tensor("w").unwrap().clone();
        frit_ir::Tensor::new(t.dtype, &t.shape, t.data.to_vec()).unwrap().to_f64().unwrap()
    };
    let e4m3 = read("F8_E4M3", &[0x78, 0x7e, 0x01, 0x7f, 0xff, 0xb8]);
    assert_eq!((e4m3[0], e4m3[1], e4m3[2], e4m3[5]), (256.0, 448.0, 2f64.powi(-9), -1.0));
    assert!(e4m3[3].is_nan() && e4m3[4].is_nan());
    let e5m2 = read("F8_E5M2", &[0x7b, 0x7c, 0xfc, 0x7e]);
    assert_eq!((e5m2[0], e5m2[1], e5m2[2]), (57344.0, f64::INFINITY, f64::NEG_INFINITY));
    assert!(e5m2[3].is_nan());
    assert_eq!(read("F8_E8M0", &[127, 130]), [1.0, 8.0]);
}

#[test]
fn names_that_occur_twice() {
    let (a, b) = (entry("a", "U8", "[4]", 0, 4), entry("a", "U8", "[4]", 4, 8));
    let cases = [
        (format!("{{{a},{b}}}"), "tensor 'a': the name 'a' occurs twice"),
        (format!("{{{a},{a}}}"), "tensor 'a': the name 'a' occurs twice"),
        (format!("{{{a},{}}}", b.replace("\"a\"", "\"\\u0061\"")), "tensor 'a': the name 'a' occurs twice"),
        (r#"{"__metadata__":{"k":"1","k":"2"}}"#.into(), "__metadata__: the name 'k' occurs twice"),
        (r#"{"__metadata__":{},"__metadata__":{}}"#.into(), "the name '__metadata__' occurs twice"),
    ];
    for (header, part) in cases {
        let e = SafeTensors::from_bytes(file(&header, 8)).expect_err(part);
        assert!(e.fault() == Some(Fault::Duplicate) && e.to_string().contains(part), "{e}");
    }
    let twice = a.replace("\"shape\"", "\"dtype\":\"I8\",\"shape\"");
    let e = SafeTensors::from_bytes(file(&format!("{{{twice}}}"), 4)).unwrap_err().to_string();
    assert!(e.contains("tensor 'a': duplicate field `dtype`"), "{e}");
}

#[test]
fn hostile_files() {
    let length = |n: u64| n.to_le_bytes().to_vec();
    let overlap = format!("{{{},{}}}", entry("a", "F32", "[2]", 0, 8), entry("b", "F32", "[2]", 4, 12));
    let gap = format!("{{{},{}}}", entry("a", "F32", "[1]", 0, 4), entry("b", "F32", "[1]", 8, 12));
    // Nine tensors of 2^61 − 1 bytes, whose offsets add up to more than 64 bits.
    let most = (1u64 << 61) - 1;
    let wraps = (0..9u64).map(|i| {
        let (begin, end) = (i.wrapping_mul(most), (i + 1).wrapping_mul(most));
        format!(r#""{i}":{{"dtype":"U8","shape":[{most}],"data_offsets":[{begin},{end}]}}"#)
    });
    let wraps = format!("{{{}}}", wraps.collect::<Vec<_>>().join(","));
    let deep = format!(r#"{{"w":{{"x":{}"#, "[".repeat(100_000));
    let cases: Vec<(Vec<u8>, Fault, &str)> = vec![
        (vec![], Fault::Truncated, "0 bytes"),
        (vec![1, 0, 0], Fault::Truncated, "3 bytes"),
        (length(1000), Fault::Length, "a header of 1000 bytes; at most 0 are possible"),
        (length(u64::MAX), Fault::Length, "a header of 18446744073709551615 bytes"),
        (length(1 << 63), Fault::Length, "a header of 9223372036854775808 bytes"),
        (file("[]", 0), Fault::Json, "header"),
        (file("{", 0), Fault::Json, "EOF"),
        (file("", 0), Fault::Json, "EOF"),
        ([&length(2)[..], &[0xff, 0xfe]].concat(), Fault::Utf8, "header"),
        (one("F12", "[1]", 0, 4, 4), Fault::Type, "tensor 'w': dtype 'F12'; the format does not define it"),
        (one("F32", "[-1]", 0, 4, 4), Fault::Json, "tensor 'w'"),
        (one("F32", "[1]", -4, 0, 4), Fault::Json, "tensor 'w'"),
        (one("F32", "[1]", 4, 0, 4), Fault::Offset, "offsets [4, 0]; the end must not lie before the begin"),
        (
            one("F32", "[1000,1000]", 0, 4, 4),
            Fault::Shape,
            "F32 [1000, 1000] takes 4000000 bytes, the offsets give 4",
        ),
        (
            one("F32", "[1000,1000]", 0, 4_000_000, 4),
            Fault::Offset,
            "offsets [0, 4000000]; the file has 4 bytes of data",
        ),
        (
            one("F32", "[4294967296,4294967296]", 0, 4, 4),
            Fault::Shape,
            "not a whole number of bytes in 64 bits",
        ),
        (file(&wraps, 8), Fault::Offset, "the file has 8 bytes of data"),
        (one("F32", "[1]", i64::MAX - 3, i64::MAX, 4), Fault::Offset, "the file has 4 bytes of data"),
        (one("F4", "[3]", 0, 2, 2), Fault::Shape, "not a whole number of bytes"),
        (one("F6_E2M3", "[3]", 0, 2, 2), Fault::Shape, "not a whole number of bytes"),
        (one("f32", "[1]", 0, 4, 4), Fault::Type, "dtype 'f32'; the format does not define it"),
        (one("F32", "[1.5]", 0, 4, 4), Fault::Json, "tensor 'w'"),
        (one("F32", "[1e3]", 0, 4, 4), Fault::Json, "tensor 'w'"),
        (one("F32", "[18446744073709551616]", 0, 4, 4), Fault::Json, "tensor 'w'"),
        (one("F32", "\"1\"", 0, 4, 4), Fault::Json, "tensor 'w'"),
        (file(r#"{"w":7}"#, 0), Fault::Json, "tensor 'w'"),
        (file(r#"{"w":null}"#, 0), Fault::Json, "tensor 'w'"),
        (file(r#"{"__metadata__":{"k":1}}"#, 0), Fault::Json, "header"),
        (file("{} {}", 0), Fault::Json, "trailing characters"),
        (file(&deep, 0), Fault::Json, "EOF while parsing a list"),
        (one("F32", "[1]", 0, 4, 8), Fault::Offset, "8 bytes of data; the tensors take 4"),
        (one("F32", "[1]", 4, 8, 8), Fault::Offset, "the tensor before ends at 0"),
        (file(&overlap, 12), Fault::Overlap, "tensor 'b': offsets [4, 12]; the tensor before ends at 8"),
        (file(&gap, 12), Fault::Offset, "tensor 'b'"),
        (file(r#"{"w":{"dtype":"F32"}}"#, 0), Fault::Json, "tensor 'w': missing field `shape`"),
        (file(&"[".repeat(100_000), 0), Fault::Json, "header"),
    ];
    for (bytes, fault, part) in cases {
        let e = memory::bounded(bytes.len(), || SafeTensors::from_bytes(bytes)).expect_err(part);
        assert_eq!(e.fault(), Some(fault), "{e}");
        let e = e.to_string();
        assert!(e.contains(part) && !e.contains('\n'), "{e:?} lacks {part:?}");
    }
}

#[test]
fn truncations_and_flips_never_panic() {
    let bytes = valid();
    for len in 0..bytes.len() {
        assert!(SafeTensors::from_bytes(bytes[..len].to_vec()).is_err(), "{len}");
    }
    for at in 0..bytes.len() - 25 {
        for flip in [0x01, 0x10, 0x80] {
            let mut bytes = bytes.clone();
            bytes[at] ^= flip;
            let _ = SafeTensors::from_bytes(bytes);
        }
    }
}

/// A folder of the test's own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("frit-safetensors-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.0.join(name), bytes).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open(path: &Path) -> Result<SafeTensors, FormatError> {
    SafeTensors::open(path, OpenOptions::default())
}

#[test]
fn folders_of_shards() {
    let folder = Folder::new("shards");
    let e = open(&folder.0).unwrap_err();
    assert_eq!(e.fault(), Some(Fault::Missing), "{e}");
    folder.write("1.safetensors", one("F32", "[1]", 0, 4, 4));
    folder.write("2.safetensors", valid());
    let index =
        |map: &str| folder.write("model.safetensors.index.json", format!(r#"{{"weight_map":{{{map}}}}}"#));
    index(r#""w":"1.safetensors","a":"2.safetensors""#);
    let read = open(&folder.0).unwrap();
    let names: Vec<&str> = read.tensors().iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["w", "a"]);
    assert!(read.tensor("b").is_none(), "not in the index");
    assert_eq!(read.metadata()["format"], "pt");
    let bad = [
        (r#""w":"3.safetensors""#, Fault::Missing, "shard '3.safetensors' is missing"),
        (r#""x":"1.safetensors""#, Fault::Missing, "tensor 'x' is not in shard '1.safetensors'"),
        (
            r#""w":"../1.safetensors""#,
            Fault::Value,
            "shard '../1.safetensors'; a shard must be the plain name",
        ),
        (r#""w":"/etc/passwd""#, Fault::Value, "shard '/etc/passwd'"),
        (r#""w":"""#, Fault::Value, "shard ''"),
        (r#""w":3"#, Fault::Json, "weight_map"),
        (r#""w":"model.safetensors.index.json""#, Fault::Value, "shard 'model.safetensors.index.json'"),
        (r#""w":".safetensors/..""#, Fault::Value, "a shard must be the plain name"),
        (r#""w":"../../x/1.safetensors""#, Fault::Value, "a shard must be the plain name"),
        (r#""w":"./1.safetensors""#, Fault::Value, "a shard must be the plain name"),
        (r#""w":"sub/1.safetensors""#, Fault::Value, "a shard must be the plain name"),
        (r#""w":"..safetensors""#, Fault::Missing, "shard '..safetensors' is missing"),
        (r#""w":"folder.safetensors""#, Fault::Missing, "shard 'folder.safetensors' is missing"),
        (r#""w":"1\u0000.safetensors""#, Fault::Missing, "is missing"),
        (r#""w":"1.safetensors","w":"2.safetensors""#, Fault::Duplicate, "the name 'w' occurs twice"),
        (
            r#""w":"1.safetensors","a":"1.safetensors""#,
            Fault::Missing,
            "tensor 'a' is not in shard '1.safetensors'",
        ),
        (r#""w":"broken.safetensors""#, Fault::Length, "broken.safetensors: header"),
    ];
    folder.write("broken.safetensors", u64::MAX.to_le_bytes());
    fs::create_dir(folder.0.join("folder.safetensors")).unwrap();
    for (map, fault, part) in bad {
        index(map);
        let e = open(&folder.0).unwrap_err();
        assert_eq!(e.fault(), Some(fault), "{e}");
        assert!(e.to_string().contains(part), "{e}");
    }
    folder.write("model.safetensors", valid());
    assert_eq!(open(&folder.0).unwrap().tensors().len(), 2, "a single file goes first");
    let e = open(&folder.0.join("none.safetensors")).unwrap_err();
    assert!(matches!(e, FormatError::Io { .. }) && e.to_string().contains("none.safetensors"), "{e}");
}

/// What an index holds besides its map, and maps of a size that no model has.
#[test]
fn indexes() {
    let folder = Folder::new("indexes");
    let index = folder.0.join("model.safetensors.index.json");
    let deep = format!(r#"{{"weight_map":{}"#, r#"{"a":"#.repeat(100_000));
    for (text, part) in [
        ("", "EOF"),
        ("[]", "invalid length"),
        ("null", "invalid type"),
        ("{}", "missing field `weight_map`"),
        (r#"{"weight_map":[]}"#, "weight_map"),
        (r#"{"weight_map":{},"weight_map":{}}"#, "duplicate field `weight_map`"),
        (&deep, "weight_map"),
    ] {
        folder.write("model.safetensors.index.json", text);
        let e = open(&index).expect_err(text);
        assert!(e.fault() == Some(Fault::Json) && e.to_string().contains(part), "{e}");
    }
    folder.write("1.safetensors", one("F32", "[1]", 0, 4, 4));
    let many = |shard: fn(usize) -> String| {
        let rows: Vec<String> = (0..100_000).map(|i| format!(r#""t{i}":"{}""#, shard(i))).collect();
        format!(r#"{{"weight_map":{{{}}}}}"#, rows.join(","))
    };
    for (text, part) in [
        (many(|_| "1.safetensors".into()), "tensor 't0' is not in shard '1.safetensors'"),
        (many(|i| format!("{i}.safetensors")), "shard '0.safetensors' is missing"),
    ] {
        folder.write("model.safetensors.index.json", &text);
        let e = memory::bounded(text.len(), || open(&folder.0)).expect_err(part);
        assert!(e.fault() == Some(Fault::Missing) && e.to_string().contains(part), "{e}");
    }
    // An index of nothing is a model without tensors; what is missing shows when it is used.
    folder.write("model.safetensors.index.json", r#"{"metadata":{"total_size":1e400},"weight_map":{}}"#);
    assert!(open(&folder.0).unwrap().tensors().is_empty());
}
