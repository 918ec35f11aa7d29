//! Everything that is drawn in a virtual run besides the plan: what goes wrong, rooms, and the jitter of retries.

use std::collections::BTreeMap;

use rand::RngExt;
use rand_pcg::Pcg64;
use simworker_core::EngineRole;

use crate::scenario::Faults;
use crate::workload::draws::{Component, stream, unit};

/// The shortest and the longest time that a client stays who leaves, in nanoseconds.
const LEAVES_NS: [f64; 2] = [1e6, 1e10];
/// The same of the time by which a leg or an abort is late, and after which a hand-off fails that has begun.
const LATE_NS: [f64; 2] = [1e6, 1e8];
const FAILS_NS: [f64; 2] = [1e5, 1e8];

/// The draws of one run.
pub(super) struct Dice {
    faults: Faults,
    rooms: Pcg64,
    mishaps: Pcg64,
    retries: Pcg64,
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

impl Dice {
    pub(super) fn new(faults: Faults, seed: u64) -> Self {
        let of = |component| stream(seed, component);
        Self {
            faults,
            rooms: of(Component::Rooms),
            mishaps: of(Component::Mishaps),
            retries: of(Component::Retries),
            tally: BTreeMap::new(),
        }
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

    /// Whether a worker answers a leg with 500.
    pub(super) fn leg_fails(&mut self, role: EngineRole) -> bool {
        let share = match role {
            EngineRole::Prefill => self.faults.prefill_failure,
            EngineRole::Decode | EngineRole::Whole => self.faults.decode_failure,
        };
        let fails = self.happens(share);
        if fails {
            self.note(if role == EngineRole::Prefill { "prefill 500" } else { "decode 500" });
        }
        fails
    }

    pub(super) fn crossing(&mut self) -> Crossing {
        let crossing = self.draw_crossing();
        if let Some(what) = crossing.label() {
            self.note(what);
        }
        crossing
    }

    fn draw_crossing(&mut self) -> Crossing {
        if self.happens(self.faults.handshake_lost) {
            return Crossing::Unheard;
        }
        if self.happens(self.faults.peer_lost) {
            return Crossing::PeerLost;
        }
        if !self.happens(self.faults.transfer_failure) {
            return Crossing::Whole;
        }
        match self.mishaps.random_range(0..4) {
            0 => Crossing::FailsFirst,
            1 => Crossing::FailsMidway(self.span(FAILS_NS)),
            2 => Crossing::FailsInFlight,
            _ => Crossing::FailsLast,
        }
    }

    pub(super) fn bad_room(&mut self) -> Option<BadRoom> {
        let bad = self.happens(self.faults.bad_room);
        bad.then(|| if self.happens(0.5) { BadRoom::Missing } else { BadRoom::InUse })
    }

    /// By how many nanoseconds a leg, or its abort, comes late.
    pub(super) fn late_ns(&mut self) -> u64 {
        if self.happens(self.faults.late_legs) { self.span(LATE_NS) } else { 0 }
    }

    /// After how many nanoseconds a client leaves, if it does. Every stage of a request is hit.
    pub(super) fn client_leaves(&mut self) -> Option<u64> {
        if !self.happens(self.faults.client_gone) {
            return None;
        }
        self.note("client leaves");
        Some(self.span(LEAVES_NS))
    }

    /// A time from the first to the second one, in nanoseconds. Its logarithm is drawn evenly.
    fn span(&mut self, [shortest, longest]: [f64; 2]) -> u64 {
        (shortest * (longest / shortest).powf(unit(&mut self.mishaps))) as u64
    }

    /// An even draw in [0, 1) for the jitter of a retry.
    pub(super) fn jitter(&mut self) -> f64 {
        unit(&mut self.retries)
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

    fn happens(&mut self, share: f64) -> bool {
        share > 0.0 && unit(&mut self.mishaps) < share
    }
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
    fn faults_come_in_their_shares() {
        let faults =
            Faults { transfer_failure: 0.2, handshake_lost: 0.1, peer_lost: 0.1, ..Faults::default() };
        let mut dice = Dice::new(faults, 1);
        let drawn: Vec<Crossing> = (0..20_000).map(|_| dice.crossing()).collect();
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
        assert!(!dice.leg_fails(EngineRole::Prefill) && dice.client_leaves().is_none());
    }
}
