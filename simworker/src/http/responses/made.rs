//! A response from its beginning to its end.

use std::sync::Arc;

use protocol::responses::{IncompleteDetails, Message, Response, ResponseError, ResponseUsage, Status};
use protocol::tokenizer::Token;
use simworker_core::FinishReason;

use crate::clock::unix_seconds;
use crate::http::failure::Failure;
use crate::http::fields::Fields;
use crate::http::json_text;
use crate::mailbox::Finish;
use crate::responses::{Bodies, End, Running, Store, not_found};
use crate::ticket::Ticket;
use crate::worker::Worker;

/// What is stored when nobody waits for a response any more.
const ABANDONED: &str = "The client has left before the response was complete.";

/// What is known of a response from the beginning on.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) id: String,
    pub(super) message_id: String,
    pub(super) model: String,
    created_at: u64,
    instructions: Option<String>,
    max_output_tokens: Option<i64>,
    previous: Option<String>,
    /// What the response before leaves to continue.
    pub(super) past: Option<Arc<[Token]>>,
    /// It can be asked for again.
    is_stored: bool,
    cache_report: bool,
    boot: u64,
    store: Arc<Store>,
}

impl Made {
    pub(super) fn read(worker: &Worker, store: Arc<Store>, fields: &Fields<'_>) -> Result<Self, Failure> {
        let boot = worker.boot();
        let previous: Option<String> = fields.get("previous_response_id")?;
        let known = previous
            .as_deref()
            .map(|id| store.history(boot, id).ok_or_else(|| Failure::unknown_response(not_found(id))));
        let model: Option<String> = fields.get("model")?;
        let id: Option<String> = fields.get("request_id")?;
        Ok(Self {
            id: id.unwrap_or_else(|| format!("resp_{}", worker.fresh_rid())),
            message_id: format!("msg_{}", worker.fresh_rid()),
            model: model.unwrap_or_else(|| worker.config.served_model_name.clone()),
            created_at: unix_seconds() as u64,
            instructions: fields.get("instructions")?,
            max_output_tokens: fields.get("max_output_tokens")?,
            past: known.transpose()?,
            previous,
            is_stored: fields.get("store")?.unwrap_or(true),
            cache_report: worker.config.enable_cache_report,
            boot,
            store,
        })
    }

    pub(super) fn response(&self) -> Response<'_> {
        Response {
            instructions: self.instructions.as_deref(),
            max_output_tokens: self.max_output_tokens,
            previous_response_id: self.previous.as_deref(),
            store: self.is_stored,
            ..Response::new(&self.id, self.created_at, &self.model)
        }
    }

    pub(super) fn ended<'a>(&'a self, ticket: &Ticket, finish: &Finish, text: &'a str) -> Response<'a> {
        let status = match (ticket.matched(finish), finish.reason) {
            (Some(_), _) => Status::Completed,
            (None, FinishReason::Length | FinishReason::Stop) => Status::Incomplete,
            (None, FinishReason::Abort { .. } | FinishReason::Error { .. }) => Status::Failed,
        };
        let error = match finish.reason {
            FinishReason::Abort { message } | FinishReason::Error { message, .. } => Some(message),
            FinishReason::Length | FinishReason::Stop => None,
        };
        let cached = if self.cache_report { finish.cached_tokens } else { 0 };
        Response {
            output: vec![Message::new(&self.message_id, Some(text))],
            status,
            usage: Some(ResponseUsage::new(ticket.prompt_tokens, cached, finish.output_tokens)),
            error: error.map(|message| ResponseError { code: "server_error", message }),
            incomplete_details: (status == Status::Incomplete)
                .then_some(IncompleteDetails { reason: "max_output_tokens" }),
            ..self.response()
        }
    }

    /// The same when there is none.
    pub(super) fn failed<'a>(&'a self, message: &'a str) -> Response<'a> {
        let error = Some(ResponseError { code: "server_error", message });
        Response { status: Status::Failed, error, ..self.response() }
    }

    /// Remembers that it is being made, if it is to be remembered.
    pub(super) fn begin(&self, ticket: &Ticket) -> Option<Running> {
        let running = self.response();
        let cancelled = Response { status: Status::Cancelled, ..self.response() };
        let bodies = Bodies {
            running: json_text(&running).into(),
            cancelled: json_text(&cancelled).into(),
            abandoned: json_text(&self.failed(ABANDONED)).into(),
        };
        self.is_stored.then(|| self.store.begin(self.boot, &self.id, ticket.id, bodies))
    }
}

/// Remembers how it has ended, if it is to be remembered.
pub(super) fn close(running: Option<Running>, end: impl FnOnce() -> End) {
    if let Some(running) = running {
        running.end(end());
    }
}

/// The end of a response that is whole.
pub(super) fn end(response: &Response<'_>, ticket: &Ticket, tokens: u32) -> End {
    End::Whole { body: json_text(response).into(), history: history(ticket, tokens).into() }
}

/// The tokens that a next turn continues.
fn history(ticket: &Ticket, tokens: u32) -> Vec<Token> {
    let mut all = ticket.prompt.to_vec();
    all.extend(ticket.reply.ids(0, tokens));
    all
}
