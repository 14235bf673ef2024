//! Continue a text: `cargo run --release --example generate -- MODEL [PROMPT]`.

use std::io::Write;

use frit::{Model, Options, SamplingOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: generate MODEL [PROMPT]")?;
    let prompt = args.next().unwrap_or_else(|| "The capital of France is".into());

    let model = Model::load(&path)?;
    let sampling = SamplingOptions::default().temperature(0.7).top_p(0.9).seed(1);
    let mut generator = model.generator(Options::default().max_tokens(40).sampling(sampling))?;

    print!("{prompt}");
    let mut reply = generator.complete(&prompt)?;
    for piece in &mut reply {
        print!("{}", piece?.text);
        std::io::stdout().flush()?;
    }
    let end = reply.finish()?;
    println!("\n[{:?}, {} tokens in {:.2?}]", end.reason, end.tokens.len(), end.stats.decode_time);
    Ok(())
}
