//! Tokens per second of several texts in the same steps, against one text at a time, in turns.
//! Usage: `batch [TOKENS] [ROUNDS]`

use std::time::Instant;

use frit::{LoadOptions, Model, Options, Request};

const ROWS: [usize; 3] = [2, 4, 8];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let tokens: usize = args.next().map_or(Ok(64), |a| a.parse())?;
    let rounds: usize = args.next().map_or(Ok(5), |a| a.parse())?;
    let load = LoadOptions::default().context(1024).batch(8);
    let model = Model::load_with(frit_tests::golden::smollm2(), &load)?;
    let options = Options::default().max_tokens(tokens).ignore_end(true);
    let prompt = |row: usize| vec![504, 3575, 282, 4649, 314 + row as u32];
    let mut one = model.generator(options.clone())?;
    let mut batches = ROWS.map(|rows| model.batch(rows, options.clone()));
    let mut ratios = ROWS.map(|_| Vec::new());
    for _ in 0..rounds {
        let end = one.tokens(&prompt(0))?.finish()?;
        // A decode step takes one token of each text; the first token comes with the prompt.
        let alone = (tokens - 1) as f64 / end.stats.decode_time.as_secs_f64();
        print!("one at a time {alone:.0} tok/s");
        for ((rows, batch), ratios) in ROWS.iter().zip(&mut batches).zip(&mut ratios) {
            let batch = batch.as_mut().map_err(|e| e.to_string())?;
            let mut reply = batch.generate((0..*rows).map(|r| Request::tokens(prompt(r))))?;
            for _ in 0..*rows {
                reply.next().transpose()?;
            }
            let start = Instant::now();
            reply.finish()?;
            let rate = (rows * (tokens - 1)) as f64 / start.elapsed().as_secs_f64();
            print!(", {rows} at once {rate:.0} ({:.2} ×)", rate / alone);
            ratios.push(rate / alone);
        }
        println!();
    }
    for (rows, ratios) in ROWS.iter().zip(&mut ratios) {
        ratios.sort_by(f64::total_cmp);
        println!("{rows} at once: median {:.2} times one at a time", ratios[rounds / 2]);
    }
    Ok(())
}
