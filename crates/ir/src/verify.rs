//! The whole-graph verifier: what must hold of every graph, checked after each pass in debug builds and once before a
//! schedule is made.

use std::collections::HashSet;

use crate::attr::Attr;
use crate::dim::Sym;
use crate::expr::ExprError;
use crate::graph::{Graph, NodeId, Source, Type, ValueId};
use crate::op::{InferCtx, OpError, Registry};

/// The most elements that a value may have at the bounds of the symbols.
pub const MAX_ELEMENTS: i64 = (1 << 48) - 1;

/// Why a graph is not valid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// A name stands for two values or outputs.
    #[error("the name `{0}` is used twice")]
    Name(String),
    /// No such op.
    #[error("`{value}`: there is no op `{op}`")]
    Op {
        /// First result of the node, or the op itself.
        value: String,
        /// The op.
        op: String,
    },
    /// An operand is defined after the node, or not at all.
    #[error("`{node}` reads `{value}`, which is not defined before it")]
    Order {
        /// First result of the node.
        node: String,
        /// The operand.
        value: String,
    },
    /// The op refuses its operands.
    #[error("`{node}`: {source}")]
    Infer {
        /// First result of the node.
        node: String,
        /// Why.
        source: OpError,
    },
    /// The op infers another type than the value has.
    #[error("`{value}` has the type {stated}, the op gives {inferred}")]
    Type {
        /// The value.
        value: String,
        /// Its type.
        stated: String,
        /// What `infer` says.
        inferred: String,
    },
    /// A scalar expression.
    #[error("`{node}`: {source}")]
    Expr {
        /// First result of the node.
        node: String,
        /// Why.
        source: ExprError,
    },
    /// A type uses a symbol that the graph does not declare.
    #[error("`{value}` uses the symbol `{symbol}`, which is not declared")]
    Symbol {
        /// The value.
        value: String,
        /// The symbol.
        symbol: String,
    },
    /// A value may grow beyond [`MAX_ELEMENTS`].
    #[error("`{value}` of type {ty} can have {elements} elements; at most {MAX_ELEMENTS} are possible")]
    Size {
        /// The value.
        value: String,
        /// Its type.
        ty: String,
        /// Elements at the bounds.
        elements: i64,
    },
    /// A state write on something that is no state version.
    #[error("`{node}` overwrites `{value}`, which is no version of a state")]
    NotState {
        /// First result of the node.
        node: String,
        /// The overwritten operand.
        value: String,
    },
    /// A state version is overwritten twice, or the session would keep another version than the newest.
    #[error("state `{state}`: {why}")]
    Versions {
        /// The state.
        state: String,
        /// Which versions are at odds.
        why: String,
    },
    /// A version is read by a node that needs the result of the write replacing it.
    #[error("`{reader}` reads `{version}` but runs after `{write}`, which overwrites it; copy it first")]
    Overwritten {
        /// First result of the reader.
        reader: String,
        /// The version read.
        version: String,
        /// The version that replaces it.
        write: String,
    },
}

/// Checks `g`: unique names; known ops; operands defined before use; types as `infer` gives them again; well-formed
/// expressions; declared symbols; bounded sizes; state versions that form a chain in which every version can be read
/// before it is overwritten.
///
/// # Errors
/// The first thing that does not hold.
pub fn verify(g: &Graph, registry: &Registry) -> Result<(), VerifyError> {
    let mut names = HashSet::new();
    for v in g.values() {
        if !names.insert(v.name.as_ref()) {
            return Err(VerifyError::Name(v.name.to_string()));
        }
        check_size(g, &v.name, &v.ty)?;
    }
    let mut outputs = HashSet::new();
    if let Some((n, _)) = g.outputs().iter().find(|(n, _)| !outputs.insert(n)) {
        return Err(VerifyError::Name(n.clone()));
    }
    for i in 0..g.nodes().len() {
        check_node(g, registry, i)?;
    }
    check_states(g, registry)
}

fn check_size(g: &Graph, name: &str, ty: &Type) -> Result<(), VerifyError> {
    let mut symbols: Vec<Sym> = Vec::new();
    ty.shape.iter().for_each(|d| d.symbols(&mut symbols));
    if let Some(s) = symbols.iter().find(|s| g.symbols.range(s).is_none()) {
        return Err(VerifyError::Symbol { value: name.into(), symbol: s.name().into() });
    }
    let elements = g.symbols.upper(&ty.elements());
    if elements > MAX_ELEMENTS {
        return Err(VerifyError::Size { value: name.into(), ty: ty.to_string(), elements });
    }
    Ok(())
}

/// What messages call the node `i`.
fn label(g: &Graph, i: usize) -> String {
    let n = &g.nodes()[i];
    n.outputs.first().map_or_else(|| n.op.to_string(), |v| g.value(*v).name.to_string())
}

fn check_node(g: &Graph, registry: &Registry, i: usize) -> Result<(), VerifyError> {
    let n = &g.nodes()[i];
    let def =
        registry.get(&n.op).ok_or_else(|| VerifyError::Op { value: label(g, i), op: n.op.to_string() })?;
    for v in n.operands() {
        let known = g.values().get(v.0 as usize);
        let before =
            known.is_some_and(|x| !matches!(x.source, Source::Node(NodeId(p), _) if p as usize >= i));
        if !before {
            let value = known.map_or_else(|| format!("value {}", v.0), |x| x.name.to_string());
            return Err(VerifyError::Order { node: label(g, i), value });
        }
    }
    for (_, a) in n.attrs.iter() {
        check_exprs(a).map_err(|source| VerifyError::Expr { node: label(g, i), source })?;
    }
    let types: Vec<Option<&Type>> = n.inputs.iter().map(|v| (!v.is_none()).then(|| g.ty(*v))).collect();
    let mut ctx = InferCtx::new(&n.attrs, &types, &g.symbols);
    let inferred =
        (def.infer)(&mut ctx).map_err(|source| VerifyError::Infer { node: label(g, i), source })?;
    let stated: Vec<String> = n.outputs.iter().map(|v| g.ty(*v).to_string()).collect();
    if inferred.len() == n.outputs.len() && inferred.iter().zip(&n.outputs).all(|(t, v)| t == g.ty(*v)) {
        return Ok(());
    }
    let inferred: Vec<String> = inferred.iter().map(Type::to_string).collect();
    Err(VerifyError::Type { value: label(g, i), stated: stated.join(", "), inferred: inferred.join(", ") })
}

fn check_exprs(a: &Attr) -> Result<(), ExprError> {
    match a {
        Attr::Expr(e) => e.check(),
        Attr::List(all) => all.iter().try_for_each(check_exprs),
        _ => Ok(()),
    }
}

/// The state version that a value is or looks at through views: the value of the version itself.
fn version_of(g: &Graph, registry: &Registry, versions: &[Option<ValueId>], v: ValueId) -> Option<ValueId> {
    if let Some(x) = versions[v.0 as usize] {
        return Some(x);
    }
    let (n, _) = g.producer(v)?;
    let view = registry.get(&n.op).is_some_and(|d| d.view.is_some());
    n.inputs.first().filter(|_| view).and_then(|x| versions[x.0 as usize])
}

fn check_states(g: &Graph, registry: &Registry) -> Result<(), VerifyError> {
    // For every value: the version that it is or views, and for every version: the state it belongs to and its successor.
    let mut versions: Vec<Option<ValueId>> = vec![None; g.values().len()];
    let mut owner: Vec<Option<ValueId>> = vec![None; g.values().len()];
    let mut next: Vec<Option<ValueId>> = vec![None; g.values().len()];
    for s in g.states() {
        versions[s.first.0 as usize] = Some(s.first);
        owner[s.first.0 as usize] = Some(s.first);
    }
    let name = |v: ValueId| g.value(v).name.to_string();
    for (i, n) in g.nodes().iter().enumerate() {
        for v in &n.outputs {
            versions[v.0 as usize] = version_of(g, registry, &versions, *v);
        }
        let updated = registry.get(&n.op).and_then(|d| d.updates).and_then(|at| n.inputs.get(at));
        let (Some(old), Some(new)) = (updated, n.outputs.first()) else { continue };
        let Some(state) = (!old.is_none()).then(|| owner[old.0 as usize]).flatten() else {
            let value = if old.is_none() { "nothing".into() } else { name(*old) };
            return Err(VerifyError::NotState { node: label(g, i), value });
        };
        if let Some(other) = next[old.0 as usize] {
            let why =
                format!("`{}` is overwritten by both `{}` and `{}`", name(*old), name(other), name(*new));
            return Err(VerifyError::Versions { state: name(state), why });
        }
        next[old.0 as usize] = Some(*new);
        versions[new.0 as usize] = Some(*new);
        owner[new.0 as usize] = Some(state);
        check_readers(g, &versions, *old, i)?;
    }
    for s in g.states() {
        let mut newest = s.first;
        while let Some(n) = next[newest.0 as usize] {
            newest = n;
        }
        if newest != s.last {
            let why = format!(
                "the newest version is `{}`, the session would keep `{}`",
                name(newest),
                name(s.last)
            );
            return Err(VerifyError::Versions { state: name(s.first), why });
        }
    }
    Ok(())
}

/// No node that depends on the write `at` may read the version `old` that it replaces. `versions` is filled up to `at`;
/// views made later are followed here.
fn check_readers(
    g: &Graph,
    versions: &[Option<ValueId>],
    old: ValueId,
    at: usize,
) -> Result<(), VerifyError> {
    let mut after = vec![false; g.values().len()];
    let write = g.nodes()[at].outputs[0];
    after[write.0 as usize] = true;
    for (i, n) in g.nodes().iter().enumerate().skip(at + 1) {
        if !n.operands().any(|v| after[v.0 as usize]) {
            continue;
        }
        if n.operands().any(|v| versions[v.0 as usize] == Some(old)) {
            let name = |v: ValueId| g.value(v).name.to_string();
            return Err(VerifyError::Overwritten {
                reader: label(g, i),
                version: name(old),
                write: name(write),
            });
        }
        n.outputs.iter().for_each(|v| after[v.0 as usize] = true);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Cost, Lowered, OpDef};
    use crate::text::parse;
    use crate::{DType, Dim};

    fn op(name: &'static str, updates: Option<usize>) -> OpDef {
        OpDef {
            name,
            summary: "",
            infer: |c| Ok(vec![c.ty(0)?.clone()]),
            reference: None,
            expand: None,
            vjp: None,
            cost: |_| Cost { flops: Dim::from(0i64), bytes: Dim::from(0i64) },
            lower: |_| Ok(Lowered::default()),
            view: (name == "view").then_some(|_, v| Some(v.clone())),
            updates,
            cases: Vec::new,
        }
    }

    fn registry() -> Registry {
        let mut r = Registry::new();
        r.add(op("write", Some(0)));
        r.add(op("read", None));
        r.add(op("view", None));
        r
    }

    fn check(body: &str) -> Result<(), VerifyError> {
        let text = format!("symbol T 1..=64\nstate %s: f32[4]\ninput %x: f32[4]\n{body}");
        verify(&parse(&text, &registry()).unwrap(), &registry())
    }

    #[test]
    fn versions_are_a_chain() {
        let write = "%s1: f32[4] = write(%s, %x)\n";
        assert_eq!(check(&format!("{write}%r: f32[4] = read(%s)\nupdate %s = %s1")), Ok(()));
        let e = check(&format!("{write}%s2: f32[4] = write(%s, %x)\nupdate %s = %s2"));
        assert!(matches!(e, Err(VerifyError::Versions { .. })), "{e:?}");
        let e = check(&format!("{write}%s2: f32[4] = write(%s1, %x)\nupdate %s = %s1"));
        assert!(matches!(e, Err(VerifyError::Versions { .. })), "{e:?}");
        let e = check(write);
        assert!(matches!(e, Err(VerifyError::Versions { .. })), "{e:?}");
        let e = check("%y: f32[4] = write(%x, %x)");
        assert!(matches!(e, Err(VerifyError::NotState { .. })), "{e:?}");
    }

    #[test]
    fn an_overwritten_version_cannot_be_read_after_the_write() {
        let text = "%v: f32[4] = view(%s)\n%s1: f32[4] = write(%s, %x)\n%a: f32[4] = read(%s1)\n%b: f32[4] = read(%a, %v)\n";
        let e = check(&format!("{text}update %s = %s1"));
        assert!(matches!(e, Err(VerifyError::Overwritten { .. })), "{e:?}");
    }

    #[test]
    fn sizes_and_symbols_are_checked() {
        let e = check("input %big: f32[16777216, 16777216]");
        assert!(matches!(e, Err(VerifyError::Size { .. })), "{e:?}");
        assert_eq!(check("input %big: f32[16777216, 262144*T-1]"), Ok(()));
        assert!(check("input %big: f32[16777216, 262144*T+1]").is_err());
        let e = check("input %u: f32[U]");
        assert!(matches!(e, Err(VerifyError::Symbol { .. })), "{e:?}");
    }

    #[test]
    fn types_must_be_what_the_op_gives() {
        let mut r = registry();
        let mut g = crate::Graph::new("g");
        let x = g.input("x", Type::new(DType::F32, [2i64])).unwrap();
        g.push(&r, "read", crate::Attrs::new(), &[x], &[]).unwrap();
        r.add(OpDef { infer: |_| Ok(vec![Type::new(DType::F32, [3i64])]), ..op("read", None) });
        assert!(matches!(verify(&g, &r), Err(VerifyError::Type { .. })));
        assert!(matches!(verify(&g, &Registry::new()), Err(VerifyError::Op { .. })));
    }
}
