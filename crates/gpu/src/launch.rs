//! A launch as data, and what must wait for what. Nothing here touches a device.

use std::sync::Arc;

use crate::driver::{BufferId, HostData, KernelId};
use crate::graphs::call::Program;

/// Bytes of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The buffer.
    pub buffer: BufferId,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl Span {
    /// Whether the two have a byte in common.
    pub fn overlaps(&self, other: &Span) -> bool {
        self.buffer == other.buffer
            && self.offset < other.offset.saturating_add(other.bytes)
            && other.offset < self.offset.saturating_add(self.bytes)
    }
}

/// One launch of a kernel. Its groups are a line of `grid`, its items a line of `group`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Number of the step it belongs to, for times and messages.
    pub step: u32,
    /// The kernel.
    pub kernel: KernelId,
    /// The buffer arguments, in the kernel's order; each is handed over from its first byte.
    pub buffers: Vec<BufferId>,
    /// The parameter block, the argument after the buffers. Its offset is a multiple of 16; drivers that cannot hand over
    /// an address inside a buffer hand over the buffer and the offset.
    pub params: Span,
    /// Number of groups, at least 1.
    pub grid: u32,
    /// Items of a group.
    pub group: u32,
    /// What it may read, the parameter block aside.
    pub reads: Vec<Span>,
    /// What it may write.
    pub writes: Vec<Span>,
}

impl Launch {
    /// Whether `self`, which comes later, must wait for `earlier`.
    pub fn depends_on(&self, earlier: &Launch) -> bool {
        let any = |a: &[Span], b: &[Span]| a.iter().any(|x| b.iter().any(|y| x.overlaps(y)));
        any(&self.reads, &earlier.writes)
            || any(&self.writes, &earlier.writes)
            || any(&self.writes, &earlier.reads)
    }
}

/// Work of the vendor's graph compiler or library, in place of launches: a segment of its own.
#[derive(Clone)]
pub struct VendorCall {
    /// Number of its first step, for times and messages.
    pub step: u32,
    /// What is computed.
    pub work: VendorWork,
    /// What it reads: the feeds of a graph in order; left and right of a product.
    pub reads: Vec<Span>,
    /// What it writes: the results of a graph in order; the result of a product. None has a byte in common with what it reads.
    pub writes: Vec<Span>,
    /// What is copied when it has ended, from and to: results whose place it reads.
    pub copies: Vec<(Span, Span)>,
}

impl VendorCall {
    /// The bytes of what it reads that it looks at: the others are there to align them.
    pub fn looks_at(&self) -> impl Iterator<Item = Span> + '_ {
        self.reads.iter().enumerate().map(|(i, s)| {
            let skip = match &self.work {
                VendorWork::Graph(p, _) => p.feeds[i].skipped(),
                VendorWork::Product(_) => 0,
            };
            Span { offset: s.offset + skip, bytes: s.bytes - skip, ..*s }
        })
    }
}

/// What a [`VendorCall`] computes.
#[derive(Clone)]
pub enum VendorWork {
    /// A graph, with the bytes of its constants.
    Graph(Arc<Program>, Vec<HostData>),
    /// left · right, or left · rightᵀ, of f32.
    Product(MatrixProduct),
}

/// A product of matrices of f32, row by row: result `[m, n]` = left `[m, k]` · right `[k, n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixProduct {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Columns of `left`.
    pub k: usize,
    /// Whether `right` lies as `[n, k]`.
    pub transposed: bool,
    /// From one row to the next in bytes: of left, right and result.
    pub row_bytes: [u64; 3],
}

/// For each launch, the earlier ones that it must wait for, those left out that one of them waits for already.
pub fn dependencies(launches: &[Launch]) -> Vec<Vec<u32>> {
    let mut out: Vec<Vec<u32>> = Vec::with_capacity(launches.len());
    // Bit j of row i: launch i comes after launch j.
    let words = launches.len().div_ceil(64);
    let mut after = vec![0u64; words * launches.len()];
    for (i, launch) in launches.iter().enumerate() {
        let mut direct = Vec::new();
        for j in (0..i).rev() {
            let known = after[i * words + j / 64] >> (j % 64) & 1 == 1;
            if known || !launch.depends_on(&launches[j]) {
                continue;
            }
            direct.push(j as u32);
            after[i * words + j / 64] |= 1 << (j % 64);
            for w in 0..words {
                after[i * words + w] |= after[j * words + w];
            }
        }
        direct.reverse();
        out.push(direct);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(buffer: u64, offset: u64, bytes: u64) -> Span {
        Span { buffer: BufferId(buffer), offset, bytes }
    }

    fn launch(reads: &[Span], writes: &[Span]) -> Launch {
        Launch {
            step: 0,
            kernel: KernelId(0),
            buffers: vec![],
            params: span(9, 0, 16),
            grid: 1,
            group: 64,
            reads: reads.to_vec(),
            writes: writes.to_vec(),
        }
    }

    #[test]
    fn spans_overlap_in_bytes_of_one_buffer() {
        assert!(span(0, 0, 8).overlaps(&span(0, 7, 1)));
        assert!(!span(0, 0, 8).overlaps(&span(0, 8, 1)));
        assert!(!span(0, 0, 8).overlaps(&span(1, 0, 8)));
        assert!(!span(0, 4, 0).overlaps(&span(0, 0, 4)));
    }

    #[test]
    fn launches_wait_for_what_they_read_and_for_readers_of_what_they_overwrite() {
        let (a, b, c) = (span(0, 0, 8), span(0, 8, 8), span(0, 16, 8));
        let all = [
            launch(&[], &[a]),
            launch(&[], &[b]),
            launch(&[a, b], &[c]),
            launch(&[a], &[span(1, 0, 4)]),
            launch(&[c], &[a]),
            launch(&[], &[a]),
        ];
        let want: [&[u32]; 6] = [&[], &[], &[0, 1], &[0], &[2, 3], &[4]];
        assert_eq!(dependencies(&all), want);
    }
}
