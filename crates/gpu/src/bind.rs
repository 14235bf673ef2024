//! Turning a schedule into tables that a run reads without looking anything up: every dimension expression once, every
//! candidate's kernel built, its parameter block given a place.

use frit_ir::dim::{Dim, Sym};
use frit_ir::op::ParamValue;
use frit_ir::schedule::{KernelStep, Operand, Region, Schedule, SizeGuard, Step};
use frit_ir::sizes::{DimId, PortDims, Sizes};
use frit_ir::target::ParamType;
use frit_ir::text::parse_dim;
use frit_ir::{DType, Tensor};

use crate::device::Device;
use crate::driver::{DeviceInfo, KernelId, KernelSource};
use crate::error::GpuError;
use crate::render::params::Params;
use crate::render::{Form, MAX_POINTERS, Spec, names, render};
use crate::row::GpuRow;

/// A parameter: an evaluated dimension or a number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slot {
    /// A dimension.
    Dim(DimId),
    /// A number.
    Float(f64),
    /// Bits of a stored value.
    Bits(i64),
}

/// One candidate of a step.
pub(crate) struct Candidate {
    pub guards: Vec<(DimId, SizeGuard)>,
    pub row: &'static GpuRow,
    pub kernel: KernelId,
    /// Number of pointer arguments: all of the step's, or all but the one for scratch.
    pub buffers: usize,
    pub block: Params,
    /// Those of the row that are no constants of the text.
    pub params: Vec<Slot>,
    /// Groups that have work.
    pub grid: DimId,
}

/// An operand as indices.
pub(crate) struct Window {
    pub region: Region,
    pub buffer: u32,
    pub offset: DimId,
    pub dtype: DType,
    pub dims: Vec<DimId>,
    pub strides: Vec<DimId>,
    /// The bytes of its buffer that it may touch for any sizes, if that is known: the first, and one past the last.
    pub reach: Option<(u64, u64)>,
}

/// A step ready to be bound to sizes.
pub(crate) struct Bound {
    pub name: String,
    pub candidates: Vec<Candidate>,
    /// The operands that are there.
    pub operands: Vec<Window>,
    /// How many of them are inputs.
    pub inputs: usize,
    /// The region and buffer behind each pointer argument.
    pub pointers: Vec<(Region, u32)>,
    /// Arena offset of the scratch.
    pub scratch: u64,
    /// Place of the parameter block in the run's block of parameters.
    pub block: u64,
}

/// The place of a weight: many lie in one device buffer, so that a kernel may read any number of them.
pub(crate) struct WeightPlace {
    pub slab: usize,
    pub offset: u64,
    pub bytes: u64,
}

/// Bytes from which on weights get a device buffer of their own or begin a new one.
const SLAB: u64 = 1 << 30;

/// Places for all weights in order, and the bytes of each slab.
fn weight_places(s: &Schedule, info: &DeviceInfo) -> (Vec<WeightPlace>, Vec<u64>) {
    let (mut places, mut slabs) = (Vec::with_capacity(s.weights.len()), Vec::<u64>::new());
    for w in &s.weights {
        let bytes = w.ty.bytes().as_const().and_then(|v| u64::try_from(v).ok()).unwrap_or(u64::MAX);
        let from = slabs.last().map(|end| end.next_multiple_of(info.align));
        let end = from.and_then(|from| from.checked_add(bytes));
        let offset = match (from, end) {
            (Some(from), Some(end)) if end <= SLAB.min(info.max_buffer) => from,
            _ => {
                slabs.push(0);
                0
            }
        };
        let slab = slabs.len() - 1;
        slabs[slab] = offset.saturating_add(bytes);
        places.push(WeightPlace { slab, offset, bytes });
    }
    (places, slabs)
}

/// Everything a run needs, but for memory and sizes.
pub(crate) struct Tables {
    pub sizes: Sizes,
    pub steps: Vec<Bound>,
    pub inputs: Vec<PortDims>,
    pub outputs: Vec<PortDims>,
    pub weights: Vec<WeightPlace>,
    /// Bytes of the buffers that hold the weights.
    pub slabs: Vec<u64>,
    /// Bytes of all parameter blocks.
    pub block: u64,
}

impl Tables {
    /// Renders and builds every kernel of `s`.
    pub fn new(s: &Schedule, device: &Device) -> Result<Tables, GpuError> {
        let mut sizes = Sizes::new(s);
        // Ports first: an extent that they share with steps is theirs in messages.
        let (inputs, outputs) = (sizes.ports("input", &s.inputs), sizes.ports("output", &s.outputs));
        let (weights, slabs) = weight_places(s, device.info());
        let mut block = 0;
        let mut steps = Vec::with_capacity(s.steps.len());
        let mut sources = Vec::new();
        for (i, step) in s.steps.iter().enumerate() {
            let Step::Kernel(k) = step else {
                return Err(GpuError::Step {
                    step: i.to_string(),
                    why: "this backend runs kernels only".into(),
                });
            };
            let bound = bind_step(s, k, device, &mut sizes, &weights, block, &mut sources)?;
            let bytes = bound.candidates.iter().map(|c| c.block.bytes()).max().unwrap_or(0);
            block += (bytes as u64).next_multiple_of(device.info().align);
            steps.push(bound);
        }
        let kernels = device.kernels(&sources).map_err(|e| of_row(e, &sources, &steps))?;
        let candidates = steps.iter_mut().flat_map(|s: &mut Bound| &mut s.candidates);
        candidates.zip(kernels).for_each(|(c, kernel)| c.kernel = kernel);
        Ok(Tables { sizes, steps, inputs, outputs, weights, slabs, block })
    }
}

fn step_error(k: &KernelStep, why: impl Into<String>) -> GpuError {
    GpuError::Step { step: k.name.clone(), why: why.into() }
}

/// The error of a kernel that does not build, with the name of its row in place of the function's.
fn of_row(e: GpuError, sources: &[KernelSource], steps: &[Bound]) -> GpuError {
    let GpuError::Build { device, kernel, log } = e else { return e };
    let mut rows = steps.iter().flat_map(|s| &s.candidates).zip(sources);
    let row = rows.find(|(_, source)| source.entry == kernel).map(|(c, _)| c.row.row.name.into());
    GpuError::Build { device, kernel: row.unwrap_or(kernel), log }
}

/// A step without its kernels, whose texts join `sources`, one for each candidate.
fn bind_step(
    s: &Schedule,
    k: &KernelStep,
    device: &Device,
    sizes: &mut Sizes,
    weights: &[WeightPlace],
    block: u64,
    sources: &mut Vec<KernelSource>,
) -> Result<Bound, GpuError> {
    let (forms, mut pointers) = forms(k, weights).map_err(|why| step_error(k, why))?;
    let operand_pointers = pointers.len();
    if k.candidates.iter().any(|c| device.row(c.row).is_some_and(|r| !r.row.scratch.is_empty())) {
        pointers.push((Region::Arena, 0));
    }
    let wide = is_wide(s, k);
    let mut candidates = Vec::with_capacity(k.candidates.len());
    for c in &k.candidates {
        let Some(row) = device.row(c.row) else {
            return Err(step_error(k, format!("there is no kernel row {}", c.row.0)));
        };
        let (most, name) = (device.info().max_group, &device.info().name);
        if row.group > most {
            let (kernel, n) = (row.row.name, row.group);
            return Err(step_error(
                k,
                format!("kernel `{kernel}` has groups of {n}, {name} at most of {most}"),
            ));
        }
        let constants: Vec<Option<i64>> = c.params.iter().map(constant).collect();
        let spec = Spec {
            row,
            operands: &forms,
            inputs: k.inputs,
            params: &constants,
            pointers: operand_pointers,
            wide,
            exprs: &k.exprs,
        };
        let rendered = render(device.info().dialect, &spec)?;
        let params = c.params.iter().zip(row.row.params);
        let params =
            params.filter(|(_, spec)| !row.constants.contains(&spec.name)).map(|(p, spec)| match p {
                ParamValue::Float(v) if spec.ty == ParamType::Stored => stored(k, *v),
                ParamValue::Float(v) => Ok(Slot::Float(*v)),
                ParamValue::Dim(d) => Ok(Slot::Dim(sizes.add(d))),
            });
        let params = params.collect::<Result<_, _>>()?;
        let grid = grid(k, row, &c.params, &names(&spec)?.0)?;
        let guards = c.guards.iter().map(|g| (sizes.add(&g.dim), g.clone())).collect();
        let grid = sizes.add(&grid);
        let (buffers, block, kernel) = (rendered.source.buffers as usize, rendered.params, KernelId(0));
        sources.push(rendered.source);
        candidates.push(Candidate { guards, row, kernel, buffers, block, params, grid });
    }
    let windows = k.operands.iter().flatten().enumerate().map(|(i, o)| Window {
        region: o.region,
        buffer: o.buffer,
        offset: sizes.add(&o.offset),
        dtype: o.dtype,
        dims: sizes.extents(&o.dims, || format!("step `{}`: operand {i}", k.name)),
        strides: sizes.all(&o.strides),
        reach: reach(s, o),
    });
    let operands = windows.collect();
    let inputs = k.operands.iter().take(k.inputs).flatten().count();
    Ok(Bound { name: k.name.clone(), candidates, operands, inputs, pointers, scratch: k.scratch, block })
}

/// `v` in the type of the step's first result.
fn stored(k: &KernelStep, v: f64) -> Result<Slot, GpuError> {
    let dtype = k.operands.get(k.inputs).and_then(Option::as_ref).map_or(DType::F32, |o| o.dtype);
    let t = Tensor::from_f64(dtype, &[1], &[v]).map_err(|e| step_error(k, e.to_string()))?;
    let mut bits = [0; 8];
    bits[..t.bytes().len()].copy_from_slice(t.bytes());
    Ok(Slot::Bits(i64::from_le_bytes(bits)))
}

fn constant(p: &ParamValue) -> Option<i64> {
    match p {
        ParamValue::Dim(d) => d.as_const(),
        ParamValue::Float(_) => None,
    }
}

/// The operands as the text sees them, and what is behind each pointer argument: one for each operand, or where they are
/// too many, one for each buffer.
#[allow(clippy::type_complexity)]
fn forms(k: &KernelStep, weights: &[WeightPlace]) -> Result<(Vec<Option<Form>>, Vec<(Region, u32)>), String> {
    // The inputs of a run lie in one device buffer, its results in another, weights in a few.
    let pointer = |o: &Operand| match o.region {
        Region::Input | Region::Output => (o.region, 0),
        // Any weight of a slab stands for it: the first.
        Region::Weights => {
            let slab = weights[o.buffer as usize].slab;
            (o.region, weights.partition_point(|w| w.slab < slab) as u32)
        }
        _ => (o.region, o.buffer),
    };
    let all: Vec<&Operand> = k.operands.iter().flatten().collect();
    let mut pointers: Vec<(Region, u32)> = all.iter().map(|o| pointer(o)).collect();
    let shared = pointers.len() > MAX_POINTERS;
    if shared {
        pointers.sort_unstable();
        pointers.dedup();
    }
    if pointers.len() > MAX_POINTERS {
        return Err(format!("it reads and writes {} buffers, at most {MAX_POINTERS} can be", pointers.len()));
    }
    let mut next = 0;
    let mut form = |o: &Operand| {
        next += 1;
        let at = pointers.iter().position(|p| *p == pointer(o));
        let pointer = if shared { at.unwrap_or(0) } else { next - 1 };
        Form { dtype: o.dtype, pointer }
    };
    let forms = k.operands.iter().map(|o| o.as_ref().map(&mut form)).collect();
    Ok((forms, pointers))
}

/// Whether an element index or an extent of an operand may not fit 32 bits at the bounds of the symbols.
fn is_wide(s: &Schedule, k: &KernelStep) -> bool {
    const MOST: i128 = 1 << 31;
    let upper = |d: &Dim| i128::from(s.symbols.upper(d).max(0));
    k.operands.iter().flatten().any(|o| {
        let reach: i128 = o.dims.iter().zip(&o.strides).map(|(d, s)| upper(d) * upper(s)).sum();
        let len = o.dims.iter().fold(1i128, |n, d| n.saturating_mul(upper(d).max(1)));
        // Items step by the whole launch: the index of one past the end must fit too.
        reach.max(len) >= MOST - (1 << 26)
    })
}

/// The bytes that an operand at a constant offset may touch for any sizes.
fn reach(s: &Schedule, o: &Operand) -> Option<(u64, u64)> {
    let from = u64::try_from(o.offset.as_const()?).ok()?;
    let upper = |d: &Dim| i128::from(s.symbols.upper(d).max(0));
    let last: i128 = o.dims.iter().zip(&o.strides).map(|(d, s)| (upper(d) - 1).max(0) * upper(s)).sum();
    let unit = o.dtype.info();
    let units = (last + unit.unit_elements as i128) / unit.unit_elements as i128;
    let end = i128::from(from) + units * unit.unit_bytes as i128;
    Some((from, u64::try_from(end).ok()?))
}

/// The row's grid formula over this step's parameters and extents.
fn grid(
    k: &KernelStep,
    row: &GpuRow,
    params: &[ParamValue],
    operands: &[crate::render::Named],
) -> Result<Dim, GpuError> {
    let bad = |why: String| step_error(k, format!("grid `{}` of kernel `{}`: {why}", row.grid, row.row.name));
    let formula = parse_dim(row.grid).map_err(|e| bad(e.to_string()))?;
    let mut present = k.operands.iter();
    let dims: Vec<(&str, &[Dim])> = operands
        .iter()
        .filter_map(|n| {
            let o = present.next().and_then(Option::as_ref);
            o.filter(|_| n.form.is_some()).map(|o| (n.name.as_str(), o.dims.as_slice()))
        })
        .collect();
    let lookup = |s: &Sym| {
        let by_name = row.row.params.iter().zip(params).find(|(p, _)| p.name == s.name());
        if let Some((spec, ParamValue::Dim(d))) = by_name
            && matches!(spec.ty, ParamType::I32 | ParamType::I64)
        {
            return Some(d.clone());
        }
        dims.iter().find_map(|(name, dims)| extent(s.name().strip_prefix(name)?.strip_prefix('_')?, dims))
    };
    let mut names = Vec::new();
    formula.symbols(&mut names);
    if let Some(s) = names.iter().find(|s| lookup(s).is_none()) {
        return Err(bad(format!("there is no `{}`", s.name())));
    }
    Ok(formula.substitute(&|s| lookup(s)))
}

/// `len`, `last`, `rows` or `dN` of an operand.
fn extent(what: &str, dims: &[Dim]) -> Option<Dim> {
    let product = |dims: &[Dim]| dims.iter().fold(Dim::from(1i64), |n, d| n * d.clone());
    match what {
        "len" => Some(product(dims)),
        "last" => Some(dims.last().cloned().unwrap_or(Dim::from(1i64))),
        "rows" => Some(product(&dims[..dims.len().saturating_sub(1)])),
        _ => dims.get(what.strip_prefix('d')?.parse::<usize>().ok()?).cloned(),
    }
}
