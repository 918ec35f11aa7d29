//! A consistent-hashing ring: keys stay where they are when workers come and go, but for the share that must move.
//!
//! Every worker has 160 places on the ring, hashed from its URL, so that its share of keys is even to some 8 % and a restart
//! of the router changes nothing. A key belongs to the first place clockwise from its own hash whose worker will do.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::WorkerId;
use crate::fleet::Worker;

/// Places per worker.
const VIRTUAL_NODES: u64 = 160;

/// Workers on a circle of hashes.
#[derive(Debug, Default)]
pub(super) struct Ring {
    /// Ordered.
    places: Vec<(u64, WorkerId)>,
}

impl Ring {
    pub(super) fn add(&mut self, worker: &Worker) {
        let url = worker.url.as_bytes();
        self.places.extend((0..VIRTUAL_NODES).map(|node| (xxh3_64_with_seed(url, node), worker.id)));
        self.places.sort_unstable();
    }

    pub(super) fn remove(&mut self, worker: WorkerId) {
        self.places.retain(|(_, owner)| *owner != worker);
    }

    /// The first place clockwise from `hash`: whoever walks from there meets the same workers. `None` on an empty ring.
    pub(super) fn place(&self, hash: u64) -> Option<u64> {
        let at = self.places.partition_point(|(place, _)| *place < hash);
        self.places.get(at).or(self.places.first()).map(|(place, _)| *place)
    }

    /// The workers clockwise from `hash`, once around; a worker comes up once for each of its places.
    pub(super) fn clockwise(&self, hash: u64) -> impl Iterator<Item = WorkerId> {
        let (before, after) = self.places.split_at(self.places.partition_point(|(place, _)| *place < hash));
        after.iter().chain(before).map(|(_, worker)| *worker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Role;
    use protocol::tokenizer::mix;

    const KEYS: u64 = 20_000;

    fn worker(id: u32) -> Worker {
        let url = format!("http://10.0.0.{id}:30000");
        Worker { id: WorkerId(id), url, model: None, role: Role::Regular, healthy: true, draining: false }
    }

    fn ring(ids: impl IntoIterator<Item = u32>) -> Ring {
        let mut ring = Ring::default();
        ids.into_iter().for_each(|id| ring.add(&worker(id)));
        ring
    }

    fn owners(ring: &Ring) -> Vec<Option<WorkerId>> {
        (0..KEYS).map(|key| ring.clockwise(mix(key)).next()).collect()
    }

    #[test]
    fn a_joining_worker_takes_its_share_and_nothing_else_moves() {
        for n in [1, 4, 8, 31] {
            let before = owners(&ring(0..n));
            let after = owners(&ring(0..=n));
            let moved = before.iter().zip(&after).filter(|(b, a)| b != a).count() as f64;
            let fair = KEYS as f64 / f64::from(n + 1);
            assert!(
                (0.7 * fair..1.3 * fair).contains(&moved),
                "{moved} keys moved to worker {n}, {fair} is fair"
            );
            let to_others = before.iter().zip(&after).filter(|(b, a)| b != a && **a != Some(WorkerId(n)));
            assert_eq!(to_others.count(), 0, "a key moved between workers that were there before");
        }
    }

    #[test]
    fn a_leaving_worker_gives_its_keys_back() {
        let mut ring = ring(0..5);
        let before = owners(&ring);
        ring.add(&worker(7));
        ring.remove(WorkerId(7));
        assert_eq!(owners(&ring), before);
    }

    #[test]
    fn all_workers_come_up_going_around() {
        let ring = ring(0..6);
        let mut seen: Vec<_> = ring.clockwise(u64::MAX).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 6);
        assert_eq!(Ring::default().clockwise(5).count(), 0);
    }
}
