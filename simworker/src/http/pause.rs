//! `/pause_generation` and `/continue_generation`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use serde_json::json;
use simworker_core::PauseMode;
use tokio::time::sleep;

use super::body::WholeBody;
use super::failure::{Api, Failure};
use super::fields::Fields;
use crate::worker::Worker;

/// How often a pause that aborts looks whether all requests have ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Lets the engine stand still. Requests that come meanwhile wait. Where the others are aborted, the answer comes when
/// they have ended.
pub(super) async fn pause(State(worker): State<Arc<Worker>>, WholeBody(body): WholeBody) -> Response {
    let mode = match mode(&body) {
        Ok(mode) => mode,
        Err(failure) => return failure.response(Api::OpenAi),
    };
    let former = worker.pause(mode);
    while mode == PauseMode::Abort && worker.has_any(former) {
        sleep(LOOK_EVERY).await;
    }
    super::json(&json!({ "message": "Generation paused successfully.", "status": "ok" }))
}

/// Lets it go on.
pub(super) async fn resume(State(worker): State<Arc<Worker>>) -> Response {
    worker.resume();
    super::json(&json!({ "message": "Generation continued successfully.", "status": "ok" }))
}

fn mode(body: &[u8]) -> Result<PauseMode, Failure> {
    if body.is_empty() {
        return Ok(PauseMode::Abort);
    }
    match Fields::parse(body)?.get::<String>("mode")?.as_deref() {
        None | Some("abort") => Ok(PauseMode::Abort),
        Some("retract") => Ok(PauseMode::Retract),
        Some("in_place") => Ok(PauseMode::InPlace),
        Some(other) => {
            Err(Failure::bad_request(format!("mode is {other}; allowed: abort, retract, in_place")))
        }
    }
}
