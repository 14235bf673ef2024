//! Tokenizers that contradict themselves.

use crate::build::{ARRAY, BOOL, Build, I32, STRING, U32, array, strings, text};
use frit_formats::{EncodeOptions, FormatError, Gguf, Tokenizer};

const TEXT: EncodeOptions = EncodeOptions { add_special: false, parse_special: false };
const WHOLE: EncodeOptions = EncodeOptions { add_special: true, parse_special: true };

const TOKENS: &[&str] = &["a", "b", "ab", "Ġ", "<s>", "<eos>", "<tool>", "Ġa"];
const MERGES: &[&str] = &["a b", "Ġ a"];
/// `<s>` and `<eos>` are control tokens, `<tool>` is user-defined.
const TYPES: &[i32] = &[1, 1, 1, 1, 3, 3, 4, 1];

struct Parts {
    model: &'static str,
    pre: &'static str,
    tokens: Vec<&'static str>,
    merges: Vec<&'static str>,
    types: Vec<i32>,
    bos: u32,
}

impl Default for Parts {
    fn default() -> Parts {
        let (tokens, merges) = (TOKENS.to_vec(), MERGES.to_vec());
        Parts { model: "gpt2", pre: "gpt-2", tokens, merges, types: TYPES.to_vec(), bos: 4 }
    }
}

fn build(parts: &Parts) -> Build {
    let types: Vec<u8> = parts.types.iter().flat_map(|t| t.to_le_bytes()).collect();
    Build::new()
        .key("tokenizer.ggml.model", STRING, text(parts.model))
        .key("tokenizer.ggml.pre", STRING, text(parts.pre))
        .key("tokenizer.ggml.tokens", ARRAY, strings(&parts.tokens))
        .key("tokenizer.ggml.merges", ARRAY, strings(&parts.merges))
        .key("tokenizer.ggml.token_type", ARRAY, array(I32, parts.types.len() as u64, &types))
        .key("tokenizer.ggml.bos_token_id", U32, parts.bos.to_le_bytes())
}

fn open(build: Build) -> Result<Tokenizer, FormatError> {
    Tokenizer::from_gguf(&Gguf::from_bytes(build.bytes())?)
}

#[test]
fn a_tiny_tokenizer_works() {
    let t = open(build(&Parts::default()).key("tokenizer.ggml.add_bos_token", BOOL, [1])).unwrap();
    assert_eq!(t.encode("ab a", TEXT).unwrap(), [2, 7]);
    assert_eq!(t.encode("ab", WHOLE).unwrap(), [4, 2]);
    assert_eq!(t.encode("<eos>a", WHOLE).unwrap(), [4, 5, 0]);
    // User-defined tokens are always read, control tokens only on request; characters without a token are dropped.
    assert_eq!(t.encode("a<tool><eos>b", TEXT).unwrap(), [0, 6, 1]);
    assert_eq!(t.encode("", TEXT).unwrap(), [0u32; 0]);
    assert_eq!(t.decode(&[4, 2, 7, 6, 5]).unwrap(), "ab a<tool>");
    assert!(t.is_eog(5) && !t.is_eog(4), "known by its text");
    fn check<T: Send + Sync + Clone + 'static>(_: &T) {}
    check(&t);
}

#[test]
fn inconsistent_vocabularies() {
    let parts = Parts::default;
    let cases = [
        (Parts { model: "rwkv", ..parts() }, "tokenizer 'rwkv' is not supported; supported are 'gpt2'"),
        (Parts { model: "bert", ..parts() }, "unknown token 100 of 8"),
        (Parts { model: "t5", ..parts() }, "'tokenizer.ggml.scores' is missing"),
        (Parts { model: "llama", ..parts() }, "'tokenizer.ggml.scores' is missing"),
        (
            Parts { pre: "nonsense", ..parts() },
            "pre-tokenizer 'nonsense' is not supported; supported are default, gpt-2",
        ),
        (Parts { types: vec![1], ..parts() }, "'tokenizer.ggml.token_type': 1 i32 for 8 tokens"),
        (Parts { merges: vec!["a b", "ab"], ..parts() }, "merge 1, 'ab', is not two tokens"),
        (Parts { merges: vec!["a c"], ..parts() }, "merge 0, 'a c', needs 'c', which is no token"),
        (Parts { merges: vec!["b a"], ..parts() }, "merge 0, 'b a', needs 'ba', which is no token"),
        (Parts { merges: vec!["ab ab"], ..parts() }, "needs 'abab', which is no token"),
        (Parts { merges: vec![""], ..parts() }, "merge 0, '', is not two tokens"),
        (
            Parts { bos: 8, ..parts() },
            "key 'tokenizer.ggml.bos_token_id' holds token 8; it must hold an id below 8",
        ),
    ];
    for (parts, part) in cases {
        let e = open(build(&parts)).expect_err(part).to_string();
        assert!(e.contains(part), "{e:?} lacks {part:?}");
    }
    let e = open(Build::new()).unwrap_err().to_string();
    assert!(e.contains("'tokenizer.ggml.model' is missing"), "{e}");
    let bad = strings(&["a", "b"]).into_iter().map(|b| if b == b'b' { 0xff } else { b }).collect::<Vec<u8>>();
    let e = open(Build::new().key("tokenizer.ggml.model", STRING, text("gpt2")).key(
        "tokenizer.ggml.tokens",
        ARRAY,
        bad,
    ));
    let e = e.unwrap_err().to_string();
    assert!(e.contains("element 1 of 2 is not a UTF-8 string"), "{e}");
    let e = open(build(&Parts::default()).key("tokenizer.ggml.add_eos_token", BOOL, [1])).unwrap_err();
    assert!(e.to_string().contains("'tokenizer.ggml.eos_token_id' is missing"), "{e}");
}

/// A `tokenizer.json` of the same tiny vocabulary.
fn json() -> String {
    let added = |id: u32, text: &str, special: bool| {
        format!(
            r#"{{"id":{id},"content":"{text}","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":{special}}}"#
        )
    };
    format!(
        r#"{{"version":"1.0","truncation":{{"max_length":2,"strategy":"LongestFirst","stride":0,"direction":"Right"}},
        "padding":null,"added_tokens":[{},{},{}],"normalizer":null,
        "pre_tokenizer":{{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}},
        "post_processor":{{"type":"TemplateProcessing","single":[{{"SpecialToken":{{"id":"<s>","type_id":0}}}},{{"Sequence":{{"id":"A","type_id":0}}}}],
        "pair":[],"special_tokens":{{"<s>":{{"id":"<s>","ids":[4],"tokens":["<s>"]}}}}}},
        "decoder":{{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}},
        "model":{{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,
        "fuse_unk":false,"byte_fallback":false,"vocab":{{"a":0,"b":1,"ab":2,"Ġ":3,"<s>":4,"<eos>":5,"<tool>":6,"Ġa":7}},"merges":["a b","Ġ a"]}}}}"#,
        added(4, "<s>", true),
        added(5, "<eos>", true),
        added(6, "<tool>", false)
    )
}

#[test]
fn a_tiny_json_works() {
    let t = Tokenizer::from_json_bytes(json().as_bytes()).unwrap();
    assert_eq!(t.encode("ab a ab a", TEXT).unwrap(), [2, 7, 3, 2, 7], "nothing is cut off");
    assert_eq!(t.encode("<eos>a", WHOLE).unwrap(), [4, 5, 0]);
    assert_eq!(t.encode("a<tool><eos>b", TEXT).unwrap(), [0, 6, 1]);
    assert_eq!(t.decode(&[4, 2, 7, 6, 5]).unwrap(), "ab a<tool>");
    assert!(t.is_eog(5));
    assert_eq!(t.vocab_size(), 8);
}

#[test]
fn folders_name_the_ends() {
    let folder = std::env::temp_dir().join(format!("frit-tokenizer-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    let e = Tokenizer::from_folder(&folder).unwrap_err();
    assert!(matches!(e, FormatError::Io { .. }) && e.to_string().contains("tokenizer.json"), "{e}");
    write("tokenizer.json", &json());
    write(
        "tokenizer_config.json",
        r#"{"bos_token":{"content":"<s>"},"eos_token":"<eos>","chat_template":"in"}"#,
    );
    write("generation_config.json", r#"{"eos_token_id":[5,6]}"#);
    let t = Tokenizer::from_folder(&folder).unwrap();
    assert_eq!((t.bos(), t.eos(), t.chat_template()), (Some(4), Some(5), Some("in")));
    assert_eq!(t.eog_ids().collect::<Vec<_>>(), [5, 6]);
    write("chat_template.jinja", "beside");
    assert_eq!(Tokenizer::from_folder(&folder).unwrap().chat_template(), Some("beside"));
    write("generation_config.json", r#"{"eos_token_id":"x"}"#);
    let e = Tokenizer::from_folder(&folder).unwrap_err();
    assert!(e.to_string().contains("generation_config.json: configuration"), "{e}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn broken_json() {
    for bad in ["", "{}", "[1", r#"{"version":"1.0","model":{"type":"BPE","vocab":{},"merges":["a b"]}}"#] {
        let e = Tokenizer::from_json_bytes(bad.as_bytes()).unwrap_err();
        assert!(e.to_string().starts_with("tokenizer.json bytes: tokenizer: "), "{e}");
    }
    let far = json().replace(r#""id":6"#, r#""id":4294967295"#);
    let e = Tokenizer::from_json_bytes(far.as_bytes()).unwrap_err().to_string();
    assert!(e.contains("added token '<tool>' has id 4294967295, its place in the vocabulary is 6"), "{e}");
    let wide = json().replace(r#""Ġa":7"#, r#""Ġa":4294967295"#);
    let e = Tokenizer::from_json_bytes(wide.as_bytes()).unwrap_err();
    assert!(e.to_string().contains("token id 429496729"), "{e}");
    let outside = json().replace(r#""ids":[4]"#, r#""ids":[8]"#);
    let e = Tokenizer::from_json_bytes(outside.as_bytes()).unwrap_err().to_string();
    assert!(e.contains("the post-processor adds token 8, which is not in the vocabulary"), "{e}");
    let undefined = json().replace(r#""SpecialToken":{"id":"<s>""#, r#""SpecialToken":{"id":"<t>""#);
    let e = Tokenizer::from_json_bytes(undefined.as_bytes()).unwrap_err().to_string();
    assert!(e.starts_with("tokenizer.json bytes: tokenizer: "), "{e}");
}

#[test]
fn a_unigram_json_reads_no_special_tokens_in_words() {
    let json = r#"{"version":"1.0","truncation":null,"padding":null,"normalizer":null,"post_processor":null,
        "added_tokens":[{"id":1,"content":"</s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":true,"special":true}],
        "pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true},
        "decoder":{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true},
        "model":{"type":"Unigram","unk_id":0,"byte_fallback":false,
        "vocab":[["<unk>",0.0],["</s>",0.0],["▁a",-1.0],["a",-2.0],["<",-3.0],["/",-3.0],["s",-3.0],[">",-3.0]]}}"#;
    let t = Tokenizer::from_json_bytes(json.as_bytes()).unwrap();
    assert_eq!(t.encode("a</s>a é", TEXT).unwrap(), [2, 4, 5, 6, 7, 3, 0]);
    assert_eq!(t.encode("a</s>a", WHOLE).unwrap(), [2, 1, 2]);
    assert_eq!(t.decode(&[2, 4, 5, 6, 7, 3]).unwrap(), "a</s>a");
}

#[test]
fn a_word_level_json_reads_no_special_tokens_in_words() {
    let json = r#"{"version":"1.0","truncation":null,"padding":null,"normalizer":null,"post_processor":null,"decoder":null,
        "added_tokens":[{"id":1,"content":"[SEP]","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
        "pre_tokenizer":{"type":"WhitespaceSplit"},
        "model":{"type":"WordLevel","unk_token":"[UNK]","vocab":{"[UNK]":0,"[SEP]":1,"a":2,"S":3}}}"#;
    let t = Tokenizer::from_json_bytes(json.as_bytes()).unwrap();
    assert_eq!(t.encode("a [SEP] b", WHOLE).unwrap(), [2, 1, 0]);
    assert_eq!(t.encode("a [SEP] b", TEXT).unwrap(), [2, 0, 3, 0, 0, 0, 0]);
}
