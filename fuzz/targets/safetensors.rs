//! Safetensors: what is accepted agrees with the format's own library; an index gives its tensors or a typed error.

#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use frit_formats::{FormatError, OpenOptions, SafeTensors};
use libfuzzer_sys::fuzz_target;

/// A folder with one shard, for indexes.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("frit-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the index");
    let header = br#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    let shard = [&(header.len() as u64).to_le_bytes()[..], header, &[7]].concat();
    std::fs::write(folder.join("1.safetensors"), shard).expect("a shard");
    folder
});

fuzz_target!(|data: &[u8]| {
    if data.first() == Some(&b'{') {
        let path = FOLDER.join("model.safetensors.index.json");
        std::fs::write(&path, data).expect("an index");
        let opened = SafeTensors::open(&path, OpenOptions { map: data.len() % 2 == 0 });
        if let Some(opened) = checked(opened) {
            assert!(opened.tensors().iter().all(|t| t.name == "a" && *t.data == [7]));
        }
        return;
    }
    let Some(opened) = checked(SafeTensors::from_bytes(data.to_vec())) else { return };
    let (_, other) = safetensors::SafeTensors::read_metadata(data).expect("the library accepts it too");
    assert_eq!(opened.tensors().len(), other.offset_keys().len());
    for tensor in opened.tensors() {
        assert_eq!(tensor.dtype.bytes_of(tensor.elements()), Some(tensor.data.len()), "{tensor:?}");
        let info = other.info(&tensor.name).expect("the same names");
        assert_eq!(info.shape, tensor.shape);
        assert_eq!(info.data_offsets.1 - info.data_offsets.0, tensor.data.len());
    }
});

fn checked(result: Result<SafeTensors, FormatError>) -> Option<SafeTensors> {
    result
        .map_err(|e| {
            let text = e.to_string();
            assert!(!text.contains('\n') && text.len() < 4000, "{text:?}");
        })
        .ok()
}
