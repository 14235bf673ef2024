//! A device that only keeps the texts of the kernels it is asked to build. It runs nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frit_gpu::GpuError;
use frit_gpu::driver::{
    BufferId, DeviceInfo, Dialect, Driver, Features, KernelId, KernelSource, SegmentId, StepTime, Submission,
    TicketId,
};
use frit_gpu::launch::{Launch, Span};

/// The recording device.
pub struct Recorder {
    info: DeviceInfo,
    texts: Mutex<Vec<KernelSource>>,
}

impl Recorder {
    /// A device that takes Metal's language, as a Mac with Apple silicon would describe itself.
    pub fn metal() -> Arc<Recorder> {
        let info = DeviceInfo {
            api: "metal",
            name: "a recorder".into(),
            vendor: String::new(),
            driver: String::new(),
            dialect: Dialect::Metal,
            memory: 16 << 30,
            max_buffer: 8 << 30,
            shared_memory: 32 << 10,
            max_group: 1024,
            units: 16,
            align: 256,
            features: Features { f64: false, unified_memory: true, host: false },
        };
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
