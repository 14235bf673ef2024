//! How much memory a call takes at most, beyond what was there before.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread holds (may be negative: freed here, allocated elsewhere) and their highest value.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

struct Counting;

fn count(bytes: isize) {
    // A thread that is ending has no counter any more.
    let _ = HELD.try_with(|c| {
        let (now, most) = c.get();
        c.set((now + bytes, most.max(now + bytes)));
    });
}

// SAFETY: every call is handed to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: `at` came from `alloc` above with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `f` gives, and the most bytes that it held at one time.
pub fn peak<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.with(|c| {
        let (now, _) = c.get();
        c.set((now, now));
        now
    });
    let result = f();
    let most = HELD.with(|c| c.get().1);
    (result, usize::try_from(most - before).unwrap_or(0))
}

/// Runs `f` on a file of `len` bytes; it may hold what the file's own size justifies and no more.
pub fn bounded<T>(len: usize, f: impl FnOnce() -> T) -> T {
    let (result, most) = peak(f);
    assert!(most <= 16 * len + (1 << 16), "{most} bytes for a file of {len}");
    result
}

#[test]
fn peaks_are_seen() {
    let (kept, most) = peak(|| {
        drop(vec![0u8; 1 << 20]);
        vec![0u8; 1000]
    });
    assert!((1 << 20..(1 << 20) + 10_000).contains(&most) && kept.len() == 1000, "{most}");
}
