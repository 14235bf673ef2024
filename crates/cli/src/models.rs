//! From the command line to a loaded model.

use frit::{Activations, LoadOptions, Model};

use crate::args::{ActivationsArg, ModelArgs};
use crate::commands::pull;
use crate::failure::Failure;

/// Load options that `a` asks for.
pub fn options(a: &ModelArgs) -> LoadOptions {
    let mut o = LoadOptions::default();
    o.threads = a.threads;
    o.context = a.context;
    o.activations = match a.activations {
        ActivationsArg::Q16 => Activations::Q16,
        ActivationsArg::Q8 => Activations::Q8,
        ActivationsArg::F32 => Activations::F32,
    };
    o
}

/// Loads the model that `a` names, fetching it first if it is a known name that the cache lacks.
pub fn load(a: &ModelArgs, options: &LoadOptions) -> Result<Model, Failure> {
    let path = pull::resolve(&a.model)?;
    Ok(Model::load_with(&path, options)?)
}
