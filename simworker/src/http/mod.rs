//! SGLang's endpoints over one worker.

mod auth;
mod body;
mod chat;
mod completions;
mod control;
mod embed;
mod failure;
mod fields;
mod generate;
mod health;
mod info;
mod labels;
mod large;
mod limits;
mod loads;
mod logprobs;
mod messages;
mod metrics;
mod oai_logprobs;
mod openai;
mod pause;
mod placement;
mod query;
mod request;
mod responses;
mod said;
mod sampling;
mod stream;
mod times;
mod tokens;
mod tools;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper::header::CONTENT_TYPE;
use serde::Serialize;

pub(crate) use auth::{REFUSED, allows};
pub(crate) use failure::error_text;

use crate::worker::Worker;

/// The routes of one worker.
pub(crate) fn routes(worker: Arc<Worker>) -> Router {
    let loads = loads::routes(worker.config.wire.compat);
    let all = Router::new()
        .merge(loads)
        .merge(metrics::routes(&worker.config))
        .route("/ready", get(async || ()))
        .route("/ping", get(async || ()))
        .route("/health", get(health::health))
        .route("/health_generate", get(health::health_generate))
        .route("/model_info", get(info::model_info))
        .route("/get_model_info", get(info::model_info))
        .route("/server_info", get(info::server_info))
        .route("/get_server_info", get(info::server_info))
        .route("/v1/models", get(info::models))
        .route("/v1/models/{*id}", get(info::model))
        .route("/flush_cache", get(control::flush).post(control::flush))
        .route("/abort_request", post(control::abort))
        .route("/pause_generation", post(pause::pause))
        .route("/continue_generation", post(pause::resume))
        .route("/tokenize", post(tokens::tokenize))
        .route("/v1/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/v1/detokenize", post(tokens::detokenize))
        .route("/generate", post(generate::generate).put(generate::generate))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/chat/completions", post(chat::chat))
        .merge(responses::routes())
        .merge(embed::routes())
        .fallback(async || detail(StatusCode::NOT_FOUND))
        .method_not_allowed_fallback(async || detail(StatusCode::METHOD_NOT_ALLOWED))
        .layer(DefaultBodyLimit::max(limits::MAX_BODY_BYTES))
        .layer(from_fn(large::attend))
        .layer(from_fn_with_state(Arc::clone(&worker), auth::check))
        .with_state(worker);
    // The method is to be another one before a route is looked for.
    Router::new().fallback_service(all).layer(from_fn(without_head))
}

/// FastAPI's routes for GET take no HEAD, which axum's do. What serves the metrics is no such route.
async fn without_head(mut request: Request, next: Next) -> Response {
    if *request.method() == Method::HEAD && request.uri().path() != "/metrics" {
        // No route has this one, so that a known path is told from an unknown one.
        *request.method_mut() = Method::TRACE;
    }
    next.run(request).await
}

/// What FastAPI says about paths and methods that it does not know.
fn detail(status: StatusCode) -> Response {
    let reason = status.canonical_reason().unwrap_or_default();
    (status, json(&serde_json::json!({"detail": reason}))).into_response()
}

/// `value` as JSON text.
pub(crate) fn json_text(value: &impl Serialize) -> Vec<u8> {
    let mut text = Vec::with_capacity(512);
    write_json(&mut text, value);
    text
}

fn write_json(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(out, value).expect("plain data with string keys always serialises");
}

/// `value` as a JSON answer.
pub(crate) fn json(value: &impl Serialize) -> Response {
    ([(CONTENT_TYPE, "application/json")], json_text(value)).into_response()
}
