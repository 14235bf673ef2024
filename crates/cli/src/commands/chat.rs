//! `frit chat`: a conversation, one line a message.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use frit::{Cancel, Generator, Message, Model, Options, Role, SamplingOptions, StopReason};
use serde::{Deserialize, Serialize};

use crate::args::ChatArgs;
use crate::failure::Failure;
use crate::interrupt;
use crate::models;
use crate::output;

/// The commands of a conversation: name, argument, what it does.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("/help", "", "show this"),
    ("/clear", "", "forget the conversation; the system message stays"),
    ("/undo", "", "take back the last message and its reply"),
    ("/retry", "", "ask for another reply to the last message"),
    ("/system", "TEXT", "set the system message; without a text there is none"),
    ("/save", "FILE", "write the conversation to a file"),
    ("/load", "FILE", "go on with a conversation from a file"),
    ("/exit", "", "end; so does the end of the input"),
];

/// A saved conversation.
#[derive(Deserialize, Serialize)]
struct Document {
    schema: u32,
    messages: Vec<Line>,
}

#[derive(Deserialize, Serialize)]
struct Line {
    role: String,
    content: String,
}

/// A conversation and what it runs on.
struct Chat {
    model: Model,
    generator: Generator,
    sampling: SamplingOptions,
    max_tokens: usize,
    system: Option<String>,
    /// User and assistant in turns.
    messages: Vec<Message>,
    /// The reply that Ctrl-C stops; none at the prompt.
    running: Arc<Mutex<Option<Cancel>>>,
}

/// Runs the command.
pub fn run(a: &ChatArgs) -> Result<(), Failure> {
    let model = models::load_for_text(&a.model)?;
    let sampling = a.sampling.options();
    let options = Options::default().max_tokens(a.max_tokens).sampling(sampling.clone()).stop(&a.stop);
    let generator = model.generator(options)?;
    // A model that cannot chat says so before anything is typed.
    model.chat_tokens(&[Message::user("?")])?;
    let running = Arc::new(Mutex::new(None::<Cancel>));
    let at_prompt = running.clone();
    interrupt::on_every_interrupt(move || {
        match at_prompt.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(reply) => reply.cancel(),
            None => std::process::exit(130),
        }
    })?;
    let (max_tokens, system) = (a.max_tokens, a.system.clone());
    let mut chat = Chat { model, generator, sampling, max_tokens, system, messages: Vec::new(), running };
    let interactive = io::stdin().is_terminal();
    if interactive {
        eprintln!("/help shows the commands");
    }
    loop {
        if interactive {
            eprint!("> ");
        }
        let Some(line) = read_line()? else {
            if interactive {
                eprintln!();
            }
            return Ok(());
        };
        match chat.line(&line) {
            Ok(true) => (),
            Ok(false) => return Ok(()),
            // Whoever types can try again; a script must learn of it.
            Err(Failure::Error(e) | Failure::Caused(e, _)) if interactive => eprintln!("frit: {e}"),
            Err(e) => return Err(e),
        }
    }
}

/// The next line without its end; none at the end of the input.
fn read_line() -> Result<Option<String>, Failure> {
    let mut bytes = Vec::new();
    let failed = |e: String| Failure::Error(format!("standard input: {e}"));
    if io::stdin().lock().read_until(b'\n', &mut bytes).map_err(|e| failed(e.to_string()))? == 0 {
        return Ok(None);
    }
    let text = String::from_utf8(bytes).map_err(|e| failed(e.to_string()))?;
    Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned()))
}

impl Chat {
    /// Does what a line says; false to end. `//` begins a message with a slash.
    fn line(&mut self, line: &str) -> Result<bool, Failure> {
        if line.trim().is_empty() {
            return Ok(true);
        }
        if let Some(rest) = line.strip_prefix('/')
            && !rest.starts_with('/')
        {
            return self.command(line.trim_end());
        }
        let text = line.strip_prefix('/').unwrap_or(line);
        let mut messages = self.messages.clone();
        messages.push(Message::user(text));
        self.reply(messages)?;
        Ok(true)
    }

    fn command(&mut self, line: &str) -> Result<bool, Failure> {
        let (name, argument) = line.split_once(' ').unwrap_or((line, ""));
        let argument = argument.trim();
        let file = || match argument {
            "" => Err(Failure::Error(format!("{name} needs the name of a file"))),
            file => Ok(Path::new(file)),
        };
        match name {
            "/help" => {
                for (name, argument, what) in COMMANDS {
                    eprintln!("{:14} {what}", format!("{name} {argument}"));
                }
            }
            "/clear" => self.messages.clear(),
            "/undo" => self.undo()?,
            "/retry" => self.retry()?,
            "/system" => self.system = Some(argument.to_owned()).filter(|s| !s.is_empty()),
            "/save" => self.save(file()?)?,
            "/load" => self.load(file()?)?,
            "/exit" => return Ok(false),
            _ => {
                let all: Vec<&str> = COMMANDS.iter().map(|c| c.0).collect();
                return Err(Failure::Error(format!("there is no {name}; there are {}", all.join(", "))));
            }
        }
        Ok(true)
    }

    /// Takes back the last message of the user and what followed it.
    fn undo(&mut self) -> Result<(), Failure> {
        let Some(last) = self.messages.iter().rposition(|m| m.role == Role::User) else {
            return Err(Failure::Error("there is no message to take back".into()));
        };
        self.messages.truncate(last);
        Ok(())
    }

    /// Replies to the last message again, with other random numbers.
    fn retry(&mut self) -> Result<(), Failure> {
        let Some(last) = self.messages.iter().rposition(|m| m.role == Role::User) else {
            return Err(Failure::Error("there is no message to reply to".into()));
        };
        if self.sampling.temperature == 0.0 {
            eprintln!("the reply will be the same: --temperature is 0");
        }
        self.sampling.seed = self.sampling.seed.wrapping_add(1);
        self.generator.set_sampling(self.sampling.clone())?;
        self.reply(self.messages[..=last].to_vec())
    }

    /// Writes the reply to `messages`, which with it become the conversation. Without a reply the conversation stays as it was.
    fn reply(&mut self, mut messages: Vec<Message>) -> Result<(), Failure> {
        let cancel = self.generator.reset_cancel();
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(cancel);
        let (mut text, mut gone) = (String::new(), 0);
        let done = self.oldest(&messages).and_then(|n| {
            gone = messages.drain(..n).count();
            self.stream(&messages, &mut text)
        });
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let ended = done.as_ref().is_ok_and(|reason| *reason != StopReason::Cancelled);
        if ended || !text.is_empty() {
            messages.push(Message::assistant(text));
            self.messages = messages;
            if gone > 0 {
                eprintln!("(the context is full: the oldest {gone} messages were dropped)");
            }
        }
        let note = match done? {
            StopReason::Cancelled => "stopped",
            StopReason::MaxTokens => "cut short: --max-tokens allows no more",
            StopReason::ContextFull => "cut short: the context is full",
            _ => return Ok(()),
        };
        eprintln!("({note})");
        Ok(())
    }

    fn stream(&mut self, messages: &[Message], text: &mut String) -> Result<StopReason, Failure> {
        let messages = self.with_system(messages);
        let mut reply = self.generator.chat(&messages)?;
        let mut out = io::stdout().lock();
        for piece in &mut reply {
            let piece = piece?;
            text.push_str(&piece.text);
            out.write_all(piece.text.as_bytes())?;
            out.flush()?;
        }
        out.write_all(b"\n")?;
        out.flush()?;
        Ok(reply.finish()?.reason)
    }

    fn with_system(&self, messages: &[Message]) -> Vec<Message> {
        self.system.iter().map(Message::system).chain(messages.iter().cloned()).collect()
    }

    /// How many of the oldest `messages` must go for a reply of some length to fit behind the rest.
    fn oldest(&self, messages: &[Message]) -> Result<usize, Failure> {
        let context = self.generator.context();
        let room = self.max_tokens.min(context / 4);
        let tokens = |m: &[Message]| Ok(self.model.chat_tokens(&self.with_system(m))?.len());
        oldest(messages, context, room, tokens)
    }

    fn save(&self, file: &Path) -> Result<(), Failure> {
        let line = |m: Message| Line { role: m.role.to_string(), content: m.content };
        let messages = self.with_system(&self.messages).into_iter().map(line).collect();
        let document = Document { schema: output::SCHEMA, messages };
        let mut json = serde_json::to_vec_pretty(&document).map_err(|e| Failure::Error(e.to_string()))?;
        json.push(b'\n');
        // First beside it: a full disk must not cost an older conversation.
        let mut part = file.as_os_str().to_owned();
        part.push(".part");
        let written = std::fs::write(&part, json).and_then(|()| std::fs::rename(&part, file));
        written.map_err(|e| {
            let _ = std::fs::remove_file(&part);
            Failure::Error(format!("{}: {e}", file.display()))
        })
    }

    /// Takes over a saved conversation whole, or changes nothing.
    fn load(&mut self, file: &Path) -> Result<(), Failure> {
        let failed = |e: String| Failure::Error(format!("{}: {e}", file.display()));
        let json = std::fs::read(file).map_err(|e| failed(e.to_string()))?;
        let document: Document = serde_json::from_slice(&json)
            .map_err(|e| failed(format!("not a conversation that /save wrote: {e}")))?;
        if document.schema != output::SCHEMA {
            let found = document.schema;
            return Err(failed(format!("schema {found}; this version reads {}", output::SCHEMA)));
        }
        let (mut system, mut messages) = (None, Vec::new());
        for (i, line) in document.messages.into_iter().enumerate() {
            match line.role.parse::<Role>().map_err(|e| failed(e.to_string()))? {
                Role::System if i == 0 => system = Some(line.content),
                Role::System => {
                    return Err(failed(format!("message {i}: a system message must be the first")));
                }
                role => messages.push(Message::new(role, line.content)),
            }
        }
        (self.system, self.messages) = (system, messages);
        Ok(())
    }
}

/// How many of the oldest `messages` must go, whole turns, so that the rest takes at most `context - room` tokens as `tokens`
/// counts them. The last turn stays, and may take the room too.
///
/// # Errors
/// Not even the last turn fits into the context.
fn oldest(
    messages: &[Message],
    context: usize,
    room: usize,
    tokens: impl Fn(&[Message]) -> Result<usize, Failure>,
) -> Result<usize, Failure> {
    let mut from = 0;
    loop {
        let rest = &messages[from..];
        let takes = tokens(rest)?;
        if takes + room <= context {
            return Ok(from);
        }
        // A turn goes up to the next message of the user.
        match rest.iter().skip(1).position(|m| m.role == Role::User) {
            Some(next) => from += next + 1,
            None if takes <= context => return Ok(from),
            None => {
                return Err(Failure::Error(format!(
                    "the message is too long: with the system message it takes {takes} tokens, and the context has {context}; \
                     shorten it, or start with a larger --context"
                )));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A conversation of two turns and a message, each word of which counts as one token.
    fn conversation() -> Vec<Message> {
        let (user, model) = (Message::user, Message::assistant);
        vec![user("a b"), model("c d e"), user("f"), model("g h"), user("i j k")]
    }

    #[test]
    fn the_oldest_turns_go_and_the_last_one_must_fit() {
        let words = |m: &[Message]| Ok(m.iter().map(|m| m.content.split(' ').count()).sum());
        let oldest =
            |context, room| oldest(&conversation(), context, room, words).map_err(|e| format!("{e:?}"));
        assert_eq!(oldest(13, 2), Ok(0), "11 words and room for 2");
        assert_eq!(oldest(12, 2), Ok(2), "a turn goes with its reply");
        assert_eq!(oldest(8, 2), Ok(2));
        assert_eq!(oldest(7, 2), Ok(4));
        assert_eq!(oldest(3, 2), Ok(4), "the last message may take the room");
        let error = oldest(2, 2).unwrap_err();
        assert!(error.contains("takes 3 tokens, and the context has 2"), "{error}");
    }

    #[test]
    fn what_gets_no_reply_leaves_the_conversation_as_it_was() {
        let file =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/models/SmolLM2-135M-Instruct.Q4_1.gguf");
        let options = frit::LoadOptions::default().context(96);
        let model = Model::load_with(file, &options).expect("run `cargo xtask fetch`");
        let generator = model.generator(Options::default().max_tokens(4)).unwrap();
        let sampling = SamplingOptions::default();
        let (system, messages, running) = (None, Vec::new(), Arc::default());
        let mut chat = Chat { model, generator, sampling, max_tokens: 4, system, messages, running };
        for line in ["Name a colour.", "And a river."] {
            chat.line(line).unwrap();
        }
        let before = chat.messages.clone();
        assert_eq!(before.len(), 4);
        // A message too long, and a retry behind instructions too long: an error each, and nothing is lost.
        let long = "word ".repeat(200);
        let said = |r: Result<bool, Failure>| format!("{:?}", r.unwrap_err());
        assert!(said(chat.line(&long)).contains("the message is too long"));
        assert_eq!(chat.messages, before);
        chat.line(&format!("/system {long}")).unwrap();
        assert!(said(chat.line("/retry")).contains("the message is too long"));
        assert_eq!(chat.messages, before);
        // It can go on.
        chat.line("/system").unwrap();
        chat.line("/retry").unwrap();
        assert_eq!((chat.messages.len(), &chat.messages[..3]), (4, &before[..3]));
    }
}
