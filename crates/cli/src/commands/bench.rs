//! `frit bench`: how fast a model runs here, and where the time goes.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use serde::Serialize;

use frit::{Generator, Options, Trace};

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
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<Profile>,
}

/// Where the time goes.
#[derive(Serialize)]
struct Profile {
    prefill: Part,
    decode: Part,
}

/// Timed runs, their steps summed up by kernel.
#[derive(Serialize)]
struct Part {
    tokens: usize,
    runs: usize,
    encode_seconds: f64,
    submit_seconds: f64,
    wait_seconds: f64,
    kernels: Vec<Kernel>,
}

#[derive(Serialize)]
struct Kernel {
    op: &'static str,
    kernel: &'static str,
    steps: usize,
    seconds: f64,
    share: f64,
    flops: u64,
    bytes: u64,
    flops_per_second: f64,
    bytes_per_second: f64,
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
    let profile = traced(a, &mut g, &ids, 100 % limit)?;
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
        profile,
    };
    if a.json {
        return Ok(output::json(&d)?);
    }
    Ok(in_words(&d, &mut io::stdout().lock())?)
}

/// Runs the prompt and one token more with each step timed, if `a` asks for it; writes the file that it asks for.
fn traced(a: &BenchArgs, g: &mut Generator, prompt: &[u32], next: u32) -> Result<Option<Profile>, Failure> {
    if !a.profile && a.trace.is_none() {
        return Ok(None);
    }
    g.clear();
    let mut trace = g.feed_timed(prompt)?.1;
    let decode = g.feed_timed(&[next])?.1;
    let profile = Profile { prefill: part(&trace, prompt.len()), decode: part(&decode, 1) };
    if let Some(file) = &a.trace {
        trace.append(decode);
        let mut json = Vec::new();
        trace.write_chrome(&mut json)?;
        output::file(file, &json)?;
    }
    Ok(a.profile.then_some(profile))
}

fn part(t: &Trace, tokens: usize) -> Part {
    let sum = |of: fn(&frit::TraceRun) -> Duration| t.runs().iter().map(of).sum::<Duration>().as_secs_f64();
    let kernels = t.totals().into_iter().map(|t| Kernel {
        op: t.op,
        kernel: t.kernel,
        steps: t.count,
        seconds: t.time.as_secs_f64(),
        share: t.share,
        flops: t.flops,
        bytes: t.bytes,
        flops_per_second: t.flops_per_second(),
        bytes_per_second: t.bytes_per_second(),
    });
    Part {
        tokens,
        runs: t.runs().len(),
        encode_seconds: sum(|r| r.encode),
        submit_seconds: sum(|r| r.submit),
        wait_seconds: sum(|r| r.wait),
        kernels: kernels.collect(),
    }
}

fn in_words(d: &Document, out: &mut impl Write) -> io::Result<()> {
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
    if let Some(p) = &d.profile {
        part_in_words("prefill", &p.prefill, out)?;
        part_in_words("decode of one token", &p.decode, out)?;
    }
    Ok(())
}

fn part_in_words(what: &str, p: &Part, out: &mut impl Write) -> io::Result<()> {
    let ms = |seconds: f64| seconds * 1e3;
    let (encode, submit, wait) = (ms(p.encode_seconds), ms(p.submit_seconds), ms(p.wait_seconds));
    writeln!(out, "\n{what}: encode {encode:.3} ms, submit {submit:.3} ms, wait {wait:.3} ms")?;
    writeln!(out, "kernel                       steps         ms       %   GFLOP/s     GB/s")?;
    for k in &p.kernels {
        writeln!(
            out,
            "{:<28} {:>5} {:>10.3} {:>7.1} {:>9.1} {:>8.1}",
            k.kernel,
            k.steps,
            ms(k.seconds),
            k.share * 1e2,
            k.flops_per_second / 1e9,
            k.bytes_per_second / 1e9
        )?;
    }
    Ok(())
}

/// The most memory this process has had resident, in bytes; 0 where the system does not tell.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
