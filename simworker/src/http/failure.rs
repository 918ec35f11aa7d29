//! Failures and the forms that SGLang gives them.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hyper::header::CONTENT_TYPE;
use protocol::openai::ErrorBody;
use protocol::sglang::{NativeError, NativeErrorMessage};

use super::json_text;

/// Whose form of error a route has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Api {
    /// SGLang's own routes.
    Native,
    /// The routes below `/v1`.
    OpenAi,
    /// `/v1/responses`, whose errors are nested like OpenAI's own.
    Responses,
}

impl Api {
    /// That of the route at this path.
    pub(super) fn of_path(path: &str) -> Self {
        match path {
            "/v1/responses" => Self::Responses,
            _ if path.starts_with("/v1/") => Self::OpenAi,
            _ => Self::Native,
        }
    }

    /// The answer, or the refusal in this form.
    pub(super) fn respond(self, answer: Result<Response, Failure>) -> Response {
        answer.unwrap_or_else(|failure| failure.response(self))
    }
}

/// Who refuses a request. It decides the form of the error and its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The web framework: the body or a header is not what the route declares. No stream begins then.
    Schema,
    /// The front end, which has read the request.
    FrontEnd,
    /// The front end, by way of an HTTP status of its own.
    Status,
    /// The engine's scheduler, which gave up on the request. A stream has begun by then.
    Scheduler,
}

/// A request that gets no answer of the usual kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) status: u16,
    pub(super) message: String,
    pub(super) origin: Origin,
}

impl Failure {
    /// A request that is wrong in itself: 400, never 422.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self { status: 400, message: message.into(), origin: Origin::FrontEnd }
    }

    /// A request that does not have the form that its route declares.
    pub(super) fn schema(message: impl Into<String>) -> Self {
        Self { origin: Origin::Schema, ..Self::bad_request(message) }
    }

    /// The same, said with an HTTP status.
    pub(super) fn status(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), origin: Origin::Status }
    }

    /// There is no such earlier response.
    pub(super) fn unknown_response(message: impl Into<String>) -> Self {
        Self { status: 404, message: message.into(), origin: Origin::FrontEnd }
    }

    /// What the worker said about a request that it ended or did not take.
    pub(super) fn engine(status: u16, message: impl Into<String>, by_scheduler: bool) -> Self {
        let origin = if by_scheduler { Origin::Scheduler } else { Origin::FrontEnd };
        Self { status, message: message.into(), origin }
    }

    /// The scheduler gave up on the request, rather than the front end refusing it.
    pub(super) fn is_by_scheduler(&self) -> bool {
        self.origin == Origin::Scheduler
    }

    /// A field within another one, whose types nobody declares: what is wrong with it shows later.
    pub(super) fn later(self) -> Self {
        Self { origin: Origin::FrontEnd, ..self }
    }

    /// The whole answer.
    pub(super) fn response(&self, api: Api) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let is_native = self.status == 400 && matches!(self.origin, Origin::FrontEnd | Origin::Scheduler);
        let text = match api {
            Api::Native if is_native => {
                json_text(&NativeError { error: NativeErrorMessage { message: &self.message } })
            }
            Api::Native | Api::OpenAi => self.with_body(|body| json_text(&body)),
            Api::Responses => self.nested(),
        };
        (status, [(CONTENT_TYPE, "application/json")], text).into_response()
    }

    /// Gives `write` the body of the OpenAI routes, which SGLang's own use too for all but most of status 400.
    pub(super) fn with_body<T>(&self, write: impl FnOnce(ErrorBody<'_>) -> T) -> T {
        with_error_body(self.status, &self.message, self.kind(), write)
    }

    /// Gives `write` the error of a frame inside a stream: one of the scheduler has the name of its status for a type.
    pub(super) fn with_frame_body<T>(&self, write: impl FnOnce(ErrorBody<'_>) -> T) -> T {
        let kind = if self.is_by_scheduler() { Some(status_name(self.status)) } else { self.kind() };
        with_error_body(self.status, &self.message, kind, write)
    }

    /// The type, where it is not the usual one of the status.
    fn kind(&self) -> Option<&'static str> {
        match self.origin {
            Origin::Schema => Some("Bad Request"),
            Origin::Status if self.status == 400 => Some("400"),
            Origin::FrontEnd | Origin::Status | Origin::Scheduler => None,
        }
    }

    fn nested(&self) -> Vec<u8> {
        let kind = match (self.origin, self.status) {
            (Origin::Schema, _) => "Bad Request",
            (Origin::Status, 413) => "Request Entity Too Large",
            (_, 503) => "Service Unavailable",
            (_, 500..) => "Internal Server Error",
            _ => "invalid_request_error",
        };
        let Self { status, message, .. } = self;
        let param = (*status == 404).then_some("response_id");
        json_text(&serde_json::json!({
            "error": {"message": message, "type": kind, "param": param, "code": status},
        }))
    }
}

/// The body of the OpenAI routes for a failure, as text.
pub(crate) fn error_text(status: u16, message: &str) -> Vec<u8> {
    with_error_body(status, message, None, |body| json_text(&body))
}

fn with_error_body<T>(
    status: u16,
    message: &str,
    kind: Option<&str>,
    write: impl FnOnce(ErrorBody<'_>) -> T,
) -> T {
    let number = status.to_string();
    let usual = match status {
        400 => "BadRequestError",
        404 => "NotFoundError",
        _ => &number,
    };
    write(ErrorBody { object: "error", message, kind: kind.unwrap_or(usual), param: None, code: status })
}

/// Python's name of the status.
fn status_name(status: u16) -> &'static str {
    match status {
        400 => "BAD_REQUEST",
        503 => "SERVICE_UNAVAILABLE",
        _ => "INTERNAL_SERVER_ERROR",
    }
}
