//! The walk of a run's threads through the steps of a bound session, with a barrier after each step.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::{Executable, Session};
use crate::args::Args;
use crate::bind::Code;
use crate::clock::Clock;
use crate::error::ExecError;
use crate::host::HostKernel;
use crate::pool::Team;

/// How long a run keeps the pool while another waits; it then gives way after the step at hand. Handing over costs about
/// 0.1 ms of waking threads.
const TURN: Duration = Duration::from_millis(4);

/// What the threads of a run share.
pub(super) struct Steps<'a> {
    pub session: &'a Session,
    pub exe: &'a Executable,
    /// Of a timed run.
    pub clock: Option<&'a Clock>,
    /// The first failure of a host kernel.
    pub failure: Mutex<Option<ExecError>>,
}

// SAFETY: threads read the session's tables; what they write through operand pointers is kept apart by each kernel's split
// of its work and by the barrier between steps. The session is borrowed exclusively by `run`.
unsafe impl Sync for Steps<'_> {}

impl Steps<'_> {
    /// Keeps the first failure of a host kernel. The steps after it run on, on whatever it left.
    fn noted(&self, i: usize, h: &HostKernel, done: Result<(), String>) {
        if let (Err(why), Ok(mut first)) = (done, self.failure.lock()) {
            let step = self.exe.tables.steps[i].name.clone();
            first.get_or_insert(ExecError::Host { step, kernel: h.row.name, op: h.row.op, why });
        }
    }

    /// Walks the steps from `from`. When another run waits for the pool, all threads stop after the same step and leave its
    /// number in `stop`; `at` follows the progress for error messages.
    pub fn walk(&self, from: usize, stop: &AtomicUsize, at: &AtomicUsize, team: Team) {
        let n = self.session.ready.len();
        let start = Instant::now();
        let clock = self.clock.filter(|_| team.thread == 0);
        let mut begin = clock.map(Clock::now);
        for i in from..n {
            let step = &self.session.ready[i];
            let slice = |(a, b): (u32, u32)| a as usize..b as usize;
            let args = Args {
                operands: &self.session.operands[slice(step.operands)],
                params: &self.session.params[slice(step.params)],
                programs: &self.exe.tables.steps[i].programs,
                scratch: self.session.arena.ptr().wrapping_add(step.scratch),
                scratch_bytes: step.scratch_bytes,
                team,
            };
            match step.code {
                // SAFETY: `bind` proved every operand inside its buffer, and the compiler's plan keeps live values apart.
                Code::Built(kernel) => unsafe { kernel(&args) },
                Code::Host(h, inputs) => self.noted(i, h, h.call(&args, inputs)),
            }
            if team.thread == 0 {
                at.store(i + 1, Ordering::Relaxed);
                if i + 1 == n || (self.exe.pool.contended() && start.elapsed() >= TURN) {
                    stop.store(i + 1, Ordering::Relaxed);
                }
            }
            team.barrier();
            if let (Some(c), Some(from)) = (clock, begin) {
                begin = Some(c.note(i, from));
            }
            // A thread ahead of this one may have stored a later number already; only this step's number means stop here.
            if stop.load(Ordering::Relaxed) == i + 1 {
                return;
            }
        }
    }
}
