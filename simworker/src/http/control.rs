//! `/flush_cache` and `/abort_request`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use super::failure::{Api, Failure};
use super::fields::Fields;
use crate::worker::Worker;

/// How often a flush with a timeout looks whether the engine is idle.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What a flush that worked answers.
const FLUSHED: &str = "Cache flushed.\nPlease check backend logs for more details. (When there are running or \
    waiting requests, the operation will not be performed.)\n";

/// The query of `/flush_cache`.
#[derive(Debug, Deserialize)]
pub(super) struct FlushQuery {
    /// Seconds to wait for the engine to become idle.
    #[serde(default)]
    timeout: f64,
}

/// Empties the cache, but only of an idle engine.
pub(super) async fn flush(State(worker): State<Arc<Worker>>, Query(query): Query<FlushQuery>) -> Response {
    let Ok(wait) = Duration::try_from_secs_f64(query.timeout) else {
        let message = format!("timeout is {}; a number of seconds from 0 on is needed", query.timeout);
        return Failure::bad_request(message).response(Api::OpenAi);
    };
    let deadline = Instant::now().checked_add(wait);
    loop {
        if worker.flush() {
            return FLUSHED.into_response();
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            let text = "Flush cache failed: requests are running or waiting.\n";
            return (StatusCode::BAD_REQUEST, text).into_response();
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Aborts the request `rid` and those whose ids begin with it, or all; unknown ids are no error.
pub(super) async fn abort(State(worker): State<Arc<Worker>>, body: Bytes) -> Response {
    match which(&body) {
        Ok(Which::All) => worker.abort_all(),
        Ok(Which::Named(rid)) => worker.abort_named(&rid),
        Ok(Which::Nobody) => {}
        Err(failure) => return failure.response(Api::Native),
    }
    StatusCode::OK.into_response()
}

/// What an abort is about.
enum Which {
    All,
    Named(String),
    Nobody,
}

/// An empty id without `abort_all` would be a prefix of every id. SGLang takes it for nobody's.
fn which(body: &[u8]) -> Result<Which, Failure> {
    let fields = Fields::parse(body)?;
    if fields.get_or_default("abort_all")? {
        return Ok(Which::All);
    }
    let rid = fields.get::<String>("rid")?.filter(|rid| !rid.is_empty());
    Ok(rid.map_or(Which::Nobody, Which::Named))
}
