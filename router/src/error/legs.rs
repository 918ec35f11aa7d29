//! What goes wrong with one of the two legs of a request: the same as with a request that has one, by names of its own.

use http::StatusCode;
use router_core::Leg;

use super::{Refusal, Row};

/// One of the two legs of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    /// That which computes the prompt.
    Prefill,
    /// That which answers.
    Decode,
}

/// How a leg failed that had a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Connect,
    ConnectTimeout,
    FirstByteTimeout,
    Broken,
    Invalid,
    Timeout,
    GivenUp,
}

/// Why nobody can have a leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lack {
    /// There are no such workers.
    Workers,
    /// None of them is healthy.
    Healthy,
    /// The breakers of all healthy ones are open.
    BreakersOpen,
}

impl Half {
    /// `None` of one that is alone.
    pub(crate) fn of(leg: Leg) -> Option<Self> {
        match leg {
            Leg::Prefill => Some(Self::Prefill),
            Leg::Decode => Some(Self::Decode),
            Leg::Whole => None,
        }
    }
}

impl From<Half> for Leg {
    fn from(half: Half) -> Self {
        match half {
            Half::Prefill => Self::Prefill,
            Half::Decode => Self::Decode,
        }
    }
}

impl Fault {
    /// That behind a refusal, also where there is one leg only.
    pub(crate) fn of(refusal: Refusal) -> Option<Self> {
        Some(match refusal {
            Refusal::LegFailed { fault, .. } => fault,
            Refusal::HandOffFailed => Self::GivenUp,
            Refusal::ConnectFailed => Self::Connect,
            Refusal::ConnectTimeout => Self::ConnectTimeout,
            Refusal::FirstByteTimeout => Self::FirstByteTimeout,
            Refusal::UpstreamBroken => Self::Broken,
            Refusal::UpstreamInvalid => Self::Invalid,
            Refusal::UpstreamTimeout => Self::Timeout,
            _ => return None,
        })
    }
}

impl Lack {
    /// It, and when that may be otherwise, in seconds.
    pub(super) fn of(refusal: Refusal) -> Option<(Self, u64)> {
        Some(match refusal {
            Refusal::NoWorkers { retry_after_secs } => (Self::Workers, retry_after_secs),
            Refusal::NoneHealthy { retry_after_secs } => (Self::Healthy, retry_after_secs),
            Refusal::BreakersOpen { retry_after_secs } => (Self::BreakersOpen, retry_after_secs),
            _ => return None,
        })
    }
}

macro_rules! lack {
    ($leg:literal, $lack:expr) => {
        match $lack {
            Lack::Workers => Row::keeping(
                StatusCode::SERVICE_UNAVAILABLE,
                concat!("no_", $leg, "_workers"),
                concat!(
                    "The router has no ",
                    $leg,
                    " workers for this request. Its operator must name some with --",
                    $leg,
                    " or POST /workers."
                ),
            ),
            Lack::Healthy => Row::keeping(
                StatusCode::SERVICE_UNAVAILABLE,
                concat!("no_available_", $leg, "_workers"),
                concat!(
                    "None of the router's ",
                    $leg,
                    " workers for this request is healthy. Try again later; its operator \
                     sees which in /workers."
                ),
            ),
            Lack::BreakersOpen => Row::keeping(
                StatusCode::SERVICE_UNAVAILABLE,
                concat!($leg, "_circuit_breakers_open"),
                concat!(
                    "All of the router's ",
                    $leg,
                    " workers for this request have failed too often lately and are left \
                     alone for a while. Try again later; its operator finds the reasons in the log."
                ),
            ),
        }
    };
}

macro_rules! fault {
    ($leg:literal, $fault:expr) => {
        match $fault {
            Fault::Connect => Row::keeping(
                StatusCode::BAD_GATEWAY,
                concat!($leg, "_connect_failed"),
                concat!(
                    "The ", $leg, " worker assigned to this request could not be reached. Try again; the router's operator \
                     finds the reason in its log."
                ),
            ),
            Fault::ConnectTimeout => Row::keeping(
                StatusCode::GATEWAY_TIMEOUT,
                concat!($leg, "_connect_timeout"),
                concat!(
                    "The ", $leg, " worker assigned to this request did not accept a connection in time. Try again; the \
                     router's operator finds which in its log."
                ),
            ),
            Fault::FirstByteTimeout => Row::keeping(
                StatusCode::GATEWAY_TIMEOUT,
                concat!($leg, "_first_byte_timeout"),
                concat!(
                    "The ", $leg, " worker did not do its part of this request in time for a first byte. Try again later, \
                     or ask for less; the router's operator sets the limit with --first-byte-timeout-secs."
                ),
            ),
            Fault::Broken => Row::keeping(
                StatusCode::BAD_GATEWAY,
                concat!($leg, "_connection_lost"),
                concat!(
                    "The connection to the ", $leg, " worker was lost before the answer began. Try again; the router's \
                     operator finds the reason in its log."
                ),
            ),
            Fault::Invalid => Row::keeping(
                StatusCode::BAD_GATEWAY,
                concat!($leg, "_invalid_answer"),
                concat!(
                    "The answer of the ", $leg, " worker is of no use; the router's operator finds the reason in its log."
                ),
            ),
            Fault::GivenUp => Row::keeping(
                StatusCode::BAD_GATEWAY,
                concat!($leg, "_given_up"),
                concat!(
                    "The ", $leg, " worker has given up its part of this request. Try again; the router's operator finds \
                     the reason in the worker's log."
                ),
            ),
            Fault::Timeout => Row::keeping(
                StatusCode::GATEWAY_TIMEOUT,
                concat!($leg, "_timeout"),
                concat!(
                    "The ", $leg, " worker did not do its part of this request within the router's time limit. Try again \
                     later, or ask for less; the router's operator sets the limit with --request-timeout-secs."
                ),
            ),
        }
    };
}

pub(super) const fn lack(leg: Half, lack: Lack) -> Row {
    match leg {
        Half::Prefill => lack!("prefill", lack),
        Half::Decode => lack!("decode", lack),
    }
}

pub(super) const fn fault(leg: Half, fault: Fault) -> Row {
    match leg {
        Half::Prefill => fault!("prefill", fault),
        Half::Decode => fault!("decode", fault),
    }
}

/// By which code an answer of one of two legs is known that is none of success: the gateway's, where it has one.
/// `None` for one of success, and where there is one leg only.
pub(crate) fn code_of_answer(leg: Leg, status: StatusCode) -> Option<&'static str> {
    macro_rules! code {
        ($leg:literal) => {
            match status.as_u16() {
                400 => concat!($leg, "_bad_request"),
                404 => concat!($leg, "_not_found"),
                429 => concat!($leg, "_too_many_requests"),
                500 => concat!($leg, "_internal_error"),
                502 => concat!($leg, "_bad_gateway"),
                503 => concat!($leg, "_unavailable"),
                504 => concat!($leg, "_gateway_timeout"),
                _ => concat!($leg, "_error"),
            }
        };
    }
    match leg {
        _ if status.is_success() => None,
        Leg::Whole => None,
        Leg::Prefill => Some(code!("prefill")),
        Leg::Decode => Some(code!("decode")),
    }
}
