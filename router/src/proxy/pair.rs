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
use super::bodies::{Bodies, Introduction, RankWord};
use super::call::Call;
use super::earlier::Earlier;
use super::note::Note;
use super::ours::Ours;
use super::prepare::BookedLeg;
use super::race::{Finish, Race, Sent};
use super::rooms::{PrefillRank, Taken};
use super::tries::{Aftermath, Answered, Errand, Unanswered};
use crate::error::Half;
use crate::fleet::Member;
use crate::upstream::{Connection, NoAnswer, Pool, reach};

/// Overrules the rank in a body, so it does not go to an engine whose rank the router has chosen.
pub(super) const RANK_HEADER: HeaderName = HeaderName::from_static("x-data-parallel-rank");

/// A try at a pair.
pub(super) struct Pair<'a> {
    pub(super) errand: &'a Errand<'a>,
    pub(super) prefill: BookedLeg,
    pub(super) decode: BookedLeg,
    pub(super) earlier: &'a Earlier,
}

/// Both connections, and what is sent on them.
struct Ready {
    connections: (Connection, Connection),
    bodies: Bodies,
    asked: Asked,
    rooms: Taken,
    rank: PrefillRank,
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
            ready = by(first_byte, self.prepare()) => ready.unwrap_or(Err((None, Failure::NoFirstByte))),
            () = self.errand.turn.deadline() => Err((None, overdue())),
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

    /// Both connections and both bodies; otherwise why not, and whose fault that is.
    async fn prepare(&self) -> Result<Ready, (Option<Half>, Failure)> {
        let Errand { context, endpoint, body, .. } = self.errand;
        let asked = Asked::read(endpoint.dialect, body).map_err(|_| (None, Failure::TooManyItems))?;
        if asked.rids.len() > MAX_ITEMS {
            return Err((None, Failure::TooManyItems));
        }
        let rank = self.prefill_rank(&asked);
        let lease = self.prefill.assignment.lease;
        let rooms = context.shared.rooms.take(lease, asked.items.rooms(), rank.follow);
        let bodies = self
            .bodies(asked.items, rooms.rooms(), rank.word)
            .map_err(|NoObject| (None, Failure::NoObject))?;
        let connections = self.reach(&context.pool).await?;
        Ok(Ready { connections, bodies, asked, rooms, rank })
    }

    /// A connection to each worker. Where only one can be had, it goes back: it has not been used.
    async fn reach(&self, pool: &Pool) -> Result<(Connection, Connection), (Option<Half>, Failure)> {
        let [prefill, decode] = [&self.prefill.member, &self.decode.member];
        let (mut to_prefill, mut to_decode) = (None, None);
        let to = async |leg: Half, member: &Member, had: &mut Option<Connection>| {
            let reached = reach(pool, member).await;
            *had = Some(reached.map_err(|missing: NoAnswer| (Some(leg), Failure::from(missing)))?);
            Ok(())
        };
        let reached = tokio::try_join!(
            to(Half::Prefill, prefill, &mut to_prefill),
            to(Half::Decode, decode, &mut to_decode)
        );
        match (to_prefill, to_decode) {
            (Some(to_prefill), Some(to_decode)) => Ok((to_prefill, to_decode)),
            (to_prefill, to_decode) => {
                to_prefill.into_iter().for_each(|connection| pool.give_back(prefill, connection));
                to_decode.into_iter().for_each(|connection| pool.give_back(decode, connection));
                Err(reached.expect_err("one of them was not reached"))
            }
        }
    }

    /// The header goes before the body, as it does for SGLang.
    fn prefill_rank(&self, asked: &Asked) -> PrefillRank {
        let header =
            self.errand.head.headers.get(RANK_HEADER).map(|value| value.to_str().unwrap_or_default());
        let clients = header.map_or(asked.dp_rank, |text| text.trim().parse().ok());
        PrefillRank::at(&self.prefill.member, self.prefill.rank(), clients)
    }

    fn bodies(&self, items: Items, rooms: &[u64], prefill_rank: RankWord) -> Result<Bodies, NoObject> {
        let introduction = Introduction {
            items,
            bootstrap: &self.prefill.member.bootstrap(),
            rooms,
            rank_field: self.errand.context.shared.settings.dp_rank_field,
            prefill_rank,
            decode_rank: RankWord::of(self.decode.rank()),
        };
        introduction.bodies(&self.errand.body)
    }

    /// Both requests, to be sent when the race is run.
    fn race(self, ready: Ready) -> Race<'a> {
        let Self { errand, prefill, decode, earlier } = self;
        let Ready { connections: (to_prefill, to_decode), bodies, asked, rooms, rank } = ready;
        let to_prefill = (to_prefill, errand.request_for(&prefill, rank.word, bodies.prefill));
        let word = RankWord::of(decode.rank());
        let to_decode = (to_decode, errand.request_for(&decode, word, bodies.decode));
        let call = |leg: &BookedLeg, (connection, request), keeps, room| Call {
            pool: Arc::clone(&errand.context.pool),
            member: Arc::clone(&leg.member),
            connection,
            request,
            keeps,
            ours: Ours { is_again: earlier.has_been_at(&leg.member), rank: leg.rank().is_some(), room },
        };
        let running =
            Box::pin(call(&prefill, to_prefill, asked.input_logprobs, rank.follow.is_some()).prefill());
        let decoding = Box::pin(call(&decode, to_decode, false, false).decode());
        let named = earlier.named(|| errand.context.shared.names.enter(asked.rids));
        let (merges, rooms) = (asked.input_logprobs, Arc::new(rooms));
        Race::new(errand, prefill, decode, Sent { running, decoding, merges, named, rooms })
    }

    /// Nothing was sent, by this leg's fault or by nobody's that is known.
    fn unsent(self, leg: Option<Half>, failure: &Failure, note: &mut Note) -> Unanswered {
        let Self { prefill, decode, .. } = self;
        let (leg, failed, other) = match leg {
            Some(leg @ Half::Prefill) => (leg, prefill, decode),
            Some(leg @ Half::Decode) => (leg, decode, prefill),
            None => {
                note.absolve();
                let aftermath = Aftermath::of(Leg::Whole, decode.assignment.worker);
                for booking in [prefill.booking, decode.booking] {
                    booking.fail(Outcome::Refused);
                }
                return Unanswered { cause: None, refusal: failure.refusal_of_pair(), aftermath };
            }
        };
        other.booking.fail(Outcome::Refused);
        failed.blame(leg.into(), failure, note)
    }
}

/// What comes of it until then; `None` if nothing does.
async fn by<T>(end: Option<Instant>, coming: impl Future<Output = T>) -> Option<T> {
    match end {
        None => Some(coming.await),
        Some(end) => tokio::time::timeout_at(end, coming).await.ok(),
    }
}
