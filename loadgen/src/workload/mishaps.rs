//! What goes wrong with which request. Every draw is a function of the seed, of what it is about and of the attempt at the
//! request, and of nothing that happened before: all policies meet the same faults, and so do both worlds.

use protocol::tokenizer::mix;

use super::draws::Component;
use crate::scenario::Faults;

/// The shortest and the longest time that a client stays who leaves, in nanoseconds.
const LEAVES_NS: [f64; 2] = [1e6, 1e10];

/// What a draw is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mishap {
    PrefillFails = 1,
    DecodeFails = 2,
    PrefillBusy = 3,
    DecodeBusy = 4,
    BusyHow = 5,
    PrefillStalls = 6,
    DecodeStalls = 7,
    Handshake = 8,
    Peer = 9,
    Transfer = 10,
    TransferHow = 11,
    TransferWhen = 12,
    Room = 13,
    RoomHow = 14,
    PrefillLate = 15,
    DecodeLate = 16,
    PrefillAbortLate = 17,
    DecodeAbortLate = 18,
    LateBy = 19,
    Leaves = 20,
    LeavesWhen = 21,
    Jitter = 22,
}

/// The draws of one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mishaps {
    salt: u64,
}

impl Mishaps {
    /// Those of a run with `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self { salt: mix(seed ^ mix(Component::Mishaps as u64)) }
    }

    /// Evenly in [0, 1), for the attempt of this name.
    pub(crate) fn unit(self, what: Mishap, name: u64) -> f64 {
        let drawn = mix(mix(self.salt ^ mix(what as u64)) ^ mix(name));
        (drawn >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Whether it is among this share.
    pub(crate) fn happens(self, what: Mishap, name: u64, share: f64) -> bool {
        share > 0.0 && self.unit(what, name) < share
    }

    /// A time from the first to the second one, in nanoseconds. Its logarithm is drawn evenly.
    pub(crate) fn span(self, what: Mishap, name: u64, [shortest, longest]: [f64; 2]) -> u64 {
        (shortest * (longest / shortest).powf(self.unit(what, name))) as u64
    }

    /// After how many nanoseconds the client of a request leaves, if it does. Every stage of a request is hit.
    pub(crate) fn client_leaves(self, faults: &Faults, seq: u64) -> Option<u64> {
        let leaves = self.happens(Mishap::Leaves, seq, faults.client_gone);
        leaves.then(|| self.span(Mishap::LeavesWhen, seq, LEAVES_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_depends_on_seed_kind_and_attempt_and_on_nothing_else() {
        let draws = Mishaps::new(7);
        let first = draws.unit(Mishap::Transfer, 3);
        for name in 0..100 {
            let _ = draws.unit(Mishap::DecodeFails, name);
        }
        assert_eq!(draws.unit(Mishap::Transfer, 3), first);
        let others = [(7, Mishap::Transfer, 4), (7, Mishap::Handshake, 3), (8, Mishap::Transfer, 3)];
        for (seed, what, name) in others {
            assert_ne!(Mishaps::new(seed).unit(what, name), first, "{seed} {what:?} {name}");
        }
    }

    #[test]
    fn clients_leave_in_their_share_at_all_times() {
        let faults = Faults { client_gone: 0.1, ..Faults::default() };
        let left: Vec<u64> =
            (0..20_000).filter_map(|seq| Mishaps::new(1).client_leaves(&faults, seq)).collect();
        assert!((1800..2200).contains(&left.len()), "{}", left.len());
        for [from, to] in [[1_000_000, 10_000_000], [1_000_000_000, 10_000_000_000]] {
            let share = left.iter().filter(|ns| (from..to).contains(*ns)).count() as f64 / left.len() as f64;
            assert!((share - 0.25).abs() < 0.05, "{from} ns to {to} ns: {share}");
        }
        assert_eq!(Mishaps::new(1).client_leaves(&Faults::default(), 0), None);
    }
}
