//! Small questions to a worker: a GET with a short answer, within a time limit.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};

use super::{Address, NoAnswer, Pool, PoolKey, exchange};

/// Longest answer that is read.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// A question to a worker.
#[derive(Debug, Clone)]
pub(crate) struct Probe<'a> {
    /// Path and query.
    pub(crate) path: Uri,
    /// Whom to ask.
    pub(crate) address: &'a Address,
    /// The worker's place in the fleet table.
    pub(crate) key: PoolKey,
    /// How long the whole exchange may take.
    pub(crate) timeout: Duration,
}

/// Why a worker gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    #[error("no answer within the time limit")]
    TimedOut,
    #[error("{0}")]
    NoAnswer(#[from] NoAnswer),
    #[error("the answer could not be read")]
    Unreadable,
}

/// Asks. Every question gets a connection of its own or an idle one; it never waits for another's.
///
/// # Errors
/// [`ProbeError`]; a status other than 2xx is an answer.
pub(crate) async fn probe(pool: &Pool, probe: Probe<'_>) -> Result<(StatusCode, Bytes), ProbeError> {
    match tokio::time::timeout(probe.timeout, ask(pool, probe)).await {
        Ok(answer) => answer,
        Err(_) => Err(ProbeError::TimedOut),
    }
}

async fn ask(pool: &Pool, probe: Probe<'_>) -> Result<(StatusCode, Bytes), ProbeError> {
    let (mut connection, answer) = exchange(pool, probe.key, probe.address, question(&probe)).await?;
    let status = answer.status();
    let mut body = Box::pin(Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect());
    let read = std::future::poll_fn(|cx| {
        let first = body.as_mut().poll(cx);
        if first.is_ready() {
            return first;
        }
        connection.drive(cx);
        body.as_mut().poll(cx)
    });
    let bytes = read.await.map_err(|_| ProbeError::Unreadable)?.to_bytes();
    pool.give_back(probe.key, connection);
    Ok((status, bytes))
}

fn question(probe: &Probe<'_>) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::default());
    *request.method_mut() = Method::GET;
    *request.uri_mut() = probe.path.clone();
    let headers = request.headers_mut();
    headers.insert(header::HOST, probe.address.host.clone());
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    request
}
