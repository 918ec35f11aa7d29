//! Accepting a request: its head, and its whole body as the bytes the client sent.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};

use crate::error::Refusal;

/// First allocation for a body of announced length; it grows with what really comes.
const FIRST_ALLOCATION: usize = 1 << 20;

/// How much of a body that is too long is still read, so that the client gets to see the refusal: a connection
/// that is closed with unread bytes is reset, and the answer is lost.
const DRAIN_BYTES: usize = 16 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// Receives a body of at most `limit` bytes.
///
/// # Errors
/// [`Refusal::PayloadTooLarge`], [`Refusal::BadBody`], or [`Refusal::RequestTimeout`] when nothing comes for `patience`.
pub(crate) async fn receive(
    headers: &HeaderMap,
    body: &mut Incoming,
    limit: usize,
    patience: Option<Duration>,
) -> Result<Bytes, Refusal> {
    let announced = body.size_hint().exact();
    if announced.is_some_and(|length| length > limit as u64) {
        discard(headers, body).await;
        return Err(Refusal::PayloadTooLarge);
    }
    let first = match next(body, patience).await? {
        None => return Ok(Bytes::new()),
        // The usual case: head and body came in one read, and nothing is copied.
        Some(first) if first.len() <= limit && body.is_end_stream() => return Ok(first),
        Some(first) => first,
    };
    let expected = announced.map_or(0, |length| usize::try_from(length).unwrap_or(0));
    let mut whole = BytesMut::with_capacity(expected.min(FIRST_ALLOCATION).max(first.len()));
    let mut chunk = Some(first);
    while let Some(bytes) = chunk {
        if whole.len() + bytes.len() > limit {
            drain(body).await;
            return Err(Refusal::PayloadTooLarge);
        }
        whole.extend_from_slice(&bytes);
        chunk = next(body, patience).await?;
    }
    Ok(whole.freeze())
}

/// The next bytes; trailers are passed over.
async fn next(body: &mut Incoming, patience: Option<Duration>) -> Result<Option<Bytes>, Refusal> {
    loop {
        let frame = match patience {
            None => body.frame().await,
            Some(limit) => {
                tokio::time::timeout(limit, body.frame()).await.map_err(|_| Refusal::RequestTimeout)?
            }
        };
        let Some(frame) = frame else { return Ok(None) };
        if let Ok(bytes) = frame.map_err(|_| Refusal::BadBody)?.into_data() {
            return Ok(Some(bytes));
        }
    }
}

/// Takes a body that is not wanted off the connection, as far as its client may be sending it already: one that asked
/// for permission first is not.
pub(crate) async fn discard(headers: &HeaderMap, body: &mut Incoming) {
    if !headers.contains_key(header::EXPECT) {
        drain(body).await;
    }
}

/// Reads a body as far as makes sense, so that its client gets to see the refusal.
pub(crate) async fn drain(body: &mut Incoming) {
    let read = async {
        let mut left = DRAIN_BYTES;
        while let Ok(Some(bytes)) = next(body, None).await {
            left = left.saturating_sub(bytes.len());
            if left == 0 {
                break;
            }
        }
    };
    // Either way the connection is closed afterwards.
    let _ = tokio::time::timeout(DRAIN_TIME, read).await;
}
