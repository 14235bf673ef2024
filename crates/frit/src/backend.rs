//! The backends behind one face: what is loaded and what runs, on the CPU or on a GPU.

use std::sync::Arc;

use frit_compile::Activations;
use frit_cpu::executor::{Executable as CpuExecutable, Session as CpuSession, WeightData};
use frit_cpu::host::HostKernel;
use frit_cpu::isa::Isa;
use frit_cpu::pool::Pool;
#[cfg(feature = "gpu")]
use frit_gpu::graphs::{GraphMode, GraphOptions};
#[cfg(feature = "gpu")]
use frit_gpu::{
    device::Device as Gpu, executor::Executable as GpuExecutable, session::Session as GpuSession,
};
use frit_ir::schedule::Schedule;
use frit_ir::target::Target;
use smallvec::SmallVec;

use crate::custom::Kernels;
#[cfg(feature = "gpu")]
use crate::error::Error;
use crate::error::Result;
use crate::trace::Trace;

/// Extents of a value.
pub(crate) type Dims = SmallVec<[usize; 8]>;

/// `$body` for whichever backend it is: their types have methods of the same names.
macro_rules! either {
    ($on:expr, $kind:ident::$x:ident => $body:expr) => {
        match $on {
            $kind::Cpu($x) => $body,
            #[cfg(feature = "gpu")]
            $kind::Gpu($x) => $body,
        }
    };
}

/// What a graph is compiled for and runs on.
#[derive(Clone)]
pub(crate) enum Backend {
    /// The CPU, through this pool, with kernels of the user's.
    Cpu(Arc<Pool>, Vec<&'static HostKernel>),
    /// A GPU.
    #[cfg(feature = "gpu")]
    Gpu(Arc<Gpu>),
}

impl Backend {
    /// The device as the compiler sees it.
    pub fn target(&self) -> Target {
        match self {
            Backend::Cpu(pool, host) => frit_cpu::target::with_host(pool.threads(), host),
            #[cfg(feature = "gpu")]
            Backend::Gpu(gpu) => gpu.target(),
        }
    }

    /// The same with kernels of the user's before its own.
    pub fn with(self, kernels: &Kernels) -> Backend {
        match self {
            Backend::Cpu(pool, _) => Backend::Cpu(pool, kernels.host.clone()),
            #[cfg(feature = "gpu")]
            Backend::Gpu(gpu) if !kernels.device.is_empty() => Backend::Gpu(gpu.with_rows(&kernels.device)),
            #[cfg(feature = "gpu")]
            gpu => gpu,
        }
    }

    /// How quantized weights read their activations unless it is said.
    pub fn activations(&self) -> Activations {
        match self {
            Backend::Cpu(..) => Activations::Q16,
            #[cfg(feature = "gpu")]
            Backend::Gpu(_) => Activations::F32,
        }
    }

    /// Threads of the pool; none on a GPU.
    pub fn threads(&self) -> usize {
        match self {
            Backend::Cpu(pool, _) => pool.threads(),
            #[cfg(feature = "gpu")]
            Backend::Gpu(_) => 0,
        }
    }

    /// Loads a schedule for [`Backend::target`] with its weights.
    ///
    /// # Errors
    /// `graphs` on a device that has no graph compiler; what the device says.
    pub fn load(
        &self,
        schedule: Schedule,
        weights: &mut dyn FnMut(&str) -> Option<WeightData>,
        #[cfg(feature = "gpu")] graphs: GraphOptions,
    ) -> Result<Executable> {
        Ok(match self {
            #[cfg(feature = "gpu")]
            Backend::Cpu(..) if graphs.mode != GraphMode::Off => {
                let message = "the CPU has no graph compiler; `graphs` is for Metal".into();
                return Err(Error::Unsupported { message });
            }
            Backend::Cpu(pool, host) => {
                let (pool, isa) = (pool.clone(), Isa::detect());
                Executable::Cpu(CpuExecutable::with_host(schedule, weights, pool, isa, host)?)
            }
            #[cfg(feature = "gpu")]
            Backend::Gpu(gpu) => Executable::Gpu(GpuExecutable::load_with(schedule, weights, gpu, graphs)?),
        })
    }
}

/// A schedule with its weights, ready to run: cheap to clone.
#[derive(Clone)]
pub(crate) enum Executable {
    /// On the CPU.
    Cpu(Arc<CpuExecutable>),
    /// On a GPU.
    #[cfg(feature = "gpu")]
    Gpu(Arc<GpuExecutable>),
}

impl Executable {
    /// The schedule.
    pub fn schedule(&self) -> &Schedule {
        either!(self, Executable::e => e.schedule())
    }

    /// What it runs on.
    pub fn backend(&self) -> Backend {
        match self {
            Executable::Cpu(e) => Backend::Cpu(e.pool().clone(), e.host().to_vec()),
            #[cfg(feature = "gpu")]
            Executable::Gpu(e) => Backend::Gpu(e.device().clone()),
        }
    }

    /// Position of a symbol in the sizes of a run.
    pub fn symbol(&self, name: &str) -> Result<usize> {
        Ok(either!(self, Executable::e => e.symbol(name)?))
    }

    /// Bytes of weights that it owns, and that it shares with files or tensors.
    pub fn weight_bytes(&self) -> (usize, usize) {
        match self {
            Executable::Cpu(e) => e.weight_bytes(),
            #[cfg(feature = "gpu")]
            Executable::Gpu(e) => (usize::try_from(e.weight_bytes()).unwrap_or(usize::MAX), 0),
        }
    }

    /// A session with its states zeroed, in which the symbols `fixed` keep these values.
    pub fn session(&self, fixed: &[(&str, i64)]) -> Result<Session> {
        Ok(match self {
            Executable::Cpu(e) => Session::Cpu(Box::new(CpuSession::new(e, fixed)?)),
            #[cfg(feature = "gpu")]
            Executable::Gpu(e) => Session::Gpu(Box::new(GpuSession::new(e, fixed)?)),
        })
    }
}

/// One user of an [`Executable`].
pub(crate) enum Session {
    /// On the CPU.
    Cpu(Box<CpuSession>),
    /// On a GPU.
    #[cfg(feature = "gpu")]
    Gpu(Box<GpuSession>),
}

impl Session {
    /// Another session with the same fixed symbols, its states zeroed.
    pub fn fresh(&self) -> Result<Session> {
        Ok(match self {
            Session::Cpu(s) => Session::Cpu(Box::new(s.fresh()?)),
            #[cfg(feature = "gpu")]
            Session::Gpu(s) => Session::Gpu(Box::new(s.fresh()?)),
        })
    }

    /// What it runs.
    pub fn executable(&self) -> Executable {
        match self {
            Session::Cpu(s) => Executable::Cpu(s.executable().clone()),
            #[cfg(feature = "gpu")]
            Session::Gpu(s) => Executable::Gpu(s.executable().clone()),
        }
    }

    /// The schedule.
    pub fn schedule(&self) -> &Schedule {
        either!(self, Session::s => s.executable().schedule())
    }

    /// Sets the symbol at `slot` for the next runs.
    pub fn set_size(&mut self, slot: usize, value: i64) -> Result<()> {
        either!(self, Session::s => s.set_size(slot, value)?);
        Ok(())
    }

    /// The value of the symbol at `slot` for the next runs.
    pub fn size(&self, slot: usize) -> i64 {
        either!(self, Session::s => s.size(slot))
    }

    /// Extents of input `slot` at the sizes of the next run.
    pub fn input_dims(&mut self, slot: usize) -> Result<Dims> {
        Ok(either!(self, Session::s => s.input_dims(slot)?.collect()))
    }

    /// Copies `bytes` into input `slot`.
    pub fn set_input(&mut self, slot: usize, bytes: &[u8]) -> Result<()> {
        either!(self, Session::s => s.set_input(slot, bytes)?);
        Ok(())
    }

    /// Runs every step once and waits for the results.
    pub fn run(&mut self) -> Result<()> {
        either!(self, Session::s => s.run()?);
        Ok(())
    }

    /// The same, timed.
    pub fn run_timed(&mut self) -> Result<Trace> {
        let times = either!(self, Session::s => s.run_timed()?);
        Ok(Trace::of(self, times))
    }

    /// Extents of output `slot` at the sizes of the last run.
    pub fn output_dims(&self, slot: usize) -> Dims {
        either!(self, Session::s => s.output_dims(slot).collect())
    }

    /// The bytes of output `slot` that the last run left, aligned for their type.
    pub fn output(&self, slot: usize) -> &[u8] {
        either!(self, Session::s => s.output(slot))
    }

    /// Extents of state `slot`.
    pub fn state_dims(&self, slot: usize) -> Result<Vec<usize>> {
        Ok(either!(self, Session::s => s.state_dims(slot)?))
    }

    /// Bytes of state `slot`.
    pub fn state_bytes(&self, slot: usize) -> usize {
        match self {
            Session::Cpu(s) => s.state(slot).len(),
            #[cfg(feature = "gpu")]
            Session::Gpu(s) => s.state_bytes(slot),
        }
    }

    /// Copies the bytes of state `slot` from `offset` on, which must be there.
    pub fn read_state(&self, slot: usize, offset: usize, bytes: &mut [u8]) -> Result<()> {
        match self {
            Session::Cpu(s) => bytes.copy_from_slice(&s.state(slot)[offset..offset + bytes.len()]),
            #[cfg(feature = "gpu")]
            Session::Gpu(s) => s.read_state(slot, offset, bytes)?,
        }
        Ok(())
    }

    /// Copies `bytes` into state `slot` from `offset` on, where there must be room.
    pub fn write_state(&mut self, slot: usize, offset: usize, bytes: &[u8]) -> Result<()> {
        match self {
            Session::Cpu(s) => s.state_mut(slot)[offset..offset + bytes.len()].copy_from_slice(bytes),
            #[cfg(feature = "gpu")]
            Session::Gpu(s) => s.write_state(slot, offset, bytes)?,
        }
        Ok(())
    }

    /// Bytes it holds: (arena, states, inputs and outputs).
    pub fn memory(&self) -> (usize, usize, usize) {
        match self {
            Session::Cpu(s) => s.memory(),
            #[cfg(feature = "gpu")]
            Session::Gpu(s) => {
                let (arena, states, ports) = s.memory();
                let size = |v| usize::try_from(v).unwrap_or(usize::MAX);
                (size(arena), size(states), size(ports))
            }
        }
    }
}
