//! The prefill side: each rank registers with the bootstrap server of its worker, and hands off KV on a port of its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use hyper::Method;
use hyper::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::sleep;

use super::call::{Address, call};
use super::life::Life;
use super::registry::Registration;
use super::{Failed, json_text};
use crate::config::WorkerConfig;
use crate::fault::HandoffPlan;
use crate::http::json;
use crate::watch::Station;
use crate::worker::Worker;

/// How long a rank waits before it tries to register again.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Asks for the KV of a room (`POST /kv`).
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KvRequest {
    pub(super) room: u64,
    /// Tokens of KV that the decode side has slots for.
    pub(super) tokens: u32,
    /// The start of the process that it is meant for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) start: Option<u64>,
}

/// The KV of a room has arrived.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KvAnswer {
    pub(super) room: u64,
    pub(super) tokens: u32,
    /// Those of them that were found in the cache of the prefill side.
    pub(super) cached_tokens: u32,
}

/// It will not arrive.
#[derive(Debug, Serialize)]
struct KvFailure<'a> {
    room: u64,
    error: &'a str,
}

/// One rank's port.
#[derive(Debug, Clone)]
pub(crate) struct RankPort {
    pub(crate) worker: Arc<Worker>,
    pub(crate) rank: u32,
    /// What is done to the worker, if anything is.
    pub(crate) station: Option<Arc<Station>>,
}

/// The routes of one rank's port.
pub(crate) fn routes(port: RankPort) -> Router {
    Router::new().route("/kv", post(hand_off)).with_state(port)
}

/// Answers when the transfer is complete, or has failed.
async fn hand_off(State(port): State<RankPort>, body: Bytes) -> Response {
    let KvRequest { room, tokens, start } = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    if start.is_some_and(|start| start != port.worker.boot()) {
        // It is meant for a process that had this port before: its room may be another one here.
        return (StatusCode::GONE, "this process has been started anew").into_response();
    }
    let HandoffPlan { fails, delay } =
        port.station.as_ref().map(|station| station.hand_off()).unwrap_or_default();
    let sent = port.worker.want_kv(port.rank, room, fails).await;
    if let Some(delay) = delay {
        sleep(delay).await;
    }
    match sent {
        Ok(cached_tokens) => json(&KvAnswer { room, tokens, cached_tokens }),
        Err(Failed(message)) => failure(room, &message),
    }
}

fn failure(room: u64, error: &str) -> Response {
    let text = json_text(&KvFailure { room, error });
    (StatusCode::INTERNAL_SERVER_ERROR, [(CONTENT_TYPE, "application/json")], text).into_response()
}

/// Registers all ranks at `bootstrap`, and again whenever the process has come back. `ranks` are their ports, and
/// `http_port` is the port that clients use.
pub(crate) async fn register(
    worker: Arc<Worker>,
    bootstrap: SocketAddr,
    ranks: Vec<SocketAddr>,
    http_port: u16,
) {
    let mut life = worker.life();
    loop {
        let is_up = life.borrow_and_update().is_up;
        if is_up {
            let server = Address { host: near(bootstrap.ip()).to_string(), port: bootstrap.port() };
            for (rank, port) in (0..).zip(&ranks) {
                register_one(&server, &registration(&worker.config, rank, *port, http_port), &life).await;
            }
        }
        if life.changed().await.is_err() {
            return;
        }
    }
}

/// Tries until it is done, or until the process is gone.
async fn register_one(server: &Address, registration: &Registration, life: &watch::Receiver<Life>) {
    while life.has_changed().is_ok_and(|changed| !changed) {
        match call(server, Method::PUT, "/route", json_text(registration)).await {
            Ok(answer) if answer.status == StatusCode::OK => return,
            _ => sleep(AGAIN_AFTER).await,
        }
    }
}

fn registration(config: &WorkerConfig, rank: u32, at: SocketAddr, http_port: u16) -> Registration {
    let dp = config.dp();
    let (attention, system) =
        if dp.attention { ((rank, dp.size), (0, 1)) } else { ((0, 1), (rank, dp.size)) };
    Registration {
        attn_tp_size: 1,
        attn_tp_rank: 0,
        attn_cp_size: 1,
        attn_cp_rank: 0,
        attn_dp_size: attention.1,
        attn_dp_rank: attention.0,
        pp_size: 1,
        pp_rank: 0,
        system_dp_size: system.1,
        system_dp_rank: system.0,
        rank_ip: reachable(at.ip()).to_string(),
        rank_port: at.port(),
        page_size: config.engine.page_size,
        kv_cache_dtype: "auto".to_owned(),
        load_balance_method: dp.balance.label().to_owned(),
        prefill_http_port: http_port,
    }
}

/// The address by which this process reaches a listener of its own.
pub(super) fn near(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(v4) if v4.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(v6) if v6.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    }
}

/// The address by which others reach a listener. One that listens everywhere is told by the address that this machine
/// has on its way to the world; nothing is sent to find it.
fn reachable(ip: IpAddr) -> IpAddr {
    if !ip.is_unspecified() {
        return ip;
    }
    let outward = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        Ok::<_, std::io::Error>(socket.local_addr()?.ip())
    };
    outward().unwrap_or_else(|_| near(ip))
}
