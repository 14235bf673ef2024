//! The golden BERT, and texts that the real MiniLM embeds, with what a reference implementation made of them.

use safetensors::SafeTensors;
use serde_json::Value;

use crate::decoders::{floats, ints};
use crate::golden;

/// What the reference made of three texts of different lengths.
pub struct Golden {
    /// `[3, tokens]`, padded on the right.
    pub padded: Vec<i32>,
    /// Tokens of each text.
    pub lengths: Vec<usize>,
    /// Tokens of the longest.
    pub tokens: usize,
    /// `[3, tokens, width]`: the last hidden states.
    pub hidden: Vec<f32>,
    /// Their means over the tokens, of length 1.
    pub mean: Vec<Vec<f32>>,
}

impl Golden {
    /// Reads it.
    ///
    /// # Panics
    /// It is not there or not whole.
    pub fn read() -> Golden {
        let path = golden::folder("bert").join("golden.safetensors");
        let fault = |e: &dyn std::fmt::Display| -> ! { panic!("{}: {e}", path.display()) };
        let bytes = std::fs::read(&path).unwrap_or_else(|e| fault(&e));
        let all = SafeTensors::deserialize(&bytes).unwrap_or_else(|e| fault(&e));
        let tensor = |name: &str| all.tensor(name).unwrap_or_else(|e| fault(&e));
        let (ids, mean) = (tensor("input_ids"), tensor("mean_pooled_normalised"));
        let tokens = ids.shape()[1];
        let mask = ints(tensor("attention_mask").data());
        Golden {
            padded: ints(ids.data()),
            lengths: mask.chunks_exact(tokens).map(|m| m.iter().sum::<i32>() as usize).collect(),
            tokens,
            hidden: floats(tensor("last_hidden_state").data()),
            mean: floats(mean.data()).chunks_exact(mean.shape()[1]).map(<[f32]>::to_vec).collect(),
        }
    }

    /// The texts as tokens, without padding.
    pub fn texts(&self) -> Vec<Vec<u32>> {
        let rows = self.padded.chunks_exact(self.tokens).zip(&self.lengths);
        rows.map(|(r, n)| r[..*n].iter().map(|t| *t as u32).collect()).collect()
    }
}

/// A text with its embedding by MiniLM.
pub struct Text {
    /// The text.
    pub text: String,
    /// Its tokens, cut at 256.
    pub ids: Vec<u32>,
    /// Its embedding.
    pub embedding: Vec<f32>,
}

/// The texts of `minilm.json`.
///
/// # Panics
/// The file is not there or has another form.
pub fn minilm_texts() -> Vec<Text> {
    let path = golden::folder("real").join("minilm.json");
    let file = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let json: Value = serde_json::from_str(&file).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let numbers =
        |v: &Value| v.as_array().into_iter().flatten().filter_map(Value::as_f64).collect::<Vec<_>>();
    let one = |v: &Value| Text {
        text: v["text"].as_str().map(String::from).unwrap_or_else(|| panic!("no `text` in {v}")),
        ids: numbers(&v["ids"]).iter().map(|x| *x as u32).collect(),
        embedding: numbers(&v["embedding"]).iter().map(|x| *x as f32).collect(),
    };
    json["prompts"].as_array().into_iter().flatten().map(one).collect()
}

/// Largest |got − want|.
///
/// # Panics
/// They have different lengths.
pub fn distance(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    // A NaN must not be lost in the maximum.
    let each = got.iter().zip(want).map(|(g, w)| f64::from((g - w).abs()));
    each.fold(0.0, |a, b| if b.is_nan() { f64::INFINITY } else { f64::max(a, b) })
}

/// The cosine of the angle between them.
///
/// # Panics
/// They have different lengths.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}
