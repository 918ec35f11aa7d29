//! `/v1/completions`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use protocol::openai::{CompletionChoice, TEXT_COMPLETION, Usage, UsageMember};
use protocol::view::{Dialect, RequestView};

use super::failure::{Api, Failure};
use super::fields::{Fields, OneOrMany};
use super::json;
use super::openai::{self, Head, StreamOptions, Whole};
use super::request::{Order, Wish};
use super::stream::{Frames, News, TokenStream, Voice, event};
use crate::ticket::Ticket;
use crate::worker::{Output, Worker};

/// `max_tokens` when it is not given.
const DEFAULT_OUTPUT: u32 = 16;

pub(super) async fn completions(
    State(worker): State<Arc<Worker>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    answer(&worker, &headers, &body).await.unwrap_or_else(|failure| failure.response(Api::OpenAi))
}

async fn answer(worker: &Arc<Worker>, headers: &HeaderMap, body: &[u8]) -> Result<Response, Failure> {
    openai::check_content_type(headers)?;
    let fields = Fields::parse(body)?;
    let max_tokens = fields.get("max_tokens")?.unwrap_or(DEFAULT_OUTPUT);
    if max_tokens == 0 {
        return Err(Failure::bad_request("max_tokens must be positive"));
    }
    let wish = Wish { output: Output::Tokens(max_tokens), ignore_eos: fields.get_or_default("ignore_eos")? };
    let n = fields.get("n")?.unwrap_or(1);
    let prompt = RequestView::read(Dialect::Completions, body).prompt;
    openai::check_prompt(&prompt)?;
    let order = Order::read(&worker.config, headers, &fields, prompt, OneOrMany::One(wish), n)?;
    let options = StreamOptions::read(&fields)?;
    let stream = order.stream;
    let tickets = order.submit(worker).await?;
    let head = Head::new(worker, &fields, &tickets, n)?;
    if stream {
        return streamed(worker, tickets, CompletionFrames { head, options }).await;
    }
    let replies = openai::wait(tickets).await?;
    let choices = (0..).zip(&replies).map(|(index, reply)| choice(index, reply)).collect();
    Ok(json(&head.whole(TEXT_COMPLETION, choices, openai::whole_usage(&head, &replies))))
}

async fn streamed(
    worker: &Worker,
    tickets: Vec<Ticket>,
    frames: CompletionFrames,
) -> Result<Response, Failure> {
    Ok(TokenStream::new(tickets, frames, worker.config.stream_interval).begin().await?.response())
}

fn choice(index: u32, reply: &Whole) -> CompletionChoice<'_> {
    let (word, matched_stop) = openai::words(&reply.ticket, &reply.finish);
    CompletionChoice { index, text: &reply.text, logprobs: None, finish_reason: Some(word), matched_stop }
}

/// Chunks of a completion.
#[derive(Debug)]
struct CompletionFrames {
    head: Head,
    options: StreamOptions,
}

impl CompletionFrames {
    /// Unlike the chat's, the running usage of completions has no details, and is `null` when not asked for.
    fn running_usage(&self, news: &News<'_>) -> UsageMember {
        if !self.options.continuous_usage_stats {
            return UsageMember::Null;
        }
        UsageMember::Full(Usage {
            prompt_tokens_details: None,
            ..self.head.usage([(&news.voice.ticket, news.tokens, 0)].into_iter())
        })
    }
}

impl Frames for CompletionFrames {
    fn news(&self, news: &News<'_>, out: &mut Vec<u8>) {
        let voice = news.voice;
        let end = news.finish.map(|finish| openai::words(&voice.ticket, finish));
        let choice = CompletionChoice {
            index: voice.index,
            text: &voice.ticket.reply.text(voice.sent, news.tokens),
            logprobs: None,
            finish_reason: end.map(|(word, _)| word),
            matched_stop: end.and_then(|(_, matched)| matched),
        };
        event(out, &self.head.chunk(TEXT_COMPLETION, vec![choice], Some(self.running_usage(news))));
    }

    fn absorb(&self, _: &Voice, _: &Failure, _: &mut Vec<u8>) -> bool {
        false
    }

    fn failure(&self, failure: &Failure, out: &mut Vec<u8>) {
        openai::failure_chunk(failure, out);
    }

    fn tail(&self, voices: &[Voice], out: &mut Vec<u8>) {
        let brief = |usage: Usage| UsageMember::Brief(usage.into());
        openai::usage_chunk(&self.head, TEXT_COMPLETION, self.options, voices, brief, out);
    }
}
