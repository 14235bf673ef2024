//! Dimension simplification: symbols with one possible value, minima, maxima and quotients that the ranges decide.

use frit_ir::dim::Atom;
use frit_ir::graph::{GraphError, Source, Type, ValueId};
use frit_ir::symbols::{DimGuard, Proof, Relation, Symbols};
use frit_ir::{Attr, Attrs, Dim, Graph, Registry};

/// `d` with every part that `symbols` decides replaced by its value.
pub fn simplify_dim(d: &Dim, symbols: &Symbols) -> Dim {
    if !may_simplify(d, symbols) {
        return d.clone();
    }
    let mut sum = Dim::from(0i64);
    for (m, c) in d.terms() {
        sum = sum + m.iter().map(|a| simplify_atom(a, symbols)).fold(Dim::from(*c), |p, a| p * a);
    }
    sum
}

fn may_simplify(d: &Dim, symbols: &Symbols) -> bool {
    d.terms().iter().flat_map(|(m, _)| m).any(|a| match a {
        Atom::Sym(s) => symbols.range(s).is_some_and(|r| r.min == r.max),
        _ => true,
    })
}

fn simplify_atom(a: &Atom, symbols: &Symbols) -> Dim {
    let part = |d: &Dim| simplify_dim(d, symbols);
    let d = match a {
        Atom::Sym(s) => Dim::from(s),
        Atom::FloorDiv(p) => part(&p.0).floor_div(&part(&p.1)),
        Atom::CeilDiv(p) => part(&p.0).ceil_div(&part(&p.1)),
        Atom::Min(p) => match sorted(&part(&p.0), &part(&p.1), symbols) {
            Ok((smaller, _)) => smaller,
            Err((a, b)) => a.lesser(&b),
        },
        Atom::Max(p) => match sorted(&part(&p.0), &part(&p.1), symbols) {
            Ok((_, larger)) => larger,
            Err((a, b)) => a.greater(&b),
        },
    };
    match symbols.interval(&d) {
        (lo, hi) if lo == hi => Dim::from(lo),
        _ => d,
    }
}

/// The two as (smaller, larger), if the ranges decide; else as they are.
fn sorted(a: &Dim, b: &Dim, symbols: &Symbols) -> Result<(Dim, Dim), (Dim, Dim)> {
    let (x, y) = (a.clone(), b.clone());
    if symbols.at_most(a, b) == Proof::Yes {
        return Ok((x, y));
    }
    if symbols.at_most(b, a) == Proof::Yes { Ok((y, x)) } else { Err((x, y)) }
}

/// Simplifies every dimension in types, attributes and guards; guards that always hold go.
pub(crate) fn simplify_dims(g: &Graph, registry: &Registry) -> Result<Graph, GraphError> {
    let decided = |x: &DimGuard| {
        let proof = match x.relation {
            Relation::Equal => g.symbols.equal(&x.left, &x.right),
            Relation::AtMost => g.symbols.at_most(&x.left, &x.right),
        };
        proof == Proof::Yes
    };
    let in_types = g.values().iter().flat_map(|v| &v.ty.shape).any(|d| may_simplify(d, &g.symbols));
    let in_attrs = g.nodes().iter().flat_map(|n| n.attrs.iter()).any(|(_, a)| attr_may(a, &g.symbols));
    if !in_types && !in_attrs && !g.guards.iter().any(decided) {
        return Ok(g.clone());
    }
    let mut out = Graph::new(&g.name);
    out.symbols = g.symbols.clone();
    let simple = |d: &Dim| simplify_dim(d, &g.symbols);
    out.guards = (g.guards.iter())
        .map(|x| DimGuard { left: simple(&x.left), right: simple(&x.right), ..x.clone() })
        .filter(|x| !decided(x))
        .collect();
    let mut map: Vec<ValueId> = vec![ValueId::NONE; g.values().len()];
    for (i, v) in g.values().iter().enumerate() {
        let ty = Type { dtype: v.ty.dtype, shape: v.ty.shape.iter().map(simple).collect() };
        map[i] = match &v.source {
            Source::Input => out.input(&v.name, ty)?,
            Source::Param => out.param(&v.name, ty)?,
            Source::State => out.state(&v.name, ty)?,
            Source::Const(t) => out.constant(&v.name, t.clone())?,
            Source::Node(..) => continue,
        };
    }
    for n in g.nodes() {
        let attrs = n.attrs.iter().fold(Attrs::new(), |all, (k, a)| all.with(k, simple_attr(a, &g.symbols)));
        let inputs: Vec<ValueId> =
            n.inputs.iter().map(|v| if v.is_none() { *v } else { map[v.0 as usize] }).collect();
        let names: Vec<&str> = n.outputs.iter().map(|v| &*g.value(*v).name).collect();
        let made = out.push(registry, &n.op, attrs, &inputs, &names)?;
        for (old, new) in n.outputs.iter().zip(made) {
            map[old.0 as usize] = new;
        }
    }
    for (name, v) in g.outputs() {
        out.output(name, map[v.0 as usize])?;
    }
    for s in g.states() {
        out.update(map[s.first.0 as usize], map[s.last.0 as usize])?;
    }
    Ok(out)
}

fn attr_may(a: &Attr, symbols: &Symbols) -> bool {
    match a {
        Attr::Dim(d) => may_simplify(d, symbols),
        Attr::List(all) => all.iter().any(|a| attr_may(a, symbols)),
        _ => false,
    }
}

fn simple_attr(a: &Attr, symbols: &Symbols) -> Attr {
    match a {
        Attr::Dim(d) => Attr::from(simplify_dim(d, symbols)),
        Attr::List(all) => Attr::List(all.iter().map(|a| simple_attr(a, symbols)).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frit_ir::text::parse_dim;

    #[test]
    fn ranges_decide() {
        let mut s = Symbols::default();
        s.declare("T", 1, 512).unwrap();
        s.declare("B", 1, 1).unwrap();
        let cases = [
            ("B*T+B", "T+1"),
            ("min(T, 512)", "T"),
            ("max(T, 512)", "512"),
            ("min(T, 100)", "min(100, T)"),
            ("max(B, T)", "T"),
            ("ceildiv(T, 512)*3", "3"),
            ("ceildiv(min(T, 600), 2)", "ceildiv(T, 2)"),
            ("floordiv(T, 2)", "floordiv(T, 2)"),
        ];
        for (from, to) in cases {
            assert_eq!(simplify_dim(&parse_dim(from).unwrap(), &s).to_string(), to, "{from}");
        }
    }
}
