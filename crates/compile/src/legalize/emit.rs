//! Emission of steps: operands laid out as a row takes them, with copies where they are not.

use std::collections::HashMap;
use std::sync::Arc;

use frit_ir::DType;
use frit_ir::attr::Attrs;
use frit_ir::expr::Expr;
use frit_ir::graph::{Type, ValueId};
use frit_ir::op::{Cost, Lowered, NodeCtx, Registry, View};
use frit_ir::schedule::Candidate;
use frit_ir::target::LayoutClass;

use super::Placement;
use super::expand::op_error;
use super::rows::{Call, RowMatch, Rows, print_guard};
use super::views;
use crate::CompileError;

/// Ops whose operands are repeated over the result's shape and merged: their kernels see points, not axes.
const POINTWISE: [&str; 2] = ["expr", "copy"];
const MAX_RANK: usize = 8;

/// What memory a storage is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Home {
    /// A parameter or constant.
    Weight(ValueId),
    State(u32),
    Input(u32),
    Output(u32),
    Arena,
}

/// Memory of its own: a buffer of a region, or a transient value.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    pub name: Arc<str>,
    pub home: Home,
    pub ty: Type,
    /// The newest version: 0 is what the run finds there, each writer adds one.
    pub version: u32,
}

/// Where a value lies: a window onto one version of a storage.
#[derive(Clone, Debug)]
pub(super) struct Loc {
    pub storage: u32,
    pub version: u32,
    pub dtype: DType,
    pub view: View,
}

impl Loc {
    pub fn ty(&self) -> Type {
        Type { dtype: self.dtype, shape: self.view.dims.clone() }
    }
}

/// An operand of a step before regions are known.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub loc: Loc,
    pub packing: Option<&'static str>,
}

/// A step before regions are known.
#[derive(Clone, Debug)]
pub(super) struct Proto {
    pub name: Arc<str>,
    pub candidates: Vec<Candidate>,
    pub operands: Vec<Option<Access>>,
    pub inputs: usize,
    pub exprs: Vec<Arc<Expr>>,
    pub cost: Cost,
    pub aliases: Vec<(usize, usize)>,
}

impl Proto {
    /// Locations read.
    pub fn reads(&self) -> impl Iterator<Item = &Loc> {
        self.operands[..self.inputs].iter().flatten().map(|a| &a.loc)
    }

    /// Locations written.
    pub fn writes(&self) -> impl Iterator<Item = &Loc> {
        self.operands[self.inputs..].iter().flatten().map(|a| &a.loc)
    }
}

/// The steps and storages made so far.
pub(super) struct Emitter<'a, 'r> {
    pub rows: &'r mut Rows<'a>,
    pub registry: &'r Registry,
    pub storages: Vec<Storage>,
    pub steps: Vec<Proto>,
    pub placements: Vec<Placement>,
    /// Dense copies made of views, by storage and version.
    pub copies: HashMap<(u32, u32), Vec<(View, Loc)>>,
}

/// A node to emit: results are given as locations already.
pub(super) struct Job<'a> {
    pub name: Arc<str>,
    pub op: &'a str,
    pub inputs: Vec<Option<Loc>>,
    pub outputs: Vec<Loc>,
    pub lowered: &'a Lowered,
    pub rows: &'a [RowMatch],
    pub cost: Cost,
    /// Values copied before, for the report.
    pub copies: Vec<String>,
    pub origin: Option<String>,
}

impl<'a> Emitter<'a, '_> {
    /// A new storage.
    pub fn storage(&mut self, name: &Arc<str>, home: Home, ty: Type) -> u32 {
        self.storages.push(Storage { name: name.clone(), home, ty, version: 0 });
        self.storages.len() as u32 - 1
    }

    /// The location of the next version of a whole storage.
    pub fn next_version(&mut self, storage: u32) -> Loc {
        let s = &mut self.storages[storage as usize];
        s.version += 1;
        Loc { storage, version: s.version, dtype: s.ty.dtype, view: View::dense(&s.ty.shape) }
    }

    /// A new transient value.
    pub fn transient(&mut self, name: &Arc<str>, ty: Type) -> Loc {
        let s = self.storage(name, Home::Arena, ty);
        self.next_version(s)
    }

    /// Whether `loc` is the whole of its storage.
    pub fn is_whole(&self, loc: &Loc) -> bool {
        let s = &self.storages[loc.storage as usize];
        views::is_whole(self.rows.symbols, &loc.view, &s.ty.elements())
    }

    /// Appends a copy of `from` into `to` and gives `to`.
    pub fn copy(&mut self, from: &Loc, to: Loc) -> Result<Loc, CompileError> {
        let name = self.storages[to.storage as usize].name.clone();
        let def = self
            .registry
            .get("copy")
            .ok_or_else(|| CompileError::UnknownOp { node: name.to_string(), op: "copy".into() })?;
        let (attrs, ty) = (Attrs::new(), from.ty());
        let (inputs, outputs) = ([Some(&ty)], [ty.clone()]);
        let ctx = NodeCtx { attrs: &attrs, inputs: &inputs, outputs: &outputs };
        let lowered = (def.lower)(&ctx).map_err(op_error(name.to_string(), "copy"))?;
        let call =
            Call { op: "copy", inputs: &inputs, params: &[false], outputs: &outputs, lowered: &lowered };
        let rows = self.rows.matches(&call)?;
        // The result may be stated in another shape of the same elements.
        let mut out = to.clone();
        out.view = View { offset: to.view.offset.clone(), ..View::dense(&ty.shape) };
        let job = Job {
            name,
            op: "copy",
            inputs: vec![Some(from.clone())],
            outputs: vec![out],
            lowered: &lowered,
            rows: &rows,
            cost: (def.cost)(&ctx),
            copies: Vec::new(),
            origin: None,
        };
        self.emit(job)?;
        Ok(to)
    }

    /// A dense transient copy of `from`, shared by all who ask for one.
    pub fn dense_copy(&mut self, from: &Loc) -> Result<Loc, CompileError> {
        let key = (from.storage, from.version);
        let made = self.copies.get(&key).and_then(|all| all.iter().find(|c| c.0 == from.view));
        if let Some((_, copy)) = made {
            return Ok(copy.clone());
        }
        let copy = self.fresh_copy(from)?;
        self.copies.entry(key).or_default().push((from.view.clone(), copy.clone()));
        Ok(copy)
    }

    /// A dense transient copy of `from` that nobody else reads.
    pub fn fresh_copy(&mut self, from: &Loc) -> Result<Loc, CompileError> {
        let name: Arc<str> = format!("{}.copy", self.storages[from.storage as usize].name).into();
        let to = self.transient(&name, from.ty());
        self.copy(from, to)
    }

    /// Appends the step of `job`, copying operands that no row takes as they lie.
    pub fn emit(&mut self, mut job: Job) -> Result<(), CompileError> {
        self.repeat_operands(&mut job);
        let laid = self.laid_out(&job);
        let mut chain = self.rows.choose(job.rows, &|m| self.misfits(m, &laid).next().is_none());
        let mut laid = laid;
        if chain.is_none() {
            chain = self.rows.choose(job.rows, &|_| true);
            let rows = chain.as_deref().unwrap_or_default();
            let mut wrong: Vec<usize> = rows.iter().flat_map(|m| self.misfits(m, &laid)).collect();
            wrong.sort_unstable();
            wrong.dedup();
            self.copy_operands(&mut job, &wrong)?;
            laid = self.laid_out(&job);
        }
        if let Some(rank) = laid.rank().filter(|r| *r > MAX_RANK) {
            let strided: Vec<usize> = (0..job.inputs.len()).filter(|i| !self.is_dense(&job, *i)).collect();
            if !POINTWISE.contains(&job.op) || job.op == "copy" || strided.is_empty() {
                return Err(CompileError::Rank { node: job.name.to_string(), op: job.op.into(), rank });
            }
            self.copy_operands(&mut job, &strided)?;
            return self.emit(job);
        }
        match chain {
            Some(chain) => self.push(job, laid, &chain),
            None => Err(self.no_row(&job)),
        }
    }

    fn is_dense(&self, job: &Job, input: usize) -> bool {
        job.inputs[input].as_ref().is_none_or(|l| views::is_dense(self.rows.symbols, &l.view))
    }

    fn no_row(&self, job: &Job) -> CompileError {
        let types: Vec<Option<Type>> = job.inputs.iter().map(|l| l.as_ref().map(Loc::ty)).collect();
        let inputs: Vec<Option<&Type>> = types.iter().map(Option::as_ref).collect();
        let outputs: Vec<Type> = job.outputs.iter().map(Loc::ty).collect();
        let params = vec![true; inputs.len()];
        let call =
            Call { op: job.op, inputs: &inputs, params: &params, outputs: &outputs, lowered: job.lowered };
        self.rows.no_row(&job.name, &call, "takes another layout of an operand")
    }

    /// For pointwise ops: operands repeated over the result's shape.
    fn repeat_operands(&self, job: &mut Job) {
        if !POINTWISE.contains(&job.op) {
            return;
        }
        let Some(shape) = job.outputs.first().map(|o| o.view.dims.clone()) else { return };
        for l in job.inputs.iter_mut().flatten().filter(|l| l.view.dims != shape) {
            l.view = views::broadcast(self.rows.symbols, &l.view, &shape);
        }
    }

    /// The views of the operands as the kernel will see them.
    fn laid_out(&self, job: &Job) -> Laid {
        let all = job.inputs.iter().flatten().chain(&job.outputs);
        let mut list: Vec<View> = all.map(|l| l.view.clone()).collect();
        if POINTWISE.contains(&job.op) {
            views::merge(self.rows.symbols, &mut list);
        } else {
            list.iter_mut().for_each(|v| views::normalize(self.rows.symbols, v));
        }
        let mut list = list.into_iter();
        let inputs = job.inputs.iter().map(|l| l.as_ref().and_then(|_| list.next())).collect();
        Laid { inputs, outputs: list.collect() }
    }

    /// The operands that row `m` does not take as they lie.
    fn misfits<'s>(&'s self, m: &'s RowMatch, laid: &'s Laid) -> impl Iterator<Item = usize> + 's {
        let specs = self.rows.target.row(m.row).inputs;
        m.inputs.iter().zip(&laid.inputs).enumerate().filter_map(move |(i, (place, view))| {
            let (spec, view) = (&specs[*place as usize], view.as_ref()?);
            let any = spec.packing.is_some() || spec.layout == LayoutClass::Strided;
            (!any && views::class(self.rows.symbols, view) > spec.layout).then_some(i)
        })
    }

    fn copy_operands(&mut self, job: &mut Job, which: &[usize]) -> Result<(), CompileError> {
        // A copy whose own operand had to be copied first would never end.
        if job.op == "copy" && !which.is_empty() {
            return Err(self.no_row(job));
        }
        for i in which {
            let Some(from) = job.inputs[*i].clone() else { continue };
            job.copies.push(self.storages[from.storage as usize].name.to_string());
            job.inputs[*i] = Some(self.dense_copy(&from)?);
        }
        Ok(())
    }

    fn push(&mut self, job: Job, laid: Laid, chain: &[RowMatch]) -> Result<(), CompileError> {
        let target = self.rows.target;
        let first = &chain[0];
        let specs = target.row(first.row).inputs;
        let mut operands: Vec<Option<Access>> = Vec::with_capacity(first.inputs.len() + job.outputs.len());
        let mut sources = job.inputs.into_iter().zip(laid.inputs);
        for place in &first.inputs {
            let packing = specs[*place as usize].packing;
            let (loc, view) = sources.next().unwrap_or((None, None));
            operands.push(loc.zip(view).map(|(l, view)| Access { loc: Loc { view, ..l }, packing }));
        }
        let mut results = job.outputs.into_iter().zip(laid.outputs);
        for _ in &first.outputs {
            let next = results.next();
            operands.push(next.map(|(l, view)| Access { loc: Loc { view, ..l }, packing: None }));
        }
        let mut candidates = Vec::with_capacity(chain.len());
        for m in chain {
            candidates.push(self.rows.candidate(m, job.op, job.lowered)?);
        }
        let when = |c: &Candidate| c.guards.iter().map(print_guard).collect::<Vec<_>>().join(" and ");
        self.placements.push(Placement {
            node: job.name.to_string(),
            op: job.op.into(),
            rows: candidates.iter().map(|c| (target.row(c.row).name.into(), when(c))).collect(),
            copies: job.copies,
            expanded_from: job.origin,
        });
        self.steps.push(Proto {
            name: job.name,
            candidates,
            operands,
            inputs: first.inputs.len(),
            exprs: job.lowered.exprs.clone(),
            cost: job.cost,
            aliases: aliases(self.rows, chain),
        });
        Ok(())
    }
}

/// Operand pairs (input, result) of the step that every row of the chain lets share memory.
fn aliases(rows: &Rows, chain: &[RowMatch]) -> Vec<(usize, usize)> {
    let (first, rest) = (rows.target.row(chain[0].row), &chain[1..]);
    let (inputs, outputs) = (chain[0].inputs.len(), chain[0].outputs.len());
    let all = |pair| rest.iter().all(|m| rows.target.row(m.row).alias.contains(pair));
    let there = |(i, o): &&(usize, usize)| *i < inputs && *o < outputs;
    first.alias.iter().filter(there).filter(|p| all(p)).map(|(i, o)| (*i, inputs + o)).collect()
}

/// Views of the operands as a kernel sees them.
struct Laid {
    inputs: Vec<Option<View>>,
    outputs: Vec<View>,
}

impl Laid {
    fn rank(&self) -> Option<usize> {
        self.inputs.iter().flatten().chain(&self.outputs).map(|v| v.dims.len()).max()
    }
}
