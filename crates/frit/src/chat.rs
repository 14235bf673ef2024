//! Conversations: messages in, a reply out, through the model's own chat template.

use std::fmt;
use std::str::FromStr;

use frit_formats::chat::{ChatTemplate, Turn};

use crate::error::{Error, Result};
use crate::generator::{Generator, Reply};
use crate::model::Model;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// Instructions for the whole conversation, at its start.
    System,
    /// The human.
    User,
    /// The model.
    Assistant,
}

const ROLES: [(Role, &str); 3] =
    [(Role::System, "system"), (Role::User, "user"), (Role::Assistant, "assistant")];

impl Role {
    /// As templates spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = Error;

    /// # Errors
    /// [`Error::Name`] for another name.
    fn from_str(name: &str) -> Result<Role> {
        let found = ROLES.iter().find(|(_, n)| *n == name);
        found.map(|(role, _)| *role).ok_or_else(|| {
            Error::name(format!("there is no role {name:?}; there are system, user and assistant"))
        })
    }
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What is said. Special tokens' texts in it are text to the model, never control.
    pub content: String,
}

impl Message {
    /// A message of a role.
    pub fn new(role: Role, content: impl Into<String>) -> Message {
        Message { role, content: content.into() }
    }

    /// Instructions for the whole conversation.
    pub fn system(content: impl Into<String>) -> Message {
        Message::new(Role::System, content)
    }

    /// What the human says.
    pub fn user(content: impl Into<String>) -> Message {
        Message::new(Role::User, content)
    }

    /// What the model said.
    pub fn assistant(content: impl Into<String>) -> Message {
        Message::new(Role::Assistant, content)
    }
}

impl Model {
    /// The conversation as the model's chat template writes it, up to where the assistant's answer begins.
    ///
    /// # Errors
    /// [`Error::WrongTask`] for a model without tokenizer or chat template, [`Error::Format`] for a template that fails,
    /// [`Error::Value`] for no messages, or messages that the template refuses.
    pub fn chat_text(&self, messages: &[Message]) -> Result<String> {
        Ok(self.template()?.render(&turns(messages)?, true)?)
    }

    /// The tokens of [`Model::chat_text`]: what the template writes is control, what stands in the messages is text.
    ///
    /// # Errors
    /// As [`Model::chat_text`].
    pub fn chat_tokens(&self, messages: &[Message]) -> Result<Vec<u32>> {
        Ok(self.template()?.encode(&turns(messages)?, true)?)
    }

    /// The compiled template; compiled at the first use, since a model whose template is broken can still continue texts.
    fn template(&self) -> Result<&ChatTemplate> {
        let cell = self.chat();
        if let Some(template) = cell.get() {
            return Ok(template);
        }
        let tokenizer = self.tokenizer()?;
        let source = tokenizer.chat_template().ok_or_else(|| Error::WrongTask {
            message: format!("{} has no chat template; it can `complete` texts", self.name()),
        })?;
        let template = ChatTemplate::new(source, tokenizer)?;
        Ok(cell.get_or_init(|| template))
    }
}

fn turns(messages: &[Message]) -> Result<Vec<Turn<'_>>> {
    if messages.is_empty() {
        return Err(Error::value("there are no messages; a reply needs at least one"));
    }
    Ok(messages.iter().map(|m| Turn { role: m.role.as_str(), content: &m.content }).collect())
}

impl Generator {
    /// Answers a conversation. What the context already holds of it is not run again, so a conversation that grows by a
    /// message costs that message, and one that was changed costs what stands behind the change.
    ///
    /// # Errors
    /// As [`Model::chat_text`]; [`Error::ContextFull`] for a conversation that does not fit.
    pub fn chat(&mut self, messages: &[Message]) -> Result<Reply<'_>> {
        let tokens = self.model().chat_tokens(messages)?;
        // The last token has to be run in any case: its logits choose the first token of the reply.
        let most = tokens.len().saturating_sub(1);
        let same = tokens[..most].iter().zip(self.history()).take_while(|(a, b)| a == b).count();
        if same < self.len() && self.truncate(same).is_err() {
            // A sliding window no longer holds what stood before the change.
            self.clear();
        }
        let rest = &tokens[self.len()..];
        self.append(rest)
    }
}
