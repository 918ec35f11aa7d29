//! One vector, or one class, for each input.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use protocol::embedding::{
    ClassifyData, ClassifyResponse, Embedding, EmbeddingObject, EmbeddingResponse, Encoded, usage,
};
use protocol::view::{Dialect, RequestView};

use super::{Prefilled, check_model, input, meta};
use crate::clock::unix_seconds;
use crate::http::body::WholeBody;
use crate::http::failure::{Api, Failure};
use crate::http::fields::Fields;
use crate::http::{json, large, openai};
use crate::mailbox::Figures;
use crate::ticket::Ticket;
use crate::vectors::{DIMENSIONS, logits, softmax, unit};
use crate::worker::Worker;

pub(super) async fn embeddings(
    State(worker): State<Arc<Worker>>,
    headers: HeaderMap,
    WholeBody(body): WholeBody,
) -> Response {
    Api::OpenAi.respond(answer_embeddings(&worker, &headers, &body).await)
}

async fn answer_embeddings(
    worker: &Arc<Worker>,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response, Failure> {
    let fields = openai::fields(headers, body)?;
    let format: Option<String> = fields.get("encoding_format")?;
    let spell: fn(Vec<f32>) -> Embedding = match format.as_deref() {
        None | Some("float") => Embedding::Floats,
        Some("base64") => |vector| Embedding::base64(&vector),
        Some(other) => {
            let message = format!("encoding_format must be either 'float' or 'base64', got '{other}'");
            return Err(Failure::bad_request(message));
        }
    };
    let prompt = input::read(&fields)?;
    check_model(worker)?;
    let dimensions = dimensions(&fields)?;
    let prefilled = Prefilled::run(worker, headers, &fields, prompt).await?;
    let inputs = prefilled.inputs.len();
    let model = worker.config.model_path.clone();
    let write = move || {
        let object = |(index, (ticket, _)): (usize, &(Ticket, Figures))| EmbeddingObject {
            embedding: spell(unit(&ticket.prompt, dimensions)),
            index,
            object: "embedding",
        };
        json(&EmbeddingResponse {
            data: prefilled.inputs.iter().enumerate().map(object).collect(),
            model: &model,
            object: "list",
            usage: usage(prefilled.tokens()),
        })
    };
    Ok(if are_few(inputs) { write() } else { large::apart(async move { write() }).await })
}

/// Whether so many vectors are written in a few milliseconds.
fn are_few(inputs: usize) -> bool {
    inputs <= 64
}

/// Numbers of a vector: all there are, or fewer.
fn dimensions(fields: &Fields<'_>) -> Result<usize, Failure> {
    let Some(asked) = fields.get::<i64>("dimensions")? else { return Ok(DIMENSIONS) };
    let allowed = usize::try_from(asked).ok().filter(|asked| (1..=DIMENSIONS).contains(asked));
    let message = || format!("dimensions is {asked}; it must be between 1 and {DIMENSIONS}");
    allowed.ok_or_else(|| Failure::bad_request(message()))
}

pub(super) async fn classify(
    State(worker): State<Arc<Worker>>,
    headers: HeaderMap,
    WholeBody(body): WholeBody,
) -> Response {
    Api::OpenAi.respond(answer_classify(&worker, &headers, &body).await)
}

async fn answer_classify(
    worker: &Arc<Worker>,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response, Failure> {
    let fields = openai::fields(headers, body)?;
    let prompt = input::read(&fields)?;
    check_model(worker)?;
    let prefilled = Prefilled::run(worker, headers, &fields, prompt).await?;
    let data = |(index, (ticket, _)): (usize, &(Ticket, Figures))| {
        let probs = softmax(&logits(&ticket.prompt));
        ClassifyData::of(index, probs.into_iter().map(|prob| prob as f32).collect())
    };
    Ok(json(&ClassifyResponse {
        id: &format!("classify-{}", worker.fresh_rid()),
        object: "list",
        created: unix_seconds() as u64,
        model: &worker.config.served_model_name,
        data: prefilled.inputs.iter().enumerate().map(data).collect(),
        usage: usage(prefilled.tokens()),
    }))
}

/// `/encode`, and `/classify` which is the same.
pub(super) async fn encode(
    State(worker): State<Arc<Worker>>,
    headers: HeaderMap,
    WholeBody(body): WholeBody,
) -> Response {
    Api::Native.respond(answer_encode(&worker, &headers, &body).await)
}

async fn answer_encode(worker: &Arc<Worker>, headers: &HeaderMap, body: &[u8]) -> Result<Response, Failure> {
    let fields = Fields::parse(body)?;
    let prompt = RequestView::read(Dialect::Generate, body).prompt;
    check_model(worker)?;
    let dimensions = dimensions(&fields)?;
    let prefilled = Prefilled::run(worker, headers, &fields, prompt).await?;
    let all: Vec<Encoded<'_>> = prefilled
        .inputs
        .iter()
        .map(|one| Encoded { embedding: unit(&one.0.prompt, dimensions), meta_info: meta(one) })
        .collect();
    Ok(match all.as_slice() {
        [one] if !prefilled.is_batch => json(one),
        all => json(&all),
    })
}
