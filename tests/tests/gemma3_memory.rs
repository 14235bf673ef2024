//! Resident memory of Gemma 3 270M. Alone in its file: it is the memory of the process.
#![cfg(target_os = "linux")]

use frit::{LoadOptions, Model, Options};
use frit_tests::golden;

/// A line of `/proc/self/status`, in bytes.
fn status(key: &str) -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix(key)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

#[test]
fn a_full_context_of_2048_stays_near_the_weights() {
    let path = golden::gemma3();
    let weights = std::fs::metadata(&path).unwrap().len() as usize;
    let model = Model::load_with(&path, &LoadOptions::default().context(2048)).unwrap();
    println!(
        "loaded: {} MB, {} of them of files",
        status("VmRSS") / 1_000_000,
        status("RssFile") / 1_000_000
    );
    let mut g = model.generator(Options::default()).unwrap();
    let ids: Vec<u32> = (0..2047).map(|i| 1000 + i * 37).collect();
    g.feed(&ids).unwrap();
    g.feed(&[7]).unwrap();
    let (arena, cache, ports) = g.memory();
    let resident = status("VmRSS");
    println!(
        "full: {} MB, {} of them of files, at most {}; file {} MB; arena {arena}, KV cache {cache}, ports {ports} bytes",
        resident / 1_000_000,
        status("RssFile") / 1_000_000,
        status("VmHWM") / 1_000_000,
        weights / 1_000_000,
    );
    assert!(resident <= weights * 115 / 100 + 150_000_000, "{resident} bytes for {weights} of weights");
}
