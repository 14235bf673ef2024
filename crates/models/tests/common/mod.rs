//! Golden models and a runner over the reference interpreter.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::HashMap;
use std::path::PathBuf;

use frit_ir::{DType, Registry, Tensor};
use frit_models::arch::{self, Arch, Decoder, Form};
use frit_models::config::BuildOptions;
use frit_models::generate::Step;
use frit_models::metadata::Metadata;
use frit_models::weights::Weights;
use frit_ops::interpret::interpret;
use safetensors::{Dtype, SafeTensors};

/// The tensors of a safetensors file of the golden data.
pub fn tensors(model: &str, file: &str) -> HashMap<String, Tensor> {
    let path = data(model, file);
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let all = SafeTensors::deserialize(&bytes).unwrap();
    let one = |(name, t): (String, safetensors::tensor::TensorView)| {
        let dtype = match t.dtype() {
            Dtype::F32 => DType::F32,
            Dtype::I32 => DType::I32,
            d => panic!("{name} has the type {d:?}"),
        };
        (name, Tensor::new(dtype, t.shape(), t.data().to_vec()).unwrap())
    };
    all.tensors().into_iter().map(one).collect()
}

fn data(model: &str, file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/goldens").join(model).join(file)
}

/// The `config.json` of a golden model.
pub fn config(model: &str) -> String {
    std::fs::read_to_string(data(model, "config.json")).unwrap()
}

/// What the tensors look like to an architecture.
pub fn describe(arch: &Arch, tensors: &HashMap<String, Tensor>) -> Weights {
    arch.weights(tensors.iter().map(|(n, t)| (n.clone(), t.dtype(), t.shape().to_vec()))).unwrap()
}

/// A model with its weights and the state of one sequence.
pub struct Runner {
    pub decoder: Decoder,
    registry: Registry,
    values: HashMap<String, Tensor>,
    context: i64,
    logits: Vec<f32>,
}

impl Runner {
    /// From a configuration and the tensors of a file.
    pub fn new(arch: &Arch, m: &Metadata, file: &HashMap<String, Tensor>, o: &BuildOptions) -> Runner {
        let registry = frit_ops::registry();
        let weights = describe(arch, file);
        let functions = arch.decoder().unwrap();
        let config = (functions.config)(m, &weights).unwrap();
        let decoder = (functions.build)(&config, &weights, o, &registry).unwrap();
        let used = weights.iter().filter(|(n, _)| decoder.graph.find(n).is_some());
        let values = used.map(|(n, w)| (n.to_string(), file[&w.source].clone())).collect();
        let context = decoder.sizes.context as i64;
        Runner { decoder, registry, values, context, logits: Vec::new() }
    }

    /// A golden model in its own form.
    pub fn golden(model: &str, o: &BuildOptions) -> Runner {
        let m = Metadata::from_json(&config(model)).unwrap();
        let arch = arch::find(Form::HuggingFace, m.text("model_type").unwrap().unwrap()).unwrap();
        Runner::new(arch, &m, &tensors(model, "model.safetensors"), o)
    }

    /// Runs tokens at `start`, … and gives the logits of the chosen ones.
    pub fn step(&mut self, tokens: &[u32], start: usize, rows: &[i32]) -> Result<&[f32], String> {
        let t = tokens.len();
        let ids: Vec<i32> = tokens.iter().map(|t| *t as i32).collect();
        let at: Vec<i32> = (start..start + t).map(|p| p as i32).collect();
        let tensor = |shape: &[usize], v: &[i32]| Tensor::from_i32(shape, v).unwrap();
        self.values.insert("tokens".into(), tensor(&[1, t], &ids));
        self.values.insert("positions".into(), tensor(&[1, t], &at));
        self.values.insert("kv_len".into(), tensor(&[1], &[(start + t) as i32]));
        self.values.insert("rows".into(), tensor(&[rows.len()], rows));
        let sizes = [("T", t as i64), ("C", self.context), ("R", rows.len() as i64)];
        let r = interpret(&self.decoder.graph, &self.registry, &sizes, &self.values)
            .map_err(|e| e.to_string())?;
        self.values.extend(r.states);
        self.logits = r.outputs[0].1.to_f32().unwrap();
        Ok(&self.logits)
    }
}

/// A [`Step`] of a generation on a runner.
pub fn step<'x>(r: &'x mut Runner, s: Step<'_>) -> Result<&'x [f32], String> {
    r.step(s.tokens, s.start, &[s.tokens.len() as i32 - 1])
}

/// Token ids of a golden tensor, row by row.
pub fn ids(t: &Tensor) -> Vec<Vec<u32>> {
    let all: Vec<u32> = t.to_i64().unwrap().iter().map(|i| *i as u32).collect();
    all.chunks(t.shape()[1]).map(<[u32]>::to_vec).collect()
}

/// The largest difference from `want`, in standard deviations of `want`.
pub fn error(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let n = want.len() as f64;
    let mean = want.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
    let var = want.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / n;
    let worst = got.iter().zip(want).map(|(a, b)| f64::from((a - b).abs()));
    // A NaN must not be lost in the maximum.
    worst.fold(0.0, |a, b| if b.is_nan() { f64::INFINITY } else { f64::max(a, b) }) / var.sqrt()
}
