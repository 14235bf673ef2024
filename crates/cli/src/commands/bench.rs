//! `frit bench`: how fast a model runs here.

use std::time::Instant;

use serde::Serialize;

use frit::Options;

use crate::args::BenchArgs;
use crate::failure::Failure;
use crate::models;
use crate::output::{self, megabytes, rate};

/// The JSON document. Rates are of the best run.
#[derive(Serialize)]
struct Document {
    schema: u32,
    model: String,
    device: String,
    threads: usize,
    prompt_tokens: usize,
    generated_tokens: usize,
    runs: usize,
    prefill_tokens_per_second: f64,
    decode_tokens_per_second: f64,
    time_to_first_token_seconds: f64,
    load_seconds: f64,
    compile_seconds: f64,
    peak_memory_bytes: u64,
}

/// Runs the command.
pub fn run(a: &BenchArgs) -> Result<(), Failure> {
    // More than u32 counts would not be what is run.
    let tokens = a.prompt.checked_add(a.tokens).filter(|n| u32::try_from(*n).is_ok());
    let tokens = tokens.ok_or_else(|| {
        let (prompt, tokens, most) = (a.prompt, a.tokens, u32::MAX);
        format!("--prompt {prompt} and --tokens {tokens} must be at most {most} tokens together")
    })?;
    let mut options = models::options(&a.model);
    options.context = options.context.or(Some(tokens));
    let start = Instant::now();
    let model = models::load(&a.model, &options)?;
    let load = start.elapsed();
    let mut g = model.generator(Options::default())?;
    if tokens > g.context() {
        let (prompt, generated, context) = (a.prompt, a.tokens, g.context());
        return Err(Failure::Error(format!(
            "--prompt {prompt} and --tokens {generated} take {tokens} tokens, and --context is {context}"
        )));
    }
    let limit = g.vocabulary().min(2002) as u32;
    let ids: Vec<u32> = (0..a.prompt as u32).map(|i| (2 + i.wrapping_mul(7919) % 2000) % limit).collect();

    let (mut prefill, mut decode, mut first) = (0f64, 0f64, f64::INFINITY);
    for run in 0..=a.runs {
        g.clear();
        let t = Instant::now();
        g.feed(&ids)?;
        let prompt_time = t.elapsed();
        let t = Instant::now();
        for i in 0..a.tokens as u32 {
            g.feed(&[(100 + i) % limit])?;
        }
        let decode_time = t.elapsed();
        if run > 0 {
            prefill = prefill.max(rate(a.prompt, prompt_time));
            decode = decode.max(rate(a.tokens, decode_time));
            first = first.min(prompt_time.as_secs_f64());
        }
    }
    let d = Document {
        schema: output::SCHEMA,
        model: a.model.model.clone(),
        device: model.device().to_string(),
        threads: model.threads(),
        prompt_tokens: a.prompt,
        generated_tokens: a.tokens,
        runs: a.runs,
        prefill_tokens_per_second: prefill,
        decode_tokens_per_second: decode,
        time_to_first_token_seconds: first,
        load_seconds: load.as_secs_f64(),
        compile_seconds: model.compile_time().as_secs_f64(),
        peak_memory_bytes: peak_memory(),
    };
    if a.json {
        return Ok(output::json(&d)?);
    }
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    writeln!(out, "prefill {} tokens   {:8.1} tok/s", d.prompt_tokens, d.prefill_tokens_per_second)?;
    writeln!(out, "decode {} tokens     {:8.1} tok/s", d.generated_tokens, d.decode_tokens_per_second)?;
    writeln!(out, "time to first token  {:8.1} ms", d.time_to_first_token_seconds * 1e3)?;
    writeln!(
        out,
        "load                 {:8.1} ms (compile {:.1} ms)",
        d.load_seconds * 1e3,
        d.compile_seconds * 1e3
    )?;
    writeln!(out, "peak memory          {}", megabytes(d.peak_memory_bytes))?;
    writeln!(out, "device               {}", d.device)?;
    writeln!(out, "threads              {}", d.threads)?;
    Ok(())
}

/// The most memory this process has had resident, in bytes; 0 where the system does not tell.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
