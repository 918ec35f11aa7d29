//! The tries at one request: until a worker answers for good, or until there is no point in another one.
//!
//! Nothing has gone to the client yet, so each try begins anew with the same bytes. When to try again, and on whom, is
//! decided by `router_core::Tries`; here are the facts that it decides by, and the answer that is kept meanwhile: a
//! client gets the last one that there was.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header, request};
use http_body_util::Full;
use hyper::body::Incoming;
use protocol::pd::InputLists;
use router_core::ids::WorkerId;
use router_core::{Assignment, Cause, Draws, Leg, Next, Outcome, Scopes, Tries};
use smallvec::SmallVec;

use super::attempt::{Failure, attempt, upstream_request};
use super::beside::Beside;
use super::bodies::{self, RankWord};
use super::call::Begun;
use super::dispatch::Place;
use super::earlier::{Earlier, Left};
use super::endpoint::Endpoint;
use super::lease::Lease;
use super::names::Named;
use super::note::Note;
use super::ours::Ours;
use super::pair::{Pair, RANK_HEADER};
use super::prepare::{self, Booked, BookedLeg, Order, Unbooked};
use super::rooms::Taken;
use crate::client::Turn;
use crate::error::Refusal;
use crate::fleet::Member;
use crate::server::Context;
use crate::upstream::Connection;

type Workers = SmallVec<[WorkerId; 4]>;

/// As long as this an engine's answer to the question for its ranks is waited for: it may have been asked a second ago.
const NEW_RANKS: Duration = Duration::from_secs(3);

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
    /// Who were last, and why they were chosen: the prefill leg, if there was one, and the leg that answers.
    pub(super) last: Option<(Option<Assignment>, Assignment)>,
}

/// A worker's answer that nobody has read yet, but for the first bytes of a pair's.
pub(super) struct Answered {
    pub(super) leg: Leg,
    pub(super) member: Arc<Member>,
    pub(super) connection: Connection,
    pub(super) response: Response<Incoming>,
    pub(super) lease: Lease,
    /// Of a pair's answer, and of one that was read in part.
    pub(super) paired: Option<Box<Paired>>,
    pub(super) aftermath: Aftermath,
}

/// What goes with the answer of a pair.
#[derive(Debug, Default)]
pub(super) struct Paired {
    /// What was read of it.
    pub(super) first: Option<Bytes>,
    /// The prefill leg, if it is not over.
    pub(super) beside: Option<Beside>,
    /// What is to be merged into it.
    pub(super) lists: Option<InputLists>,
    /// Its rooms and names are taken until its end.
    pub(super) _held: Option<(Arc<Taken>, Arc<Named>)>,
}

/// A try without an answer.
pub(super) struct Unanswered {
    /// Why, if that allows another try.
    pub(super) cause: Option<Cause>,
    /// What the client is told if nothing better comes.
    pub(super) refusal: Refusal,
    pub(super) aftermath: Aftermath,
}

/// What there is to know of a try for the next one.
pub(super) struct Aftermath {
    /// Whose answer or failure it was.
    leg: Leg,
    worker: WorkerId,
    /// Others that had better not have the next one, while there are any besides.
    pub(super) avoid: Workers,
    /// Others that are gone with it, and must not have the next one.
    pub(super) gone: Workers,
    /// The engine has other ranks than its worker was one of.
    pub(super) other_ranks: Option<Arc<Member>>,
    /// What is at engines of it.
    pub(super) left: Left,
}

/// Workers that have not failed a try themselves; see [`Aftermath`].
#[derive(Debug, Default)]
struct Others {
    avoid: Workers,
    gone: Workers,
}

impl Aftermath {
    pub(super) fn of(leg: Leg, worker: WorkerId) -> Self {
        let (avoid, gone) = (Workers::new(), Workers::new());
        Self { leg, worker, avoid, gone, other_ranks: None, left: Left::default() }
    }
}

impl Unanswered {
    /// The same with what else there is to know.
    pub(super) fn after(mut self, other: Aftermath) -> Self {
        self.aftermath.avoid.extend(other.avoid);
        self.aftermath.gone.extend(other.gone);
        self.aftermath.left.extend(other.left);
        self.aftermath.other_ranks = self.aftermath.other_ranks.or(other.other_ranks);
        self
    }
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
        let mut others = Others::default();
        let mut earlier = Earlier::default();
        loop {
            let booked = match self.book(&exclude, note).await {
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
            earlier.let_go(&booked).await;
            let scopes = booked.scopes;
            let (prefill, assignment) =
                (booked.prefill.as_ref().map(|leg| leg.assignment), booked.decode.assignment);
            *trail = Trail { attempts: trail.attempts + 1, last: Some((prefill, assignment)) };
            let (cause, retry_after_ns, aftermath, mut ended) = match self.once(booked, &earlier, note).await
            {
                Ok(mut answered) => match self.retryable(answered.response.status()) {
                    None => return Ok(answered),
                    Some(cause) => {
                        let aftermath = answered.take_aftermath();
                        earlier.answered(answered.leg);
                        (cause, retry_after_ns(answered.response.headers()), aftermath, Ok(answered))
                    }
                },
                Err(Unanswered { cause: None, refusal, .. }) => return Err(refusal),
                Err(Unanswered { cause: Some(cause), refusal, aftermath }) => {
                    let refusal = earlier.told(refusal, cause == Cause::Duplicate);
                    (cause, None, aftermath, Err(refusal))
                }
            };
            let Aftermath { leg, worker, avoid, gone, other_ranks, left } = aftermath;
            earlier.add(left);
            let is_news = !others.avoid.contains(&worker);
            others.avoid.extend(avoid);
            others.gone.extend(gone);
            if let Some(engine) = other_ranks.filter(|_| is_news) {
                self.new_ranks(&engine, worker, &tries, &others, scopes).await;
            }
            let now_ns = self.context.shared.clock.now_ns();
            tries.failed(now_ns, worker, cause, retry_after_ns);
            note.failing(leg);
            let Some((wait_ns, next)) = self.another(&tries, &others, scopes, &assignment, now_ns, note)
            else {
                return ended;
            };
            note.try_failed(leg, cause, wait_ns);
            if let Ok(answered) = &mut ended {
                let status = answered.response.status();
                note.complain(
                    leg,
                    format_args!("status {status}, trying again in {} ms", wait_ns / 1_000_000),
                );
                answered.lease.settle(Outcome::of_status(status.as_u16()));
            }
            last = Some(ended);
            exclude = next;
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

    /// An engine has refused the rank of this worker, so its others may be wrong as well. Where nobody else is left, waits a moment
    /// for its answer to the question for its ranks.
    async fn new_ranks(
        &self,
        engine: &Member,
        worker: WorkerId,
        tries: &Tries,
        others: &Others,
        scopes: Scopes,
    ) {
        let shared = &self.context.shared;
        let known = tries.tried().iter().chain(&others.avoid).chain(&others.gone).copied();
        let known: Workers = known.chain([worker]).collect();
        let is_settled = || {
            let is_known = !engine.ids().contains(&worker);
            is_known || prepare::others_left(shared, scopes, &self.head.headers, &known)
        };
        let settled = async {
            loop {
                // Before the look, so that no news is missed after it.
                let changed = shared.turns.notified();
                if is_settled() {
                    return;
                }
                changed.await;
            }
        };
        tokio::select! {
            biased;
            () = self.turn.deadline() => {}
            _ = tokio::time::timeout(NEW_RANKS, settled) => {}
        }
    }

    /// Whether there is to be another try: after which wait, and on none of which workers.
    fn another(
        &self,
        tries: &Tries,
        others: &Others,
        scopes: Scopes,
        assignment: &Assignment,
        now_ns: u64,
        note: &mut Note,
    ) -> Option<(u64, Workers)> {
        let shared = &self.context.shared;
        let is_left = |tried: &[WorkerId]| prepare::others_left(shared, scopes, &self.head.headers, tried);
        let Others { avoid, gone } = others;
        let tried: Workers = tries.tried().iter().chain(gone).copied().collect();
        let wider: Workers = tried.iter().chain(avoid).copied().collect();
        let is_wider_left = !avoid.is_empty() && is_left(&wider);
        let fresh_left = is_wider_left || is_left(&tried);
        let draw = Draws::new(shared.seed, assignment.lease.0).share();
        match tries.next(&shared.settings.retry, now_ns, self.deadline_ns, fresh_left, draw) {
            Next::Final => None,
            Next::Retry { wait_ns, mut exclude, needs_budget }
                if !needs_budget || shared.retry_budget.lock().draw(now_ns) =>
            {
                exclude.extend(gone.iter().filter(|gone| !tries.tried().contains(gone)).copied());
                Some((wait_ns, if is_wider_left { wider } else { exclude }))
            }
            Next::Retry { .. } => {
                note.complain(Leg::Whole, "not tried again: the retry budget is used up");
                note.exhausted();
                None
            }
            Next::Exhausted => {
                note.exhausted();
                None
            }
        }
    }

    /// Books a plan, after having waited in line where decode streams are limited.
    async fn book(&self, exclude: &[WorkerId], note: &mut Note) -> Result<Booked, Refusal> {
        let shared = &self.context.shared;
        let mut place: Option<Place> = None;
        loop {
            // Before the attempt, so that no news is missed after it.
            let changed = shared.turns.notified();
            let order = Order {
                endpoint: self.endpoint,
                headers: &self.head.headers,
                body: &self.body,
                exclude,
                has_place: place.is_some(),
            };
            let scope = match order.book(shared, note) {
                Ok(booked) => {
                    note.assigned(&booked);
                    return Ok(booked);
                }
                Err(Unbooked::Refused(refusal)) => return Err(refusal),
                Err(Unbooked::AtLimit(scope)) => scope,
            };
            let too_many = Refusal::DispatchLimit { retry_after_secs: shared.settings.recovery_secs };
            let place = match &mut place {
                Some(place) => place,
                none => {
                    none.insert(shared.dispatch.stand_in_line(scope, !order.is_for_any()).ok_or(too_many)?)
                }
            };
            tokio::select! {
                biased;
                () = self.turn.deadline() => return Err(too_many),
                () = place.turn(changed) => {}
            }
        }
    }

    /// Tries one plan.
    async fn once(&self, booked: Booked, earlier: &Earlier, note: &mut Note) -> Result<Answered, Unanswered> {
        let Booked { prefill, decode, .. } = booked;
        match prefill {
            None => self.whole(decode, note).await,
            // Apart, so that a request to one worker does not carry the room for two calls about.
            Some(prefill) => Box::pin(Pair { errand: self, prefill, decode, earlier }.attempt(note)).await,
        }
    }

    /// Tries one worker.
    async fn whole(&self, leg: BookedLeg, note: &mut Note) -> Result<Answered, Unanswered> {
        let field = self.context.shared.settings.dp_rank_field;
        let body = match leg.rank() {
            None => self.body.clone(),
            Some(rank) => bodies::for_rank(&self.body, field, rank),
        };
        let request = self.request_for(&leg, RankWord::of(leg.rank()), body);
        match attempt(self.context, self.turn, &leg.member, request).await {
            Ok((connection, response))
                if leg.rank().is_some() && response.status() == StatusCode::BAD_REQUEST =>
            {
                let begun = Begun::of(connection, response);
                // Apart, as it is rare.
                Box::pin(self.refused_by_rank(leg, begun, note)).await
            }
            Ok((connection, response)) => Ok(answered(leg, connection, response, note)),
            Err(failure) => Err(leg.blame(Leg::Whole, &failure, note)),
        }
    }

    /// A worker has said that something is wrong with the request, which may be its rank.
    async fn refused_by_rank(
        &self,
        leg: BookedLeg,
        begun: Begun,
        note: &mut Note,
    ) -> Result<Answered, Unanswered> {
        let ours = Ours { rank: true, ..Ours::default() };
        let understood = tokio::select! {
            biased;
            understood = begun.understood(Leg::Whole, ours) => understood,
            () = self.turn.deadline() => Err(Failure::TimedOut { hurried: true }),
        };
        match understood {
            Ok(Begun { connection, response, first, .. }) => {
                let paired = first.map(|first| Paired { first: Some(first), ..Paired::default() });
                let answered = answered(leg, connection, response, note);
                Ok(Answered { paired: paired.map(Box::new), ..answered })
            }
            Err(failure) => Err(leg.blame(Leg::Whole, &failure, note)),
        }
    }

    /// The client's request as the worker of this leg gets it.
    pub(super) fn request_for(&self, leg: &BookedLeg, rank: RankWord, body: Bytes) -> Request<Full<Bytes>> {
        let length = (body.len() != self.body.len()).then_some(body.len());
        let mut request = upstream_request(&self.head, body, &leg.member, &self.id);
        if let (Some(length), Some(said)) = (length, request.headers_mut().get_mut(header::CONTENT_LENGTH)) {
            // It was the length of the client's body.
            *said = HeaderValue::from(length);
        }
        if rank != RankWord::Clients {
            request.headers_mut().remove(RANK_HEADER);
        }
        request
    }

    fn retryable(&self, status: StatusCode) -> Option<Cause> {
        let statuses = &self.context.shared.settings.retry.statuses;
        statuses.contains(status.as_u16()).then_some(Cause::Status(status.as_u16()))
    }
}

impl Answered {
    fn take_aftermath(&mut self) -> Aftermath {
        let Aftermath { leg, worker, .. } = self.aftermath;
        std::mem::replace(&mut self.aftermath, Aftermath::of(leg, worker))
    }
}

/// The answer of a worker that is alone.
fn answered(
    leg: BookedLeg,
    connection: Connection,
    response: Response<Incoming>,
    note: &mut Note,
) -> Answered {
    note.upstream_head(Leg::Whole, response.status());
    let aftermath = Aftermath::of(Leg::Whole, leg.assignment.worker);
    leg.answered(Leg::Whole, connection, response, aftermath)
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
