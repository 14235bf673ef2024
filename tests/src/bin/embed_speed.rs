//! Time of embedding texts of equal length with MiniLM, as JSON. Usage: `embed_speed TEXTS TOKENS [RUNS] [CHUNK] [THREADS]`

use std::time::Instant;

use frit::{EmbedOptions, LoadOptions, Model};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<usize> = std::env::args().skip(1).map(|a| a.parse()).collect::<Result<_, _>>()?;
    let (Some(texts), Some(tokens)) = (args.first(), args.get(1)) else {
        return Err("usage: embed_speed TEXTS TOKENS [RUNS] [CHUNK] [THREADS]".into());
    };
    let runs = args.get(2).copied().unwrap_or(15).max(1);
    let mut options = LoadOptions::default();
    options.chunk = args.get(3).copied().unwrap_or(options.chunk);
    options.threads = args.get(4).copied();
    let model = Model::load_with(frit_tests::golden::minilm(), &options)?;
    let mut embedder = model.embedder(EmbedOptions::default().max_tokens(*tokens))?;
    let one = |b: usize| (0..*tokens).map(|t| 1000 + ((b * 7919 + t * 104_729) % 19_000) as u32).collect();
    let ids: Vec<Vec<u32>> = (0..*texts).map(one).collect();
    let mut times = Vec::with_capacity(runs);
    for run in 0..runs + 2 {
        let start = Instant::now();
        let vectors = embedder.embed_tokens(&ids)?;
        if run >= 2 {
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        std::hint::black_box(vectors);
    }
    times.sort_by(f64::total_cmp);
    println!(
        "{{\"texts\": {texts}, \"tokens\": {tokens}, \"median_ms\": {:.3}, \"best_ms\": {:.3}}}",
        times[runs / 2],
        times[0]
    );
    Ok(())
}
