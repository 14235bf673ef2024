//! Ctrl-C: the first one asks the running work to stop, a second one ends the process at once.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Installs the handler; `stop` is called once, on another thread.
pub fn on_interrupt(stop: impl Fn() + Send + 'static) -> Result<(), Failure> {
    let handler = move || {
        if INTERRUPTED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        stop();
    };
    ctrlc::set_handler(handler).map_err(|e| Failure::Error(format!("cannot handle Ctrl-C: {e}")))
}

/// Installs a handler that is called on another thread at every Ctrl-C, and ends the process itself if it wants to.
pub fn on_every_interrupt(handle: impl Fn() + Send + 'static) -> Result<(), Failure> {
    ctrlc::set_handler(handle).map_err(|e| Failure::Error(format!("cannot handle Ctrl-C: {e}")))
}

/// Whether Ctrl-C was pressed.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}
