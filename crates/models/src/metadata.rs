//! A read-only view of a model's key-value configuration: GGUF metadata, or a `config.json` flattened to dotted keys.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::ModelError;

/// The largest size that a configuration may name; larger ones are refused before anything is allocated.
const MAX_SIZE: usize = 1 << 31;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum MetaValue {
    /// Truth value.
    Bool(bool),
    /// Integer; unsigned ones beyond i64 are stored as floats.
    Int(i64),
    /// Real number.
    Float(f64),
    /// Text.
    Text(String),
    /// List.
    List(Vec<MetaValue>),
}

/// As in JSON, long lists and texts cut short.
impl fmt::Display for MetaValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetaValue::Bool(v) => write!(f, "{v}"),
            MetaValue::Int(v) => write!(f, "{v}"),
            MetaValue::Float(v) => write!(f, "{v}"),
            MetaValue::Text(v) if v.chars().count() > 60 => {
                write!(f, "{:?}…", v.chars().take(60).collect::<String>())
            }
            MetaValue::Text(v) => write!(f, "{v:?}"),
            MetaValue::List(v) => {
                f.write_str("[")?;
                for (i, v) in v.iter().take(8).enumerate() {
                    write!(f, "{}{v}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str(if v.len() > 8 { ", …]" } else { "]" })
            }
        }
    }
}

/// Keys and values of a configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata(BTreeMap<String, MetaValue>);

impl Metadata {
    /// No keys.
    pub fn new() -> Metadata {
        Metadata::default()
    }

    /// Sets `key`.
    pub fn insert(&mut self, key: impl Into<String>, value: MetaValue) {
        self.0.insert(key.into(), value);
    }

    /// From a `config.json`: objects become dotted keys (`rope_parameters.rope_theta`), null counts as absent.
    ///
    /// # Errors
    /// The text is not a JSON object.
    pub fn from_json(text: &str) -> Result<Metadata, ModelError> {
        let root: serde_json::Value =
            serde_json::from_str(text).map_err(|e| ModelError::Json(e.to_string()))?;
        if !root.is_object() {
            return Err(ModelError::Json("the outermost value is not an object".into()));
        }
        let mut all = Metadata::new();
        all.flatten("", root);
        Ok(all)
    }

    /// serde_json bounds the nesting, so the recursion is bounded too.
    fn flatten(&mut self, prefix: &str, v: serde_json::Value) {
        if let serde_json::Value::Object(map) = v {
            for (k, v) in map {
                let key = if prefix.is_empty() { k } else { format!("{prefix}.{k}") };
                self.flatten(&key, v);
            }
        } else if let Some(v) = value(v) {
            self.insert(prefix, v);
        }
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&MetaValue> {
        self.0.get(key)
    }

    /// The keys that start with `prefix`, with their values.
    pub fn under(&self, prefix: &str) -> impl Iterator<Item = (&str, &MetaValue)> {
        let all = self.0.range(prefix.to_string()..).map(|(k, v)| (k.as_str(), v));
        all.take_while(move |(k, _)| k.starts_with(prefix))
    }

    /// The first key that starts with `prefix`, with its value.
    pub fn any_under(&self, prefix: &str) -> Option<(&str, &MetaValue)> {
        self.under(prefix).next()
    }

    /// With the keys below `prefix` once more without it, in place of others of their names.
    pub fn merged(&self, prefix: &str) -> Metadata {
        let inner = self.0.iter().filter_map(|(k, v)| Some((k.strip_prefix(prefix)?.to_string(), v.clone())));
        Metadata(self.0.clone().into_iter().chain(inner).collect())
    }

    fn read<T>(
        &self,
        key: &str,
        want: &str,
        f: impl FnOnce(&MetaValue) -> Option<T>,
    ) -> Result<Option<T>, ModelError> {
        self.get(key).map(|v| f(v).ok_or_else(|| bad(key, v, want))).transpose()
    }

    /// A size: an integer from 0 to 2³¹. A list of equal sizes counts as that size (GGUF gives some sizes per layer).
    ///
    /// # Errors
    /// Another value; a list of different sizes.
    pub fn size(&self, key: &str) -> Result<Option<usize>, ModelError> {
        self.read(key, "a size from 0 to 2^31, the same for every layer", |v| match v {
            MetaValue::List(all) => {
                let first = all.first().and_then(as_size)?;
                all.iter().all(|v| as_size(v) == Some(first)).then_some(first)
            }
            v => as_size(v),
        })
    }

    /// A size that must be there and above 0.
    ///
    /// # Errors
    /// Missing, or another value.
    pub fn need_size(&self, key: &str) -> Result<usize, ModelError> {
        match self.size(key)? {
            Some(0) => Err(bad(key, &MetaValue::Int(0), "above 0")),
            Some(v) => Ok(v),
            None => Err(ModelError::MissingKey(key.into())),
        }
    }

    /// A finite number.
    ///
    /// # Errors
    /// Another value.
    pub fn number(&self, key: &str) -> Result<Option<f64>, ModelError> {
        self.read(key, "a finite number", |v| match v {
            MetaValue::Int(v) => Some(*v as f64),
            MetaValue::Float(v) => v.is_finite().then_some(*v),
            _ => None,
        })
    }

    /// A finite number above 0.
    ///
    /// # Errors
    /// Another value.
    pub fn positive(&self, key: &str) -> Result<Option<f64>, ModelError> {
        let v = self.number(key)?;
        match v {
            Some(x) if x <= 0.0 => Err(bad(key, &MetaValue::Float(x), "above 0")),
            v => Ok(v),
        }
    }

    /// A truth value.
    ///
    /// # Errors
    /// Another value.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, ModelError> {
        self.read(key, "true or false", |v| if let MetaValue::Bool(v) = v { Some(*v) } else { None })
    }

    /// A text.
    ///
    /// # Errors
    /// Another value.
    pub fn text(&self, key: &str) -> Result<Option<&str>, ModelError> {
        let v = self.get(key);
        v.map(|v| if let MetaValue::Text(t) = v { Ok(t.as_str()) } else { Err(bad(key, v, "a text")) })
            .transpose()
    }

    /// A list of texts.
    ///
    /// # Errors
    /// Another value.
    pub fn texts(&self, key: &str) -> Result<Option<Vec<&str>>, ModelError> {
        fn text(v: &MetaValue) -> Option<&str> {
            if let MetaValue::Text(t) = v { Some(t) } else { None }
        }
        let Some(v) = self.get(key) else { return Ok(None) };
        let all: Option<Vec<&str>> =
            if let MetaValue::List(all) = v { all.iter().map(text).collect() } else { None };
        all.map(Some).ok_or_else(|| bad(key, v, "a list of texts"))
    }

    /// Token ids: one or a list; none if the key is absent.
    ///
    /// # Errors
    /// Another value.
    pub fn tokens(&self, key: &str) -> Result<Vec<u32>, ModelError> {
        let one = |v: &MetaValue| as_size(v).and_then(|v| u32::try_from(v).ok());
        let all = self.read(key, "a token id or a list of token ids", |v| match v {
            MetaValue::List(all) => all.iter().map(one).collect::<Option<Vec<u32>>>(),
            v => one(v).map(|t| vec![t]),
        })?;
        Ok(all.unwrap_or_default())
    }

    /// That `key` has a value that is not implemented.
    pub fn unsupported(&self, key: &str, supported: &str) -> ModelError {
        let value = self.get(key).map_or_else(|| "absent".into(), MetaValue::to_string);
        ModelError::Unsupported { key: key.into(), value, supported: supported.into() }
    }
}

fn bad(key: &str, v: &MetaValue, want: &str) -> ModelError {
    ModelError::BadValue { key: key.into(), value: v.to_string(), want: want.into() }
}

fn as_size(v: &MetaValue) -> Option<usize> {
    let MetaValue::Int(v) = v else { return None };
    usize::try_from(*v).ok().filter(|v| *v <= MAX_SIZE)
}

fn value(v: serde_json::Value) -> Option<MetaValue> {
    use serde_json::Value as J;
    Some(match v {
        J::Null => return None,
        J::Bool(v) => MetaValue::Bool(v),
        J::Number(n) => match n.as_i64() {
            Some(v) => MetaValue::Int(v),
            None => MetaValue::Float(n.as_f64()?),
        },
        J::String(v) => MetaValue::Text(v),
        // Objects inside lists configure nothing that a model here reads.
        J::Array(all) => MetaValue::List(all.into_iter().filter_map(value).collect()),
        J::Object(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_flattened_and_read_by_type() {
        let m = Metadata::from_json(
            r#"{"a": 3, "b": null, "c": {"d": 1.5, "e": {"f": "x"}}, "g": [2, 4], "h": [7, 7], "i": ["p", "q"], "j": true}"#,
        )
        .unwrap();
        assert_eq!(m.size("a"), Ok(Some(3)));
        assert_eq!(m.get("b"), None);
        assert_eq!(m.number("c.d"), Ok(Some(1.5)));
        assert_eq!(m.text("c.e.f"), Ok(Some("x")));
        assert_eq!(m.tokens("g"), Ok(vec![2, 4]));
        assert_eq!(m.tokens("a"), Ok(vec![3]));
        assert_eq!(m.size("h"), Ok(Some(7)));
        assert!(m.size("g").is_err());
        assert_eq!(m.texts("i"), Ok(Some(vec!["p", "q"])));
        assert_eq!(m.flag("j"), Ok(Some(true)));
        assert_eq!(m.any_under("c.").map(|(k, _)| k), Some("c.d"));
        assert_eq!(m.any_under("z"), None);
    }

    #[test]
    fn wrong_values_name_the_key() {
        let m = Metadata::from_json(r#"{"a": -1, "b": 9999999999, "c": "x", "d": 0, "e": 1.5}"#).unwrap();
        for (r, key) in [
            (m.size("a").err(), "a"),
            (m.size("b").err(), "b"),
            (m.size("c").err(), "c"),
            (m.size("e").err(), "e"),
            (m.need_size("d").err(), "d"),
            (m.number("c").err(), "c"),
            (m.positive("a").err(), "a"),
            (m.flag("d").err(), "d"),
            (m.text("d").err(), "d"),
            (m.texts("c").err(), "c"),
            (m.tokens("a").err(), "a"),
        ] {
            assert!(matches!(&r, Some(ModelError::BadValue { key: k, .. }) if k == key), "{key}: {r:?}");
        }
        assert_eq!(m.need_size("zz"), Err(ModelError::MissingKey("zz".into())));
        assert!(matches!(Metadata::from_json("[1]"), Err(ModelError::Json(_))));
        assert!(matches!(Metadata::from_json("{"), Err(ModelError::Json(_))));
        assert!(matches!(Metadata::from_json(&"[".repeat(100_000)), Err(ModelError::Json(_))));
    }
}
