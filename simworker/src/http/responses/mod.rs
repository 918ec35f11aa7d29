//! `/v1/responses`: text over the engine. Reasoning, tools and background work there are not.

mod events;
mod made;

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::{any, post};
use axum::{Extension, Router};
use bytes::Bytes;
use hyper::header::CONTENT_TYPE;
use protocol::tokenizer::Token;
use protocol::view::{Dialect, Prompt, RequestView};

use super::failure::{Api, Failure};
use super::fields::{Fields, OneOrMany};
use super::request::{self, Asked, Order};
use super::sampling::{Sampling, Spelling};
use super::stream::TokenStream;
use super::{json_text, openai};
use crate::responses::{Again, Store, not_found};
use crate::worker::Worker;
use events::ResponseFrames;
use made::Made;

pub(super) fn routes() -> Router<Arc<Worker>> {
    Router::new()
        .route("/v1/responses", post(create))
        .route("/v1/responses/{*rest}", any(again))
        .layer(Extension(Arc::new(Store::default())))
}

async fn create(
    State(worker): State<Arc<Worker>>,
    Extension(store): Extension<Arc<Store>>,
    headers: HeaderMap,
    body: Bytes,
) -> HttpResponse {
    let answer = answer(&worker, store, &headers, &body).await;
    answer.unwrap_or_else(|failure| failure.response(Api::Responses))
}

/// A response that was created before, or its end.
async fn again(
    State(worker): State<Arc<Worker>>,
    Extension(store): Extension<Arc<Store>>,
    method: Method,
    Path(rest): Path<String>,
) -> HttpResponse {
    let (id, known) = match Again::read(&method, &rest) {
        None => return super::detail(StatusCode::METHOD_NOT_ALLOWED),
        Some(Again::Retrieve(id)) => (id, store.get(worker.boot(), id)),
        Some(Again::Cancel(id)) => {
            let cancelled = store.cancel(worker.boot(), id);
            if cancelled.as_ref().is_some_and(|(_, was_running)| *was_running) {
                worker.abort_named(id);
            }
            (id, cancelled.map(|(known, _)| known))
        }
    };
    match known {
        Some(known) => ([(CONTENT_TYPE, "application/json")], known.body.to_vec()).into_response(),
        None => Failure::unknown_response(not_found(id)).response(Api::Responses),
    }
}

async fn answer(
    worker: &Arc<Worker>,
    store: Arc<Store>,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<HttpResponse, Failure> {
    openai::check_content_type(headers)?;
    let fields = Fields::parse(body)?;
    let made = Made::read(worker, store, &fields)?;
    let order = order(worker, headers, &fields, body, &made)?;
    let stream = order.stream;
    let mut tickets = order.submit(worker).await?;
    made.keep(made.response(), true, &[]);
    if stream {
        let frames = ResponseFrames::new(made);
        let mut opening = Vec::new();
        frames.open(&mut opening);
        let stream = TokenStream::new(tickets, frames, worker.config.stream_interval);
        return Ok(stream.after(opening).response());
    }
    let mut ticket = tickets.remove(0);
    let (progress, ending) = ticket.end().await;
    let finish = super::stream::outcome(&ending)?;
    let text = ticket.reply.text(0, progress.tokens);
    let response = made.ended(&ticket, finish, &text);
    let whole = json_text(&response);
    made.keep(response, false, &made::history(&ticket, finish.output_tokens));
    Ok(([(CONTENT_TYPE, "application/json")], whole).into_response())
}

fn order(
    worker: &Worker,
    headers: &HeaderMap,
    fields: &Fields<'_>,
    body: &[u8],
    made: &Made,
) -> Result<Order, Failure> {
    let sampling = Sampling { n: 1, ..Sampling::read(fields, Spelling::Responses)? };
    let asked = Asked {
        prompt: RequestView::read(Dialect::Responses, body).prompt,
        sampling: OneOrMany::One(sampling),
        adapter: openai::adapter(worker, &made.model),
        routing_key: request::routing_key(headers),
    };
    let asked = match &made.past {
        Some(past) => Asked { prompt: after(past, &asked.prompt)?, ..asked },
        None => asked,
    };
    let order = Order::read(&worker.config, headers, fields, asked)?;
    Ok(order.named(made.id.clone()))
}

/// The next turn, which continues an earlier response.
fn after(past: &[Token], next: &Prompt<'_>) -> Result<Prompt<'static>, Failure> {
    let Prompt::Text(text) = next else { return Err(Failure::schema("input: a text or a list is needed.")) };
    let mut tokens = past.to_vec();
    tokens.extend(protocol::tokenizer::encode(text));
    Ok(Prompt::Tokens(tokens))
}
