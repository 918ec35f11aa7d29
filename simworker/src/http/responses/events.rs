//! The events of a response.

use std::cell::{Cell, RefCell};

use protocol::responses::{Message, OutputText, Response};
use serde_json::{Value, json};

use super::made::{self, Made};
use crate::http::failure::Failure;
use crate::http::json_text;
use crate::http::stream::{Frames, News, Voice};
use crate::http::write_json;
use crate::mailbox::Finish;
use crate::responses::{End, Running};
use crate::ticket::Ticket;

/// Events of a response.
#[derive(Debug)]
pub(super) struct ResponseFrames {
    made: Made,
    /// Its place in the store until it has ended, if it is stored.
    running: RefCell<Option<Running>>,
    /// The number of the next event.
    sequence: Cell<u64>,
}

impl ResponseFrames {
    /// Those of this response.
    pub(super) fn new(made: Made, running: Option<Running>) -> Self {
        Self { made, running: RefCell::new(running), sequence: Cell::new(0) }
    }

    fn has_ended(&self, end: impl FnOnce() -> End) {
        made::close(self.running.take(), end);
    }

    /// Writes an event with these members, which are told with its name and number.
    fn event(&self, out: &mut Vec<u8>, name: &str, mut members: Value) {
        let sequence = self.sequence.replace(self.sequence.get() + 1);
        members["type"] = name.into();
        members["sequence_number"] = sequence.into();
        out.extend_from_slice(format!("event: {name}\ndata: ").as_bytes());
        write_json(out, &members);
        out.extend_from_slice(b"\n\n");
    }

    /// An event that carries the whole response, whose members keep their order.
    fn life(&self, out: &mut Vec<u8>, name: &str, response: &Response<'_>) {
        #[derive(serde::Serialize)]
        struct Life<'a> {
            #[serde(rename = "type")]
            kind: &'a str,
            response: &'a Response<'a>,
            sequence_number: u64,
        }
        let sequence_number = self.sequence.replace(self.sequence.get() + 1);
        out.extend_from_slice(format!("event: {name}\ndata: ").as_bytes());
        write_json(out, &Life { kind: name, response, sequence_number });
        out.extend_from_slice(b"\n\n");
    }

    /// What comes before the engine has taken the request.
    pub(super) fn open(&self, out: &mut Vec<u8>) {
        for name in ["response.created", "response.in_progress"] {
            self.life(out, name, &self.made.response());
        }
    }

    fn begin(&self, out: &mut Vec<u8>) {
        let message = json!({"output_index": 0, "item": Message::new(&self.made.message_id, None)});
        self.event(out, "response.output_item.added", message);
        self.event(out, "response.content_part.added", self.part("part", json!(OutputText::new(""))));
    }

    fn end(&self, ticket: &Ticket, finish: &Finish, out: &mut Vec<u8>) {
        let text = ticket.reply.text(0, finish.output_tokens);
        if finish.output_tokens > 0 {
            let mut done = self.part("text", json!(text));
            done["logprobs"] = json!([]);
            self.event(out, "response.output_text.done", done);
            self.event(out, "response.content_part.done", self.part("part", json!(OutputText::new(&text))));
            let message =
                json!({"output_index": 0, "item": Message::new(&self.made.message_id, Some(&text))});
            self.event(out, "response.output_item.done", message);
        }
        let response = self.made.ended(ticket, finish, &text);
        self.life(out, &format!("response.{}", response.status.word()), &response);
        self.has_ended(|| made::end(&response, ticket, finish.output_tokens));
    }

    /// The members of an event about the only part of the message.
    fn part(&self, key: &str, value: Value) -> Value {
        json!({"item_id": self.made.message_id, "output_index": 0, "content_index": 0, key: value})
    }
}

impl Frames for ResponseFrames {
    fn news(&self, news: &News<'_>, out: &mut Vec<u8>) {
        let Voice { ticket, sent, .. } = news.voice;
        if *sent == 0 && news.tokens > 0 {
            self.begin(out);
        }
        let delta = ticket.reply.text(*sent, news.tokens);
        if !delta.is_empty() {
            let mut members = self.part("delta", json!(delta));
            members["logprobs"] = json!([]);
            self.event(out, "response.output_text.delta", members);
        }
        if let Some(finish) = news.finish {
            self.end(ticket, finish, out);
        }
    }

    fn absorb(&self, _: &Voice, failure: &Failure, out: &mut Vec<u8>) -> bool {
        self.failure(failure, out);
        true
    }

    fn failure(&self, failure: &Failure, out: &mut Vec<u8>) {
        let response = self.made.failed(&failure.message);
        self.life(out, "response.failed", &response);
        self.has_ended(|| End::Failed(json_text(&response).into()));
    }

    fn tail(&self, _: &[Voice], _: &mut Vec<u8>) {}

    fn last(&self) -> &'static [u8] {
        b""
    }
}
