//! An op case as a graph of one node: operands lie in memory as the case says, through views.

use std::collections::HashMap;

use frit_ir::op::{Case, CaseInput, Layout, OpError, Registry, Role, Tolerance};
use frit_ir::{Attrs, DType, Graph, Tensor, Type, ValueId};

/// Elements of padding between rows of [`Layout::Rows`].
const GAP: usize = 3;

/// A case as a graph, with what to feed it.
pub struct CaseGraph {
    /// The graph; results are the outputs `y0`, `y1`, …
    pub graph: Graph,
    /// Values of inputs, parameters and states by name.
    pub values: HashMap<String, Tensor>,
    /// Names of the states among them.
    pub states: Vec<String>,
}

/// Builds the graph of `case`.
///
/// # Errors
/// What the op says of its operands.
pub fn build(registry: &Registry, op: &str, case: &Case) -> Result<CaseGraph, OpError> {
    let mut g = CaseGraph { graph: Graph::new(&case.name), values: HashMap::new(), states: Vec::new() };
    let mut operands = Vec::new();
    for (i, input) in case.inputs.iter().enumerate() {
        operands.push(match input {
            Some(c) => g.operand(registry, i, c)?,
            None => ValueId::NONE,
        });
    }
    let results = g.graph.push(registry, op, case.attrs.clone(), &operands, &[])?;
    for (i, r) in results.iter().enumerate() {
        g.graph.output(&format!("y{i}"), *r)?;
    }
    let updates = registry.get(op).map_or(&[][..], |d| d.updates);
    for (next, state) in results.iter().zip(updates.iter().map(|u| operands[*u])) {
        if g.graph.states().iter().any(|s| s.first == state) {
            g.graph.update(state, *next)?;
        }
    }
    Ok(g)
}

impl CaseGraph {
    fn operand(&mut self, registry: &Registry, i: usize, c: &CaseInput) -> Result<ValueId, OpError> {
        let name = format!("x{i}");
        let (stored, layout) = store(&c.tensor, c.layout);
        let ty = Type::new(stored.dtype(), stored.shape().iter().copied());
        let v = match c.role {
            Role::Input => self.graph.input(&name, ty)?,
            Role::Param => self.graph.param(&name, ty)?,
            Role::State => {
                self.states.push(name.clone());
                self.graph.state(&name, ty)?
            }
        };
        self.values.insert(name, stored);
        let ints = |v: Vec<usize>| v.into_iter().map(|n| n as i64).collect::<Vec<i64>>();
        let rank = c.tensor.shape().len();
        let slice = |g: &mut Graph, v, sizes: Vec<usize>, steps: Vec<i64>| {
            let attrs =
                Attrs::new().with("starts", vec![0i64; rank]).with("sizes", ints(sizes)).with("steps", steps);
            g.push(registry, "slice", attrs, &[v], &[]).map(|o| o[0])
        };
        match layout {
            Layout::Dense => Ok(v),
            Layout::Rows => Ok(slice(&mut self.graph, v, c.tensor.shape().to_vec(), vec![1; rank])?),
            Layout::Strided => {
                let mut sizes = c.tensor.shape().to_vec();
                let mut perm: Vec<i64> = (0..rank as i64).collect();
                if rank >= 2 {
                    sizes.swap(rank - 1, rank - 2);
                    perm.swap(rank - 1, rank - 2);
                }
                let mut steps = vec![1; rank];
                steps[rank - 1] = 2;
                let s = slice(&mut self.graph, v, sizes, steps)?;
                let t = self.graph.push(registry, "transpose", Attrs::new().with("perm", perm), &[s], &[])?;
                Ok(t[0])
            }
        }
    }
}

/// The tensor as it lies in memory for `layout` (dense where the layout makes no sense), gaps filled with a value that would show.
fn store(t: &Tensor, layout: Layout) -> (Tensor, Layout) {
    let rank = t.shape().len();
    if rank == 0 || t.is_empty() || layout == Layout::Dense {
        return (t.clone(), Layout::Dense);
    }
    let Some(size) = t.dtype().size() else { return store_units(t) };
    let mut shape = t.shape().to_vec();
    let last = shape[rank - 1];
    let place: Box<dyn Fn(usize) -> usize> = match layout {
        Layout::Rows => {
            shape[rank - 1] = last + GAP;
            Box::new(move |i| i / last * (last + GAP) + i % last)
        }
        _ if rank == 1 => {
            shape[0] = 2 * last;
            Box::new(|i| 2 * i)
        }
        _ => {
            let rows = shape[rank - 2];
            shape[rank - 2] = last;
            shape[rank - 1] = 2 * rows;
            Box::new(move |i| {
                let (matrix, r, c) = (i / (rows * last), i / last % rows, i % last);
                (matrix * last + c) * 2 * rows + 2 * r
            })
        }
    };
    let n: usize = shape.iter().product();
    let gap = gap_value(t.dtype(), size);
    let mut bytes: Vec<u8> = gap.iter().copied().cycle().take(n * size).collect();
    for (i, e) in t.bytes().chunks_exact(size).enumerate() {
        let at = place(i) * size;
        bytes[at..at + size].copy_from_slice(e);
    }
    match Tensor::new(t.dtype(), &shape, bytes) {
        Ok(stored) => (stored, layout),
        Err(_) => (t.clone(), Layout::Dense),
    }
}

/// The tensor with a gap of one unit behind each row, for types whose elements share bytes; dense if its rows are no whole units.
fn store_units(t: &Tensor) -> (Tensor, Layout) {
    let (info, mut shape) = (t.dtype().info(), t.shape().to_vec());
    let Some(last) = shape.last_mut().filter(|n| n.is_multiple_of(info.unit_elements)) else {
        return (t.clone(), Layout::Dense);
    };
    let row = *last / info.unit_elements * info.unit_bytes;
    *last += info.unit_elements;
    let gap = vec![0xff; info.unit_bytes];
    let bytes: Vec<u8> = t.bytes().chunks_exact(row).flat_map(|r| [r, gap.as_slice()].concat()).collect();
    match Tensor::new(t.dtype(), &shape, bytes) {
        Ok(stored) => (stored, Layout::Rows),
        Err(_) => (t.clone(), Layout::Dense),
    }
}

/// NaN for floats, else a large number.
fn gap_value(d: DType, size: usize) -> Vec<u8> {
    match Tensor::from_f64(d, &[1], &[f64::NAN]) {
        Ok(t) if d.is_float() => t.bytes().to_vec(),
        _ if d == DType::Bool => vec![1],
        _ => vec![0x55; size],
    }
}

/// Whether `got`, which is called `name` in messages, is what `want` says, within `tolerance`.
///
/// # Errors
/// A line that says what differs first.
pub fn compare(name: &str, got: &Tensor, want: &Tensor, tolerance: Tolerance) -> Result<(), String> {
    if got.shape() != want.shape() || got.dtype() != want.dtype() {
        let one = |t: &Tensor| format!("{}{:?}", t.dtype(), t.shape());
        return Err(format!("{name}: {}, expected {}", one(got), one(want)));
    }
    match differs(&numbers(got)?, &numbers(want)?, tolerance) {
        None => Ok(()),
        Some((i, a, b)) => Err(format!("{name}[{i}] = {a}, expected {b}")),
    }
}

/// The elements, or the bytes of types that are only moved.
fn numbers(t: &Tensor) -> Result<Vec<f64>, String> {
    if crate::cases::is_storage(t.dtype()) {
        return Ok(t.bytes().iter().map(|b| f64::from(*b)).collect());
    }
    t.to_f64().map_err(|e| e.to_string())
}

/// The first element of `got` that is further from `want` than `tol` allows: (index, got, want).
fn differs(got: &[f64], want: &[f64], tol: Tolerance) -> Option<(usize, f64, f64)> {
    let bad = |g: f64, w: f64| {
        if w.is_nan() || g.is_nan() || w.is_infinite() || g.is_infinite() {
            return !(g == w || (g.is_nan() && w.is_nan()));
        }
        (g - w).abs() > tol.abs + tol.rel * w.abs()
    };
    got.iter().zip(want).position(|(g, w)| bad(*g, *w)).map(|i| (i, got[i], want[i]))
}
