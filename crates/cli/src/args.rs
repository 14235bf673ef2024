//! The command line. The same flag means the same in every command.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use frit::{DeviceSpec, SamplingOptions};

/// Run, inspect and measure language models and text encoders on this machine.
#[derive(Debug, Parser)]
#[command(
    name = "frit",
    version,
    before_help = "Example: frit generate smollm2 \"The capital of France is\""
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Say more when something fails: the chain of causes.
    #[arg(short, long, global = true)]
    pub verbose: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Continue a text; the speed follows on standard error.
    #[command(before_help = "Example: frit generate smollm2 \"The capital of France is\" --max-tokens 20")]
    Generate(GenerateArgs),
    /// Talk with a model, a line a message; `/help` shows the commands, Ctrl-C stops a reply.
    #[command(before_help = "Example: frit chat smollm2 --system \"Answer in one sentence.\"")]
    Chat(ChatArgs),
    /// Turn texts into vectors, or show how alike they are.
    #[command(
        before_help = "Example: frit embed minilm \"A cat sleeps\" \"A kitten naps\" \"Stocks fell\" --matrix"
    )]
    Embed(EmbedArgs),
    /// Show a model's graph before and after fusion, its kernels, schedule and memory plan.
    #[command(before_help = "Example: frit inspect smollm2 --html smollm2.html")]
    Inspect(InspectArgs),
    /// Measure prompt and generation speed, time to first token, load time and peak memory.
    #[command(before_help = "Example: frit bench smollm2 --prompt 512 --tokens 64 --json")]
    Bench(BenchArgs),
    /// Fetch a model into the cache, by name, from the Hugging Face hub or by URL; its path is printed.
    #[command(before_help = "Example: frit pull smollm2")]
    Pull(PullArgs),
    /// List what models can run on here.
    #[command(before_help = "Example: frit devices --json")]
    Devices(DevicesArgs),
    /// Print a completion script for a shell.
    #[command(
        before_help = "Example: frit completions bash > ~/.local/share/bash-completion/completions/frit"
    )]
    Completions(CompletionsArgs),
    /// Print a manual page.
    #[command(before_help = "Example: frit man generate | man -l -")]
    Man(ManArgs),
}

/// Which steps go to the device's own graph compiler and library.
#[cfg(any(feature = "cuda", feature = "opencl"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum GraphsArg {
    /// None.
    #[default]
    Off,
    /// Products of f32 matrices, each by itself.
    Products,
    /// Stretches of steps that are worth it.
    Hybrid,
    /// All steps as one graph.
    Whole,
}

/// How quantized weights read their activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ActivationsArg {
    /// Rounded to 16 bits in blocks of 32: nearly exact.
    Q16,
    /// Rounded to 8 bits in blocks of 32: the fastest on long prompts.
    Q8,
    /// As they are: exact, slower.
    F32,
}

/// What every command that loads a model takes.
#[derive(Debug, Args)]
pub struct ModelArgs {
    /// A GGUF file, a Hugging Face folder, or anything that `frit pull` takes by name, fetched on first use.
    pub model: String,
    /// Where to run: cpu, or cuda, metal or opencl with a number if wanted (opencl:1), see `frit devices`; auto takes a GPU by CUDA or Metal if there is one, else the CPU.
    #[arg(long, value_name = "DEVICE", default_value_t, value_parser = device)]
    pub device: DeviceSpec,
    /// Threads of the CPU; the default is one per processor.
    #[arg(long, value_name = "N", value_parser = threads, allow_negative_numbers = true)]
    pub threads: Option<usize>,
    /// Positions of the KV cache; the default is what the model was trained for, at most 4096.
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub context: Option<usize>,
    /// Precision of the activations that quantized weights read; the default is q16 on the CPU, f32 on GPUs.
    #[arg(long, value_enum)]
    pub activations: Option<ActivationsArg>,
    /// What goes to Metal's own graph compiler and library; an error on other devices.
    #[cfg(any(feature = "cuda", feature = "opencl"))]
    #[arg(long, value_enum, default_value_t)]
    pub graphs: GraphsArg,
}

/// How tokens are chosen.
#[derive(Debug, Args)]
pub struct SamplingArgs {
    /// 0 always takes the most likely token; higher is more varied.
    #[arg(long, value_name = "X", default_value_t = 0.0, value_parser = temperature, allow_negative_numbers = true)]
    pub temperature: f32,
    /// Choose among the N most likely tokens; 0 is off.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub top_k: usize,
    /// Choose among the most likely tokens that together have this probability; 1 is off.
    #[arg(long, value_name = "P", default_value_t = 1.0, value_parser = top_p, allow_negative_numbers = true)]
    pub top_p: f32,
    /// Drop tokens less likely than this share of the most likely one; 0 is off.
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = min_p, allow_negative_numbers = true)]
    pub min_p: f32,
    /// Divide the logits of recent tokens by this; 1 is off.
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = penalty, allow_negative_numbers = true)]
    pub repeat_penalty: f32,
    /// Seed of the draw: the same seed gives the same text.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub seed: u64,
}

impl SamplingArgs {
    /// As the library takes them.
    pub fn options(&self) -> SamplingOptions {
        SamplingOptions::default()
            .temperature(self.temperature)
            .top_k(self.top_k)
            .top_p(self.top_p)
            .min_p(self.min_p)
            .repetition_penalty(self.repeat_penalty, 64)
            .seed(self.seed)
    }
}

/// `frit chat`.
#[derive(Debug, Args)]
pub struct ChatArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Instructions for the whole conversation.
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Tokens of a reply at most.
    #[arg(long, value_name = "N", default_value_t = 512, allow_negative_numbers = true)]
    pub max_tokens: usize,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Stop at this string (may be given several times).
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub stop: Vec<String>,
}

/// `frit generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// The text to continue; `-` reads standard input.
    pub prompt: String,
    /// Tokens generated at most.
    #[arg(long, value_name = "N", default_value_t = 128, allow_negative_numbers = true)]
    pub max_tokens: usize,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Stop at this string (may be given several times).
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub stop: Vec<String>,
    /// Go on past the model's end-of-text token.
    #[arg(long)]
    pub ignore_end: bool,
    /// One JSON document at the end instead of streamed text.
    #[arg(long)]
    pub json: bool,
}

/// How the vectors of a text's tokens become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PoolingArg {
    /// Their mean.
    Mean,
    /// The vector of the first token.
    Cls,
    /// The largest value of each element.
    Max,
    /// The vector of the last token.
    Last,
}

/// `frit embed`.
#[derive(Debug, Args)]
pub struct EmbedArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// The texts; `-` reads standard input, a text a line.
    #[arg(value_name = "TEXT", required_unless_present = "file")]
    pub texts: Vec<String>,
    /// Texts from a file, one a line (may be given several times).
    #[arg(long, value_name = "PATH")]
    pub file: Vec<PathBuf>,
    /// How the vectors of a text's tokens become one; the default is what the model's files say, else the mean.
    #[arg(long, value_enum)]
    pub pooling: Option<PoolingArg>,
    /// Scale vectors to length 1; the default is what the model's files say, else yes.
    #[arg(long)]
    pub normalize: bool,
    /// Leave the vectors' lengths as they are.
    #[arg(long, conflicts_with = "normalize")]
    pub no_normalize: bool,
    /// Cut texts that are too long for the model instead of refusing them.
    #[arg(long)]
    pub truncate: bool,
    /// A table of cosine similarities instead of vectors; with --json, beside them.
    #[arg(long, conflicts_with = "json_lines")]
    pub matrix: bool,
    /// One JSON document at the end instead of a line of numbers for each text.
    #[arg(long)]
    pub json: bool,
    /// Lines of files and standard input are JSON, strings or objects with a `text`; each object comes out with its `embedding`.
    #[arg(long, conflicts_with = "json")]
    pub json_lines: bool,
}

/// What `frit inspect` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Show {
    /// The graph as the model states it.
    Graph,
    /// The graph after fusion.
    Fused,
    /// The kernel of every step, and copies inserted.
    Placement,
    /// The steps over memory.
    Schedule,
    /// The memory plan.
    Memory,
    /// Passes with their times.
    Passes,
    /// A summary of all.
    Summary,
}

/// `frit inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// What to show.
    #[arg(long, value_enum, default_value = "summary", conflicts_with_all = ["json", "html"])]
    pub show: Show,
    /// Everything as one JSON document: graph, fusions, placement, schedule, memory plan.
    #[arg(long)]
    pub json: bool,
    /// Everything as one page for a browser, to standard output or a file; it needs no network.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", conflicts_with = "json")]
    pub html: Option<String>,
}

/// `frit bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Tokens of the prompt.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = count, allow_negative_numbers = true)]
    pub prompt: usize,
    /// Tokens generated.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = count, allow_negative_numbers = true)]
    pub tokens: usize,
    /// Measured runs, after one that is not counted; the best is reported.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = count, allow_negative_numbers = true)]
    pub runs: usize,
    /// Where the time goes, by kernel, of the prompt and of one generated token, in a run of its own; attention counts every position of its cache, in use or not.
    #[arg(long)]
    pub profile: bool,
    /// Write when each step of such a run ran, as JSON that ui.perfetto.dev and about:tracing open.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<String>,
    /// One JSON document.
    #[arg(long)]
    pub json: bool,
}

/// `frit pull`.
#[derive(Debug, Args)]
pub struct PullArgs {
    /// A known name (smollm2, gemma3-270m, minilm), hf:OWNER/REPO[/FILE] or an http(s) URL.
    pub source: String,
    /// Expected SHA-256 of a single file, in hexadecimal.
    #[arg(long, value_name = "HEX", value_parser = sha256)]
    pub sha256: Option<String>,
    /// Seconds to wait for a server that sends nothing.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = seconds)]
    pub stall: f64,
    /// Fetch again even if the cache has it.
    #[arg(long)]
    pub force: bool,
    /// Where hf: sources come from: the hub or a mirror with the same interface. HF_TOKEN is sent there.
    #[arg(long, value_name = "URL", default_value = crate::fetch::hub::HUB, value_parser = web)]
    pub hub: String,
}

/// `frit devices`.
#[derive(Debug, Args)]
pub struct DevicesArgs {
    /// Run the self-check of every GPU, whatever it found before; one that fails makes the command fail.
    #[arg(long)]
    pub check: bool,
    /// One JSON document.
    #[arg(long)]
    pub json: bool,
}

/// `frit completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    pub shell: clap_complete::Shell,
}

/// `frit man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The command; none for the page of frit itself.
    pub command: Option<String>,
}

/// A number of things, at least 1.
fn count(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(n) => Ok(n),
        Err(e) => Err(e.to_string()),
    }
}

/// A device in its text form.
fn device(text: &str) -> Result<DeviceSpec, String> {
    text.parse().map_err(|e: frit::Error| e.to_string())
}

/// A number of threads that a pool may have.
fn threads(text: &str) -> Result<usize, String> {
    match count(text)? {
        n if n > frit::MAX_THREADS => Err(format!("must be at most {}", frit::MAX_THREADS)),
        n => Ok(n),
    }
}

/// A number for which `ok` holds, which means `want`.
fn number(text: &str, ok: impl Fn(f32) -> bool, want: &str) -> Result<f32, String> {
    text.parse::<f32>().ok().filter(|v| v.is_finite() && ok(*v)).ok_or_else(|| format!("must be {want}"))
}

fn temperature(text: &str) -> Result<f32, String> {
    number(text, |v| v >= 0.0, "a finite number, at least 0")
}

fn top_p(text: &str) -> Result<f32, String> {
    number(text, |v| v > 0.0 && v <= 1.0, "above 0 and at most 1")
}

fn min_p(text: &str) -> Result<f32, String> {
    number(text, |v| (0.0..=1.0).contains(&v), "between 0 and 1")
}

fn penalty(text: &str) -> Result<f32, String> {
    number(text, |v| v > 0.0, "a finite number above 0")
}

/// A SHA-256 in hexadecimal.
fn sha256(text: &str) -> Result<String, String> {
    match text.len() == 64 && text.chars().all(|c| c.is_ascii_hexdigit()) {
        true => Ok(text.into()),
        false => Err("must be 64 hexadecimal digits".into()),
    }
}

/// The address of a server.
fn web(text: &str) -> Result<String, String> {
    match is_url(text) {
        true => Ok(text.into()),
        false => Err("must be an http(s) URL".into()),
    }
}

/// Whether `text` is an address that can be fetched from.
pub fn is_url(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

/// A number of seconds between 0.01 and a day.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if (0.01..=86_400.0).contains(&v) => Ok(v),
        _ => Err("must be between 0.01 and 86400".into()),
    }
}
