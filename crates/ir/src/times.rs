//! When the parts of a timed run ran, as backends tell it.

use std::time::Duration;

/// When a step ran, counted from the begin of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepTime {
    /// Its number in the schedule.
    pub step: u32,
    /// Its begin.
    pub start: Duration,
    /// Its end.
    pub end: Duration,
}

/// The times of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunTimes {
    /// Binding the run's sizes: extents, choice of kernels, parameters, on a GPU the encoding of launches. Zero if the sizes
    /// were those of the run before.
    pub encode: Duration,
    /// Handing the run to the device; zero on the CPU.
    pub submit: Duration,
    /// From then on until the results were there.
    pub wait: Duration,
    /// Each step, in order; none if the run was not timed. On the CPU they count from the end of `submit`, on a GPU from the
    /// begin of the first.
    pub steps: Vec<StepTime>,
}
