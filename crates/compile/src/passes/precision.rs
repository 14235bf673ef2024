//! The precision policy: after fusion, values between nodes are stored as f16 or bf16. Parameters, states, inputs and
//! outputs keep their types; every op accumulates as it always does.

use std::collections::HashMap;
use std::sync::Arc;

use frit_ir::expr::Expr;
use frit_ir::graph::{GraphError, Node, ValueId};
use frit_ir::{Attr, Attrs, DType, Graph, Registry};

use crate::exprs::identity;
use crate::work::{At, Work};

/// A type in which f32 values between nodes are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Storage {
    /// binary32: as the graph says.
    #[default]
    F32,
    /// binary16.
    F16,
    /// bfloat16.
    BF16,
}

impl Storage {
    fn dtype(self) -> DType {
        match self {
            Storage::F32 => DType::F32,
            Storage::F16 => DType::F16,
            Storage::BF16 => DType::BF16,
        }
    }
}

/// How f32 values between nodes are stored. Values of other types are left alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Precision {
    /// Storage of the results of every op that is not named below.
    pub storage: Storage,
    /// Storage by op, e.g. (`softmax`, [`Storage::F32`]).
    pub overrides: Vec<(String, Storage)>,
}

impl Precision {
    /// Results of every op in `storage`.
    pub fn new(storage: Storage) -> Precision {
        Precision { storage, overrides: Vec::new() }
    }

    /// With the results of `op` in `storage`.
    pub fn with_op(mut self, op: &str, storage: Storage) -> Precision {
        self.overrides.push((op.into(), storage));
        self
    }

    /// The storage of the results of `op`.
    pub fn of(&self, op: &str) -> Storage {
        self.overrides.iter().rfind(|(n, _)| n == op).map_or(self.storage, |(_, s)| *s)
    }

    /// Whether nothing changes.
    pub fn is_plain(&self) -> bool {
        self.storage == Storage::F32 && self.overrides.iter().all(|(_, s)| *s == Storage::F32)
    }
}

/// Which operands of an op may be stored in the lower precision, its results then following.
enum Follows {
    All,
    First(usize),
    /// These operands; states keep their types.
    Only(&'static [usize]),
    /// The first and everything from the first extra on (`linear`: x and the extras, not the weights).
    Linear,
}

const FOLLOWERS: &[(&str, Follows)] = &[
    ("expr", Follows::All),
    ("matmul", Follows::All),
    ("linear", Follows::Linear),
    ("rms_norm", Follows::First(1)),
    ("layer_norm", Follows::First(1)),
    ("residual_norm", Follows::First(2)),
    ("rotary", Follows::First(1)),
    ("attention", Follows::First(1)),
    ("write_kv", Follows::Only(&[1])),
    ("rotary_write_kv", Follows::Only(&[2, 3, 4])),
    ("softmax", Follows::First(1)),
    ("concat", Follows::All),
    ("pad", Follows::First(1)),
    ("flip", Follows::First(1)),
    ("reshape", Follows::First(1)),
    ("transpose", Follows::First(1)),
    ("broadcast", Follows::First(1)),
    ("slice", Follows::First(1)),
];

/// Stores f32 values as `precision` says.
pub(crate) fn apply(g: &Graph, registry: &Registry, precision: &Precision) -> Result<Graph, GraphError> {
    if precision.is_plain() {
        return Ok(g.clone());
    }
    let mut w = Work::new(g, registry);
    let mut casts: HashMap<(ValueId, DType), ValueId> = HashMap::new();
    // What stands for each value of the old graph.
    let mut stands: HashMap<ValueId, ValueId> = HashMap::new();
    for at in w.nodes() {
        let to = precision.of(&w.node(at).op).dtype();
        lower(&mut w, at, to, &mut stands, &mut casts)?;
    }
    let kept: Vec<(ValueId, ValueId)> = stands.iter().map(|(a, b)| (*a, *b)).collect();
    for (old, new) in kept {
        if w.is_kept(old) {
            let Some((at, _)) = w.producer(new) else { continue };
            let was = w.ty(old).dtype;
            let restored = cast(&mut w, at, new, was, &mut casts)?;
            w.replace(old, restored);
        }
    }
    w.finish()
}

/// Rebuilds one node over what stands for its operands.
fn lower(
    w: &mut Work,
    at: At,
    to: DType,
    stands: &mut HashMap<ValueId, ValueId>,
    casts: &mut HashMap<(ValueId, DType), ValueId>,
) -> Result<(), GraphError> {
    let node = w.node(at).clone();
    let follows = FOLLOWERS.iter().find(|(n, _)| *n == &*node.op).map(|(_, f)| f);
    let mut inputs = node.inputs.to_vec();
    for (i, v) in inputs.iter_mut().enumerate().filter(|(_, v)| !v.is_none()) {
        let was = w.ty(*v).dtype;
        let want = match (was, follows) {
            (DType::F32, Some(f)) if follows_at(f, &node, i) => to,
            _ => was,
        };
        let now = stands.get(v).copied().unwrap_or(*v);
        *v = cast(w, at, now, want, casts)?;
    }
    if inputs == node.inputs.as_slice() && (to == DType::F32 || follows.is_none()) {
        return Ok(());
    }
    let attrs = retyped(&node, w, &inputs, if follows.is_some() { to } else { DType::F32 })?;
    let made = w.add(at, &node.op, attrs, &inputs)?;
    for (old, new) in node.outputs.iter().zip(made) {
        if w.ty(*old) == w.ty(new) {
            w.replace(*old, new);
        }
        stands.insert(*old, new);
    }
    Ok(())
}

fn follows_at(f: &Follows, node: &Node, i: usize) -> bool {
    match f {
        Follows::All => true,
        Follows::First(n) => i < *n,
        Follows::Only(these) => these.contains(&i),
        Follows::Linear => i == 0 || i as i64 > node.attrs.int("weights").unwrap_or(i64::MAX - 1),
    }
}

/// The attributes with expressions over the new operand types, and their f32 results stored as `to`.
fn retyped(node: &Node, w: &Work, inputs: &[ValueId], to: DType) -> Result<Attrs, GraphError> {
    let mut attrs = node.attrs.clone();
    let store = |e: &mut Expr| {
        e.outputs.iter_mut().filter(|o| o.dtype == DType::F32).for_each(|o| o.dtype = to);
    };
    if let Ok(e) = node.attrs.expr("expr") {
        let mut e = Expr::clone(&e);
        for (d, v) in e.inputs.iter_mut().zip(inputs) {
            *d = w.ty(*v).dtype;
        }
        store(&mut e);
        attrs.set("expr", Arc::new(e));
    }
    if let (Ok(exprs), Ok(arity), Ok(n)) =
        (node.attrs.exprs("exprs"), node.attrs.ints("arity"), node.attrs.int("weights"))
    {
        let mut extra = inputs.iter().skip(1 + n as usize);
        let mut out = Vec::new();
        for (e, arity) in exprs.iter().zip(arity) {
            let mut e = Expr::clone(e);
            for (d, v) in e.inputs.iter_mut().skip(arity as usize).zip(&mut extra) {
                *d = w.ty(*v).dtype;
            }
            store(&mut e);
            out.push(Attr::Expr(Arc::new(e)));
        }
        attrs.set("exprs", Attr::List(out));
    }
    Ok(attrs)
}

/// `v` as `to`, by one cast for all that want it. `at` is where it is wanted first.
fn cast(
    w: &mut Work,
    at: At,
    v: ValueId,
    to: DType,
    casts: &mut HashMap<(ValueId, DType), ValueId>,
) -> Result<ValueId, GraphError> {
    let from = w.ty(v).dtype;
    if from == to {
        return Ok(v);
    }
    if let Some(c) = casts.get(&(v, to)) {
        return Ok(*c);
    }
    let attrs = Attrs::new().with("expr", Arc::new(identity(from, to)));
    let c = w.add(at, "expr", attrs, &[v])?[0];
    casts.insert((v, to), c);
    Ok(c)
}
