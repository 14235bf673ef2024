//! A loaded model on a device ([`Executable`]): its schedule as tables, its kernels built, its weights there.

use std::sync::Arc;

use frit_ir::Sym;
use frit_ir::schedule::{Region, Schedule, Weight, WeightSource};

use crate::bind::Tables;
use crate::device::Device;
use crate::driver::HostData;
use crate::error::GpuError;
use crate::graphs::{Frame, GraphMode, GraphOptions, Plan, Sight, concrete, plan};
use crate::launch::Span;
use crate::memory::Buffer;

/// A schedule with its weights, ready to run. Sessions share it.
pub struct Executable {
    pub(crate) device: Arc<Device>,
    pub(crate) tables: Tables,
    slabs: Vec<Buffer>,
    schedule: Schedule,
    graphs: GraphOptions,
    /// What graphs may take as constants: each weight's bytes, none beyond the cap.
    constants: Vec<Option<HostData>>,
}

impl Executable {
    /// Loads `schedule`: builds its kernels, asks `weights` for every parameter by name and brings them to the device.
    ///
    /// # Errors
    /// A schedule for another target; a kernel that does not build; a weight that is missing or has the wrong size; no
    /// memory.
    pub fn load(
        schedule: Schedule,
        weights: &mut dyn FnMut(&str) -> Option<HostData>,
        device: &Arc<Device>,
    ) -> Result<Arc<Executable>, GpuError> {
        Executable::load_with(schedule, weights, device, GraphOptions::default())
    }

    /// As [`Executable::load`], with parts of the schedule given to the vendor's graph compiler and library.
    ///
    /// # Errors
    /// As [`Executable::load`]; [`GpuError::NoGraphs`] where the device has none; [`GpuError::NotAGraph`] where all was to be
    /// one graph and cannot.
    pub fn load_with(
        schedule: Schedule,
        weights: &mut dyn FnMut(&str) -> Option<HostData>,
        device: &Arc<Device>,
        graphs: GraphOptions,
    ) -> Result<Arc<Executable>, GpuError> {
        let api = device.info().api;
        if schedule.target != api {
            return Err(GpuError::Target { schedule: schedule.target, device: api.into() });
        }
        if graphs.mode != GraphMode::Off {
            device.driver().vendor()?;
        }
        let tables = Tables::new(&schedule, device)?;
        let slab = |bytes: &u64| Buffer::new(device, "the weights", *bytes);
        let slabs = tables.slabs.iter().map(slab).collect::<Result<Vec<_>, _>>()?;
        let mut constants = Vec::new();
        for (w, place) in schedule.weights.iter().zip(&tables.weights) {
            let data = weight_data(w, weights)?;
            let span = slabs[place.slab].span(place.offset, place.bytes);
            if place.bytes > 0 {
                device.driver().write(span.buffer, span.offset, (*data).as_ref())?;
            }
            let may = matches!(graphs.mode, GraphMode::Hybrid | GraphMode::Whole);
            constants.push(Some(data).filter(|_| may && place.bytes <= graphs.constants));
        }
        let exe = Executable { device: device.clone(), tables, slabs, schedule, graphs, constants };
        exe.check_whole()?;
        Ok(Arc::new(exe))
    }

    /// Whether all steps can be one graph, if that was asked for, at the least sizes, which are sure to fit each other: ops and
    /// types are refused here, views that depend on sizes when those are bound.
    fn check_whole(&self) -> Result<(), GpuError> {
        if self.graphs.mode != GraphMode::Whole {
            return Ok(());
        }
        let symbols = self.tables.sizes.symbols();
        let least = |n: &Sym| symbols.iter().find(|(s, ..)| s == n).map(|(_, min, _)| *min);
        let ports = [&self.schedule.states, &self.schedule.inputs, &self.schedule.outputs];
        let port = |kind: usize, n: u32| {
            let bytes = ports[kind].get(n as usize).map(|p| p.ty.bytes().eval(&least));
            bytes.and_then(Result::ok).map_or(0, |n| n.max(0).unsigned_abs())
        };
        let capacity = |region: Region, n: u32| match region {
            Region::Weights => self.weight(n as usize).bytes,
            Region::Arena => self.schedule.memory.arena,
            Region::State => port(0, n),
            Region::Input => port(1, n),
            Region::Output => port(2, n),
        };
        self.plan(&least, &|_| 0, &capacity).map(drop)
    }

    /// The plan for a run: `bind` gives the symbols, `choice` the candidate of each step, `capacity` the bytes of buffers.
    pub(crate) fn plan(
        &self,
        bind: &dyn Fn(&Sym) -> Option<i64>,
        choice: &dyn Fn(usize) -> usize,
        capacity: &dyn Fn(Region, u32) -> u64,
    ) -> Result<Plan, GpuError> {
        let sight = Sight { bind, row: &|id| self.device.row(id), choice };
        let frame = Frame { options: self.graphs, align: self.device.info().align, capacity };
        plan(&concrete(&self.schedule, &sight)?, &frame)
    }

    /// How the vendor's graph compiler is used.
    pub fn graphs(&self) -> GraphOptions {
        self.graphs
    }

    /// The bytes of weight `n` as a constant.
    pub(crate) fn constant(&self, n: u32) -> Option<HostData> {
        self.constants.get(n as usize).cloned().flatten()
    }

    /// The schedule.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// The device that runs it.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Position of the symbol `name` in the sizes of a run.
    ///
    /// # Errors
    /// No such symbol.
    pub fn symbol(&self, name: &str) -> Result<usize, GpuError> {
        Ok(self.tables.sizes.position(name)?)
    }

    /// Bytes of weights on the device.
    pub fn weight_bytes(&self) -> u64 {
        self.slabs.iter().map(|w| w.bytes).sum()
    }

    /// Where weight `n` lies.
    pub(crate) fn weight(&self, n: usize) -> Span {
        let place = &self.tables.weights[n];
        self.slabs[place.slab].span(place.offset, place.bytes)
    }
}

/// The bytes of `w`, as many as its type takes.
fn weight_data(w: &Weight, get: &mut dyn FnMut(&str) -> Option<HostData>) -> Result<HostData, GpuError> {
    let (name, data): (&str, HostData) = match &w.source {
        WeightSource::Param(n) => (n, get(n).ok_or_else(|| GpuError::WeightMissing(n.clone()))?),
        WeightSource::Const(t) => ("a constant", Arc::new(t.bytes().to_vec())),
    };
    let got = (*data).as_ref().len();
    let want = w.ty.bytes().as_const().and_then(|v| usize::try_from(v).ok()).unwrap_or(usize::MAX);
    if got != want {
        return Err(GpuError::WeightBytes { name: name.into(), ty: w.ty.to_string(), want, got });
    }
    Ok(data)
}
