//! Calls from one worker to another: one request on a connection of its own.

use std::future::pending;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::net::TcpStream;

/// Longest answer, in bytes.
const MOST_BYTES: usize = 1 << 20;
/// How long a call may take; real time, as it is real work.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    /// A name or an IP address without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// The header in which a bootstrap server tells which start of its process answers. SGLang's servers have no such thing.
pub(super) const START: &str = "x-simworker-start";

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// The start of the process that has answered, where it tells.
    pub(super) start: Option<u64>,
    body: Bytes,
}

impl Answer {
    /// The body as JSON of this kind; None when it is not.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.body).ok()
    }
}

/// There is no answer.
#[derive(Debug, Error)]
pub(crate) enum CallError {
    /// Nothing was sent.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("{0}")]
    Request(#[from] hyper::http::Error),
    #[error("the answer broke off or is too long")]
    Body,
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Late,
}

/// Sends one request and reads its answer, which must come soon. Dropping the future closes the connection.
///
/// # Errors
/// When there is no whole answer in time; what it says is up to the caller.
pub(crate) async fn call(
    address: &Address,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Result<Answer, CallError> {
    let answer = tokio::time::timeout(PATIENCE, call_and_wait(address, method, path, body)).await;
    answer.unwrap_or(Err(CallError::Late))
}

/// The same for an answer that may take as long as it likes, once there is a connection.
///
/// # Errors
/// When there is no whole answer.
pub(crate) async fn call_and_wait(
    address: &Address,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Result<Answer, CallError> {
    let Address { host, port } = address;
    let connected = tokio::time::timeout(PATIENCE, TcpStream::connect((host.as_str(), *port))).await;
    let stream = connected.unwrap_or_else(|late| Err(late.into())).map_err(CallError::Connect)?;
    // A connection that refuses the option still works.
    let _ = stream.set_nodelay(true);
    let name = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, name)
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, MOST_BYTES).collect().await.map_err(|_| CallError::Body)?;
        let start = head.headers.get(START).and_then(|start| start.to_str().ok()?.parse().ok());
        Ok(Answer { status: head.status, start, body: body.to_bytes() })
    };
    let driven = async {
        // How it ends is told to the exchange.
        let _ = connection.await;
        pending().await
    };
    tokio::select! {
        answer = exchange => answer,
        never = driven => never,
    }
}
