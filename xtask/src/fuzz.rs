//! Fuzzing: `cargo xtask fuzz [TARGET…] [--seconds N]` builds the targets of `fuzz/` with coverage and runs each in turn.
//!
//! Corpora stay in `target/fuzz/corpus`, so a run goes on where the last one ended. A finding ends the chore with the file
//! that shows it.

#[path = "../../crates/formats/tests/hostile/build.rs"]
mod build;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use frit_ir::op::Case;
use frit_ir::text::print;
use frit_ir::{Graph, Registry, Type, ValueId};

use build::{ARRAY, BOOL, Build, I32, STRING, U32, array, strings, text};

use crate::root;

/// Coverage for libFuzzer, as `cargo fuzz` asks for it.
const FLAGS: &str = "--cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// A target: its name, the longest input in bytes, its first inputs and the words of its language.
type Target = (&'static str, usize, fn() -> Result<Vec<Vec<u8>>, String>, fn() -> Vec<String>);

const TARGETS: &[Target] = &[
    ("gguf", 4096, gguf_seeds, gguf_words),
    ("safetensors", 4096, safetensors_seeds, safetensors_words),
    ("tokenizer", 4096, tokenizer_seeds, tokenizer_words),
    ("graph", 8192, graph_seeds, graph_words),
];

/// Runs the named targets, or all.
pub fn run(args: &[String]) -> Result<(), String> {
    let mut seconds = 600u64;
    let mut names = Vec::new();
    let mut rest = args.iter();
    while let Some(a) = rest.next() {
        if a == "--seconds" {
            let n = rest.next().ok_or("--seconds takes a number")?;
            seconds = n.parse().map_err(|e| format!("--seconds {n}: {e}"))?;
        } else if TARGETS.iter().any(|t| t.0 == a) {
            names.push(a.as_str());
        } else {
            let all: Vec<&str> = TARGETS.iter().map(|t| t.0).collect();
            return Err(format!("there is no target `{a}`; there are {}", all.join(", ")));
        }
    }
    let folder = root().join("target/fuzz");
    let host = host()?;
    for target in TARGETS.iter().filter(|t| names.is_empty() || names.contains(&t.0)) {
        fuzz(target, seconds, &folder, &host)?;
    }
    Ok(())
}

fn host() -> Result<String, String> {
    let out = Command::new("rustc").arg("-vV").output().map_err(|e| format!("rustc: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let line = text.lines().find_map(|l| l.strip_prefix("host: "));
    line.map(str::to_owned).ok_or_else(|| "rustc names no host".into())
}

fn fuzz(target: &Target, seconds: u64, folder: &Path, host: &str) -> Result<(), String> {
    let (name, longest, seeds, words) = target;
    let manifest = root().join("fuzz/Cargo.toml");
    let status = Command::new("cargo")
        .args(["build", "--quiet", "--release", "--target", host, "--bin", name, "--manifest-path"])
        .arg(&manifest)
        .args((*name == "tokenizer").then_some(["--features", "text"]).into_iter().flatten())
        .arg("--target-dir")
        .arg(folder)
        .env("RUSTFLAGS", FLAGS)
        .status()
        .map_err(|e| format!("cargo: {e}"))?;
    if !status.success() {
        return Err(format!("target `{name}` does not build"));
    }
    let first = write_seeds(&folder.join("seeds").join(name), &seeds()?)?;
    let dict = folder.join(format!("{name}.dict"));
    write(&dict, dictionary(&words()).as_bytes())?;
    let corpus = folder.join("corpus").join(name);
    let artifacts = folder.join("artifacts").join(name);
    for f in [&corpus, &artifacts] {
        std::fs::create_dir_all(f).map_err(|e| format!("{}: {e}", f.display()))?;
    }
    println!("-- fuzz {name}: {seconds} s");
    let status = Command::new(folder.join(host).join("release").join(name))
        .arg(&corpus)
        .arg(&first)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-dict={}", dict.display()))
        .arg(format!("-max_len={longest}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args(["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1", "-verbosity=0"])
        .current_dir(root())
        .status()
        .map_err(|e| format!("{name}: {e}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("target `{name}` has a finding in {}", artifacts.display())),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    std::fs::write(path, bytes).map_err(|e| format!("{}: {e}", path.display()))
}

fn write_seeds(folder: &Path, seeds: &[Vec<u8>]) -> Result<PathBuf, String> {
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for (i, seed) in seeds.iter().enumerate() {
        write(&folder.join(i.to_string()), seed)?;
    }
    Ok(folder.to_path_buf())
}

fn dictionary(words: &[String]) -> String {
    let mut out = String::new();
    for word in words {
        out.push('"');
        for b in word.bytes() {
            let _ = match b {
                b'"' | b'\\' => write!(out, "\\{}", char::from(b)),
                b' '..=b'~' => write!(out, "{}", char::from(b)),
                _ => write!(out, "\\x{b:02x}"),
            };
        }
        out.push_str("\"\n");
    }
    out
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}

fn gguf_seeds() -> Result<Vec<Vec<u8>>, String> {
    let whole = Build::new()
        .key("general.architecture", STRING, text("llama"))
        .key("general.alignment", U32, 32u32.to_le_bytes())
        .key("flag", BOOL, [1])
        .key("names", ARRAY, strings(&["a", "", "ä"]))
        .key("nested", ARRAY, array(ARRAY, 1, &array(I32, 2, &[0; 8])))
        .key("real", 12, 1.5f64.to_le_bytes())
        .tensor("a", &[4, 3], 0, 0)
        .tensor("b", &[64, 2], 2, 64)
        .data(64 + 36 * 2);
    let mut all = vec![whole.bytes(), Build::new().bytes()];
    let sizes = [(0u32, 4), (1, 2), (24, 1), (25, 2), (26, 4), (27, 8), (28, 8), (30, 2)];
    all.extend(sizes.iter().map(|(kind, n)| Build::new().tensor("w", &[2], *kind, 0).data(2 * n).bytes()));
    let small = [(2u32, 18), (3, 20), (6, 22), (7, 24), (8, 34)];
    all.extend(
        small.iter().map(|(kind, n)| Build::new().tensor("w", &[32, 2], *kind, 0).data(2 * n).bytes()),
    );
    let large = [(10u32, 84), (11, 110), (12, 144), (13, 176), (14, 210)];
    all.extend(large.iter().map(|(kind, n)| Build::new().tensor("w", &[512], *kind, 0).data(2 * n).bytes()));
    Ok(all)
}

fn gguf_words() -> Vec<String> {
    owned(&["GGUF", "\u{2}\0\0\0", "\u{3}\0\0\0", "general.alignment", "general.architecture", "split.count"])
}

fn safetensors_file(header: &str, data: usize) -> Vec<u8> {
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.as_bytes());
    out.resize(out.len() + data, 1);
    out
}

/// Types of the format with the bytes of four elements.
const SAFETENSORS: &[(&str, usize)] = &[
    ("F64", 32),
    ("F32", 16),
    ("F16", 8),
    ("BF16", 8),
    ("F8_E4M3", 4),
    ("F8_E5M2", 4),
    ("F8_E8M0", 4),
    ("F4", 2),
    ("F6_E2M3", 3),
    ("F6_E3M2", 3),
    ("I64", 32),
    ("I32", 16),
    ("I16", 8),
    ("I8", 4),
    ("U64", 32),
    ("U32", 16),
    ("U16", 8),
    ("U8", 4),
    ("BOOL", 4),
    ("C64", 32),
];

fn safetensors_seeds() -> Result<Vec<Vec<u8>>, String> {
    let mut all: Vec<Vec<u8>> = SAFETENSORS
        .iter()
        .map(|(dtype, n)| {
            let header = format!(r#"{{"w":{{"dtype":"{dtype}","shape":[2,2],"data_offsets":[0,{n}]}}}}"#);
            safetensors_file(&header, *n)
        })
        .collect();
    let two = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[0,7],"data_offsets":[1,1]}}   "#;
    all.push(safetensors_file(two, 1));
    all.push(safetensors_file("{}", 0));
    all.push(br#"{"metadata":{"total_size":1},"weight_map":{"a":"1.safetensors"}}"#.to_vec());
    // The headers of real files, without their data.
    for model in ["llama", "mistral"] {
        let path = root().join("tests/data/goldens").join(model).join("golden.safetensors");
        let bytes = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let len = bytes.first_chunk().map_or(0, |n| u64::from_le_bytes(*n) as usize + 8);
        all.push(bytes[..len.min(bytes.len())].to_vec());
    }
    Ok(all)
}

fn safetensors_words() -> Vec<String> {
    let mut words = owned(&[
        "__metadata__",
        "\"dtype\":",
        "\"shape\":[",
        "\"data_offsets\":[",
        "weight_map",
        "1.safetensors",
        "../",
        "\\u0061",
    ]);
    words.extend(SAFETENSORS.iter().map(|(name, _)| format!("\"{name}\"")));
    words
}

fn tokenizer_seeds() -> Result<Vec<Vec<u8>>, String> {
    let vocabulary = |model: &str, pre: &str| {
        Build::new()
            .key("tokenizer.ggml.model", STRING, text(model))
            .key("tokenizer.ggml.pre", STRING, text(pre))
            .key(
                "tokenizer.ggml.tokens",
                ARRAY,
                strings(&["<unk>", "a", "b", "ab", "\u{2581}", "<s>", "<0x41>", "\u{120}a"]),
            )
            .key("tokenizer.ggml.merges", ARRAY, strings(&["a b"]))
            .key("tokenizer.ggml.scores", ARRAY, array(6, 8, &[0; 32]))
            .key(
                "tokenizer.ggml.token_type",
                ARRAY,
                array(I32, 8, &[2, 1, 1, 1, 1, 3, 6, 1].map(i32::to_le_bytes).concat()),
            )
            .key("tokenizer.ggml.bos_token_id", U32, 5u32.to_le_bytes())
            .key("tokenizer.ggml.unknown_token_id", U32, 0u32.to_le_bytes())
            .bytes()
    };
    let mut all = vec![b"\0abcabc\0abc abc".to_vec(), "\u{1}  \0  l'été 😀\n\n123".as_bytes().to_vec()];
    all.extend(
        [("gpt2", "gpt-2"), ("gpt2", "qwen2"), ("llama", "default"), ("bert", "default"), ("t5", "default")]
            .map(|(m, p)| vocabulary(m, p)),
    );
    let added = r#""added_tokens":[{"id":3,"content":"<s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}]"#;
    let bytes = r#"{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}"#;
    let space = r#"{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true}"#;
    let one = |model: &str, normalizer: &str, pre: &str, post: &str, decoder: &str| {
        let head = r#"{"version":"1.0","truncation":null,"padding":null"#;
        format!(
            r#"{head},{added},"normalizer":{normalizer},"pre_tokenizer":{pre},"post_processor":{post},"decoder":{decoder},"model":{model}}}"#
        )
    };
    let template = r#"{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[3],"tokens":["<s>"]}}}"#;
    let bert = r#"{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":true}"#;
    all.extend(
        [
            one(r#"{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"vocab":{"a":0,"b":1,"ab":2,"<s>":3},"merges":["a b"]}"#, "null", bytes, template, bytes),
            one(r#"{"type":"BPE","byte_fallback":true,"unk_token":"a","vocab":{"a":0,"b":1,"ab":2,"<s>":3,"<0x41>":4},"merges":[["a","b"]]}"#, r#"{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"},{"type":"NFKC"}]}"#, "null", "null", r#"{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]}"#),
            one(r#"{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0.0],["a",-1.5],["▁a",-2.0],["<s>",0.0]],"byte_fallback":false}"#, "null", space, "null", space),
            one(r###"{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":100,"vocab":{"[UNK]":0,"a":1,"##b":2,"<s>":3}}"###, bert, r#"{"type":"BertPreTokenizer"}"#, r#"{"type":"BertProcessing","sep":["<s>",3],"cls":["<s>",3]}"#, r###"{"type":"WordPiece","prefix":"##","cleanup":true}"###),
            one(r#"{"type":"WordLevel","vocab":{"a":0,"b":1,"[UNK]":2,"<s>":3},"unk_token":"[UNK]"}"#, "null", r#"{"type":"Sequence","pretokenizers":[{"type":"Whitespace"},{"type":"Split","pattern":{"Regex":"\\d+"},"behavior":"Isolated","invert":false},{"type":"Digits","individual_digits":true}]}"#, "null", "null"),
        ]
        .map(String::into_bytes),
    );
    Ok(all)
}

fn tokenizer_words() -> Vec<String> {
    owned(&[
        "BPE",
        "Unigram",
        "WordPiece",
        "WordLevel",
        "ByteLevel",
        "Metaspace",
        "ByteFallback",
        "Sequence",
        "Replace",
        "Prepend",
        "Split",
        "Isolated",
        "MergedWithPrevious",
        "Contiguous",
        "Removed",
        "\"Regex\":",
        "\"String\":",
        "\"merges\":[",
        "\"vocab\":{",
        "\"unk_token\":",
        "\"unk_id\":",
        "\"added_tokens\":[",
        "continuing_subword_prefix",
        "end_of_word_suffix",
        "NFC",
        "NFKD",
        "Lowercase",
        "Strip",
        "StripAccents",
        "Precompiled",
        "Nmt",
        "Punctuation",
        "Whitespace",
        "Digits",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.merges",
        "tokenizer.ggml.scores",
        "tokenizer.ggml.token_type",
        "tokenizer.ggml.add_bos_token",
        "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.add_space_prefix",
        "\u{2581}",
        "\u{120}",
    ])
}

/// The graphs before and after the passes in the goldens of the compiler.
fn graph_seeds() -> Result<Vec<Vec<u8>>, String> {
    let mut all: Vec<Vec<u8>> = [
        "min(3*T, ceildiv(B, 4))-floordiv(T*T, B)",
        "{(f32, f16) 2=mul(0,1) 3=const:f32(-0.5) 4=cast:f16(2) -> 4:f16, 3:f32}",
    ]
    .map(|t| t.as_bytes().to_vec())
    .into();
    let goldens = root().join("crates/compile/tests");
    for folder in std::fs::read_dir(&goldens).map_err(|e| format!("{}: {e}", goldens.display()))? {
        let folder = folder.map_err(|e| e.to_string())?.path();
        for file in std::fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok) {
            let text = std::fs::read_to_string(file.path())
                .map_err(|e| format!("{}: {e}", file.path().display()))?;
            all.extend(text.split("\n---\n").map(|t| t.as_bytes().to_vec()));
        }
    }
    let registry = frit_ops::registry();
    all.extend(
        registry.iter().flat_map(|op| {
            (op.cases)().into_iter().step_by(40).take(3).map(|c| case(&registry, op.name, &c))
        }),
    );
    Ok(all)
}

/// The graph of one op as a case has it: what mutations of attributes and operands start from.
fn case(registry: &Registry, op: &str, case: &Case) -> Vec<u8> {
    let mut g = Graph::new(op);
    let mut operands = Vec::new();
    for (i, input) in case.inputs.iter().enumerate() {
        let ty = input.as_ref().map(|c| Type::new(c.tensor.dtype(), c.tensor.shape().iter().copied()));
        let declared = ty.and_then(|ty| g.input(&format!("x{i}"), ty).ok());
        operands.push(declared.unwrap_or(ValueId::NONE));
    }
    // An op that wants a state among its operands is left to the goldens.
    let _ = g.push(registry, op, case.attrs.clone(), &operands, &["y"]);
    print(&g).into_bytes()
}

fn graph_words() -> Vec<String> {
    let mut words = owned(&[
        "graph ",
        "symbol ",
        "bound ",
        "guard ",
        "input %",
        "param %",
        "state %",
        "const %",
        "output ",
        "update %",
        "..=",
        "<=",
        "==",
        "ceildiv(",
        "floordiv(",
        "min(",
        "max(",
        "0x",
        "NaN",
        "inf",
        "_",
        "->",
        "-9223372036854775808",
        "9223372036854775807",
    ]);
    words.extend(frit_ops::registry().iter().map(|op| format!("{}(", op.name)));
    words.extend(frit_ir::ScalarOp::all().map(|op| op.name().to_owned()));
    words.extend(frit_ir::DType::all().map(|d| d.name().to_owned()));
    words
}
