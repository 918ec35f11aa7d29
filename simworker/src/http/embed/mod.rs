//! Routes whose answers are numbers: `/v1/embeddings`, `/v1/classify`, `/v1/rerank`, `/v1/score`, and SGLang's own
//! `/encode` and `/classify`. Each input is a request that ends with its prefill: it takes time, fills the cache and
//! shows in the loads like any other.

mod input;
mod pairs;
mod vectors;

use std::sync::Arc;

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::post;
use protocol::embedding::EmbeddingMeta;
use protocol::sglang::FinishReason;
use protocol::view::Prompt;

use super::failure::Failure;
use super::fields::{Fields, OneOrMany};
use super::info;
use super::openai;
use super::request::{self, Asked, Order};
use super::sampling::Sampling;
use super::stream::outcome;
use crate::clock::unix_seconds;
use crate::mailbox::Figures;
use crate::reply::Wish;
use crate::ticket::Ticket;
use crate::worker::Worker;

/// What SGLang says to those who ask a model that makes text.
const NO_EMBEDDING_MODEL: &str = "This model does not appear to be an embedding model by default. Please add \
    `--is-embedding` when launching the server or try another model.";

pub(super) fn routes() -> Router<Arc<Worker>> {
    Router::new()
        .route("/v1/embeddings", post(vectors::embeddings))
        .route("/v1/classify", post(vectors::classify))
        .route("/encode", post(vectors::encode).put(vectors::encode))
        .route("/classify", post(vectors::encode).put(vectors::encode))
        .route("/v1/rerank", post(pairs::rerank).put(pairs::rerank))
        .route("/v1/score", post(pairs::score))
}

/// Refuses what only an embedding model can answer.
fn check_model(worker: &Worker) -> Result<(), Failure> {
    if worker.config.wire.is_embedding { Ok(()) } else { Err(Failure::bad_request(NO_EMBEDDING_MODEL)) }
}

/// Inputs that the engine has gone through.
struct Prefilled {
    inputs: Vec<(Ticket, Figures)>,
    /// The body holds a list of inputs.
    is_batch: bool,
}

impl Prefilled {
    /// Sends all of them through the engine.
    async fn run(
        worker: &Arc<Worker>,
        headers: &HeaderMap,
        fields: &Fields<'_>,
        prompt: Prompt<'_>,
    ) -> Result<Self, Failure> {
        let model: String = fields.get_or_default("model")?;
        let asked = Asked {
            prompt,
            sampling: OneOrMany::One(Sampling { wish: Wish::exactly(1), n: 1 }),
            adapter: openai::adapter(worker, &model),
            routing_key: request::routing_key(headers),
        };
        let order = Order::read(&worker.config, headers, fields, asked)?.prefill_only();
        let is_batch = order.is_batch;
        let mut inputs = Vec::new();
        for mut ticket in order.submit(worker).await? {
            let (progress, ending) = ticket.end().await;
            outcome(&ending)?;
            inputs.push((ticket, progress.figures));
        }
        Ok(Self { inputs, is_batch })
    }

    /// Tokens of all inputs.
    fn tokens(&self) -> u32 {
        self.inputs.iter().map(|(ticket, _)| ticket.prompt_tokens).sum()
    }
}

fn meta<'a>((ticket, figures): &'a (Ticket, Figures)) -> EmbeddingMeta<'a> {
    EmbeddingMeta {
        id: &ticket.rid,
        finish_reason: FinishReason::Length { length: 0 },
        prompt_tokens: ticket.prompt_tokens,
        weight_version: info::WEIGHT_VERSION,
        num_retractions: figures.retractions,
        dp_rank: figures.dp_rank,
        e2e_latency: figures.e2e_ns.map(|ns| ns as f64 / 1e9),
        response_sent_to_client_ts: unix_seconds(),
    }
}
