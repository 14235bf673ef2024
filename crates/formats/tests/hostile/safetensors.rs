//! Safetensors.

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
    let e = SafeTensors::from_bytes(one("C64", "[1]", 0, 8, 8)).unwrap_err();
    assert!(
        matches!(e, FormatError::Unsupported { .. }) && e.to_string().contains("tensor 'w': type C64"),
        "{e}"
    );
}

#[test]
fn hostile_files() {
    let length = |n: u64| n.to_le_bytes().to_vec();
    let overlap = format!("{{{},{}}}", entry("a", "F32", "[2]", 0, 8), entry("b", "F32", "[2]", 4, 12));
    let gap = format!("{{{},{}}}", entry("a", "F32", "[1]", 0, 4), entry("b", "F32", "[1]", 8, 12));
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
        (one("F4", "[3]", 0, 2, 2), Fault::Shape, "not a whole number of bytes"),
        (one("F32", "[1]", 0, 4, 8), Fault::Offset, "8 bytes of data; the tensors take 4"),
        (one("F32", "[1]", 4, 8, 8), Fault::Offset, "the tensor before ends at 0"),
        (file(&overlap, 12), Fault::Overlap, "tensor 'b': offsets [4, 12]; the tensor before ends at 8"),
        (file(&gap, 12), Fault::Offset, "tensor 'b'"),
        (file(r#"{"w":{"dtype":"F32"}}"#, 0), Fault::Json, "tensor 'w': missing field `shape`"),
        (file(&"[".repeat(100_000), 0), Fault::Json, "header"),
    ];
    for (bytes, fault, part) in cases {
        let e = SafeTensors::from_bytes(bytes).expect_err(part);
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
    ];
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
