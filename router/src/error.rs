//! The router's own refusals, and the one place that turns them into HTTP.
//!
//! Clients see a status, an OpenAI-shaped body and a stable code; what went wrong inside, and on which worker,
//! is for the log.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};

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
}

impl Refusal {
    /// Whether a worker that comes would change it.
    pub(crate) fn is_for_want_of_workers(self) -> bool {
        matches!(self, Self::NoWorkers { .. } | Self::NoneHealthy { .. } | Self::UnknownModel)
    }

    const fn status(self) -> StatusCode {
        match self {
            Self::NotFound | Self::UnknownModel => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BadBody | Self::HeadInvalid => StatusCode::BAD_REQUEST,
            Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::UriTooLong => StatusCode::URI_TOO_LONG,
            Self::UnsupportedCoding => StatusCode::NOT_IMPLEMENTED,
            Self::RequestTimeout | Self::HeadTimeout | Self::QueueTimeout { .. } => {
                StatusCode::REQUEST_TIMEOUT
            }
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::QueueFull { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::NoWorkers { .. }
            | Self::NoneHealthy { .. }
            | Self::BreakersOpen { .. }
            | Self::TargetUnavailable { .. }
            | Self::NoWorkerAnswered
            | Self::WorkersUnwell => StatusCode::SERVICE_UNAVAILABLE,
            Self::ConnectFailed | Self::UpstreamBroken | Self::UpstreamInvalid => StatusCode::BAD_GATEWAY,
            Self::ConnectTimeout | Self::FirstByteTimeout | Self::UpstreamTimeout => {
                StatusCode::GATEWAY_TIMEOUT
            }
        }
    }

    /// The stable code, for programs.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::HeadInvalid => "invalid_request_head",
            Self::HeadTooLarge => "request_head_too_large",
            Self::UriTooLong => "uri_too_long",
            Self::HeadTimeout => "request_head_timeout",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed { .. } => "method_not_allowed",
            Self::PayloadTooLarge => "payload_too_large",
            Self::BadBody => "body_not_received",
            Self::UnsupportedCoding => "unsupported_transfer_coding",
            Self::RequestTimeout => "request_timeout",
            Self::Unauthorized => "invalid_api_key",
            Self::Forbidden => "insufficient_role",
            Self::NoWorkerAnswered => "no_worker_response",
            Self::WorkersUnwell => "workers_unwell",
            Self::NoWorkers { .. } => "no_workers",
            Self::NoneHealthy { .. } => "no_available_workers",
            Self::BreakersOpen { .. } => "circuit_breakers_open",
            Self::UnknownModel => "model_not_found",
            Self::QueueFull { .. } => "queue_full",
            Self::QueueTimeout { .. } => "queue_timeout",
            Self::TargetUnavailable { .. } => "target_worker_unavailable",
            Self::ConnectFailed => "upstream_connect_failed",
            Self::ConnectTimeout => "upstream_connect_timeout",
            Self::FirstByteTimeout => "upstream_first_byte_timeout",
            Self::UpstreamBroken => "upstream_connection_lost",
            Self::UpstreamInvalid => "upstream_invalid_answer",
            Self::UpstreamTimeout => "upstream_timeout",
        }
    }

    /// OpenAI's error type.
    fn kind(self) -> &'static str {
        match self {
            Self::QueueFull { .. } | Self::QueueTimeout { .. } => "rate_limit_error",
            _ if self.status().is_client_error() || self == Self::UnsupportedCoding => {
                "invalid_request_error"
            }
            _ => "server_error",
        }
    }

    /// The text for the client: what is wrong, and what helps.
    const fn message(self) -> &'static str {
        match self {
            Self::HeadInvalid => "What came is not the head of an HTTP/1.1 request.",
            Self::HeadTooLarge => {
                "The request's header fields are longer or more than the router accepts. Send less, or have its \
                 operator raise --max-header-bytes."
            }
            Self::UriTooLong => "The request's path and query are longer than the router accepts.",
            Self::HeadTimeout => {
                "The request's header fields did not come in time. Send them at once; the router's operator sets the \
                 limit with --header-read-timeout-secs."
            }
            Self::NotFound => "The router has no such path.",
            Self::MethodNotAllowed { .. } => {
                "This path is not served with this method; the Allow header names those that are."
            }
            Self::PayloadTooLarge => {
                "The request body is longer than the router accepts. Send less, or have its operator raise \
                 --max-payload-size."
            }
            Self::BadBody => "The request body could not be received in full.",
            Self::UnsupportedCoding => {
                "The router takes no Transfer-Encoding but chunked. Name the body's coding in Content-Encoding."
            }
            Self::RequestTimeout => "The request body did not come in time.",
            Self::Unauthorized => "The API key is missing or wrong. Send it as `Authorization: Bearer KEY`.",
            Self::Forbidden => {
                "This key may look, but not change anything. Use one whose role is admin, as --control-plane-api-keys \
                 gives it."
            }
            Self::NoWorkerAnswered => {
                "None of the router's workers answered this question. Try again; the router's operator finds the \
                 reasons in its log."
            }
            Self::WorkersUnwell => {
                "Not every healthy worker generated a token; `failed` names those that did not."
            }
            Self::NoWorkers { .. } => {
                "The router has no workers. Its operator must name some with --worker-urls or POST /workers."
            }
            Self::NoneHealthy { .. } => {
                "None of the router's workers is healthy. Try again later; its operator sees which in /workers."
            }
            Self::BreakersOpen { .. } => {
                "All of the router's workers have failed too often lately and are left alone for a while. Try again \
                 later; its operator finds the reasons in the log."
            }
            Self::UnknownModel => {
                "None of the router's workers serves this model. Its operator sees which models there are in /workers."
            }
            Self::QueueFull { .. } => {
                "The router has as many requests under way and waiting as it may. Try again later."
            }
            Self::QueueTimeout { .. } => {
                "The request waited in the router's queue for longer than it may. Try again later."
            }
            Self::TargetUnavailable { .. } => {
                "The worker named by X-SMG-Target-Worker is unknown or unhealthy. Name another, or leave the header \
                 out."
            }
            Self::ConnectFailed => {
                "The worker assigned to this request could not be reached. Try again; the router's operator finds the \
                 reason in its log."
            }
            Self::ConnectTimeout => {
                "The worker assigned to this request did not accept a connection in time. Try again; the router's \
                 operator finds which in its log."
            }
            Self::FirstByteTimeout => {
                "The worker did not begin to answer in time. Try again later, or ask for less."
            }
            Self::UpstreamBroken => {
                "The worker's connection was lost before it answered. Try again; the router's operator finds the \
                 reason in its log."
            }
            Self::UpstreamInvalid => {
                "The worker's answer cannot be passed on; the router's operator finds the reason in its log."
            }
            Self::UpstreamTimeout => {
                "The worker did not answer within the router's time limit. Try again later, or ask for less."
            }
        }
    }

    pub(crate) fn answer(self) -> Answer {
        (self.response(self.body()), Some(self))
    }

    /// The same with one more member beside `error`.
    pub(crate) fn answer_with(self, name: &str, value: serde_json::Value) -> Answer {
        let mut body = self.body();
        body[name] = value;
        (self.response(body), Some(self))
    }

    fn body(self) -> serde_json::Value {
        serde_json::json!({"error": {"message": self.message(), "type": self.kind(), "code": self.code()}})
    }

    fn response(self, body: serde_json::Value) -> Response<Body> {
        let code = self.code();
        let mut response = Response::new(Body::own(Bytes::from(body.to_string())));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ERROR_CODE, HeaderValue::from_static(code));
        headers.insert(GATEWAY_ERROR_CODE, HeaderValue::from_static(code));
        if self == Self::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        match self {
            Self::MethodNotAllowed { allowed } => {
                headers.insert(header::ALLOW, HeaderValue::from_static(allowed));
            }
            Self::NoWorkers { retry_after_secs }
            | Self::TargetUnavailable { retry_after_secs }
            | Self::NoneHealthy { retry_after_secs }
            | Self::BreakersOpen { retry_after_secs }
            | Self::QueueFull { retry_after_secs }
            | Self::QueueTimeout { retry_after_secs } => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(retry_after_secs));
            }
            // What is left of the body is not read, so the connection cannot serve another request.
            Self::HeadInvalid
            | Self::HeadTooLarge
            | Self::UriTooLong
            | Self::HeadTimeout
            | Self::Unauthorized
            | Self::Forbidden
            | Self::PayloadTooLarge
            | Self::BadBody
            | Self::UnsupportedCoding
            | Self::RequestTimeout => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}
