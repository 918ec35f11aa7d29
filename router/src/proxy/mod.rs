//! The data path: one request from the client to a worker and its answer back.
//!
//! [`handle`] reads top to bottom; each step consumes the former one's result:
//! receive the bytes, book a worker, try it, give the answer.

mod answer;
mod attempt;
mod endpoint;
mod headers;
mod ingress;
mod lease;
mod meter;
mod note;
mod prepare;

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Version, header};
use hyper::body::Incoming;
use router_core::Assignment;

pub(crate) use answer::{AnswerBody, Cut};
pub(crate) use endpoint::{ENDPOINTS, Endpoint, find};

use crate::body::Body;
use crate::client::Turn;
use crate::error::{Answer, Refusal};
use crate::server::Context;
use crate::upstream::exchange;
use answer::{Booked, Held};
use attempt::Failure;
use lease::Booking;
use note::Note;

const DECIDED_WORKER: HeaderName = HeaderName::from_static("x-router-worker");
const DECIDED_REASON: HeaderName = HeaderName::from_static("x-router-reason");
const DECIDED_TOKENS: HeaderName = HeaderName::from_static("x-router-predicted-tokens");

/// Proxies one request to row `at` of the endpoint table.
pub(crate) async fn handle(
    context: &Context,
    turn: &Arc<Turn>,
    at: usize,
    endpoint: &'static Endpoint,
    request: Request<Incoming>,
) -> Answer {
    let arrived_ns = context.shared.clock.now_ns();
    let (head, mut body) = request.into_parts();
    if context.shared.settings.api_key.as_ref().is_some_and(|key| !key.admits(&head.headers)) {
        ingress::discard(&head.headers, &mut body).await;
        return Refusal::Unauthorized.answer();
    }
    if !headers::is_plainly_framed(&head.headers) {
        ingress::discard(&head.headers, &mut body).await;
        return Refusal::UnsupportedCoding.answer();
    }
    let limit = context.shared.settings.max_payload_size;
    let received = tokio::select! {
        biased;
        received = ingress::receive(&head.headers, &mut body, limit) => received,
        () = turn.deadline() => Err(Refusal::RequestTimeout),
    };
    let body = match received {
        Ok(body) => body,
        Err(refusal) => return refusal.answer(),
    };
    let booked = prepare::book(&context.shared, endpoint, &head.headers, &body);
    let (assignment, booking, streaming) = match booked {
        Ok(booked) => booked,
        Err(refusal) => return refusal.answer(),
    };
    let place = context.shared.place(assignment.worker);
    context.shared.metrics.decided(at, streaming, place, assignment.reason.as_str());
    let request = attempt::upstream_request(head, body, &context.shared.fleet[place].address);
    let note = Note::new(at, arrived_ns, &assignment);
    let (mut response, code) = give(context, turn, place, request, booking, note).await;
    if context.shared.settings.decision_headers {
        tell_decision(response.headers_mut(), place, &assignment);
    }
    (response, code)
}

/// Tries the worker and turns what comes back into the client's answer.
async fn give(
    context: &Context,
    turn: &Arc<Turn>,
    place: usize,
    request: Request<http_body_util::Full<bytes::Bytes>>,
    booking: Booking,
    note: Note,
) -> Answer {
    let worker = &context.shared.fleet[place];
    let engaged = turn.engage();
    let tried = tokio::select! {
        biased;
        tried = exchange(&context.pool, place, &worker.address, request) => tried.map_err(Failure::from),
        () = turn.deadline() => Err(Failure::TimedOut),
    };
    let (connection, response) = match tried.and_then(Failure::of_answer) {
        Ok(answered) => answered,
        Err(failure) => {
            if failure.is_nobody_there() {
                worker.unreachable.note();
            }
            tracing::warn!(worker = %worker.address.url, "no answer: {failure}");
            booking.fail();
            return failure.refusal().answer();
        }
    };
    let (mut head, inner) = response.into_parts();
    headers::strip_hop_by_hop(&mut head.headers);
    head.version = Version::HTTP_11;
    let is_stream = is_event_stream(&head.headers);
    let lease = booking.confirm();
    let held = Held { connection, pool: Arc::clone(&context.pool), key: place };
    engaged.answering();
    let booked = Booked { held, lease, note, engaged };
    let body = AnswerBody::new(inner, is_stream, head.status, booked);
    (Response::from_parts(head, Body::Answer(Box::new(body))), "")
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    kind.len() >= 17 && kind[..17].eq_ignore_ascii_case(b"text/event-stream")
}

fn tell_decision(headers: &mut HeaderMap, place: usize, assignment: &Assignment) {
    headers.insert(DECIDED_WORKER, HeaderValue::from(place));
    headers.insert(DECIDED_REASON, HeaderValue::from_static(assignment.reason.as_str()));
    match assignment.predicted_cached_tokens {
        Some(tokens) => headers.insert(DECIDED_TOKENS, HeaderValue::from(tokens)),
        None => headers.remove(DECIDED_TOKENS),
    };
}
