//! The golden decoders: tiny models of public architectures and what a reference implementation made of them (see the
//! metadata of `golden.safetensors`).

use frit::{Activations, DType, Generator, LoadOptions, Model};
use safetensors::SafeTensors;

use crate::golden;
use crate::reference::argmax;

/// The models, by their folders.
pub const MODELS: &[&str] = &["llama", "mistral", "qwen2", "qwen3", "gemma3_text"];

/// What the reference made of a model.
pub struct Golden {
    /// Prompts of one length.
    pub ids: Vec<Vec<u32>>,
    /// For each prompt the logits of all its positions, one behind the other.
    pub logits: Vec<Vec<f32>>,
    /// 11 tokens and their greedy continuation.
    pub generated: Vec<u32>,
}

/// The values of a tensor of i32.
pub fn ints(bytes: &[u8]) -> Vec<i32> {
    bytes.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect()
}

/// The values of a tensor of f32.
pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// The golden of the model `name`.
///
/// # Panics
/// It is not there or not whole.
pub fn read(name: &str) -> Golden {
    let path = golden::folder(name).join("golden.safetensors");
    let fault = |e: &dyn std::fmt::Display| -> ! { panic!("{}: {e}", path.display()) };
    let bytes = std::fs::read(&path).unwrap_or_else(|e| fault(&e));
    let all = SafeTensors::deserialize(&bytes).unwrap_or_else(|e| fault(&e));
    let tensor = |name: &str| all.tensor(name).unwrap_or_else(|e| fault(&e));
    let tokens = |bytes| ints(bytes).into_iter().map(|t| t as u32).collect::<Vec<u32>>();
    let (ids, logits) = (tensor("input_ids"), tensor("logits"));
    let rows = ids.shape()[0];
    let (i, l) = (tokens(ids.data()), floats(logits.data()));
    Golden {
        ids: i.chunks_exact(i.len() / rows).map(<[u32]>::to_vec).collect(),
        logits: l.chunks_exact(l.len() / rows).map(<[f32]>::to_vec).collect(),
        generated: tokens(tensor("generated_ids").data()),
    }
}

/// Loads the model `name`.
///
/// # Panics
/// It does not load.
pub fn load(name: &str, options: LoadOptions) -> Model {
    Model::load_with(golden::folder(name), &options).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Options without rounding of activations, keys and values.
pub fn exact() -> LoadOptions {
    LoadOptions::default().rows(32).kv_dtype(DType::F32).activations(Activations::F32)
}

/// Largest |got − want| over the standard deviation of `want`.
///
/// # Panics
/// They have different lengths.
pub fn distance(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let n = want.len() as f64;
    let mean = want.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
    let std = (want.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / n).sqrt();
    // A NaN must not be lost in the maximum.
    let each = got.iter().zip(want).map(|(g, w)| (f64::from(*g) - f64::from(*w)).abs());
    each.fold(0.0, |a, b| if b.is_nan() { f64::INFINITY } else { f64::max(a, b) }) / std
}

/// Greedy continuation of the first 11 ids to the golden's length, the prompt fed in pieces.
///
/// # Panics
/// The model fails.
pub fn continue_greedily(g: &mut Generator, want: &[u32], piece: usize) -> Vec<u32> {
    let mut feed = |part: &[u32]| argmax(g.feed(part).unwrap_or_else(|e| panic!("{e}")));
    let mut ids = want[..11].to_vec();
    let mut next = 0;
    for part in want[..11].chunks(piece) {
        next = feed(part);
    }
    while ids.len() < want.len() {
        ids.push(next);
        next = feed(&[next]);
    }
    ids
}
