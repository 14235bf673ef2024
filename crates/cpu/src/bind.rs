//! Turning a schedule into tables that a run reads without looking anything up: every dimension expression once, every
//! step's operands as indices into them, every kernel as a function.

use std::collections::HashMap;

use frit_ir::DType;
use frit_ir::dim::{Dim, Sym};
use frit_ir::op::ParamValue;
use frit_ir::schedule::{KernelStep, Operand as Place, Region, Schedule, SizeGuard, Step};
use frit_ir::symbols::{DimGuard, Relation};

use crate::args::Kernel;
use crate::error::ExecError;
use crate::expr::Program;
use crate::isa::Isa;
use crate::target;

/// Index of a dimension expression in [`Tables::dims`].
pub(crate) type DimId = u32;

/// A parameter: an evaluated dimension or a number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slot {
    /// A dimension.
    Dim(DimId),
    /// A number.
    Float(f64),
}

/// One candidate of a step.
pub(crate) struct Candidate {
    pub guards: Vec<(DimId, SizeGuard)>,
    pub kernel: Kernel,
    pub params: Vec<Slot>,
    pub scratch: DimId,
}

/// An operand as indices.
pub(crate) struct Window {
    pub region: Region,
    pub buffer: u32,
    pub packed: bool,
    pub offset: DimId,
    pub dtype: DType,
    pub dims: Vec<DimId>,
    pub strides: Vec<DimId>,
}

/// A step ready to be bound to sizes.
pub(crate) struct Bound {
    pub name: String,
    pub candidates: Vec<Candidate>,
    pub operands: Vec<Option<Window>>,
    pub programs: Vec<Program>,
    pub scratch: u64,
}

/// A port's extents as indices.
pub(crate) struct PortDims {
    pub dims: Vec<DimId>,
    pub bytes: DimId,
}

/// Everything a run needs, but for memory and sizes.
pub(crate) struct Tables {
    pub symbols: Vec<(Sym, i64, i64)>,
    pub bounds: Vec<(DimId, i64)>,
    pub guards: Vec<(DimId, DimGuard, DimId)>,
    /// Every extent that could be negative, once, and whose it is.
    pub extents: Vec<(DimId, String)>,
    pub dims: Vec<Dim>,
    pub steps: Vec<Bound>,
    pub inputs: Vec<PortDims>,
    pub outputs: Vec<PortDims>,
}

#[derive(Default)]
struct Interner {
    dims: Vec<Dim>,
    index: HashMap<Dim, DimId>,
}

impl Interner {
    fn add(&mut self, d: &Dim) -> DimId {
        if let Some(i) = self.index.get(d) {
            return *i;
        }
        let i = self.dims.len() as DimId;
        self.dims.push(d.clone());
        self.index.insert(d.clone(), i);
        i
    }

    fn all(&mut self, dims: &[Dim]) -> Vec<DimId> {
        dims.iter().map(|d| self.add(d)).collect()
    }
}

impl Tables {
    /// Resolves every kernel and expression of `s` for `isa`.
    ///
    /// # Errors
    /// A row that this build lacks, an expression that cannot be compiled.
    pub fn new(s: &Schedule, isa: Isa) -> Result<Tables, ExecError> {
        let mut dims = Interner::default();
        let steps: Vec<Bound> = s
            .steps
            .iter()
            .enumerate()
            .map(|(i, step)| match step {
                Step::Kernel(k) => bind_step(s, k, isa, &mut dims),
                _ => Err(ExecError::Step(i)),
            })
            .collect::<Result<_, _>>()?;
        let mut ports = |all: &[frit_ir::schedule::Port]| -> Vec<PortDims> {
            all.iter()
                .map(|p| PortDims { dims: dims.all(&p.ty.shape), bytes: dims.add(&p.ty.bytes()) })
                .collect()
        };
        let (inputs, outputs) = (ports(&s.inputs), ports(&s.outputs));
        let bounds = s.symbols.bounds().iter().map(|(d, m)| (dims.add(d), *m)).collect();
        let guards = s.guards.iter().map(|g| (dims.add(&g.left), g.clone(), dims.add(&g.right))).collect();
        let symbols = s.symbols.iter().map(|(n, r)| (n.clone(), r.min, r.max)).collect();
        let mut extents = Extents::of(&dims.dims);
        for (what, all, ports) in [("input", &inputs, &s.inputs), ("output", &outputs, &s.outputs)] {
            for (p, port) in all.iter().zip(ports) {
                extents.add(&p.dims, || format!("{what} `{}`", port.name));
            }
        }
        for step in &steps {
            for (i, w) in step.operands.iter().enumerate() {
                let dims = w.as_ref().map_or(&[][..], |w| &w.dims);
                extents.add(dims, || format!("step `{}`: operand {i}", step.name));
            }
        }
        let extents = extents.all;
        Ok(Tables { symbols, bounds, guards, extents, dims: dims.dims, steps, inputs, outputs })
    }

    /// Evaluates every dimension for `sizes` (in the order of [`Tables::symbols`]) and checks ranges, guards
    /// and extents: after it, no extent of a port or operand is negative.
    ///
    /// # Errors
    /// A size outside its range, a guard or bound that does not hold, a negative extent, an overflow.
    pub fn evaluate(&self, sizes: &[i64], values: &mut Vec<i64>) -> Result<(), ExecError> {
        for ((name, min, max), v) in self.symbols.iter().zip(sizes) {
            if v < min || v > max {
                return Err(ExecError::Range { name: name.name().into(), value: *v, min: *min, max: *max });
            }
        }
        let bind = |s: &Sym| self.symbols.iter().position(|(n, ..)| n == s).map(|i| sizes[i]);
        values.clear();
        for d in &self.dims {
            values.push(d.eval(&bind)?);
        }
        for (d, max) in &self.bounds {
            let value = values[*d as usize];
            if value > *max {
                let name = self.dims[*d as usize].to_string();
                return Err(ExecError::Range { name, value, min: i64::MIN, max: *max });
            }
        }
        for (l, g, r) in &self.guards {
            let (left, right) = (values[*l as usize], values[*r as usize]);
            let holds = match g.relation {
                Relation::Equal => left == right,
                Relation::AtMost => left <= right,
            };
            if !holds {
                return Err(ExecError::Guard { why: g.why.clone(), left, right });
            }
        }
        for (d, place) in &self.extents {
            not_negative(&self.dims[*d as usize], values[*d as usize], &bind, || place.clone())?;
        }
        Ok(())
    }
}

/// The extents of ports and operands, each dimension once.
struct Extents {
    /// By dimension: whether it is among them or never negative.
    known: Vec<bool>,
    all: Vec<(DimId, String)>,
}

impl Extents {
    fn of(dims: &[Dim]) -> Extents {
        let known = dims.iter().map(|d| d.as_const().is_some_and(|v| v >= 0)).collect();
        Extents { known, all: Vec::new() }
    }

    fn add(&mut self, dims: &[DimId], place: impl Fn() -> String) {
        for d in dims {
            if !std::mem::replace(&mut self.known[*d as usize], true) {
                self.all.push((*d, place()));
            }
        }
    }
}

/// Refuses the extent `d` of `place` whose value is below 0. `bind` gives the symbols.
///
/// # Errors
/// That.
pub(crate) fn not_negative(
    d: &Dim,
    value: i64,
    bind: &dyn Fn(&Sym) -> Option<i64>,
    place: impl FnOnce() -> String,
) -> Result<(), ExecError> {
    if value >= 0 {
        return Ok(());
    }
    let mut symbols = Vec::new();
    d.symbols(&mut symbols);
    let size = |s: &Sym| Some(format!("{} = {}", s.name(), bind(s)?));
    let sizes = symbols.iter().filter_map(size).collect::<Vec<_>>().join(", ");
    Err(ExecError::Extent { place: place(), extent: d.to_string(), value, sizes })
}

fn bind_step(s: &Schedule, k: &KernelStep, isa: Isa, dims: &mut Interner) -> Result<Bound, ExecError> {
    let candidates = k.candidates.iter().map(|c| {
        let kernel = target::kernel(c.row, isa).ok_or_else(|| ExecError::Row {
            step: k.name.clone(),
            row: c.row.0,
            rows: target::row_count(),
        })?;
        let params = c
            .params
            .iter()
            .map(|p| match p {
                ParamValue::Dim(d) => Slot::Dim(dims.add(d)),
                ParamValue::Float(v) => Slot::Float(*v),
            })
            .collect();
        let guards = c.guards.iter().map(|g| (dims.add(&g.dim), g.clone())).collect();
        Ok(Candidate { guards, kernel, params, scratch: dims.add(&c.scratch) })
    });
    let candidates = candidates.collect::<Result<_, ExecError>>()?;
    let operands = k.operands.iter().map(|o| o.as_ref().map(|o| window(s, o, dims))).collect();
    let program = |e: &std::sync::Arc<frit_ir::Expr>| {
        Program::new(e, isa).map_err(|why| ExecError::Expr { step: k.name.clone(), why: why.to_string() })
    };
    let programs = k.exprs.iter().map(program).collect::<Result<_, _>>()?;
    Ok(Bound { name: k.name.clone(), candidates, operands, programs, scratch: k.scratch })
}

fn window(s: &Schedule, o: &Place, dims: &mut Interner) -> Window {
    let packed = o.region == Region::Weights && s.weights[o.buffer as usize].packing.is_some();
    Window {
        region: o.region,
        buffer: o.buffer,
        packed,
        offset: dims.add(&o.offset),
        dtype: o.dtype,
        dims: dims.all(&o.dims),
        strides: dims.all(&o.strides),
    }
}
