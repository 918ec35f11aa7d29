//! `/v1/chat/completions`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use protocol::openai::{
    CHAT_COMPLETION, CHAT_COMPLETION_CHUNK, ChatChoice, ChatChunkChoice, ChatMessage, Delta, UsageMember,
};
use protocol::view::{Dialect, RequestView};

use super::failure::{Api, Failure};
use super::fields::{Fields, OneOrMany};
use super::json;
use super::openai::{self, Head, StreamOptions, Whole};
use super::request::{Order, Wish};
use super::stream::{Frames, News, TokenStream, Voice, event};
use crate::worker::{Output, Worker};

pub(super) async fn chat(State(worker): State<Arc<Worker>>, headers: HeaderMap, body: Bytes) -> Response {
    answer(&worker, &headers, &body).await.unwrap_or_else(|failure| failure.response(Api::OpenAi))
}

async fn answer(worker: &Arc<Worker>, headers: &HeaderMap, body: &[u8]) -> Result<Response, Failure> {
    openai::check_content_type(headers)?;
    let fields = Fields::parse(body)?;
    let n = fields.get("n")?.unwrap_or(1);
    let prompt = RequestView::read(Dialect::Chat, body).prompt;
    openai::check_prompt(&prompt)?;
    let order = Order::read(&worker.config, headers, &fields, prompt, OneOrMany::One(wish(&fields)?), n)?;
    let options = StreamOptions::read(&fields)?;
    let stream = order.stream;
    let tickets = order.submit(worker).await?;
    let head = Head::new(worker, &fields, &tickets, n)?;
    if stream {
        let frames = ChatFrames { head, options };
        let stream = TokenStream::new(tickets, frames, worker.config.stream_interval);
        return Ok(stream.begin().await?.response());
    }
    let replies = openai::wait(tickets).await?;
    let choices = (0..).zip(&replies).map(|(index, reply)| choice(index, reply)).collect();
    Ok(json(&head.whole(CHAT_COMPLETION, choices, openai::whole_usage(&head, &replies))))
}

fn wish(fields: &Fields<'_>) -> Result<Wish, Failure> {
    let (newer, older) = (fields.get("max_completion_tokens")?, fields.get("max_tokens")?);
    let output = match newer.or(older) {
        Some(0) => return Err(Failure::bad_request("max_completion_tokens must be positive")),
        Some(tokens) => Output::Tokens(tokens),
        None => Output::Open,
    };
    Ok(Wish { output, ignore_eos: fields.get_or_default("ignore_eos")? })
}

fn choice(index: u32, reply: &Whole) -> ChatChoice<'_> {
    let (word, matched_stop) = openai::words(&reply.ticket, &reply.finish);
    let message = ChatMessage { role: "assistant", content: &reply.text, reasoning_content: None };
    ChatChoice { index, message, logprobs: None, finish_reason: Some(word), matched_stop }
}

/// Chunks of a chat answer: role, text, finish reason.
#[derive(Debug)]
struct ChatFrames {
    head: Head,
    options: StreamOptions,
}

impl ChatFrames {
    /// Absent unless asked for, and always in the chunk that only ends a choice.
    fn running_usage(&self, news: &News<'_>, is_end: bool) -> Option<UsageMember> {
        let reply = (&news.voice.ticket, news.tokens, news.voice.figures.cached_tokens);
        let wanted = self.options.continuous_usage_stats && !is_end;
        wanted.then(|| UsageMember::Full(self.head.usage([reply].into_iter())))
    }

    fn chunk(
        &self,
        news: &News<'_>,
        delta: Delta<'_>,
        end: Option<(&'static str, Option<u32>)>,
        out: &mut Vec<u8>,
    ) {
        let choice = ChatChunkChoice {
            index: news.voice.index,
            delta,
            logprobs: None,
            finish_reason: end.map(|(word, _)| word),
            matched_stop: end.and_then(|(_, matched)| matched),
        };
        let usage = self.running_usage(news, end.is_some());
        event(out, &self.head.chunk(CHAT_COMPLETION_CHUNK, vec![choice], usage));
    }
}

impl Frames for ChatFrames {
    fn news(&self, news: &News<'_>, out: &mut Vec<u8>) {
        let voice = news.voice;
        if voice.sent == 0 {
            self.chunk(news, Delta::opening(), None, out);
        }
        if news.tokens > voice.sent {
            let content = &voice.ticket.reply.text(voice.sent, news.tokens);
            self.chunk(news, Delta::text(content), None, out);
        }
        if let Some(finish) = news.finish {
            self.chunk(news, Delta::default(), Some(openai::words(&voice.ticket, finish)), out);
        }
    }

    fn absorb(&self, _: &Voice, _: &Failure, _: &mut Vec<u8>) -> bool {
        false
    }

    fn failure(&self, failure: &Failure, out: &mut Vec<u8>) {
        openai::failure_chunk(failure, out);
    }

    fn tail(&self, voices: &[Voice], out: &mut Vec<u8>) {
        openai::usage_chunk(&self.head, CHAT_COMPLETION_CHUNK, self.options, voices, UsageMember::Full, out);
    }
}
