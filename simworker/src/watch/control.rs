//! The control port: what each worker saw, and what goes wrong on it, in JSON.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use protocol::duration;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::station::Station;
use crate::fault::{self, FaultError};
use crate::http;

type Stations = Arc<Vec<Arc<Station>>>;

/// An answer in JSON.
struct Json(Value);

impl IntoResponse for Json {
    fn into_response(self) -> Response {
        http::json(&self.0)
    }
}

/// What is refused, as an answer.
struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}

impl From<FaultError> for Refusal {
    fn from(error: FaultError) -> Self {
        Self(StatusCode::BAD_REQUEST, error.to_string())
    }
}

type Told = Result<Json, Refusal>;

/// The routes of the control port.
pub(crate) fn routes(stations: Vec<Arc<Station>>) -> Router {
    let faults = get(faults).put(put_faults).patch(patch_faults).delete(delete_faults);
    Router::new()
        .route("/workers", get(workers))
        .route("/workers/{index}/seen", get(seen).delete(forget))
        .route("/workers/{index}/faults", faults)
        .route("/workers/{index}/restart", post(restart))
        .with_state(Arc::new(stations))
}

fn station(stations: &Stations, index: usize) -> Result<&Arc<Station>, Refusal> {
    stations.get(index).ok_or_else(|| {
        let last = stations.len().saturating_sub(1);
        Refusal(StatusCode::NOT_FOUND, format!("there is no worker {index}; the last one is {last}"))
    })
}

async fn workers(State(stations): State<Stations>) -> Json {
    Json(stations.iter().enumerate().map(|(index, station)| station.describe(index)).collect())
}

/// The query of what was seen.
#[derive(Debug, Deserialize)]
struct Since {
    /// Requests from this number on.
    #[serde(default)]
    since: u64,
}

async fn seen(
    State(stations): State<Stations>,
    Path(index): Path<usize>,
    Query(Since { since }): Query<Since>,
) -> Told {
    let log = station(&stations, index)?.log();
    Ok(Json(log.map_or(Value::Null, |log| log.show(since))))
}

async fn forget(State(stations): State<Stations>, Path(index): Path<usize>) -> Told {
    if let Some(log) = station(&stations, index)?.log() {
        log.clear();
    }
    Ok(Json(json!({})))
}

async fn faults(State(stations): State<Stations>, Path(index): Path<usize>) -> Told {
    Ok(Json(station(&stations, index)?.show_faults()))
}

/// These faults and no others.
async fn put_faults(State(stations): State<Stations>, Path(index): Path<usize>, body: Bytes) -> Told {
    let station = station(&stations, index)?;
    let object = object(&body)?;
    check(station, &object)?;
    station.replace_faults(fault::from_json(&object)?);
    settled(station).await
}

/// These faults in place of those of the same keys; `null` takes a fault away.
async fn patch_faults(State(stations): State<Stations>, Path(index): Path<usize>, body: Bytes) -> Told {
    let station = station(&stations, index)?;
    let object = object(&body)?;
    check(station, &object)?;
    station.set_faults(|active| fault::merge(active, &object))?;
    settled(station).await
}

/// Refuses faults that cannot happen to a worker in its role.
fn check(station: &Station, faults: &Map<String, Value>) -> Result<(), Refusal> {
    let refuse = |key: &str, of: &str| {
        Refusal(StatusCode::BAD_REQUEST, format!("fault {key}: it is for {of}, and this worker is none"))
    };
    for (key, _) in faults.iter().filter(|(_, value)| !value.is_null()) {
        if fault::is_of_handoffs(key) && !station.sends_kv() {
            return Err(refuse(key, "prefill workers"));
        }
        if fault::is_of_engines(key) && !station.has_engine() {
            return Err(refuse(key, "emulated engines"));
        }
    }
    Ok(())
}

fn object(body: &[u8]) -> Result<Map<String, Value>, Refusal> {
    serde_json::from_slice(body).map_err(|error| {
        let message = format!("the body must be a JSON object such as {{\"status\": 503}}: {error}");
        Refusal(StatusCode::BAD_REQUEST, message)
    })
}

async fn delete_faults(State(stations): State<Stations>, Path(index): Path<usize>) -> Told {
    let station = station(&stations, index)?;
    station.replace_faults(Vec::new());
    settled(station).await
}

/// The faults, once the port is as they want it.
async fn settled(station: &Station) -> Told {
    station.settled().await;
    Ok(Json(station.show_faults()))
}

/// The query of a restart.
#[derive(Debug, Deserialize)]
struct Restart {
    /// How long nobody listens, as a duration.
    down: Option<String>,
}

async fn restart(
    State(stations): State<Stations>,
    Path(index): Path<usize>,
    Query(Restart { down }): Query<Restart>,
) -> Told {
    let station = station(&stations, index)?;
    let down_ns = down.map_or(Ok(0), |text| {
        duration::parse_ns(&text)
            .map_err(|error| Refusal(StatusCode::BAD_REQUEST, format!("down={text}: {error}")))
    })?;
    station.restart(std::time::Duration::from_nanos(down_ns));
    station.settled().await;
    Ok(Json(station.describe(index)))
}
