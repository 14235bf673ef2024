//! A loaded model on a device ([`Executable`]): its schedule as tables, its kernels built, its weights there.

use std::sync::Arc;

use frit_ir::schedule::{Schedule, Weight, WeightSource};

use crate::bind::Tables;
use crate::device::Device;
use crate::driver::HostData;
use crate::error::GpuError;
use crate::memory::Buffer;

/// A schedule with its weights, ready to run. Sessions share it.
pub struct Executable {
    pub(crate) device: Arc<Device>,
    pub(crate) tables: Tables,
    pub(crate) weights: Vec<Buffer>,
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
        let buffers = schedule.weights.iter().map(|w| load_weight(w, weights, device));
        let weights = buffers.collect::<Result<_, _>>()?;
        Ok(Arc::new(Executable { device: device.clone(), tables, weights, schedule }))
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
        self.weights.iter().map(|w| w.bytes).sum()
    }
}

fn load_weight(
    w: &Weight,
    get: &mut dyn FnMut(&str) -> Option<HostData>,
    device: &Arc<Device>,
) -> Result<Buffer, GpuError> {
    let (name, data): (&str, HostData) = match &w.source {
        WeightSource::Param(n) => (n, get(n).ok_or_else(|| GpuError::WeightMissing(n.clone()))?),
        WeightSource::Const(t) => ("a constant", Arc::new(t.bytes().to_vec())),
    };
    let got = (*data).as_ref().len();
    let want = w.ty.bytes().as_const().and_then(|v| usize::try_from(v).ok()).unwrap_or(usize::MAX);
    if got != want {
        return Err(GpuError::WeightBytes { name: name.into(), ty: w.ty.to_string(), want, got });
    }
    Buffer::holding(device, &format!("the weight `{name}`"), &data)
}
