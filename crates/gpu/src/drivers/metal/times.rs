//! When the launches of a timed run ran: by the device's counters where it has them, else by the command buffers that each
//! launch then has of its own.

use std::ptr::NonNull;
use std::time::Duration;

use objc2::msg_send;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSRange, NSString};
use objc2_metal::{
    MTLCommonCounterSetTimestamp, MTLComputePassDescriptor, MTLCounterErrorValue, MTLCounterSampleBuffer,
    MTLCounterSampleBufferDescriptor, MTLCounterSet, MTLDevice, MTLDispatchType, MTLStorageMode,
};

use super::encode::Part;
use super::objects::{Committed, Counters, Device, text};
use super::plan::{self, Moment};
use crate::driver::StepTime;

/// The device's counters of time, if it has any.
pub(super) fn set(device: &Device) -> Option<Retained<ProtocolObject<dyn MTLCounterSet>>> {
    // SAFETY: a constant of Metal's, there since macOS 10.15.
    let name: &NSString = unsafe { MTLCommonCounterSetTimestamp };
    device.counterSets()?.to_vec().into_iter().find(|s| s.name().to_string() == name.to_string())
}

/// The host's and the device's time now.
fn now(device: &Device) -> Moment {
    let mut m = Moment::default();
    // SAFETY: both pointers are to numbers of the type that Metal writes, for the time of the call.
    unsafe {
        device.sampleTimestamps_gpuTimestamp(NonNull::from(&mut m.host), NonNull::from(&mut m.device));
    }
    m
}

/// Counters of the launches of one run, two for each.
pub(super) struct Samples {
    counters: Counters,
    steps: Vec<u32>,
    before: Moment,
}

impl Samples {
    /// Counters for these launches.
    pub fn new(device: &Device, steps: Vec<u32>) -> Result<Samples, String> {
        let wanted = MTLCounterSampleBufferDescriptor::new();
        wanted.setCounterSet(set(device).as_deref());
        wanted.setStorageMode(MTLStorageMode::Shared);
        // SAFETY: any number may be asked for; one that is too large gives an error below.
        unsafe { wanted.setSampleCount(2 * steps.len()) };
        let made = device.newCounterSampleBufferWithDescriptor_error(&wanted).map_err(|e| text(&e))?;
        Ok(Samples { counters: Counters::new(made), steps, before: now(device) })
    }

    /// The counters, to be held until the run has ended.
    pub fn counters(&self) -> Counters {
        self.counters.clone()
    }

    /// An encoder that times launch `n`.
    pub fn pass(&self, n: usize) -> Retained<MTLComputePassDescriptor> {
        let pass = MTLComputePassDescriptor::computePassDescriptor();
        pass.setDispatchType(MTLDispatchType::Concurrent);
        // SAFETY: a pass has four attachments; both counters are below the count, for `n` is below that of launches.
        unsafe {
            let first = pass.sampleBufferAttachments().objectAtIndexedSubscript(0);
            first.setSampleBuffer(Some(&self.counters));
            first.setStartOfEncoderSampleIndex(2 * n);
            first.setEndOfEncoderSampleIndex(2 * n + 1);
        }
        pass
    }

    /// The times, once the run has ended.
    pub fn read(&self, device: &Device) -> Result<Vec<StepTime>, String> {
        let (after, count) = (now(device), 2 * self.steps.len());
        // SAFETY: the range is that of all counters.
        let data = unsafe { self.counters.resolveCounterRange(NSRange::new(0, count)) };
        let data = data.map(|d| d.to_vec()).unwrap_or_default();
        let stamps: Vec<u64> =
            data.as_chunks::<8>().0.iter().map(|b| u64::from_ne_bytes(*b)).take(count).collect();
        if stamps.len() < count || stamps.contains(&MTLCounterErrorValue) {
            return Err("the device did not note when launches ran".into());
        }
        let origin = stamps.first().copied().unwrap_or(0);
        let at = |t: u64| Duration::from_nanos(plan::nanoseconds(t, origin, self.before, after));
        let time = |(step, t): (&u32, &[u64; 2])| StepTime { step: *step, start: at(t[0]), end: at(t[1]) };
        Ok(self.steps.iter().zip(stamps.as_chunks::<2>().0).map(time).collect())
    }
}

/// The times of launches that each had a command buffer, all of which have ended.
pub(super) fn of_buffers(all: &[Part]) -> Vec<StepTime> {
    let times = |c: &Committed| -> (f64, f64) {
        // SAFETY: properties of every command buffer since macOS 10.15, of type `CFTimeInterval`, a `double`: seconds.
        unsafe { (msg_send![&**c, GPUStartTime], msg_send![&**c, GPUEndTime]) }
    };
    let stamped: Vec<_> = all.iter().filter_map(|(step, c)| Some(((*step)?, times(c)))).collect();
    let origin = stamped.first().map_or(0.0, |(_, t)| t.0);
    let at = |t: f64| Duration::try_from_secs_f64(t - origin).unwrap_or_default();
    stamped.into_iter().map(|(step, t)| StepTime { step, start: at(t.0), end: at(t.1) }).collect()
}
