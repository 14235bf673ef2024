//! Full-precision references of real models in `tests/data/goldens/real`, and how far a model is from them.

use frit::Generator;
use serde_json::Value;

use crate::golden;

/// A prompt, and what the reference makes of it.
pub struct Prompt {
    /// The text.
    pub text: String,
    /// Its token ids.
    pub ids: Vec<u32>,
    /// Logits of the last position: (token, value).
    pub probes: Vec<(usize, f64)>,
    /// The most likely next token, and how far its logit is above the next one.
    pub top: (u32, f64),
    /// Mean negative log-likelihood of the prompt's own tokens, the first excluded, in nats.
    pub nll: f64,
    /// The greedy continuation by 20 tokens.
    pub greedy_text: String,
}

fn numbers(v: &Value) -> Vec<f64> {
    v.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

/// The prompts of `{name}.json`.
///
/// # Panics
/// The file is not there or has another form.
pub fn prompts(name: &str) -> Vec<Prompt> {
    let path = golden::folder("real").join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let json: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let models = json["models"].as_object().into_iter().flatten();
    let all: Vec<Prompt> =
        models.flat_map(|(_, list)| list.as_array().into_iter().flatten()).map(prompt).collect();
    assert!(!all.is_empty(), "{} has no prompts", path.display());
    all
}

fn prompt(v: &Value) -> Prompt {
    let (top_ids, top) = (numbers(&v["top_ids"]), numbers(&v["top_logits"]));
    let (fixed_ids, fixed) = (numbers(&v["fixed_ids"]), numbers(&v["fixed_logits"]));
    assert!(top_ids.len() == top.len() && fixed_ids.len() == fixed.len() && top.len() > 1);
    let ids = top_ids.iter().chain(&fixed_ids).map(|i| *i as usize);
    let text = |key: &str| v[key].as_str().map(String::from);
    Prompt {
        text: text("prompt").unwrap_or_else(|| panic!("no `prompt` in {v}")),
        ids: numbers(&v["ids"]).iter().map(|x| *x as u32).collect(),
        probes: ids.zip(top.iter().chain(&fixed).copied()).collect(),
        top: (top_ids[0] as u32, top[0] - top[1]),
        nll: v["nll"].as_f64().unwrap_or_else(|| panic!("no `nll` in {v}")),
        greedy_text: text("greedy_text").unwrap_or_else(|| panic!("no `greedy_text` in {v}")),
    }
}

/// What a model makes of a [`Prompt`].
pub struct Measured {
    /// Root mean square of the logit errors at the reference's ids.
    pub rms: f64,
    /// Mean negative log-likelihood.
    pub nll: f64,
    /// The most likely next token.
    pub top: u32,
}

/// Runs `p`.
///
/// # Panics
/// The model fails.
pub fn measure(g: &mut Generator, p: &Prompt) -> Measured {
    g.clear();
    let logits = g.feed(&p.ids).unwrap_or_else(|e| panic!("{}: {e}", p.text));
    let errors = p.probes.iter().map(|(i, want)| (f64::from(logits[*i]) - want).powi(2));
    let rms = (errors.sum::<f64>() / p.probes.len() as f64).sqrt();
    let top = argmax(logits);
    Measured { rms, nll: nll(g, &p.ids), top }
}

/// Mean negative log-likelihood of `ids`, the first excluded, in nats.
///
/// # Panics
/// The model fails.
pub fn nll(g: &mut Generator, ids: &[u32]) -> f64 {
    let all = g.score(ids).unwrap_or_else(|e| panic!("scoring: {e}"));
    -all.iter().map(|v| f64::from(*v)).sum::<f64>() / all.len() as f64
}

/// The place of the largest value.
pub fn argmax(row: &[f32]) -> u32 {
    row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(i, _)| i as u32)
}
