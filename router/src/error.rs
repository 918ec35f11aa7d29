//! The router's own refusals, and the one place that turns them into HTTP.
//!
//! Clients see a status, an OpenAI-shaped body and a stable code; what went wrong inside, and on which worker,
//! is for the log.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};

use crate::body::Body;

/// An answer, and the code of the refusal if the router made it itself.
pub(crate) type Answer = (Response<Body>, &'static str);

/// Carries the code of a refusal.
pub(crate) const ERROR_CODE: HeaderName = HeaderName::from_static("x-router-error-code");
/// The same under the name that the gateway's users know.
pub(crate) const GATEWAY_ERROR_CODE: HeaderName = HeaderName::from_static("x-smg-error-code");

/// Why the router answered in a worker's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Refusal {
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
    /// The router was started without workers.
    NoWorkers,
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
    TargetUnavailable,
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
    /// The status, the stable code, OpenAI's error type and the text for the client.
    const fn parts(self) -> (StatusCode, &'static str, &'static str, &'static str) {
        const CLIENT: &str = "invalid_request_error";
        const SERVER: &str = "server_error";
        match self {
            Self::NotFound => (StatusCode::NOT_FOUND, "not_found", CLIENT, "The router has no such path."),
            Self::MethodNotAllowed { .. } => (
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                CLIENT,
                "This path is not served with this method.",
            ),
            Self::PayloadTooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "payload_too_large",
                CLIENT,
                "The request body is longer than the router accepts.",
            ),
            Self::BadBody => (
                StatusCode::BAD_REQUEST,
                "body_not_received",
                CLIENT,
                "The request body could not be received in full.",
            ),
            Self::UnsupportedCoding => (
                StatusCode::NOT_IMPLEMENTED,
                "unsupported_transfer_coding",
                CLIENT,
                "The router takes no Transfer-Encoding but chunked. Name the body's coding in Content-Encoding.",
            ),
            Self::RequestTimeout => (
                StatusCode::REQUEST_TIMEOUT,
                "request_timeout",
                CLIENT,
                "The request body did not come in time.",
            ),
            Self::Unauthorized => (
                StatusCode::UNAUTHORIZED,
                "invalid_api_key",
                CLIENT,
                "The API key is missing or wrong. Send it as `Authorization: Bearer KEY`.",
            ),
            Self::NoWorkers => (
                StatusCode::SERVICE_UNAVAILABLE,
                "no_workers",
                SERVER,
                "The router has no workers. Its operator must name some with --worker-urls.",
            ),
            Self::NoneHealthy { .. } => (
                StatusCode::SERVICE_UNAVAILABLE,
                "no_available_workers",
                SERVER,
                "None of the router's workers is healthy. Try again later; its operator sees which in /workers.",
            ),
            Self::BreakersOpen { .. } => (
                StatusCode::SERVICE_UNAVAILABLE,
                "circuit_breakers_open",
                SERVER,
                "All of the router's workers have failed too often lately and are left alone for a while. Try again \
                 later.",
            ),
            Self::UnknownModel => (
                StatusCode::NOT_FOUND,
                "model_not_found",
                CLIENT,
                "None of the router's workers serves this model.",
            ),
            Self::QueueFull { .. } => (
                StatusCode::TOO_MANY_REQUESTS,
                "queue_full",
                "rate_limit_error",
                "The router has as many requests under way and waiting as it may. Try again later.",
            ),
            Self::QueueTimeout { .. } => (
                StatusCode::REQUEST_TIMEOUT,
                "queue_timeout",
                "rate_limit_error",
                "The request waited in the router's queue for longer than it may. Try again later.",
            ),
            Self::TargetUnavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "target_worker_unavailable",
                SERVER,
                "The worker named by X-SMG-Target-Worker is unknown or unhealthy. Name another, or leave the header \
                 out.",
            ),
            Self::ConnectFailed => (
                StatusCode::BAD_GATEWAY,
                "upstream_connect_failed",
                SERVER,
                "The worker assigned to this request could not be reached.",
            ),
            Self::ConnectTimeout => (
                StatusCode::GATEWAY_TIMEOUT,
                "upstream_connect_timeout",
                SERVER,
                "The worker assigned to this request did not accept a connection in time.",
            ),
            Self::FirstByteTimeout => (
                StatusCode::GATEWAY_TIMEOUT,
                "upstream_first_byte_timeout",
                SERVER,
                "The worker did not begin to answer in time.",
            ),
            Self::UpstreamBroken => (
                StatusCode::BAD_GATEWAY,
                "upstream_connection_lost",
                SERVER,
                "The worker's connection was lost before it answered.",
            ),
            Self::UpstreamInvalid => (
                StatusCode::BAD_GATEWAY,
                "upstream_invalid_answer",
                SERVER,
                "The worker's answer cannot be passed on.",
            ),
            Self::UpstreamTimeout => (
                StatusCode::GATEWAY_TIMEOUT,
                "upstream_timeout",
                SERVER,
                "The worker did not answer in time.",
            ),
        }
    }

    /// The stable code, for headers and metric labels.
    const fn code(self) -> &'static str {
        self.parts().1
    }

    /// The answer to the client, with the code.
    pub(crate) fn answer(self) -> Answer {
        (self.response(), self.code())
    }

    fn response(self) -> Response<Body> {
        let (status, code, kind, message) = self.parts();
        let body = serde_json::json!({"error": {"message": message, "type": kind, "code": code}});
        let mut response = Response::new(Body::own(Bytes::from(body.to_string())));
        *response.status_mut() = status;
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
            Self::NoneHealthy { retry_after_secs }
            | Self::BreakersOpen { retry_after_secs }
            | Self::QueueFull { retry_after_secs }
            | Self::QueueTimeout { retry_after_secs } => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(retry_after_secs));
            }
            // What is left of the body is not read, so the connection cannot serve another request.
            Self::Unauthorized
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
