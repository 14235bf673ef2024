//! `frit generate`: continue a text.

use std::io::{self, Read, Write};

use frit::{Options, StopReason};
use serde::Serialize;

use crate::args::GenerateArgs;
use crate::failure::Failure;
use crate::interrupt;
use crate::models;
use crate::output::{self, rate};

/// The JSON document.
#[derive(Serialize)]
struct Document {
    schema: u32,
    text: String,
    tokens: Vec<u32>,
    stop: String,
    prompt_tokens: usize,
    generated_tokens: usize,
    prompt_seconds: f64,
    generate_seconds: f64,
}

/// Runs the command.
pub fn run(a: &GenerateArgs) -> Result<(), Failure> {
    let prompt = prompt(&a.prompt)?;
    let model = models::load_for_text(&a.model)?;
    let sampling = a.sampling.options();
    let options =
        Options::default().max_tokens(a.max_tokens).sampling(sampling).stop(&a.stop).ignore_end(a.ignore_end);
    let mut generator = model.generator(options)?;
    let cancel = generator.cancel();
    interrupt::on_interrupt(move || cancel.cancel())?;

    let mut reply = generator.complete(&prompt)?;
    let mut out = io::stdout().lock();
    let mut text = String::new();
    if !a.json {
        out.write_all(prompt.as_bytes())?;
        out.flush()?;
    }
    for piece in &mut reply {
        let piece = piece?;
        if a.json {
            text.push_str(&piece.text);
        } else {
            out.write_all(piece.text.as_bytes())?;
            out.flush()?;
        }
    }
    let end = reply.finish()?;
    if a.json {
        drop(out);
        output::json(&Document {
            schema: output::SCHEMA,
            text,
            stop: stop_name(&end.reason).into(),
            prompt_tokens: end.stats.prompt_tokens,
            generated_tokens: end.stats.generated_tokens,
            prompt_seconds: end.stats.prompt_time.as_secs_f64(),
            generate_seconds: end.stats.decode_time.as_secs_f64(),
            tokens: end.tokens,
        })?;
    } else {
        out.write_all(b"\n")?;
        out.flush()?;
    }
    let s = &end.stats;
    // The first token comes with the prompt's last step, so the decode time holds one token less.
    eprintln!(
        "{} prompt tokens at {:.0} tok/s, {} generated at {:.1} tok/s ({})",
        s.prompt_tokens,
        rate(s.prompt_tokens, s.prompt_time),
        s.generated_tokens,
        rate(s.generated_tokens.saturating_sub(1), s.decode_time),
        stop_name(&end.reason),
    );
    if end.reason == StopReason::Cancelled { Err(Failure::Interrupted) } else { Ok(()) }
}

/// The prompt itself, or standard input for `-`.
fn prompt(arg: &str) -> Result<String, Failure> {
    if arg != "-" {
        return Ok(arg.to_owned());
    }
    let mut text = String::new();
    let read = io::stdin().read_to_string(&mut text);
    read.map_err(|e| Failure::Error(format!("standard input: {e}")))?;
    Ok(text)
}

/// A stop reason in the words of the JSON document.
pub fn stop_name(r: &StopReason) -> &'static str {
    match r {
        StopReason::EndToken(_) => "end",
        StopReason::MaxTokens => "max_tokens",
        StopReason::ContextFull => "context_full",
        StopReason::StopString(_) => "stop_string",
        StopReason::Cancelled => "cancelled",
        _ => "other",
    }
}
