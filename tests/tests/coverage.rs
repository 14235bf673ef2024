//! What the op cases reach of the CPU target: every kernel row, every operand of it in each type and layout class that the row
//! claims, optional operands given and left out, every guard from both sides. Nothing runs here: that the results are right is
//! for `conformance`, which runs the same cases.
//!
//! Extents of cases are constants, so that every guard is decided when the case is compiled and a step has one candidate.

use std::collections::{BTreeMap, BTreeSet};

use frit_compile::CompileOptions;
use frit_ir::op::{NodeCtx, ParamValue, Registry};
use frit_ir::schedule::{Candidate, KernelStep, Operand, Region, Schedule, SizeGuard, Step};
use frit_ir::target::{Cmp, Count, Guard, KernelRow, LayoutClass, OperandSpec, Target};
use frit_ir::{DType, Graph};
use frit_ops::case_graph;

/// What the cases reached of one place of a row's operand list.
#[derive(Default)]
struct Place {
    dtypes: Vec<DType>,
    classes: BTreeSet<LayoutClass>,
    absent: bool,
}

/// What the cases reached of one row.
#[derive(Default)]
struct Reached {
    steps: usize,
    inputs: BTreeMap<usize, Place>,
    outputs: BTreeMap<usize, Place>,
    /// For each guard: the values of its parameter in nodes whose other guards and operands fit.
    values: BTreeMap<usize, BTreeSet<i64>>,
}

/// The place in `specs` of each of `n` operands, where `count` gives the value of a parameter; `None` if they are too few.
fn places(specs: &[OperandSpec], n: usize, count: &dyn Fn(&str) -> Option<i64>) -> Option<Vec<usize>> {
    let mut out = Vec::new();
    for (place, spec) in specs.iter().enumerate() {
        let many = match spec.count {
            Count::One | Count::Optional => 1,
            Count::Rest => n.checked_sub(out.len())?,
            Count::Param(name) => count(name)? as usize,
        };
        out.extend(std::iter::repeat_n(place, many));
    }
    Some(out)
}

fn constant(v: &ParamValue) -> Option<i64> {
    match v {
        ParamValue::Dim(d) => d.as_const(),
        ParamValue::Float(_) => None,
    }
}

/// The strictest class that the operand belongs to; `None` if it has no elements.
fn class(o: &Operand) -> Option<LayoutClass> {
    let number = |d: &frit_ir::Dim| d.as_const().expect("cases have constant extents");
    let axes: Vec<(i64, i64)> = o.dims.iter().map(number).zip(o.strides.iter().map(number)).collect();
    if axes.iter().any(|a| a.0 == 0) {
        return None;
    }
    let mut expected = 1;
    let dense = axes.iter().rev().filter(|a| a.0 != 1).all(|(d, s)| {
        let fits = *s == expected;
        expected *= d;
        fits
    });
    Some(match axes.last() {
        _ if dense => LayoutClass::Dense,
        Some((d, s)) if *s == 1 || *d == 1 => LayoutClass::Rows,
        _ => LayoutClass::Strided,
    })
}

fn holds(g: &Guard, value: i64) -> bool {
    SizeGuard { dim: 0i64.into(), cmp: g.cmp, value: g.value }.holds(value)
}

/// The candidate that runs.
fn picked(step: &KernelStep) -> &Candidate {
    let runs = |c: &&Candidate| c.guards.iter().all(|g| g.dim.as_const().is_some_and(|v| g.holds(v)));
    step.candidates.iter().find(runs).expect("a candidate for the sizes of the case")
}

impl Reached {
    fn step(&mut self, s: &Schedule, row: &KernelRow, step: &KernelStep) {
        self.steps += 1;
        let params = &picked(step).params;
        let count = |name: &str| {
            let at = row.params.iter().position(|p| p.name == name)?;
            constant(&params[at])
        };
        let (inputs, outputs) = step.operands.split_at(step.inputs);
        for (list, specs, seen) in
            [(inputs, row.inputs, &mut self.inputs), (outputs, row.outputs, &mut self.outputs)]
        {
            let places = places(specs, list.len(), &count).expect("a step as its row says");
            for (o, place) in list.iter().zip(places) {
                let seen = seen.entry(place).or_default();
                let Some(o) = o else {
                    seen.absent = true;
                    continue;
                };
                if !seen.dtypes.contains(&o.dtype) {
                    seen.dtypes.push(o.dtype);
                }
                let packed = o.region == Region::Weights && s.weights[o.buffer as usize].packing.is_some();
                seen.classes.extend(class(o).filter(|_| !packed));
            }
        }
    }

    /// Notes the guards of `row`, to which a node of its op was offered.
    fn node(&mut self, row: &KernelRow, values: &[i64]) {
        let fails: Vec<usize> = (0..values.len()).filter(|i| !holds(&row.guards[*i], values[*i])).collect();
        for (i, v) in values.iter().enumerate() {
            if fails.iter().all(|f| *f == i) {
                self.values.entry(i).or_default().insert(*v);
            }
        }
    }

    /// What is missing, a line each.
    fn missing(&self, row: &KernelRow) -> Vec<String> {
        if self.steps == 0 {
            return vec!["is reached by no case".into()];
        }
        let mut out = Vec::new();
        let none = Place::default();
        for (what, specs, all) in
            [("input", row.inputs, &self.inputs), ("result", row.outputs, &self.outputs)]
        {
            for (i, spec) in specs.iter().enumerate() {
                let seen = all.get(&i).unwrap_or(&none);
                let name = format!("{what} `{}` is never", spec.name);
                out.extend(
                    spec.dtypes.iter().filter(|d| !seen.dtypes.contains(d)).map(|d| format!("{name} {d}")),
                );
                let claimed = [LayoutClass::Dense, LayoutClass::Rows, LayoutClass::Strided];
                let claimed = claimed.iter().filter(|c| spec.packing.is_none() && **c <= spec.layout);
                out.extend(claimed.filter(|c| !seen.classes.contains(c)).map(|c| format!("{name} {c:?}")));
                if spec.count == Count::Optional && !seen.absent {
                    out.push(format!("{name} left out"));
                }
            }
        }
        for (i, g) in row.guards.iter().enumerate() {
            let seen = self.values.get(&i).cloned().unwrap_or_default();
            let wanted = match g.cmp {
                Cmp::Le => vec![g.value, g.value + 1],
                Cmp::Ge => vec![g.value, g.value - 1],
                Cmp::Eq | Cmp::Ne => vec![g.value],
                Cmp::MultipleOf => vec![],
            };
            let name = format!("guard `{} {:?} {}`", g.param, g.cmp, g.value);
            let at = wanted.iter().filter(|v| !seen.contains(v));
            out.extend(at.map(|v| format!("{name} is never decided at {v}")));
            for (side, word) in [(true, "true"), (false, "false")] {
                if !seen.iter().any(|v| holds(g, *v) == side) {
                    out.push(format!("{name} is never {word}"));
                }
            }
        }
        out
    }
}

/// For each row of the node's op that takes its operands: the row's number and the values that its guards look at.
fn offers(
    target: &Target,
    registry: &Registry,
    graph: &Graph,
    node: &frit_ir::graph::Node,
) -> Vec<(usize, Vec<i64>)> {
    let def = registry.get(&node.op).expect("an op of the registry");
    let inputs: Vec<_> = node.inputs.iter().map(|v| (!v.is_none()).then(|| graph.ty(*v))).collect();
    let outputs: Vec<_> = node.outputs.iter().map(|v| graph.ty(*v).clone()).collect();
    let Ok(lowered) = (def.lower)(&NodeCtx { attrs: &node.attrs, inputs: &inputs, outputs: &outputs }) else {
        return vec![];
    };
    let value = |name: &str| lowered.params.iter().find(|p| p.0 == name).and_then(|p| constant(&p.1));
    let takes = |row: &KernelRow| {
        let Some(places) = places(row.inputs, inputs.len(), &value) else { return false };
        node.inputs.iter().zip(&inputs).zip(places).all(|((v, ty), place)| {
            let spec = &row.inputs[place];
            ty.is_none_or(|t| {
                let param = matches!(graph.value(*v).source, frit_ir::graph::Source::Param);
                spec.dtypes.contains(&t.dtype) && (param || spec.packing.is_none())
            })
        })
    };
    let rows = target.rows.iter().enumerate().filter(|(_, r)| r.op == &*node.op && takes(r));
    rows.filter_map(|(i, r)| Some((i, r.guards.iter().map(|g| value(g.param)).collect::<Option<_>>()?)))
        .collect()
}

#[test]
fn cases_reach_all_that_the_kernel_rows_claim() {
    let registry = frit_ops::registry();
    let target = frit_cpu::target::target(2);
    let mut options = CompileOptions::default();
    options.fuse = false;
    let mut reached: Vec<Reached> = target.rows.iter().map(|_| Reached::default()).collect();
    for op in registry.iter() {
        for c in (op.cases)() {
            let g = case_graph::build(&registry, op.name, &c)
                .unwrap_or_else(|e| panic!("{}/{}: {e}", op.name, c.name));
            for node in g.graph.nodes() {
                for (row, values) in offers(&target, &registry, &g.graph, node) {
                    reached[row].node(&target.rows[row], &values);
                }
            }
            let compiled = frit_compile::compile(&g.graph, &registry, &target, &options)
                .unwrap_or_else(|e| panic!("{}/{}: {e}", op.name, c.name));
            for step in &compiled.schedule.steps {
                let Step::Kernel(step) = step else { continue };
                let row = picked(step).row;
                reached[row.0 as usize].step(&compiled.schedule, target.row(row), step);
            }
        }
    }
    let lines = |(row, seen): (&KernelRow, &Reached)| {
        let name = row.name;
        seen.missing(row).into_iter().map(move |what| format!("`{name}`: {what}"))
    };
    let list: Vec<String> = target.rows.iter().zip(&reached).flat_map(lines).collect();
    assert!(
        list.is_empty(),
        "{} things that rows claim are reached by no case:\n{}",
        list.len(),
        list.join("\n")
    );
}
