//! `frit chat` as a user or a script sees it: lines in, replies on standard output, the rest on standard error.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn smollm2() -> String {
    let p =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/models/SmolLM2-135M-Instruct.Q4_1.gguf");
    assert!(p.exists(), "{} is missing: run `cargo xtask fetch`", p.display());
    p.to_string_lossy().into_owned()
}

fn chat(args: &[&str]) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_frit"));
    c.env("FRIT_CACHE_DIR", "/nonexistent").args(["chat", &smollm2()]).args(args);
    c.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    c
}

/// The output of a whole conversation.
fn talk(args: &[&str], input: &str) -> Output {
    let mut child = chat(args).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Standard output of a conversation that ends well and says nothing else than `notes`.
fn replies(args: &[&str], input: &str, notes: &str) -> String {
    let out = talk(args, input);
    assert_eq!(text(&out.stderr), notes, "{input}");
    assert_eq!(out.status.code(), Some(0));
    text(&out.stdout)
}

/// What the library replies to `messages` from an empty context.
fn right(messages: &[frit::Message], max_tokens: usize) -> String {
    let model = frit::Model::load(smollm2()).unwrap();
    let mut generator = model.generator(frit::Options::default().max_tokens(max_tokens)).unwrap();
    let reply = generator.tokens(&model.chat_tokens(messages).unwrap()).unwrap();
    reply.map(|p| p.unwrap().text).collect()
}

const CUT: &str = "(cut short: --max-tokens allows no more)\n";

#[test]
fn lines_are_messages_and_replies_know_what_was_said() {
    use frit::Message;
    let mut messages = vec![Message::user("My name is Ada. Name three colours.")];
    let first = right(&messages, 10);
    messages.extend([Message::assistant(&first), Message::user("What is my name?")]);
    let second = right(&messages, 10);
    let input = "My name is Ada. Name three colours.\r\n\n  \nWhat is my name?";
    let out = talk(&["--max-tokens", "10"], input);
    assert_eq!(out.status.code(), Some(0));
    assert_eq!(text(&out.stdout), format!("{first}\n{second}\n"));
    assert_eq!(replies(&[], "", ""), "", "no input, no output");
}

#[test]
fn commands_change_the_conversation() {
    let args = ["--max-tokens", "4", "--system", "Be brief."];
    let file = std::env::temp_dir().join(format!("frit-chat-{}.json", std::process::id()));
    let name = file.to_string_lossy();
    let once = replies(&args, "Name a colour.\n", CUT);
    let notes = CUT.repeat(2);
    // What was taken back has no influence, nor has what was forgotten.
    let lines = |input: &str, notes: &str| {
        let all = replies(&args, input, notes);
        all.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let undone = lines("Name a river.\n/undo\nName a colour.\n", &notes);
    assert_eq!(undone[1], once.trim_end());
    let cleared = lines("Name a river.\n/clear\nName a colour.\n", &notes);
    assert_eq!(cleared[1], once.trim_end());
    let same = "the reply will be the same: --temperature is 0\n";
    let retried = lines("Name a colour.\n/retry\n", &format!("{CUT}{same}{CUT}"));
    assert_eq!(retried[0], retried[1]);
    let system = replies(&args[..2], "/system Be brief.\nName a colour.\n", CUT);
    assert_eq!(system, once);

    let saved = lines(&format!("Name a colour.\n/save {name}\nName a river.\n"), &notes);
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(json["schema"], 1);
    assert_eq!(
        json["messages"],
        serde_json::json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Name a colour."},
            {"role": "assistant", "content": saved[0]},
        ])
    );
    let loaded = replies(&args[..2], &format!("/load {name}\nName a river.\n/exit\nNever said.\n"), CUT);
    assert_eq!(loaded.trim_end(), saved[1]);
    std::fs::remove_file(&file).unwrap();

    let slash = text(&talk(&args, "//help is a command.\n").stdout);
    assert_eq!(slash.lines().count(), 1, "a message may begin with a slash");
    let help = talk(&args, "/help\n");
    assert!(help.stdout.is_empty() && text(&help.stderr).contains("/system TEXT"));
}

#[test]
fn a_script_learns_of_what_fails() {
    let file = std::env::temp_dir().join(format!("frit-chat-bad-{}.json", std::process::id()));
    let load = format!("/load {}\n", file.display());
    let cases = [
        ("/nonsense\n", "there is no /nonsense; there are /help, /clear"),
        ("/undo\n", "no message to take back"),
        ("/retry\n", "no message to reply to"),
        ("/save\n", "/save needs the name of a file"),
        ("/save /no/such/folder/x\n", "/no/such/folder/x: "),
        ("/load /no/such/file\n", "/no/such/file: "),
        (&load, "a system message must be the first"),
    ];
    let bad = r#"{"schema":1,"messages":[{"role":"user","content":"x"},{"role":"system","content":"y"}]}"#;
    std::fs::write(&file, bad).unwrap();
    for (input, part) in cases {
        let out = talk(&[], input);
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{input}: {err}");
        assert!(
            err.starts_with("frit: ") && err.contains(part) && err.lines().count() == 1,
            "{input}: {err}"
        );
        assert!(out.stdout.is_empty(), "{input}");
    }
    std::fs::remove_file(&file).unwrap();
    let mut child = chat(&[]).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"\xff\xfe\n").unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.code() == Some(1) && text(&out.stderr).contains("utf-8"), "{}", text(&out.stderr));
}

#[test]
fn old_turns_make_room_and_the_system_message_stays() {
    let args = ["--context", "96", "--max-tokens", "24", "--system", "You are a parrot."];
    let input = "Tell me about the sea.\nTell me about the moon.\nTell me about trees.\nAnd stones?\n";
    let out = talk(&args, input);
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{err}");
    assert_eq!(err.matches("messages were dropped)").count(), 2, "{err}");
    assert!(err.contains("(the context is full: the oldest 2 messages were dropped)"), "{err}");
    // One message that never fits.
    let out = talk(&args, &"word ".repeat(200));
    assert_eq!(out.status.code(), Some(1));
    let err = text(&out.stderr);
    assert!(err.contains("the message is too long") && err.contains("the context has 96"), "{err}");
    assert!(!err.contains("dropped") && err.lines().count() == 1, "{err}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_the_reply_and_at_the_prompt_the_program() {
    let mut child = chat(&["--max-tokens", "100000", "--context", "4096"]).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let interrupt = |id: u32| {
        assert!(Command::new("kill").args(["-INT", &id.to_string()]).status().unwrap().success());
    };
    input.write_all(b"Tell me a very long story about a fox, a wolf and a bear.\n").unwrap();
    // The first bytes show that a reply is being written.
    output.read_exact(&mut [0; 12]).unwrap();
    interrupt(child.id());
    let mut note = String::new();
    errors.read_line(&mut note).unwrap();
    assert_eq!(note, "(stopped)\n");
    // It goes on: `/undo` has something to take back, and the next command says so by failing no earlier.
    input.write_all(b"/undo\n/help\n").unwrap();
    note.clear();
    errors.read_line(&mut note).unwrap();
    assert!(note.starts_with("/help"), "{note}");
    interrupt(child.id());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(input);
}
