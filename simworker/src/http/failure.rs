//! Failures and the three forms that SGLang gives them.

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
}

/// A request that gets no answer of the usual kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) status: u16,
    pub(super) message: String,
    /// The engine's scheduler gave up on the request, rather than the front end refusing it.
    pub(super) by_scheduler: bool,
}

impl Failure {
    /// A request that is wrong in itself: 400, never 422.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self { status: 400, message: message.into(), by_scheduler: false }
    }

    /// The whole answer.
    pub(super) fn response(&self, api: Api) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let text = match api {
            Api::Native if self.status == 400 => {
                json_text(&NativeError { error: NativeErrorMessage { message: &self.message } })
            }
            Api::Native | Api::OpenAi => self.with_body(|body| json_text(&body)),
        };
        (status, [(CONTENT_TYPE, "application/json")], text).into_response()
    }

    /// Gives `write` the body of the OpenAI routes, which SGLang's own use too for all but status 400.
    pub(super) fn with_body<T>(&self, write: impl FnOnce(ErrorBody<'_>) -> T) -> T {
        with_error_body(self.status, &self.message, write)
    }
}

/// The body of the OpenAI routes for a failure, as text.
pub(crate) fn error_text(status: u16, message: &str) -> Vec<u8> {
    with_error_body(status, message, |body| json_text(&body))
}

fn with_error_body<T>(status: u16, message: &str, write: impl FnOnce(ErrorBody<'_>) -> T) -> T {
    let number = status.to_string();
    let kind = match status {
        400 => "BadRequestError",
        404 => "NotFoundError",
        _ => &number,
    };
    write(ErrorBody { object: "error", message, kind, param: None, code: status })
}
