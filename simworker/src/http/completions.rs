//! `/v1/completions`.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use protocol::openai::{CompletionChoice, CompletionLogprobs, TEXT_COMPLETION, Usage, UsageMember};
use protocol::tokenizer::decode;
use protocol::view::{Dialect, Prompt, RequestView};

use super::body::WholeBody;
use super::failure::{Api, Failure};
use super::fields::{Fields, OneOrMany};
use super::json;
use super::logprobs::Logprobs;
use super::oai_logprobs;
use super::openai::{self, Head, StreamOptions, Whole};
use super::request::{self, Asked, Order};
use super::sampling::{Sampling, Spelling};
use super::stream::{Frames, News, TokenStream, Voice, event};
use crate::ticket::Ticket;
use crate::worker::Worker;

pub(super) async fn completions(
    State(worker): State<Arc<Worker>>,
    headers: HeaderMap,
    WholeBody(body): WholeBody,
) -> Response {
    Api::OpenAi.respond(answer(&worker, &headers, &body).await)
}

async fn answer(worker: &Arc<Worker>, headers: &HeaderMap, body: &[u8]) -> Result<Response, Failure> {
    let fields = openai::fields(headers, body)?;
    let options = StreamOptions::read(worker, &fields)?;
    let (mut order, shown) = read(worker, headers, &fields, body)?;
    order.match_limits = shown.logprobs.match_limits();
    let (stream, n) = (order.stream, order.n);
    let tickets = order.submit(worker).await?;
    let head = Head::new(worker, &fields, &tickets, n)?;
    if stream {
        let frames = CompletionFrames { head, options, shown };
        let stream = TokenStream::new(tickets, frames, worker.config.stream_interval);
        return Ok(stream.begin().await?.response());
    }
    let replies = openai::wait(tickets).await?;
    let texts: Vec<Cow<'_, str>> =
        replies.iter().map(|reply| shown.text(&reply.ticket, true, &reply.text)).collect();
    let choices = (0..).zip(replies.iter().zip(&texts));
    let choices = choices.map(|(index, (reply, text))| choice(index, reply, text, &shown)).collect();
    Ok(json(&head.whole(TEXT_COMPLETION, choices, &replies)))
}

fn read(
    worker: &Worker,
    headers: &HeaderMap,
    fields: &Fields<'_>,
    body: &[u8],
) -> Result<(Order, Shown), Failure> {
    let sampling = Sampling::read(fields, Spelling::Completions)?;
    let prompt = RequestView::read(Dialect::Completions, body).prompt;
    check_prompt(fields, &prompt)?;
    let model: Option<String> = fields.get("model")?;
    let asked = Asked {
        prompt,
        sampling: OneOrMany::One(sampling),
        adapter: model.as_deref().and_then(|model| openai::adapter(worker, model)),
        routing_key: request::routing_key(headers),
    };
    let order = Order::read(&worker.config, headers, fields, asked)?;
    let echo = fields.get_or_default("echo")?;
    let logprobs = Logprobs::of_openai(fields.get("logprobs")?, echo, &order)?;
    logprobs.check(&order, worker.config.engine.context_len)?;
    Ok((order, Shown { echo, logprobs }))
}

/// Prompts without any text are refused.
fn check_prompt(fields: &Fields<'_>, prompt: &Prompt<'_>) -> Result<(), Failure> {
    let is_empty = match prompt {
        Prompt::Text(text) => text.is_empty(),
        Prompt::Texts(texts) => texts.iter().all(|text| text.is_empty()),
        Prompt::Tokens(ids) => ids.is_empty(),
        Prompt::TokenLists(lists) => lists.iter().all(Vec::is_empty),
        Prompt::Unreadable => fields.is_empty_list("prompt"),
    };
    if is_empty { Err(Failure::bad_request("Prompt cannot be empty")) } else { Ok(()) }
}

/// What the answer has beside the reply.
#[derive(Debug)]
struct Shown {
    /// The prompt comes before the reply.
    echo: bool,
    logprobs: Logprobs,
}

impl Shown {
    fn text<'a>(&self, ticket: &Ticket, is_first: bool, text: &'a str) -> Cow<'a, str> {
        if self.echo && is_first { (decode(&ticket.prompt) + text).into() } else { text.into() }
    }

    /// Those of the tokens `from..to` of the reply at a place; the first have those of the prompt before them.
    fn logprobs(&self, index: u32, ticket: &Ticket, from: u32, to: u32) -> Option<CompletionLogprobs> {
        let mut all = self.logprobs.of(index as usize, ticket, from, to)?;
        if from > 0 {
            all.input_token_logprobs.clear();
            all.input_top_logprobs = None;
        }
        Some(oai_logprobs::of_completion(all))
    }
}

fn choice<'a>(index: u32, reply: &'a Whole, text: &'a str, shown: &Shown) -> CompletionChoice<'a> {
    let (word, matched_stop) = openai::words(&reply.ticket, &reply.finish);
    let logprobs = shown.logprobs(index, &reply.ticket, 0, reply.finish.output_tokens);
    CompletionChoice { index, text, logprobs, finish_reason: Some(word), matched_stop }
}

/// Chunks of a completion.
#[derive(Debug)]
struct CompletionFrames {
    head: Head,
    options: StreamOptions,
    shown: Shown,
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
        let Voice { ticket, index, sent, .. } = news.voice;
        let end = news.finish.map(|finish| openai::words(ticket, finish));
        let is_new = news.tokens > *sent;
        let text = ticket.reply.text(*sent, news.tokens);
        let choice = CompletionChoice {
            index: *index,
            text: &self.shown.text(ticket, *sent == 0, &text),
            logprobs: is_new.then(|| self.shown.logprobs(*index, ticket, *sent, news.tokens)).flatten(),
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
        openai::last_chunks(&self.head, TEXT_COMPLETION, self.options, voices, brief, out);
    }
}
