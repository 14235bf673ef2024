//! Turning a schedule into tables that a run reads without looking anything up: every dimension expression once, every
//! step's operands as indices into them, every kernel as a function.

use frit_ir::DType;
use frit_ir::op::ParamValue;
use frit_ir::schedule::{KernelStep, Operand as Place, Region, Schedule, SizeGuard, Step};
use frit_ir::sizes::{DimId, PortDims, Sizes};
use frit_ir::target::RowId;

use crate::args::Kernel;
use crate::error::ExecError;
use crate::expr::Program;
use crate::host::HostKernel;
use crate::isa::Isa;
use crate::target;

/// A parameter: an evaluated dimension or a number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slot {
    /// A dimension.
    Dim(DimId),
    /// A number.
    Float(f64),
}

/// What runs: a kernel of this crate, or one of its user's with the number of its inputs.
#[derive(Clone, Copy)]
pub(crate) enum Code {
    /// Of this crate.
    Built(Kernel),
    /// Of its user's.
    Host(&'static HostKernel, usize),
}

/// One candidate of a step.
pub(crate) struct Candidate {
    pub guards: Vec<(DimId, SizeGuard)>,
    pub code: Code,
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

/// Everything a run needs, but for memory and sizes.
pub(crate) struct Tables {
    pub sizes: Sizes,
    pub steps: Vec<Bound>,
    pub inputs: Vec<PortDims>,
    pub outputs: Vec<PortDims>,
}

impl Tables {
    /// Resolves every kernel and expression of `s` for `isa`; the target's first rows are those of `host`.
    ///
    /// # Errors
    /// A row that this build lacks, or one of `host` that asks for too much; an expression that cannot be compiled.
    pub fn new(s: &Schedule, isa: Isa, host: &[&'static HostKernel]) -> Result<Tables, ExecError> {
        let mut dims = Sizes::new(s);
        // Ports first: an extent that they share with steps is theirs in messages.
        let (inputs, outputs) = (dims.ports("input", &s.inputs), dims.ports("output", &s.outputs));
        let steps = s
            .steps
            .iter()
            .enumerate()
            .map(|(i, step)| match step {
                Step::Kernel(k) => bind_step(s, k, isa, host, &mut dims),
                _ => Err(ExecError::Step(i)),
            })
            .collect::<Result<_, _>>()?;
        Ok(Tables { sizes: dims, steps, inputs, outputs })
    }
}

/// What runs for a row of the target.
fn code(k: &KernelStep, row: RowId, isa: Isa, host: &[&'static HostKernel]) -> Result<Code, ExecError> {
    if let Some(h) = host.get(row.0 as usize) {
        let host = |why| ExecError::Host { step: k.name.clone(), kernel: h.row.name, op: h.row.op, why };
        return h.check().map(|()| Code::Host(h, k.inputs)).map_err(host);
    }
    let built = target::kernel(RowId(row.0 - host.len() as u32), isa);
    built.map(Code::Built).ok_or_else(|| ExecError::Row {
        step: k.name.clone(),
        row: row.0,
        rows: host.len() + target::row_count(),
    })
}

fn bind_step(
    s: &Schedule,
    k: &KernelStep,
    isa: Isa,
    host: &[&'static HostKernel],
    dims: &mut Sizes,
) -> Result<Bound, ExecError> {
    let candidates = k.candidates.iter().map(|c| {
        let code = code(k, c.row, isa, host)?;
        let params = c
            .params
            .iter()
            .map(|p| match p {
                ParamValue::Dim(d) => Slot::Dim(dims.add(d)),
                ParamValue::Float(v) => Slot::Float(*v),
            })
            .collect();
        let guards = c.guards.iter().map(|g| (dims.add(&g.dim), g.clone())).collect();
        Ok(Candidate { guards, code, params, scratch: dims.add(&c.scratch) })
    });
    let candidates = candidates.collect::<Result<_, ExecError>>()?;
    let window = |(i, o): (usize, &Option<Place>)| {
        let place = || format!("step `{}`: operand {i}", k.name);
        o.as_ref().map(|o| window(s, o, dims, place))
    };
    let operands = k.operands.iter().enumerate().map(window).collect();
    let program = |e: &std::sync::Arc<frit_ir::Expr>| {
        Program::new(e, isa).map_err(|why| ExecError::Expr { step: k.name.clone(), why: why.to_string() })
    };
    let programs = k.exprs.iter().map(program).collect::<Result<_, _>>()?;
    Ok(Bound { name: k.name.clone(), candidates, operands, programs, scratch: k.scratch })
}

fn window(s: &Schedule, o: &Place, dims: &mut Sizes, place: impl Fn() -> String) -> Window {
    let packed = o.region == Region::Weights && s.weights[o.buffer as usize].packing.is_some();
    Window {
        region: o.region,
        buffer: o.buffer,
        packed,
        offset: dims.add(&o.offset),
        dtype: o.dtype,
        dims: dims.extents(&o.dims, place),
        strides: dims.all(&o.strides),
    }
}
