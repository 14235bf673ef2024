//! What decoders share: inputs, embedding, the walk over the layers, and the head.

use frit_ir::{DType, Registry, ValueId};

use crate::arch::Decoder;
use crate::blocks::attention::Inputs;
use crate::blocks::embedding::embed;
use crate::blocks::head;
use crate::blocks::layer::Layer;
use crate::blocks::rope::Rotation;
use crate::config::{BuildOptions, Config, Sizes};
use crate::error::ModelError;
use crate::names;
use crate::net::Net;
use crate::weights::Weights;

/// Builds the graph that [`Decoder`] describes out of `layer`.
///
/// # Errors
/// Options out of range; weights that are missing, of another shape or type, or not used.
pub(super) fn build(
    c: &Config,
    weights: &Weights,
    options: &BuildOptions,
    registry: &Registry,
    layer: Layer,
) -> Result<Decoder, ModelError> {
    c.check()?;
    let sizes = options.resolve(c)?;
    let mut net = Net::new("decoder", registry, weights);
    let (mut x, rows, io) = inputs(&mut net, c, &sizes)?;
    for i in 0..c.layers() {
        x = layer(&mut net, x, i, c, &sizes, &io)?;
    }
    let vectors = io.batch.clone() * io.tokens.clone();
    let y = head::logits(&mut net, x, vectors, rows, c)?;
    net.b.output("logits", y)?;
    let graph = net.b.finish();
    let ignored = |n: &str| {
        n.ends_with(".rotary_emb.inv_freq") || c.tied && n == "lm_head.weight" || names::reads_images(n)
    };
    weights.all_used(&graph, ignored)?;
    Ok(Decoder { graph, config: c.clone(), sizes })
}

/// Declares symbols and inputs: the embedded tokens, the rows, and what attention reads.
fn inputs(net: &mut Net, c: &Config, sizes: &Sizes) -> Result<(ValueId, ValueId, Inputs), ModelError> {
    let b = &mut net.b;
    let tokens = b.symbol("T", 1, sizes.chunk as i64)?;
    let capacity = b.symbol("C", 1, sizes.context as i64)?;
    let chosen = b.symbol("R", 1, sizes.rows as i64)?;
    let batch = sizes.sequences(b, &tokens)?;
    let ids = b.input("tokens", DType::I32, [batch.clone(), tokens.clone()])?;
    let positions = b.input("positions", DType::I32, [batch.clone(), tokens.clone()])?;
    let kv_len = b.input("kv_len", DType::I32, [batch.clone()])?;
    let rows = b.input("rows", DType::I32, [chosen])?;
    let x = embed(net, ids, c)?;
    let rotation = Rotation::new(net, "rope", &c.rope)?;
    let local = match &c.local_rope {
        Some(rope) => Rotation::new(net, "rope.local", rope)?,
        None => rotation,
    };
    Ok((x, rows, Inputs { batch, tokens, capacity, positions, kv_len, rotation, local }))
}
