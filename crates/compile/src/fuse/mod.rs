//! Fusion: one file a pattern. A pattern looks at one node and says, as data, which nodes it claims and what stands for
//! them; the driver applies matches level by level. Patterns of one level never claim the same node (a test holds them to
//! it); where two patterns could, their levels say which goes first:
//!
//! 1. whole ops from their parts: norms, rotary, attention;
//! 2. `linear` from a matmul with a weight, and what stands between them and attention over a cache;
//! 3. a residual add with the norm that reads it, before the add can become an epilogue;
//! 4. chains of expressions, so that a gate's activation and product are one expression;
//! 5. gated pairs of linears;
//! 6. epilogues of linears;
//! 7. linears over one operand merged into one step;
//! 8. expressions over the same operands merged into one.

mod absorb;
mod attention;
mod linear;
mod merge;
mod norm;
mod regions;
mod residual;
mod rotary;
mod rotary_write_kv;
mod tree;

use std::collections::HashSet;

use frit_ir::graph::{GraphError, ValueId};
use frit_ir::target::Target;
use frit_ir::{Attrs, Graph, Registry};

use crate::Activations;
use crate::work::{At, Work};

/// What patterns may ask beside the graph.
pub(crate) struct Context<'a> {
    pub target: &'a Target,
    pub activations: Activations,
}

/// An operand of a node that a match adds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Arg {
    /// A value of the graph, or none.
    Value(ValueId),
    /// Result `.1` of added node `.0`.
    New(usize, usize),
}

/// A node that a match adds.
pub(crate) struct NewNode {
    pub op: &'static str,
    pub attrs: Attrs,
    pub inputs: Vec<Arg>,
}

/// What a pattern found.
pub(crate) struct Match {
    /// The nodes that the pattern takes for itself.
    pub claims: Vec<At>,
    /// The node in whose place the new ones stand.
    pub place: At,
    /// The new nodes, operands first.
    pub nodes: Vec<NewNode>,
    /// Old values and the results that stand for them: (value, added node, result).
    pub replaces: Vec<(ValueId, usize, usize)>,
}

type Find = fn(&Work, &Context, At) -> Option<Match>;

/// A pattern: its name, the op that a match starts from, and the search.
struct Pattern {
    name: &'static str,
    op: &'static str,
    find: Find,
}

const fn pattern(name: &'static str, op: &'static str, find: Find) -> Pattern {
    Pattern { name, op, find }
}

/// Patterns by level, the first level first.
const LEVELS: &[&[Pattern]] = &[
    &[
        pattern("norm", "reduce", norm::find),
        pattern("rotary", "expr", rotary::find),
        pattern("attention", "softmax", attention::find),
    ],
    &[
        pattern("linear", "matmul", linear::find),
        pattern("cached rotary", "attention", rotary_write_kv::find),
    ],
    &[pattern("residual norm", "expr", residual::find)],
    &[pattern("expression chain", "expr", regions::chain)],
    &[pattern("gated linear", "expr", absorb::gated)],
    &[pattern("epilogue", "expr", absorb::epilogue)],
    &[pattern("merged linear", "linear", merge::find)],
    &[pattern("expression region", "expr", regions::siblings)],
];

/// A node in a report: the names of its results and its op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeName {
    /// Names of the results. A result between two new nodes has none of its own yet: it stands as its op.
    pub names: Vec<String>,
    /// The op.
    pub op: String,
}

/// One pattern formed at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Formed {
    /// The pattern.
    pub pattern: &'static str,
    /// The nodes that it claimed. Such a node may have been formed before.
    pub before: Vec<NodeName>,
    /// The nodes that stand for them, named as the values that they replace.
    pub after: Vec<NodeName>,
}

/// What fusion did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FuseReport {
    /// How often each pattern was formed, in the order of the patterns.
    pub formed: Vec<(&'static str, usize)>,
    /// Every place where a pattern was formed, in the order in which it happened.
    pub sites: Vec<Formed>,
    /// What matched and was left alone: (pattern, value, why).
    pub refused: Vec<(&'static str, String, String)>,
}

/// Forms every pattern in `g` that the target supports.
pub(crate) fn fuse(g: &Graph, registry: &Registry, c: &Context) -> Result<(Graph, FuseReport), GraphError> {
    let mut w = Work::new(g, registry);
    let mut report = FuseReport::default();
    for level in LEVELS {
        for p in level.iter() {
            report.formed.push((p.name, 0));
        }
        while round(&mut w, c, level, &mut report) {}
    }
    report.formed.retain(|(_, n)| *n > 0);
    Ok((w.finish()?, report))
}

/// Looks at every node once; says whether something was formed.
fn round(w: &mut Work, c: &Context, level: &[Pattern], report: &mut FuseReport) -> bool {
    let mut formed = false;
    for at in w.nodes() {
        for p in level {
            if !w.is_live(at) || *w.node(at).op != *p.op {
                continue;
            }
            let Some(m) = (p.find)(w, c, at) else { continue };
            let value = w.node(at).outputs.first().map_or_else(String::new, |v| w.value(*v).name.to_string());
            let mut before: Vec<At> = m.claims.clone();
            before.sort_by_key(|n| w.place(*n));
            let before = before.into_iter().map(|n| node_name(w, n)).collect();
            match apply(w, m) {
                Ok(made) => {
                    formed = true;
                    let after = made.into_iter().map(|n| node_name(w, n)).collect();
                    report.sites.push(Formed { pattern: p.name, before, after });
                    report.formed.iter_mut().filter(|(n, _)| *n == p.name).for_each(|(_, k)| *k += 1);
                }
                Err(why) => {
                    let entry = (p.name, value, why);
                    if !report.refused.contains(&entry) {
                        report.refused.push(entry);
                    }
                }
            }
        }
    }
    formed
}

fn node_name(w: &Work, at: At) -> NodeName {
    let n = w.node(at);
    NodeName { names: n.outputs.iter().map(|v| w.value(*v).name.to_string()).collect(), op: n.op.to_string() }
}

/// Adds the nodes and replaces the values, unless an op refuses its operands or a type would change. Gives the nodes added.
fn apply(w: &mut Work, m: Match) -> Result<Vec<At>, String> {
    let mut made: Vec<Vec<ValueId>> = Vec::new();
    for n in m.nodes {
        let inputs: Vec<ValueId> = (n.inputs.iter())
            .map(|a| match a {
                Arg::Value(v) => *v,
                Arg::New(n, i) => made[*n][*i],
            })
            .collect();
        match w.add(m.place, n.op, n.attrs, &inputs) {
            Ok(v) => made.push(v.to_vec()),
            Err(e) => {
                discard(w, &made);
                return Err(e.to_string());
            }
        }
    }
    for (old, n, i) in &m.replaces {
        let (was, is) = (w.ty(*old), w.ty(made[*n][*i]));
        if was != is {
            let why = format!("the fused result has the type {is}, not {was}");
            discard(w, &made);
            return Err(why);
        }
    }
    for (old, n, i) in m.replaces {
        w.replace(old, made[n][i]);
    }
    Ok(made.iter().filter_map(|v| w.producer(*v.first()?)).map(|(at, _)| at).collect())
}

/// Removes added nodes that nothing reads.
fn discard(w: &mut Work, made: &[Vec<ValueId>]) {
    for v in made.iter().rev().filter_map(|v| v.first()) {
        if let Some((at, _)) = w.producer(*v) {
            w.sweep(at);
        }
    }
}

/// The pairs of patterns of one level that claim one node of `g`: (value of that node, pattern, pattern). Levels before are
/// formed first. It must be empty for every graph.
pub fn ambiguities(
    g: &Graph,
    registry: &Registry,
    target: &Target,
    activations: Activations,
) -> Vec<(String, &'static str, &'static str)> {
    let c = Context { target, activations };
    let mut w = Work::new(g, registry);
    let mut out = Vec::new();
    for level in LEVELS {
        let mut claims: Vec<(&'static str, HashSet<At>)> = Vec::new();
        for p in level.iter() {
            let found = w.nodes().into_iter().filter(|n| *w.node(*n).op == *p.op);
            let claimed = found.filter_map(|n| (p.find)(&w, &c, n)).flat_map(|m| m.claims).collect();
            claims.push((p.name, claimed));
        }
        for (i, (a, of_a)) in claims.iter().enumerate() {
            for (b, of_b) in &claims[..i] {
                for n in of_a.intersection(of_b) {
                    let name = w.node(*n).outputs.first().map_or("", |v| &*w.value(*v).name);
                    out.push((name.into(), *b, *a));
                }
            }
        }
        while round(&mut w, &c, level, &mut FuseReport::default()) {}
    }
    out
}
