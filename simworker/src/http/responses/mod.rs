//! `/v1/responses`: text over the engine. Reasoning, tools and background work there are not.

mod events;
mod made;

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::{any, post};
use axum::{Extension, Router};
use hyper::header::CONTENT_TYPE;
use protocol::tokenizer::Token;
use protocol::view::{Dialect, Prompt, RequestView};

use super::body::WholeBody;
use super::failure::{Api, Failure};
use super::fields::{Fields, OneOrMany};
use super::request::{self, Asked, Order};
use super::sampling::{Sampling, Spelling};
use super::stream::TokenStream;
use super::{json_text, openai, query};
use crate::responses::{Again, End, PATH, Running, Store, not_found};
use crate::ticket::Ticket;
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
    WholeBody(body): WholeBody,
) -> HttpResponse {
    Api::Responses.respond(answer(&worker, store, &headers, &body).await)
}

/// A response that was created before, or its end.
async fn again(
    State(worker): State<Arc<Worker>>,
    Extension(store): Extension<Arc<Store>>,
    method: Method,
    uri: Uri,
) -> HttpResponse {
    let rest = query::after(PATH, &uri);
    let (id, body) = match Again::read(&method, &rest) {
        None => return super::detail(StatusCode::METHOD_NOT_ALLOWED),
        Some(Again::Retrieve(id)) => (id, store.body(worker.boot(), id)),
        Some(Again::Cancel(id)) => {
            let cancelled = store.cancel(worker.boot(), id);
            if let Some(request) = cancelled.as_ref().and_then(|(_, request)| *request) {
                worker.abort(request);
            }
            (id, cancelled.map(|(body, _)| body))
        }
    };
    match body {
        Some(body) => ([(CONTENT_TYPE, "application/json")], body.to_vec()).into_response(),
        None => Failure::unknown_response(not_found(id)).response(Api::Responses),
    }
}

async fn answer(
    worker: &Arc<Worker>,
    store: Arc<Store>,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<HttpResponse, Failure> {
    let fields = openai::fields(headers, body)?;
    let made = Made::read(worker, store, &fields)?;
    let order = order(worker, headers, &fields, body, &made)?;
    let stream = order.stream;
    let mut tickets = order.submit(worker).await?;
    let running = tickets.first().and_then(|ticket| made.begin(ticket));
    if stream {
        let frames = ResponseFrames::new(made, running);
        let mut opening = Vec::new();
        frames.open(&mut opening);
        let stream = TokenStream::new(tickets, frames, worker.config.stream_interval);
        return Ok(stream.after(opening).response());
    }
    whole(&made, running, tickets.remove(0)).await
}

/// The answer when it is complete.
async fn whole(made: &Made, running: Option<Running>, mut ticket: Ticket) -> Result<HttpResponse, Failure> {
    let (progress, ending) = ticket.end().await;
    let finish = match super::stream::outcome(&ending) {
        Ok(finish) => finish,
        Err(failure) => {
            made::close(running, || End::Failed(json_text(&made.failed(&failure.message)).into()));
            return Err(failure);
        }
    };
    let text = ticket.reply.text(0, progress.tokens);
    let response = made.ended(&ticket, finish, &text);
    made::close(running, || made::end(&response, &ticket, finish.output_tokens));
    Ok(super::json(&response))
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
