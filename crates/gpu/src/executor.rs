//! A loaded model on a device ([`Executable`]): its schedule as tables, its kernels built, its weights there.

use std::sync::Arc;

use frit_ir::schedule::{Schedule, Weight, WeightSource};

use crate::bind::Tables;
use crate::device::Device;
use crate::driver::HostData;
use crate::error::GpuError;
use crate::launch::Span;
use crate::memory::Buffer;

/// A schedule with its weights, ready to run. Sessions share it.
pub struct Executable {
    pub(crate) device: Arc<Device>,
    pub(crate) tables: Tables,
    slabs: Vec<Buffer>,
    schedule: Schedule,
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
        let api = device.info().api;
        if schedule.target != api {
            return Err(GpuError::Target { schedule: schedule.target, device: api.into() });
        }
        let tables = Tables::new(&schedule, device)?;
        let slab = |bytes: &u64| Buffer::new(device, "the weights", *bytes);
        let slabs = tables.slabs.iter().map(slab).collect::<Result<Vec<_>, _>>()?;
        for (w, place) in schedule.weights.iter().zip(&tables.weights) {
            let data = weight_data(w, weights)?;
            let span = slabs[place.slab].span(place.offset, place.bytes);
            if place.bytes > 0 {
                device.driver().write(span.buffer, span.offset, (*data).as_ref())?;
            }
        }
        Ok(Arc::new(Executable { device: device.clone(), tables, slabs, schedule }))
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
