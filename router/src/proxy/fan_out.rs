//! Requests that the router cannot place because they speak of something that one of the workers holds: a response by
//! its id, a request to be aborted. The workers are asked themselves.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::task::JoinSet;

use super::{attempt, headers, ingress};
use crate::body::Body;
use crate::client::Turn;
use crate::error::{Answer, Refusal};
use crate::server::Context;
use crate::upstream::{CallError, Callee, call};

/// Longest time for one worker's answer. These are questions, not generations, and the next worker waits.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Asks one worker after the other, healthy ones first, until one knows what the request speaks of; its answer is
/// given, and if all are at a loss, the last one's.
pub(crate) async fn find_owner(
    context: &Arc<Context>,
    turn: &Arc<Turn>,
    request: Request<Incoming>,
    id: HeaderValue,
) -> Answer {
    let (head, body) = match receive(context, turn, request).await {
        Ok(received) => received,
        Err(refusal) => return refusal.answer(),
    };
    let _engaged = turn.engage();
    let mut last = None;
    for place in in_order_of_health(context) {
        let request = attempt::upstream_request(&head, body.clone(), &context.shared.fleet[place], &id);
        let answer = ask(context, place, request).await;
        let is_owner = answer.as_ref().is_ok_and(|answer| answer.status() != StatusCode::NOT_FOUND);
        match (answer, &last) {
            (Ok(answer), _) if is_owner => return passed_on(answer),
            (Ok(answer), _) => last = Some(Ok(answer)),
            (Err(error), None) => last = Some(Err(error)),
            (Err(_), Some(_)) => {}
        }
    }
    outcome(last)
}

/// Tells all workers at once. One that says yes is enough: the others knew nothing of it.
pub(crate) async fn tell_all(
    context: &Arc<Context>,
    turn: &Arc<Turn>,
    request: Request<Incoming>,
    id: HeaderValue,
) -> Answer {
    let (head, body) = match receive(context, turn, request).await {
        Ok(received) => received,
        Err(refusal) => return refusal.answer(),
    };
    let _engaged = turn.engage();
    let mut calls = JoinSet::new();
    for (place, member) in context.shared.fleet.iter().enumerate() {
        let request = attempt::upstream_request(&head, body.clone(), member, &id);
        let context = Arc::clone(context);
        calls.spawn(async move { (place, ask(&context, place, request).await) });
    }
    let mut answers = calls.join_all().await;
    answers.sort_by_key(|(place, answer)| (!answer.as_ref().is_ok_and(|a| a.status().is_success()), *place));
    outcome(answers.into_iter().next().map(|(_, answer)| answer))
}

async fn receive(
    context: &Context,
    turn: &Turn,
    request: Request<Incoming>,
) -> Result<(http::request::Parts, Bytes), Refusal> {
    let (head, mut body) = request.into_parts();
    if context.shared.settings.api_key.as_ref().is_some_and(|key| !key.admits(&head.headers)) {
        ingress::discard(&head.headers, &mut body).await;
        return Err(Refusal::Unauthorized);
    }
    tokio::select! {
        biased;
        received = ingress::receive(&head.headers, &mut body, context.shared.settings.max_payload_size) => {
            Ok((head, received?))
        }
        () = turn.deadline() => Err(Refusal::RequestTimeout),
    }
}

fn in_order_of_health(context: &Context) -> Vec<usize> {
    let router = context.shared.router.lock();
    let mut places: Vec<_> = router
        .workers(context.shared.clock.now_ns())
        .map(|row| (!row.worker.healthy, context.shared.place(row.worker.id)))
        .collect();
    places.sort_unstable();
    places.into_iter().map(|(_, place)| place).collect()
}

async fn ask(
    context: &Context,
    place: usize,
    request: Request<Full<Bytes>>,
) -> Result<Response<Bytes>, CallError> {
    let address = &context.shared.fleet[place].address;
    let max_answer = context.shared.settings.max_payload_size;
    let answer =
        call(&context.pool, Callee { address, key: place, timeout: TIMEOUT, max_answer }, request).await;
    if let Err(error) = &answer {
        tracing::warn!(worker = %address.url, "no answer: {error}");
    }
    answer
}

fn outcome(last: Option<Result<Response<Bytes>, CallError>>) -> Answer {
    match last {
        Some(Ok(answer)) => passed_on(answer),
        Some(Err(CallError::TimedOut)) => Refusal::UpstreamTimeout.answer(),
        Some(Err(CallError::NoAnswer(_))) => Refusal::ConnectFailed.answer(),
        Some(Err(CallError::Unreadable)) => Refusal::UpstreamInvalid.answer(),
        None => Refusal::NoWorkers.answer(),
    }
}

fn passed_on(answer: Response<Bytes>) -> Answer {
    let (mut head, body) = answer.into_parts();
    headers::strip_hop_by_hop(&mut head.headers);
    (Response::from_parts(head, Body::own(body)), "")
}
