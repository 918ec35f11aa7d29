//! The data path: one request from the client to a worker and its answer back.
//!
//! [`handle`] reads top to bottom; each step consumes the former one's result: wait for a permit, receive the bytes,
//! try workers until one answers, give the answer. Whatever happens, one [`Note`] is written about it.

mod answer;
mod attempt;
mod beside;
mod bodies;
mod call;
mod call_off;
mod dispatch;
mod earlier;
mod endpoint;
mod fan_out;
mod flow;
mod headers;
mod ingress;
mod lease;
mod merge;
mod meter;
mod names;
mod note;
mod opening;
mod ours;
mod pair;
mod prepare;
mod race;
mod rooms;
mod tries;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Version, header};
use hyper::body::{Body as _, Incoming};
use router_core::{Assignment, Outcome};

pub(crate) use answer::{AnswerBody, Cut};
pub(crate) use dispatch::Dispatch;
pub(crate) use endpoint::{ENDPOINTS, at as endpoint_at, find};
pub(crate) use fan_out::ask_around;
pub(crate) use ingress::receive as receive_within;
pub(crate) use names::Names;
pub(crate) use rooms::Rooms;

use crate::body::Body;
use crate::client::{Engaged, Turn};
use crate::clock::nanoseconds;
use crate::error::{self, Answer, Refusal};
use crate::gate::{Permit, Place};
use crate::server::Context;
use crate::shared::Shared;
use answer::{Booked, Held, Source};
use note::Note;
use tries::{Answered, Errand, Trail};

/// How long a body may take to come until others are let in meanwhile.
const PROMPT_UPLOAD: Duration = Duration::from_secs(1);

const ATTEMPTS: HeaderName = HeaderName::from_static("x-router-attempts");
const DECIDED_PREFILL_REASON: HeaderName = HeaderName::from_static("x-router-prefill-reason");
const DECIDED_PREFILL: HeaderName = HeaderName::from_static("x-router-prefill-worker");
const DECIDED_PREFILL_URL: HeaderName = HeaderName::from_static("x-router-prefill-worker-url");
const DECIDED_URL: HeaderName = HeaderName::from_static("x-router-worker-url");
const DECIDED_WORKER: HeaderName = HeaderName::from_static("x-router-worker");
const DECIDED_REASON: HeaderName = HeaderName::from_static("x-router-reason");
const DECIDED_TOKENS: HeaderName = HeaderName::from_static("x-router-predicted-tokens");

/// Proxies one request to row `at` of the endpoint table; `id` is what it is known by.
pub(crate) async fn handle(
    context: &Context,
    turn: &Arc<Turn>,
    at: usize,
    request: Request<Incoming>,
    id: HeaderValue,
) -> Answer {
    let shared = &context.shared;
    let arrived_ns = shared.clock.now_ns();
    let mut note = Note::begin(context, at, id.clone());
    let (head, mut body) = request.into_parts();
    let (permit, body) = match accept(context, turn, &head.headers, &mut body, &mut note).await {
        Ok(accepted) => accepted,
        Err(refusal) => return refuse(note, refusal),
    };
    shared.retry_budget.lock().arrived(arrived_ns);
    let engaged = turn.engage();
    let deadline_ns = arrived_ns.saturating_add(nanoseconds(shared.settings.timeouts.request));
    let endpoint = endpoint::at(at);
    let is_old = head.version == Version::HTTP_10;
    let errand = Errand { context, turn, endpoint, head, body, id, deadline_ns };
    let mut trail = Trail::default();
    let (mut response, code) = match errand.run(&mut trail, &mut note).await {
        Ok(answered) => give(context, answered, is_old, engaged, permit, note),
        Err(refusal) => refuse(note, refusal),
    };
    // A failure tells it also where there was only one.
    let failed = shared.settings.retry.statuses.contains(response.status().as_u16());
    if trail.attempts > 1 || (trail.attempts == 1 && failed) {
        response.headers_mut().insert(ATTEMPTS, HeaderValue::from(trail.attempts));
    }
    if let (true, Some((prefill, assignment))) = (shared.settings.decision_headers, &trail.last) {
        tell_decision(response.headers_mut(), prefill.as_ref(), assignment);
        tell_url(response.headers_mut(), &DECIDED_URL, shared, assignment);
        if let Some(prefill) = prefill {
            tell_url(response.headers_mut(), &DECIDED_PREFILL_URL, shared, prefill);
        }
    }
    (response, code)
}

/// Takes a body that nobody wants off the connection.
pub(crate) async fn discard(request: &mut Request<Incoming>) {
    if !request.headers().contains_key(header::EXPECT) {
        ingress::drain(request.body_mut()).await;
    }
}

/// Lets a request in and receives it.
async fn accept(
    context: &Context,
    turn: &Arc<Turn>,
    headers: &HeaderMap,
    body: &mut Incoming,
    note: &mut Note,
) -> Result<(Option<Permit>, Bytes), Refusal> {
    let entered = match admissible(&context.shared, headers) {
        Ok(()) => enter(&context.shared, turn, None, note).await,
        Err(refusal) => Err(refusal),
    };
    match entered {
        Ok(Some(permit)) if permit.is_scarce() => upload(context, turn, permit, headers, body, note).await,
        Ok(permit) => Ok((permit, receive(context, turn, headers, body).await?)),
        Err(refusal) => {
            ingress::discard(headers, body).await;
            Err(refusal)
        }
    }
}

/// Receives a body. While it comes slowly others are let in: its permit is laid by, and taken anew when it is there.
async fn upload(
    context: &Context,
    turn: &Arc<Turn>,
    permit: Permit,
    headers: &HeaderMap,
    body: &mut Incoming,
    note: &mut Note,
) -> Result<(Option<Permit>, Bytes), Refusal> {
    let refusal = {
        let mut receiving = pin!(receive(context, turn, headers, body));
        if let Ok(received) = tokio::time::timeout(PROMPT_UPLOAD, &mut receiving).await {
            return Ok((Some(permit), received?));
        }
        match permit.lay_by() {
            // Kept until there is a permit again, as what has come takes memory.
            Ok(place) => {
                let received = receiving.await?;
                return Ok((enter(&context.shared, turn, Some(&place), note).await?, received));
            }
            Err(refusal) => refusal,
        }
    };
    ingress::discard(headers, body).await;
    Err(refusal)
}

/// Takes the body as long as the request's time runs.
async fn receive(
    context: &Context,
    turn: &Turn,
    headers: &HeaderMap,
    body: &mut Incoming,
) -> Result<Bytes, Refusal> {
    let settings = &context.shared.settings;
    let patience = settings.timeouts.upload_silence;
    tokio::select! {
        biased;
        received = ingress::receive(headers, body, settings.max_payload_size, patience) => received,
        () = turn.deadline() => Err(Refusal::RequestTimeout),
    }
}

/// What can be said of a request by its headers alone.
fn admissible(shared: &Shared, headers: &HeaderMap) -> Result<(), Refusal> {
    // Before the key, as the router's own questions may come without one.
    shared.mark.judge(headers)?;
    if !shared.settings.admits(headers) {
        return Err(Refusal::Unauthorized);
    }
    if !headers::is_plainly_framed(headers) {
        return Err(Refusal::UnsupportedCoding);
    }
    Ok(())
}

/// Refuses at once or lets in, now or later; one that has laid its permit by has a `place`, and resumes. A request that waits for its turn is not received meanwhile, so that
/// those that wait take no memory.
async fn enter(
    shared: &Shared,
    turn: &Arc<Turn>,
    place: Option<&Place>,
    note: &mut Note,
) -> Result<Option<Permit>, Refusal> {
    let Some(gate) = &shared.gate else { return Ok(None) };
    let came_ns = shared.clock.now_ns();
    // A client that leaves meanwhile is noticed.
    let engaged = turn.engage();
    let entering = async {
        match place {
            None => gate.enter().await,
            Some(place) => gate.resume(place).await,
        }
    };
    let permit = tokio::select! {
        biased;
        () = turn.deadline() => Err(gate.overdue()),
        permit = entering => permit,
    };
    drop(engaged);
    note.queued(shared.clock.now_ns() - came_ns);
    permit.map(Some)
}

/// Answers in a worker's place.
fn refuse(mut note: Note, refusal: Refusal) -> Answer {
    let answer = refusal.answer_for(note.model());
    note.answered(answer.0.status(), answer.1);
    note.answered_here(answer.0.body().size_hint().lower());
    note.end(&Outcome::Refused);
    answer
}

/// Turns what a worker answered into the client's answer; `is_old` if the client speaks HTTP/1.0.
fn give(
    context: &Context,
    answered: Answered,
    is_old: bool,
    engaged: Engaged,
    permit: Option<Permit>,
    mut note: Note,
) -> Answer {
    let Answered { leg, member, connection, response, lease, paired, .. } = answered;
    let (mut head, inner) = response.into_parts();
    let inner = Source::new(inner, paired, &head.headers);
    // A body without bytes may have a length that it would have: the answer to a condition (304).
    if !inner.is_end_stream() {
        headers::settle_length(&mut head.headers, inner.size_hint().exact());
    }
    headers::strip_hop_by_hop(&mut head.headers);
    if let Some(code) = error::code_of_answer(leg, head.status) {
        for name in [error::ERROR_CODE, error::GATEWAY_ERROR_CODE] {
            head.headers.insert(name, HeaderValue::from_static(code));
        }
    }
    head.version = Version::HTTP_11;
    note.answered(head.status, None);
    if is_old && !head.headers.contains_key(header::CONTENT_LENGTH) {
        engaged.ends_by_close();
    }
    engaged.answering();
    let held = Held { connection, pool: Arc::clone(&context.pool), member };
    let booked = Booked { held, lease, note, engaged, permit };
    let body = AnswerBody::new(inner, head.status, context.shared.settings.timeouts.silence, booked);
    (Response::from_parts(head, Body::Answer(Box::new(body))), None)
}

/// Tells where a worker is, as its number does not.
fn tell_url(headers: &mut HeaderMap, name: &HeaderName, shared: &Shared, assignment: &Assignment) {
    let member = shared.books.lock().member_of(assignment.worker);
    if let Some(url) = member.and_then(|member| HeaderValue::try_from(member.address.url.as_str()).ok()) {
        headers.insert(name, url);
    }
}

/// Tells how it was routed. What was predicted is what the worker has that computes the prompt.
fn tell_decision(headers: &mut HeaderMap, prefill: Option<&Assignment>, assignment: &Assignment) {
    headers.insert(DECIDED_WORKER, HeaderValue::from(assignment.worker.0));
    headers.insert(DECIDED_REASON, HeaderValue::from_static(assignment.reason.as_str()));
    if let Some(prefill) = prefill {
        headers.insert(DECIDED_PREFILL, HeaderValue::from(prefill.worker.0));
        headers.insert(DECIDED_PREFILL_REASON, HeaderValue::from_static(prefill.reason.as_str()));
    } else {
        // A worker may be a router that has told its own.
        headers.remove(DECIDED_PREFILL);
        headers.remove(DECIDED_PREFILL_REASON);
        headers.remove(DECIDED_PREFILL_URL);
    }
    match prefill.unwrap_or(assignment).predicted_cached_tokens {
        Some(tokens) => headers.insert(DECIDED_TOKENS, HeaderValue::from(tokens)),
        None => headers.remove(DECIDED_TOKENS),
    };
}
