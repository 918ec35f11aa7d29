//! One try at a pair of workers: both legs are sent at once, and the decode leg's answer is the client's.
//!
//! Nothing goes to the client before the first bytes of decode's body are there. Until then a leg that fails ends the try:
//! its worker alone is to blame, the other leg is closed, and the request may be tried anew or the client be told. A response
//! head alone is no answer: SGLang sends one before it knows whether there will be a token.
//!
//! Both connections are had before anything is sent on either, and the requests are written one behind the other without
//! a pause in between, unless one of the connections turns out to be closed and has to be made anew. So a client that leaves
//! hardly ever leaves one engine alone with a room.

use std::sync::Arc;

use http::HeaderName;
use protocol::pd::{Asked, Items, MAX_ITEMS};
use protocol::splice::NoObject;
use router_core::{Leg, Outcome};
use tokio::time::Instant;

use super::attempt::Failure;
use super::bodies::{Bodies, Introduction};
use super::call::Call;
use super::note::Note;
use super::prepare::BookedLeg;
use super::race::{Finish, Race, Sent};
use super::rooms::{Follow, Taken};
use super::tries::{Aftermath, Answered, Errand, Unanswered};
use crate::fleet::Member;
use crate::upstream::{Connection, NoAnswer, reach};

/// Overrules the rank in a body, so it does not go to an engine whose rank the router has chosen.
pub(super) const RANK_HEADER: HeaderName = HeaderName::from_static("x-data-parallel-rank");

/// A try at a pair.
pub(super) struct Pair<'a> {
    pub(super) errand: &'a Errand<'a>,
    pub(super) prefill: BookedLeg,
    pub(super) decode: BookedLeg,
}

/// Both connections, and what is sent on them.
struct Ready {
    connections: (Connection, Connection),
    bodies: Bodies,
    asked: Asked,
    rooms: Taken,
}

impl<'a> Pair<'a> {
    /// Tries both workers.
    pub(super) async fn attempt(self, note: &mut Note) -> Result<Answered, Unanswered> {
        let timeouts = &self.errand.context.shared.settings.timeouts;
        let begun = Instant::now();
        let first_byte = timeouts.first_byte.map(|limit| begun + limit);
        let overdue = || Failure::TimedOut { hurried: begun.elapsed() < timeouts.request / 2 };
        let ready = tokio::select! {
            biased;
            ready = by(first_byte, self.prepare()) => ready.unwrap_or(Err((Leg::Whole, Failure::NoFirstByte))),
            () = self.errand.turn.deadline() => Err((Leg::Whole, overdue())),
        };
        let errand = self.errand;
        let mut race = match ready {
            Ok(ready) => self.race(ready),
            Err((leg, failure)) => return Err(self.unsent(leg, &failure, note)),
        };
        let finish = tokio::select! {
            biased;
            finish = by(first_byte, race.run()) => finish.unwrap_or(Finish::Late(Failure::NoFirstByte)),
            () = errand.turn.deadline() => Finish::Late(overdue()),
        };
        let finish = race.hear_prefill(finish).await;
        race.judge(finish, note)
    }

    /// Both connections and both bodies.
    async fn prepare(&self) -> Result<Ready, (Leg, Failure)> {
        let Errand { context, endpoint, body, .. } = self.errand;
        let asked = Asked::read(endpoint.dialect, body).map_err(|_| (Leg::Whole, Failure::TooManyItems))?;
        if asked.rids.len() > MAX_ITEMS {
            return Err((Leg::Whole, Failure::TooManyItems));
        }
        let rooms = self.rooms(asked.items);
        let bodies =
            self.bodies(asked.items, rooms.rooms()).map_err(|NoObject| (Leg::Whole, Failure::NoObject))?;
        let to = async |leg: Leg, member: &Member| {
            reach(&context.pool, member).await.map_err(|missing: NoAnswer| (leg, Failure::from(missing)))
        };
        let connections =
            tokio::try_join!(to(Leg::Prefill, &self.prefill.member), to(Leg::Decode, &self.decode.member))?;
        Ok(Ready { connections, bodies, asked, rooms })
    }

    fn rooms(&self, items: Items) -> Taken {
        let BookedLeg { member, assignment, .. } = &self.prefill;
        let rank = self.prefill.rank().filter(|_| member.follows_room());
        let follow = rank.map(|rank| Follow { rank, of: member.dp_size() });
        self.errand.context.shared.rooms.take(assignment.lease, items.rooms(), follow)
    }

    fn bodies(&self, items: Items, rooms: &[u64]) -> Result<Bodies, NoObject> {
        let introduction = Introduction {
            items,
            bootstrap: &self.prefill.member.bootstrap(),
            rooms,
            rank_field: self.errand.context.shared.settings.dp_rank_field,
            prefill_rank: self.prefill.rank(),
            decode_rank: self.decode.rank(),
        };
        introduction.bodies(&self.errand.body)
    }

    /// Both requests, to be sent when the race is run.
    fn race(self, ready: Ready) -> Race<'a> {
        let Self { errand, prefill, decode } = self;
        let Ready { connections: (to_prefill, to_decode), bodies, asked, rooms } = ready;
        let request = |leg: &BookedLeg, body| errand.request_for(leg, body);
        let to_prefill = (to_prefill, request(&prefill, bodies.prefill));
        let to_decode = (to_decode, request(&decode, bodies.decode));
        let call = |leg: &BookedLeg, (connection, request), keeps| Call {
            pool: Arc::clone(&errand.context.pool),
            member: Arc::clone(&leg.member),
            connection,
            request,
            keeps,
        };
        let running = Box::pin(call(&prefill, to_prefill, asked.input_logprobs).prefill());
        let decoding = Box::pin(call(&decode, to_decode, false).decode());
        let named = Arc::new(errand.context.shared.names.enter(asked.rids));
        let (merges, rooms) = (asked.input_logprobs, Arc::new(rooms));
        Race::new(errand, prefill, decode, Sent { running, decoding, merges, named, rooms })
    }

    /// Nothing was sent.
    fn unsent(self, leg: Leg, failure: &Failure, note: &mut Note) -> Unanswered {
        let Self { prefill, decode, .. } = self;
        let (failed, other) = match leg {
            Leg::Prefill => (prefill, decode),
            Leg::Decode | Leg::Whole => (decode, prefill),
        };
        other.booking.fail(Outcome::Refused);
        if leg == Leg::Whole {
            // Nobody's fault, or nobody knows whose.
            failed.booking.fail(Outcome::Refused);
            note.absolve();
            let aftermath = Aftermath::of(leg, failed.assignment.worker);
            return Unanswered { cause: None, refusal: failure.refusal(), aftermath };
        }
        failed.blame(leg, failure, note)
    }
}

/// What comes of it until then; `None` if nothing does.
async fn by<T>(end: Option<Instant>, coming: impl Future<Output = T>) -> Option<T> {
    match end {
        None => Some(coming.await),
        Some(end) => tokio::time::timeout_at(end, coming).await.ok(),
    }
}
