//! The router's own routes: what it says of itself, and what it asks its workers on an operator's behalf.
//!
//! Shapes are those of the gateway where it has one, and of SGLang where clients take the router for a server. A question
//! goes to all workers it concerns, so many at a time, each within its own limit: one that hangs costs its own answer.

mod access;
mod ask;
mod audit;
mod engine_metrics;
mod exposition;
mod flush;
mod generate;
mod info;
mod loads;
mod models;
mod own;
mod reply;
mod workers;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::{HeaderValue, Request};
use hyper::body::Incoming;

pub(crate) use access::{Guard, Visitor, identify};
pub(crate) use audit::Call;
pub(crate) use engine_metrics::engine_metrics;
pub(crate) use flush::flush_cache;
pub(crate) use generate::health_generate;
pub(crate) use info::{model_info, server_info};
pub(crate) use loads::{loads, token_loads};
pub(crate) use models::models;
pub(crate) use own::{alive, metrics, readiness, version};
pub(crate) use workers::workers;

use crate::client::Turn;
use crate::error::{Answer, Refusal};
use crate::server::Context;

/// One request to one of these routes.
pub(crate) struct Asked {
    pub(crate) context: Arc<Context>,
    pub(crate) turn: Arc<Turn>,
    pub(crate) request: Request<Incoming>,
    /// What the request is known by.
    pub(crate) id: HeaderValue,
    /// Whose key let it in.
    pub(crate) visitor: Visitor,
}

/// An answer on its way.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// What answers a route.
pub(crate) type Handler = fn(Asked) -> Answering;

impl Asked {
    /// Waits for workers, for as long as the request's time runs and its client stays.
    async fn wait(turn: &Arc<Turn>, answering: impl Future<Output = Answer>) -> Answer {
        let _engaged = turn.engage();
        tokio::select! {
            biased;
            answer = answering => answer,
            () = turn.deadline() => Refusal::UpstreamTimeout.answer(),
        }
    }

    /// The `Authorization` that workers without a key of their own are sent: the client's, unless it is for the router.
    fn passed_on(&self) -> Option<HeaderValue> {
        let headers = self.request.headers();
        let is_ours = || self.context.shared.settings.admin_keys.find(headers).is_some();
        let shown = headers.get(http::header::AUTHORIZATION);
        shown.filter(|_| self.visitor == Visitor::Anyone && !is_ours()).cloned()
    }
}
