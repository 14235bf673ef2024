//! The steps of a schedule as data: kernels, operands by name, costs as formulas and at two sizes, the nodes they came from.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use frit::Dim;
use frit::schedule::{
    Candidate, Formed, KernelStep, Operand, ParamValue, Placed, Placement, Region, Report, Schedule, Step,
    Target, WeightSource,
};
use serde::Serialize;

use super::document::Named;

/// Values of the symbols that costs are shown for.
#[derive(Serialize)]
pub struct Size {
    name: &'static str,
    values: BTreeMap<String, i64>,
}

/// One step.
#[derive(Serialize)]
pub struct StepDoc {
    index: usize,
    name: String,
    op: String,
    rows: Vec<Row>,
    inputs: Vec<Option<OperandDoc>>,
    outputs: Vec<Option<OperandDoc>>,
    exprs: Vec<String>,
    flops: Cost,
    bytes: Cost,
    copies: Vec<String>,
    expanded_from: Option<String>,
    fused_from: Vec<Named>,
}

/// A kernel that may run, and when it does.
#[derive(Serialize)]
struct Row {
    row: String,
    when: String,
    params: BTreeMap<String, String>,
    scratch: String,
}

#[derive(Serialize)]
struct OperandDoc {
    region: &'static str,
    buffer: u32,
    name: String,
    offset: String,
    dtype: String,
    shape: Vec<String>,
    strides: Vec<String>,
    packing: Option<&'static str>,
}

/// A cost as a formula over the symbols, and its value at each of the sizes (none if it does not fit 64 bits).
#[derive(Serialize)]
struct Cost {
    formula: String,
    at: Vec<Option<i64>>,
}

/// The smallest and the largest sizes of a run. Symbols that size a state are fixed for a session: they stand at their upper
/// bounds in both.
pub fn sizes(s: &Schedule) -> Vec<Size> {
    let mut fixed = Vec::new();
    s.states.iter().flat_map(|p| &p.ty.shape).for_each(|d| d.symbols(&mut fixed));
    let low = s.symbols.iter().map(|(n, r)| {
        let smallest = if fixed.contains(n) { r.max } else { r.min.max(1).min(r.max) };
        (n.name().to_owned(), smallest)
    });
    let high = s.symbols.iter().map(|(n, r)| (n.name().to_owned(), r.max));
    vec![Size { name: "smallest", values: low.collect() }, Size { name: "largest", values: high.collect() }]
}

/// Every step of `s`.
pub fn all(s: &Schedule, report: &Report, target: &Target) -> Vec<StepDoc> {
    // Names repeat only among copies of one value; those come in the order of the steps.
    let mut placements: HashMap<&str, VecDeque<&Placement>> = HashMap::new();
    for p in &report.placement.nodes {
        placements.entry(&p.node).or_default().push_back(p);
    }
    let c = Context { s, target, placed: &report.memory, sites: &report.fused.sites, sizes: sizes(s) };
    let steps = s.steps.iter().enumerate().filter_map(|(i, step)| match step {
        Step::Kernel(k) => Some((i, k)),
        _ => None,
    });
    steps
        .map(|(i, k)| {
            let placement = placements.get_mut(k.name.as_str()).and_then(VecDeque::pop_front);
            c.step(i, k, placement)
        })
        .collect()
}

struct Context<'a> {
    s: &'a Schedule,
    target: &'a Target,
    placed: &'a [Placed],
    sites: &'a [Formed],
    sizes: Vec<Size>,
}

impl Context<'_> {
    fn step(&self, index: usize, k: &KernelStep, placement: Option<&Placement>) -> StepDoc {
        let op = k.candidates.first().map_or("", |c| self.target.row(c.row).op);
        let operands = |from: usize, to: usize| {
            let of = |o: &Option<Operand>| o.as_ref().map(|o| self.operand(index, o, from > 0));
            k.operands[from..to].iter().map(of).collect()
        };
        let when = |i: usize| placement.and_then(|p| p.rows.get(i)).map_or("", |(_, when)| when);
        StepDoc {
            index,
            name: k.name.clone(),
            op: op.into(),
            rows: k.candidates.iter().enumerate().map(|(i, c)| self.row(c, when(i))).collect(),
            inputs: operands(0, k.inputs),
            outputs: operands(k.inputs, k.operands.len()),
            exprs: k.exprs.iter().map(ToString::to_string).collect(),
            flops: self.cost(&k.flops),
            bytes: self.cost(&k.bytes),
            copies: placement.map(|p| p.copies.clone()).unwrap_or_default(),
            expanded_from: placement.and_then(|p| p.expanded_from.clone()),
            fused_from: origin(self.sites, &k.name),
        }
    }

    fn row(&self, c: &Candidate, when: &str) -> Row {
        let row = self.target.row(c.row);
        let text = |v: &ParamValue| match v {
            ParamValue::Dim(d) => d.to_string(),
            ParamValue::Float(f) => format!("{f:?}"),
        };
        let params = row.params.iter().zip(&c.params).map(|(s, v)| (s.name.to_owned(), text(v)));
        Row {
            row: row.name.into(),
            when: when.into(),
            params: params.collect(),
            scratch: c.scratch.to_string(),
        }
    }

    fn operand(&self, step: usize, o: &Operand, result: bool) -> OperandDoc {
        let at = o.buffer as usize;
        let port = |all: &[frit::schedule::Port]| all.get(at).map_or(String::new(), |p| p.name.clone());
        let weight = self.s.weights.get(at).filter(|_| o.region == Region::Weights);
        let (region, name) = match o.region {
            Region::Weights => match weight.map(|w| &w.source) {
                Some(WeightSource::Param(name)) => ("weights", name.clone()),
                _ => ("weights", "constant".into()),
            },
            Region::State => ("state", port(&self.s.states)),
            Region::Input => ("input", port(&self.s.inputs)),
            Region::Output => ("output", port(&self.s.outputs)),
            Region::Arena => ("arena", self.placed_at(step as u32, o, result)),
        };
        OperandDoc {
            region,
            buffer: o.buffer,
            name,
            offset: o.offset.to_string(),
            dtype: o.dtype.to_string(),
            shape: o.dims.iter().map(ToString::to_string).collect(),
            strides: o.strides.iter().map(ToString::to_string).collect(),
            packing: weight.and_then(|w| w.packing),
        }
    }

    /// The value that `o` lies in. Where a step works in place two do: the older one is read, the younger one written.
    fn placed_at(&self, step: u32, o: &Operand, result: bool) -> String {
        let offset = self.s.symbols.interval(&o.offset).0.max(0) as u64;
        let holds = |p: &&Placed| {
            let inside = p.offset <= offset && offset < p.offset + p.bytes.max(1);
            p.ty.is_some() && p.first <= step && step <= p.last && inside
        };
        let here = self.placed.iter().filter(holds);
        let found = if result { here.max_by_key(|p| p.first) } else { here.min_by_key(|p| p.first) };
        found.map_or(String::new(), |p| p.name.clone())
    }

    fn cost(&self, d: &Dim) -> Cost {
        let at = |size: &Size| d.eval(&|s| size.values.get(s.name()).copied()).ok();
        Cost { formula: d.to_string(), at: self.sizes.iter().map(at).collect() }
    }
}

/// The nodes of the graph before fusion that the step called `name` stands for; empty if nothing was fused for it.
fn origin(sites: &[Formed], name: &str) -> Vec<Named> {
    let mut wanted: HashSet<&str> = HashSet::from([name]);
    let mut nodes: Vec<Named> = Vec::new();
    // Names pass from what is replaced to what replaces it, so the way back goes from the last pattern to the first.
    for f in sites.iter().rev() {
        let after = |n: &str| f.after.iter().any(|a| a.names.iter().any(|m| m == n));
        if !wanted.iter().any(|n| after(n)) {
            continue;
        }
        wanted.retain(|n| !after(n));
        nodes.retain(|n| !n.names.iter().any(|m| after(m)));
        for b in &f.before {
            wanted.extend(b.names.iter().map(String::as_str));
            nodes.push(Named::from(b));
        }
    }
    nodes
}
