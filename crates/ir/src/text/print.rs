//! Graphs to text.

use std::fmt::{self, Write};

use super::is_name_char;
use crate::graph::{Graph, Node, Source, ValueId};
use crate::symbols::{DimGuard, Relation, Symbols};
use crate::tensor::Tensor;

/// The most elements of a constant that are printed as numbers; larger ones print as bytes in hex.
const MAX_LISTED: usize = 256;

/// A name as it stands in the text, quoted where it must be.
pub(super) struct Name<'a>(pub &'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.is_empty() && self.0.chars().all(is_name_char) {
            f.write_str(self.0)
        } else {
            write!(f, "{:?}", self.0)
        }
    }
}

/// The text of a graph, which [`super::parse`] reads back as an equal graph.
pub fn print(g: &Graph) -> String {
    let mut s = String::with_capacity(128 * (g.nodes().len() + 8));
    // Writing to a string cannot fail.
    let _ = write_graph(&mut s, g);
    s
}

fn write_graph(s: &mut String, g: &Graph) -> fmt::Result {
    writeln!(s, "graph {:?}", g.name)?;
    write_symbols(s, &g.symbols, &g.guards)?;
    let mut printed = 0;
    for v in g.values() {
        let keyword = match &v.source {
            Source::Input => "input",
            Source::Param => "param",
            Source::State => "state",
            Source::Const(_) => "const",
            Source::Node(n, _) => {
                for node in &g.nodes()[printed..(n.0 as usize + 1).max(printed)] {
                    write_node(s, g, node)?;
                }
                printed = printed.max(n.0 as usize + 1);
                continue;
            }
        };
        write!(s, "{keyword} %{}: {}", Name(&v.name), v.ty)?;
        if let Source::Const(t) = &v.source {
            s.push_str(" = ");
            write_tensor(s, t)?;
        }
        s.push('\n');
    }
    for node in &g.nodes()[printed..] {
        write_node(s, g, node)?;
    }
    for (name, v) in g.outputs() {
        writeln!(s, "output {name:?} = %{}", Name(&g.value(*v).name))?;
    }
    for state in g.states().iter().filter(|x| x.first != x.last) {
        let name = |v: ValueId| Name(&g.value(v).name);
        writeln!(s, "update %{} = %{}", name(state.first), name(state.last))?;
    }
    Ok(())
}

pub(super) fn write_symbols(s: &mut String, symbols: &Symbols, guards: &[DimGuard]) -> fmt::Result {
    for (sym, r) in symbols.iter() {
        writeln!(s, "symbol {} {}..={}", sym.name(), r.min, r.max)?;
    }
    for (d, max) in symbols.bounds() {
        writeln!(s, "bound {d} <= {max}")?;
    }
    for g in guards {
        let sign = match g.relation {
            Relation::Equal => "==",
            Relation::AtMost => "<=",
        };
        writeln!(s, "guard {} {sign} {} {:?}", g.left, g.right, g.why)?;
    }
    Ok(())
}

fn write_node(s: &mut String, g: &Graph, n: &Node) -> fmt::Result {
    for (i, o) in n.outputs.iter().enumerate() {
        let v = g.value(*o);
        write!(s, "{}%{}: {}", if i > 0 { ", " } else { "" }, Name(&v.name), v.ty)?;
    }
    write!(s, " = {}(", Name(&n.op))?;
    for (i, v) in n.inputs.iter().enumerate() {
        s.push_str(if i > 0 { ", " } else { "" });
        match v.is_none() {
            true => s.push('_'),
            false => write!(s, "%{}", Name(&g.value(*v).name))?,
        }
    }
    s.push(')');
    if !n.attrs.is_empty() {
        s.push_str(" {");
        for (i, (name, a)) in n.attrs.iter().enumerate() {
            write!(s, "{}{}={a}", if i > 0 { ", " } else { "" }, Name(name))?;
        }
        s.push('}');
    }
    s.push('\n');
    Ok(())
}

/// Numbers where they give the same bytes back, else hex.
pub(super) fn write_tensor(s: &mut String, t: &Tensor) -> fmt::Result {
    if let Some(values) = listed(t) {
        s.push('[');
        for (i, v) in values.iter().enumerate() {
            s.push_str(if i > 0 { ", " } else { "" });
            match t.dtype() {
                crate::DType::F64 => write!(s, "{v:?}")?,
                d if d.is_float() => write!(s, "{:?}", *v as f32)?,
                _ => write!(s, "{v}")?,
            }
        }
        s.push(']');
        return Ok(());
    }
    s.push_str("0x");
    t.bytes().iter().try_for_each(|b| write!(s, "{b:02x}"))
}

fn listed(t: &Tensor) -> Option<Vec<f64>> {
    if t.len() > MAX_LISTED || t.dtype().is_block() {
        return None;
    }
    let values = t.to_f64().ok()?;
    if values.iter().any(|v| v.is_nan() && v.to_bits() != f64::NAN.to_bits()) {
        return None;
    }
    let again = Tensor::from_f64(t.dtype(), t.shape(), &values).ok()?;
    (again == *t).then_some(values)
}
