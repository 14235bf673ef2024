//! Common subexpressions: of equal nodes over equal operands only the first stays, of equal constants too.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use frit_ir::attr::Attr;
use frit_ir::{Tensor, ValueId};

use crate::work::{At, Work};

pub(super) fn merge_equal(w: &mut Work) -> bool {
    let mut changed = merge_constants(w);
    let mut seen: HashMap<u64, Vec<At>> = HashMap::new();
    for n in w.nodes() {
        let node = w.node(n);
        // Two writes are never one: each makes its own version.
        if w.registry.get(&node.op).is_none_or(|d| !d.updates.is_empty()) || !w.is_live(n) {
            continue;
        }
        let mut h = DefaultHasher::new();
        node.op.hash(&mut h);
        node.inputs.hash(&mut h);
        for (name, a) in node.attrs.iter() {
            name.hash(&mut h);
            hash_attr(a, &mut h);
        }
        let bucket = seen.entry(h.finish()).or_default();
        let equal = |m: &At| {
            let other = w.node(*m);
            w.is_live(*m) && other.op == node.op && other.inputs == node.inputs && other.attrs == node.attrs
        };
        match bucket.iter().copied().find(|m| equal(m)) {
            None => bucket.push(n),
            Some(m) => {
                for (old, new) in w.node(n).outputs.clone().into_iter().zip(w.node(m).outputs.clone()) {
                    w.replace(old, new);
                }
                changed = true;
            }
        }
    }
    changed
}

fn merge_constants(w: &mut Work) -> bool {
    let mut seen: HashMap<(u64, usize), Vec<ValueId>> = HashMap::new();
    let mut changed = false;
    for v in w.constants() {
        let Some(t) = w.constant(v) else { continue };
        let mut h = DefaultHasher::new();
        t.bytes().hash(&mut h);
        let same = |x: &Tensor| x == t;
        let bucket = seen.entry((h.finish(), t.bytes().len())).or_default();
        match bucket.iter().copied().find(|x| w.constant(*x).is_some_and(same)) {
            None => bucket.push(v),
            Some(first) => {
                w.replace(v, first);
                changed = true;
            }
        }
    }
    changed
}

fn hash_attr(a: &Attr, h: &mut impl Hasher) {
    std::mem::discriminant(a).hash(h);
    match a {
        Attr::Int(v) => v.hash(h),
        // 0 and −0 are equal.
        Attr::Float(v) => (v + 0.0).to_bits().hash(h),
        Attr::Bool(v) => v.hash(h),
        Attr::Str(v) => v.hash(h),
        Attr::DType(v) => v.hash(h),
        Attr::Dim(v) => v.hash(h),
        Attr::Expr(v) => v.hash(h),
        Attr::List(v) => v.iter().for_each(|a| hash_attr(a, h)),
    }
}
