//! The upstream calls of a pair, each as one future that owns all it needs: it can be polled beside the other one by the
//! request's task, and go on in a task of its own.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Body as _, Frame, Incoming};
use protocol::pd::{self, InputLists};
use router_core::Leg;

use super::attempt::Failure;
use super::opening::{Opening, Sight};
use crate::fleet::Member;
use crate::upstream::{Connection, Pool, exchange_on};

/// Longest answer that is kept for its log-probabilities; those of a longer one are not merged.
const MAX_KEPT: usize = 64 << 20;

/// Longest answer that is looked through for failures where nothing is merged. A prefill answer has one token.
const MAX_LOOKED_AT: usize = 64 << 10;

/// A request to one worker, on a connection that is there.
pub(super) struct Call {
    pub(super) pool: Arc<Pool>,
    pub(super) member: Arc<Member>,
    pub(super) connection: Connection,
    pub(super) request: Request<Full<Bytes>>,
    /// Whether the answer is kept.
    pub(super) keeps: bool,
}

/// What the prefill leg answered.
pub(super) enum Prefilled {
    /// An answer of success, which held these lists.
    Done(InputLists),
    /// Another one.
    Refused(Connection, Response<Incoming>),
}

/// What the decode leg answered, as far as it was read: a head, and the first bytes behind it if it is one of success and
/// has any.
pub(super) struct Begun {
    pub(super) connection: Connection,
    pub(super) response: Response<Incoming>,
    pub(super) first: Option<Bytes>,
}

impl Call {
    /// The prefill leg, to its end.
    pub(super) async fn prefill(self) -> Result<Prefilled, Failure> {
        let Self { pool, member, connection, request, keeps } = self;
        let answered = exchange_on(&pool, &member, Some(connection), request).await?;
        let (mut connection, response) = Failure::of_answer(answered)?;
        if !response.status().is_success() {
            return Ok(Prefilled::Refused(connection, response));
        }
        let limit = if keeps { MAX_KEPT } else { MAX_LOOKED_AT };
        let kept = drain(&mut connection, response.into_body(), limit).await.map_err(Failure::BrokeOff)?;
        pool.give_back(&member, connection);
        let kept = kept.unwrap_or_default();
        match pd::failure(&kept) {
            Some(status) => Err(Failure::GivenUp { leg: Leg::Prefill, status }),
            None if keeps => Ok(Prefilled::Done(InputLists::read(&kept))),
            None => Ok(Prefilled::Done(InputLists::default())),
        }
    }

    /// The decode leg, up to its first bytes; of a stream, up to its first event.
    pub(super) async fn decode(self) -> Result<Begun, Failure> {
        let Self { pool, member, connection, request, .. } = self;
        let answered = exchange_on(&pool, &member, Some(connection), request).await?;
        let (mut connection, mut response) = Failure::of_answer(answered)?;
        let first = if response.status().is_success() {
            first_bytes(&mut connection, &mut response).await?
        } else {
            None
        };
        Ok(Begun { connection, response, first })
    }
}

/// The bytes with which an answer of success begins, as far as they were needed to know that it is one.
async fn first_bytes(
    connection: &mut Connection,
    response: &mut Response<Incoming>,
) -> Result<Option<Bytes>, Failure> {
    let mut opening = Opening::of(response.headers());
    let body = response.body_mut();
    let given_up = |status| Failure::GivenUp { leg: Leg::Decode, status };
    let mut held: Vec<u8> = Vec::new();
    while let Some(bytes) = next_bytes(connection, body).await.map_err(Failure::BrokeOff)? {
        match opening.see(&bytes) {
            Sight::GivenUp(status) => return Err(given_up(status)),
            Sight::Fine if held.is_empty() => return Ok(Some(bytes)),
            Sight::Fine => return Ok(Some([&held[..], &bytes].concat().into())),
            Sight::More => held.extend_from_slice(&bytes),
        }
    }
    match opening.finish() {
        Some(status) => Err(given_up(status)),
        None => Ok((!held.is_empty()).then(|| held.into())),
    }
}

/// Reads a body to its end; returns it if it is no longer than `limit`.
async fn drain(
    connection: &mut Connection,
    mut body: Incoming,
    limit: usize,
) -> Result<Option<Vec<u8>>, hyper::Error> {
    let mut kept = Some(Vec::new());
    while let Some(bytes) = next_bytes(connection, &mut body).await? {
        match &mut kept {
            Some(answer) if answer.len() + bytes.len() <= limit => answer.extend_from_slice(&bytes),
            _ => kept = None,
        }
    }
    Ok(kept)
}

/// The next bytes of a body, which are not empty; nothing at its end.
async fn next_bytes(connection: &mut Connection, body: &mut Incoming) -> Result<Option<Bytes>, hyper::Error> {
    while !body.is_end_stream() {
        let next = std::future::poll_fn(|cx| {
            let first = Pin::new(&mut *body).poll_frame(cx);
            if first.is_ready() {
                return first;
            }
            connection.drive(cx);
            Pin::new(&mut *body).poll_frame(cx)
        });
        match next.await.transpose()?.map(Frame::into_data) {
            None => break,
            Some(Ok(bytes)) if !bytes.is_empty() => return Ok(Some(bytes)),
            // Trailers, or nothing.
            Some(_) => {}
        }
    }
    Ok(None)
}
