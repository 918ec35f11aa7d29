//! Small questions to a worker: a GET with a short answer.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::Full;

use super::{CallError, Callee, Pool, call};
use crate::error::{ERROR_CODE, Refusal};
use crate::fleet::Member;

/// Longest answer that is read.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// A question to a worker.
#[derive(Debug, Clone)]
pub(crate) struct Probe<'a> {
    /// Path and query.
    pub(crate) path: Uri,
    /// Whom to ask.
    pub(crate) member: &'a Member,
    /// How long the whole exchange may take.
    pub(crate) timeout: Duration,
}

/// Asks.
///
/// # Errors
/// [`CallError`]; a status other than 2xx is an answer.
pub(crate) async fn probe(pool: &Pool, probe: Probe<'_>) -> Result<(StatusCode, Bytes), CallError> {
    let callee = Callee { member: probe.member, timeout: probe.timeout, max_answer: MAX_ANSWER_BYTES };
    let answer = call(pool, callee, question(&probe)).await?;
    // The question has been nowhere else.
    if answer.headers().get(ERROR_CODE).is_some_and(|code| code == Refusal::LOOP) {
        return Err(CallError::Itself);
    }
    Ok((answer.status(), answer.into_body()))
}

fn question(probe: &Probe<'_>) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::default());
    *request.method_mut() = Method::GET;
    *request.uri_mut() = probe.path.clone();
    let headers = request.headers_mut();
    headers.insert(header::HOST, probe.member.address.host.clone());
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    if let Some(key) = probe.member.authorization() {
        headers.insert(header::AUTHORIZATION, key);
    }
    request
}
