//! Label values that are a choice among few, as types.

use router_core::Cause;

/// Kinds of failed requests, of which the first five are the gateway's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestError {
    NoWorkers,
    Timeout,
    Backend,
    Validation,
    Internal,
    Overloaded,
}

impl RequestError {
    pub(super) const ALL: [Self; 6] =
        [Self::NoWorkers, Self::Timeout, Self::Backend, Self::Validation, Self::Internal, Self::Overloaded];

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::NoWorkers => "no_workers",
            Self::Timeout => "timeout",
            Self::Backend => "backend_error",
            Self::Validation => "validation_error",
            Self::Internal => "internal_error",
            Self::Overloaded => "overloaded",
        }
    }

    /// The kind of an answer, by its status and by the router's own code, empty if it is a worker's; `None` if it is
    /// no failure.
    pub(crate) fn of_answer(status: u16, code: &str) -> Option<Self> {
        match (status, !code.is_empty()) {
            (..400, _) => None,
            _ if is_turned_away(code) => Some(Self::Overloaded),
            (408 | 504, _) => Some(Self::Timeout),
            (429, _) => Some(Self::Overloaded),
            (503, true) => Some(Self::NoWorkers),
            (500, true) => Some(Self::Internal),
            (501, true) | (..500, _) => Some(Self::Validation),
            _ => Some(Self::Backend),
        }
    }
}

/// Whether a refusal with this code is that of the limit on concurrent requests.
pub(crate) fn is_turned_away(code: &str) -> bool {
    matches!(code, "queue_full" | "queue_timeout")
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
            Cause::StaleConnection | Cause::Status(_) => None,
        }
    }

    /// The error behind the status that the router answers with in a worker's place.
    pub(crate) fn of_refusal(code: &str) -> Option<Self> {
        match code {
            "upstream_connect_failed" | "upstream_connect_timeout" => Some(Self::Connect),
            "upstream_connection_lost" => Some(Self::ConnectionLost),
            "upstream_timeout" | "upstream_first_byte_timeout" => Some(Self::Timeout),
            "upstream_invalid_answer" => Some(Self::InvalidAnswer),
            _ => None,
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
}

impl End {
    pub(super) const ALL: [Self; 5] =
        [Self::Complete, Self::ClientGone, Self::Broken, Self::Refused, Self::TimedOut];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::ClientGone => "client_gone",
            Self::Broken => "broken",
            Self::Refused => "refused",
            Self::TimedOut => "timed_out",
        }
    }
}

/// The label of what a retry was for; statuses that are not retried by default share one.
pub(super) fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Connect => "connect",
        Cause::StaleConnection => "stale_connection",
        Cause::Reset => "reset",
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
        for (status, code, kind) in [
            (200, "", None),
            (304, "", None),
            (400, "", Some("validation_error")),
            (401, "invalid_api_key", Some("validation_error")),
            (408, "request_timeout", Some("timeout")),
            (408, "queue_timeout", Some("overloaded")),
            (429, "queue_full", Some("overloaded")),
            (429, "", Some("overloaded")),
            (500, "", Some("backend_error")),
            (500, "internal", Some("internal_error")),
            (501, "unsupported_transfer_coding", Some("validation_error")),
            (502, "upstream_connect_failed", Some("backend_error")),
            (503, "", Some("backend_error")),
            (503, "no_workers", Some("no_workers")),
            (504, "upstream_timeout", Some("timeout")),
        ] {
            let found = RequestError::of_answer(status, code).map(RequestError::label);
            assert_eq!(found, kind, "{status} {code}");
        }
    }
}
