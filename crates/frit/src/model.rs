//! Loading a model: a GGUF file, a Hugging Face folder, bytes in memory, or a configuration with named tensors.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "text")]
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use frit_formats::blob::{Blob, OpenOptions};
#[cfg(feature = "text")]
use frit_formats::chat::ChatTemplate;
use frit_formats::gguf::{Gguf, Value};
use frit_formats::safetensors::SafeTensors;
use frit_formats::tensor::TensorInfo;
#[cfg(feature = "text")]
use frit_formats::tokenizer::Tokenizer;
#[cfg(feature = "gpu")]
use frit_gpu::graphs::GraphOptions;
use frit_ir::DType;
use frit_models::ModelError;
use frit_models::arch::{self, Arch, DecoderFunctions, EncoderFunctions, Form, Kind};
use frit_models::config::BuildOptions;
use frit_models::embed::Recipe;
use frit_models::encoder::EncoderOptions;
use frit_models::metadata::{MetaValue, Metadata};

use crate::batch::Batch;
use crate::compiled::{Activations, CompileOptions, Compiled, Precision, Weights, compile_on};
use crate::device::{self, DeviceSpec};
use crate::embedder::{EmbedOptions, Embedder, Encoder};
use crate::error::{Error, Result};
use crate::generator::{Generator, Options};

/// The context that a model is loaded for unless another is asked for, if the model was trained for as much.
const DEFAULT_CONTEXT: usize = 4096;

/// How a model is loaded. Start from `LoadOptions::default()` and set what differs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoadOptions {
    /// Map files instead of reading them. A mapped file must not be shortened or overwritten while the model is alive: the
    /// system then ends the process on the next access.
    pub map: bool,
    /// Most positions a generator may have, or most tokens of a text that is embedded; `None` takes what the model was trained
    /// for, at most 4096.
    pub context: Option<usize>,
    /// Most tokens in one step: longer prompts go in pieces of this size, texts that are embedded in batches of at most as much
    /// (or one text, if that is longer).
    pub chunk: usize,
    /// Most tokens of one step that logits are computed for: 1 to generate, more to score faster.
    pub rows: usize,
    /// Most sequences that a [`Batch`] runs at once. All of them together take at most `chunk` tokens in a step.
    pub batch: usize,
    /// Element type of the KV cache: f32, f16 or bf16.
    pub kv_dtype: DType,
    /// How quantized weights read their activations. `Q16` rounds them to 16 bits in blocks of 32, which costs hardly any
    /// accuracy; `Q8` to 8 bits, as is common elsewhere: long prompts are faster on the CPU; `F32` is exact, and slower on the
    /// CPU. `None`: what suits the device, `Q16` on the CPU and `F32` on GPUs.
    pub activations: Option<Activations>,
    /// Precision of intermediate values.
    pub precision: Precision,
    /// Where it runs.
    pub device: DeviceSpec,
    /// A folder for compiled kernels of GPUs and the results of their self-checks; see [`CompileOptions::cache`].
    pub cache: Option<PathBuf>,
    /// Threads of a CPU pool of the model's own; `None` shares one pool of all processors between all models.
    pub threads: Option<usize>,
    /// Compile without fusion. For comparison; slower.
    pub unfused: bool,
    /// What goes to the device's own graph compiler and library; see [`CompileOptions::graphs`].
    #[cfg(feature = "gpu")]
    pub graphs: GraphOptions,
}

impl Default for LoadOptions {
    fn default() -> LoadOptions {
        LoadOptions {
            map: true,
            context: None,
            chunk: 512,
            rows: 1,
            batch: 1,
            kv_dtype: DType::F16,
            activations: None,
            precision: Precision::default(),
            device: DeviceSpec::Auto,
            cache: None,
            threads: None,
            unfused: false,
            #[cfg(feature = "gpu")]
            graphs: GraphOptions::default(),
        }
    }
}

impl LoadOptions {
    /// Whether to map files.
    pub fn map(mut self, yes: bool) -> Self {
        self.map = yes;
        self
    }

    /// With at most `n` positions.
    pub fn context(mut self, n: usize) -> Self {
        self.context = Some(n);
        self
    }

    /// With steps of at most `n` tokens.
    pub fn chunk(mut self, n: usize) -> Self {
        self.chunk = n;
        self
    }

    /// With logits for at most `n` tokens of a step.
    pub fn rows(mut self, n: usize) -> Self {
        self.rows = n;
        self
    }

    /// For batches of up to `n` sequences.
    pub fn batch(mut self, n: usize) -> Self {
        self.batch = n;
        self
    }

    /// With keys and values stored as `d`.
    pub fn kv_dtype(mut self, d: DType) -> Self {
        self.kv_dtype = d;
        self
    }

    /// With this activation mode.
    pub fn activations(mut self, a: Activations) -> Self {
        self.activations = Some(a);
        self
    }

    /// With intermediate values stored so.
    pub fn precision(mut self, p: Precision) -> Self {
        self.precision = p;
        self
    }

    /// On this device.
    pub fn device(mut self, d: DeviceSpec) -> Self {
        self.device = d;
        self
    }

    /// With compiled kernels kept in this folder.
    pub fn cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cache = Some(folder.into());
        self
    }

    /// With a pool of `n` threads of its own.
    pub fn threads(mut self, n: usize) -> Self {
        self.threads = Some(n);
        self
    }

    /// With so much for the device's own graph compiler.
    #[cfg(feature = "gpu")]
    pub fn graphs(mut self, g: GraphOptions) -> Self {
        self.graphs = g;
        self
    }
}

/// What a loaded model can hold at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Positions of a generator, or tokens of a text.
    pub context: usize,
    /// Tokens of one step.
    pub chunk: usize,
    /// Rows of logits of one step; 0 if the model has no logits.
    pub rows: usize,
    /// Sequences of a batch.
    pub batch: usize,
}

/// What a model is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Task {
    /// Generating text: [`Model::generator`].
    Generate,
    /// Embedding texts: [`Model::embedder`].
    Embed,
}

struct Inner {
    name: String,
    architecture: &'static str,
    layers: usize,
    vocabulary: usize,
    limits: Limits,
    compiled: Compiled,
    compile_time: Duration,
    threads: usize,
    end_tokens: Vec<u32>,
    /// Of an encoder; none for a decoder.
    encoder: Option<Encoder>,
    source_graph: frit_ir::Graph,
    #[cfg(feature = "text")]
    tokenizer: Option<Tokenizer>,
    /// Compiled at the first use.
    #[cfg(feature = "text")]
    chat: OnceLock<ChatTemplate>,
}

/// A loaded model: cheap to clone, shared between threads. [`Model::generator`] and [`Model::embedder`] make users of it.
#[derive(Clone)]
pub struct Model {
    inner: Arc<Inner>,
}

/// What a source brings to the common part of loading.
struct Parts {
    name: String,
    /// Where its configuration stands.
    config: String,
    form: Form,
    architecture: String,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    /// The folder that it lies in, if it does.
    folder: Option<PathBuf>,
    #[cfg(feature = "text")]
    tokenizer: Option<Tokenizer>,
}

impl Parts {
    /// An error about what the files say, which it names; one about an option as it is.
    fn fault(&self, e: ModelError) -> Error {
        use ModelError as M;
        let place = match &e {
            M::Option { .. } | M::InFile { .. } => return e.into(),
            M::UnknownArch { .. } | M::MissingKey(_) | M::BadValue { .. } | M::Unsupported { .. } => {
                &self.config
            }
            _ => &self.name,
        };
        Error::from(e).within(place)
    }
}

/// Bytes of a tensor that keep their file mapped. When nobody needs them any more (they live on in packed form), their pages go
/// back to the system.
struct Mapped(Blob);

impl Drop for Mapped {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Model {
    /// Loads a GGUF file or a Hugging Face folder (`config.json`, `*.safetensors`, `tokenizer.json` if there is one).
    ///
    /// # Errors
    /// See [`Model::load_with`].
    pub fn load(path: impl AsRef<Path>) -> Result<Model> {
        Model::load_with(path, &LoadOptions::default())
    }

    /// Loads with options.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Format`] for files that cannot be read or are malformed, [`Error::Unsupported`] for an
    /// architecture or setting that Frit does not have, [`Error::Value`] for an option out of range.
    pub fn load_with(path: impl AsRef<Path>, options: &LoadOptions) -> Result<Model> {
        let path = path.as_ref();
        let parts = match std::fs::metadata(path) {
            Err(e) => return Err(Error::io(path, e)),
            Ok(m) if m.is_dir() => from_folder(path, options)?,
            Ok(_) => from_file(path, options)?,
        };
        build(parts, options)
    }

    /// Loads a GGUF file that is in memory already: a `Vec<u8>`, an `Arc<[u8]>`, a `&'static [u8]`.
    ///
    /// # Errors
    /// As [`Model::load_with`].
    pub fn from_bytes(
        bytes: impl AsRef<[u8]> + Send + Sync + 'static,
        options: &LoadOptions,
    ) -> Result<Model> {
        let gguf = Gguf::from_bytes(bytes).map_err(Error::from)?;
        build(from_gguf("bytes".into(), &gguf)?, options)
    }

    /// Loads a model from the text of a Hugging Face `config.json`, its tensors by their Hugging Face names, and optionally the
    /// bytes of a `tokenizer.json`.
    ///
    /// # Errors
    /// As [`Model::load_with`].
    pub fn from_parts(
        config: &str,
        tensors: HashMap<String, frit_ir::Tensor>,
        tokenizer: Option<&[u8]>,
        options: &LoadOptions,
    ) -> Result<Model> {
        #[cfg(not(feature = "text"))]
        if tokenizer.is_some() {
            let message = "a tokenizer needs the feature `text`; without it give token ids".into();
            return Err(Error::Unsupported { message });
        }
        let mut all: Vec<TensorInfo> = tensors
            .into_iter()
            .map(|(name, t)| TensorInfo {
                name,
                dtype: t.dtype(),
                shape: t.shape().to_vec(),
                data: Blob::new(OwnedTensor(t)),
            })
            .collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        let place = "config.json";
        let (architecture, metadata) = read_config(config, place)?;
        build(
            Parts {
                name: "parts".into(),
                config: place.into(),
                form: Form::HuggingFace,
                architecture,
                metadata,
                tensors: all,
                folder: None,
                #[cfg(feature = "text")]
                tokenizer: tokenizer.map(Tokenizer::from_json_bytes).transpose().map_err(Error::from)?,
            },
            options,
        )
    }

    /// A new user of the model with an empty context.
    ///
    /// # Errors
    /// [`Error::WrongTask`] if the model is an encoder, [`Error::Value`] for an option out of range, [`Error::OutOfMemory`].
    pub fn generator(&self, options: Options) -> Result<Generator> {
        self.generates()?;
        Generator::new(self, options)
    }

    fn generates(&self) -> Result<()> {
        if self.task() == Task::Generate {
            return Ok(());
        }
        let (name, arch) = (self.name(), self.architecture());
        let message = format!("{name} is an encoder ({arch}): it embeds texts and generates none");
        Err(Error::WrongTask { message })
    }

    /// A new user of the model that makes embeddings.
    ///
    /// # Errors
    /// [`Error::WrongTask`] if the model is not an encoder: vectors of a model that was trained to continue texts say little of
    /// what a text means. [`Error::Value`] for an option out of range, [`Error::OutOfMemory`].
    pub fn embedder(&self, options: EmbedOptions) -> Result<Embedder> {
        match &self.inner.encoder {
            Some(encoder) => Embedder::new(self, *encoder, options),
            None => {
                let (name, arch) = (self.name(), self.architecture());
                let message =
                    format!("{name} generates text ({arch}); embeddings take an encoder, such as BERT");
                Err(Error::WrongTask { message })
            }
        }
    }

    /// What it is for.
    pub fn task(&self) -> Task {
        if self.inner.encoder.is_some() { Task::Embed } else { Task::Generate }
    }

    /// Room for up to `rows` sequences that run together ([`LoadOptions::batch`] at most).
    ///
    /// # Errors
    /// As [`Model::generator`].
    pub fn batch(&self, rows: usize, options: Options) -> Result<Batch> {
        self.generates()?;
        Batch::new(self, rows, options)
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// [`Error::WrongTask`] if the model came without one.
    #[cfg(feature = "text")]
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        self.inner.tokenizer.as_ref().ok_or_else(|| Error::WrongTask {
            message: format!("{} has no tokenizer; give token ids instead of text", self.inner.name),
        })
    }

    /// Where the chat template is kept once it is compiled.
    #[cfg(feature = "text")]
    pub(crate) fn chat(&self) -> &OnceLock<ChatTemplate> {
        &self.inner.chat
    }

    /// Where it came from.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Name of its architecture.
    pub fn architecture(&self) -> &str {
        self.inner.architecture
    }

    /// What it can hold at most.
    pub fn limits(&self) -> Limits {
        self.inner.limits
    }

    /// Size of the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.inner.vocabulary
    }

    /// Tokens that end a text.
    pub fn end_tokens(&self) -> &[u32] {
        &self.inner.end_tokens
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.inner.layers
    }

    /// Threads of its CPU pool; none on a GPU.
    pub fn threads(&self) -> usize {
        self.inner.threads
    }

    /// How long the compiler took, weights not counted.
    pub fn compile_time(&self) -> Duration {
        self.inner.compile_time
    }

    /// The device that it runs on.
    pub fn device(&self) -> &DeviceSpec {
        self.inner.compiled.device()
    }

    /// The compiled graph, with its report.
    pub fn compiled(&self) -> &Compiled {
        &self.inner.compiled
    }

    /// The graph as the architecture states it, before fusion.
    pub fn graph(&self) -> &frit_ir::Graph {
        &self.inner.source_graph
    }
}

/// A tensor as bytes.
struct OwnedTensor(frit_ir::Tensor);

impl AsRef<[u8]> for OwnedTensor {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

fn open_options(o: &LoadOptions) -> OpenOptions {
    OpenOptions { map: o.map }
}

fn from_file(path: &Path, options: &LoadOptions) -> Result<Parts> {
    if path.extension().is_some_and(|e| e == "safetensors") {
        return from_folder(path.parent().unwrap_or(Path::new(".")), options);
    }
    let gguf = Gguf::open(path, open_options(options)).map_err(Error::from)?;
    from_gguf(path.display().to_string(), &gguf)
}

fn from_gguf(name: String, gguf: &Gguf) -> Result<Parts> {
    let architecture: &str = gguf.get("general.architecture").map_err(Error::from)?;
    let mut metadata = Metadata::new();
    for (key, value) in gguf.metadata() {
        // The vocabulary is the tokenizer's; as metadata it would be megabytes of copies.
        let vocabulary = key.starts_with("tokenizer.") && matches!(value, Value::Array(_));
        if let Some(v) = meta_value(value).filter(|_| !vocabulary) {
            metadata.insert(key, v);
        }
    }
    Ok(Parts {
        architecture: architecture.into(),
        config: name.clone(),
        name,
        form: Form::Gguf,
        metadata,
        tensors: gguf.tensors().to_vec(),
        folder: None,
        #[cfg(feature = "text")]
        tokenizer: match gguf.meta("tokenizer.ggml.model") {
            Some(_) => Some(Tokenizer::from_gguf(gguf).map_err(Error::from)?),
            None => None,
        },
    })
}

/// A GGUF value as the models see it; a text that is not UTF-8 configures nothing.
fn meta_value(v: &Value) -> Option<MetaValue> {
    Some(match v {
        Value::Unsigned(_, v) => i64::try_from(*v).map_or(MetaValue::Float(*v as f64), MetaValue::Int),
        Value::Signed(_, v) => MetaValue::Int(*v),
        Value::Float(_, v) => MetaValue::Float(*v),
        Value::Bool(v) => MetaValue::Bool(*v),
        Value::Str(v) => MetaValue::Text(std::str::from_utf8(v).ok()?.into()),
        Value::Array(a) => MetaValue::List(a.iter().filter_map(|v| meta_value(&v)).collect()),
    })
}

fn from_folder(folder: &Path, options: &LoadOptions) -> Result<Parts> {
    let config: PathBuf = folder.join("config.json");
    let text = std::fs::read_to_string(&config).map_err(|e| Error::io(&config, e))?;
    let place = config.display().to_string();
    let (architecture, metadata) = read_config(&text, &place)?;
    let files = ["model.safetensors", "model.safetensors.index.json"];
    let path = files.map(|f| folder.join(f)).into_iter().find(|p| p.exists()).ok_or_else(|| {
        let why = format!("neither {} nor {} is in the folder", files[0], files[1]);
        Error::io(folder, std::io::Error::new(std::io::ErrorKind::NotFound, why))
    })?;
    let tensors = SafeTensors::open(&path, open_options(options)).map_err(Error::from)?;
    Ok(Parts {
        name: folder.display().to_string(),
        config: place,
        form: Form::HuggingFace,
        architecture,
        metadata,
        tensors: tensors.tensors().to_vec(),
        folder: Some(folder.into()),
        #[cfg(feature = "text")]
        tokenizer: match folder.join("tokenizer.json").exists() {
            true => Some(Tokenizer::from_folder(folder).map_err(Error::from)?),
            false => None,
        },
    })
}

/// The architecture and the keys of a `config.json`, which errors call `place`.
fn read_config(text: &str, place: &str) -> Result<(String, Metadata)> {
    let read = || -> std::result::Result<_, ModelError> {
        let metadata = Metadata::from_json(text)?;
        match metadata.text("model_type")? {
            Some(t) => Ok((t.to_owned(), metadata)),
            None => Err(ModelError::MissingKey("model_type".into())),
        }
    };
    read().map_err(|e| e.in_file(place).into())
}

/// What an architecture makes of a model's files.
struct Built {
    graph: frit_ir::Graph,
    layers: usize,
    vocabulary: usize,
    limits: Limits,
    end_tokens: Vec<u32>,
    encoder: Option<Encoder>,
}

type Described = frit_models::weights::Weights;

fn decoder(f: &DecoderFunctions, parts: &Parts, weights: &Described, options: &LoadOptions) -> Result<Built> {
    let config = (f.config)(&parts.metadata, weights).map_err(|e| parts.fault(e))?;
    let mut o = BuildOptions::default().chunk(options.chunk).rows(options.rows).kv_dtype(options.kv_dtype);
    o = o.batch(options.batch).context(options.context.unwrap_or(config.context.min(DEFAULT_CONTEXT)));
    let built = (f.build)(&config, weights, &o, &frit_ops::registry()).map_err(|e| parts.fault(e))?;
    let s = built.sizes;
    #[cfg(feature = "text")]
    let end_tokens = end_tokens(parts.tokenizer.as_ref(), &config.eos);
    #[cfg(not(feature = "text"))]
    let end_tokens = config.eos.clone();
    let limits = Limits { context: s.context, chunk: s.chunk, rows: s.rows, batch: s.batch };
    let (layers, vocabulary) = (config.layers(), config.vocab);
    Ok(Built { graph: built.graph, layers, vocabulary, limits, end_tokens, encoder: None })
}

fn encoder(f: &EncoderFunctions, parts: &Parts, weights: &Described, options: &LoadOptions) -> Result<Built> {
    let config = (f.config)(&parts.metadata, weights).map_err(|e| parts.fault(e))?;
    let context = options.context.unwrap_or(config.context.min(DEFAULT_CONTEXT));
    let o = EncoderOptions::default().chunk(options.chunk).context(context);
    let built = (f.build)(&config, weights, &o, &frit_ops::registry()).map_err(|e| parts.fault(e))?;
    let recipe = match (parts.form, &parts.folder) {
        (Form::Gguf, _) => {
            Recipe::from_gguf(&parts.metadata, &parts.architecture).map_err(|e| parts.fault(e))?
        }
        (_, None) => Recipe::default(),
        (_, Some(folder)) => Recipe::from_folder(folder, config.hidden, |name| {
            let path = folder.join(name);
            match std::fs::read_to_string(&path) {
                Ok(text) => Ok(Some(text)),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(e) => Err(Error::io(&path, e)),
            }
        })?,
    };
    let limits = Limits { context: built.sizes.context, chunk: built.sizes.chunk, rows: 0, batch: 0 };
    let encoder = Some(Encoder { recipe, vocab: config.vocab });
    let (layers, vocabulary, end_tokens) = (config.layers, config.vocab, Vec::new());
    Ok(Built { graph: built.graph, layers, vocabulary, limits, end_tokens, encoder })
}

/// From parts to a model: configuration, graph, compilation, weights.
fn build(parts: Parts, options: &LoadOptions) -> Result<Model> {
    let fault = |e| parts.fault(e);
    let arch: &'static Arch = arch::find(parts.form, &parts.architecture).map_err(fault)?;
    let tensors = parts.tensors.iter().map(|t| (t.name.clone(), t.dtype, t.shape.clone()));
    let described = arch.weights(tensors).map_err(fault)?;
    // Opening a GPU can take seconds, which are none of the compiler's.
    let opened = device::open(&options.device, options.cache.as_deref(), options.threads)?;
    let start = Instant::now();
    let built = match &arch.kind {
        Kind::Decoder(f) => decoder(f, &parts, &described, options)?,
        Kind::Encoder(f) => encoder(f, &parts, &described, options)?,
    };
    let blobs: HashMap<&str, &Blob> = parts.tensors.iter().map(|t| (t.name.as_str(), &t.data)).collect();
    let mut weights = Weights::new();
    for (name, w) in described.iter() {
        let used = built.graph.find(name).is_some();
        if let Some(b) = blobs.get(w.source.as_str()).filter(|_| used) {
            weights.insert_bytes(name, w.dtype, Arc::new(Mapped((*b).clone())));
        }
    }
    let mut c = CompileOptions::default().precision(options.precision.clone());
    c.activations = options.activations.unwrap_or(opened.backend.activations());
    c.unfused = options.unfused;
    #[cfg(feature = "gpu")]
    {
        c.graphs = options.graphs;
    }
    let build_time = start.elapsed();
    let compiled = compile_on(opened, &built.graph, weights, &c)?;
    let compile_time = build_time + passes_time(compiled.report());
    Ok(Model {
        inner: Arc::new(Inner {
            name: parts.name,
            architecture: arch.name,
            layers: built.layers,
            vocabulary: built.vocabulary,
            limits: built.limits,
            threads: compiled.executable().backend().threads(),
            compiled,
            compile_time,
            end_tokens: built.end_tokens,
            encoder: built.encoder,
            source_graph: built.graph,
            #[cfg(feature = "text")]
            tokenizer: parts.tokenizer,
            #[cfg(feature = "text")]
            chat: OnceLock::new(),
        }),
    })
}

fn passes_time(r: &frit_compile::Report) -> Duration {
    r.passes.iter().map(|p| p.time).sum::<Duration>() + r.lowering
}

#[cfg(feature = "text")]
fn end_tokens(tokenizer: Option<&Tokenizer>, of_model: &[u32]) -> Vec<u32> {
    let mut all = of_model.to_vec();
    if let Some(t) = tokenizer {
        all.extend(t.eog_ids());
    }
    all.sort_unstable();
    all.dedup();
    all
}
