//! Launches as CUDA graphs: the one that every run of a segment replays, and one made for a timed run.

use std::ffi::c_void;
use std::time::Duration;

use cudarc::driver::sys::{
    self, CUDA_KERNEL_NODE_PARAMS, CUdeviceptr, CUfunction, CUgraphDependencyType, CUgraphEdgeData,
    CUgraphNode, CUresult as Code,
};

use super::objects::{Event, Exec, Graph, Stream, made, ok};
use crate::driver::{BufferId, StepTime};

/// Most launches side by side. The host's time to submit a graph grows with its width: on an H200, 200 launches cost 4 µs in
/// one chain, 14 µs in 8 and 163 µs in 200.
const MOST_LANES: usize = 8;

/// A launch with everything it hands over.
pub(super) struct Prepared {
    pub step: u32,
    pub function: CUfunction,
    /// Bytes of shared memory, beside what the kernel declares.
    pub shared: u32,
    pub grid: u32,
    pub group: u32,
    /// The buffers, then the one that holds the parameter block.
    pub pointers: Vec<CUdeviceptr>,
    /// Where the parameter block begins.
    pub at: u32,
}

// SAFETY: a function's handle may be used from any thread.
unsafe impl Send for Prepared {}

/// Encoded launches.
pub(super) struct Segment {
    /// `None` if there is nothing to launch.
    pub exec: Option<Exec>,
    pub launches: Vec<Prepared>,
    /// The buffers they use, each once.
    pub buffers: Vec<BufferId>,
    /// Count of freed buffers up to which `buffers` are known to be there.
    pub checked: u64,
}

/// A graph made for one timed run: each launch between two events, one after the other. On an H200 the events add about
/// 3 µs to each time.
pub(super) struct Timed {
    pub exec: Exec,
    events: Vec<(u32, Event, Event)>,
}

/// Adds `launch` to `graph`, after the nodes `after`.
fn add(graph: &Graph, after: &[CUgraphNode], launch: &Prepared) -> Result<CUgraphNode, Code> {
    let pointer = |p: &CUdeviceptr| (p as *const CUdeviceptr).cast_mut().cast::<c_void>();
    let mut arguments: Vec<*mut c_void> = launch.pointers.iter().map(pointer).collect();
    arguments.push((&raw const launch.at).cast_mut().cast());
    let params = CUDA_KERNEL_NODE_PARAMS {
        func: launch.function,
        gridDimX: launch.grid,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: launch.group,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: launch.shared,
        kernelParams: arguments.as_mut_ptr(),
        extra: std::ptr::null_mut(),
        kern: std::ptr::null_mut(),
        ctx: std::ptr::null_mut(),
    };
    let (first, n) = (after.as_ptr(), after.len());
    // SAFETY: the nodes are of this graph. The kernel takes as many pointers as there are buffers (checked when launches are
    // encoded), one for the parameter block and a 32-bit offset; the call copies them.
    made(|node| unsafe { sys::cuGraphAddKernelNode_v2(node, graph.0, first, n, &raw const params) })
}

/// Lets `node` start as soon as all groups of the nodes `after` have started: its kernel waits for their end itself.
fn follow(graph: &Graph, after: &[CUgraphNode], node: CUgraphNode) -> Result<(), Code> {
    let edge = CUgraphEdgeData {
        from_port: sys::CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC as u8,
        to_port: sys::CU_GRAPH_KERNEL_NODE_PORT_DEFAULT as u8,
        type_: CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC as u8,
        reserved: [0; 5],
    };
    let (to, edges) = (vec![node; after.len()], vec![edge; after.len()]);
    // SAFETY: the nodes are of this graph; all three lists are as long as `after`, and copied.
    ok(unsafe {
        sys::cuGraphAddDependencies_v2(graph.0, after.as_ptr(), to.as_ptr(), edges.as_ptr(), after.len())
    })
}

/// A graph of `launches`, each after those that its row of `dependencies` names, at most [`MOST_LANES`] side by side. With
/// `early`, kernels wait for those before them themselves.
pub(super) fn encode(
    launches: &[Prepared],
    dependencies: &[Vec<u32>],
    early: bool,
) -> Result<Option<Exec>, Code> {
    if launches.is_empty() {
        return Ok(None);
    }
    let graph = Graph::new()?;
    let mut nodes: Vec<CUgraphNode> = Vec::with_capacity(launches.len());
    for (launch, waits) in launches.iter().zip(narrow(dependencies, MOST_LANES)) {
        let after: Vec<CUgraphNode> = waits.iter().map(|j| nodes[*j as usize]).collect();
        let node = add(&graph, if early { &[] } else { &after }, launch)?;
        if early && !after.is_empty() {
            follow(&graph, &after, node)?;
        }
        nodes.push(node);
    }
    graph.instantiate().map(Some)
}

/// The rows of `dependencies` with some added, so that at most `most` launches are side by side: each launch continues one
/// of `most` lanes, that of a launch it waits for if it can.
fn narrow(dependencies: &[Vec<u32>], most: usize) -> Vec<Vec<u32>> {
    // The last launch of each lane.
    let mut ends: Vec<u32> = Vec::new();
    let mut out = Vec::with_capacity(dependencies.len());
    for (i, waits) in (0u32..).zip(dependencies) {
        let mut waits = waits.clone();
        let open = ends.iter().position(|end| waits.contains(end));
        match open {
            Some(lane) => ends[lane] = i,
            None if ends.len() < most => ends.push(i),
            None => {
                // The lane that ended first is the likeliest to be done.
                if let Some(end) = ends.iter_mut().min() {
                    waits.push(*end);
                    *end = i;
                }
            }
        }
        out.push(waits);
    }
    out
}

impl Timed {
    pub fn new(launches: &[Prepared]) -> Result<Timed, Code> {
        let graph = Graph::new()?;
        let (mut last, mut events) = (Vec::new(), Vec::with_capacity(launches.len()));
        for launch in launches {
            let (start, end) = (Event::new(true)?, Event::new(true)?);
            last = vec![graph.record(&last, &start)?];
            last = vec![add(&graph, &last, launch)?];
            last = vec![graph.record(&last, &end)?];
            events.push((launch.step, start, end));
        }
        Ok(Timed { exec: graph.instantiate()?, events })
    }
}

/// When the launches of a run that has ended ran.
pub(super) fn times(run: &[Timed]) -> Result<Vec<StepTime>, Code> {
    let all = || run.iter().flat_map(|t| &t.events);
    let Some((_, origin, _)) = all().next() else { return Ok(vec![]) };
    let at = |e: &Event| Ok(Duration::from_secs_f64(f64::from(e.since(origin)?.max(0.0)) / 1e3));
    all().map(|(step, start, end)| Ok(StepTime { step: *step, start: at(start)?, end: at(end)? })).collect()
}

/// Runs the segment as it was encoded.
///
/// # Safety
/// The buffers of the segment are there.
pub(super) unsafe fn run(stream: &Stream, segment: &Segment) -> Result<(), Code> {
    // SAFETY: the caller's; buffers are freed in stream order.
    segment.exec.as_ref().map_or(Ok(()), |exec| unsafe { stream.launch(exec) })
}

#[cfg(test)]
mod tests {
    use super::narrow;

    fn rows(all: &[&[u32]]) -> Vec<Vec<u32>> {
        all.iter().map(|r| r.to_vec()).collect()
    }

    #[test]
    fn what_is_narrow_enough_stays_as_it_is() {
        let diamond = rows(&[&[], &[0], &[0], &[1, 2], &[3]]);
        assert_eq!(narrow(&diamond, 2), diamond);
        let chains = rows(&[&[], &[], &[], &[0], &[1], &[2], &[3, 5], &[4]]);
        assert_eq!(narrow(&chains, 3), chains);
    }

    #[test]
    fn launches_beyond_the_lanes_continue_the_one_that_ended_first() {
        let free = rows(&[&[], &[], &[], &[], &[]]);
        assert_eq!(narrow(&free, 2), rows(&[&[], &[], &[0], &[1], &[2]]));
        assert_eq!(narrow(&free, 1), rows(&[&[], &[0], &[1], &[2], &[3]]));
        let late = rows(&[&[], &[], &[1], &[1]]);
        assert_eq!(narrow(&late, 2), rows(&[&[], &[], &[1], &[1, 0]]));
    }
}
