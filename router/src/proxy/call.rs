//! The upstream calls of a pair, each as one future that owns all it needs: it can be polled beside the other one by the
//! request's task, and go on in a task of its own.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body as _, Frame, Incoming};
use protocol::pd::{self, HandOff, InputLists};
use router_core::Leg;

use super::attempt::Failure;
use super::opening::{Opening, Sight};
use super::ours::{Ours, Reason};
use crate::error::Half;
use crate::fleet::Member;
use crate::upstream::{Connection, Pool, exchange_on};

/// Longest answer that is kept for its log-probabilities; those of a longer one are not merged.
const MAX_KEPT: usize = 64 << 20;

/// Longest answer that is looked through for failures where nothing is merged. A prefill answer has one token.
const MAX_LOOKED_AT: usize = 64 << 10;

/// As much is read, in bytes, of an answer that is none of success, to know what it is about.
const MAX_REASON: usize = 16 << 10;

/// A request to one worker, on a connection that is there.
pub(super) struct Call {
    pub(super) pool: Arc<Pool>,
    pub(super) member: Arc<Member>,
    pub(super) connection: Connection,
    pub(super) request: Request<Full<Bytes>>,
    /// Whether the answer is kept.
    pub(super) keeps: bool,
    pub(super) ours: Ours,
}

/// What the prefill leg answered.
pub(super) enum Prefilled {
    /// An answer of success, which held these lists.
    Done(InputLists),
    /// Another one.
    Refused(Begun),
}

/// What a leg answered, as far as it was read: a head, and the bytes behind it that were needed to know what it is.
pub(super) struct Begun {
    pub(super) connection: Connection,
    pub(super) response: Response<Incoming>,
    pub(super) first: Option<Bytes>,
    /// Of an answer of 500 or above: what it says of the hand-off.
    pub(super) hand_off: Option<HandOff>,
}

impl Call {
    /// The prefill leg, to its end.
    pub(super) async fn prefill(self) -> Result<Prefilled, Failure> {
        let Self { pool, member, connection, request, keeps, ours } = self;
        let answered = exchange_on(&pool, &member, Some(connection), request).await?;
        let (mut connection, response) = Failure::of_answer(answered)?;
        if !response.status().is_success() {
            let begun = Begun::of(connection, response);
            return Ok(Prefilled::Refused(begun.understood(Leg::Prefill, ours).await?));
        }
        let limit = if keeps { MAX_KEPT } else { MAX_LOOKED_AT };
        let kept = drain(&mut connection, response.into_body(), limit).await.map_err(Failure::BrokeOff)?;
        pool.give_back(&member, connection);
        let kept = kept.unwrap_or_default();
        match pd::failure(&kept) {
            Some(failed) => Err(match ours.reason(&kept) {
                Some(reason) => reason.failure(Half::Prefill),
                None => Failure::GivenUp { leg: Half::Prefill, failed },
            }),
            None if keeps => Ok(Prefilled::Done(InputLists::read(&kept))),
            None => Ok(Prefilled::Done(InputLists::default())),
        }
    }

    /// The decode leg, up to its first bytes; of a stream, up to its first event.
    pub(super) async fn decode(self) -> Result<Begun, Failure> {
        let Self { pool, member, connection, request, ours, .. } = self;
        let answered = exchange_on(&pool, &member, Some(connection), request).await?;
        let (connection, response) = Failure::of_answer(answered)?;
        let mut begun = Begun::of(connection, response);
        if !begun.response.status().is_success() {
            return begun.understood(Leg::Decode, ours).await;
        }
        begun.first = first_bytes(&mut begun.connection, &mut begun.response, ours).await?;
        Ok(begun)
    }
}

// === impl Begun ===

impl Begun {
    pub(super) fn of(connection: Connection, response: Response<Incoming>) -> Self {
        Self { connection, response, first: None, hand_off: None }
    }

    /// The same with as much read of it, being none of success, as tells what it is about, where that matters: a decode engine may
    /// have failed at the hand-off, and an engine may refuse what is the router's doing.
    pub(super) async fn understood(mut self, leg: Leg, ours: Ours) -> Result<Self, Failure> {
        let status = self.response.status();
        let may_be_ours = ours.is_any() && status == StatusCode::BAD_REQUEST;
        let may_be_hand_off = leg == Leg::Decode && status.is_server_error();
        if !may_be_ours && !may_be_hand_off {
            return Ok(self);
        }
        let mut read: Vec<u8> = Vec::new();
        while read.len() < MAX_REASON
            && let Some(bytes) =
                next_bytes(&mut self.connection, self.response.body_mut()).await.map_err(Failure::BrokeOff)?
        {
            read.extend_from_slice(&bytes);
        }
        if let Some(reason) = ours.reason(&read).filter(|_| may_be_ours) {
            return Err(reason.failure(Half::of(leg).unwrap_or(Half::Decode)));
        }
        self.hand_off = may_be_hand_off.then(|| pd::hand_off(&read)).flatten();
        self.first = (!read.is_empty()).then(|| read.into());
        Ok(self)
    }
}

/// The bytes with which an answer of success begins, as far as they were needed to know that it is one.
async fn first_bytes(
    connection: &mut Connection,
    response: &mut Response<Incoming>,
    ours: Ours,
) -> Result<Option<Bytes>, Failure> {
    let mut opening = Opening::of(response.headers(), ours);
    let body = response.body_mut();
    let mut held: Vec<u8> = Vec::new();
    while let Some(bytes) = next_bytes(connection, body).await.map_err(Failure::BrokeOff)? {
        match opening.see(&bytes) {
            Sight::Fine if held.is_empty() => return Ok(Some(bytes)),
            Sight::Fine => return Ok(Some([&held[..], &bytes].concat().into())),
            Sight::More => held.extend_from_slice(&bytes),
            bad => bad.judge()?,
        }
    }
    opening.finish().judge()?;
    Ok((!held.is_empty()).then(|| held.into()))
}

impl Reason {
    fn failure(self, leg: Half) -> Failure {
        match self {
            Self::Duplicate => Failure::Duplicate { leg },
            Self::OtherRanks => Failure::OtherRanks,
        }
    }
}

impl Sight {
    fn judge(self) -> Result<(), Failure> {
        match self {
            Self::More | Self::Fine => Ok(()),
            Self::GivenUp(failed) => Err(Failure::GivenUp { leg: Half::Decode, failed }),
            Self::Ours(reason) => Err(reason.failure(Half::Decode)),
        }
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
