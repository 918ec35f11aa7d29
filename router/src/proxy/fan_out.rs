//! Requests that the router cannot place because they speak of something that one of the workers holds: a response by
//! its id, a request to be aborted. The workers are asked themselves.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::sync::oneshot;
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

/// Workers that are asked at a time: a client's question is not to take a connection to each of thousands.
const AT_ONCE: usize = 32;

/// One question to all workers.
struct Round {
    context: Arc<Context>,
    head: http::request::Parts,
    body: Bytes,
    id: HeaderValue,
}

type Told = Result<Response<Bytes>, CallError>;

/// Asks all workers, many at a time. The first that says yes gives the answer; if none does, the most telling one is given.
/// The calls go on whatever becomes of the client and of each other: an abort is to be delivered, and what is unknown to a
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
    let (tell, told) = oneshot::channel();
    let round = Round { context: Arc::clone(context), head, body, id };
    tokio::spawn(round.run(context.shared.members(), tell));
    let _engaged = turn.engage();
    tokio::select! {
        biased;
        told = told => match told {
            Ok(answer) => outcome(answer),
            Err(_) => {
                Refusal::NoWorkers { retry_after_secs: context.shared.settings.recovery_secs }.answer()
            }
        },
        () = turn.deadline() => Refusal::UpstreamTimeout.answer(),
    }
}

impl Round {
    /// Tells the first success, or the best of what came instead, which is all that is kept of it; nothing if nobody was
    /// asked.
    async fn run(self, members: Vec<Arc<Member>>, tell: oneshot::Sender<Told>) {
        let round = Arc::new(self);
        let mut tell = Some(tell);
        let mut best: Option<((u8, usize), Told)> = None;
        let mut waiting = members.into_iter().enumerate();
        let mut calls = JoinSet::new();
        loop {
            while calls.len() < AT_ONCE
                && let Some((place, member)) = waiting.next()
            {
                let round = Arc::clone(&round);
                calls.spawn(async move { (place, round.ask(&member).await) });
            }
            let (place, answer) = match calls.join_next().await {
                Some(Ok(answered)) => answered,
                // It panicked, which has been told.
                Some(Err(_)) => continue,
                None => break,
            };
            if answer.as_ref().is_ok_and(|answer| answer.status().is_success()) {
                best = None;
                // Whoever asked may have left.
                if let Some(tell) = tell.take() {
                    let _ = tell.send(answer);
                }
                if round.head.method.is_safe() {
                    // The others are needed no more. What changes something is for all of them.
                    waiting.by_ref().for_each(drop);
                }
            } else if tell.is_some() {
                let rank = (silence(&answer), place);
                if best.as_ref().is_none_or(|(other, _)| rank < *other) {
                    best = Some((rank, answer));
                }
            }
        }
        if let (Some(tell), Some((_, answer))) = (tell, best) {
            let _ = tell.send(answer);
        }
    }

    async fn ask(&self, member: &Member) -> Told {
        let request = attempt::upstream_request(&self.head, self.body.clone(), member, &self.id);
        let callee = Callee { member, timeout: TIMEOUT, max_answer: MAX_ANSWER_BYTES };
        let answer = call(&self.context.pool, callee, request).await;
        if let Err(error) = &answer {
            tracing::warn!(worker = %member.address.url, "no answer: {error}");
        }
        answer
    }
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

fn outcome(answer: Told) -> Answer {
    match answer {
        Ok(answer) => passed_on(answer),
        Err(CallError::TimedOut) => Refusal::UpstreamTimeout.answer(),
        Err(CallError::NoAnswer(missing)) => missing.refusal().answer(),
        Err(CallError::Unreadable | CallError::Itself) => Refusal::UpstreamInvalid.answer(),
    }
}

fn passed_on(answer: Response<Bytes>) -> Answer {
    let (mut head, body) = answer.into_parts();
    headers::settle_length(&mut head.headers, Some(body.len() as u64));
    headers::strip_hop_by_hop(&mut head.headers);
    (Response::from_parts(head, Body::own(body)), None)
}
