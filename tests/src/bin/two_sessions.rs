//! Two sessions that generate from two threads against the same work one after the other: prints the ratio of their rates.
//! Usage: `two_sessions [TOKENS] [ROUNDS]`

use std::time::Instant;

use frit::{Generator, LoadOptions, Model, Options};

fn work(g: &mut Generator, tokens: usize) -> Result<(), frit::Error> {
    g.clear();
    g.feed(&[504, 3575, 282, 4649, 314])?;
    (0..tokens as u32).try_for_each(|i| g.feed(&[100 + i]).map(|_| ()))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let tokens: usize = args.next().map_or(Ok(150), |a| a.parse())?;
    let rounds: usize = args.next().map_or(Ok(5), |a| a.parse())?;
    let model = Model::load_with(frit_tests::golden::smollm2(), &LoadOptions::default().context(1024))?;
    let mut a = model.generator(Options::default())?;
    let mut b = model.generator(Options::default())?;
    work(&mut a, 20)?;
    work(&mut b, 20)?;
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let t = Instant::now();
        work(&mut a, tokens)?;
        work(&mut b, tokens)?;
        let serial = t.elapsed();
        let t = Instant::now();
        std::thread::scope(|s| -> Result<(), frit::Error> {
            let other = s.spawn(|| work(&mut b, tokens));
            work(&mut a, tokens)?;
            other.join().unwrap_or(Ok(()))
        })?;
        let parallel = t.elapsed();
        let ratio = serial.as_secs_f64() / parallel.as_secs_f64();
        println!(
            "round {round}: one after the other {serial:.2?}, together {parallel:.2?}, ratio {ratio:.3}"
        );
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median ratio {:.3}", ratios[ratios.len() / 2]);
    Ok(())
}
