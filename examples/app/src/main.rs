//! A program that uses `frit` in the ways a program does: `cargo run --release -- MODEL.gguf ENCODER`.
//!
//! It owns what it keeps in plain structs without lifetimes, streams from threads, cancels, and runs a graph of its own.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use frit::{Builder, Cancel, Compiled, DType, EmbedOptions, End, LoadOptions, Model, Options, Request};
use frit::{StopReason, Tensor};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Writes texts in the background.
struct Writer {
    model: Model,
}

/// A text on its way.
struct Text {
    pieces: Receiver<String>,
    cancel: Cancel,
    end: JoinHandle<frit::Result<End>>,
}

impl Writer {
    fn start(&self, prompt: &str, tokens: usize) -> frit::Result<Text> {
        let options = Options::default().max_tokens(tokens).ignore_end(true);
        let mut generator = self.model.generator(options)?;
        let (cancel, prompt) = (generator.cancel(), prompt.to_owned());
        let (send, pieces) = channel();
        let end = std::thread::spawn(move || {
            let mut reply = generator.complete(&prompt)?;
            let unheard = reply.cancel();
            for piece in &mut reply {
                if send.send(piece?.text).is_err() {
                    unheard.cancel();
                }
            }
            reply.finish()
        });
        Ok(Text { pieces, cancel, end })
    }
}

impl Text {
    fn end(self) -> Result<End, Failure> {
        Ok(self.end.join().map_err(|_| "the thread panicked")??)
    }
}

/// A small network of this program's own.
struct Scorer {
    compiled: Compiled,
}

impl Scorer {
    /// y = softmax(x·Wᵀ + b), for 1 to 64 rows.
    fn new(mut weights: HashMap<String, Tensor>) -> Result<Scorer, Failure> {
        let mut g = Builder::new("scorer");
        let n = g.symbol("N", 1, 64)?;
        let x = g.input("x", DType::F32, [n, 2.into()])?;
        let w = g.param("w", DType::F32, [3, 2])?;
        let b = g.param("b", DType::F32, [3])?;
        let h = g.linear_weight(x, w)?;
        let h = g.add(h, b)?;
        let y = g.softmax(h, -1)?;
        g.output("y", y)?;
        let weights = weights.drain().collect();
        Ok(Scorer { compiled: frit::compile(&g.finish(), weights, &Default::default())? })
    }

    fn score(&self, rows: &[[f32; 2]]) -> Result<Vec<f32>, Failure> {
        let x = Tensor::from_f32(&[rows.len(), 2], rows.as_flattened())?;
        let mut session = self.compiled.session()?;
        Ok(session.run(&[("x", &x)])?.get("y")?.as_slice::<f32>()?.to_vec())
    }
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let (Some(path), Some(encoder)) = (args.next(), args.next()) else {
        return Err("usage: app MODEL.gguf ENCODER".into());
    };
    let bytes = std::fs::read(path)?;
    let options = LoadOptions::default().context(512).batch(3);
    let writer = Writer { model: Model::from_bytes(bytes, &options)? };

    // Stream from a thread, and cancel after five tokens.
    let text = writer.start("Once upon a time", 400)?;
    let begin: String = text.pieces.iter().take(5).collect();
    text.cancel.cancel();
    let rest: String = text.pieces.iter().collect();
    let end = text.end()?;
    println!(
        "{begin}|{rest}\n[{:?}: {} tokens after {} of the prompt]",
        end.reason,
        end.tokens.len(),
        end.stats.prompt_tokens
    );
    assert_eq!(end.reason, StopReason::Cancelled);
    assert!((5..400).contains(&end.stats.generated_tokens));

    // Two texts from two threads; each is what it is alone.
    let prompts = ["The sea is", "A good friend"];
    let together = prompts.map(|p| writer.start(p, 12));
    let together: Vec<End> = together.into_iter().map(|t| t?.end()).collect::<Result<_, Failure>>()?;
    for (prompt, end) in prompts.iter().zip(&together) {
        let alone = writer.start(prompt, 12)?.end()?;
        assert_eq!((&alone.tokens, &alone.reason), (&end.tokens, &StopReason::MaxTokens));
    }

    // Three texts in the same steps.
    let mut batch = writer.model.batch(3, Options::default().max_tokens(12).ignore_end(true))?;
    let requests = ["The sea is", "A good friend", "My name"].map(Request::text);
    let mut texts = vec![String::new(); requests.len()];
    for piece in batch.generate(requests)? {
        let (row, piece) = piece?;
        texts[row].push_str(&piece.text);
    }
    println!("{texts:?}");
    assert!(texts.iter().all(|t| !t.is_empty()));

    // A batch of embeddings: what means the same lies together.
    let mut embedder = Model::load(encoder)?.embedder(EmbedOptions::default())?;
    let vectors = embedder.embed(&[
        "The cat sits outside",
        "A feline rests in the garden",
        "The bank raised its rates",
    ])?;
    let close = |a: usize, b: usize| -> f32 { vectors[a].iter().zip(&vectors[b]).map(|(x, y)| x * y).sum() };
    println!("{:.3} {:.3}", close(0, 1), close(0, 2));
    assert!(close(0, 1) > close(0, 2) + 0.2);

    // A graph of one's own.
    let weights = HashMap::from([
        ("w".to_owned(), Tensor::from_f32(&[3, 2], &[1.0, 0.0, 0.0, 1.0, -1.0, -1.0])?),
        ("b".to_owned(), Tensor::from_f32(&[3], &[0.0, 0.0, 1.0])?),
    ]);
    let scores = Scorer::new(weights)?.score(&[[2.0, 0.0], [0.0, 2.0], [-1.0, -1.0]])?;
    println!("{scores:?}");
    for (row, best) in scores.chunks(3).zip(0..) {
        let most = (0..3).max_by(|a, b| row[*a].total_cmp(&row[*b]));
        assert_eq!(most, Some(best));
        assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-6);
    }
    Ok(())
}
