//! A driver around a driver that takes work for the vendor's graph compiler and library, and carries it out on the host by
//! the interpreter of its calls, in the memory of the driver inside.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frit_gpu::GpuError;
use frit_gpu::driver::{
    BufferId, DeviceInfo, Driver, KernelId, KernelSource, SegmentId, StepTime, Submission, TicketId,
};
use frit_gpu::launch::{Launch, MatrixProduct, Span, VendorCall, VendorWork};

use crate::calls;

/// Numbers of segments from which on they are this driver's.
const OWN: u64 = 1 << 62;

/// What stands where a program does not look.
const POISON: u8 = 0xff;

/// The driver.
pub struct Interpreted {
    inner: Arc<dyn Driver>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    calls: BTreeMap<SegmentId, VendorCall>,
    times: BTreeMap<TicketId, Vec<StepTime>>,
}

impl Interpreted {
    /// Around `inner`.
    pub fn new(inner: Arc<dyn Driver>) -> Interpreted {
        Interpreted { inner, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The maps are whole after every call; a panic elsewhere does not make them wrong.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calls that are kept.
    pub fn calls(&self) -> Vec<VendorCall> {
        self.lock().calls.values().cloned().collect()
    }

    fn fault(&self, what: String) -> GpuError {
        GpuError::Invalid { device: self.info().name.clone(), what }
    }

    /// The bytes of a span from `skip` on.
    fn bytes(&self, s: &Span, skip: u64) -> Result<Vec<u8>, GpuError> {
        let mut bytes = vec![POISON; s.bytes as usize];
        self.inner.read(s.buffer, s.offset + skip, &mut bytes[skip as usize..])?;
        Ok(bytes)
    }

    fn carry_out(&self, c: &VendorCall) -> Result<(), GpuError> {
        let results = match &c.work {
            VendorWork::Graph(program, constants) => {
                let feed = |(s, seen): (&Span, Span)| self.bytes(s, seen.offset - s.offset);
                let feeds = c.reads.iter().zip(c.looks_at()).map(feed).collect::<Result<Vec<_>, _>>()?;
                let constants: Vec<Vec<u8>> = constants.iter().map(|d| (**d).as_ref().to_vec()).collect();
                calls::run(program, &feeds, &constants).map_err(|why| self.fault(why))?
            }
            VendorWork::Product(p) => {
                let before = self.bytes(&c.writes[0], c.writes[0].bytes)?;
                vec![multiply(p, &self.bytes(&c.reads[0], 0)?, &self.bytes(&c.reads[1], 0)?, before)]
            }
        };
        for (s, bytes) in c.writes.iter().zip(&results) {
            if s.bytes != bytes.len() as u64 {
                return Err(self.fault(format!("{} bytes of results for {s:?}", bytes.len())));
            }
            if c.looks_at().any(|r| r.overlaps(s)) {
                return Err(self.fault(format!("{s:?} is read and written by one graph")));
            }
            self.inner.write(s.buffer, s.offset, bytes)?;
        }
        for (from, to) in &c.copies {
            let bytes = self.bytes(from, 0)?;
            self.inner.write(to.buffer, to.offset, &bytes)?;
        }
        Ok(())
    }
}

/// The bytes of a product in f32, sums in order.
fn multiply(p: &MatrixProduct, left: &[u8], right: &[u8], mut out: Vec<u8>) -> Vec<u8> {
    let at = |bytes: &[u8], row_bytes: u64, row: usize, column: usize| {
        let from = row * row_bytes as usize + 4 * column;
        f32::from_le_bytes([bytes[from], bytes[from + 1], bytes[from + 2], bytes[from + 3]])
    };
    let [a, b, c] = p.row_bytes;
    for i in 0..p.m {
        for j in 0..p.n {
            let sum = (0..p.k).fold(0f32, |sum, k| {
                let (row, column) = if p.transposed { (j, k) } else { (k, j) };
                sum + at(left, a, i, k) * at(right, b, row, column)
            });
            let to = i * c as usize + 4 * j;
            out[to..to + 4].copy_from_slice(&sum.to_le_bytes());
        }
    }
    out
}

impl Driver for Interpreted {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn allocated(&self) -> u64 {
        self.inner.allocated()
    }

    fn allocate(&self, what: &str, bytes: u64) -> Result<BufferId, GpuError> {
        self.inner.allocate(what, bytes)
    }

    fn free(&self, buffer: BufferId) {
        self.inner.free(buffer);
    }

    fn write(&self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<(), GpuError> {
        self.inner.write(buffer, offset, bytes)
    }

    fn read(&self, buffer: BufferId, offset: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.inner.read(buffer, offset, bytes)
    }

    fn zero(&self, span: Span) -> Result<(), GpuError> {
        self.inner.zero(span)
    }

    fn build(&self, source: &KernelSource) -> Result<KernelId, GpuError> {
        self.inner.build(source)
    }

    fn load(&self, source: &KernelSource, binary: &[u8]) -> Option<KernelId> {
        self.inner.load(source, binary)
    }

    fn binary(&self, kernel: KernelId) -> Option<Vec<u8>> {
        self.inner.binary(kernel)
    }

    fn encode(&self, launches: &[Launch]) -> Result<SegmentId, GpuError> {
        self.inner.encode(launches)
    }

    fn vendor(&self) -> Result<(), GpuError> {
        Ok(())
    }

    fn encode_vendor(&self, call: &VendorCall) -> Result<SegmentId, GpuError> {
        let mut state = self.lock();
        state.next += 1;
        let id = SegmentId(OWN + state.next);
        state.calls.insert(id, call.clone());
        Ok(id)
    }

    fn release(&self, segment: SegmentId) {
        if self.lock().calls.remove(&segment).is_none() {
            self.inner.release(segment);
        }
    }

    fn submit(&self, run: &Submission) -> Result<TicketId, GpuError> {
        if run.segments.iter().all(|s| s.0 < OWN) {
            return self.inner.submit(run);
        }
        let mut times = Vec::new();
        let mut part = |upload, segments: &[SegmentId]| -> Result<(), GpuError> {
            let part = Submission { upload, segments, downloads: &[], timed: run.timed };
            times.extend(self.inner.wait(self.inner.submit(&part)?, &mut [])?);
            Ok(())
        };
        part(run.upload, &[])?;
        for s in run.segments {
            let call = self.lock().calls.get(s).cloned();
            match call {
                Some(c) => self.carry_out(&c)?,
                None => part(None, std::slice::from_ref(s))?,
            }
        }
        let ticket = self.inner.submit(&Submission { upload: None, segments: &[], ..*run })?;
        self.lock().times.insert(ticket, times);
        Ok(ticket)
    }

    fn wait(&self, ticket: TicketId, output: &mut [u8]) -> Result<Vec<StepTime>, GpuError> {
        let mut times = self.lock().times.remove(&ticket).unwrap_or_default();
        times.extend(self.inner.wait(ticket, output)?);
        Ok(times)
    }

    fn forget(&self, ticket: TicketId) {
        self.lock().times.remove(&ticket);
        self.inner.forget(ticket);
    }
}
