//! Find the texts that mean most alike: `cargo run --release --example embed -- MODEL [TEXT…]`.

use frit::{EmbedOptions, Model};

const TEXTS: &[&str] = &[
    "How do I bake bread at home?",
    "A recipe for a simple loaf",
    "The train to Vienna leaves at nine",
    "When does the railway service depart?",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: embed MODEL [TEXT…]")?;
    let mut texts: Vec<String> = args.collect();
    if texts.is_empty() {
        texts = TEXTS.iter().map(|t| t.to_string()).collect();
    }

    let model = Model::load(&path)?;
    let mut embedder = model.embedder(EmbedOptions::default().normalize(true).truncate(true))?;
    let vectors = embedder.embed(&texts)?;

    for (text, v) in texts.iter().zip(&vectors) {
        // Of vectors of length 1 the product is the cosine of the angle between them.
        let similarity = |other: &Vec<f32>| v.iter().zip(other).map(|(a, b)| a * b).sum::<f32>();
        let others = texts.iter().zip(&vectors).filter(|(t, _)| *t != text);
        let nearest = others.max_by(|a, b| similarity(a.1).total_cmp(&similarity(b.1)));
        match nearest {
            Some((other, w)) => println!("{text}\n  nearest ({:.2}): {other}", similarity(w)),
            None => println!("{text}\n  {} numbers, the first {:?}", v.len(), &v[..3.min(v.len())]),
        }
    }
    Ok(())
}
