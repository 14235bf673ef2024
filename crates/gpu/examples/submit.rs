//! What a run costs beside its kernels: the host's time to submit a segment of 200 launches and the time to their end, in
//! one chain and in several side by side, with copies, timed, and many runs in flight.
//!
//! `cargo run --release -p frit-gpu --features opencl,cuda --example submit`. On a Mac `-- --capture FILE.gputrace` records what
//! runs for Xcode, with `MTL_CAPTURE_ENABLED=1` in the environment.

use std::sync::Arc;
use std::time::Instant;

use frit_gpu::GpuError;
use frit_gpu::driver::{
    BufferId, Dialect, Driver, KernelId, KernelSource, SegmentId, Submission, TicketId, Upload,
};
use frit_gpu::drivers::APIS;
use frit_gpu::launch::{Launch, Span};

const LAUNCHES: u32 = 200;
const RUNS: usize = 200;
const ITEMS: u32 = 256;
/// Most chains of launches side by side.
const CHAINS: u32 = 200;

/// Adds a number to each of 256 numbers, some times over.
fn source(dialect: Dialect) -> KernelSource {
    let body = "{ data += 256 * ((PARAMS const uint32 *)(block + at))[2] + ITEM; float v = *data; \
                const float add = ((PARAMS const float *)(block + at))[0]; \
                for (int n = ((PARAMS const int *)(block + at))[1]; n > 0; n--) v += add; *data = v; }";
    let head = match dialect {
        Dialect::Cuda => {
            "typedef unsigned uint32;\n#define ITEM threadIdx.x\n#define PARAMS\nextern \"C\" __global__ void \
             add(float *data, const unsigned char *block, unsigned at)"
        }
        Dialect::Metal => {
            "#include <metal_stdlib>\nusing namespace metal;\ntypedef uint uint32;\n#define ITEM item\n#define PARAMS device\n\
             #define at 0\n[[max_total_threads_per_threadgroup(256)]] kernel void add(device float *data [[buffer(0)]], \
             device const uchar *block [[buffer(1)]], uint item [[thread_index_in_threadgroup]])"
        }
        Dialect::OpenCl => {
            "typedef uint uint32;\n#define ITEM get_local_id(0)\n#define PARAMS __global\n__kernel \
             __attribute__((reqd_work_group_size(256, 1, 1))) void add(__global float *data, \
             __global const uchar *block, uint at)"
        }
    };
    KernelSource {
        entry: "add".into(),
        text: format!("{head} {body}\n"),
        group: ITEMS,
        buffers: 1,
        shared: 0,
    }
}

/// The parameter blocks of all chains.
fn params(add: f32, turns: u32) -> Vec<u8> {
    (0..CHAINS).flat_map(|chain| [add.to_bits(), turns, chain, 0]).flat_map(u32::to_le_bytes).collect()
}

struct Bench<'a> {
    driver: &'a dyn Driver,
    kernel: KernelId,
    data: BufferId,
    block: BufferId,
}

impl Bench<'_> {
    /// A segment of launches in `chains` chains side by side; each launch waits for the one before in its chain.
    fn encode(&self, chains: u32) -> Result<SegmentId, GpuError> {
        let (kernel, buffers) = (self.kernel, vec![self.data]);
        let launch = |step: u32| {
            let chain = u64::from(step % chains);
            let span = Span { buffer: self.data, offset: 1024 * chain, bytes: 1024 };
            let params = Span { buffer: self.block, offset: 16 * chain, bytes: 16 };
            let (reads, writes) = (vec![span], vec![span]);
            Launch { step, kernel, buffers: buffers.clone(), params, grid: 1, group: ITEMS, reads, writes }
        };
        self.driver.encode(&(0..LAUNCHES).map(launch).collect::<Vec<_>>())
    }

    /// Medians of the time to submit and of the time to the end, in microseconds.
    fn time(&self, run: &Submission) -> Result<(f64, f64), GpuError> {
        let mut out = vec![0; run.downloads.iter().map(|s| s.bytes as usize).sum()];
        let (mut host, mut all) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            let start = Instant::now();
            let ticket = self.driver.submit(run)?;
            host.push(start.elapsed().as_secs_f64());
            self.driver.wait(ticket, &mut out)?;
            all.push(start.elapsed().as_secs_f64());
        }
        Ok((median(host), median(all)))
    }
}

/// The median, in microseconds.
fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).map_or(0.0, |s| s * 1e6)
}

fn measure(driver: &dyn Driver) -> Result<(), GpuError> {
    let info = driver.info();
    println!("{} by {} ({})", info.name, info.api, info.driver);
    let start = Instant::now();
    let kernel = driver.build(&source(info.dialect))?;
    let built = start.elapsed().as_secs_f64() * 1e3;
    let binary = driver.binary(kernel);
    let start = Instant::now();
    let loaded = binary.and_then(|b| driver.load(&source(info.dialect), &b));
    let again = start.elapsed().as_secs_f64() * 1e3;
    match loaded {
        Some(_) => println!("  built in {built:.1} ms, from its binary in {again:.2} ms"),
        None => println!("  built in {built:.1} ms, without a binary that it takes"),
    }
    let bytes = 1024 * u64::from(CHAINS);
    let (data, block) = (driver.allocate("the numbers", bytes)?, driver.allocate("the parameters", 4096)?);
    driver.zero(Span { buffer: data, offset: 0, bytes })?;
    let b = Bench { driver, kernel, data, block };
    for chains in [1, 2, 3, 4, 8, CHAINS] {
        let start = Instant::now();
        let segments = [b.encode(chains)?];
        let encoded = start.elapsed().as_secs_f64() * 1e6;
        let words = params(1.0, 1);
        let bare = Submission { upload: None, segments: &segments, downloads: &[], timed: false };
        let upload = Some(Upload { buffer: block, offset: 0, bytes: &words });
        let downloads = [Span { buffer: data, offset: 0, bytes: 4096 }];
        let whole = Submission { upload, downloads: &downloads, ..bare };
        driver.write(block, 0, &words)?;
        let ((host, all), (host_copies, all_copies)) = (b.time(&bare)?, b.time(&whole)?);
        let each = all / f64::from(LAUNCHES);
        println!(
            "  {chains} chains: {encoded:.0} µs to encode; {host:.1} µs to submit, {all:.0} µs to the end, {each:.2} µs a launch;"
        );
        println!("    with upload and download {host_copies:.1} and {all_copies:.0} µs");
        driver.write(block, 0, &params(1.0, 10_000))?;
        if info.api != "opencl" {
            let (host, all) = b.time(&bare)?;
            println!("    of longer kernels {host:.1} and {all:.0} µs");
        }
        driver.write(block, 0, &words)?;
        let times = driver.wait(driver.submit(&Submission { timed: true, ..bare })?, &mut [])?;
        let each = median(times.iter().map(|t| (t.end - t.start).as_secs_f64()).collect());
        let last = times.last().map_or(0.0, |t| t.end.as_secs_f64() * 1e6);
        println!("    timed: {} launches, {each:.2} µs each, {last:.0} µs in all", times.len());
        driver.release(segments[0]);
    }
    pipelined(&b)
}

/// Many runs in flight, and whether every launch did its work.
fn pipelined(b: &Bench) -> Result<(), GpuError> {
    let driver = b.driver;
    driver.zero(Span { buffer: b.data, offset: 0, bytes: 1024 })?;
    let segments = [b.encode(1)?];
    let (mut want, mut wrong) = (0.0, 0);
    for round in 0..2 {
        let start = Instant::now();
        let mut tickets = Vec::new();
        for i in 0..RUNS {
            // Each run adds a number of its own: what the host hands over is its to change at once.
            let bytes = params(i as f32 % 7.0, 1);
            let upload = Some(Upload { buffer: b.block, offset: 0, bytes: &bytes });
            let downloads = [Span { buffer: b.data, offset: 0, bytes: 4 }];
            let run = Submission { upload, segments: &segments, downloads: &downloads, timed: false };
            tickets.push(driver.submit(&run)?);
            if round == 1 && i % 4 == 3 {
                // Four in flight at most, from now on.
                check(driver, &mut tickets, &mut want, &mut wrong, i - 3)?;
            }
        }
        let host = start.elapsed().as_secs_f64() * 1e6 / RUNS as f64;
        check(driver, &mut tickets, &mut want, &mut wrong, 0)?;
        let all = start.elapsed().as_secs_f64() * 1e6 / RUNS as f64;
        let flight = if round == 0 { RUNS } else { 4 };
        println!(
            "  {flight} runs in flight: {host:.1} µs to submit each, {all:.1} µs a run, {wrong} wrong results"
        );
    }
    Ok(())
}

/// Waits for the runs `from`, `from + 1`, … and compares what they left.
fn check(
    driver: &dyn Driver,
    tickets: &mut Vec<TicketId>,
    want: &mut f32,
    wrong: &mut usize,
    from: usize,
) -> Result<(), GpuError> {
    for (i, t) in tickets.drain(..).enumerate() {
        let mut out = [0; 4];
        driver.wait(t, &mut out)?;
        *want += LAUNCHES as f32 * ((from + i) as f32 % 7.0);
        *wrong += usize::from(f32::from_le_bytes(out) != *want);
    }
    Ok(())
}

/// Begins the recording that `--capture FILE` asks for.
#[cfg(target_os = "macos")]
fn capture() -> Result<Option<frit_gpu::drivers::metal::Capture>, GpuError> {
    let to = std::env::args().skip_while(|a| a != "--capture").nth(1);
    let start = |to: String| frit_gpu::drivers::metal::Metal::open(0)?.capture(to.as_ref());
    to.map(start).transpose()
}

fn main() -> Result<(), GpuError> {
    #[cfg(target_os = "macos")]
    let _recording = capture()?;
    let mut all: Vec<Arc<dyn Driver>> = Vec::new();
    for api in APIS {
        match (api.devices)() {
            Ok(found) => all.extend((0..found.len()).map(api.open).collect::<Result<Vec<_>, _>>()?),
            Err(e) => println!("{e}"),
        }
    }
    all.sort_by_key(|d| d.info().api);
    all.iter().try_for_each(|d| measure(d.as_ref()))
}
