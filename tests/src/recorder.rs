//! A device that only keeps the texts of the kernels it is asked to build. It runs nothing.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frit_compile::compile;
use frit_gpu::GpuError;
use frit_gpu::catalog;
use frit_gpu::device::Device;
use frit_gpu::driver::HostData;
use frit_gpu::driver::{
    BufferId, DeviceInfo, Dialect, Driver, Features, KernelId, KernelSource, SegmentId, StepTime, Submission,
    TicketId,
};
use frit_gpu::executor::Executable;
use frit_gpu::launch::{Launch, Span};
use frit_ir::schedule::Step;
use frit_ir::target::RowId;
use frit_ops::case_graph;

use crate::check;

/// The recording device.
pub struct Recorder {
    info: DeviceInfo,
    texts: Mutex<Vec<KernelSource>>,
}

impl Recorder {
    /// A device that takes Metal's language, as a Mac with Apple silicon would describe itself.
    pub fn metal() -> Arc<Recorder> {
        let features = Features { f64: false, unified_memory: true, ..Features::default() };
        Recorder::new(DeviceInfo {
            api: "metal",
            dialect: Dialect::Metal,
            max_buffer: 8 << 30,
            shared_memory: 32 << 10,
            units: 16,
            align: 256,
            features,
            ..info()
        })
    }

    /// A device that takes CUDA's language and has what Hopper has.
    pub fn hopper() -> Arc<Recorder> {
        let features = Features { f64: true, hopper: true, ..Features::default() };
        Recorder::new(DeviceInfo { features, ..info() })
    }

    fn new(info: DeviceInfo) -> Arc<Recorder> {
        Arc::new(Recorder { info, texts: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<KernelSource>> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The texts asked for since the last call, in order.
    pub fn take(&self) -> Vec<KernelSource> {
        std::mem::take(&mut *self.lock())
    }

    fn refused<T>(&self) -> Result<T, GpuError> {
        Err(GpuError::Invalid { device: self.info.name.clone(), what: "it runs nothing".into() })
    }
}

/// As an H200 describes itself, without its features.
fn info() -> DeviceInfo {
    DeviceInfo {
        api: "cuda",
        name: "a recorder".into(),
        vendor: String::new(),
        driver: String::new(),
        dialect: Dialect::Cuda,
        memory: 16 << 30,
        max_buffer: 16 << 30,
        shared_memory: 48 << 10,
        max_group: 1024,
        units: 132,
        align: 256,
        features: Features::default(),
    }
}

impl Driver for Recorder {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn allocated(&self) -> u64 {
        0
    }
    fn allocate(&self, _: &str, _: u64) -> Result<BufferId, GpuError> {
        Ok(BufferId(0))
    }
    fn free(&self, _: BufferId) {}
    fn write(&self, _: BufferId, _: u64, _: &[u8]) -> Result<(), GpuError> {
        Ok(())
    }
    fn read(&self, _: BufferId, _: u64, _: &mut [u8]) -> Result<(), GpuError> {
        self.refused()
    }
    fn zero(&self, _: Span) -> Result<(), GpuError> {
        Ok(())
    }
    fn build(&self, source: &KernelSource) -> Result<KernelId, GpuError> {
        let mut texts = self.lock();
        texts.push(source.clone());
        Ok(KernelId(texts.len() as u64))
    }
    fn load(&self, _: &KernelSource, _: &[u8]) -> Option<KernelId> {
        None
    }
    fn binary(&self, _: KernelId) -> Option<Vec<u8>> {
        None
    }
    fn encode(&self, _: &[Launch]) -> Result<SegmentId, GpuError> {
        self.refused()
    }
    fn release(&self, _: SegmentId) {}
    fn submit(&self, _: &Submission) -> Result<TicketId, GpuError> {
        self.refused()
    }
    fn wait(&self, _: TicketId, _: &mut [u8]) -> Result<Vec<StepTime>, GpuError> {
        self.refused()
    }
    fn forget(&self, _: TicketId) {}
}

/// What all cases of all ops ask for; cases that the target has no kernel for ask for nothing.
#[derive(Default)]
pub struct Asked {
    /// The texts, each once.
    pub texts: Vec<KernelSource>,
    /// Names of the rows that no text is of. Rows may share texts.
    pub missing: Vec<&'static str>,
    /// Ops that gave no new text.
    pub without: Vec<&'static str>,
}

/// What the cases ask of the device that `recorder` stands for.
///
/// # Panics
/// If a case cannot be built or loaded.
pub fn asked(recorder: &Arc<Recorder>) -> Asked {
    let registry = frit_ops::registry();
    let device = Device::new(recorder.clone(), None);
    let target = catalog::target(device.info());
    let (mut all, mut rows) = (Asked::default(), HashSet::new());
    for op in registry.iter() {
        let before = device.builds();
        for c in (op.cases)() {
            let built = case_graph::build(&registry, op.name, &c)
                .unwrap_or_else(|e| panic!("{}/{}: {e}", op.name, c.name));
            let Ok(compiled) = compile(&built.graph, &registry, &target, &check::options()) else { continue };
            let steps = compiled.schedule.steps.iter();
            let kernels = steps.filter_map(|s| if let Step::Kernel(k) = s { Some(k) } else { None });
            rows.extend(kernels.flat_map(|k| &k.candidates).map(|c| c.row));
            let mut weights = |n: &str| built.values.get(n).map(|t| Arc::new(t.bytes().to_vec()) as HostData);
            Executable::load(compiled.schedule, &mut weights, &device)
                .unwrap_or_else(|e| panic!("{}/{}: {e}", op.name, c.name));
        }
        if device.builds() == before {
            all.without.push(op.name);
        }
        all.texts.extend(recorder.take());
    }
    let numbered = catalog::rows_of(device.info()).enumerate();
    let missing = numbered.filter(|(i, _)| !rows.contains(&RowId(*i as u32)));
    all.missing = missing.map(|(_, r)| r.row.name).collect();
    all
}

/// What `check` finds wrong in `texts`, looked for on as many threads as there are cores.
///
/// # Panics
/// If `check` does.
pub fn faults(
    texts: &[KernelSource],
    check: &(dyn Fn(&KernelSource) -> Result<(), String> + Sync),
) -> Vec<String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let part = |part: &[KernelSource]| {
        let fault = |s: &KernelSource| check(s).err().map(|e| format!("{}: {e}", s.entry));
        part.iter().filter_map(fault).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let parts = texts.chunks(texts.len().div_ceil(threads).max(1));
        let running: Vec<_> = parts.map(|p| scope.spawn(move || part(p))).collect();
        running.into_iter().flat_map(|r| r.join().expect("a checking thread")).collect()
    })
}
