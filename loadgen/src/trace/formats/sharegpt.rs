//! ShareGPT's conversations: a JSON array (or one object after the other) of `conversations`, lists of messages with `from`
//! and `value`; `conversation`, `role` and `content`, as LMSYS-Chat and WildChat have them, are read too. Every reply is a
//! request whose prompt is all that was said before it, so the turns of a conversation are a session. There are no times.
//!
//! The text is cut into tokens as the mock workers do it, becomes the names of blocks, and is forgotten.

use std::collections::VecDeque;

use protocol::{chat, tokenizer};
use serde::Deserialize;

use crate::trace::Row;
use crate::trace::blocks::{TEXT_BLOCK_TOKENS, of_text};
use crate::trace::error::{Fault, Mistake, bad};
use crate::trace::fields;
use crate::trace::rows::{Place, Reader};
use crate::trace::source::{Objects, Source};

/// Reads ShareGPT's conversations.
pub(super) struct ShareGpt {
    objects: Objects,
    /// What is left of the conversation that was read last.
    rows: VecDeque<Row>,
    /// How many conversations were read.
    read: u64,
    without_reply: u64,
}

#[derive(Deserialize)]
struct Conversation {
    #[serde(alias = "conversation")]
    conversations: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    #[serde(alias = "role")]
    from: String,
    #[serde(alias = "content")]
    value: String,
}

impl ShareGpt {
    pub(super) fn new(source: Source) -> Self {
        Self { objects: Objects::new(source), rows: VecDeque::new(), read: 0, without_reply: 0 }
    }
}

impl Reader for ShareGpt {
    fn next(&mut self, place: &Place) -> Result<Option<Row>, Fault> {
        while self.rows.is_empty() {
            let Some((line, text)) = self.objects.next()? else { return Ok(None) };
            let session = self.read;
            self.read += 1;
            self.rows = rows(text, session).map_err(bad(line))?;
            self.without_reply += u64::from(self.rows.is_empty());
        }
        let row = self.rows.pop_front();
        // The turns of a conversation stand one after the other.
        Ok(row.map(|row| Row { parent: row.parent.map(|_| place.seq.saturating_sub(1)), ..row }))
    }

    fn block_tokens(&self) -> u32 {
        TEXT_BLOCK_TOKENS
    }

    fn timed(&self) -> bool {
        false
    }

    fn left_out(&self) -> u64 {
        self.without_reply
    }
}

/// A row for every reply that has something before it.
fn rows(text: &[u8], session: u64) -> Result<VecDeque<Row>, Mistake> {
    let Conversation { conversations: messages } = fields::object(text)?;
    let mut said: Vec<(&str, &str)> = Vec::with_capacity(messages.len());
    let mut rows = VecDeque::new();
    for message in &messages {
        let role = role(&message.from)?;
        if role == "assistant" && !said.is_empty() {
            let tokens = tokenizer::encode(&chat::render(said.iter().copied()));
            let reply = i64::try_from(tokenizer::count(&message.value)).unwrap_or(i64::MAX);
            rows.push_back(Row {
                input_tokens: fields::counted("the length of the prompt", tokens.len())?,
                output_tokens: fields::output("the length of the reply", reply)?,
                blocks: of_text(&tokens),
                session: Some(session),
                parent: (!rows.is_empty()).then_some(0),
                ..Row::default()
            });
        }
        said.push((role, &message.value));
    }
    Ok(rows)
}

/// The role in the chat template of who is called `from`.
fn role(from: &str) -> Result<&'static str, Mistake> {
    match from {
        "human" | "user" => Ok("user"),
        "gpt" | "chatgpt" | "assistant" | "bing" | "bard" | "model" => Ok("assistant"),
        "system" => Ok("system"),
        "tool" | "function" | "observation" | "function_response" => Ok("tool"),
        other => {
            let problem = format!("\"{}\" is not known to take part", crate::trace::stamp::shortened(other));
            Err((problem, "messages are from human, gpt, system or tool"))
        }
    }
}
