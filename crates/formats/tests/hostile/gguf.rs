//! GGUF.

use crate::build::{ARRAY, BOOL, Build, I32, STRING, U32, array, strings, text};
use crate::memory;
use frit_formats::gguf::{Array, Value};
use frit_formats::{Fault, FormatError, Gguf, OpenOptions};
use frit_ir::DType;

const F32: u32 = 0;
const Q4_0: u32 = 2;

/// A small file with one of everything.
fn valid() -> Build {
    Build::new()
        .key("general.architecture", STRING, text("llama"))
        .key("general.alignment", U32, 64u32.to_le_bytes())
        .key("llama.block_count", U32, 2u32.to_le_bytes())
        .key("flag", BOOL, [1])
        .key("names", ARRAY, strings(&["a", "", "ä"]))
        .key("numbers", ARRAY, array(I32, 3, bytes_of(&[-1, 0, 7]).as_slice()))
        .key("nested", ARRAY, array(ARRAY, 1, &array(I32, 2, &bytes_of(&[1, 2]))))
        .key("eps", 6, 1e-5f32.to_le_bytes())
        .key("small", 1, [0xff])
        .tensor("a", &[4, 3], F32, 0)
        .tensor("b", &[64, 2], Q4_0, 64)
        .data(64 + 72)
        .with_alignment(64)
}

fn bytes_of(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

impl Build {
    fn with_alignment(mut self, alignment: usize) -> Build {
        self.alignment = alignment;
        self
    }
}

#[test]
fn a_valid_file_reads_back() {
    let bytes = valid().bytes();
    let gguf = Gguf::from_bytes(bytes.clone()).unwrap();
    assert_eq!((gguf.version(), gguf.alignment()), (3, 64));
    assert_eq!(gguf.get::<&str>("general.architecture").unwrap(), "llama");
    assert_eq!(gguf.get::<u32>("llama.block_count").unwrap(), 2);
    assert_eq!(gguf.get::<usize>("llama.block_count").unwrap(), 2);
    assert!(gguf.get::<bool>("flag").unwrap());
    assert_eq!(gguf.get::<f32>("eps").unwrap(), 1e-5);
    assert_eq!(gguf.get::<i64>("small").unwrap(), -1);
    let names: &Array = gguf.get("names").unwrap();
    assert_eq!(names.strings().collect::<Vec<_>>(), [b"a", &b""[..], "ä".as_bytes()]);
    let numbers: &Array = gguf.get("numbers").unwrap();
    assert_eq!(numbers.scalars::<i32>(), Some(vec![-1, 0, 7]));
    assert_eq!(numbers.scalars::<u32>(), None);
    let nested: &Array = gguf.get("nested").unwrap();
    assert!(nested.iter().all(|v| matches!(v, Value::Array(a) if a.scalars() == Some(vec![1i32, 2]))));
    assert_eq!(gguf.meta("nested").unwrap().to_string(), "[[1, 2]]");
    assert_eq!(gguf.meta("names").unwrap().to_string(), r#"["a", "", "ä"]"#);
    let (a, b) = (gguf.tensor("a").unwrap(), gguf.tensor("b").unwrap());
    assert_eq!((a.dtype, &a.shape[..], a.elements()), (DType::F32, &[3, 4][..], 12));
    assert_eq!((b.dtype, &b.shape[..], b.data.len()), (DType::Q4_0, &[2, 64][..], 72));
    assert_eq!(a.data[..4], [0, 1, 2, 3]);
    assert_eq!(b.data[..2], [64, 65]);
    assert!(gguf.tensor("c").is_none() && gguf.tensors().len() == 2 && gguf.metadata().count() == 9);
    // Tensors outlive the file handle, whichever way the file was opened.
    let path = std::env::temp_dir().join(format!("frit-gguf-{}", std::process::id()));
    std::fs::write(&path, &bytes).unwrap();
    for map in [true, false] {
        let data = Gguf::open(&path, OpenOptions { map }).unwrap().tensor("a").unwrap().data.clone();
        assert_eq!(*data, *a.data);
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn typed_getters_name_the_key() {
    let gguf = Gguf::from_bytes(valid().bytes()).unwrap();
    let e = gguf.get::<u32>("llama.context_length").unwrap_err().to_string();
    assert_eq!(
        e,
        "GGUF bytes: metadata key 'llama.context_length' is missing; it must hold an integer in 0..2^32"
    );
    let e = gguf.get::<u32>("general.architecture").unwrap_err().to_string();
    assert_eq!(
        e,
        "GGUF bytes: metadata key 'general.architecture' holds a string; it must hold an integer in 0..2^32"
    );
    let e = gguf.get::<u32>("small").unwrap_err().to_string();
    assert_eq!(e, "GGUF bytes: metadata key 'small' holds the i8 -1; it must hold an integer in 0..2^32");
    let e = gguf.get::<bool>("names").unwrap_err().to_string();
    assert!(e.contains("holds an array of 3 string; it must hold true or false"), "{e}");
    assert!(gguf.find::<f32>("absent").unwrap().is_none());
}

/// One file, the fault it must show, and a part of the message.
type Case = (Build, Fault, &'static str);

fn check(cases: Vec<Case>) {
    for (build, fault, part) in cases {
        let bytes = build.bytes();
        let e = memory::bounded(bytes.len(), || Gguf::from_bytes(bytes)).expect_err(part);
        assert_eq!(e.fault(), Some(fault), "{e}");
        let e = e.to_string();
        assert!(e.contains(part) && !e.contains('\n'), "{e:?} lacks {part:?}");
    }
}

#[test]
fn headers() {
    let mut cases: Vec<Case> = Vec::new();
    let mut with = |set: &dyn Fn(&mut Build), fault, part| {
        let mut build = valid();
        set(&mut build);
        cases.push((build, fault, part));
    };
    with(&|b| b.magic = *b"ggml", Fault::Magic, "starts with ggml; not a GGUF file");
    with(&|b| b.version = 1, Fault::Version, "version 1; versions 2 and 3 are known");
    with(&|b| b.version = 4, Fault::Version, "version 4");
    with(&|b| b.version = 3u32.swap_bytes(), Fault::Endian, "big-endian");
    with(&|b| b.tensor_count = Some(u64::MAX), Fault::Count, "18446744073709551615 tensors are declared");
    with(&|b| b.key_count = Some(1 << 40), Fault::Count, "1099511627776 metadata keys are declared");
    with(&|b| b.key_count = Some(10), Fault::Length, "a tensor name at byte 361 takes 844424930131968 bytes");
    with(&|b| b.tensor_count = Some(3), Fault::Overlap, "tensor ''");
    check(cases);
}

#[test]
fn metadata() {
    let long = (1u64 << 60).to_le_bytes();
    let new = Build::new;
    let nest = (0..20_000).fold(Vec::new(), |mut all, _| {
        all.extend(array(ARRAY, 1, &[]));
        all
    });
    let deep = (0..6).fold(array(U32, 0, &[]), |inner, _| array(ARRAY, 1, &inner));
    check(vec![
        (new().key("k", STRING, long), Fault::Length, "a string at byte 45 takes 1152921504606846976 bytes"),
        (new().key("k", 13, [0; 8]), Fault::Type, "metadata key 'k': value type 13; value types are 0 to 12"),
        (new().key("k", BOOL, [2]), Fault::Value, "a bool of value 2"),
        (new().key("k", ARRAY, array(BOOL, 2, &[0, 9])), Fault::Value, "a bool of value 9"),
        (new().key("k", ARRAY, array(U32, 1 << 40, &[0; 8])), Fault::Count, "an array of 1099511627776 u32"),
        (new().key("k", ARRAY, array(STRING, u64::MAX, &[])), Fault::Count, "18446744073709551615 string"),
        (new().key("k", ARRAY, array(STRING, 1, &long)), Fault::Length, "metadata key 'k'"),
        (new().key("k", ARRAY, array(99, 1, &[0; 8])), Fault::Type, "value type 99"),
        (new().key("k", ARRAY, &deep), Fault::Depth, "arrays nested 5 deep"),
        (new().key([0xff, b'k'], U32, [0; 4]), Fault::Utf8, "a key at byte 24 has a bad byte at 0"),
        (
            new().key("k", U32, [0; 4]).key("k", U32, [0; 4]),
            Fault::Duplicate,
            "metadata key 'k': the key occurs twice",
        ),
        (new().key("k".repeat(70_000), U32, [0; 4]), Fault::Length, "70000 bytes long; at most 65535"),
        (new().key("k", U32, [0; 3]), Fault::Truncated, "a value at byte 37 takes 4 bytes; 3 bytes are left"),
        (new().key("k", ARRAY, &nest), Fault::Depth, "arrays nested 5 deep; at most 4"),
        (new().key("k", ARRAY, array(ARRAY, u64::MAX / 12, &[0; 24])), Fault::Count, "array at byte"),
        (new().key("k", STRING, u64::MAX.to_le_bytes()), Fault::Length, "takes 18446744073709551615 bytes"),
        (
            new().key("a", U32, [0; 4]).key("b", STRING, text("x")).key("a", STRING, text("y")),
            Fault::Duplicate,
            "metadata key 'a': the key occurs twice",
        ),
    ]);
    let e = Gguf::from_bytes(new().key("split.count", U32, 3u32.to_le_bytes()).bytes()).unwrap_err();
    assert!(matches!(&e, FormatError::Unsupported { found, .. } if found == "a model in 3 files"), "{e}");
}

/// Large but true counts: read in milliseconds, and nothing is held besides the file.
#[test]
fn large_metadata() {
    let long = "x".repeat(8 << 20);
    let many: Vec<u8> = text("").repeat(1 << 20);
    let build = Build::new()
        .key("long", STRING, text(&long))
        .key("many", ARRAY, array(STRING, 1 << 20, &many))
        .key("wide", ARRAY, array(I32, 1 << 20, &vec![0; 4 << 20]))
        .key("empty", ARRAY, array(ARRAY, 1 << 16, &array(U32, 0, &[]).repeat(1 << 16)));
    let bytes = build.bytes();
    let (gguf, most) = memory::peak(|| Gguf::from_bytes(bytes).unwrap());
    assert!(most < 1 << 16, "{most}");
    assert_eq!(gguf.get::<&str>("long").unwrap().len(), 8 << 20);
    assert_eq!(gguf.get::<&Array>("many").unwrap().strings().filter(|s| s.is_empty()).count(), 1 << 20);
    assert!(gguf.meta("wide").unwrap().to_string().ends_with("1048576 in all]"));
    assert_eq!(gguf.get::<&Array>("empty").unwrap().iter().count(), 1 << 16);
}

/// Rows of block formats: whole blocks or a clear error; each of several blocks of a row reads from its own bytes.
#[test]
fn rows_of_blocks() {
    let file = |row: u64, rows: u64| {
        Build::new().tensor("w", &[row, rows], 14, 0).data((row / 256 * rows) as usize * 210)
    };
    for row in [255, 257, 300, 511] {
        let e = Gguf::from_bytes(file(row, 2).bytes()).unwrap_err();
        assert_eq!(e.fault(), Some(Fault::Row), "{e}");
        let want = format!("tensor 'w': rows of {row} elements; rows of Q6_K must be a multiple of 256 long");
        assert!(e.to_string().ends_with(&want), "{e}");
    }
    for blocks in [1, 2, 3, 7] {
        let gguf = Gguf::from_bytes(file(blocks * 256, 2).bytes()).unwrap();
        let w = gguf.tensor("w").unwrap();
        assert_eq!((w.dtype, &w.shape[..]), (DType::Q6K, &[2, blocks as usize * 256][..]));
        let whole = frit_ir::Tensor::new(w.dtype, &w.shape, w.data.to_vec()).unwrap().to_f64().unwrap();
        for (i, block) in w.data.chunks_exact(210).enumerate() {
            let one = frit_ir::Tensor::new(w.dtype, &[256], block.to_vec()).unwrap().to_f64().unwrap();
            assert!(one.iter().zip(&whole[i * 256..]).all(|(a, b)| a.to_bits() == b.to_bits()), "block {i}");
        }
    }
}

/// A Q6_K block has 256 distinct places: a code put at one of them shows there alone.
#[test]
fn every_place_of_a_q6_k_block() {
    let place = |bit: usize| {
        // Scale bytes and the f16 scale are 1; codes are 32 (value 0) but for one flipped bit.
        let mut block = vec![0u8; 210];
        block[128..192].fill(0b10_10_10_10);
        block[192..208].fill(1);
        block[208..].copy_from_slice(&[0x00, 0x3c]);
        block[bit / 8] ^= 1 << (bit % 8);
        let values = frit_ir::Tensor::new(DType::Q6K, &[256], block).unwrap().to_f64().unwrap();
        let changed: Vec<usize> = (0..256).filter(|i| values[*i] != 0.0).collect();
        assert_eq!(changed.len(), 1, "bit {bit}");
        changed[0]
    };
    // The low bit of each four-bit code: 256 of them in 128 bytes.
    let places: std::collections::BTreeSet<usize> = (0..256).map(|i| place(i * 4)).collect();
    assert_eq!(places.len(), 256);
}

#[test]
fn alignments() {
    let with = |kind, value: &[u8]| valid_without_alignment().key("general.alignment", kind, value);
    check(vec![
        (with(U32, &[0; 4]), Fault::Alignment, "alignment 0; it must be a power of two"),
        (with(U32, &48u32.to_le_bytes()), Fault::Alignment, "alignment 48"),
        (with(I32, &(-32i32).to_le_bytes()), Fault::Alignment, "alignment -32"),
        (with(STRING, &text("32")), Fault::Alignment, "alignment \"32\""),
        (with(U32, &(1u32 << 31).to_le_bytes()), Fault::Offset, "the data, which begins at 2147483648"),
        (with(10, &(1u64 << 63).to_le_bytes()), Fault::Offset, "tensor 'a'"),
    ]);
}

fn valid_without_alignment() -> Build {
    Build::new().tensor("a", &[8], F32, 0).data(32)
}

#[test]
fn tensors() {
    let one = |dims: &[u64], kind, offset| Build::new().tensor("w", dims, kind, offset).data(256);
    let two = |offset| Build::new().tensor("a", &[16], F32, 0).tensor("b", &[8], F32, offset).data(96);
    check(vec![
        (one(&[0], F32, 0), Fault::Shape, "tensor 'w': dimension 0 is 0; dimensions start at 1"),
        (one(&[4, 0, 2], F32, 0), Fault::Shape, "dimension 1 is 0"),
        (one(&[1 << 42], F32, 0), Fault::Offset, "17592186044416 bytes at offset 0"),
        (one(&[1 << 42, 1 << 42], F32, 0), Fault::Shape, "overflows"),
        (one(&[u64::MAX], F32, 0), Fault::Shape, "overflows"),
        (one(&[1 << 32, 1 << 32, 1], F32, 0), Fault::Shape, "overflows"),
        (one(&[1; 5], F32, 0), Fault::Shape, "5 dimensions; at most 4 are allowed"),
        (one(&[1; 9], F32, 0), Fault::Shape, "9 dimensions; at most 4 are allowed"),
        (one(&[33], Q4_0, 0), Fault::Row, "rows of 33 elements; rows of Q4_0 must be a multiple of 32 long"),
        (one(&[16, 2], Q4_0, 0), Fault::Row, "rows of 16 elements"),
        (one(&[255], 14, 0), Fault::Row, "rows of Q6_K must be a multiple of 256 long"),
        (one(&[4], F32, 4), Fault::Offset, "data at offset 4; offsets must be multiples of 32"),
        (one(&[4], F32, 1 << 20), Fault::Offset, "16 bytes at offset 1048576"),
        (one(&[4], F32, 256), Fault::Offset, "the file ends at"),
        (one(&[4], F32, u64::MAX - 31), Fault::Offset, "16 bytes at offset 18446744073709551584"),
        (one(&[65], F32, 0), Fault::Offset, "260 bytes at offset 0"),
        (two(0), Fault::Overlap, "overlap"),
        (two(32), Fault::Overlap, "tensor 'b': its bytes"),
        (two(64).tensor("a", &[1], F32, 64), Fault::Duplicate, "tensor 'a': the name occurs twice"),
        (Build::new().tensor([0xc3], &[1], F32, 0).data(4), Fault::Utf8, "tensor 0: a tensor name"),
    ]);
    Gguf::from_bytes(two(64).bytes()).unwrap();
    for (kind, part) in
        [(4, "type 4 (unknown)"), (20, "type 20 (IQ4_NL)"), (u32::MAX, "type 4294967295 (unknown)")]
    {
        let e = Gguf::from_bytes(one(&[32], kind, 0).bytes()).unwrap_err();
        assert!(matches!(e, FormatError::Unsupported { .. }));
        let e = e.to_string();
        assert!(
            e.contains("tensor 'w'") && e.contains(part) && e.contains("supported are F32, F16, Q4_0"),
            "{e}"
        );
    }
}

#[test]
fn every_truncation_is_an_error() {
    let bytes = valid().bytes();
    for len in 0..bytes.len() {
        let e = Gguf::from_bytes(bytes[..len].to_vec()).expect_err("a truncated file");
        assert!(e.fault().is_some(), "{len}: {e}");
    }
}

#[test]
fn no_flipped_byte_panics() {
    let bytes = valid().bytes();
    let mut refused = 0;
    for at in 0..valid().header().len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] ^= flip;
            match Gguf::from_bytes(bytes) {
                Ok(gguf) => {
                    for (_, value) in gguf.metadata() {
                        let _ = value.to_string();
                    }
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 300, "{refused}");
}

#[test]
fn long_names_are_shortened_in_messages() {
    let e = Gguf::from_bytes(Build::new().tensor("n\n".repeat(2000), &[0], F32, 0).bytes()).unwrap_err();
    let e = e.to_string();
    assert!(e.len() < 300 && e.contains("…") && !e.contains('\n'), "{e}");
}
