//! Bootstrap rooms: the numbers by which the two engines of a pair know a request, from 0 up to 2^63 − 1.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use router_core::{Draws, LeaseId};

use super::bodies::RankWord;
use crate::fleet::Member;

/// One more than the largest room.
const ROOMS: usize = 1 << 63;

/// Draws rooms, none of which is in use.
#[derive(Debug)]
pub(crate) struct Rooms {
    seed: u64,
    taken: Arc<Mutex<HashSet<u64>>>,
}

/// The rooms of one request. They are free again when both legs have let go of them.
#[derive(Debug)]
pub(super) struct Taken {
    rooms: Vec<u64>,
    taken: Arc<Mutex<HashSet<u64>>>,
}

/// Which data-parallel rank of the prefill engine a room stands for, where it chooses by the room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Follow {
    pub(super) rank: u32,
    /// How many ranks it has.
    pub(super) of: u32,
}

/// Which rooms a request may have, and what its prefill engine is told of its rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PrefillRank {
    pub(super) follow: Option<Follow>,
    pub(super) word: RankWord,
}

impl PrefillRank {
    /// That of a prefill engine, of which the router has `chosen` a rank; the client names one too, or none. SGLang refuses a rank
    /// that is not the one for which the room stands, where ranks follow rooms ("follow_bootstrap_room conflict").
    pub(super) fn at(engine: &Member, chosen: Option<u32>, clients: Option<u64>) -> Self {
        let word = RankWord::of(chosen);
        let named = chosen.map(u64::from).or(clients).filter(|_| engine.follows_room());
        let Some(named) = named else { return Self { follow: None, word } };
        match (chosen, engine.said_dp_size()) {
            (None, None) => Self { follow: None, word: RankWord::Withheld },
            (_, of) => {
                let of = of.unwrap_or(1);
                // One that it does not have the engine refuses, whatever the room.
                Self { follow: u32::try_from(named).ok().map(|rank| Follow { rank, of }), word }
            }
        }
    }
}

impl Rooms {
    /// Rooms under this seed of this process. Two routers with the same seed in front of the same engines must not draw the
    /// same rooms, so what is `own` of each goes into them.
    pub(crate) fn new(seed: u64, own: u64) -> Self {
        Self { seed: seed ^ own, taken: Arc::default() }
    }

    /// So many rooms for the request with this booking.
    pub(super) fn take(&self, lease: LeaseId, count: usize, follow: Option<Follow>) -> Taken {
        let mut draws = Draws::new(self.seed, lease.0);
        let mut taken = self.taken.lock();
        let mut rooms = Vec::with_capacity(count);
        while rooms.len() < count {
            let drawn = draws.below(ROOMS) as u64;
            let room = follow.map_or(drawn, |follow| follow.room(drawn));
            if taken.insert(room) {
                rooms.push(room);
            }
        }
        Taken { rooms, taken: Arc::clone(&self.taken) }
    }
}

impl Follow {
    /// The next room below or above that stands for the rank.
    fn room(self, drawn: u64) -> u64 {
        let (of, rank) = (u64::from(self.of.max(1)), u64::from(self.rank));
        let base = drawn - drawn % of;
        let room = base + rank % of;
        if room < ROOMS as u64 { room } else { room - of }
    }
}

impl Taken {
    pub(super) fn rooms(&self) -> &[u64] {
        &self.rooms
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut taken = self.taken.lock();
        self.rooms.iter().for_each(|room| {
            taken.remove(room);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_below_2_to_the_63_different_and_free_again() {
        let rooms = Rooms::new(1, 7);
        let first = rooms.take(LeaseId(1), 100, None);
        // The same booking again draws the same numbers, which are taken.
        let second = rooms.take(LeaseId(1), 100, None);
        let all: HashSet<u64> = first.rooms().iter().chain(second.rooms()).copied().collect();
        assert_eq!(all.len(), 200);
        assert!(all.iter().all(|room| *room < 1 << 63));
        assert!(all.iter().any(|room| *room > 1 << 61), "the whole range");
        let drawn = first.rooms().to_vec();
        drop((first, second));
        assert_eq!(rooms.take(LeaseId(1), 100, None).rooms(), drawn);
        assert!(rooms.taken.lock().is_empty());
        assert_ne!(Rooms::new(1, 8).take(LeaseId(1), 100, None).rooms(), drawn);
    }

    // sgl-project/sglang#29725
    #[test]
    fn a_room_stands_for_the_rank() {
        for of in [1, 2, 3, 7, 64] {
            for rank in 0..of {
                let follow = Follow { rank, of };
                let taken = Rooms::new(3, 0).take(LeaseId(u64::from(of)), 50, Some(follow));
                assert!(taken.rooms().iter().all(|room| room % u64::from(of) == u64::from(rank)));
                for drawn in [0, (1 << 63) - 1, (1 << 63) - u64::from(of)] {
                    let room = follow.room(drawn);
                    assert!(room % u64::from(of) == u64::from(rank) && room < 1 << 63, "{drawn} {follow:?}");
                }
            }
        }
    }
}
