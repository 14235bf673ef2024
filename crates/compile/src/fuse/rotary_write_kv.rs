//! What stands before attention over a cache: rotary embedding of queries and keys, with their norms, and both writes.
//!
//! ```text
//! %qn = rms_norm(%q, %wq) {eps=…, plus_one=…}        %kn = rms_norm(%k, %wk) {the same}       or neither
//! %qr = rotary(%qn, %positions, %f) {dims=…, …}      %kr = rotary(%kn, %positions, %f) {the same}
//! %keys' = write_kv(%keys, %kr, %positions, %table) {ring=…}
//! %values' = write_kv(%values, %v, %positions, %table) {the same}
//! attention(%qr, %keys', %values', …)
//! ⇒
//! %keys', %values', %qr = rotary_write_kv(%keys, %values, %q, %k, %v, %positions, %f, %table, %wq, %wk) {…}
//! attention(%qr, %keys', %values', …)
//! ```
//!
//! Turned keys that anything else reads stay apart.

use frit_ir::Attrs;
use frit_ir::graph::{Node, ValueId};

use super::{Arg, Context, Match, NewNode};
use crate::work::{At, Work};

/// A rotary node, and the norm before it if that has a weight and no bias.
struct Turned {
    rotary: At,
    norm: Option<At>,
    x: ValueId,
    weight: ValueId,
}

pub(super) fn find(w: &Work, c: &Context, at: At) -> Option<Match> {
    if !c.target.has_op("rotary_write_kv") {
        return None;
    }
    let attention = w.node(at);
    let [q, keys, values] = attention.inputs.first_chunk()?;
    let [write_k, write_v] = [w.made_by(*keys, "write_kv")?, w.made_by(*values, "write_kv")?];
    let [to_keys, to_values] = [w.node(write_k), w.node(write_v)];
    let new_keys = *to_keys.inputs.get(1)?;
    let (mut of_q, mut of_k) = (turned(w, *q)?, turned(w, new_keys)?);
    if w.only_user(new_keys) != Some(write_k) {
        return None;
    }
    if !alike(w, &of_q, &of_k) {
        (of_q, of_k) = (plain(w, of_q.rotary), plain(w, of_k.rotary));
    }
    let (rotary_q, rotary_k) = (w.node(of_q.rotary), w.node(of_k.rotary));
    let places = |n: &Node| [2, 3].map(|i| n.inputs.get(i).copied().unwrap_or(ValueId::NONE));
    let [positions, table] = places(to_keys);
    let same = write_k != write_v
        && to_keys.inputs[0] != to_values.inputs[0]
        && places(to_values) == [positions, table]
        && to_keys.attrs == to_values.attrs
        && rotary_q.inputs[1..] == rotary_k.inputs[1..]
        && rotary_q.attrs == rotary_k.attrs
        && rotary_q.inputs[1] == positions;
    if !same {
        return None;
    }
    // Everything that the new node reads is there where the last of the old ones stands; so must be nothing that reads it.
    let claims: Vec<At> = ([of_q.rotary, of_k.rotary, write_k, write_v].into_iter())
        .chain(of_q.norm)
        .chain(of_k.norm)
        .collect();
    let place = *claims.iter().max_by_key(|n| w.place(**n))?;
    let results = [*keys, *values, *q];
    let early = |v: &ValueId| w.users(*v).iter().any(|n| w.place(*n) <= w.place(place));
    if results.iter().any(early) {
        return None;
    }
    let inputs = [
        to_keys.inputs[0],
        to_values.inputs[0],
        of_q.x,
        of_k.x,
        to_values.inputs[1],
        positions,
        rotary_q.inputs[2],
        table,
        of_q.weight,
        of_k.weight,
    ];
    let node = NewNode {
        op: "rotary_write_kv",
        attrs: attrs(w, &of_q, &rotary_q.attrs, &to_keys.attrs)?,
        inputs: inputs.map(Arg::Value).to_vec(),
    };
    let replaces = results.into_iter().enumerate().map(|(i, v)| (v, 0, i)).collect();
    Some(Match { claims, place, nodes: vec![node], replaces })
}

/// `v` as made by a rotary node, seen through a norm.
fn turned(w: &Work, v: ValueId) -> Option<Turned> {
    let rotary = w.made_by(v, "rotary")?;
    let mut found = plain(w, rotary);
    if let Some(norm) = w.made_by(found.x, "rms_norm").filter(|_| w.only_user(found.x) == Some(rotary)) {
        let inputs = &w.node(norm).inputs;
        let given = |i: usize| inputs.get(i).copied().filter(|v| !v.is_none());
        if let (Some(weight), None) = (given(1), given(2)) {
            found = Turned { rotary, norm: Some(norm), x: inputs[0], weight };
        }
    }
    Some(found)
}

fn plain(w: &Work, rotary: At) -> Turned {
    Turned { rotary, norm: None, x: w.node(rotary).inputs[0], weight: ValueId::NONE }
}

/// Whether both have such a norm or neither has, with the same attributes.
fn alike(w: &Work, a: &Turned, b: &Turned) -> bool {
    match (a.norm, b.norm) {
        (Some(a), Some(b)) => w.node(a).attrs == w.node(b).attrs,
        (None, None) => true,
        _ => false,
    }
}

/// The attributes of all parts; without a norm its own do not matter.
fn attrs(w: &Work, x: &Turned, rotary: &Attrs, write: &Attrs) -> Option<Attrs> {
    let mut all = rotary.clone().with("ring", write.bool("ring").ok()?);
    let (mut eps, mut plus_one) = (0.0, false);
    if let Some(norm) = x.norm {
        let a = &w.node(norm).attrs;
        (eps, plus_one) = (a.float("eps").ok()?, a.bool("plus_one").unwrap_or(false));
    }
    all.set("eps", eps);
    all.set("plus_one", plus_one);
    Some(all)
}
