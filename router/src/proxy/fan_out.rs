//! Requests that the router cannot place because they speak of something that one of the workers holds: a response by
//! its id, a request to be aborted. The workers are asked themselves.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::task::JoinSet;

use super::{attempt, headers, ingress};
use crate::body::Body;
use crate::client::Turn;
use crate::error::{Answer, Refusal};
use crate::fleet::Member;
use crate::server::Context;
use crate::upstream::{CallError, Callee, call};

/// Longest time for one worker's answer. These are questions, not generations.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Longest answer: a stored response with all that was generated.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Asks all workers at once. The first that says yes gives the answer; if none does, the most telling one is given. The
/// calls go on whatever becomes of the client and of each other: an abort is to be delivered, and what is unknown to a
/// worker does it no harm.
pub(crate) async fn ask_around(
    context: &Arc<Context>,
    turn: &Arc<Turn>,
    request: Request<Incoming>,
    id: HeaderValue,
) -> Answer {
    let (mut head, body) = match receive(context, turn, request).await {
        Ok(received) => received,
        Err(refusal) => return refusal.answer(),
    };
    if head.method == Method::HEAD {
        // Only the answer to the client has no body.
        head.method = Method::GET;
    }
    let mut calls = JoinSet::new();
    for (place, member) in context.shared.members().into_iter().enumerate() {
        let request = attempt::upstream_request(&head, body.clone(), &member, &id);
        let context = Arc::clone(context);
        calls.spawn(async move { (place, ask(&context, &member, request).await) });
    }
    let telling = tokio::spawn(most_telling(calls));
    let _engaged = turn.engage();
    tokio::select! {
        biased;
        told = telling => match told {
            Ok(Some(answer)) => outcome(answer),
            Ok(None) | Err(_) => {
                Refusal::NoWorkers { retry_after_secs: context.shared.settings.recovery_secs }.answer()
            }
        },
        () = turn.deadline() => Refusal::UpstreamTimeout.answer(),
    }
}

type Told = Result<Response<Bytes>, CallError>;

/// The first success, or the best of what came instead; nothing if nobody was asked.
async fn most_telling(mut calls: JoinSet<(usize, Told)>) -> Option<Told> {
    let mut others = Vec::new();
    while let Some(Ok((place, answer))) = calls.join_next().await {
        if answer.as_ref().is_ok_and(|answer| answer.status().is_success()) {
            calls.detach_all();
            return Some(answer);
        }
        others.push((place, answer));
    }
    others.sort_by_key(|(place, answer)| (silence(answer), *place));
    others.into_iter().next().map(|(_, answer)| answer)
}

/// How little an answer tells: that it is not found is less than what is wrong with it, and more than a failure.
fn silence(answer: &Told) -> u8 {
    match answer.as_ref().map(|answer| answer.status()) {
        Ok(StatusCode::TOO_MANY_REQUESTS) => 2,
        Ok(StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED) => 1,
        Ok(status) if status.is_client_error() => 0,
        Ok(_) => 2,
        Err(_) => 3,
    }
}

async fn receive(
    context: &Context,
    turn: &Turn,
    request: Request<Incoming>,
) -> Result<(http::request::Parts, Bytes), Refusal> {
    let (head, mut body) = request.into_parts();
    if let Err(refusal) = super::admissible(&context.shared, &head.headers) {
        ingress::discard(&head.headers, &mut body).await;
        return Err(refusal);
    }
    let body = super::receive(context, turn, &head.headers, &mut body).await?;
    Ok((head, body))
}

async fn ask(context: &Context, member: &Member, request: Request<Full<Bytes>>) -> Told {
    let callee = Callee { member, timeout: TIMEOUT, max_answer: MAX_ANSWER_BYTES };
    let answer = call(&context.pool, callee, request).await;
    if let Err(error) = &answer {
        tracing::warn!(worker = %member.address.url, "no answer: {error}");
    }
    answer
}

fn outcome(answer: Told) -> Answer {
    match answer {
        Ok(answer) => passed_on(answer),
        Err(CallError::TimedOut) => Refusal::UpstreamTimeout.answer(),
        Err(CallError::NoAnswer(missing)) => missing.refusal().answer(),
        Err(CallError::Unreadable) => Refusal::UpstreamInvalid.answer(),
    }
}

fn passed_on(answer: Response<Bytes>) -> Answer {
    let (mut head, body) = answer.into_parts();
    headers::settle_length(&mut head.headers, Some(body.len() as u64));
    headers::strip_hop_by_hop(&mut head.headers);
    (Response::from_parts(head, Body::own(body)), None)
}
