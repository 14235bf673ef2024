//! Tokens per second of decoders with random weights in public shapes, for speeds that depend on the shape alone.
//! Usage: `shapes [0.6b|8b] [bf16|q4_k] [DEVICE] [PROMPT] [TOKENS] [RUNS]`

use std::collections::HashMap;
use std::time::Instant;

use frit::{DType, DeviceSpec, Generator, LoadOptions, Model, Options, Precision, Storage, Tensor};

/// Extents of a Qwen3 model.
struct Shape {
    hidden: usize,
    layers: usize,
    heads: usize,
    intermediate: usize,
    tied: bool,
}

const KV_HEADS: usize = 8;
const HEAD_DIM: usize = 128;
const VOCABULARY: usize = 151_936;
const CONTEXT: usize = 4096;

impl Shape {
    fn of(name: &str) -> Result<Shape, String> {
        match name {
            "0.6b" => Ok(Shape { hidden: 1024, layers: 28, heads: 16, intermediate: 3072, tied: true }),
            "8b" => Ok(Shape { hidden: 4096, layers: 36, heads: 32, intermediate: 12288, tied: false }),
            other => Err(format!("`{other}` is no shape: 0.6b, 8b")),
        }
    }

    fn config(&self) -> String {
        format!(
            r#"{{"model_type": "qwen3", "hidden_size": {}, "num_hidden_layers": {}, "num_attention_heads": {},
                "num_key_value_heads": {KV_HEADS}, "head_dim": {HEAD_DIM}, "intermediate_size": {},
                "vocab_size": {VOCABULARY}, "max_position_embeddings": {CONTEXT}, "rms_norm_eps": 1e-6,
                "hidden_act": "silu", "rope_theta": 1000000.0, "tie_word_embeddings": {}, "attention_bias": false}}"#,
            self.hidden, self.layers, self.heads, self.intermediate, self.tied
        )
    }

    /// Names and shapes of the weights.
    fn weights(&self) -> Vec<(String, Vec<usize>)> {
        let (h, width, kv) = (self.hidden, self.heads * HEAD_DIM, KV_HEADS * HEAD_DIM);
        let mut all = vec![
            ("model.embed_tokens.weight".into(), vec![VOCABULARY, h]),
            ("model.norm.weight".into(), vec![h]),
        ];
        if !self.tied {
            all.push(("lm_head.weight".into(), vec![VOCABULARY, h]));
        }
        for i in 0..self.layers {
            let mut add =
                |n: &str, s: &[usize]| all.push((format!("model.layers.{i}.{n}.weight"), s.to_vec()));
            add("input_layernorm", &[h]);
            add("post_attention_layernorm", &[h]);
            add("self_attn.q_proj", &[width, h]);
            add("self_attn.k_proj", &[kv, h]);
            add("self_attn.v_proj", &[kv, h]);
            add("self_attn.o_proj", &[h, width]);
            add("self_attn.q_norm", &[HEAD_DIM]);
            add("self_attn.k_norm", &[HEAD_DIM]);
            add("mlp.gate_proj", &[self.intermediate, h]);
            add("mlp.up_proj", &[self.intermediate, h]);
            add("mlp.down_proj", &[h, self.intermediate]);
        }
        all
    }
}

/// Random bits, by xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A bfloat16 of either sign between 2⁻⁷ and 2⁻⁵.
    fn bf16(&mut self) -> u16 {
        let r = self.next();
        (r as u16 & 0x80ff) | 0x3c00
    }
}

/// A pool of random values, from which weights are cut at random places: drawing 16 GB would take long.
fn pool(dtype: DType, random: &mut Random) -> Vec<u8> {
    const UNITS: usize = 1 << 17;
    match dtype {
        DType::Q4K => (0..UNITS).flat_map(|_| block(random)).collect(),
        _ => (0..64 * UNITS).flat_map(|_| random.bf16().to_le_bytes()).collect(),
    }
}

/// A block of Q4_K: two scales as f16 near 2⁻¹³, then codes.
fn block(random: &mut Random) -> [u8; 144] {
    let mut b = [0; 144];
    b.chunks_mut(8).for_each(|c| c.copy_from_slice(&random.next().to_le_bytes()[..c.len()]));
    b[..4].copy_from_slice(&[0x12, 0x08, 0x34, 0x0a]);
    b
}

fn tensors(shape: &Shape, matrices: DType) -> Result<HashMap<String, Tensor>, Box<dyn std::error::Error>> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let pools = [DType::BF16, matrices].map(|d| pool(d, &mut random));
    let mut all = HashMap::new();
    for (name, dims) in shape.weights() {
        let (dtype, pool) = if dims.len() == 2 { (matrices, &pools[1]) } else { (DType::BF16, &pools[0]) };
        let info = dtype.info();
        let bytes = dims.iter().product::<usize>() / info.unit_elements * info.unit_bytes;
        let mut out = Vec::with_capacity(bytes);
        let mut at = random.next() as usize % (pool.len() / info.unit_bytes) * info.unit_bytes;
        while out.len() < bytes {
            let n = (bytes - out.len()).min(pool.len() - at);
            out.extend_from_slice(&pool[at..at + n]);
            at = 0;
        }
        all.insert(name, Tensor::new(dtype, &dims, out)?);
    }
    Ok(all)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut next = |default: &str| args.next().unwrap_or_else(|| default.into());
    let (name, format) = (next("0.6b"), next("bf16"));
    let (device, prompt, tokens) =
        (next("auto"), next("512").parse::<usize>()?, next("128").parse::<usize>()?);
    let runs: usize = next("5").parse()?;
    let matrices = match format.as_str() {
        "bf16" => DType::BF16,
        "q4_k" => DType::Q4K,
        other => return Err(format!("`{other}` is no format: bf16, q4_k").into()),
    };
    let shape = Shape::of(&name)?;
    let load = LoadOptions::default()
        .context(CONTEXT)
        .chunk(2048)
        .kv_dtype(DType::BF16)
        .precision(Precision::new(Storage::BF16))
        .device(device.parse::<DeviceSpec>()?);
    let start = Instant::now();
    let model = Model::from_parts(&shape.config(), tensors(&shape, matrices)?, None, &load)?;
    println!("{name} {format} on {}, loaded in {:.1?}", model.device(), start.elapsed());
    let mut generator = model.generator(Options::default().max_tokens(tokens + 1).ignore_end(true))?;
    let ids: Vec<u32> = (0..prompt).map(|i| (i * 7919 + 11) as u32 % VOCABULARY as u32).collect();
    for run in 0..runs {
        generator.clear();
        let begin = Instant::now();
        let mut reply = generator.tokens(&ids)?;
        let first = reply.next().transpose()?.and_then(|p| p.token);
        let prefill = begin.elapsed();
        let begin = Instant::now();
        let mut last = first;
        for piece in reply {
            last = piece?.token;
        }
        let decode = begin.elapsed();
        let rate = |n: usize, t: std::time::Duration| n as f64 / t.as_secs_f64();
        println!(
            "run {run}: prefill {prompt} tokens {:.2?}, {:.0} tok/s; decode {tokens} tokens {:.3} ms each, {:.0} tok/s ({first:?}, {last:?})",
            prefill,
            rate(prompt, prefill),
            decode.as_secs_f64() * 1e3 / tokens as f64,
            rate(tokens, decode),
        );
    }
    generator.clear();
    profile("prefill", &mut generator, &ids)?;
    profile("decode", &mut generator, &[7])
}

/// Times of the kernels of one step, those that take longest first.
fn profile(what: &str, g: &mut Generator, tokens: &[u32]) -> Result<(), Box<dyn std::error::Error>> {
    let (_, trace) = g.feed_timed(tokens)?;
    println!("{what}: {} steps", trace.runs().iter().map(|r| r.steps.len()).sum::<usize>());
    for t in trace.totals() {
        println!(
            "  {:24} {:5} × {:9.1} µs, {:8.1} GFLOP/s, {:7.1} GB/s",
            t.kernel,
            t.count,
            t.time.as_secs_f64() * 1e6 / t.count.max(1) as f64,
            t.flops_per_second() / 1e9,
            t.bytes_per_second() / 1e9,
        );
    }
    Ok(())
}
