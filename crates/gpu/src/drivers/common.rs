//! What drivers have in common: the numbers they give out, the account of memory, and the checks of what they are handed.
//! Nothing here touches a device.

use std::collections::HashMap;

use crate::driver::{BufferId, DeviceInfo, KernelId, KernelSource, SegmentId, TicketId};
use crate::error::GpuError;
use crate::launch::{Launch, Span};

/// A handle that releases itself.
#[cfg(any(feature = "opencl", feature = "cuda"))]
macro_rules! object {
    ($(#[$doc:meta])* $name:ident $handle:ty, $release:path) => {
        $(#[$doc])*
        pub(super) struct $name(pub $handle);

        // SAFETY: the runtimes take handles from any thread; calls that they do not take from several threads at once are
        // made under the driver's lock.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: the handle is this value's own. A failure leaks it, which nobody could mend.
                let _ = unsafe { $release(self.0) };
            }
        }
    };
}
#[cfg(any(feature = "opencl", feature = "cuda"))]
pub(super) use object;

/// A built kernel with what its launches must keep to.
pub(super) struct Built<K> {
    pub kernel: K,
    group: u32,
    buffers: u32,
}

/// What a driver holds, by number: memory `M`, kernels `K`, segments `S`, tickets `T`. A number is never given out twice.
pub(super) struct State<M, K, S, T> {
    next: u64,
    allocated: u64,
    buffers: HashMap<BufferId, (M, u64)>,
    kernels: HashMap<KernelId, Built<K>>,
    segments: HashMap<SegmentId, S>,
    tickets: HashMap<TicketId, T>,
}

impl<M, K, S, T> Default for State<M, K, S, T> {
    fn default() -> Self {
        State {
            next: 0,
            allocated: 0,
            buffers: HashMap::new(),
            kernels: HashMap::new(),
            segments: HashMap::new(),
            tickets: HashMap::new(),
        }
    }
}

/// The caller handed over something that is not there.
pub(super) fn invalid(info: &DeviceInfo, what: impl Into<String>) -> GpuError {
    GpuError::Invalid { device: info.name.clone(), what: what.into() }
}

/// Copies the results of a run to where they are wanted.
pub(super) fn copy_results(info: &DeviceInfo, from: &[u8], to: &mut [u8]) -> Result<(), GpuError> {
    if from.len() != to.len() {
        return Err(invalid(info, format!("{} bytes of results do not fit {}", from.len(), to.len())));
    }
    to.copy_from_slice(from);
    Ok(())
}

impl<M, K, S, T> State<M, K, S, T> {
    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Bytes of the buffers there are.
    pub fn allocated(&self) -> u64 {
        self.allocated
    }

    /// The error for memory that the device does not have.
    pub fn full(&self, info: &DeviceInfo, what: &str, bytes: u64) -> GpuError {
        let (device, used, total) = (info.name.clone(), self.allocated, info.memory);
        GpuError::OutOfMemory { device, what: what.into(), bytes, used, total }
    }

    /// The size of a new buffer for `bytes` bytes, if there may be one.
    pub fn room(&self, info: &DeviceInfo, what: &str, bytes: u64) -> Result<u64, GpuError> {
        let size = bytes.max(1);
        if size > info.max_buffer {
            let (max, device) = (info.max_buffer, info.name.clone());
            return Err(GpuError::BufferTooLarge { what: what.into(), bytes, max, device });
        }
        // Many drivers allocate on first use: what cannot fit is refused here.
        if self.allocated.saturating_add(size) > info.memory {
            return Err(self.full(info, what, bytes));
        }
        Ok(size)
    }

    /// Takes a buffer of `size` bytes into account.
    pub fn add_buffer(&mut self, memory: M, size: u64) -> BufferId {
        let id = BufferId(self.id());
        self.allocated += size;
        self.buffers.insert(id, (memory, size));
        id
    }

    /// Strikes a buffer off.
    pub fn remove_buffer(&mut self, id: BufferId) -> Option<M> {
        let (memory, size) = self.buffers.remove(&id)?;
        self.allocated -= size;
        Some(memory)
    }

    /// The buffer of `span`, which lies inside it.
    pub fn memory(&self, info: &DeviceInfo, span: Span) -> Result<&M, GpuError> {
        let Some((memory, bytes)) = self.buffers.get(&span.buffer) else {
            return Err(invalid(info, format!("there is no buffer {}", span.buffer.0)));
        };
        if span.offset.checked_add(span.bytes).is_none_or(|end| end > *bytes) {
            let (from, n) = (span.offset, span.bytes);
            return Err(invalid(info, format!("{n} bytes at {from} are not in a buffer of {bytes}")));
        }
        Ok(memory)
    }

    /// All buffers, in no order.
    #[cfg(feature = "cuda")]
    pub fn buffers(&self) -> impl Iterator<Item = &M> {
        self.buffers.values().map(|(m, _)| m)
    }

    /// All buffers, to be changed, in no order.
    pub fn buffers_mut(&mut self) -> impl Iterator<Item = &mut M> {
        self.buffers.values_mut().map(|(m, _)| m)
    }

    /// The buffer `id`, to be changed.
    pub fn buffer_mut(&mut self, id: BufferId) -> Option<&mut M> {
        self.buffers.get_mut(&id).map(|(m, _)| m)
    }

    /// All segments, in no order.
    pub fn segments(&self) -> impl Iterator<Item = (SegmentId, &S)> {
        self.segments.iter().map(|(id, s)| (*id, s))
    }

    /// How many buffers, segments and tickets there are.
    pub fn held(&self) -> [usize; 3] {
        [self.buffers.len(), self.segments.len(), self.tickets.len()]
    }

    /// The buffer `id`, if there is one.
    #[cfg(any(feature = "opencl", feature = "cuda", target_os = "macos"))]
    pub fn buffer(&self, id: BufferId) -> Option<&M> {
        self.buffers.get(&id).map(|(m, _)| m)
    }

    pub fn add_kernel(&mut self, kernel: K, source: &KernelSource) -> KernelId {
        let id = KernelId(self.id());
        self.kernels.insert(id, Built { kernel, group: source.group, buffers: source.buffers });
        id
    }

    pub fn kernel(&self, id: KernelId) -> Option<&K> {
        self.kernels.get(&id).map(|b| &b.kernel)
    }

    pub fn add_segment(&mut self, segment: S) -> SegmentId {
        let id = SegmentId(self.id());
        self.segments.insert(id, segment);
        id
    }

    pub fn segment(&self, info: &DeviceInfo, id: SegmentId) -> Result<&S, GpuError> {
        self.segments.get(&id).ok_or_else(|| invalid(info, format!("there is no segment {}", id.0)))
    }

    #[cfg(feature = "cuda")]
    pub fn segment_mut(&mut self, id: SegmentId) -> Option<&mut S> {
        self.segments.get_mut(&id)
    }

    pub fn remove_segment(&mut self, id: SegmentId) -> Option<S> {
        self.segments.remove(&id)
    }

    pub fn add_ticket(&mut self, ticket: T) -> TicketId {
        let id = TicketId(self.id());
        self.tickets.insert(id, ticket);
        id
    }

    /// Takes a ticket out; each is there once.
    pub fn take_ticket(&mut self, info: &DeviceInfo, id: TicketId) -> Result<T, GpuError> {
        self.tickets.remove(&id).ok_or_else(|| invalid(info, format!("there is no ticket {}", id.0)))
    }

    /// Whether the device can take these launches: kernels and buffers that there are, as many as the kernel takes, spans
    /// inside them, groups of the kernel's size.
    pub fn check(&self, info: &DeviceInfo, launches: &[Launch]) -> Result<(), GpuError> {
        for l in launches {
            let bad = |what: String| Err(invalid(info, format!("step {}: {what}", l.step)));
            let Some(k) = self.kernels.get(&l.kernel) else {
                return bad(format!("there is no kernel {}", l.kernel.0));
            };
            if l.grid == 0 || l.group == 0 || l.group > info.max_group || l.group != k.group {
                return bad(format!("{} groups of {} items cannot run", l.grid, l.group));
            }
            if l.buffers.len() != k.buffers as usize {
                return bad(format!("{} buffers for a kernel of {}", l.buffers.len(), k.buffers));
            }
            // The kernel gets the offset as 32 bits.
            if l.params.offset > u64::from(u32::MAX) {
                return bad(format!("parameters at {} are too far", l.params.offset));
            }
            for span in l.reads.iter().chain(&l.writes).chain([&l.params]) {
                self.memory(info, *span)?;
            }
            for b in &l.buffers {
                self.memory(info, Span { buffer: *b, offset: 0, bytes: 0 })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{Dialect, Features};

    fn info() -> DeviceInfo {
        DeviceInfo {
            api: "null",
            name: "none".into(),
            vendor: String::new(),
            driver: String::new(),
            dialect: Dialect::OpenCl,
            memory: 1000,
            max_buffer: 600,
            shared_memory: 0,
            max_group: 64,
            units: 1,
            align: 256,
            features: Features::default(),
        }
    }

    fn source() -> KernelSource {
        KernelSource { entry: "k".into(), text: String::new(), group: 32, buffers: 1, shared: 0 }
    }

    fn launch(kernel: KernelId, buffer: BufferId) -> Launch {
        let params = Span { buffer, offset: 0, bytes: 16 };
        let (reads, writes) = (vec![], vec![]);
        Launch { step: 7, kernel, buffers: vec![buffer], params, grid: 1, group: 32, reads, writes }
    }

    #[test]
    fn memory_is_accounted_for_and_refused_with_both_sizes() {
        let (info, mut s) = (info(), State::<(), (), (), ()>::default());
        assert_eq!(s.room(&info, "x", 0).unwrap(), 1);
        assert!(matches!(
            s.room(&info, "x", 601),
            Err(GpuError::BufferTooLarge { bytes: 601, max: 600, .. })
        ));
        let size = s.room(&info, "x", 600).unwrap();
        let id = s.add_buffer((), size);
        assert_eq!(s.allocated(), 600);
        assert!(matches!(s.room(&info, "x", 401), Err(GpuError::OutOfMemory { used: 600, .. })));
        assert!(s.remove_buffer(id).is_some() && s.remove_buffer(id).is_none());
        assert_eq!(s.allocated(), 0);
    }

    #[test]
    fn spans_and_launches_outside_are_refused() {
        let (info, mut s) = (info(), State::<(), (), (), ()>::default());
        let (b, k) = (s.add_buffer((), 100), s.add_kernel((), &source()));
        let span = |offset, bytes| Span { buffer: b, offset, bytes };
        assert!(s.memory(&info, span(50, 50)).is_ok());
        assert!(s.memory(&info, span(50, 51)).is_err());
        assert!(s.memory(&info, span(u64::MAX, 2)).is_err());
        let good = launch(k, b);
        assert_eq!(s.check(&info, std::slice::from_ref(&good)), Ok(()));
        let bad = [
            Launch { kernel: KernelId(99), ..good.clone() },
            Launch { group: 16, ..good.clone() },
            Launch { grid: 0, ..good.clone() },
            Launch { buffers: vec![], ..good.clone() },
            Launch { buffers: vec![BufferId(99)], ..good.clone() },
            Launch { params: span(96, 16), ..good.clone() },
            Launch { writes: vec![span(0, 101)], ..good },
        ];
        for l in bad {
            let e = s.check(&info, std::slice::from_ref(&l));
            assert!(matches!(e, Err(GpuError::Invalid { .. })), "{l:?}");
        }
    }

    #[test]
    fn tickets_are_taken_once() {
        let (info, mut s) = (info(), State::<(), (), (), u8>::default());
        let id = s.add_ticket(5);
        assert_eq!(s.take_ticket(&info, id), Ok(5));
        assert!(s.take_ticket(&info, id).is_err());
        assert!(copy_results(&info, &[1], &mut [0, 0]).is_err());
    }
}
