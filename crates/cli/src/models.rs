//! From the command line to a loaded model.

use std::path::Path;

#[cfg(any(feature = "cuda", feature = "opencl"))]
use frit::GraphMode;
use frit::{Activations, LoadOptions, Model};

#[cfg(any(feature = "cuda", feature = "opencl"))]
use crate::args::GraphsArg;
use crate::args::{ActivationsArg, ModelArgs};
use crate::commands::pull;
use crate::env;
use crate::failure::Failure;

/// Load options that `a` asks for.
pub fn options(a: &ModelArgs) -> LoadOptions {
    let mut o = LoadOptions::default();
    o.threads = a.threads;
    o.context = a.context;
    o.device = a.device.clone();
    o.cache = env::cache_dir().ok().map(|c| c.join("kernels"));
    o.activations = a.activations.map(|a| match a {
        ActivationsArg::Q16 => Activations::Q16,
        ActivationsArg::Q8 => Activations::Q8,
        ActivationsArg::F32 => Activations::F32,
    });
    #[cfg(any(feature = "cuda", feature = "opencl"))]
    {
        o.graphs = frit::GraphOptions::default().mode(match a.graphs {
            GraphsArg::Off => GraphMode::Off,
            GraphsArg::Products => GraphMode::Products,
            GraphsArg::Hybrid => GraphMode::Hybrid,
            GraphsArg::Whole => GraphMode::Whole,
        });
    }
    o
}

/// As [`load`], for a command that cannot do without a tokenizer.
pub fn load_for_text(a: &ModelArgs) -> Result<Model, Failure> {
    let model = load(a, &options(a))?;
    if model.tokenizer().is_err() {
        let name = model.name();
        let missing = match Path::new(name).is_dir() {
            true => "there is no tokenizer.json",
            false => "the file has no tokenizer",
        };
        return Err(Failure::Error(format!("{name}: {missing}, and this command takes text")));
    }
    Ok(model)
}

/// Loads the model that `a` names, fetching it first if it is a known name that the cache lacks.
pub fn load(a: &ModelArgs, options: &LoadOptions) -> Result<Model, Failure> {
    let path = pull::resolve(&a.model)?;
    let model = Model::load_with(&path, options)?;
    for line in model.compiled().passed_over() {
        eprintln!("frit: {line}; it was passed over");
    }
    Ok(model)
}
