//! Chat templates: from the turns of a conversation to the tokens that a model was trained to answer.
//!
//! A template is a Jinja program that comes with the model and writes special tokens as text (`<|im_start|>`). What it
//! writes is trusted, what stands in the conversation is not: a user who writes `<|im_end|>` must not end the turn. So
//! before rendering, every character of the conversation that could become part of a special token is replaced by a
//! private-use character that occurs nowhere else: the first one of each special token's text, and the first or last
//! ones of a message where they could complete, or be completed by, what the template writes beside them. Special
//! tokens are then found in the rendered text, and only after that do the stand-ins become characters again, so that the text
//! around them is cut into tokens as if nothing had happened. A template can still trim, compare and split messages;
//! it only does not find a special token's text in them.

mod functions;
mod guard;

use crate::tokenizer::{TextError, Tokenizer};
use guard::Guard;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, ErrorKind, context};
use std::error::Error as _;
use std::fmt;

/// Instructions that rendering may take: real templates take some thousands.
const FUEL: u64 = 10_000_000;

/// One turn of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn<'a> {
    /// Who speaks: `system`, `user`, `assistant` or another name of ASCII letters, digits, `_` and `-`.
    pub role: &'a str,
    /// What is said.
    pub content: &'a str,
}

/// Why a conversation could not be written out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The template does not want these messages, e.g. because roles do not alternate.
    #[error("the chat template refuses the messages (its line {line}): {message}")]
    Refused {
        /// Line of the template, from 1.
        line: usize,
        /// What the template says.
        message: String,
    },
    /// The template itself is wrong or uses what is not supported.
    #[error("the chat template fails in its line {line}: {message}")]
    Failed {
        /// Line of the template, from 1; 0 if it is not known.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// A role that is not a plain name.
    #[error("{0:?} cannot be a role; it must be a name of ASCII letters, digits, '_' and '-'")]
    Role(String),
    /// The messages contain every private-use character, so that none is left to stand for another.
    #[error("the messages use every character from U+100000 to U+10FFFD; at least one must be free")]
    Characters,
    /// The rendered text cannot be encoded.
    #[error(transparent)]
    Text(#[from] TextError),
}

/// A chat template, ready to use with its tokenizer.
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    tokenizer: Tokenizer,
    guard: Guard,
}

impl ChatTemplate {
    /// Compiles a template. It gets `messages`, `add_generation_prompt`, `bos_token` and `eos_token`, and neither tools nor
    /// documents; besides Jinja's own it may use `raise_exception`, `strftime_now` (UTC) and Python's string methods.
    ///
    /// # Errors
    /// [`TemplateError::Failed`] for a template that cannot be compiled.
    pub fn new(source: &str, tokenizer: &Tokenizer) -> Result<ChatTemplate, TemplateError> {
        let mut environment = Environment::new();
        let blocks = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(blocks.map_err(failure)?);
        environment.set_fuel(Some(FUEL));
        functions::add(&mut environment);
        let token = |id: Option<u32>| {
            let bytes = id.and_then(|id| tokenizer.token_bytes(id)).unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        };
        environment.add_global("bos_token", token(tokenizer.bos()));
        environment.add_global("eos_token", token(tokenizer.eos()));
        let source = functions::plain_blocks(source);
        environment.template_from_str(&source).map_err(failure)?;
        let guard = Guard::new(tokenizer.special_texts());
        Ok(ChatTemplate { environment, source, tokenizer: tokenizer.clone(), guard })
    }

    /// The conversation as text, special tokens by their texts. `reply`: it ends where the assistant's answer begins.
    ///
    /// # Errors
    /// The template refuses the turns or fails on them; a role is not a plain name.
    pub fn render(&self, turns: &[Turn<'_>], reply: bool) -> Result<String, TemplateError> {
        let (text, stand_ins) = self.guarded(turns, reply)?;
        Ok(stand_ins.restore(&text))
    }

    /// The conversation as tokens: those that the template writes are special, those in the turns are text.
    ///
    /// # Errors
    /// As [`render`](Self::render); the text cannot be encoded.
    pub fn encode(&self, turns: &[Turn<'_>], reply: bool) -> Result<Vec<u32>, TemplateError> {
        let (text, stand_ins) = self.guarded(turns, reply)?;
        Ok(self.tokenizer.encode_rendered(&text, stand_ins.originals())?)
    }

    /// The rendered text with stand-ins in it.
    fn guarded(&self, turns: &[Turn<'_>], reply: bool) -> Result<(String, guard::StandIns), TemplateError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if let Some(bad) = turns.iter().find(|t| t.role.is_empty() || !t.role.chars().all(plain)) {
            return Err(TemplateError::Role(bad.role.to_owned()));
        }
        let mut stand_ins =
            guard::StandIns::new(turns.iter().map(|t| t.content).chain([self.source.as_str()]));
        let mut messages: Vec<Value> = Vec::with_capacity(turns.len());
        for t in turns {
            let content = self.guard.protect(t.content, &mut stand_ins).ok_or(TemplateError::Characters)?;
            messages.push(context! { role => t.role, content });
        }
        let template = self.environment.template_from_str(&self.source).map_err(failure)?;
        let none = Value::from(());
        let text = template.render(context! {
            messages,
            add_generation_prompt => reply,
            tools => none.clone(),
            documents => none,
        });
        Ok((text.map_err(failure)?, stand_ins))
    }
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").field("source", &self.source).finish_non_exhaustive()
    }
}

fn failure(e: minijinja::Error) -> TemplateError {
    let line = e.line().unwrap_or(0);
    if let Some(refusal) = e.source().and_then(|s| s.downcast_ref::<functions::Refusal>()) {
        return TemplateError::Refused { line, message: refusal.0.clone() };
    }
    let message = match (e.kind(), e.detail()) {
        (ErrorKind::OutOfFuel, _) => format!("it takes more than {FUEL} steps"),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    TemplateError::Failed { line, message: message.replace('\n', " ") }
}
