//! `/generate`, SGLang's own route: whole answers, cumulative streams and incremental ones.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use protocol::sglang::{
    CachedTokensDetails, FinishReason, Generated, MetaInfo, StreamError, StreamErrorMessage,
};
use protocol::view::{Dialect, RequestView};
use simworker_core::{EngineRole, FinishReason as EngineReason};

use super::failure::{Api, Failure};
use super::fields::{Fields, OneOrMany};
use super::logprobs::Logprobs;
use super::request::{Order, Wish};
use super::stream::{Frames, News, TokenStream, Voice, event, outcome};
use super::{info, json};
use crate::clock::unix_seconds;
use crate::config::WorkerConfig;
use crate::mailbox::{Figures, Finish};
use crate::ticket::Ticket;
use crate::worker::{Output, Worker};

/// `max_new_tokens` when it is not given.
const DEFAULT_OUTPUT: u32 = 128;
/// The token that `matched` names when a reply ends by itself.
pub(crate) const END_OF_TEXT: u32 = 2;

pub(super) async fn generate(State(worker): State<Arc<Worker>>, headers: HeaderMap, body: Bytes) -> Response {
    answer(&worker, &headers, &body).await.unwrap_or_else(|failure| failure.response(Api::Native))
}

async fn answer(worker: &Arc<Worker>, headers: &HeaderMap, body: &[u8]) -> Result<Response, Failure> {
    let fields = Fields::parse(body)?;
    let order = read(&worker.config, headers, &fields, body)?;
    let logprobs = Logprobs::read(&fields, order.prompts.len(), order.n)?;
    let (stream, is_batch) = (order.stream, order.is_batch || order.n > 1);
    let tickets = order.submit(worker).await?;
    if stream {
        let incremental = worker.config.incremental_streaming_output;
        let frames = GenerateFrames { is_batch, incremental, logprobs };
        return Ok(TokenStream::new(tickets, frames, worker.config.stream_interval).response());
    }
    whole(tickets, is_batch, &logprobs).await
}

/// The part of `sampling_params` that the mock honours.
#[derive(Debug, Clone, Copy)]
struct SamplingParams {
    wish: Wish,
    n: Option<u32>,
}

impl SamplingParams {
    const DEFAULT: Self =
        Self { wish: Wish { output: Output::Tokens(DEFAULT_OUTPUT), ignore_eos: false }, n: None };

    fn read(fields: &Fields<'_>) -> Result<Self, Failure> {
        let output = Output::Tokens(fields.get("max_new_tokens")?.unwrap_or(DEFAULT_OUTPUT));
        Ok(Self {
            wish: Wish { output, ignore_eos: fields.get_or_default("ignore_eos")? },
            n: fields.get("n")?,
        })
    }
}

fn read(
    config: &WorkerConfig,
    headers: &HeaderMap,
    fields: &Fields<'_>,
    body: &[u8],
) -> Result<Order, Failure> {
    let prompt = RequestView::read(Dialect::Generate, body).prompt;
    let (wishes, n) = match fields.objects("sampling_params")? {
        None => (OneOrMany::One(SamplingParams::DEFAULT.wish), None),
        Some(OneOrMany::One(params)) => {
            let params = SamplingParams::read(&params)?;
            (OneOrMany::One(params.wish), params.n)
        }
        Some(OneOrMany::Many(all)) => {
            let all = all.iter().map(SamplingParams::read).collect::<Result<Vec<_>, _>>()?;
            let n = all.first().and_then(|params| params.n);
            (OneOrMany::Many(all.iter().map(|params| params.wish).collect()), n)
        }
    };
    Order::read(config, headers, fields, prompt, wishes, n.unwrap_or(1))
}

async fn whole(tickets: Vec<Ticket>, is_batch: bool, logprobs: &Logprobs) -> Result<Response, Failure> {
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
                logprobs: logprobs.of(index, ticket, 0, ids),
                ..meta_info(ticket, finish.output_tokens, *figures, Some(finish))
            },
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
    let Figures { cached_tokens, retractions, e2e_ns, dp_rank } = figures;
    MetaInfo {
        id: &ticket.rid,
        finish_reason: finish.map(|finish| reason(ticket, finish)),
        prompt_tokens: ticket.prompt_tokens,
        weight_version: info::WEIGHT_VERSION,
        num_retractions: retractions,
        reasoning_tokens: 0,
        completion_tokens: tokens,
        cached_tokens,
        cached_tokens_details: CachedTokensDetails { device: cached_tokens, host: 0 },
        dp_rank,
        logprobs: None,
        e2e_latency: e2e_ns.map(|ns| ns as f64 / 1e9),
        response_sent_to_client_ts: unix_seconds(),
    }
}

fn reason(ticket: &Ticket, finish: &Finish) -> FinishReason<'static> {
    match finish.reason {
        // A prefill worker makes the first token for another one, and no reply of its own.
        EngineReason::Length if ticket.worker.config.engine.role == EngineRole::Prefill => {
            FinishReason::Length { length: 0 }
        }
        EngineReason::Length if ticket.ends_by_itself => FinishReason::Stop { matched: END_OF_TEXT },
        EngineReason::Length => FinishReason::Length { length: finish.output_tokens },
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
    logprobs: Logprobs,
}

impl GenerateFrames {
    fn index(&self, voice: &Voice) -> Option<u32> {
        self.is_batch.then_some(voice.index)
    }
}

impl Frames for GenerateFrames {
    fn news(&self, news: &News<'_>, out: &mut Vec<u8>) {
        let (voice, ticket) = (news.voice, &news.voice.ticket);
        let from = if self.incremental { voice.sent } else { 0 };
        let ids = ticket.reply.ids(from, news.tokens);
        event(
            out,
            &Generated {
                text: &ticket.reply.text(from, news.tokens),
                output_ids: &ids,
                meta_info: MetaInfo {
                    logprobs: self.logprobs.of(voice.index as usize, ticket, from, &ids),
                    ..meta_info(ticket, news.tokens, voice.figures, news.finish)
                },
                index: self.index(voice),
            },
        );
    }

    /// What the scheduler gives up on ends in an ordinary last frame.
    fn absorb(&self, voice: &Voice, failure: &Failure, out: &mut Vec<u8>) -> bool {
        if !failure.by_scheduler {
            return false;
        }
        let mut meta_info = meta_info(&voice.ticket, voice.sent, voice.figures, None);
        meta_info.finish_reason = Some(FinishReason::Abort {
            message: &failure.message,
            status_code: Some(failure.status),
            err_type: (failure.status == 400).then_some("BadRequestError"),
        });
        event(out, &Generated { text: "", output_ids: &[], meta_info, index: self.index(voice) });
        true
    }

    fn failure(&self, failure: &Failure, out: &mut Vec<u8>) {
        let error = StreamErrorMessage {
            message: &failure.message,
            kind: "invalid_request_error",
            code: failure.status,
            retryable: false,
        };
        event(out, &StreamError { error });
    }

    fn tail(&self, _: &[Voice], _: &mut Vec<u8>) {}
}
