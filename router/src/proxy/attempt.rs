//! One try at one worker: the request that goes out, and why no response head came back.

use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, Version, header, request};
use http_body_util::Full;
use hyper::body::Incoming;
use protocol::pd::{self, HandOff};
use router_core::{Cause, Outcome};

use crate::client::Turn;
use crate::error::{Fault, Half, Refusal};
use crate::fleet::Member;
use crate::metrics::WorkerError;
use crate::request_id::REQUEST_ID;
use crate::server::Context;
use crate::upstream::{Connection, NoAnswer, exchange};

/// Why a try gave no response head; what the operator may know, as against what the client is told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    NoAnswer(#[from] NoAnswer),
    #[error("no response head within the time limit of a first byte")]
    NoFirstByte,
    /// `hurried` if others had used up most of that time before.
    #[error("no response head within the time limit of the request")]
    TimedOut { hurried: bool },
    #[error("the answer is none to this request: {0}")]
    Invalid(&'static str),
    /// Of one of two legs: a response head came, and nothing behind it that has gone to the client.
    #[error("the connection was lost after a response head: {0}")]
    BrokeOff(#[source] hyper::Error),
    /// Of one of two legs, in an answer of success.
    #[error("the engine has given it up with status {}", .failed.status)]
    GivenUp { leg: Half, failed: pd::Failed },
    /// Of the prefill leg, which has not answered: this is what decode says of it, with this status.
    #[error("silent, and the decode worker says of the hand-off: {said}")]
    HandOff { said: HandOff, status: u16 },
    /// Of the prefill leg.
    #[error("still silent {} s after the end of the decode worker's answer", .grace.as_secs())]
    Lingering { grace: Duration },
    /// Of one of two legs, at an engine to which an earlier try was sent.
    #[error("it has not finished with an earlier try of the same request")]
    Duplicate { leg: Half },
    /// It was started anew with others, or with another number of them.
    #[error("the engine has other ranks than it had")]
    OtherRanks,
    #[error("the request's body is no JSON object")]
    NoObject,
    #[error("the request's body asks for too many answers")]
    TooManyItems,
}

/// Sends a request to a worker and waits for the head of its answer.
///
/// # Errors
/// [`Failure`]; any connection is closed then.
pub(super) async fn attempt(
    context: &Context,
    turn: &Turn,
    member: &Member,
    request: Request<Full<Bytes>>,
) -> Result<(Connection, Response<Incoming>), Failure> {
    // In one place: handed on by value, it would be there twice.
    let mut exchanged = pin!(exchange(&context.pool, member, request));
    let timeouts = &context.shared.settings.timeouts;
    let begun = Instant::now();
    let tried = tokio::select! {
        biased;
        tried = within(timeouts.first_byte, exchanged.as_mut()) => tried,
        () = turn.deadline() => Err(Failure::TimedOut { hurried: begun.elapsed() < timeouts.request / 2 }),
    };
    tried.and_then(Failure::of_answer)
}

async fn within<T>(
    limit: Option<Duration>,
    exchanged: impl Future<Output = Result<T, NoAnswer>>,
) -> Result<T, Failure> {
    let Some(limit) = limit else { return exchanged.await.map_err(Failure::from) };
    match tokio::time::timeout(limit, exchanged).await {
        Ok(exchanged) => exchanged.map_err(Failure::from),
        Err(_) => Err(Failure::NoFirstByte),
    }
}

impl Failure {
    /// What came back, unless the client could make nothing of it.
    pub(super) fn of_answer<C>(answered: (C, Response<Incoming>)) -> Result<(C, Response<Incoming>), Self> {
        let response = &answered.1;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Self::Invalid("nobody asked for another protocol"));
        }
        if !super::headers::is_plainly_framed(response.headers()) {
            return Err(Self::Invalid("its transfer coding was not asked for"));
        }
        Ok(answered)
    }

    /// Whether it shows that there is no worker at this address.
    pub(super) fn is_nobody_there(&self) -> bool {
        matches!(self, Self::NoAnswer(missing) if missing.is_nobody_there())
    }

    /// What it says to the decision whether to try again; `None` if another try is never allowed.
    pub(super) fn cause(&self) -> Option<Cause> {
        match self {
            // Nothing was written in any of these cases.
            Self::NoAnswer(NoAnswer::Connect(_) | NoAnswer::ConnectTimedOut | NoAnswer::Unsent) => {
                Some(Cause::Connect)
            }
            Self::NoAnswer(NoAnswer::Silent { reused: false, .. }) | Self::BrokeOff(_) => Some(Cause::Reset),
            Self::NoAnswer(NoAnswer::Silent { reused: true, .. }) => Some(Cause::StaleConnection),
            Self::GivenUp { failed: pd::Failed { status, .. }, .. } | Self::HandOff { status, .. } => {
                Some(Cause::Status(*status))
            }
            Self::Duplicate { .. } => Some(Cause::Duplicate),
            Self::OtherRanks => Some(Cause::OtherRanks),
            Self::NoAnswer(NoAnswer::Broken(_))
            | Self::NoFirstByte
            | Self::TimedOut { .. }
            | Self::Lingering { .. }
            | Self::Invalid(_)
            | Self::NoObject
            | Self::TooManyItems => None,
        }
    }

    /// How the books are closed: a worker that closed an idle connection has done nothing wrong, and neither has one
    /// that this machine lacks the means to reach, or that was given too little time.
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Self::NoAnswer(NoAnswer::Silent { reused: true, .. } | NoAnswer::Unsent) => Outcome::Refused,
            Self::NoAnswer(missing @ NoAnswer::Connect(_)) if !missing.is_nobody_there() => Outcome::Refused,
            Self::GivenUp { failed, .. } => Outcome::of_status(failed.status),
            Self::TimedOut { hurried: true }
            | Self::Duplicate { .. }
            | Self::OtherRanks
            | Self::NoObject
            | Self::TooManyItems => Outcome::Refused,
            _ => Outcome::Failed,
        }
    }

    /// What the client is told.
    pub(super) fn refusal(&self) -> Refusal {
        match self {
            Self::NoAnswer(missing) => missing.refusal(),
            Self::NoFirstByte => Refusal::FirstByteTimeout,
            Self::TimedOut { .. } => Refusal::UpstreamTimeout,
            Self::Invalid(_) | Self::OtherRanks => Refusal::UpstreamInvalid,
            Self::BrokeOff(_) => Refusal::UpstreamBroken,
            Self::GivenUp { leg, .. } => Refusal::LegFailed { leg: *leg, fault: Fault::GivenUp },
            Self::HandOff { .. } => Refusal::HandOffFailed,
            Self::Lingering { .. } => Refusal::LegFailed { leg: Half::Prefill, fault: Fault::Timeout },
            Self::Duplicate { leg } => Refusal::LegFailed { leg: *leg, fault: Fault::Broken },
            Self::NoObject => Refusal::NoObject,
            Self::TooManyItems => Refusal::TooManyItems,
        }
    }
}

impl Failure {
    /// What the client is told where neither of two legs is known to be the one.
    pub(super) fn refusal_of_pair(&self) -> Refusal {
        match self {
            Self::NoFirstByte => Refusal::PairFirstByteTimeout,
            Self::TimedOut { .. } => Refusal::PairTimeout,
            _ => self.refusal(),
        }
    }

    /// What it is in the metrics of its worker; `None` if nothing is wrong with that.
    pub(super) fn error(&self) -> Option<WorkerError> {
        match self {
            _ if self.is_of_request() => None,
            Self::Duplicate { .. } | Self::OtherRanks => None,
            _ => WorkerError::of_refusal(self.refusal()),
        }
    }

    /// Whether the engine says, in an answer of success, that the request is wrong: that is nobody's fault but the client's.
    pub(super) fn is_of_request(&self) -> bool {
        matches!(self, Self::GivenUp { failed, .. } if failed.status < 500)
    }

    /// Whether an answer told of it, so that it counts whether another try follows or not.
    pub(super) fn is_told(&self) -> bool {
        matches!(self, Self::GivenUp { .. } | Self::HandOff { .. })
    }
}

/// The client's request as a worker gets it: the same method, path, query, end-to-end headers and body, and the
/// worker's own `Host`, key and name for the request.
pub(crate) fn upstream_request(
    head: &request::Parts,
    body: Bytes,
    member: &Member,
    id: &HeaderValue,
) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = head.method.clone();
    *request.version_mut() = Version::HTTP_11;
    *request.uri_mut() = origin_form(&head.uri);
    *request.headers_mut() = upstream_headers(head.headers.clone(), member, id);
    request
}

fn upstream_headers(mut headers: HeaderMap, member: &Member, id: &HeaderValue) -> HeaderMap {
    super::headers::strip_hop_by_hop(&mut headers);
    // Answered here: the body has been received.
    headers.remove(header::EXPECT);
    headers.insert(header::HOST, member.address.host.clone());
    headers.insert(REQUEST_ID, id.clone());
    if let Some(key) = member.authorization() {
        headers.insert(header::AUTHORIZATION, key);
    }
    headers
}

fn origin_form(uri: &Uri) -> Uri {
    if uri.scheme().is_none() {
        return uri.clone();
    }
    let path = uri.path_and_query().cloned();
    path.map_or_else(|| Uri::from_static("/"), Uri::from)
}
