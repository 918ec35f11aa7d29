//! The tries at one request: until a worker answers for good, or until there is no point in another one.
//!
//! Nothing has gone to the client yet, so each try begins anew with the same bytes. When to try again, and on whom, is
//! decided by `router_core::Tries`; here are the facts that it decides by, and the answer that is kept meanwhile: a
//! client gets the last one that there was.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header, request};
use hyper::body::Incoming;
use router_core::ids::{ScopeId, WorkerId};
use router_core::{Assignment, Cause, Draws, Next, Outcome, Tries};
use smallvec::SmallVec;

use super::attempt::{attempt, upstream_request};
use super::endpoint::Endpoint;
use super::lease::{Booking, Lease};
use super::note::Note;
use super::prepare::{self, Booked};
use crate::client::Turn;
use crate::error::Refusal;
use crate::fleet::Member;
use crate::server::Context;
use crate::upstream::Connection;

type Workers = SmallVec<[WorkerId; 4]>;

/// What every try of a request needs.
pub(super) struct Errand<'a> {
    pub(super) context: &'a Context,
    pub(super) turn: &'a Turn,
    pub(super) endpoint: &'static Endpoint,
    pub(super) head: request::Parts,
    pub(super) body: Bytes,
    pub(super) id: HeaderValue,
    /// When the request's time is over.
    pub(super) deadline_ns: u64,
}

/// What has been tried.
#[derive(Debug, Default)]
pub(super) struct Trail {
    pub(super) attempts: u32,
    /// The last worker, and why it was chosen.
    pub(super) last: Option<(Arc<Member>, Assignment)>,
}

/// A worker's answer that nobody has read yet.
pub(super) struct Answered {
    pub(super) member: Arc<Member>,
    pub(super) connection: Connection,
    pub(super) response: Response<Incoming>,
    pub(super) lease: Lease,
}

/// A try without an answer.
struct Unanswered {
    /// Why, if that allows another try.
    cause: Option<Cause>,
    /// What the client is told if nothing better comes.
    refusal: Refusal,
}

impl Errand<'_> {
    /// Tries until an answer is to be given; how it came to that is in `trail`.
    ///
    /// # Errors
    /// What the client is told in a worker's place.
    pub(super) async fn run(&self, trail: &mut Trail, note: &mut Note) -> Result<Answered, Refusal> {
        let mut tries = Tries::new();
        let mut last: Option<Result<Answered, Refusal>> = None;
        let mut exclude = Workers::new();
        loop {
            let booked = match self.book(&exclude, note) {
                Ok(booked) => booked,
                Err(refusal) if last.is_none() && refusal.is_for_want_of_workers() => {
                    if self.newcomer().await {
                        continue;
                    }
                    return Err(refusal);
                }
                Err(refusal) => return last.unwrap_or(Err(refusal)),
            };
            // Where an answer is given up for another try, its connection is closed before that begins.
            drop(last.take());
            let Booked { assignment, member, booking, scope } = booked;
            *trail = Trail { attempts: trail.attempts + 1, last: Some((Arc::clone(&member), assignment)) };
            let (cause, retry_after_ns, mut ended) = match self.once(member, booking, note).await {
                Ok(answered) => match self.retryable(answered.response.status()) {
                    None => return Ok(answered),
                    Some(cause) => (cause, retry_after_ns(answered.response.headers()), Ok(answered)),
                },
                Err(Unanswered { cause: None, refusal }) => return Err(refusal),
                Err(Unanswered { cause: Some(cause), refusal }) => (cause, None, Err(refusal)),
            };
            let now_ns = self.context.shared.clock.now_ns();
            tries.failed(now_ns, assignment.worker, cause, retry_after_ns);
            let Some((wait_ns, others)) = self.another(&tries, scope, &assignment, now_ns, note) else {
                return ended;
            };
            note.try_failed(cause, wait_ns);
            if let Ok(answered) = &mut ended {
                let status = answered.response.status();
                note.complain(format_args!("status {status}, trying again in {} ms", wait_ns / 1_000_000));
                answered.lease.settle(Outcome::of_status(status.as_u16()));
            }
            last = Some(ended);
            exclude = others;
            if wait_ns > 0 {
                tokio::time::sleep(Duration::from_nanos(wait_ns)).await;
            }
        }
    }

    /// Waits until more is known of a worker that may be about to come; false if there is none.
    async fn newcomer(&self) -> bool {
        tokio::select! {
            biased;
            more = self.context.shared.newcomers.next() => more,
            () = self.turn.deadline() => false,
        }
    }

    /// Whether there is to be another try: after which wait, and on none of which workers.
    fn another(
        &self,
        tries: &Tries,
        scope: ScopeId,
        assignment: &Assignment,
        now_ns: u64,
        note: &mut Note,
    ) -> Option<(u64, Workers)> {
        let shared = &self.context.shared;
        let fresh_left = prepare::others_left(shared, scope, &self.head.headers, tries.tried());
        let draw = Draws::new(shared.seed, assignment.lease.0).share();
        match tries.next(&shared.settings.retry, now_ns, self.deadline_ns, fresh_left, draw) {
            Next::Final => None,
            Next::Retry { wait_ns, exclude, needs_budget }
                if !needs_budget || shared.retry_budget.lock().draw(now_ns) =>
            {
                Some((wait_ns, exclude))
            }
            Next::Retry { .. } => {
                note.complain("not tried again: the retry budget is used up");
                note.exhausted();
                None
            }
            Next::Exhausted => {
                note.exhausted();
                None
            }
        }
    }

    fn book(&self, exclude: &[WorkerId], note: &mut Note) -> Result<Booked, Refusal> {
        let shared = &self.context.shared;
        let booked = prepare::book(shared, self.endpoint, &self.head.headers, &self.body, exclude, note)?;
        note.assigned(Arc::clone(&booked.member), &booked.assignment);
        Ok(booked)
    }

    /// Tries one worker.
    async fn once(
        &self,
        member: Arc<Member>,
        booking: Booking,
        note: &mut Note,
    ) -> Result<Answered, Unanswered> {
        let request = upstream_request(&self.head, self.body.clone(), &member, &self.id);
        match attempt(self.context, self.turn, &member, request).await {
            Ok((connection, response)) => {
                note.upstream_head(response.status());
                let lease = booking.answered(response.status());
                Ok(Answered { member, connection, response, lease })
            }
            Err(failure) => {
                member.lost.note();
                if failure.is_nobody_there() {
                    member.unreachable.note();
                }
                note.complain(format_args!("no answer: {failure}"));
                booking.fail(failure.outcome());
                Err(Unanswered { cause: failure.cause(), refusal: failure.refusal() })
            }
        }
    }

    fn retryable(&self, status: StatusCode) -> Option<Cause> {
        let statuses = &self.context.shared.settings.retry.statuses;
        statuses.contains(status.as_u16()).then_some(Cause::Status(status.as_u16()))
    }
}

/// What `Retry-After` says: seconds, or a date (RFC 9110, section 10.2.3).
fn retry_after_ns(headers: &HeaderMap) -> Option<u64> {
    const SECOND_NS: u64 = 1_000_000_000;
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(seconds.saturating_mul(SECOND_NS));
    }
    let left = httpdate::parse_http_date(text).ok()?.duration_since(std::time::SystemTime::now());
    Some(left.map_or(0, crate::clock::nanoseconds))
}
