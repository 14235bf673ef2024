//! Kernels of your own, for ops of your own.
//!
//! An op is an [`OpDef`](crate::graph::OpDef) in a [`Registry`]: see [`crate::graph`]. If it has an expansion into
//! built-in ops, it runs everywhere. A kernel computes it in one step: a [`HostKernel`] on the CPU, one text in a small C dialect (a
//! `GpuRow`, with the feature `gpu`) on every GPU. A kernel is a function or a text, and a row that tells the compiler what it takes: the
//! first row of an op that fits a node is chosen, rows of yours before built-in ones.
//!
//! `examples/custom_op` in the repository is a whole op with both, `docs/custom-ops.md` the guide. Less stable than the
//! rest of this crate.

use std::collections::HashSet;

use frit_ir::op::Registry;
use frit_ir::target::Target;

use crate::cases;
use crate::compiled::CompileOptions;
use crate::device;
use crate::error::{Error, Result};

pub use frit_cpu::host::{Call, HostKernel, Split};
#[cfg(feature = "gpu")]
pub use frit_gpu::row::{GpuRow, KERNEL};
pub use frit_ir::op::{CaseInput, Layout, Role, Tolerance};
pub use frit_ir::rows::{F32S, FLOATS, PLAIN, int, one, optional, real, rest};
pub use frit_ir::target::{Cmp, Count, Guard, KernelRow, LayoutClass, OperandSpec, ParamSpec, ParamType};

/// Kernels for [`CompileOptions::kernels`].
#[derive(Clone, Debug, Default)]
pub struct Kernels {
    pub(crate) host: Vec<&'static HostKernel>,
    #[cfg(feature = "gpu")]
    pub(crate) device: Vec<&'static GpuRow>,
}

impl Kernels {
    /// None.
    pub fn new() -> Kernels {
        Kernels::default()
    }

    /// With these for the CPU, the preferred first.
    pub fn host(mut self, kernels: &'static [HostKernel]) -> Kernels {
        self.host.extend(kernels);
        self
    }

    /// With these for GPUs, the preferred first.
    ///
    /// # Safety
    /// Their texts read and write nothing outside their operands and scratch, for operands of any extents, 0 too, that fit the row. A
    /// device checks no access, and some devices share the memory of the host.
    #[cfg(feature = "gpu")]
    pub unsafe fn device(mut self, rows: &'static [GpuRow]) -> Kernels {
        self.device.extend(rows);
        self
    }

    /// Refuses rows that cannot be meant: what the compiler or a device would else fail on later, or not at all. `built_in` is the target
    /// without them.
    ///
    /// # Errors
    /// [`Error::Name`] for an op that the registry does not have, [`Error::Value`] for anything else; both name row and op.
    pub(crate) fn check(&self, registry: &Registry, built_in: &Target) -> Result<()> {
        let mut names: HashSet<&str> = built_in.rows.iter().map(|r| r.name).collect();
        for k in &self.host {
            row(&k.row, registry, &mut names)?;
            k.check().map_err(|why| wrong(&k.row, &why))?;
        }
        #[cfg(feature = "gpu")]
        {
            names = built_in.rows.iter().map(|r| r.name).collect();
            for r in &self.device {
                row(&r.row, registry, &mut names)?;
                gpu_row(r)?;
            }
        }
        Ok(())
    }
}

fn wrong(row: &KernelRow, why: &str) -> Error {
    Error::value(format!("kernel row `{}` of op `{}`: {why}", row.name, row.op))
}

/// Whether `name` can be a part of a name in C.
fn is_identifier(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(plain) && name.starts_with(|c: char| c.is_ascii_alphabetic())
}

fn formula(row: &KernelRow, what: &str, text: &str) -> Result<()> {
    let read = frit_ir::text::parse_dim(text).map(drop);
    read.map_err(|e| wrong(row, &format!("the {what} `{text}` cannot be read: {e}")))
}

/// What every row must keep to.
fn row(r: &KernelRow, registry: &Registry, names: &mut HashSet<&str>) -> Result<()> {
    if registry.get(r.op).is_none() {
        return Err(Error::name(format!(
            "kernel row `{}`: there is no op `{}` in the registry",
            r.name, r.op
        )));
    }
    let rest = r.name.strip_prefix(r.op);
    if rest.is_none_or(|rest| !rest.is_empty() && !rest.starts_with('.'))
        || !r.name.split('.').all(is_identifier)
    {
        let op = r.op;
        return Err(wrong(
            r,
            &format!("its name must be `{op}`, or `{op}.` and words of letters, digits and `_`"),
        ));
    }
    if !names.insert(r.name) {
        return Err(wrong(r, "another row has this name"));
    }
    let mut words = HashSet::new();
    let operands = r.inputs.iter().chain(r.outputs).map(|o| o.name);
    if let Some(n) =
        operands.chain(r.params.iter().map(|p| p.name)).find(|n| !is_identifier(n) || !words.insert(*n))
    {
        return Err(wrong(
            r,
            &format!(
                "operands and parameters have names of letters, digits and `_`, each one of its own; `{n}` is not"
            ),
        ));
    }
    if r.outputs.is_empty() {
        return Err(wrong(r, "it lists no result"));
    }
    let many = |specs: &[OperandSpec]| specs.iter().any(|s| !matches!(s.count, Count::One | Count::Optional));
    let there = |i: usize, specs: &[OperandSpec]| i < specs.len() || many(specs);
    if let Some((i, o)) = r.alias.iter().find(|(i, o)| !there(*i, r.inputs) || !there(*o, r.outputs)) {
        return Err(wrong(r, &format!("`alias` pairs input {i} with result {o}, which are not both there")));
    }
    if !r.scratch.is_empty() {
        formula(r, "scratch", r.scratch)?;
    }
    Ok(())
}

/// What a row for GPUs must keep to beside.
#[cfg(feature = "gpu")]
fn gpu_row(r: &GpuRow) -> Result<()> {
    let k = &r.row;
    if !r.group.is_power_of_two() || !(32..=1024).contains(&r.group) {
        return Err(wrong(k, &format!("groups have 32, 64, … or 1024 items, not {}", r.group)));
    }
    if let Some(c) = r.constants.iter().find(|c| k.params.iter().all(|p| p.name != **c)) {
        return Err(wrong(k, &format!("the constant `{c}` is none of its parameters")));
    }
    let packed = k.inputs.iter().chain(k.outputs).any(|o| o.packing.is_some());
    if r.exprs.is_some() || r.shared != 0 || r.needs.is_some() || packed {
        let what = "scalar expressions, packed weights, `shared` and `needs`";
        return Err(wrong(k, &format!("{what} belong to built-in rows")));
    }
    if !["KERNEL", "OPERANDS"].iter().all(|w| r.source.contains(w)) {
        return Err(wrong(k, "its text has no `KERNEL { OPERANDS; … }`"));
    }
    formula(k, "grid", r.grid)
}

/// Runs every case of the op `name` of `options.registry` on `options.device`, with `options.kernels`, against its reference (or the
/// expansion that specifies it), and the reference against the results that a case states; gives how many cases there are.
///
/// # Errors
/// [`Error::Name`] for an op that is not there, [`Error::Device`] for a case that fails, with its name and what differs; what opening
/// the device and the kernels' rows give.
pub fn check_op(name: &str, options: &CompileOptions) -> Result<usize> {
    let opened = device::open(&options.device, options.cache.as_deref(), options.threads)?;
    let registry = options.registry.clone().unwrap_or_else(frit_ops::registry);
    let op =
        registry.get(name).ok_or_else(|| Error::name(format!("there is no op `{name}` in the registry")))?;
    options.kernels.check(&registry, &opened.backend.target())?;
    let backend = opened.backend.with(&options.kernels);
    let (target, cases) = (backend.target(), (op.cases)());
    for c in &cases {
        cases::run(&registry, &backend, &target, name, c).map_err(|why| {
            let message = format!("{}: {name}/{}: {why}", opened.spec, c.name);
            Error::Device { message, source: None }
        })?;
    }
    Ok(cases.len())
}
