//! The thread pool: threads that live as long as the pool, cheap barriers inside a run, static splits.
//!
//! A run allocates nothing. Idle workers spin for at most 50 µs, then sleep. It must never hang: a panic on any
//! thread releases the others from their barriers and comes back as an error.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The most threads a pool can have.
pub const MAX_THREADS: usize = 1024;

/// How long a worker looks for work before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

/// Why a pool could not be made or a run did not end well.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// A thread count that is zero or too large.
    #[error("a thread pool has 1 to {MAX_THREADS} threads, not {0}")]
    Threads(usize),
    /// The system gave no thread.
    #[error("cannot start thread {1} of the pool: {0}")]
    Spawn(#[source] std::io::Error, usize),
    /// The work panicked on a thread; the message of the first panic.
    #[error("a kernel panicked: {0}")]
    Panicked(String),
    /// `run` was called from inside a run of the same pool.
    #[error("a run was started from inside a run of the same pool")]
    Nested,
}

type Job = *const (dyn Fn(Team) + Sync);

/// Payload of the unwinding that leaves a poisoned barrier.
struct Poisoned;

/// What the threads share.
struct Shared {
    threads: usize,
    /// Number of runs started; a change is the signal to the workers.
    epoch: AtomicU32,
    /// The work of the current run; written by the runner before `epoch` moves, read by workers after.
    job: UnsafeCell<Option<Job>>,
    /// Workers that have not finished the current run.
    busy: AtomicUsize,
    arrived: AtomicUsize,
    generation: AtomicU32,
    poisoned: AtomicBool,
    stop: AtomicBool,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
    failure: Mutex<Option<String>>,
}

// SAFETY: `job` is written only by the thread that holds the run lock while no worker reads it (all are past their
// `busy` decrement), and published by the release store of `epoch`.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

thread_local! {
    /// The pool whose run this thread is in.
    static INSIDE: Cell<*const Shared> = const { Cell::new(std::ptr::null()) };
}

/// A thread's place in a run.
#[derive(Clone, Copy)]
pub struct Team<'a> {
    /// This thread, from 0.
    pub thread: usize,
    /// Number of threads in the run.
    pub threads: usize,
    shared: Option<&'a Shared>,
    /// A team must stay on its thread.
    local: PhantomData<*const ()>,
}

impl fmt::Debug for Team<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Team({} of {})", self.thread, self.threads)
    }
}

impl Team<'static> {
    /// A team of one, without a pool.
    pub fn solo() -> Team<'static> {
        Team { thread: 0, threads: 1, shared: None, local: PhantomData }
    }
}

impl Team<'_> {
    /// Waits until every thread of the team is here. What any thread wrote before is seen by all after. Every thread
    /// must call it the same number of times. If a thread of the team has panicked, this unwinds.
    #[inline]
    pub fn barrier(&self) {
        if let Some(s) = self.shared {
            s.barrier();
        }
    }

    /// This thread's share of `0..n`, in multiples of `grain` (the last one may be shorter). The shares of all threads
    /// are disjoint, in order and cover `0..n`.
    #[inline]
    pub fn range(&self, n: usize, grain: usize) -> Range<usize> {
        let grain = grain.max(1);
        let units = n.div_ceil(grain) as u128;
        let at =
            |t: usize| ((units * t as u128 / self.threads as u128) as usize).saturating_mul(grain).min(n);
        at(self.thread)..at(self.thread + 1)
    }
}

impl Shared {
    fn barrier(&self) {
        if self.threads == 1 {
            return;
        }
        let generation = self.generation.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.generation.store(generation.wrapping_add(1), Ordering::Release);
            return;
        }
        spin_until(|| {
            self.generation.load(Ordering::Acquire) != generation || self.poisoned.load(Ordering::Relaxed)
        });
        if self.poisoned.load(Ordering::Acquire) && self.generation.load(Ordering::Acquire) == generation {
            resume_unwind(Box::new(Poisoned));
        }
    }

    /// Runs the job as thread `thread`; a panic is noted and poisons the barrier.
    fn work(&self, thread: usize, job: &(dyn Fn(Team) + Sync)) {
        let before = INSIDE.replace(self);
        let team = Team { thread, threads: self.threads, shared: Some(self), local: PhantomData };
        let result = catch_unwind(AssertUnwindSafe(|| job(team)));
        INSIDE.set(before);
        if let Err(payload) = result {
            if !payload.is::<Poisoned>() {
                lock(&self.failure).get_or_insert_with(|| message(&*payload));
            }
            self.poisoned.store(true, Ordering::Release);
        }
    }

    /// Waits for the next run, spinning first. `None` when the pool stops.
    fn next(&self, seen: u32) -> Option<u32> {
        let news = || self.epoch.load(Ordering::SeqCst) != seen || self.stop.load(Ordering::SeqCst);
        let start = Instant::now();
        if spin(news) {
            return self.go();
        }
        while !news() {
            if start.elapsed() > SPIN {
                let mut guard = lock(&self.lock);
                self.sleepers.fetch_add(1, Ordering::SeqCst);
                while !news() {
                    guard = self.wake.wait(guard).unwrap_or_else(|e| e.into_inner());
                }
                self.sleepers.fetch_sub(1, Ordering::SeqCst);
                break;
            }
            std::thread::yield_now();
        }
        self.go()
    }

    /// The number of the run to take part in; `None` when the pool stops.
    fn go(&self) -> Option<u32> {
        (!self.stop.load(Ordering::SeqCst)).then(|| self.epoch.load(Ordering::SeqCst))
    }

    fn worker(&self, thread: usize) {
        let mut seen = 0;
        while let Some(epoch) = self.next(seen) {
            seen = epoch;
            // SAFETY: the runner wrote `job` before it moved `epoch`, and neither writes it again nor lets the closure
            // go before `busy` is zero.
            let job = unsafe { *self.job.get() };
            if let Some(job) = job {
                // SAFETY: as above.
                self.work(thread, unsafe { &*job });
            }
            self.busy.fetch_sub(1, Ordering::Release);
        }
    }

    fn signal(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _guard = lock(&self.lock);
            self.wake.notify_all();
        }
    }
}

/// Looks for about 2 µs; whether it came. Longer would be wasted where the thread that is waited for wants this core.
fn spin(done: impl Fn() -> bool) -> bool {
    (0..128).any(|_| {
        std::hint::spin_loop();
        done()
    })
}

/// Spins for a moment, then gives the core away between looks.
fn spin_until(done: impl Fn() -> bool) {
    if done() || spin(&done) {
        return;
    }
    while !done() {
        std::thread::yield_now();
    }
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| s.to_string());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

/// A pool of threads; the thread that calls [`Pool::run`] is thread 0 of the run. Runs of several callers take turns.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    turns: Turns,
}

/// Turns in the order of arrival: a plain mutex would let the caller that just finished in again before one that waits.
struct Turns {
    state: Mutex<(u64, u64)>,
    changed: Condvar,
    waiting: AtomicUsize,
}

/// A turn; dropping it lets the next caller in.
struct Turn<'a>(&'a Turns);

impl Turns {
    fn new() -> Turns {
        Turns { state: Mutex::new((0, 0)), changed: Condvar::new(), waiting: AtomicUsize::new(0) }
    }

    fn wait(&self) -> Turn<'_> {
        let mut state = lock(&self.state);
        let mine = state.0;
        state.0 += 1;
        if mine != state.1 {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            while mine != state.1 {
                state = self.changed.wait(state).unwrap_or_else(|e| e.into_inner());
            }
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).1 += 1;
        if self.0.waiting.load(Ordering::Relaxed) > 0 {
            self.0.changed.notify_all();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} threads)", self.threads())
    }
}

impl Pool {
    /// A pool of `threads` threads, the caller's included: `threads − 1` are started.
    ///
    /// # Errors
    /// [`PoolError::Threads`] for 0 or more than [`MAX_THREADS`], [`PoolError::Spawn`] if the system refuses.
    pub fn new(threads: usize) -> Result<Pool, PoolError> {
        if threads == 0 || threads > MAX_THREADS {
            return Err(PoolError::Threads(threads));
        }
        let shared = Arc::new(Shared {
            threads,
            epoch: AtomicU32::new(0),
            job: UnsafeCell::new(None),
            busy: AtomicUsize::new(0),
            arrived: AtomicUsize::new(0),
            generation: AtomicU32::new(0),
            poisoned: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            lock: Mutex::new(()),
            wake: Condvar::new(),
            failure: Mutex::new(None),
        });
        let mut pool = Pool { shared, workers: Vec::with_capacity(threads - 1), turns: Turns::new() };
        for thread in 1..threads {
            let shared = pool.shared.clone();
            let builder = std::thread::Builder::new().name(format!("frit-{thread}"));
            let worker =
                builder.spawn(move || shared.worker(thread)).map_err(|e| PoolError::Spawn(e, thread))?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// Number of threads of a run.
    pub fn threads(&self) -> usize {
        self.shared.threads
    }

    /// Whether another caller waits for its turn. A long run ends at its next step then and asks for a turn again.
    pub fn contended(&self) -> bool {
        self.turns.waiting.load(Ordering::Relaxed) > 0
    }

    /// Runs `f` once on every thread and returns when all have finished.
    ///
    /// # Errors
    /// [`PoolError::Panicked`] if `f` panicked on any thread (the pool stays usable), [`PoolError::Nested`] if called
    /// from inside a run of this pool.
    pub fn run(&self, f: &(dyn Fn(Team) + Sync)) -> Result<(), PoolError> {
        let s = &*self.shared;
        if std::ptr::eq(INSIDE.get(), s) {
            return Err(PoolError::Nested);
        }
        let _turn = self.turns.wait();
        if s.threads > 1 {
            // SAFETY: only the lifetime changes. The pointer is used until `busy` is zero, which this call waits for.
            let job: Job = unsafe { std::mem::transmute::<*const (dyn Fn(Team) + Sync + '_), Job>(f) };
            // SAFETY: no worker is in a run, so none reads it.
            unsafe { *s.job.get() = Some(job) };
            s.busy.store(s.threads - 1, Ordering::Relaxed);
            s.epoch.fetch_add(1, Ordering::SeqCst);
            s.signal();
        }
        s.work(0, f);
        spin_until(|| s.busy.load(Ordering::Acquire) == 0);
        if s.poisoned.load(Ordering::Acquire) {
            s.poisoned.store(false, Ordering::Relaxed);
            s.arrived.store(0, Ordering::Relaxed);
            let text = lock(&s.failure).take().unwrap_or_else(|| "no message".into());
            return Err(PoolError::Panicked(text));
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        {
            let _guard = lock(&self.shared.lock);
            self.shared.wake.notify_all();
        }
        for w in self.workers.drain(..) {
            // A worker catches every panic of its work, so it has none of its own to report.
            let _ = w.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn every_thread_runs_once_and_barriers_order_phases() {
        for threads in [1, 2, 3, 5] {
            let pool = Pool::new(threads).unwrap();
            let cells: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
            for round in 0..200 {
                pool.run(&|team| {
                    assert_eq!(team.threads, threads);
                    cells[team.thread].fetch_add(1, Ordering::Relaxed);
                    team.barrier();
                    assert!(cells.iter().all(|c| c.load(Ordering::Relaxed) == 2 * round + 1));
                    team.barrier();
                    cells[team.thread].fetch_add(1, Ordering::Relaxed);
                })
                .unwrap();
            }
        }
    }

    #[test]
    fn a_thousand_pools_come_and_go() {
        let n = AtomicUsize::new(0);
        for _ in 0..1000 {
            let pool = Pool::new(2).unwrap();
            pool.run(&|_| {
                n.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
        }
        assert_eq!(n.into_inner(), 2000);
    }

    #[test]
    fn a_panic_on_any_thread_is_an_error_and_releases_the_others() {
        let pool = Pool::new(3).unwrap();
        for bad in 0..3 {
            let err = pool.run(&|team| {
                team.barrier();
                if team.thread == bad {
                    std::panic::resume_unwind(Box::new("broken"));
                }
                team.barrier();
                team.barrier();
            });
            assert_eq!(err.unwrap_err().to_string(), "a kernel panicked: broken");
            let n = AtomicUsize::new(0);
            pool.run(&|team| {
                team.barrier();
                n.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
            assert_eq!(n.into_inner(), 3);
        }
    }

    #[test]
    fn callers_on_several_threads_take_turns() {
        let pool = Pool::new(2).unwrap();
        let inside = AtomicUsize::new(0);
        let total = AtomicU64::new(0);
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    for _ in 0..300 {
                        pool.run(&|team| {
                            team.barrier();
                            assert!(inside.fetch_add(1, Ordering::SeqCst) < 2);
                            team.barrier();
                            inside.fetch_sub(1, Ordering::SeqCst);
                            total.fetch_add(1, Ordering::Relaxed);
                        })
                        .unwrap();
                    }
                });
            }
        });
        assert_eq!(total.into_inner(), 1200);
    }

    #[test]
    fn a_sleeping_pool_wakes() {
        let pool = Pool::new(2).unwrap();
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(2));
            pool.run(&|team| team.barrier()).unwrap();
        }
    }

    #[test]
    fn misuse_is_an_error() {
        assert!(matches!(Pool::new(0), Err(PoolError::Threads(0))));
        assert!(matches!(Pool::new(MAX_THREADS + 1), Err(PoolError::Threads(_))));
        let pool = Pool::new(2).unwrap();
        let nested = AtomicUsize::new(0);
        pool.run(&|_| {
            if matches!(pool.run(&|_| ()), Err(PoolError::Nested)) {
                nested.fetch_add(1, Ordering::Relaxed);
            }
        })
        .unwrap();
        assert_eq!(nested.into_inner(), 2);
    }

    #[test]
    fn shares_cover_everything_once() {
        for threads in [1, 2, 3, 7] {
            for n in [0, 1, 5, 16, 33, 1000] {
                for grain in [1, 4, 16] {
                    let mut at = 0;
                    for thread in 0..threads {
                        let r = Team { thread, threads, ..Team::solo() }.range(n, grain);
                        assert_eq!(r.start, at);
                        assert!(r.start.is_multiple_of(grain) || r.start == n);
                        at = r.end;
                    }
                    assert_eq!(at, n);
                }
            }
        }
    }
}
