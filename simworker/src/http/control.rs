//! `/flush_cache` and `/abort_request`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tokio::time::{Instant, sleep};

use super::body::WholeBody;
use super::failure::{Api, Failure};
use super::fields::Fields;
use super::query::Query;
use crate::worker::Worker;

/// How often a flush with a timeout looks whether the engine is idle.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What a flush that worked answers.
const FLUSHED: &str = "Cache flushed.\nPlease check backend logs for more details. (When there are running or \
    waiting requests, the operation will not be performed.)\n";

/// What a flush says that did not work at once, and one that has waited.
const BUSY: &str = "Flush cache failed.\n";
const STILL_BUSY: &str = "Timed out waiting for idle state.";

/// Empties the cache of an idle engine, and of one that is paused while nobody holds KV; one with a timeout waits until
/// the engine is idle (`flush_wrapper.py` and `is_fully_idle` in `scheduler.py`).
pub(super) async fn flush(State(worker): State<Arc<Worker>>, query: Query) -> Response {
    // Seconds to wait for the engine to become idle.
    let given = query.get("timeout").unwrap_or("0");
    let wait = given.trim().parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let Some(wait) = wait else {
        let message = format!("timeout is {given:?}; a number of seconds from 0 on is needed");
        return Failure::schema(message).response(Api::OpenAi);
    };
    if wait.is_zero() {
        let flushed = worker.flush();
        return if flushed {
            FLUSHED.into_response()
        } else {
            (StatusCode::BAD_REQUEST, BUSY).into_response()
        };
    }
    let deadline = Instant::now().checked_add(wait);
    while !worker.flush_when_idle() {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return (StatusCode::BAD_REQUEST, STILL_BUSY).into_response();
        }
        sleep(LOOK_EVERY).await;
    }
    FLUSHED.into_response()
}

/// Aborts the request `rid` and those whose ids begin with it, or all; unknown ids are no error.
pub(super) async fn abort(State(worker): State<Arc<Worker>>, WholeBody(body): WholeBody) -> Response {
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
