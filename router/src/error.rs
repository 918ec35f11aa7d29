//! The router's own refusals, and the one place that turns them into HTTP.
//!
//! Clients see a status, an OpenAI-shaped body and a stable code; what went wrong inside, and on which worker,
//! is for the log.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use router_core::Leg;

mod legs;

pub(crate) use legs::{Fault, Half, Lack, code_of_answer};

use crate::body::Body;

/// An answer, and the refusal if it is one of the router's own.
pub(crate) type Answer = (Response<Body>, Option<Refusal>);

/// Carries the code of a refusal.
pub(crate) const ERROR_CODE: HeaderName = HeaderName::from_static("x-router-error-code");
/// The same under the name that the gateway's users know.
pub(crate) const GATEWAY_ERROR_CODE: HeaderName = HeaderName::from_static("x-smg-error-code");

/// Why the router answered in a worker's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// What came is not the head of a request.
    HeadInvalid,
    /// The head is longer than `--max-header-bytes`, or has too many fields.
    HeadTooLarge,
    /// The path and its query are too long.
    UriTooLong,
    /// The head did not come in full within `--header-read-timeout-secs`.
    HeadTimeout,
    /// The path is none of ours.
    NotFound,
    /// The path exists, but not with this method.
    MethodNotAllowed { allowed: &'static str },
    /// The body is longer than `--max-payload-size`.
    PayloadTooLarge,
    /// The body could not be received.
    BadBody,
    /// The body is in a transfer coding besides `chunked`.
    UnsupportedCoding,
    /// The body was not received within `--request-timeout-secs`.
    RequestTimeout,
    /// The client did not show `--api-key`.
    Unauthorized,
    /// The operator's key does not go so far.
    Forbidden,
    /// No worker answered a question that any of them could.
    NoWorkerAnswered,
    /// Some of the workers cannot generate.
    WorkersUnwell,
    /// The router was started without workers.
    NoWorkers { retry_after_secs: u64 },
    /// None of the workers is healthy; one may be in so many seconds.
    NoneHealthy { retry_after_secs: u64 },
    /// There are healthy workers, and the breakers of all of them are open for so long.
    BreakersOpen { retry_after_secs: u64 },
    /// The workers serve several models, and this is none of them.
    UnknownModel,
    /// `--max-concurrent-requests` are under way and the queue is full.
    QueueFull { retry_after_secs: u64 },
    /// It waited in the queue for `--queue-timeout-secs`.
    QueueTimeout { retry_after_secs: u64 },
    /// The request names a worker that cannot have it.
    TargetUnavailable { retry_after_secs: u64 },
    /// The assigned worker did not accept a connection.
    ConnectFailed,
    /// It did not do so within `--connect-timeout-secs`.
    ConnectTimeout,
    /// No response head within `--first-byte-timeout-secs`.
    FirstByteTimeout,
    /// The worker's connection broke before a response head came.
    UpstreamBroken,
    /// What came back was no answer to the request.
    UpstreamInvalid,
    /// No response head within `--request-timeout-secs`.
    UpstreamTimeout,
    /// The request has been here before, or in so many other routers.
    Loop,
    /// The router ends, and there was no answer yet.
    Stopping { retry_after_secs: u64 },
    /// None of the workers that serve the model is healthy, and there are others.
    ModelDown { retry_after_secs: u64 },
    /// Nobody can have one leg of a request.
    LegUnavailable { leg: Half, lack: Lack, retry_after_secs: u64 },
    /// One leg of a request failed.
    LegFailed { leg: Half, fault: Fault },
    /// The prefill worker has not answered, and the decode worker did not get from it what it needs.
    HandOffFailed,
    /// Two workers came to no first byte within `--first-byte-timeout-secs`, and nobody knows which of them hangs.
    PairFirstByteTimeout,
    /// The same within `--request-timeout-secs`.
    PairTimeout,
    /// Every prefill worker has as many decode streams as `--decode-dispatch-limit` allows.
    DispatchLimit { retry_after_secs: u64 },
    /// The path is none that a prefill and a decode worker could serve together, and there are no regular workers.
    NeedsRegular,
    /// The body is to be changed and is no JSON object.
    NoObject,
    /// The body stands for more requests than two workers can be told of.
    TooManyItems,
}

/// What a refusal looks like from outside.
struct Row {
    status: StatusCode,
    /// Stable, for programs.
    code: &'static str,
    /// For people: what is wrong, and what helps.
    message: &'static str,
    /// What is left of the request's body is not read, so the connection cannot serve another request.
    closes: bool,
}

/// As much of a model's name as is repeated.
const NAME_CHARS: usize = 100;

impl Refusal {
    /// The code by which a router knows that it has asked itself.
    pub(crate) const LOOP: &'static str = "loop_detected";

    /// Whether a worker that comes would change it.
    pub(crate) fn is_for_want_of_workers(self) -> bool {
        matches!(
            self,
            Self::NoWorkers { .. }
                | Self::NoneHealthy { .. }
                | Self::ModelDown { .. }
                | Self::UnknownModel
                | Self::LegUnavailable { lack: Lack::Workers | Lack::Healthy, .. }
        )
    }

    /// The leg that it is about, where there are two.
    pub(crate) fn leg(self) -> Leg {
        match self {
            Self::LegFailed { leg, .. } | Self::LegUnavailable { leg, .. } => leg.into(),
            Self::DispatchLimit { .. } | Self::HandOffFailed => Leg::Prefill,
            _ => Leg::Whole,
        }
    }

    /// The same about one leg of a request.
    pub(crate) fn of_leg(self, leg: Leg) -> Self {
        let (Some(leg), false) = (Half::of(leg), self == Self::HandOffFailed) else { return self };
        match (Fault::of(self), Lack::of(self)) {
            (Some(fault), _) => Self::LegFailed { leg, fault },
            (None, Some((lack, retry_after_secs))) => Self::LegUnavailable { leg, lack, retry_after_secs },
            (None, None) => self,
        }
    }

    /// All that there is to know of it.
    const fn row(self) -> Row {
        use StatusCode as S;
        match self {
            Self::HeadInvalid => Row::closing(
                S::BAD_REQUEST,
                "invalid_request_head",
                "What came is not the head of an HTTP/1.1 request. Send one, without TLS where the router's URL begins with \
                 http://.",
            ),
            Self::HeadTooLarge => Row::closing(
                S::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "request_head_too_large",
                "The request's header fields are longer or more than the router accepts. Send less, or have its operator \
                 raise --max-header-bytes.",
            ),
            Self::UriTooLong => Row::closing(
                S::URI_TOO_LONG,
                "uri_too_long",
                "The request's path and query are longer than the router accepts. Send what is long in the body.",
            ),
            Self::HeadTimeout => Row::closing(
                S::REQUEST_TIMEOUT,
                "request_head_timeout",
                "The request's header fields did not come in time. Send them at once; the router's operator sets the limit \
                 with --header-read-timeout-secs.",
            ),
            Self::NotFound => Row::keeping(S::NOT_FOUND, "not_found", "The router has no such path."),
            Self::MethodNotAllowed { .. } => Row::keeping(
                S::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "This path is not served with this method; the Allow header names those that are.",
            ),
            Self::PayloadTooLarge => Row::closing(
                S::PAYLOAD_TOO_LARGE,
                "payload_too_large",
                "The request body is longer than the router accepts. Send less, or have its operator raise \
                 --max-payload-size.",
            ),
            Self::BadBody => Row::closing(
                S::BAD_REQUEST,
                "body_not_received",
                "The request body could not be received in full. Send as much as Content-Length says, or well-formed \
                 chunks to the last.",
            ),
            Self::UnsupportedCoding => Row::closing(
                S::NOT_IMPLEMENTED,
                "unsupported_transfer_coding",
                "The router takes no Transfer-Encoding but chunked. Name the body's coding in Content-Encoding.",
            ),
            Self::RequestTimeout => Row::closing(
                S::REQUEST_TIMEOUT,
                "request_timeout",
                "The request body did not come in time. Send it without pauses; the router's operator sets the limits with \
                 --body-idle-timeout-secs and --request-timeout-secs.",
            ),
            Self::Unauthorized => Row::closing(
                S::UNAUTHORIZED,
                "invalid_api_key",
                "The API key is missing or wrong. Send it as `Authorization: Bearer KEY`.",
            ),
            Self::Forbidden => Row::closing(
                S::FORBIDDEN,
                "insufficient_role",
                "This key may look, but not change anything. Use one whose role is admin, as --control-plane-api-keys gives \
                 it.",
            ),
            Self::NoWorkerAnswered => Row::keeping(
                S::SERVICE_UNAVAILABLE,
                "no_worker_response",
                "None of the router's workers answered this question. Try again; the router's operator finds the reasons in \
                 its log.",
            ),
            Self::WorkersUnwell => Row::keeping(
                S::SERVICE_UNAVAILABLE,
                "workers_unwell",
                "Not every healthy worker generated a token; `failed` names those that did not.",
            ),
            Self::NoWorkers { .. } => Row::keeping(
                S::SERVICE_UNAVAILABLE,
                "no_workers",
                "The router has no workers. Its operator must name some with --worker-urls or POST /workers.",
            ),
            Self::NoneHealthy { .. } => Row::keeping(
                S::SERVICE_UNAVAILABLE,
                "no_available_workers",
                "None of the router's workers for this is healthy. Try again later; its operator sees which in /workers.",
            ),
            Self::BreakersOpen { .. } => Row::keeping(
                S::SERVICE_UNAVAILABLE,
                "circuit_breakers_open",
                "All of the router's workers for this have failed too often lately and are left alone for a while. Try \
                 again later; its operator finds the reasons in the log.",
            ),
            Self::UnknownModel => Row::keeping(
                S::NOT_FOUND,
                "model_not_found",
                "None of the router's workers serves this model. /v1/models names those that there are; the router's \
                 operator sees in /workers who serves which.",
            ),
            Self::QueueFull { .. } => Row::keeping(
                S::TOO_MANY_REQUESTS,
                "queue_full",
                "The router has as many requests under way and waiting as it may. Try again later.",
            ),
            Self::QueueTimeout { .. } => Row::keeping(
                S::REQUEST_TIMEOUT,
                "queue_timeout",
                "The request waited in the router's queue for longer than it may. Try again later.",
            ),
            Self::TargetUnavailable { .. } => Row::keeping(
                S::SERVICE_UNAVAILABLE,
                "target_worker_unavailable",
                "The worker named by X-SMG-Target-Worker is unknown or unhealthy. Name another, or leave the header out.",
            ),
            Self::ConnectFailed => Row::keeping(
                S::BAD_GATEWAY,
                "upstream_connect_failed",
                "The worker assigned to this request could not be reached. Try again; the router's operator finds the reason \
                 in its log.",
            ),
            Self::ConnectTimeout => Row::keeping(
                S::GATEWAY_TIMEOUT,
                "upstream_connect_timeout",
                "The worker assigned to this request did not accept a connection in time. Try again; the router's operator \
                 finds which in its log.",
            ),
            Self::FirstByteTimeout => Row::keeping(
                S::GATEWAY_TIMEOUT,
                "upstream_first_byte_timeout",
                "The worker did not begin to answer in time. Try again later, or ask for less; the router's operator sets \
                 the limit with --first-byte-timeout-secs.",
            ),
            Self::UpstreamBroken => Row::keeping(
                S::BAD_GATEWAY,
                "upstream_connection_lost",
                "The worker's connection was lost before it answered. Try again; the router's operator finds the reason in \
                 its log.",
            ),
            Self::UpstreamInvalid => Row::keeping(
                S::BAD_GATEWAY,
                "upstream_invalid_answer",
                "The worker's answer cannot be passed on; the router's operator finds the reason in its log.",
            ),
            Self::UpstreamTimeout => Row::keeping(
                S::GATEWAY_TIMEOUT,
                "upstream_timeout",
                "The worker did not answer within the router's time limit. Try again later, or ask for less; the router's \
                 operator sets the limit with --request-timeout-secs.",
            ),
            Self::Loop => Row::closing(
                S::LOOP_DETECTED,
                Self::LOOP,
                "The request has come to this router before, or through more routers than make sense: a router's worker \
                 leads back to it. Its operator must give the engine's own port in place of the router's; /workers lists \
                 the URLs.",
            ),
            Self::Stopping { .. } => Row::closing(
                S::SERVICE_UNAVAILABLE,
                "router_stopping",
                "The router stops, and there was no answer within the time that is left to running requests. Send it \
                 again, to another router if there is one.",
            ),
            Self::ModelDown { .. } => Row::keeping(
                S::SERVICE_UNAVAILABLE,
                "no_available_workers",
                "None of the router's workers that serve this model is healthy. Try again later; its operator sees which \
                 in /workers.",
            ),
            Self::LegUnavailable { leg, lack, .. } => legs::lack(leg, lack),
            Self::LegFailed { leg, fault } => legs::fault(leg, fault),
            Self::HandOffFailed => Row::keeping(
                S::BAD_GATEWAY,
                "prefill_handoff_failed",
                "The decode worker got nothing from the prefill worker assigned to this request, which has not answered. Try \
                 again; the router's operator finds which in its log.",
            ),
            Self::PairFirstByteTimeout => Row::keeping(
                S::GATEWAY_TIMEOUT,
                "pair_first_byte_timeout",
                "The two workers assigned to this request did not begin to answer in time; one of them hangs or has too much \
                 to do. Try again later, or ask for less; the router's operator finds both in its log, and sets the limit \
                 with --first-byte-timeout-secs.",
            ),
            Self::PairTimeout => Row::keeping(
                S::GATEWAY_TIMEOUT,
                "pair_timeout",
                "The two workers assigned to this request did not answer within the router's time limit. Try again later, or \
                 ask for less; the router's operator finds both in its log, and sets the limit with \
                 --request-timeout-secs.",
            ),
            Self::DispatchLimit { .. } => Row::keeping(
                S::SERVICE_UNAVAILABLE,
                "decode_dispatch_limit",
                "Every prefill worker has as many decode streams as it may, and none ended within the request's time. Try \
                 again later; the router's operator sets the limit with --decode-dispatch-limit.",
            ),
            Self::NeedsRegular => Row::keeping(
                S::NOT_IMPLEMENTED,
                "needs_regular_worker",
                "A prefill and a decode worker cannot serve this path together. The router's operator must add a regular worker \
                 for it.",
            ),
            Self::NoObject => Row::keeping(
                S::BAD_REQUEST,
                "body_not_an_object",
                "The request body is no JSON object. Two workers serve the request together, which the router has to tell \
                 them in it.",
            ),
            Self::TooManyItems => Row::keeping(
                S::BAD_REQUEST,
                "too_many_answers",
                "The request has more than 16384 prompts, or asks for more than so many answers to one. Send several \
                 requests.",
            ),
        }
    }

    /// The stable code, for programs.
    pub(crate) const fn code(self) -> &'static str {
        self.row().code
    }

    /// OpenAI's error type.
    fn kind(self) -> &'static str {
        match self {
            Self::QueueFull { .. } | Self::QueueTimeout { .. } => "rate_limit_error",
            _ if self.row().status.is_client_error()
                || matches!(self, Self::UnsupportedCoding | Self::NeedsRegular) =>
            {
                "invalid_request_error"
            }
            _ => "server_error",
        }
    }

    /// When it may be otherwise, in seconds.
    const fn retry_after_secs(self) -> Option<u64> {
        match self {
            Self::NoWorkers { retry_after_secs }
            | Self::TargetUnavailable { retry_after_secs }
            | Self::NoneHealthy { retry_after_secs }
            | Self::ModelDown { retry_after_secs }
            | Self::Stopping { retry_after_secs }
            | Self::BreakersOpen { retry_after_secs }
            | Self::QueueFull { retry_after_secs }
            | Self::LegUnavailable { retry_after_secs, .. }
            | Self::DispatchLimit { retry_after_secs }
            | Self::QueueTimeout { retry_after_secs } => Some(retry_after_secs),
            _ => None,
        }
    }

    pub(crate) fn answer(self) -> Answer {
        self.answer_saying(self.row().message)
    }

    /// The same in words that fit the request better.
    pub(crate) fn answer_saying(self, message: &str) -> Answer {
        (self.response(&self.body(message)), Some(self))
    }

    /// The same about a request for this model, where one is to blame or missed. The name is the client's own text.
    pub(crate) fn answer_for(self, model: Option<&str>) -> Answer {
        let (before, after) = match self {
            Self::UnknownModel => (
                "None of the router's workers serves the model",
                "/v1/models names those that there are; the router's operator sees in /workers who serves which.",
            ),
            Self::ModelDown { .. } => (
                "None of the router's workers is healthy that serve the model",
                "Try again later; the router's operator sees which in /workers.",
            ),
            _ => return self.answer(),
        };
        let Some(model) = model else { return self.answer() };
        let mut name: String = model.chars().take(NAME_CHARS).collect();
        if name.len() < model.len() {
            name.push('…');
        }
        self.answer_saying(&format!("{before} `{name}`. {after}"))
    }

    /// The same with one more member beside `error`.
    pub(crate) fn answer_with(self, name: &str, value: serde_json::Value) -> Answer {
        let mut body = self.body(self.row().message);
        body[name] = value;
        (self.response(&body), Some(self))
    }

    fn body(self, message: &str) -> serde_json::Value {
        serde_json::json!({"error": {"message": message, "type": self.kind(), "code": self.code()}})
    }

    fn response(self, body: &serde_json::Value) -> Response<Body> {
        let row = self.row();
        let mut response = Response::new(Body::own(Bytes::from(body.to_string())));
        *response.status_mut() = row.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ERROR_CODE, HeaderValue::from_static(row.code));
        headers.insert(GATEWAY_ERROR_CODE, HeaderValue::from_static(row.code));
        if let Self::MethodNotAllowed { allowed } = self {
            headers.insert(header::ALLOW, HeaderValue::from_static(allowed));
        }
        if self == Self::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after_secs() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if row.closes {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

// === impl Row ===

impl Row {
    const fn keeping(status: StatusCode, code: &'static str, message: &'static str) -> Self {
        Self { status, code, message, closes: false }
    }

    const fn closing(status: StatusCode, code: &'static str, message: &'static str) -> Self {
        Self { closes: true, ..Self::keeping(status, code, message) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_is_told_is_the_one_that_holds() {
        let limit = protocol::pd::MAX_ITEMS.to_string();
        assert!(Refusal::TooManyItems.row().message.contains(&limit));
    }
}
