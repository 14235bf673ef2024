//! CPU use of a process that has loaded a model, generated a little and then does nothing. Usage: `idle [SECONDS]`

use std::time::Duration;

use frit::{Model, Options};

/// User and system time of this process, in seconds (Linux).
fn cpu_seconds() -> Option<f64> {
    let mut total = 0.0;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        total += text.split_whitespace().next()?.parse::<f64>().ok()? * 1e-9;
    }
    Some(total)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds: u64 = std::env::args().nth(1).map_or(Ok(10), |a| a.parse())?;
    let model = Model::load(frit_tests::golden::smollm2())?;
    let mut g = model.generator(Options::default().max_tokens(8))?;
    g.complete("The capital of France is")?.finish()?;
    let before = cpu_seconds().ok_or("no /proc/self/task")?;
    std::thread::sleep(Duration::from_secs(seconds));
    let used = cpu_seconds().ok_or("no /proc/self/task")? - before;
    println!("idle for {seconds} s: {:.1} µs of CPU, {:.4} %", used * 1e6, 100.0 * used / seconds as f64);
    Ok(())
}
