//! What can be wrong with a model's files or options.

use frit_ir::DType;
use frit_ir::graph::GraphError;
use frit_ir::op::OpError;
use frit_ir::symbols::SymbolError;
use frit_ir::tensor::TensorError;

/// Why a model could not be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// No such architecture.
    #[error("the architecture `{name}` is not supported in {source_kind} form; supported are: {known}")]
    UnknownArch {
        /// The name found in the file.
        name: String,
        /// `GGUF` or `Hugging Face`.
        source_kind: &'static str,
        /// The names known for this form.
        known: String,
    },
    /// The configuration is not JSON.
    #[error("the configuration is not a JSON object: {0}")]
    Json(String),
    /// A list of modules is not one.
    #[error("not a JSON list of modules: {0}")]
    JsonList(String),
    /// Something is wrong with one file of several.
    #[error("{file}: {source}")]
    InFile {
        /// The file.
        file: String,
        /// What is wrong with it.
        source: Box<ModelError>,
    },
    /// A file that another one names is not there.
    #[error("the file is missing; {0}")]
    MissingFile(String),
    /// A key that must be there is not.
    #[error("the configuration has no `{0}`")]
    MissingKey(String),
    /// A key has a value of the wrong type or out of range.
    #[error("`{key}` is {value}; it must be {want}")]
    BadValue {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What it must be.
        want: String,
    },
    /// A key has a value that Frit does not implement.
    #[error("`{key}` = {value} is not supported; supported: {supported}")]
    Unsupported {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What would be supported.
        supported: String,
    },
    /// A weight that must be there is not.
    #[error("the weight `{0}` is missing")]
    MissingWeight(String),
    /// A weight has another shape than the configuration says.
    #[error("the weight `{name}` has the shape {got:?}; the configuration asks for {want:?}")]
    WeightShape {
        /// The weight's canonical name.
        name: String,
        /// What the configuration asks for, outermost first.
        want: Vec<usize>,
        /// What the file has.
        got: Vec<usize>,
    },
    /// A weight has an element type that cannot stand in its place.
    #[error("the weight `{name}` has the type {dtype}; supported: {supported}")]
    WeightType {
        /// The weight's canonical name.
        name: String,
        /// Its type.
        dtype: DType,
        /// What would be supported.
        supported: &'static str,
    },
    /// Two tensors of the file are the same weight.
    #[error("the weight `{0}` is given twice")]
    WeightTwice(String),
    /// The file has weights that the architecture does not use, so the result would be another model.
    #[error("{count} weights are not used by the architecture, the first is `{first}`")]
    UnusedWeights {
        /// How many.
        count: usize,
        /// The first by name.
        first: String,
    },
    /// A build option out of range.
    #[error("option `{option}` is {value}; it must be {want}")]
    Option {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        want: String,
    },
    /// The files say nothing of what has to be known, or contradict each other.
    #[error("{0}")]
    Unclear(String),
    /// The graph refused a node; the configuration is contradictory.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// An op refused its parameters.
    #[error(transparent)]
    Op(#[from] OpError),
    /// A symbol could not be declared.
    #[error(transparent)]
    Symbol(#[from] SymbolError),
    /// A constant could not be made.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

impl ModelError {
    /// The same, of the file `file`.
    pub fn in_file(self, file: impl Into<String>) -> ModelError {
        ModelError::InFile { file: file.into(), source: Box::new(self) }
    }
}
