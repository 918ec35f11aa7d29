//! The router's own answers.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use crate::body::Body;
use crate::error::Answer;
use crate::metrics::Format;

/// A success of this content type.
pub(super) fn text(kind: &'static str, text: impl Into<Bytes>) -> Answer {
    (response(StatusCode::OK, kind, text), None)
}

/// Metrics in this format, which was chosen by `Accept`.
pub(super) fn metrics(format: Format, text: String) -> Answer {
    let mut response = response(StatusCode::OK, format.content_type(), text);
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    (response, None)
}

/// A success in JSON.
pub(super) fn json(value: &impl Serialize) -> Answer {
    json_with(StatusCode::OK, value)
}

/// An answer in JSON that is no refusal.
pub(super) fn json_with(status: StatusCode, value: &impl Serialize) -> Answer {
    // These types have string keys and no failing serializer, so this cannot fail; an empty body would show it.
    (response(status, "application/json", serde_json::to_vec(value).unwrap_or_default()), None)
}

fn response(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::own(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
