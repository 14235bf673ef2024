//! What was asked of the driver, and what was wrong with it.

use crate::driver::{BufferId, SegmentId, TicketId};
use crate::launch::Span;

use super::Access;

/// A call that changed something, in the order of the calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A buffer was allocated.
    Allocate {
        /// What for.
        what: String,
        /// Its number.
        buffer: BufferId,
        /// Bytes asked for.
        bytes: u64,
    },
    /// A buffer was given back.
    Free(BufferId),
    /// The host wrote.
    Write(Span),
    /// The host read, and waited for what ran.
    Read(Span),
    /// A range was set to zero.
    Zero(Span),
    /// A kernel was built: the name of its function.
    Build(String),
    /// Launches were encoded.
    Encode {
        /// The segment.
        segment: SegmentId,
        /// Number of launches.
        launches: usize,
    },
    /// A segment was let go.
    Release(SegmentId),
    /// A run was submitted.
    Submit {
        /// Its ticket.
        ticket: TicketId,
        /// Where its upload went.
        upload: Option<Span>,
        /// Its segments.
        segments: Vec<SegmentId>,
        /// Bytes of its downloads.
        downloads: u64,
    },
    /// A run was waited for.
    Wait(TicketId),
    /// A ticket was let go.
    Forget(TicketId),
}

/// A launch of the last run, as its parameter block had it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// [`Launch::step`](crate::launch::Launch::step).
    pub step: u32,
    /// Name of the kernel function.
    pub entry: String,
    /// Number of groups.
    pub grid: u32,
    /// Inputs.
    pub reads: Vec<Access>,
    /// Results.
    pub writes: Vec<Access>,
}

/// What there is that somebody must give back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Buffers.
    pub buffers: usize,
    /// Segments.
    pub segments: usize,
    /// Tickets neither waited for nor let go.
    pub tickets: usize,
}

/// The record.
#[derive(Default)]
pub(super) struct Journal {
    pub calls: Vec<Call>,
    pub faults: Vec<String>,
    pub last: Vec<Ran>,
}
