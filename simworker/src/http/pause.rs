//! `/pause_generation` and `/continue_generation`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use serde_json::json;
use simworker_core::PauseMode;

use super::failure::{Api, Failure};
use super::fields::Fields;
use crate::worker::Worker;

/// What becomes of the requests in the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// They end.
    Abort,
    /// They stay.
    Keep(PauseMode),
}

/// Lets the engine stand still. Requests that come meanwhile wait.
pub(super) async fn pause(State(worker): State<Arc<Worker>>, body: Bytes) -> Response {
    let mode = match mode(&body) {
        Ok(mode) => mode,
        Err(failure) => return failure.response(Api::OpenAi),
    };
    match mode {
        Mode::Abort => {
            worker.abort_all();
            worker.pause(PauseMode::InPlace);
        }
        Mode::Keep(mode) => worker.pause(mode),
    }
    super::json(&json!({ "message": "Generation paused successfully.", "status": "ok" }))
}

/// Lets it go on.
pub(super) async fn resume(State(worker): State<Arc<Worker>>) -> Response {
    worker.resume();
    super::json(&json!({ "message": "Generation continued successfully.", "status": "ok" }))
}

fn mode(body: &[u8]) -> Result<Mode, Failure> {
    if body.is_empty() {
        return Ok(Mode::Abort);
    }
    match Fields::parse(body)?.get::<String>("mode")?.as_deref() {
        None | Some("abort") => Ok(Mode::Abort),
        Some("retract") => Ok(Mode::Keep(PauseMode::Retract)),
        Some("in_place") => Ok(Mode::Keep(PauseMode::InPlace)),
        Some(other) => {
            Err(Failure::bad_request(format!("mode is {other}; allowed: abort, retract, in_place")))
        }
    }
}
