//! What weights a model's file has: names, element types and shapes. The bytes stay with whoever opened the file.
//!
//! Canonical names are those of Hugging Face; a graph's parameters carry them.

use std::collections::BTreeMap;

use frit_ir::{DType, Graph};

use crate::error::ModelError;

/// A weight of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weight {
    /// Its name in the file.
    pub source: String,
    /// Element type as stored.
    pub dtype: DType,
    /// Logical extents, outermost first.
    pub shape: Vec<usize>,
}

/// The weights of a file by canonical name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weights(BTreeMap<String, Weight>);

impl Weights {
    /// Collects weights; `canonical` turns a name of the file into the canonical one (see [`crate::arch::Arch::names`]).
    ///
    /// # Errors
    /// Two tensors have one canonical name.
    pub fn new(
        tensors: impl IntoIterator<Item = (String, DType, Vec<usize>)>,
        canonical: impl Fn(&str) -> String,
    ) -> Result<Weights, ModelError> {
        let mut all = BTreeMap::new();
        for (source, dtype, shape) in tensors {
            let name = canonical(&source);
            if all.insert(name.clone(), Weight { source, dtype, shape }).is_some() {
                return Err(ModelError::WeightTwice(name));
            }
        }
        Ok(Weights(all))
    }

    /// The weight called `name`.
    pub fn get(&self, name: &str) -> Option<&Weight> {
        self.0.get(name)
    }

    /// Whether there is a weight called `name`.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Canonical names and weights, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Weight)> {
        self.0.iter().map(|(n, w)| (n.as_str(), w))
    }

    /// Refuses weights that `graph` has no parameter for, other than those that `ignored` accepts.
    ///
    /// # Errors
    /// There are such weights.
    pub fn all_used(&self, graph: &Graph, ignored: impl Fn(&str) -> bool) -> Result<(), ModelError> {
        let mut unused = self.0.keys().filter(|n| graph.find(n).is_none() && !ignored(n));
        match unused.next() {
            None => Ok(()),
            Some(first) => Err(ModelError::UnusedWeights { count: 1 + unused.count(), first: first.clone() }),
        }
    }
}
