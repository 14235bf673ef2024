//! Embeddings: what a model's files say about making them, batches of texts, and from hidden states to one vector a text.

use std::fmt;
use std::path::{Component, Path};
use std::str::FromStr;

use serde::Deserialize;

use crate::error::ModelError;
use crate::metadata::Metadata;

/// How the vectors of a text's tokens become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// The vector of the first token, which BERT calls CLS.
    Cls,
    /// The largest value of each element.
    Max,
    /// The vector of the last token.
    Last,
}

/// A pooling, its name, its number in GGUF files (none for max), and its key in the files of sentence-transformers.
const POOLINGS: &[(Pooling, &str, Option<usize>, &str)] = &[
    (Pooling::Mean, "mean", Some(1), "pooling_mode_mean_tokens"),
    (Pooling::Cls, "cls", Some(2), "pooling_mode_cls_token"),
    (Pooling::Max, "max", None, "pooling_mode_max_tokens"),
    (Pooling::Last, "last", Some(3), "pooling_mode_lasttoken"),
];

/// What the names are, for messages.
const NAMES: &str = "mean, cls, max or last";

impl Pooling {
    /// Its name: `mean`, `cls`, `max`, `last`.
    pub fn name(self) -> &'static str {
        POOLINGS.iter().find(|p| p.0 == self).map_or("mean", |p| p.1)
    }

    fn named(name: &str) -> Option<Pooling> {
        POOLINGS.iter().find(|p| p.1 == name).map(|p| p.0)
    }
}

impl fmt::Display for Pooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Pooling {
    type Err = ModelError;

    fn from_str(name: &str) -> Result<Pooling, ModelError> {
        Pooling::named(name).ok_or_else(|| ModelError::Option {
            option: "pooling",
            value: format!("{name:?}"),
            want: NAMES.into(),
        })
    }
}

/// What a model's files say about making embeddings; `None` where they say nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recipe {
    /// How vectors become one.
    pub pooling: Option<Pooling>,
    /// Whether embeddings are scaled to length 1.
    pub normalize: Option<bool>,
    /// Most tokens of a text.
    pub max_tokens: Option<usize>,
    /// Whether texts are lowered before the tokenizer sees them.
    pub lowercase: bool,
}

/// A module of `modules.json`.
#[derive(Deserialize)]
struct Module {
    path: String,
    r#type: String,
}

impl Recipe {
    /// Of a GGUF file of the architecture `arch`.
    ///
    /// # Errors
    /// A pooling type that is not supported.
    pub fn from_gguf(m: &Metadata, arch: &str) -> Result<Recipe, ModelError> {
        let key = format!("{arch}.pooling_type");
        let pooling = match m.size(&key)? {
            // 0 is "none": vectors of tokens, of which the file leaves it to the reader what to make.
            None | Some(0) => None,
            n => match POOLINGS.iter().find(|p| p.2 == n) {
                Some(p) => Some(p.0),
                None => return Err(m.unsupported(&key, "0 (none), 1 (mean), 2 (cls), 3 (last)")),
            },
        };
        Ok(Recipe { pooling, ..Recipe::default() })
    }

    /// Of a folder that sentence-transformers can read: `modules.json`, the configuration of the pooling that it names, and
    /// `sentence_bert_config.json`. `read` gives the text of a file of the folder by its relative name, `None` if there is none.
    /// `width` is that of the model's vectors.
    ///
    /// # Errors
    /// A file that cannot be read; one that is named and missing, asks for something that is not supported, leaves open how to
    /// pool, or is malformed. Errors about a file call it by its place in `folder`.
    pub fn from_folder<E: From<ModelError>>(
        folder: &Path,
        width: usize,
        mut read: impl FnMut(&str) -> Result<Option<String>, E>,
    ) -> Result<Recipe, E> {
        let place = |name: &str| folder.join(name).display().to_string();
        let mut recipe = Recipe::default();
        let mut named = None;
        const MODULES: &str = "modules.json";
        if let Some(text) = read(MODULES)? {
            let (pooling, normalize) = modules(&text).map_err(|e| e.in_file(place(MODULES)))?;
            recipe.normalize = Some(normalize);
            named = Some(pooling);
        }
        let file = format!("{}/config.json", named.as_deref().unwrap_or("1_Pooling"));
        let of_pooling = |text: String| pooling_of(&Metadata::from_json(&text)?, width);
        recipe.pooling = match read(&file)? {
            Some(text) => Some(of_pooling(text).map_err(|e| e.in_file(place(&file)))?),
            None if named.is_none() => None,
            None => {
                let why = "modules.json names it for how vectors of tokens are pooled".into();
                return Err(ModelError::MissingFile(why).in_file(place(&file)).into());
            }
        };
        const LENGTHS: &str = "sentence_bert_config.json";
        if let Some(text) = read(LENGTHS)? {
            recipe.lengths(&text).map_err(|e| e.in_file(place(LENGTHS)))?;
        }
        Ok(recipe)
    }

    /// What `sentence_bert_config.json` says.
    fn lengths(&mut self, text: &str) -> Result<(), ModelError> {
        let m = Metadata::from_json(text)?;
        self.max_tokens = m.size("max_seq_length")?.filter(|n| *n > 0);
        self.lowercase = m.flag("do_lower_case")?.unwrap_or(false);
        Ok(())
    }
}

/// What `modules.json` says: the folder of the pooling's configuration, and whether embeddings are normalized.
fn modules(text: &str) -> Result<(String, bool), ModelError> {
    let all: Vec<Module> = serde_json::from_str(text).map_err(|e| ModelError::JsonList(e.to_string()))?;
    let (mut pooling, mut normalize) = (None, false);
    for m in all {
        match m.r#type.rsplit('.').next().unwrap_or_default() {
            "Transformer" => {}
            "Pooling" if pooling.is_none() => pooling = Some(inside(m.path)?),
            "Pooling" => {
                let supported = "one module that pools".into();
                return Err(ModelError::Unsupported { key: "type".into(), value: m.r#type, supported });
            }
            "Normalize" => normalize = true,
            _ => {
                let supported = "Transformer, Pooling, Normalize".into();
                return Err(ModelError::Unsupported { key: "type".into(), value: m.r#type, supported });
            }
        }
    }
    let missing = "no module has a `type` that ends in `.Pooling`; without one a text has no single vector";
    Ok((pooling.ok_or_else(|| ModelError::Unclear(missing.into()))?, normalize))
}

/// `path`, which must stay inside the folder.
fn inside(path: String) -> Result<String, ModelError> {
    let plain = Path::new(&path).components().all(|c| matches!(c, Component::Normal(_)));
    if plain && !path.is_empty() && path.len() < 256 {
        return Ok(path);
    }
    let want = "a folder below the model's".into();
    Err(ModelError::BadValue { key: "path".into(), value: format!("{path:?}"), want })
}

/// The pooling of a `config.json` of sentence-transformers for vectors of `width` elements: a flag for each mode, or lately one
/// name.
fn pooling_of(m: &Metadata, width: usize) -> Result<Pooling, ModelError> {
    let key = "word_embedding_dimension";
    if let Some(n) = m.size(key)?.filter(|n| *n != width) {
        let want = format!("{width}, the width of the model");
        return Err(ModelError::BadValue { key: key.into(), value: n.to_string(), want });
    }
    let mut found = None;
    for (key, _) in m.under("pooling_mode_") {
        if m.flag(key)? != Some(true) {
            continue;
        }
        match POOLINGS.iter().find(|p| p.3 == key) {
            Some(p) if found.is_none() => found = Some(p.0),
            // One that the name below overrides does no harm.
            _ if m.get("pooling_mode").is_some() => {}
            _ => return Err(unsupported(key, "true")),
        }
    }
    if let Some(name) = m.text("pooling_mode")? {
        let known = Pooling::named(name).or(if name == "lasttoken" { Some(Pooling::Last) } else { None });
        return known.ok_or_else(|| unsupported("pooling_mode", name));
    }
    let keys: Vec<&str> = POOLINGS.iter().map(|p| p.3).collect();
    found.ok_or_else(|| {
        ModelError::Unclear(format!("no pooling is chosen; one of {} must be true", keys.join(", ")))
    })
}

fn unsupported(key: &str, value: &str) -> ModelError {
    let supported = format!("one of {NAMES}");
    ModelError::Unsupported { key: key.into(), value: value.into(), supported }
}

/// Batches of the texts with these numbers of tokens: their indices, each once. A batch holds texts of like length, at most
/// `bound` tokens with every text counted at the length of the longest; one that is longer stands alone.
pub fn batches(lengths: &[usize], bound: usize) -> Vec<Vec<usize>> {
    /// Padding tokens are computed like others. Under this many, or a share of a batch of one in [`SHARE`], they cost less than
    /// one more run.
    const FEW: usize = 32;
    const SHARE: usize = 8;
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|i| std::cmp::Reverse(lengths[*i]));
    let mut all: Vec<Vec<usize>> = Vec::new();
    let mut real = 0;
    for i in order {
        let n = lengths[i];
        let fits = all.last().is_some_and(|b| {
            let padded = lengths[b[0]] * (b.len() + 1);
            let padding = padded - real - n;
            padded <= bound && (padding <= FEW || padding * SHARE <= padded)
        });
        match all.last_mut().filter(|_| fits) {
            Some(b) => b.push(i),
            None => {
                real = 0;
                all.push(vec![i]);
            }
        }
        real += n;
    }
    all
}

/// One vector of a text's: `hidden` `[tokens, width]`, at least one token. Sums are taken in f64.
pub fn pool(pooling: Pooling, hidden: &[f32], width: usize) -> Vec<f32> {
    let rows = || hidden.chunks_exact(width);
    match pooling {
        Pooling::Cls => hidden[..width].to_vec(),
        Pooling::Last => hidden[hidden.len() - width..].to_vec(),
        Pooling::Mean => {
            let mut sum = vec![0f64; width];
            for row in rows() {
                sum.iter_mut().zip(row).for_each(|(s, v)| *s += f64::from(*v));
            }
            let n = (hidden.len() / width) as f64;
            sum.into_iter().map(|s| (s / n) as f32).collect()
        }
        Pooling::Max => {
            let mut best = vec![f32::NEG_INFINITY; width];
            for row in rows() {
                // NaN is handed on.
                best.iter_mut().zip(row).for_each(|(b, v)| *b = if *v > *b || v.is_nan() { *v } else { *b });
            }
            best
        }
    }
}

/// Scales `v` to Euclidean length 1; one shorter than 1e-12 is divided by that.
pub fn normalize(v: &mut [f32]) {
    let length = v.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt().max(1e-12);
    v.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::metadata::MetaValue;

    fn folder(files: &[(&str, &str)]) -> Result<Recipe, ModelError> {
        let files: HashMap<&str, &str> = files.iter().copied().collect();
        Recipe::from_folder(Path::new("m"), 384, |name| Ok(files.get(name).map(|t| t.to_string())))
    }

    const MODULES: &str = r#"[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "pool", "type": "sentence_transformers.models.Pooling"}]"#;

    #[test]
    fn a_folder_says_how_to_pool() {
        assert_eq!(folder(&[]), Ok(Recipe::default()));
        let cls = r#"{"word_embedding_dimension": 384, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}"#;
        let r = folder(&[("modules.json", MODULES), ("pool/config.json", cls)]).unwrap();
        assert_eq!((r.pooling, r.normalize), (Some(Pooling::Cls), Some(false)));
        // Without modules.json the pooling lies where it usually does, and nothing is said of lengths.
        let r = folder(&[("1_Pooling/config.json", r#"{"pooling_mode": "lasttoken"}"#)]).unwrap();
        assert_eq!((r.pooling, r.normalize), (Some(Pooling::Last), None));
        let normalized = MODULES.replace(
            "models.Pooling\"}",
            r#"models.Pooling"}, {"path": "2_Normalize", "type": "x.Normalize"}"#,
        );
        let text = r#"{"max_seq_length": 256, "do_lower_case": true}"#;
        let pool = ("pool/config.json", cls);
        let r = folder(&[("modules.json", &normalized), pool, ("sentence_bert_config.json", text)]).unwrap();
        assert_eq!((r.normalize, r.max_tokens, r.lowercase), (Some(true), Some(256), true));
    }

    #[test]
    fn what_would_make_other_vectors_is_refused() {
        let dense = MODULES.replace("models.Pooling", "models.Dense");
        let away = MODULES.replace("\"pool\"", "\"../pool\"");
        let twice = MODULES.replace("models.Transformer", "models.Pooling").replace("\"\"", "\"a\"");
        let none = MODULES.replace("models.Pooling", "models.Transformer");
        let pooling = "1_Pooling/config.json";
        for (file, text, word) in [
            ("modules.json", dense.as_str(), "Dense"),
            ("modules.json", away.as_str(), "../pool"),
            ("modules.json", twice.as_str(), "one module that pools"),
            ("modules.json", none.as_str(), "no module has a `type` that ends in `.Pooling`"),
            ("modules.json", "[]", "no module has a `type` that ends in `.Pooling`"),
            ("modules.json", "{}", "not a JSON list of modules"),
            (pooling, r#"{"pooling_mode_weightedmean_tokens": true}"#, "weightedmean"),
            (pooling, r#"{"pooling_mode": "middle"}"#, "middle"),
            (
                pooling,
                r#"{"pooling_mode_cls_token": true, "pooling_mode_max_tokens": true}"#,
                "pooling_mode_max_tokens",
            ),
            (pooling, "{}", "no pooling is chosen; one of pooling_mode_mean_tokens, pooling_mode_cls_token"),
            (pooling, r#"{"pooling_mode_mean_tokens": false}"#, "no pooling is chosen"),
            (
                pooling,
                r#"{"pooling_mode_cls_token": "yes"}"#,
                "`pooling_mode_cls_token` is \"yes\"; it must be true or false",
            ),
            (pooling, r#"{"pooling_mode_mean_tokens": true, "pooling_mode_x": 1}"#, "`pooling_mode_x` is 1"),
            (
                pooling,
                r#"{"pooling_mode_cls_token": true, "word_embedding_dimension": 768}"#,
                "`word_embedding_dimension` is 768; it must be 384, the width of the model",
            ),
            (pooling, "[1]", "not a JSON object"),
            ("sentence_bert_config.json", r#"{"max_seq_length": "x"}"#, "max_seq_length"),
            ("sentence_bert_config.json", "", "not a JSON object"),
        ] {
            let e = folder(&[(file, text)]).unwrap_err().to_string();
            assert!(e.starts_with(&format!("m/{file}: ")) && e.contains(word), "{e}");
        }
        let e = folder(&[("modules.json", MODULES)]).unwrap_err().to_string();
        assert!(e.starts_with("m/pool/config.json: the file is missing; modules.json names it"), "{e}");
    }

    #[test]
    fn gguf_numbers_the_poolings() {
        let of = |n: i64| {
            let mut m = Metadata::new();
            m.insert("bert.pooling_type", MetaValue::Int(n));
            Recipe::from_gguf(&m, "bert").map(|r| r.pooling)
        };
        assert_eq!(of(0), Ok(None));
        assert_eq!(of(1), Ok(Some(Pooling::Mean)));
        assert_eq!(of(2), Ok(Some(Pooling::Cls)));
        assert_eq!(of(3), Ok(Some(Pooling::Last)));
        assert!(of(4).unwrap_err().to_string().contains("bert.pooling_type"));
    }

    #[test]
    fn names_are_read_and_others_refused() {
        for (p, name, ..) in POOLINGS {
            assert_eq!((name.parse::<Pooling>(), p.to_string().as_str()), (Ok(*p), *name));
        }
        assert!("sum".parse::<Pooling>().unwrap_err().to_string().contains("mean, cls, max or last"));
    }

    #[test]
    fn batches_hold_texts_of_like_length_within_the_bound() {
        let lengths: Vec<usize> = (0..500).map(|i| 1 + i * 7919 % 97).collect();
        for bound in [1, 50, 97, 400, 4096] {
            let all = batches(&lengths, bound);
            let mut seen: Vec<usize> = all.iter().flatten().copied().collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..500).collect::<Vec<_>>());
            for b in &all {
                let longest = b.iter().map(|i| lengths[*i]).max().unwrap();
                let padded = longest * b.len();
                assert!(b.len() == 1 || padded <= bound, "{padded} over {bound}");
                let padding = padded - b.iter().map(|i| lengths[*i]).sum::<usize>();
                assert!(padding <= 32 || padding * 8 <= padded, "{padding} of {padded}");
            }
        }
        assert_eq!(batches(&[4; 10], 20).len(), 2);
        assert_eq!(batches(&[512, 5, 5, 512, 5], 4096), [vec![0, 3], vec![1, 2, 4]]);
        assert!(batches(&[], 8).is_empty());
    }

    #[test]
    fn pooling_by_hand() {
        let hidden = [1.0, -2.0, 3.0, -4.0, 5.0, -9.0];
        assert_eq!(pool(Pooling::Mean, &hidden, 2), [3.0, -5.0]);
        assert_eq!(pool(Pooling::Cls, &hidden, 2), [1.0, -2.0]);
        assert_eq!(pool(Pooling::Last, &hidden, 2), [5.0, -9.0]);
        assert_eq!(pool(Pooling::Max, &hidden, 2), [5.0, -2.0]);
        assert!(pool(Pooling::Max, &[f32::NAN, 1.0], 1)[0].is_nan());
        let mut v = [3.0, -4.0];
        normalize(&mut v);
        assert_eq!(v, [0.6, -0.8]);
        let mut zero = [0.0; 3];
        normalize(&mut zero);
        assert_eq!(zero, [0.0; 3]);
    }
}
