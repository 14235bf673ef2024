//! What there is to run on.

use frit_cpu::isa::Isa;

/// A device of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Device {
    /// What it is called here, e.g. `cpu`.
    pub name: &'static str,
    /// Its maker's name, where the system tells.
    pub model: Option<String>,
    /// Architecture of the processor, e.g. `x86_64`.
    pub architecture: &'static str,
    /// The instruction set that kernels were chosen for: `portable`, `avx2` or `avx512`.
    pub instruction_set: &'static str,
    /// The extensions that this choice needs and uses.
    pub extensions: &'static [&'static str],
    /// Threads used unless options say otherwise.
    pub threads: usize,
    /// Bytes of memory, where the system tells.
    pub memory: Option<u64>,
    /// Bytes of memory that are free for use, where the system tells.
    pub available: Option<u64>,
}

/// The devices that models can run on, the preferred one first.
pub fn devices() -> Vec<Device> {
    let (instruction_set, extensions) = set(Isa::detect());
    vec![Device {
        name: "cpu",
        model: field("/proc/cpuinfo", "model name"),
        architecture: std::env::consts::ARCH,
        instruction_set,
        extensions,
        threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
        memory: kibibytes("MemTotal"),
        available: kibibytes("MemAvailable"),
    }]
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
    #[test]
    fn the_cpu_is_always_there() {
        let all = super::devices();
        assert_eq!(all[0].name, "cpu");
        assert!(all[0].threads > 0);
        assert_eq!(all[0].memory.is_some(), cfg!(target_os = "linux"));
        assert!(all[0].available <= all[0].memory);
    }
}
