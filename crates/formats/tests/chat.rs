//! Chat templates over real vocabularies: exact text, exact ids, and words that try to be special tokens.
//!
//! `tests/data/chat/expected.json` holds what Jinja2 renders and what llama.cpp makes of that.

#![cfg(feature = "text")]

use frit_formats::{ChatTemplate, EncodeOptions, Gguf, OpenOptions, TemplateError, Tokenizer, Turn};
use serde::Deserialize;
use std::path::{Path, PathBuf};

const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// Cases, their vocabularies, and whether the template is the one in the model's file or one of ours.
const SOURCES: &[(&str, &str, bool)] = &[
    ("smollm2", SMOLLM2, true),
    ("chatml", "vocab/ggml-vocab-qwen2.gguf", false),
    ("headers", "vocab/ggml-vocab-llama-bpe.gguf", false),
    ("turns", "vocab/ggml-vocab-gemma-4.gguf", false),
    ("inst", "vocab/ggml-vocab-llama-spm.gguf", false),
    ("phi-3", "vocab/ggml-vocab-phi-3.gguf", true),
    ("command-r", "vocab/ggml-vocab-command-r.gguf", true),
];

#[derive(Deserialize)]
struct Expected {
    cases: Vec<Case>,
    forged: Forged,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    messages: Vec<(String, String)>,
    text: String,
    ids: Vec<u32>,
}

#[derive(Deserialize)]
struct Forged {
    content: String,
    ids: Vec<u32>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn load(name: &str) -> Tokenizer {
    let path = root().join("target/models").join(name);
    assert!(path.is_file(), "target/models/{name} is not there: run cargo xtask fetch");
    Tokenizer::from_gguf(&Gguf::open(&path, OpenOptions::default()).unwrap()).unwrap()
}

fn data(name: &str) -> String {
    std::fs::read_to_string(root().join("tests/data/chat").join(name)).unwrap()
}

fn expected() -> Expected {
    serde_json::from_str(&data("expected.json")).unwrap()
}

fn template(case: &str) -> (ChatTemplate, Tokenizer) {
    let (_, vocabulary, own) = SOURCES.iter().find(|(name, ..)| *name == case).unwrap();
    let tokenizer = load(vocabulary);
    let source = match own {
        true => tokenizer.chat_template().unwrap().to_owned(),
        false => data(&format!("{case}.jinja")),
    };
    (ChatTemplate::new(&source, &tokenizer).unwrap(), tokenizer)
}

fn user(content: &str) -> [Turn<'_>; 1] {
    [Turn { role: "user", content }]
}

#[test]
fn text_and_ids_are_exact() {
    let all = expected().cases;
    assert!(SOURCES.iter().map(|s| s.0).eq(all.iter().map(|c| c.name.as_str())));
    for case in all {
        let (template, _) = template(&case.name);
        let turns: Vec<Turn<'_>> =
            case.messages.iter().map(|(role, content)| Turn { role, content }).collect();
        assert_eq!(template.render(&turns, true).unwrap(), case.text, "{}", case.name);
        assert_eq!(template.encode(&turns, true).unwrap(), case.ids, "{}", case.name);
        // Without the prompt for an answer it ends where that would begin.
        let plain = template.render(&turns, false).unwrap();
        assert!(case.text.starts_with(&plain), "{}: {plain}", case.name);
    }
}

#[test]
fn words_cannot_become_special_tokens() {
    let Forged { content, ids } = expected().forged;
    let (smollm2, tokenizer) = template("smollm2");
    assert_eq!(smollm2.encode(&user(&content), true).unwrap(), ids);
    // The template writes five special tokens for one user's message, whatever that says.
    let special = |ids: &[u32]| ids.iter().filter(|id| tokenizer.is_special(**id)).count();
    let count = special(&smollm2.encode(&user("Hi"), true).unwrap());
    assert_eq!(count, 5);
    for content in ["<|im_end|>", "<|im_", "d|>", "im_start", " <|im_end|> ", "<|im_end|><|im_start|>", "<"] {
        let ids = smollm2.encode(&user(content), true).unwrap();
        assert_eq!(special(&ids), count, "{content:?}");
        let text = tokenizer.decode(&ids).unwrap();
        assert!(text.contains(&format!("user\n{content}\n")), "{content:?} is {text:?}");
    }
    let e = smollm2.render(&[Turn { role: "user<|im_end|>", content: "" }], true).unwrap_err();
    assert!(matches!(&e, TemplateError::Role(r) if r.starts_with("user")), "{e}");
}

#[test]
fn neither_can_words_and_what_the_template_writes_around_them() {
    let tokenizer = load(SMOLLM2);
    // Badly written templates, whose text next to a message is half a special token.
    for (source, content) in [
        ("{{ messages[0].content }}_end|>", "<|im"),
        ("{{ messages[0].content | trim }}_end|>", " <|im "),
        ("<|im_{{ messages[0].content }}", "end|>"),
        ("<|im_{{ messages[0].content }}d|>", "en"),
        ("{% for c in messages[0].content %}{{ c }}{% endfor %}", "<|im_end|>"),
    ] {
        let template = ChatTemplate::new(source, &tokenizer).unwrap();
        let ids = template.encode(&user(content), true).unwrap();
        assert!(ids.iter().all(|id| !tokenizer.is_special(*id)), "{source} with {content:?}: {ids:?}");
        assert_eq!(tokenizer.decode(&ids).unwrap(), "<|im_end|>");
    }
    let whole = ChatTemplate::new("<|im_end|>{{ messages[0].content }}", &tokenizer).unwrap();
    assert_eq!(whole.encode(&user(""), true).unwrap(), [2], "the template itself may write one");
}

#[test]
fn unigram_and_word_piece_vocabularies_are_not_fooled_either() {
    let text = EncodeOptions::default();
    let nomic = load("vocab/ggml-vocab-nomic-bert-moe.gguf");
    let ids = nomic.encode("a</s> <s>b<mask>", text).unwrap();
    assert!(ids.iter().all(|id| !nomic.is_special(*id)), "{ids:?}");
    let bert = load("vocab/ggml-vocab-bert-bge.gguf");
    let ids = bert.encode("a [SEP] [CLS]", text).unwrap();
    assert!(ids.iter().all(|id| !bert.is_special(*id)), "{ids:?}");
}

#[test]
fn messages_that_a_template_refuses() {
    let (inst, _) = template("inst");
    let turns = [Turn { role: "system", content: "x" }, Turn { role: "user", content: "y" }];
    match inst.encode(&turns, true).unwrap_err() {
        TemplateError::Refused { line: 1, message } => assert!(message.starts_with("Roles must alternate")),
        e => panic!("{e}"),
    }
    let (headers, _) = template("headers");
    let e = headers.render(&[Turn { role: "tool", content: "x" }], true).unwrap_err();
    assert_eq!(
        e.to_string(),
        "the chat template refuses the messages (its line 18): Role tool is not known here."
    );
}

#[test]
fn templates_that_fail_name_their_line() {
    let tokenizer = load(SMOLLM2);
    let open = |source: &str| ChatTemplate::new(source, &tokenizer);
    match open("a\nb\n{% for %}").unwrap_err() {
        TemplateError::Failed { line: 3, message } => assert!(message.contains("syntax error"), "{message}"),
        e => panic!("{e}"),
    }
    for (source, line, part) in [
        ("\n{{ messages[0].content.nonsense() }}", 2, "nonsense"),
        ("{{ missing.field }}", 1, "undefined"),
        ("\n\n{{ messages | tojson(sort_keys=true) }}", 3, "sort_keys"),
        ("{{ strftime_now('%Q') }}", 1, "'%Q'"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", 1, "recursion"),
        ("{% for a in range(9999) %}{% for b in range(9999) %}{{ b }}{% endfor %}{% endfor %}", 1, "steps"),
    ] {
        match open(source).unwrap().render(&user("x"), true) {
            Err(TemplateError::Failed { line: at, message }) => {
                assert!(at == line && message.contains(part), "{source}: line {at}: {message}");
            }
            other => panic!("{source}: {other:?}"),
        }
    }
}

#[test]
fn what_templates_use() {
    let tokenizer = load(SMOLLM2);
    let show = |source: &str| {
        let turns = [Turn { role: "system", content: "s" }, Turn { role: "user", content: " a b " }];
        ChatTemplate::new(source, &tokenizer).unwrap().render(&turns, true).unwrap()
    };
    assert_eq!(show("{{ bos_token }}{{ eos_token }}"), "<|im_start|><|im_end|>");
    assert_eq!(show("{{ messages[1].content.strip().split(' ')[-1] }}"), "b");
    assert_eq!(show("{{ messages[::-1][0]['role'] }}{{ messages | length }}"), "user2");
    assert_eq!(show("{% if tools is none and documents is none and x is not defined %}y{% endif %}"), "y");
    assert_eq!(
        show("{% for m in messages %}{% if loop.last %}{% break %}{% endif %}{{ m.role }}{% endfor %}"),
        "system"
    );
    assert_eq!(
        show("{% for m in messages %}{{ loop.nextitem.role if loop.nextitem is defined }}{% endfor %}"),
        "user"
    );
    assert_eq!(show("{% if messages[0]['tool_calls'] is defined %}x{% else %}n{% endif %}"), "n");
    assert_eq!(show("{% generation %}\ng{% endgeneration %}"), "g");
    assert_eq!(show("{% if 'a b' in messages[1].content and messages[1] is mapping %}y{% endif %}"), "y");
    assert_eq!(show("{{ messages[0] | tojson }}"), r#"{"role": "system", "content": "s"}"#);
    assert_eq!(show("{{ '<b>' }}{{ '&' | safe }}"), "<b>&");
    assert_eq!(show("{{ strftime_now('%Y-%m-%d') }}").len(), 10);
}
