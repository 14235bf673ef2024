//! Carrying out what `plan` decided: command buffers of encoders, and segments as indirect command buffers.

use std::ptr::NonNull;

use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSRange;
use objc2_metal::{
    MTLBarrierScope, MTLBlitCommandEncoder, MTLCommandBuffer, MTLCommandEncoder, MTLCommandQueue,
    MTLComputeCommandEncoder, MTLDevice, MTLDispatchType, MTLIndirectCommandBuffer,
    MTLIndirectCommandBufferDescriptor, MTLIndirectCommandType, MTLIndirectComputeCommand,
    MTLResourceOptions, MTLResourceUsage, MTLSize,
};

use super::driver::State;
use super::objects::{Buffer, Committed, Device, Indirect, Pipeline, bytes_of};
use super::plan::{self, Batch, Command, Encoder, Place, Shape, Use, Vendor};
use super::times::Samples;
use super::vendor::Work;
use crate::driver::{BufferId, KernelSource, SegmentId};
use crate::graphs::call::Line;
use crate::launch::{Launch, Span, VendorCall};

/// A queue.
pub(super) type Queue = Retained<ProtocolObject<dyn MTLCommandQueue>>;

type Blits = ProtocolObject<dyn MTLBlitCommandEncoder>;
type Launches = ProtocolObject<dyn MTLComputeCommandEncoder>;
type Commands = ProtocolObject<dyn MTLCommandBuffer>;

/// A command buffer of a run, with the step of the launch that is all of it in a timed run.
pub(super) type Part = (Option<u32>, Committed);

/// A launch with its kernel looked up.
pub(super) struct Prepared {
    pipeline: Pipeline,
    buffers: Vec<BufferId>,
    params: Span,
    grid: u32,
    group: u32,
}

/// Encoded launches.
pub(super) struct Segment {
    launches: Vec<Prepared>,
    steps: Vec<u32>,
    barriers: Vec<bool>,
    /// The buffers, each once.
    pub uses: Vec<Use>,
    /// Indirect command buffers with the number of their launches; none where each run encodes anew.
    pieces: Vec<(Indirect, usize)>,
    /// Work of the vendor's in place of launches.
    vendor: Option<Compiled>,
}

/// Work of the vendor's, compiled, with the memory that it takes.
struct Compiled {
    work: Work,
    reads: Vec<Span>,
    writes: Vec<Span>,
    copies: Vec<(Span, Span)>,
}

impl Segment {
    /// The segment of `launches`, which were checked.
    pub fn new(device: &Device, state: &State, launches: &[Launch], replay: bool) -> Result<Segment, String> {
        let prepare = |l: &Launch| {
            let pipeline = state.kernel(l.kernel).ok_or("a kernel is not there")?.clone();
            let (buffers, params) = (l.buffers.clone(), l.params);
            Ok(Prepared { pipeline, buffers, params, grid: l.grid, group: l.group })
        };
        let mut segment = Segment {
            launches: launches.iter().map(prepare).collect::<Result<_, String>>()?,
            steps: launches.iter().map(|l| l.step).collect(),
            barriers: plan::barriers(launches),
            uses: plan::uses(launches),
            pieces: Vec::new(),
            vendor: None,
        };
        if replay {
            let pieces = plan::pieces(launches.len());
            let one = |range| segment.piece(device, state, range);
            segment.pieces = pieces.into_iter().map(one).collect::<Result<_, String>>()?;
        }
        Ok(segment)
    }

    /// The segment of work for the vendor, whose spans were checked.
    pub fn vendor(device: &Device, call: &VendorCall) -> Result<Segment, String> {
        let work = Work::new(device, &call.work)?;
        let (reads, writes, copies) = (call.reads.clone(), call.writes.clone(), call.copies.clone());
        Ok(Segment {
            launches: Vec::new(),
            steps: vec![call.step],
            barriers: vec![false],
            uses: plan::vendor_uses(&reads, &writes, &copies),
            pieces: Vec::new(),
            vendor: Some(Compiled { work, reads, writes, copies }),
        })
    }

    /// What `plan` wants to know of it.
    pub fn shape<'a>(&'a self, id: SegmentId) -> Shape<'a> {
        let vendor = |v: &'a Compiled| Vendor { graph: matches!(v.work, Work::Graph(..)), copies: &v.copies };
        let vendor = self.vendor.as_ref().map(vendor);
        Shape { id, steps: &self.steps, barriers: &self.barriers, replay: !self.pieces.is_empty(), vendor }
    }

    /// An indirect command buffer of some launches.
    fn piece(
        &self,
        device: &Device,
        state: &State,
        range: std::ops::Range<usize>,
    ) -> Result<(Indirect, usize), String> {
        let count = range.len();
        let (launches, barriers) = (&self.launches[range.clone()], &self.barriers[range]);
        let most = launches.iter().map(|l| l.buffers.len() + 1).max().unwrap_or(1);
        let wanted = MTLIndirectCommandBufferDescriptor::new();
        wanted.setCommandTypes(MTLIndirectCommandType::ConcurrentDispatch);
        wanted.setInheritPipelineState(false);
        wanted.setInheritBuffers(false);
        wanted.setMaxKernelBufferBindCount(most);
        let options = MTLResourceOptions::StorageModeShared;
        // SAFETY: the number of commands is within Metal's limit, `plan::MOST_COMMANDS`.
        let made = unsafe {
            device.newIndirectCommandBufferWithDescriptor_maxCommandCount_options(&wanted, count, options)
        };
        let commands = Indirect::new(made.ok_or("there is no memory for an indirect command buffer")?);
        for (i, (l, barrier)) in launches.iter().zip(barriers).enumerate() {
            // SAFETY: the number is below that of commands.
            let command = unsafe { commands.indirectComputeCommandAtIndex(i) };
            command.setComputePipelineState(&l.pipeline);
            for (n, (buffer, at)) in l.arguments(state)?.into_iter().enumerate() {
                // SAFETY: the buffer is the kernel's argument of this number (checked when launches are encoded), and the
                // offset lies inside it. It is there whenever the command runs: runs look up all buffers of the segment.
                unsafe { command.setKernelBuffer_offset_atIndex(buffer, at, n) };
            }
            if *barrier {
                command.setBarrier();
            }
            let (grid, group) = l.sizes();
            command.concurrentDispatchThreadgroups_threadsPerThreadgroup(grid, group);
        }
        Ok((commands, count))
    }
}

impl Prepared {
    /// The buffers of its arguments with offsets, the parameter block last.
    fn arguments<'a>(&self, state: &'a State) -> Result<Vec<(&'a Buffer, usize)>, String> {
        let params = (&self.params.buffer, self.params.offset as usize);
        let all = self.buffers.iter().map(|b| (b, 0)).chain([params]);
        all.map(|(b, at)| Ok((state.buffer(*b).ok_or("a buffer is not there")?, at))).collect()
    }

    /// Groups, and items of a group.
    fn sizes(&self) -> (MTLSize, MTLSize) {
        (line(self.grid), line(self.group))
    }
}

fn line(n: u32) -> MTLSize {
    MTLSize { width: n as usize, height: 1, depth: 1 }
}

/// Items of a group of [`mover`], of which there is one; more than bytes that it moves.
const MOVERS: u32 = 32;

/// The kernel that moves single bytes: blits on macOS move units of four.
pub(super) fn mover() -> KernelSource {
    let (header, body) = (include_str!("../../../kernels/compat/metal.h"), include_str!("move_bytes.k"));
    let text = format!("#define GROUP_SIZE {MOVERS}\n{header}\n{body}");
    KernelSource { entry: "frit_move_bytes".into(), text, group: MOVERS, buffers: 2, shared: 0 }
}

/// What a run's commands refer to. Everything they name was looked up before.
pub(super) struct Run<'a> {
    pub queue: &'a Queue,
    pub state: &'a State,
    pub slot: &'a Buffer,
    pub segments: &'a [(SegmentId, &'a Segment)],
    /// The kernel of [`mover`], if it is needed.
    pub mover: Option<&'a Pipeline>,
    pub samples: Option<&'a Samples>,
}

impl Run<'_> {
    /// Encodes the batches and commits each as a command buffer, or all in one if counters time them. What was committed before a
    /// failure is there beside it.
    pub fn commit(&self, batches: &[Batch]) -> (Vec<Part>, Result<(), String>) {
        let mut out = Vec::new();
        // Launch `n` of the run begins with batch `n` of those with a step.
        let timed = batches.iter().scan(0, |n, b| {
            let this = b.step.map(|_| *n);
            *n += usize::from(b.step.is_some());
            Some((b, this))
        });
        let timed: Vec<(&Batch, Option<usize>)> = timed.collect();
        let together = if self.samples.is_some() { timed.len().max(1) } else { 1 };
        for group in timed.chunks(together) {
            let step = group[0].0.step;
            if let [Command::Graph { segment }] = group[0].0.commands[..] {
                match self.graph(segment) {
                    Ok(all) => out.extend(all.into_iter().map(|c| (step, c))),
                    Err(why) => return (out, Err(why)),
                }
                continue;
            }
            match self.buffer(group) {
                Ok(commands) => out.push((step, Committed::commit(commands))),
                Err(why) => return (out, Err(why)),
            }
        }
        (out, Ok(()))
    }

    /// A command buffer of these batches, each with the number of the launch that it times.
    fn buffer(&self, batches: &[(&Batch, Option<usize>)]) -> Result<Retained<Commands>, String> {
        let commands = self.queue.commandBuffer().ok_or("there is no command buffer")?;
        for (batch, number) in batches {
            for (kind, range) in plan::encoders(&batch.commands) {
                let some = &batch.commands[range];
                match kind {
                    Encoder::Blit => self.blits(&commands, some)?,
                    Encoder::Compute => self.launches(&commands, some, *number)?,
                    Encoder::Vendor => some.iter().try_for_each(|c| self.product(&commands, *c))?,
                }
            }
        }
        Ok(commands)
    }

    /// The committed command buffers of a graph.
    fn graph(&self, segment: SegmentId) -> Result<Vec<Committed>, String> {
        let v = self.segment(segment)?.vendor.as_ref().ok_or("a segment of launches as a graph")?;
        let Work::Graph(graph, program) = &v.work else { return Err("a product as a graph".into()) };
        let results = program.result_lines();
        let (feeds, results) = (self.lines(&v.reads, &program.feeds)?, self.lines(&v.writes, &results)?);
        graph.commit(self.queue, &feeds, &results)
    }

    /// Spans with what lies there.
    fn lines(&self, spans: &[Span], lines: &[Line]) -> Result<Vec<(&Buffer, usize, Line)>, String> {
        let one = |(s, l): (&Span, &Line)| {
            let (buffer, at) = self.place(Place::Buffer(s.buffer, s.offset))?;
            Ok((buffer, at, *l))
        };
        spans.iter().zip(lines).map(one).collect()
    }

    fn product(&self, commands: &Commands, command: Command) -> Result<(), String> {
        let Command::Product { segment } = command else { return Err("a graph among launches".into()) };
        let v = self.segment(segment)?.vendor.as_ref().ok_or("a segment of launches as a product")?;
        let (Work::Product(product), [a, b], [out]) = (&v.work, &v.reads[..], &v.writes[..]) else {
            return Err("a graph as a product".into());
        };
        let place = |s: &Span| self.place(Place::Buffer(s.buffer, s.offset));
        product.encode(commands, [place(a)?, place(b)?, place(out)?]);
        Ok(())
    }

    /// Where a place lies.
    fn place(&self, p: Place) -> Result<(&Buffer, usize), String> {
        Ok(match p {
            Place::Slot(at) => (self.slot, at as usize),
            Place::Buffer(b, at) => (self.state.buffer(b).ok_or("a buffer is not there")?, at as usize),
        })
    }

    fn segment(&self, id: SegmentId) -> Result<&Segment, String> {
        let found = self.segments.iter().find(|(s, _)| *s == id);
        found.map(|(_, s)| *s).ok_or_else(|| "a segment is not there".into())
    }

    /// An encoder of copies.
    fn blits(&self, commands: &Commands, some: &[Command]) -> Result<(), String> {
        let encoder = commands.blitCommandEncoder().ok_or("there is no encoder for copies")?;
        let done = some.iter().try_for_each(|c| self.blit(&encoder, *c));
        // Even after a failure: an encoder must end before it goes.
        encoder.endEncoding();
        done
    }

    fn blit(&self, encoder: &Blits, command: Command) -> Result<(), String> {
        match command {
            Command::Copy { from, to, bytes } => {
                let ((a, from), (b, to)) = (self.place(from)?, self.place(to)?);
                // SAFETY: both ranges lie inside their buffers: those of buffers were checked (buffers end at whole units), the
                // slot was made for the layout. Runs that use the same bytes come before or after in the queue.
                unsafe {
                    encoder.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size(
                        a,
                        from,
                        b,
                        to,
                        bytes as usize,
                    );
                }
            }
            Command::Fill(s) => {
                let (buffer, at) = self.place(Place::Buffer(s.buffer, s.offset))?;
                encoder.fillBuffer_range_value(buffer, NSRange::new(at, s.bytes as usize), 0);
            }
            _ => return Err("a launch among copies".into()),
        }
        Ok(())
    }

    /// An encoder of launches, which overlap where no barrier stands between them; `number`: of the launch that it times.
    fn launches(&self, commands: &Commands, some: &[Command], number: Option<usize>) -> Result<(), String> {
        let encoder = match (self.samples, number) {
            (Some(samples), Some(n)) => commands.computeCommandEncoderWithDescriptor(&samples.pass(n)),
            _ => commands.computeCommandEncoderWithDispatchType(MTLDispatchType::Concurrent),
        };
        let encoder = encoder.ok_or("there is no encoder for launches")?;
        let done = some.iter().try_for_each(|c| self.launch(&encoder, *c));
        // As for copies.
        encoder.endEncoding();
        done
    }

    fn launch(&self, encoder: &Launches, command: Command) -> Result<(), String> {
        match command {
            Command::Launch { segment, index, barrier } => {
                let segment = self.segment(segment)?;
                let l = segment.launches.get(index as usize).ok_or("a launch is not there")?;
                if barrier {
                    encoder.memoryBarrierWithScope(MTLBarrierScope::Buffers);
                }
                self.encode(encoder, l)
            }
            Command::Replay { segment, piece } => self.replay(encoder, self.segment(segment)?, piece),
            Command::Bytes { from, to, bytes } => self.bytes(encoder, from, to, bytes),
            _ => Err("a copy among launches".into()),
        }
    }

    fn encode(&self, encoder: &Launches, l: &Prepared) -> Result<(), String> {
        encoder.setComputePipelineState(&l.pipeline);
        for (n, (buffer, at)) in l.arguments(self.state)?.into_iter().enumerate() {
            // SAFETY: the buffer is the kernel's argument of this number, and the offset lies inside it; both were checked when
            // the launch was encoded. What the kernel touches is declared and ordered by barriers and encoders.
            unsafe { encoder.setBuffer_offset_atIndex(Some(buffer), at, n) };
        }
        let (grid, group) = l.sizes();
        encoder.dispatchThreadgroups_threadsPerThreadgroup(grid, group);
        Ok(())
    }

    /// A piece of a segment. What its commands use is not seen by Metal, which must be told for each run.
    fn replay(&self, encoder: &Launches, segment: &Segment, piece: u32) -> Result<(), String> {
        let (commands, count) = segment.pieces.get(piece as usize).ok_or("a piece is not there")?;
        for u in &segment.uses {
            let (buffer, _) = self.place(Place::Buffer(u.buffer, 0))?;
            let mut usage = MTLResourceUsage::empty();
            usage.set(MTLResourceUsage::Read, u.reads);
            usage.set(MTLResourceUsage::Write, u.writes);
            encoder.useResource_usage(ProtocolObject::from_ref(&**buffer), usage);
        }
        // SAFETY: the range is that of the commands, all of which were encoded. Kernels and buffers that they use are held until
        // the run has ended.
        unsafe { encoder.executeCommandsInBuffer_withRange(commands, NSRange::new(0, *count)) };
        Ok(())
    }

    fn bytes(&self, encoder: &Launches, from: Place, to: Place, bytes: u64) -> Result<(), String> {
        let mover = self.mover.ok_or("the kernel that moves bytes is not there")?;
        let ((a, from), (b, to)) = (self.place(from)?, self.place(to)?);
        let words = [from as u64, to as u64, bytes];
        let (pointer, length): (NonNull<_>, _) = bytes_of(&words);
        encoder.setComputePipelineState(mover);
        // SAFETY: the arguments are the kernel's: two buffers, in which the bytes lie as for copies, and three numbers, which the
        // call copies.
        unsafe {
            encoder.setBuffer_offset_atIndex(Some(a), 0, 0);
            encoder.setBuffer_offset_atIndex(Some(b), 0, 1);
            encoder.setBytes_length_atIndex(pointer, length, 2);
        }
        encoder.dispatchThreadgroups_threadsPerThreadgroup(line(1), line(MOVERS));
        Ok(())
    }
}
