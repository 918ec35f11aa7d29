//! What goes wrong in a virtual run, and how often each thing did; and the rooms of pairs.

use std::collections::BTreeMap;

use rand::RngExt;
use rand_pcg::Pcg64;
use simworker_core::{EngineRole, RequestId};

use crate::scenario::Faults;
use crate::workload::draws::{Component, stream};
use crate::workload::mishaps::{Mishap, Mishaps};

/// The shortest and the longest time by which a leg or an abort is late, and after which a hand-off fails that has begun, in
/// nanoseconds.
const LATE_NS: [f64; 2] = [1e6, 1e8];
const FAILS_NS: [f64; 2] = [1e5, 1e8];

/// The draws of one run.
pub(super) struct Dice {
    faults: Faults,
    rooms: Pcg64,
    mishaps: Mishaps,
    tally: BTreeMap<&'static str, u64>,
}

/// What becomes of a hand-off of KV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Crossing {
    /// It arrives.
    Whole,
    /// The prefill side never hears that the decode side is ready.
    Unheard,
    /// Nor does it here; the decode side notices that the other one is gone.
    PeerLost,
    /// It fails before anything is sent; both sides notice.
    FailsFirst,
    /// It fails so many nanoseconds after the prefill side has heard, or not at all if it is over by then; both sides
    /// notice.
    FailsMidway(u64),
    /// It fails when the prompt has been computed and its KV is on its way; both sides notice.
    FailsInFlight,
    /// It fails with the last byte; the decode side notices.
    FailsLast,
}

impl Crossing {
    /// What went wrong, for the tally.
    fn label(self) -> Option<&'static str> {
        match self {
            Self::Whole => None,
            Self::Unheard => Some("unheard"),
            Self::PeerLost => Some("loses its peer"),
            Self::FailsFirst => Some("fails first"),
            Self::FailsMidway(_) => Some("fails midway"),
            Self::FailsInFlight => Some("fails in flight"),
            Self::FailsLast => Some("fails last"),
        }
    }
}

/// What is wrong with the room that the legs of a pair are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadRoom {
    /// They are told none.
    Missing,
    /// It is that of another request.
    InUse,
}

/// What a worker does with a leg instead of serving it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    /// It answers this status; with `Retry-After` if it is busy.
    Answers { status: u16, busy: bool },
    /// It says nothing, for ever.
    Silent,
}

impl Dice {
    pub(super) fn new(faults: Faults, seed: u64) -> Self {
        let (rooms, mishaps) = (stream(seed, Component::Rooms), Mishaps::new(seed));
        Self { faults, rooms, mishaps, tally: BTreeMap::new() }
    }

    /// A bootstrap room below 2^63, as SGLang wants it. With `aligned`, a number of ranks and one of them, the room leads
    /// to that rank where the engine goes by the room.
    pub(super) fn room(&mut self, aligned: Option<(u32, u32)>) -> u64 {
        let drawn = self.rooms.random::<u64>() >> 1;
        let Some((size, rank)) = aligned else { return drawn };
        let (size, rank) = (u64::from(size), u64::from(rank));
        let led = drawn - drawn % size + rank;
        if led >> 63 == 0 { led } else { led - size }
    }

    /// What a worker does with a leg of an attempt, if it does not serve it.
    pub(super) fn mood(&mut self, role: EngineRole, id: RequestId) -> Option<Mood> {
        let Faults { prefill_failure, decode_failure, busy, stalled, .. } = self.faults;
        let of = |prefill, decode| of_role(role, prefill, decode);
        let fails = of(Mishap::PrefillFails, Mishap::DecodeFails);
        if self.happens(fails, id, of_role(role, prefill_failure, decode_failure)) {
            self.note(of_role(role, "prefill 500", "decode 500"));
            return Some(Mood::Answers { status: 500, busy: false });
        }
        if self.happens(of(Mishap::PrefillBusy, Mishap::DecodeBusy), id, busy) {
            let status = if self.happens(Mishap::BusyHow, id, 0.5) { 429 } else { 503 };
            self.note(match status {
                429 => of_role(role, "prefill 429", "decode 429"),
                _ => of_role(role, "prefill 503", "decode 503"),
            });
            return Some(Mood::Answers { status, busy: true });
        }
        if self.happens(of(Mishap::PrefillStalls, Mishap::DecodeStalls), id, stalled) {
            self.note(of_role(role, "prefill stalls", "decode stalls"));
            return Some(Mood::Silent);
        }
        None
    }

    /// What becomes of the hand-off of an attempt.
    pub(super) fn crossing(&mut self, id: RequestId) -> Crossing {
        let crossing = self.draw_crossing(id);
        if let Some(what) = crossing.label() {
            self.note(what);
        }
        crossing
    }

    fn draw_crossing(&self, id: RequestId) -> Crossing {
        if self.happens(Mishap::Handshake, id, self.faults.handshake_lost) {
            return Crossing::Unheard;
        }
        if self.happens(Mishap::Peer, id, self.faults.peer_lost) {
            return Crossing::PeerLost;
        }
        if !self.happens(Mishap::Transfer, id, self.faults.transfer_failure) {
            return Crossing::Whole;
        }
        match (self.mishaps.unit(Mishap::TransferHow, id.0) * 4.0) as u32 {
            0 => Crossing::FailsFirst,
            1 => Crossing::FailsMidway(self.mishaps.span(Mishap::TransferWhen, id.0, FAILS_NS)),
            2 => Crossing::FailsInFlight,
            _ => Crossing::FailsLast,
        }
    }

    /// What is wrong with the room of an attempt, if anything is.
    pub(super) fn bad_room(&self, id: RequestId) -> Option<BadRoom> {
        let bad = self.happens(Mishap::Room, id, self.faults.bad_room);
        bad.then(|| if self.happens(Mishap::RoomHow, id, 0.5) { BadRoom::Missing } else { BadRoom::InUse })
    }

    /// By how many nanoseconds a leg comes late to a worker of this role.
    pub(super) fn leg_late_ns(&self, role: EngineRole, id: RequestId) -> u64 {
        self.late_ns(of_role(role, Mishap::PrefillLate, Mishap::DecodeLate), id)
    }

    /// By how many nanoseconds its abort does.
    pub(super) fn abort_late_ns(&self, role: EngineRole, id: RequestId) -> u64 {
        self.late_ns(of_role(role, Mishap::PrefillAbortLate, Mishap::DecodeAbortLate), id)
    }

    fn late_ns(&self, what: Mishap, id: RequestId) -> u64 {
        let late = self.happens(what, id, self.faults.late_legs);
        if late { self.mishaps.span(Mishap::LateBy, id.0 ^ what as u64, LATE_NS) } else { 0 }
    }

    /// How many times as long as it should a step of a worker takes.
    pub(super) fn slowness(&self, place: u32) -> f64 {
        self.faults.slowness(place)
    }

    /// After how many nanoseconds a client leaves, if it does.
    pub(super) fn client_leaves(&mut self, seq: u64) -> Option<u64> {
        let after_ns = self.mishaps.client_leaves(&self.faults, seq);
        if after_ns.is_some() {
            self.note("client leaves");
        }
        after_ns
    }

    /// An even draw in [0, 1) for the jitter of the retry that follows an attempt.
    pub(super) fn jitter(&self, id: RequestId) -> f64 {
        self.mishaps.unit(Mishap::Jitter, id.0)
    }

    /// From now on nothing goes wrong.
    #[cfg(test)]
    pub(super) fn rest(&mut self) {
        self.faults = Faults::default();
    }

    /// How often each thing went wrong.
    #[cfg(test)]
    pub(super) fn tally(&self) -> &BTreeMap<&'static str, u64> {
        &self.tally
    }

    /// Counts what went wrong.
    pub(super) fn note(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    fn happens(&self, what: Mishap, id: RequestId, share: f64) -> bool {
        self.mishaps.happens(what, id.0, share)
    }
}

/// One of two, by the role of a worker: workers that do both answer as decode workers do.
fn of_role<T>(role: EngineRole, prefill: T, decode: T) -> T {
    if role == EngineRole::Prefill { prefill } else { decode }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_lead_to_their_rank_and_stay_below_two_to_the_63rd() {
        let mut dice = Dice::new(Faults::default(), 7);
        for size in [1, 2, 3, 4, 7, 255] {
            for rank in 0..size {
                let room = dice.room(Some((size, rank)));
                assert_eq!((room % u64::from(size), room >> 63), (u64::from(rank), 0), "{size} {rank}");
            }
        }
        assert_ne!(dice.room(None), dice.room(None));
    }

    #[test]
    fn hand_offs_fail_in_their_shares() {
        let faults =
            Faults { transfer_failure: 0.2, handshake_lost: 0.1, peer_lost: 0.1, ..Faults::default() };
        let mut dice = Dice::new(faults, 1);
        let drawn: Vec<Crossing> = (0..20_000).map(|name| dice.crossing(RequestId(name))).collect();
        let share = |of: Crossing| drawn.iter().filter(|c| c.label() == of.label()).count() as f64 / 20_000.0;
        for (crossing, expected) in [
            (Crossing::Unheard, 0.1),
            (Crossing::PeerLost, 0.09),
            (Crossing::FailsFirst, 0.0405),
            (Crossing::FailsMidway(0), 0.0405),
            (Crossing::FailsInFlight, 0.0405),
            (Crossing::FailsLast, 0.0405),
        ] {
            assert!((share(crossing) - expected).abs() < 0.01, "{crossing:?}: {}", share(crossing));
        }
        assert!(dice.mood(EngineRole::Prefill, RequestId(1)).is_none() && dice.client_leaves(1).is_none());
    }

    #[test]
    fn workers_refuse_and_fall_silent_in_their_shares() {
        let faults = Faults { decode_failure: 0.1, busy: 0.2, stalled: 0.1, ..Faults::default() };
        let mut dice = Dice::new(faults, 1);
        for id in 0..20_000 {
            for role in [EngineRole::Prefill, EngineRole::Decode] {
                let _ = dice.mood(role, RequestId(id));
            }
        }
        for (what, expected) in [
            ("decode 500", 0.1),
            ("prefill 429", 0.1),
            ("prefill 503", 0.1),
            ("decode 429", 0.09),
            ("prefill stalls", 0.08),
            ("decode stalls", 0.072),
        ] {
            let share = dice.tally()[what] as f64 / 20_000.0;
            assert!((share - expected).abs() < 0.01, "{what}: {share}");
        }
        assert!(!dice.tally().contains_key("prefill 500"));
    }
}
