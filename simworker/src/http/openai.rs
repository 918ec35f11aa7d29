//! What the two OpenAI routes have in common.

use std::sync::Arc;

use axum::http::HeaderMap;
use hyper::header::CONTENT_TYPE;
use protocol::openai::{Answer, ErrorBody, Metadata, PromptTokensDetails, SglExt, Usage, UsageMember};
use protocol::sglang::{CachedTokensDetails, Matched};
use serde::Serialize;
use simworker_core::FinishReason;

use super::failure::Failure;
use super::fields::{Fields, OneOrMany};
use super::info;
use super::stream::{Voice, event, outcome};
use crate::clock::unix_seconds;
use crate::mailbox::{Ending, Finish};
use crate::ticket::Ticket;
use crate::worker::Worker;

/// The routes below `/v1` insist on their content type.
pub(super) fn check_content_type(headers: &HeaderMap) -> Result<(), Failure> {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = given.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Failure::schema("Unsupported Media Type: Only 'application/json' is allowed"))
}

/// The members of a body on such a route.
pub(super) fn fields<'a>(headers: &HeaderMap, body: &'a [u8]) -> Result<Fields<'a>, Failure> {
    check_content_type(headers)?;
    Fields::parse(body)
}

/// The adapter that a model's name asks for: what comes after a colon, unless the colon is part of the served name.
pub(super) fn adapter<'a>(worker: &Worker, model: &'a str) -> Option<&'a str> {
    let served = worker.config.served_model_name.as_str();
    if model == served {
        return None;
    }
    let after_served = model.strip_prefix(served).and_then(|rest| rest.strip_prefix(':'));
    let adapter = after_served.or_else(|| model.split_once(':').map(|(_, adapter)| adapter))?.trim();
    (!adapter.is_empty()).then_some(adapter)
}

/// What is the same in every answer and chunk of a request.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) id: String,
    pub(super) model: String,
    created: u64,
    /// Answers to each prompt.
    n: usize,
    cache_report: bool,
    /// `return_cached_tokens_details`.
    with_details: bool,
}

impl Head {
    /// Reads the model; the id is that of the first request.
    pub(super) fn new(
        worker: &Arc<Worker>,
        fields: &Fields<'_>,
        tickets: &[Ticket],
        n: u32,
    ) -> Result<Self, Failure> {
        let id = tickets.first().map_or_else(|| worker.fresh_rid(), |ticket| ticket.rid.clone());
        let model = fields.get("model")?;
        Ok(Self {
            id,
            model: model.unwrap_or_else(|| worker.config.served_model_name.clone()),
            created: unix_seconds() as u64,
            n: n as usize,
            cache_report: worker.config.enable_cache_report,
            with_details: fields.get_or_default("return_cached_tokens_details")?,
        })
    }

    /// A chunk of a stream.
    pub(super) fn chunk<C>(
        &self,
        object: &'static str,
        choices: Vec<C>,
        usage: Option<UsageMember>,
    ) -> Answer<'_, C> {
        Answer {
            id: &self.id,
            object,
            created: self.created,
            model: &self.model,
            choices,
            usage,
            metadata: None,
            sglext: None,
        }
    }

    /// What SGLang tells beyond OpenAI's members, if it was asked for: of the first reply, which has so many cached tokens,
    /// and so many of them from the host.
    fn extension(&self, cached: Option<(u32, u32)>) -> Option<SglExt> {
        let (all, host) = cached.filter(|_| self.with_details)?;
        Some(SglExt { cached_tokens_details: CachedTokensDetails { device: all - host, host } })
    }

    /// A whole answer.
    pub(super) fn whole<C>(&self, object: &'static str, choices: Vec<C>, replies: &[Whole]) -> Answer<'_, C> {
        let metadata = Some(Metadata { weight_version: info::WEIGHT_VERSION });
        let first = replies.first().map(|reply| &reply.finish);
        let sglext = self.extension(first.map(|finish| (finish.cached_tokens, finish.host_tokens)));
        let usage = UsageMember::Full(whole_usage(self, replies));
        Answer { metadata, sglext, ..self.chunk(object, choices, Some(usage)) }
    }

    /// The usage of all replies: pairs of a ticket, its output tokens and its cached tokens, answers to one prompt
    /// side by side. A prompt counts once, however many answers it has.
    pub(super) fn usage<'a>(&self, replies: impl Iterator<Item = (&'a Ticket, u32, u32)>) -> Usage {
        let (mut prompt_tokens, mut completion_tokens, mut cached_tokens) = (0, 0, 0);
        for (index, (ticket, output, cached)) in replies.enumerate() {
            if index % self.n == 0 {
                prompt_tokens += ticket.prompt_tokens;
                cached_tokens += cached;
            }
            completion_tokens += output;
        }
        Usage {
            prompt_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            completion_tokens,
            prompt_tokens_details: self.cache_report.then_some(PromptTokensDetails { cached_tokens }),
            reasoning_tokens: 0,
            completion_tokens_details: None,
        }
    }
}

/// `stream_options`, and what follows from them.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamOptions {
    pub(super) include_usage: bool,
    pub(super) continuous_usage_stats: bool,
}

impl StreamOptions {
    /// Reads the options of a body.
    pub(super) fn read(worker: &Worker, fields: &Fields<'_>) -> Result<Self, Failure> {
        let by_default = worker.config.wire.stream_include_usage;
        match fields.objects("stream_options")? {
            None => Ok(Self { include_usage: by_default, continuous_usage_stats: false }),
            Some(OneOrMany::Many(_)) => Err(Failure::bad_request("stream_options: an object is needed.")),
            Some(OneOrMany::One(options)) => Ok(Self {
                include_usage: options.get_or_default::<bool>("include_usage")? || by_default,
                continuous_usage_stats: options.get_or_default("continuous_usage_stats")?,
            }),
        }
    }
}

/// Writes the chunks without choices: one with the extension and one with the usage of all replies, if they were asked
/// for; `form` is how the route writes the usage.
pub(super) fn last_chunks(
    head: &Head,
    object: &'static str,
    options: StreamOptions,
    voices: &[Voice],
    form: impl FnOnce(Usage) -> UsageMember,
    out: &mut Vec<u8>,
) {
    let first = voices.first().map(|voice| &voice.figures);
    let sglext = head.extension(first.map(|figures| (figures.cached_tokens, figures.host_tokens)));
    if sglext.is_some() {
        let chunk = head.chunk(object, Vec::<()>::new(), Some(UsageMember::Null));
        event(out, &Answer { sglext, ..chunk });
    }
    if options.include_usage {
        let replies = voices.iter().map(|voice| (&voice.ticket, voice.sent, voice.figures.cached_tokens));
        event(out, &head.chunk(object, Vec::<()>::new(), Some(form(head.usage(replies)))));
    }
}

/// Writes a failure as a frame of a stream.
pub(super) fn failure_chunk(failure: &Failure, out: &mut Vec<u8>) {
    #[derive(Serialize)]
    struct Framed<'a> {
        error: ErrorBody<'a>,
    }
    failure.with_frame_body(|error| event(out, &Framed { error }));
}

/// The words for an end: `finish_reason` and `matched_stop`.
pub(super) fn words<'a>(ticket: &'a Ticket, finish: &Finish) -> (&'static str, Option<Matched<'a>>) {
    if let Some(matched) = ticket.matched(finish) {
        return ("stop", Some(matched.told()));
    }
    match finish.reason {
        FinishReason::Length | FinishReason::Stop => ("length", None),
        FinishReason::Abort { .. } | FinishReason::Error { .. } => ("abort", None),
    }
}

/// One reply that is complete.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) ticket: Ticket,
    pub(super) finish: Finish,
    pub(super) text: String,
}

/// Waits for all replies.
pub(super) async fn wait(tickets: Vec<Ticket>) -> Result<Vec<Whole>, Failure> {
    let mut replies = Vec::with_capacity(tickets.len());
    for mut ticket in tickets {
        let (progress, ending): (_, Ending) = ticket.end().await;
        let finish = outcome(&ending)?.clone();
        let text = ticket.reply.text(0, progress.tokens);
        replies.push(Whole { ticket, finish, text });
    }
    Ok(replies)
}

/// The usage of complete replies.
pub(super) fn whole_usage(head: &Head, replies: &[Whole]) -> Usage {
    head.usage(
        replies.iter().map(|reply| (&reply.ticket, reply.finish.output_tokens, reply.finish.cached_tokens)),
    )
}
