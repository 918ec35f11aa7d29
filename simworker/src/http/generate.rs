//! `/generate`, SGLang's own route: whole answers, cumulative streams and incremental ones.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use protocol::sglang::{
    CachedTokensDetails, FinishReason, Generated, MetaInfo, StreamError, StreamErrorMessage,
};
use protocol::view::{Dialect, RequestView};
use simworker_core::{EngineRole, FinishReason as EngineReason};

use super::body::WholeBody;
use super::failure::{Api, Failure, Origin};
use super::fields::Fields;
use super::logprobs::Logprobs;
use super::request::{Asked, Order};
use super::sampling::Sampling;
use super::stream::{Frames, News, TokenStream, Voice, event, outcome};
use super::{info, json, stream, times};
use crate::clock::unix_seconds;
use crate::config::WorkerConfig;
use crate::mailbox::{Figures, Finish};
use crate::ticket::Ticket;
use crate::worker::Worker;

/// What some fields ask for, and how SGLang refuses it unless it is started to allow it.
const REFUSED: [(&str, &str); 3] = [
    (
        "input_embeds",
        "input_embeds is provided while disable_radix_cache is False. Please add `--disable-radix-cache` when you \
         launch the server if you want to use input_embeds as inputs.",
    ),
    (
        "return_hidden_states",
        "The server is not configured to return hidden states. Please set `--return-hidden-states-mode last`, \
         `--return-hidden-states-mode full`, or the legacy `--enable-return-hidden-states` flag.",
    ),
    (
        "custom_logit_processor",
        "The server is not configured to enable custom logit processor. Please set \
         `--enable-custom-logit-processor` to enable this feature.",
    ),
];

pub(super) async fn generate(
    State(worker): State<Arc<Worker>>,
    headers: HeaderMap,
    WholeBody(body): WholeBody,
) -> Response {
    let fields = Fields::parse(&body);
    let read = fields.and_then(|fields| Ok((fields.get_or_default::<bool>("stream")?, fields)));
    let (is_stream, fields) = match read {
        Ok(read) => read,
        Err(failure) => return failure.response(Api::Native),
    };
    match answer(&worker, &headers, &fields, &body).await {
        Ok(response) => response,
        // The stream has begun before the front end looks at what is in the fields.
        Err(failure) if is_stream && failure.origin == Origin::FrontEnd => {
            stream::failed(|out| failure_frame(&failure, out))
        }
        Err(failure) => failure.response(Api::Native),
    }
}

async fn answer(
    worker: &Arc<Worker>,
    headers: &HeaderMap,
    fields: &Fields<'_>,
    body: &[u8],
) -> Result<Response, Failure> {
    let mut order = read(&worker.config, headers, fields, body)?;
    let logprobs = Logprobs::read(fields, order.prompts.len(), order.n)?;
    logprobs.check(&order, worker.config.engine.context_len)?;
    order.match_limits = logprobs.match_limits();
    order.is_counted = fields.get("log_metrics")?.unwrap_or(true);
    let shown = Shown { with_prompt: fields.get_or_default("return_prompt_token_ids")?, logprobs };
    let (stream, is_batch) = (order.stream, order.is_batch || order.n > 1);
    let tickets = order.submit(worker).await?;
    if stream {
        let incremental = worker.config.incremental_streaming_output;
        let frames = GenerateFrames { is_batch, incremental, shown };
        return Ok(TokenStream::new(tickets, frames, worker.config.stream_interval).response());
    }
    whole(tickets, is_batch, &shown).await
}

/// What the answer has beside the reply.
#[derive(Debug)]
struct Shown {
    logprobs: Logprobs,
    with_prompt: bool,
}

impl Shown {
    fn prompt<'a>(&self, ticket: &'a Ticket) -> Option<&'a [u32]> {
        self.with_prompt.then_some(&ticket.prompt[..])
    }
}

fn read(
    config: &WorkerConfig,
    headers: &HeaderMap,
    fields: &Fields<'_>,
    body: &[u8],
) -> Result<Order, Failure> {
    check_fields(fields)?;
    let asked = Asked {
        prompt: RequestView::read(Dialect::Generate, body).prompt,
        sampling: Sampling::read_native(fields)?,
        adapter: None,
        routing_key: fields.get("routing_key")?,
    };
    Order::read(config, headers, fields, asked)
}

/// There is one prompt or batch of prompts, and nothing is asked for that there is not.
fn check_fields(fields: &Fields<'_>) -> Result<(), Failure> {
    let prompts = ["text", "input_ids", "input_embeds"];
    if prompts.into_iter().filter(|key| fields.has(key)).count() != 1 {
        return Err(Failure::bad_request("Either text, input_ids or input_embeds should be provided."));
    }
    if fields.is_empty_list("input_ids") {
        return Err(Failure::bad_request("input_ids cannot be empty."));
    }
    match REFUSED.into_iter().find(|(key, _)| fields.has(key) && !fields.is_false(key)) {
        Some((_, message)) => Err(Failure::bad_request(message)),
        None => Ok(()),
    }
}

async fn whole(tickets: Vec<Ticket>, is_batch: bool, shown: &Shown) -> Result<Response, Failure> {
    let mut texts = Vec::with_capacity(tickets.len());
    for mut ticket in tickets {
        let (progress, ending) = ticket.end().await;
        let finish = outcome(&ending)?.clone();
        let ids = ticket.reply.ids(0, progress.tokens);
        let text = ticket.reply.text(0, progress.tokens);
        texts.push((ticket, progress.figures, finish, ids, text));
    }
    let answers: Vec<Generated<'_>> = texts
        .iter()
        .enumerate()
        .map(|(index, (ticket, figures, finish, ids, text))| Generated {
            text,
            output_ids: ids,
            meta_info: MetaInfo {
                logprobs: shown.logprobs.of(index, ticket, 0, finish.output_tokens),
                ..meta_info(ticket, finish.output_tokens, *figures, Some(finish))
            },
            prompt_token_ids: shown.prompt(ticket),
            index: None,
        })
        .collect();
    Ok(match answers.as_slice() {
        [one] if !is_batch => json(one),
        all => json(&all),
    })
}

fn meta_info<'a>(
    ticket: &'a Ticket,
    tokens: u32,
    figures: Figures,
    finish: Option<&'a Finish>,
) -> MetaInfo<'a> {
    let Figures { cached_tokens, host_tokens, retractions, e2e_ns, dp_rank, .. } = figures;
    MetaInfo {
        id: &ticket.rid,
        finish_reason: finish.map(|finish| reason(ticket, finish)),
        prompt_tokens: ticket.prompt_tokens,
        weight_version: info::WEIGHT_VERSION,
        num_retractions: retractions,
        scheduled: times::scheduled(ticket, &figures),
        reasoning_tokens: 0,
        completion_tokens: tokens,
        cached_tokens,
        cached_tokens_details: CachedTokensDetails { device: cached_tokens - host_tokens, host: host_tokens },
        dp_rank,
        logprobs: None,
        e2e_latency: e2e_ns.map(|ns| ns as f64 / 1e9),
        served: times::served(ticket, &figures, tokens),
        response_sent_to_client_ts: unix_seconds(),
    }
}

fn reason<'a>(ticket: &'a Ticket, finish: &Finish) -> FinishReason<'a> {
    if let Some(matched) = ticket.matched(finish) {
        return FinishReason::Stop { matched: matched.told() };
    }
    match finish.reason {
        // A prefill worker makes the first token for another one, and no reply of its own.
        EngineReason::Length | EngineReason::Stop
            if ticket.worker.config.engine.role == EngineRole::Prefill =>
        {
            FinishReason::Length { length: 0 }
        }
        EngineReason::Length | EngineReason::Stop => FinishReason::Length { length: finish.output_tokens },
        EngineReason::Abort { message } => FinishReason::Abort { message, status_code: None, err_type: None },
        EngineReason::Error { status, message } => {
            FinishReason::Abort { message, status_code: Some(status), err_type: None }
        }
    }
}

/// Frames of `/generate`.
#[derive(Debug)]
struct GenerateFrames {
    is_batch: bool,
    incremental: bool,
    shown: Shown,
}

impl GenerateFrames {
    fn index(&self, voice: &Voice) -> Option<u32> {
        self.is_batch.then_some(voice.index)
    }
}

impl Frames for GenerateFrames {
    /// But for what is seldom asked for.
    fn say_it_all(&self) -> bool {
        !self.incremental && !self.shown.with_prompt && !self.shown.logprobs.are_wanted()
    }

    fn news(&self, news: &News<'_>, out: &mut Vec<u8>) {
        let (voice, ticket) = (news.voice, &news.voice.ticket);
        if self.say_it_all() && !ticket.reply.is_cut_at(news.tokens) {
            let meta_info = meta_info(ticket, news.tokens, voice.figures, news.finish);
            voice.said.event(&meta_info, self.index(voice), out);
            return;
        }
        let from = if self.incremental { voice.sent } else { 0 };
        let ids = ticket.reply.ids(from, news.tokens);
        event(
            out,
            &Generated {
                text: &ticket.reply.text(from, news.tokens),
                output_ids: &ids,
                meta_info: MetaInfo {
                    logprobs: self.shown.logprobs.of(voice.index as usize, ticket, from, news.tokens),
                    ..meta_info(ticket, news.tokens, voice.figures, news.finish)
                },
                prompt_token_ids: self.shown.prompt(ticket),
                index: self.index(voice),
            },
        );
    }

    /// What the scheduler gives up on ends in an ordinary last frame.
    fn absorb(&self, voice: &Voice, failure: &Failure, out: &mut Vec<u8>) -> bool {
        if !failure.is_by_scheduler() {
            return false;
        }
        let mut meta_info = meta_info(&voice.ticket, voice.sent, voice.figures, None);
        meta_info.finish_reason = Some(FinishReason::Abort {
            message: &failure.message,
            status_code: Some(failure.status),
            err_type: (failure.status == 400).then_some("BadRequestError"),
        });
        let (prompt_token_ids, index) = (self.shown.prompt(&voice.ticket), self.index(voice));
        event(out, &Generated { text: "", output_ids: &[], meta_info, prompt_token_ids, index });
        true
    }

    fn failure(&self, failure: &Failure, out: &mut Vec<u8>) {
        failure_frame(failure, out);
    }

    fn tail(&self, _: &[Voice], _: &mut Vec<u8>) {}
}

fn failure_frame(failure: &Failure, out: &mut Vec<u8>) {
    let error = StreamErrorMessage {
        message: &failure.message,
        kind: "invalid_request_error",
        code: failure.status,
        retryable: false,
    };
    event(out, &StreamError { error });
}
