//! Identities of views and of data movement: whatever gives its operand back, and views of views.

use frit_ir::graph::{GraphError, Node, ValueId};
use frit_ir::{Attr, Attrs, Dim};

use crate::work::{At, Work};

/// reshape∘reshape, transpose∘transpose and broadcast∘broadcast become one; identities vanish.
pub(super) fn simplify(w: &mut Work, at: At) -> Result<bool, GraphError> {
    let node = w.node(at);
    let [out] = node.outputs.as_slice() else { return Ok(false) };
    let (out, Some(x)) = (*out, node.inputs.first().copied()) else { return Ok(false) };
    if is_identity(w, node, x, out) {
        w.replace(out, x);
        return Ok(true);
    }
    let Some((attrs, base)) = merged(w, node, x) else { return Ok(false) };
    let op = node.op.clone();
    let new = w.add(at, &op, attrs, &[base])?[0];
    w.replace(out, new);
    Ok(true)
}

fn is_identity(w: &Work, node: &Node, x: ValueId, out: ValueId) -> bool {
    let all = |name: &str, value: i64| node.attrs.ints(name).is_ok_and(|v| v.iter().all(|x| *x == value));
    let same = w.ty(x) == w.ty(out);
    match &*node.op {
        // Starts and steps must be those of the whole; the extents then are.
        "slice" => same && all("starts", 0) && all("steps", 1),
        "reshape" | "broadcast" => same,
        "transpose" => node.attrs.ints("perm").is_ok_and(|p| p.iter().copied().eq(0..p.len() as i64)),
        "concat" => node.inputs.len() == 1,
        "pad" => all("before", 0) && all("after", 0),
        "flip" => node.attrs.ints("axes").is_ok_and(|a| a.is_empty()),
        // A copy keeps what a state write would destroy; others are made where a kernel wants them.
        "copy" => !w.is_stale(x),
        _ => false,
    }
}

/// Attributes and operand of the one view that does what `node` does after the view that makes its operand.
fn merged(w: &Work, node: &Node, x: ValueId) -> Option<(Attrs, ValueId)> {
    let inner = w.node(w.made_by(x, &node.op)?);
    let base = *inner.inputs.first()?;
    match &*node.op {
        "reshape" | "broadcast" => Some((node.attrs.clone(), base)),
        "transpose" => {
            let (p, q) = (node.attrs.ints("perm").ok()?, inner.attrs.ints("perm").ok()?);
            let perm: Vec<i64> = p.iter().map(|i| q[*i as usize]).collect();
            Some((Attrs::new().with("perm", perm), base))
        }
        "slice" => {
            let (o, i) = (Window::of(&node.attrs)?, Window::of(&inner.attrs)?);
            let scaled = |(s, step): (&Dim, &i64)| s.clone() * Dim::from(*step);
            let starts: Vec<Attr> = (i.starts.iter().zip(o.starts.iter().zip(&i.steps).map(scaled)))
                .map(|(a, b)| Attr::from(a.clone() + b))
                .collect();
            let steps: Vec<i64> = o.steps.iter().zip(&i.steps).map(|(a, b)| a * b).collect();
            Some((Attrs::new().with("starts", starts).with("sizes", o.sizes).with("steps", steps), base))
        }
        _ => None,
    }
}

struct Window {
    starts: Vec<Dim>,
    sizes: Vec<Dim>,
    steps: Vec<i64>,
}

impl Window {
    fn of(a: &Attrs) -> Option<Window> {
        Some(Window {
            starts: a.dims("starts").ok()?,
            sizes: a.dims("sizes").ok()?,
            steps: a.ints("steps").ok()?,
        })
    }
}
