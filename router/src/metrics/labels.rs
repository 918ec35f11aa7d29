//! Label values that are a choice among few, as types.

use http::StatusCode;
use router_core::Cause;

use crate::error::{Fault, Refusal};

/// Kinds of failed requests, of which the first four are the gateway's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestError {
    NoWorkers,
    Timeout,
    Backend,
    Validation,
    Overloaded,
}

impl RequestError {
    pub(super) const ALL: [Self; 5] =
        [Self::NoWorkers, Self::Timeout, Self::Backend, Self::Validation, Self::Overloaded];

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::NoWorkers => "no_workers",
            Self::Timeout => "timeout",
            Self::Backend => "backend_error",
            Self::Validation => "validation_error",
            Self::Overloaded => "overloaded",
        }
    }

    /// The kind of a worker's answer, by its status; `None` if it is no failure.
    pub(crate) fn of_status(status: StatusCode) -> Option<Self> {
        match status.as_u16() {
            ..400 => None,
            408 | 504 => Some(Self::Timeout),
            429 => Some(Self::Overloaded),
            400..500 => Some(Self::Validation),
            _ => Some(Self::Backend),
        }
    }

    /// The kind of a refusal.
    pub(crate) fn of_refusal(refusal: Refusal) -> Self {
        match refusal {
            Refusal::QueueFull { .. } | Refusal::QueueTimeout { .. } => Self::Overloaded,
            Refusal::NoWorkers { .. }
            | Refusal::NoneHealthy { .. }
            | Refusal::ModelDown { .. }
            | Refusal::BreakersOpen { .. }
            | Refusal::LegUnavailable { .. }
            | Refusal::DispatchLimit { .. }
            | Refusal::TargetUnavailable { .. } => Self::NoWorkers,
            Refusal::RequestTimeout
            | Refusal::HeadTimeout
            | Refusal::ConnectTimeout
            | Refusal::FirstByteTimeout
            | Refusal::PairFirstByteTimeout
            | Refusal::PairTimeout
            | Refusal::LegFailed {
                fault: Fault::ConnectTimeout | Fault::FirstByteTimeout | Fault::Timeout,
                ..
            }
            | Refusal::UpstreamTimeout => Self::Timeout,
            Refusal::ConnectFailed
            | Refusal::UpstreamBroken
            | Refusal::UpstreamInvalid
            | Refusal::LegFailed { .. }
            | Refusal::HandOffFailed
            | Refusal::NoWorkerAnswered
            | Refusal::WorkersUnwell
            | Refusal::Loop
            | Refusal::Stopping { .. } => Self::Backend,
            Refusal::HeadInvalid
            | Refusal::HeadTooLarge
            | Refusal::UriTooLong
            | Refusal::NotFound
            | Refusal::MethodNotAllowed { .. }
            | Refusal::PayloadTooLarge
            | Refusal::BadBody
            | Refusal::UnsupportedCoding
            | Refusal::Unauthorized
            | Refusal::Forbidden
            | Refusal::NeedsRegular
            | Refusal::NoObject
            | Refusal::TooManyItems
            | Refusal::UnknownModel => Self::Validation,
        }
    }
}

/// Whether it is the limit on concurrent requests that refuses.
pub(crate) fn is_turned_away(refusal: Refusal) -> bool {
    RequestError::of_refusal(refusal) == RequestError::Overloaded
}

/// What went wrong with one try at a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerError {
    /// It did not accept a connection.
    Connect,
    /// The connection was lost before the answer's end.
    ConnectionLost,
    /// It took too long.
    Timeout,
    /// Its answer could not be passed on.
    InvalidAnswer,
    /// It answered with a status of 500 or above.
    Status,
}

impl WorkerError {
    pub(super) const ALL: [Self; 5] =
        [Self::Connect, Self::ConnectionLost, Self::Timeout, Self::InvalidAnswer, Self::Status];

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::ConnectionLost => "connection_lost",
            Self::Timeout => "timeout",
            Self::InvalidAnswer => "invalid_answer",
            Self::Status => "backend_error",
        }
    }

    /// The error of a try that is given up and tried anew. A status was counted when it came, and a reused
    /// connection that the worker had closed is nobody's error.
    pub(crate) fn of_cause(cause: Cause) -> Option<Self> {
        match cause {
            Cause::Connect => Some(Self::Connect),
            Cause::Reset => Some(Self::ConnectionLost),
            Cause::StaleConnection | Cause::Duplicate | Cause::OtherRanks | Cause::Status(_) => None,
        }
    }

    /// The worker's error behind a refusal; `None` if it has none in it.
    pub(crate) fn of_refusal(refusal: Refusal) -> Option<Self> {
        match Fault::of(refusal)? {
            Fault::Connect | Fault::ConnectTimeout => Some(Self::Connect),
            Fault::Broken => Some(Self::ConnectionLost),
            Fault::Timeout | Fault::FirstByteTimeout => Some(Self::Timeout),
            Fault::Invalid => Some(Self::InvalidAnswer),
            Fault::GivenUp => Some(Self::Status),
        }
    }
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The worker's answer came in full, whatever its status.
    Complete,
    /// The client left.
    ClientGone,
    /// The worker's answer broke off.
    Broken,
    /// The router answered itself.
    Refused,
    /// A time limit ended it.
    TimedOut,
    /// The router's own end cut it off.
    Shutdown,
}

/// By what kind of plan a request was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    /// By one worker, or it came to none.
    Regular,
    /// By a prefill and a decode worker, or it failed for want of one of them.
    Pair,
}

impl Backend {
    pub(super) const ALL: [Self; 2] = [Self::Regular, Self::Pair];

    /// The gateway's word.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Regular => "regular",
            Self::Pair => "pd",
        }
    }
}

impl End {
    pub(super) const ALL: [Self; 6] =
        [Self::Complete, Self::ClientGone, Self::Broken, Self::Refused, Self::TimedOut, Self::Shutdown];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::ClientGone => "client_gone",
            Self::Broken => "broken",
            Self::Refused => "refused",
            Self::TimedOut => "timed_out",
            Self::Shutdown => "shutdown",
        }
    }
}

/// The label of what a retry was for; statuses that are not retried by default share one.
pub(super) fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Connect => "connect",
        Cause::StaleConnection => "stale_connection",
        Cause::Reset => "reset",
        Cause::Duplicate => "duplicate_rid",
        Cause::OtherRanks => "other_ranks",
        Cause::Status(408) => "status_408",
        Cause::Status(429) => "status_429",
        Cause::Status(500) => "status_500",
        Cause::Status(502) => "status_502",
        Cause::Status(503) => "status_503",
        Cause::Status(504) => "status_504",
        Cause::Status(_) => "status_other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_the_kind_of_who_is_to_blame() {
        for (status, kind) in [
            (200, None),
            (304, None),
            (400, Some("validation_error")),
            (408, Some("timeout")),
            (422, Some("validation_error")),
            (429, Some("overloaded")),
            (500, Some("backend_error")),
            (503, Some("backend_error")),
            (504, Some("timeout")),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(RequestError::of_status(status).map(RequestError::label), kind, "{status}");
        }
        for (refusal, kind) in [
            (Refusal::Unauthorized, "validation_error"),
            (Refusal::RequestTimeout, "timeout"),
            (Refusal::QueueTimeout { retry_after_secs: 1 }, "overloaded"),
            (Refusal::QueueFull { retry_after_secs: 1 }, "overloaded"),
            (Refusal::UnsupportedCoding, "validation_error"),
            (Refusal::ConnectFailed, "backend_error"),
            (Refusal::NoWorkers { retry_after_secs: 1 }, "no_workers"),
            (Refusal::UpstreamTimeout, "timeout"),
        ] {
            assert_eq!(RequestError::of_refusal(refusal).label(), kind, "{refusal:?}");
        }
    }
}
