//! After its first token the sampler makes no heap allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use frit_models::sampling::{Sampler, SamplingOptions, top_log_probs};

thread_local! {
    /// Allocations of this thread; the test harness allocates on others at any time.
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is handed to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|c| c.set(c.get() + 1));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `alloc` above with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn later_tokens_allocate_nothing() {
    let logits: Vec<f32> =
        (0..5000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 20) as f32 * 1e-3).collect();
    let history: Vec<u32> = (0..100).collect();
    let warm = SamplingOptions::default().temperature(0.7).repetition_penalty(1.1, 64);
    for o in [
        SamplingOptions::default(),
        warm.clone(),
        warm.clone().top_k(40).top_p(0.9).min_p(0.05),
        warm.clone().top_p(0.99),
        warm.min_p(0.2),
    ] {
        let mut sampler = Sampler::new(o).unwrap();
        let mut top = Vec::new();
        let mut each = |sampler: &mut Sampler| {
            sampler.sample(&logits, &history).unwrap();
            top_log_probs(&logits, 5, &mut top).unwrap();
        };
        each(&mut sampler);
        let before = COUNT.with(Cell::get);
        (0..20).for_each(|_| each(&mut sampler));
        assert_eq!(COUNT.with(Cell::get), before, "{:?}", sampler.options());
    }
}
