//! The whole-graph verifier: what must hold of every graph, checked after each pass in debug builds and once before a
//! schedule is made.

use std::collections::HashSet;

use crate::attr::Attr;
use crate::dim::Sym;
use crate::expr::ExprError;
use crate::graph::{Graph, NodeId, Source, Type};
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
}

/// Checks `g`: unique names; known ops; operands defined before use; types as `infer` gives them again; well-formed
/// expressions; declared symbols; bounded sizes. Versions of a state are values like others: legalization copies one
/// that is read after, or instead of, the write that replaces it.
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
    (0..g.nodes().len()).try_for_each(|i| check_node(g, registry, i))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Cost, Lowered, OpDef};
    use crate::text::parse;
    use crate::{DType, Dim};

    fn op(name: &'static str) -> OpDef {
        OpDef {
            name,
            summary: "",
            infer: |c| Ok(vec![c.ty(0)?.clone()]),
            reference: None,
            expand: None,
            vjp: None,
            cost: |_| Cost { flops: Dim::from(0i64), bytes: Dim::from(0i64) },
            lower: |_| Ok(Lowered::default()),
            view: None,
            updates: &[],
            cases: Vec::new,
        }
    }

    fn registry() -> Registry {
        let mut r = Registry::new();
        r.add(op("read")).unwrap();
        r
    }

    fn check(body: &str) -> Result<(), VerifyError> {
        let text = format!("symbol T 1..=64\ninput %x: f32[4]\n{body}");
        verify(&parse(&text, &registry()).unwrap(), &registry())
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
        let mut r = Registry::new();
        let mut g = crate::Graph::new("g");
        let x = g.input("x", Type::new(DType::F32, [2i64])).unwrap();
        g.push(&registry(), "read", crate::Attrs::new(), &[x], &[]).unwrap();
        r.add(OpDef { infer: |_| Ok(vec![Type::new(DType::F32, [3i64])]), ..op("read") }).unwrap();
        assert!(matches!(verify(&g, &r), Err(VerifyError::Type { .. })));
        assert!(matches!(verify(&g, &Registry::new()), Err(VerifyError::Op { .. })));
    }
}
