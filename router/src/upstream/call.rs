//! A request to a worker whose answer is read as a whole, within limits of time and length.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};

use super::{NoAnswer, Pool, exchange};
use crate::fleet::Member;

/// Longest answer in bytes that says no.
const MAX_REFUSAL: usize = 1 << 20;

/// Whom to call, and within which limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Callee<'a> {
    pub(crate) member: &'a Member,
    /// How long the whole exchange may take.
    pub(crate) timeout: Duration,
    /// Longest answer, in bytes; one that is no success is never longer than [`MAX_REFUSAL`].
    pub(crate) max_answer: usize,
}

/// Why a worker gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("no answer within the time limit")]
    TimedOut,
    #[error("{0}")]
    NoAnswer(#[from] NoAnswer),
    #[error("the answer could not be read")]
    Unreadable,
    /// Of a probe: what answers is no worker.
    #[error("this is the router itself; give the engine's port")]
    Itself,
}

/// Calls. Every call gets a connection of its own or an idle one; it never waits for another's.
///
/// # Errors
/// [`CallError`]; a status other than 2xx is an answer.
pub(crate) async fn call(
    pool: &Pool,
    callee: Callee<'_>,
    request: Request<Full<Bytes>>,
) -> Result<Response<Bytes>, CallError> {
    match tokio::time::timeout(callee.timeout, whole(pool, callee, request)).await {
        Ok(answer) => answer,
        Err(_) => Err(CallError::TimedOut),
    }
}

async fn whole(
    pool: &Pool,
    callee: Callee<'_>,
    request: Request<Full<Bytes>>,
) -> Result<Response<Bytes>, CallError> {
    let (mut connection, answer) = exchange(pool, callee.member, request).await?;
    let (head, body) = answer.into_parts();
    let longest = if head.status.is_success() { usize::MAX } else { MAX_REFUSAL };
    let mut body = Box::pin(Limited::new(body, callee.max_answer.min(longest)).collect());
    let read = std::future::poll_fn(|cx| {
        let first = body.as_mut().poll(cx);
        if first.is_ready() {
            return first;
        }
        connection.drive(cx);
        body.as_mut().poll(cx)
    });
    let bytes = read.await.map_err(|_| CallError::Unreadable)?.to_bytes();
    pool.give_back(callee.member, connection);
    Ok(Response::from_parts(head, bytes))
}
