//! Reading rotary parameters.

use frit_ops::rope_scaling::{RopeScaling, Yarn};

use crate::config::{Rope, RopeStyle};
use crate::error::ModelError;
use crate::metadata::Metadata;

/// From `config.json`: `rope_parameters` (newer files) or `rope_scaling` with `rope_theta` beside it.
pub fn from_hf(m: &Metadata, head_dim: usize, context: usize) -> Result<Rope, ModelError> {
    let groups = ["rope_parameters", "rope_scaling"];
    let group = groups.into_iter().find(|g| m.any_under(&format!("{g}.")).is_some());
    let theta = m.positive("rope_theta")?.unwrap_or(10_000.0);
    from_group(m, group.unwrap_or("rope_scaling"), theta, head_dim, context)
}

/// As [`from_hf`], for layers that see everything, and for layers with a window: `rope_parameters` has a group for each (newer
/// files), or `rope_scaling` is for the one, and `rope_theta` and `rope_local_base_freq` stand beside it. `thetas` are the bases where
/// the file names none.
pub fn two_from_hf(
    m: &Metadata,
    head_dim: usize,
    context: usize,
    thetas: [f64; 2],
) -> Result<(Rope, Rope), ModelError> {
    let theta = m.positive("rope_theta")?.unwrap_or(thetas[0]);
    let local_theta = m.positive("rope_local_base_freq")?.unwrap_or(thetas[1]);
    if m.any_under("rope_parameters.").is_none() {
        let rope = from_group(m, "rope_scaling", theta, head_dim, context)?;
        return Ok((rope, Rope::plain(local_theta, head_dim, RopeStyle::Half)));
    }
    let one = |group: &str, theta| from_group(m, group, theta, head_dim, context);
    Ok((
        one("rope_parameters.full_attention", theta)?,
        one("rope_parameters.sliding_attention", local_theta)?,
    ))
}

/// From the keys below `group`, which need not give the base.
fn from_group(
    m: &Metadata,
    group: &str,
    theta: f64,
    head_dim: usize,
    context: usize,
) -> Result<Rope, ModelError> {
    let key = |k: &str| format!("{group}.{k}");
    let theta = m.positive(&key("rope_theta"))?.unwrap_or(theta);
    for k in [key("partial_rotary_factor"), "partial_rotary_factor".into()] {
        if m.number(&k)?.is_some_and(|v| v != 1.0) {
            return Err(m.unsupported(&k, "1"));
        }
    }
    let kind = if m.get(&key("rope_type")).is_some() { key("rope_type") } else { key("type") };
    let need = |k: &str| {
        let k = key(k);
        m.positive(&k)?.ok_or(ModelError::MissingKey(k))
    };
    let trained = "original_max_position_embeddings";
    let original = m.positive(&key(trained))?.or(m.positive(trained)?);
    let scaling = match m.text(&kind)?.unwrap_or("default") {
        // The base of `dynamic` changes only beyond the context that `max_position_embeddings` allows.
        "default" | "dynamic" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: need("factor")? },
        "llama3" => RopeScaling::Llama3 {
            factor: need("factor")?,
            low_freq_factor: need("low_freq_factor")?,
            high_freq_factor: need("high_freq_factor")?,
            original_context: original.ok_or_else(|| ModelError::MissingKey(key(trained)))?,
        },
        "yarn" => RopeScaling::Yarn(Yarn {
            factor: need("factor")?,
            original_context: original.unwrap_or(context as f64),
            beta_fast: m.positive(&key("beta_fast"))?.unwrap_or(32.0),
            beta_slow: m.positive(&key("beta_slow"))?.unwrap_or(1.0),
            truncate: m.flag(&key("truncate"))?.unwrap_or(true),
            attention_factor: m.positive(&key("attention_factor"))?,
            mscale: m.number(&key("mscale"))?,
            mscale_all_dim: m.number(&key("mscale_all_dim"))?,
        }),
        _ => return Err(m.unsupported(&kind, "default, dynamic, linear, llama3, yarn")),
    };
    Ok(Rope { theta, dims: head_dim, style: RopeStyle::Half, scaling, divisors: false })
}

/// From GGUF metadata below `{prefix}.`.
pub fn from_gguf(
    m: &Metadata,
    prefix: &str,
    head_dim: usize,
    context: usize,
    style: RopeStyle,
    divisors: bool,
) -> Result<Rope, ModelError> {
    let key = |k: &str| format!("{prefix}.{k}");
    let theta = m.positive(&key("freq_base"))?.unwrap_or(10_000.0);
    let dims = m.size(&key("dimension_count"))?.unwrap_or(head_dim);
    let kind = key("scaling.type");
    // `scale_linear` is what files had before `scaling.type`.
    let factor = m.positive(&key("scaling.factor"))?.or(m.positive(&key("scale_linear"))?);
    let default = if m.get(&key("scale_linear")).is_some() { "linear" } else { "none" };
    let need = |v: Option<f64>| v.ok_or_else(|| ModelError::MissingKey(key("scaling.factor")));
    let scaling = match m.text(&kind)?.unwrap_or(default) {
        "none" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: need(factor)? },
        "yarn" => {
            let log = key("scaling.yarn_log_multiplier");
            if m.number(&log)?.is_some_and(|v| v != 0.0) {
                return Err(m.unsupported(&log, "0"));
            }
            let factor = need(factor)?;
            // These files give what the formula's value is multiplied by, not the value.
            let times = m.positive(&key("scaling.attn_factor"))?;
            RopeScaling::Yarn(Yarn {
                factor,
                original_context: m
                    .positive(&key("scaling.original_context_length"))?
                    .unwrap_or(context as f64),
                beta_fast: m.positive(&key("scaling.yarn_beta_fast"))?.unwrap_or(32.0),
                beta_slow: m.positive(&key("scaling.yarn_beta_slow"))?.unwrap_or(1.0),
                truncate: true,
                attention_factor: times.map(|t| t * (1.0 + 0.1 * factor.max(1.0).ln())),
                mscale: None,
                mscale_all_dim: None,
            })
        }
        _ => return Err(m.unsupported(&kind, "none, linear, yarn")),
    };
    Ok(Rope { theta, dims, style, scaling, divisors })
}
