//! When the steps of a timed run ran, as one thread of the team saw it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use frit_ir::times::StepTime;

/// See the module's page.
pub(crate) struct Clock {
    origin: Instant,
    steps: Mutex<Vec<StepTime>>,
}

impl Clock {
    /// A clock that starts now, for a run of so many steps.
    pub fn start(steps: usize) -> Clock {
        Clock { origin: Instant::now(), steps: Mutex::new(Vec::with_capacity(steps)) }
    }

    /// The time since its start.
    pub fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Notes that step `number`, which began at `start`, has ended; gives the time.
    pub fn note(&self, number: usize, start: Duration) -> Duration {
        let end = self.now();
        // What is in it is whole after every call.
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        steps.push(StepTime { step: number as u32, start, end });
        end
    }

    /// What was noted.
    pub fn steps(self) -> Vec<StepTime> {
        self.steps.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
