//! Decoding makes no heap allocation. Alone in its file: the counter is the process's allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use frit::{LoadOptions, Model, Options};
use frit_tests::golden;

struct Counting;

static ON: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn count() {
    if ON.load(Ordering::Relaxed) {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's contract.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn decode_steps_10_to_50_allocate_nothing() {
    let model = Model::load_with(golden::smollm2(), &LoadOptions::default().context(128)).unwrap();
    let mut g = model.generator(Options::default()).unwrap();
    g.feed(&[504, 3575, 282]).unwrap();
    for step in 0..50u32 {
        if step == 10 {
            ON.store(true, Ordering::SeqCst);
        }
        let logits = g.feed(&[100 + step]).unwrap();
        assert!(logits[0].is_finite());
    }
    ON.store(false, Ordering::SeqCst);
    assert_eq!(COUNT.load(Ordering::SeqCst), 0);
    // The counter does count.
    ON.store(true, Ordering::SeqCst);
    let boxed = std::hint::black_box(Box::new(1u8));
    ON.store(false, Ordering::SeqCst);
    assert_eq!(COUNT.load(Ordering::SeqCst), usize::from(*boxed));
}
