//! Random graphs without end: `random [--cases N] [--seed S]`. The seed is drawn from the clock unless it is given.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use frit_cpu::pool::Pool;
use frit_tests::random::check;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().position(|a| a == name).and_then(|i| args.get(i + 1));
    let cases: u64 = value("--cases").map_or(Ok(1000), |v| v.parse())?;
    let clock = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() << 20;
    let first: u64 = value("--seed").map_or(Ok(clock), |v| v.parse())?;
    let registry = frit_ops::registry();
    let pool = Arc::new(Pool::new(2)?);
    for seed in first..first + cases {
        check(seed, 8 + seed as usize % 33, &registry, &pool)?;
    }
    println!("{cases} passed, 0 failed (first seed {first})");
    Ok(())
}
