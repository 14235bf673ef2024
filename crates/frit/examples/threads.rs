//! Stream from a thread into a channel and cancel after five tokens: `cargo run --release --example threads -- MODEL`.

use std::sync::mpsc;

use frit::{Model, Options, StopReason};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: threads MODEL")?;
    let model = Model::load(&path)?;

    // Two users of one model: weights are held once, each generator has its own KV cache.
    let mut workers = Vec::new();
    for prompt in ["Once upon a time", "The sea is"] {
        let mut generator = model.generator(Options::default().max_tokens(50))?;
        let cancel = generator.cancel();
        let (send, receive) = mpsc::channel();
        let worker = std::thread::spawn(move || -> frit::Result<frit::End> {
            let mut reply = generator.complete(prompt)?;
            for piece in &mut reply {
                // A receiver that has gone is no reason to fail: the rest is finished for nobody.
                let _ = send.send(piece?.text);
            }
            reply.finish()
        });
        workers.push((prompt, receive, cancel, worker));
    }
    for (prompt, pieces, cancel, worker) in workers {
        let mut text = String::new();
        for (i, piece) in pieces.iter().enumerate() {
            text.push_str(&piece);
            if i == 4 {
                cancel.cancel();
            }
        }
        let end = worker.join().map_err(|_| "the worker panicked")??;
        println!("{prompt}{text} [{:?} after {} tokens]", end.reason, end.stats.generated_tokens);
        assert!(end.reason == StopReason::Cancelled && end.stats.generated_tokens >= 5);
    }
    Ok(())
}
