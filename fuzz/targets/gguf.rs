//! GGUF: any bytes give a file whose every part can be read, or a typed error of one line.

#![no_main]

use frit_formats::Gguf;
use frit_formats::gguf::{Array, Value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let gguf = match Gguf::from_bytes(data.to_vec()) {
        Ok(gguf) => gguf,
        Err(e) => {
            let text = e.to_string();
            assert!(!text.contains('\n') && text.len() < 2000, "{text:?}");
            return;
        }
    };
    assert!(gguf.alignment().is_power_of_two());
    for (key, value) in gguf.metadata() {
        assert!(gguf.meta(key).is_some());
        assert!(!value.to_string().contains('\n'), "{value}");
        read(value);
        let _ =
            (gguf.find::<&str>(key), gguf.find::<usize>(key), gguf.find::<f32>(key), gguf.find::<bool>(key));
        if let Ok(Some(array)) = gguf.find::<&Array>(key) {
            let _ = (array.scalars::<i32>(), array.scalars::<f32>());
        }
    }
    for tensor in gguf.tensors() {
        assert_eq!(tensor.dtype.bytes_of(tensor.elements()), Some(tensor.data.len()), "{tensor:?}");
        assert!(gguf.tensor(&tensor.name).is_some());
    }
});

/// Walks a value to its leaves: what was accepted must be there.
fn read(value: &Value) {
    if let Value::Array(array) = value {
        assert_eq!(array.iter().count(), array.len());
        array.iter().for_each(|v| read(&v));
    }
}
