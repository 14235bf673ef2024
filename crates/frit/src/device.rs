//! What there is to run on, and opening it.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use frit_cpu::isa::Isa;
use frit_cpu::pool::Pool;

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::gpu;

/// Which device to run on. Its text form is `auto`, `cpu`, or `cuda`, `metal` or `opencl` with a number: `opencl:1`; without
/// one the first is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceSpec {
    /// The first GPU that passes its self-check, by CUDA, then by Metal; else the CPU. OpenCL devices are used only by name:
    /// looking for them costs every start 0.2 s and 60 MB where a runtime is installed, even if it has no GPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// This CUDA device, counted from 0.
    Cuda(usize),
    /// This Metal device, counted from 0.
    Metal(usize),
    /// This OpenCL device, counted from 0.
    OpenCl(usize),
}

/// How GPUs are reached: the name of the API, and the feature of this crate that brings it, if one does. Metal is on a Mac
/// wherever GPUs are.
const WAYS: [(&str, &str); 3] =
    [("cuda", "cuda"), ("metal", if cfg!(target_os = "macos") { "gpu" } else { "" }), ("opencl", "opencl")];

/// The APIs whose devices [`DeviceSpec::Auto`] takes, in this order.
const AUTO: [&str; 2] = ["cuda", "metal"];

impl DeviceSpec {
    pub(crate) fn of(api: &str, index: usize) -> Option<DeviceSpec> {
        match api {
            "cuda" => Some(DeviceSpec::Cuda(index)),
            "metal" => Some(DeviceSpec::Metal(index)),
            "opencl" => Some(DeviceSpec::OpenCl(index)),
            _ => None,
        }
    }

    /// The API and the number of a GPU.
    pub(crate) fn gpu(&self) -> Option<(&'static str, usize)> {
        match self {
            DeviceSpec::Auto | DeviceSpec::Cpu => None,
            DeviceSpec::Cuda(i) => Some(("cuda", *i)),
            DeviceSpec::Metal(i) => Some(("metal", *i)),
            DeviceSpec::OpenCl(i) => Some(("opencl", *i)),
        }
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.gpu() {
            Some((api, index)) => write!(f, "{api}:{index}"),
            None if *self == DeviceSpec::Cpu => f.write_str("cpu"),
            None => f.write_str("auto"),
        }
    }
}

impl FromStr for DeviceSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<DeviceSpec> {
        let (name, index) = match text.split_once(':') {
            None => (text, Some(0)),
            Some((name, n)) => (name, n.parse().ok().filter(|_| n.bytes().all(|b| b.is_ascii_digit()))),
        };
        let spec = match text {
            "auto" => Some(DeviceSpec::Auto),
            "cpu" => Some(DeviceSpec::Cpu),
            _ => index.and_then(|i| DeviceSpec::of(name, i)),
        };
        spec.ok_or_else(|| {
            Error::value(format!(
                "there is no device `{text}`; there are: auto, cpu, cuda, metal, opencl, the last three with a number if \
                 wanted, such as opencl:1"
            ))
        })
    }
}

/// A device of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Device {
    /// How it is asked for.
    pub spec: DeviceSpec,
    /// Its maker's name for it, where the system tells.
    pub model: Option<String>,
    /// Bytes of memory, where the system tells.
    pub memory: Option<u64>,
    /// Bytes of memory that are free for use, where the system tells.
    pub available: Option<u64>,
    /// What else there is to say.
    pub kind: DeviceKind,
}

/// What depends on the kind of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceKind {
    /// The CPU.
    #[non_exhaustive]
    Cpu {
        /// Architecture of the processor, e.g. `x86_64`.
        architecture: &'static str,
        /// The instruction set that kernels were chosen for: `portable`, `avx2` or `avx512`.
        instruction_set: &'static str,
        /// The extensions that this choice needs and uses.
        extensions: &'static [&'static str],
        /// Threads used unless options say otherwise.
        threads: usize,
    },
    /// A GPU, or what an API for GPUs shows as one.
    #[non_exhaustive]
    Gpu {
        /// Its maker.
        vendor: String,
        /// Version of its driver and compiler.
        driver: String,
        /// Compute units.
        units: u32,
        /// Bytes of its largest buffer.
        max_buffer: u64,
        /// Whether it computes in f64.
        f64: bool,
        /// Whether it shares the host's memory.
        unified_memory: bool,
        /// Whether it is the CPU by another way.
        host: bool,
    },
}

/// A way of reaching devices by which none was found.
#[derive(Debug)]
#[non_exhaustive]
pub struct Missing {
    /// Its name: `cuda`, `metal` or `opencl`.
    pub name: &'static str,
    /// Why, and what would help.
    pub why: String,
}

/// The devices that models can run on: the CPU, then what each API finds.
pub fn devices() -> Vec<Device> {
    let (instruction_set, extensions) = set(Isa::detect());
    let cpu = Device {
        spec: DeviceSpec::Cpu,
        model: field("/proc/cpuinfo", "model name"),
        memory: kibibytes("MemTotal"),
        available: kibibytes("MemAvailable"),
        kind: DeviceKind::Cpu {
            architecture: std::env::consts::ARCH,
            instruction_set,
            extensions,
            threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
        },
    };
    let gpus = WAYS.iter().flat_map(|(name, _)| gpu::devices(name)).collect();
    [vec![cpu], gpus].concat()
}

/// The ways of reaching GPUs by which [`devices`] found none, with the reason.
pub fn missing_devices() -> Vec<Missing> {
    let missing = |(name, feature): &(&'static str, &str)| {
        let why = gpu::why_missing(name).unwrap_or_else(|| Some(not_built(name, feature)));
        Some(Missing { name, why: why? })
    };
    WAYS.iter().filter_map(missing).collect()
}

fn not_built(name: &str, feature: &str) -> String {
    match feature {
        "" => format!("this build has no driver for {name}"),
        _ => format!("this build has no driver for {name}; build it with the feature `{feature}`"),
    }
}

impl Device {
    /// Runs op cases on a GPU and compares their results with the reference: the self-check that its first use makes. The result
    /// is kept in the folder `cache`, if one is given; `anew` ignores what is there. The CPU needs none.
    ///
    /// # Errors
    /// [`Error::Device`] for a device that cannot be opened, or that fails, with the cases that it fails.
    pub fn check(&self, cache: Option<&Path>, anew: bool) -> Result<()> {
        gpu::open(&self.spec, cache, anew).map_or(Ok(()), |opened| opened.map(drop))
    }

    /// What [`Device::check`] or the first use found, if this process or the folder `cache` knows; the CPU needs no check.
    pub fn last_check(&self, cache: Option<&Path>) -> Option<Result<()>> {
        if self.spec == DeviceSpec::Cpu { Some(Ok(())) } else { gpu::last_check(self, cache) }
    }
}

/// A device ready for use.
pub(crate) struct Opened {
    pub backend: Backend,
    pub spec: DeviceSpec,
    /// A line for each device that `auto` would have taken before, with the reason why it did not.
    pub passed_over: Vec<String>,
}

/// Opens what `spec` asks for; `threads` are those of the CPU's pool.
pub(crate) fn open(spec: &DeviceSpec, cache: Option<&Path>, threads: Option<usize>) -> Result<Opened> {
    let mut passed_over = Vec::new();
    if *spec == DeviceSpec::Auto {
        for d in AUTO.iter().flat_map(|name| gpu::devices(name)) {
            match open(&d.spec, cache, threads) {
                Ok(opened) => return Ok(Opened { passed_over, ..opened }),
                Err(e) => passed_over.push(e.to_string()),
            }
        }
    }
    let Some((api, _)) = spec.gpu() else {
        let pool = match threads {
            Some(n) => Arc::new(Pool::new(n)?),
            None => shared_pool()?,
        };
        return Ok(Opened { backend: Backend::Cpu(pool, Vec::new()), spec: DeviceSpec::Cpu, passed_over });
    };
    match gpu::open(spec, cache, false) {
        Some(backend) => Ok(Opened { backend: backend?, spec: spec.clone(), passed_over }),
        None => {
            let feature = WAYS.iter().find(|w| w.0 == api).map_or("", |w| w.1);
            Err(Error::Unsupported { message: format!("{spec}: {}", not_built(api, feature)) })
        }
    }
}

/// The pool that models share unless they ask for their own.
fn shared_pool() -> Result<Arc<Pool>> {
    static POOL: OnceLock<Arc<Pool>> = OnceLock::new();
    if let Some(p) = POOL.get() {
        return Ok(p.clone());
    }
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let pool = Arc::new(Pool::new(threads)?);
    Ok(POOL.get_or_init(|| pool).clone())
}

fn set(isa: Isa) -> (&'static str, &'static [&'static str]) {
    match isa {
        Isa::Portable => ("portable", &[]),
        Isa::Avx2 => ("avx2", &["avx2", "fma", "f16c"]),
        Isa::Avx512 => (
            "avx512",
            &[
                "avx2",
                "fma",
                "f16c",
                "avx512f",
                "avx512bw",
                "avx512vl",
                "avx512dq",
                "avx512vnni",
                "avx512vbmi",
            ],
        ),
    }
}

/// The first value of `key` in a file of `key : value` lines, which only Linux has.
fn field(file: &str, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = |l: &str| Some(l.split_once(':').filter(|(k, _)| k.trim() == key)?.1.trim().to_owned());
    text.lines().find_map(line).filter(|v| !v.is_empty())
}

fn kibibytes(key: &str) -> Option<u64> {
    let value = field("/proc/meminfo", key)?;
    value.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_always_there() {
        let all = devices();
        assert_eq!(all[0].spec, DeviceSpec::Cpu);
        assert!(matches!(all[0].kind, DeviceKind::Cpu { threads: 1.., .. }));
        assert_eq!(all[0].memory.is_some(), cfg!(target_os = "linux"));
        assert!(all[0].available <= all[0].memory);
        all[0].check(None, true).unwrap();
    }

    #[test]
    fn devices_are_listed_from_several_threads_at_once() {
        let specs = || devices().into_iter().map(|d| d.spec).collect::<Vec<_>>();
        let all: Vec<_> = (0..8).map(|_| std::thread::spawn(specs)).collect();
        let all: Vec<_> = all.into_iter().map(|t| t.join().unwrap()).collect();
        assert!(all.iter().all(|s| *s == all[0]), "{all:?}");
    }

    #[test]
    fn every_api_has_devices_or_a_reason() {
        let (found, missing) = (devices(), missing_devices());
        for (name, _) in WAYS {
            let has = found.iter().any(|d| d.spec.gpu().is_some_and(|g| g.0 == name));
            assert!(has != missing.iter().any(|m| m.name == name && !m.why.is_empty()), "{name}");
        }
    }

    #[test]
    fn specs_are_what_they_print() {
        let all = [
            ("auto", DeviceSpec::Auto),
            ("cpu", DeviceSpec::Cpu),
            ("cuda:0", DeviceSpec::Cuda(0)),
            ("metal:2", DeviceSpec::Metal(2)),
            ("opencl:10", DeviceSpec::OpenCl(10)),
        ];
        for (text, spec) in all {
            assert_eq!(text.parse::<DeviceSpec>().unwrap(), spec);
            assert_eq!(spec.to_string(), text);
        }
        assert_eq!("opencl".parse::<DeviceSpec>().unwrap(), DeviceSpec::OpenCl(0));
        for bad in [
            "",
            "CPU",
            "cpu:0",
            "cuda:",
            "cuda:-1",
            "cuda:+1",
            "cuda:x",
            "gpu",
            "opencl:99999999999999999999",
        ] {
            let e = bad.parse::<DeviceSpec>().unwrap_err().to_string();
            assert!(e.contains(&format!("no device `{bad}`; there are: auto, cpu, cuda")), "{e}");
        }
    }

    #[test]
    fn a_device_that_is_not_there_says_so() {
        for spec in [DeviceSpec::Cuda(99), DeviceSpec::Metal(99), DeviceSpec::OpenCl(99)] {
            let Err(e) = open(&spec, None, None) else { panic!("{spec} opens") };
            assert!(matches!(e, Error::Device { .. } | Error::Unsupported { .. }), "{e}");
        }
    }
}
