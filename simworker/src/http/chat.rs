//! `/v1/chat/completions`.

use std::cell::RefCell;
use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use protocol::openai::{
    CHAT_COMPLETION, CHAT_COMPLETION_CHUNK, CallDelta, ChatChoice, ChatChunkChoice, ChatLogprobs,
    ChatMessage, Delta, ToolCall, UsageMember,
};
use protocol::tokenizer::{decode, reply_block};
use protocol::view::{Dialect, RequestView};
use serde::Serialize;

use super::body::WholeBody;
use super::failure::{Api, Failure};
use super::fields::{Fields, OneOrMany};
use super::json;
use super::logprobs::Logprobs;
use super::messages;
use super::oai_logprobs;
use super::openai::{self, Head, StreamOptions, Whole};
use super::request::{self, Asked, Order};
use super::sampling::{Sampling, Spelling};
use super::stream::{Frames, News, TokenStream, Voice, event};
use super::tools::{self, Call, Forced};
use crate::mailbox::Finish;
use crate::ticket::Ticket;
use crate::worker::Worker;

pub(super) async fn chat(
    State(worker): State<Arc<Worker>>,
    headers: HeaderMap,
    WholeBody(body): WholeBody,
) -> Response {
    Api::OpenAi.respond(answer(&worker, &headers, &body).await)
}

async fn answer(worker: &Arc<Worker>, headers: &HeaderMap, body: &[u8]) -> Result<Response, Failure> {
    let fields = openai::fields(headers, body)?;
    let options = StreamOptions::read(worker, &fields)?;
    let (order, shown) = read(worker, headers, &fields, body)?;
    let (stream, n) = (order.stream, order.n);
    let tickets = order.submit(worker).await?;
    let head = Head::new(worker, &fields, &tickets, n)?;
    if stream {
        let frames = ChatFrames { head, options, shown, ends: RefCell::default() };
        let stream = TokenStream::new(tickets, frames, worker.config.stream_interval);
        return Ok(stream.begin().await?.response());
    }
    let replies = openai::wait(tickets).await?;
    let ids: Vec<String> = replies.iter().map(|reply| tools::call_id(&reply.ticket.rid)).collect();
    let choices = (0..).zip(replies.iter().zip(&ids));
    let choices = choices.map(|(index, (reply, id))| shown.choice(index, reply, id)).collect();
    Ok(json(&head.whole(CHAT_COMPLETION, choices, &replies)))
}

fn read(
    worker: &Worker,
    headers: &HeaderMap,
    fields: &Fields<'_>,
    body: &[u8],
) -> Result<(Order, Shown), Failure> {
    if fields.is_empty_list("messages") {
        return Err(Failure::bad_request("Messages cannot be empty."));
    }
    messages::check(fields)?;
    let forced = Forced::read(fields)?;
    let model: Option<String> = fields.get("model")?;
    let asked = Asked {
        prompt: RequestView::read(Dialect::Chat, body).prompt,
        sampling: OneOrMany::One(Sampling::read(fields, Spelling::Chat)?),
        adapter: model.as_deref().and_then(|model| openai::adapter(worker, model)),
        routing_key: request::routing_key(headers),
    };
    let mut order = Order::read(&worker.config, headers, fields, asked)?;
    let call = forced.map(|forced| forced.call(reply_block(&order.prompts[0])));
    if let Some(call) = &call {
        let room = worker.config.engine.context_len.saturating_sub(order.prompts[0].len() as u32);
        call.force(order.wishes.iter_mut(), room);
    }
    let top: Option<i64> = fields.get("top_logprobs")?;
    let are_wanted: bool = fields.get_or_default("logprobs")?;
    let logprobs = Logprobs::of_openai(are_wanted.then_some(top.unwrap_or(0)), false, &order)?;
    logprobs.check(&order, worker.config.engine.context_len)?;
    Ok((order, Shown { call, logprobs }))
}

/// What the answer has beside the reply, or in its place.
#[derive(Debug)]
struct Shown {
    /// The tool that must be called, and how.
    call: Option<Call>,
    logprobs: Logprobs,
}

impl Shown {
    /// The choice at a place, which has `id` for the call of a tool. Only a whole call is one; what was cut is text.
    fn choice<'a>(&'a self, index: u32, reply: &'a Whole, id: &'a str) -> ChatChoice<'a> {
        let Whole { ticket, finish, text } = reply;
        let (word, matched) = openai::words(ticket, finish);
        let call = self.call.as_ref().filter(|_| is_whole_script(ticket, finish));
        let (content, finish_reason, matched_stop) = match call {
            Some(_) => ("", "tool_calls", None),
            None => (text.as_str(), word, matched),
        };
        let tool_calls = call.map(|call| [call.whole(id)]);
        ChatChoice {
            index,
            message: ChatMessage { role: "assistant", content, reasoning_content: None, tool_calls },
            logprobs: self.logprobs(index, ticket, 0, finish.output_tokens),
            finish_reason: Some(finish_reason),
            matched_stop,
        }
    }

    fn logprobs(&self, index: u32, ticket: &Ticket, from: u32, to: u32) -> Option<ChatLogprobs> {
        let all = self.logprobs.of(index as usize, ticket, from, to)?;
        Some(oai_logprobs::of_chat(all))
    }
}

/// Whether the reply is all of what it was forced to be.
fn is_whole_script(ticket: &Ticket, finish: &Finish) -> bool {
    ticket.matched(finish).is_some() && ticket.reply.is_script_of(finish.output_tokens)
}

/// Chunks of a chat answer: role, text or the call of a tool; and when all choices have ended, their finish reasons.
#[derive(Debug)]
struct ChatFrames {
    head: Head,
    options: StreamOptions,
    shown: Shown,
    /// The choices that have ended, in the order in which they did.
    ends: RefCell<Vec<(u32, Finish)>>,
}

impl ChatFrames {
    /// Absent unless asked for, and always in the chunk that only ends a choice.
    fn running_usage(&self, news: &News<'_>) -> Option<UsageMember> {
        let reply = (&news.voice.ticket, news.tokens, news.voice.figures.cached_tokens);
        let wanted = self.options.continuous_usage_stats;
        wanted.then(|| UsageMember::Full(self.head.usage([reply].into_iter())))
    }

    fn chunk<D: Serialize>(
        &self,
        choice: ChatChunkChoice<'_, D>,
        usage: Option<UsageMember>,
        out: &mut Vec<u8>,
    ) {
        event(out, &self.head.chunk(CHAT_COMPLETION_CHUNK, vec![choice], usage));
    }

    fn text(&self, news: &News<'_>, out: &mut Vec<u8>) {
        let Voice { ticket, index, sent, .. } = news.voice;
        let content = &ticket.reply.text(*sent, news.tokens);
        let logprobs = self.shown.logprobs(*index, ticket, *sent, news.tokens);
        let choice = ChatChunkChoice { logprobs, ..plain(*index, Delta::text(content)) };
        self.chunk(choice, self.running_usage(news), out);
    }

    fn call(&self, call: &Call, news: &News<'_>, out: &mut Vec<u8>) {
        let Voice { ticket, index, sent, .. } = news.voice;
        let bytes = |tokens| decode(&ticket.reply.ids(0, tokens)).len();
        let id = tools::call_id(&ticket.rid);
        for piece in call.news(&id, bytes(*sent), bytes(news.tokens)).into_iter().flatten() {
            // Written in another way than the other chunks: what is not there is `null`.
            let usage = self.running_usage(news).unwrap_or(UsageMember::Null);
            self.chunk(plain(*index, call_delta(piece)), Some(usage), out);
        }
    }

    fn end(&self, ticket: &Ticket, index: u32, finish: &Finish, out: &mut Vec<u8>) {
        let (word, matched_stop) = openai::words(ticket, finish);
        let is_call = self.shown.call.is_some() && is_whole_script(ticket, finish);
        let finish_reason = Some(if is_call { "tool_calls" } else { word });
        let choice = ChatChunkChoice { finish_reason, matched_stop, ..plain(index, Delta::default()) };
        self.chunk(choice, None, out);
    }
}

/// A choice with nothing but news.
fn plain<'a, D>(index: u32, delta: D) -> ChatChunkChoice<'a, D> {
    ChatChunkChoice { index, delta, logprobs: None, finish_reason: None, matched_stop: None }
}

fn call_delta(call: ToolCall<'_>) -> CallDelta<'_> {
    CallDelta { role: None, content: None, reasoning_content: None, tool_calls: [call] }
}

impl Frames for ChatFrames {
    fn news(&self, news: &News<'_>, out: &mut Vec<u8>) {
        if news.voice.sent == 0 {
            self.chunk(plain(news.voice.index, Delta::opening()), self.running_usage(news), out);
        }
        if news.tokens > news.voice.sent {
            match &self.shown.call {
                Some(call) => self.call(call, news, out),
                None => self.text(news, out),
            }
        }
        if let Some(finish) = news.finish {
            self.ends.borrow_mut().push((news.voice.index, finish.clone()));
        }
    }

    fn absorb(&self, _: &Voice, _: &Failure, _: &mut Vec<u8>) -> bool {
        false
    }

    fn failure(&self, failure: &Failure, out: &mut Vec<u8>) {
        openai::failure_chunk(failure, out);
    }

    fn tail(&self, voices: &[Voice], out: &mut Vec<u8>) {
        for (index, finish) in self.ends.borrow().iter() {
            self.end(&voices[*index as usize].ticket, *index, finish, out);
        }
        openai::last_chunks(&self.head, CHAT_COMPLETION_CHUNK, self.options, voices, UsageMember::Full, out);
    }
}
