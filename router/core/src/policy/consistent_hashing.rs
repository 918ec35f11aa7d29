//! `consistent_hashing`: requests with the same key go to the same worker, and few keys move when the fleet changes.
//!
//! The first of these decides: the worker that the request asks for, its routing key, what tells its client apart, a draw.

use xxhash_rust::xxh3::xxh3_64;

use super::ring::Ring;
use super::table::PolicyRow;
use super::{Choice, Decision, Policy, Reason, Signals};
use crate::fleet::Worker;
use crate::request::{RouteRequest, RoutingKeys};
use crate::{Unroutable, WorkerId};

const TARGET: Reason = Reason::new("target_worker_hit");
const ROUTING_KEY: Reason = Reason::new("routing_key_hit");
const IMPLICIT_KEY: Reason = Reason::new("implicit_key_hit");
const NO_KEY: Reason = Reason::new("random_fallback");

pub(super) const ROW: PolicyRow = PolicyRow {
    name: "consistent_hashing",
    summary: "The same routing key goes to the same worker; few keys move when the fleet changes.",
    options: &[],
    reasons: &[TARGET.as_str(), ROUTING_KEY.as_str(), IMPLICIT_KEY.as_str(), NO_KEY.as_str()],
    needs_header: true,
    fewest_workers: 1,
    fits: |_| true,
    branch_metric: Some("smg_consistent_hashing_policy_branch"),
    signals: |_| Signals::default(),
    build: |_| Box::new(ConsistentHashing::default()),
};

/// All workers are on one ring, whatever their scope; those that cannot be chosen are passed over.
#[derive(Debug, Default)]
struct ConsistentHashing {
    ring: Ring,
}

impl Policy for ConsistentHashing {
    fn choose<'d>(&self, decision: &'d Decision<'_>) -> Result<Choice<'d>, Unroutable> {
        let (keys, candidates) = (&decision.request.keys, &decision.candidates);
        if let Some(target) = present(keys.target_worker) {
            let row = decision.fleet.named(target).find_map(|worker| candidates.get(worker.id));
            let row = row.ok_or(Unroutable::TargetUnavailable)?;
            return Ok(Choice::new(row, TARGET));
        }
        let on_ring = key(keys).and_then(|(key, reason)| {
            let hash = decision.place.unwrap_or_else(|| xxh3_64(key.as_bytes()));
            let mut walk = self.ring.clockwise(hash);
            walk.find_map(|worker| candidates.get(worker)).map(|row| Choice::new(row, reason))
        });
        Ok(on_ring.unwrap_or_else(|| {
            let place = decision.draws().below(candidates.len());
            Choice::new(candidates.at(place), NO_KEY)
        }))
    }

    fn place(&self, request: &RouteRequest<'_>) -> Option<u64> {
        let (key, _) = key(&request.keys).filter(|_| present(request.keys.target_worker).is_none())?;
        self.ring.place(xxh3_64(key.as_bytes()))
    }

    fn worker_added(&mut self, worker: &Worker) {
        self.ring.add(worker);
    }

    fn worker_removed(&mut self, worker: WorkerId) {
        self.ring.remove(worker);
    }
}

/// The key that decides where no worker is asked for.
fn key<'a>(keys: &RoutingKeys<'a>) -> Option<(&'a str, Reason)> {
    let key = present(keys.routing_key).map(|key| (key, ROUTING_KEY));
    key.or_else(|| present(keys.implicit).map(|key| (key, IMPLICIT_KEY)))
}

/// A header that says something.
fn present(header: Option<&str>) -> Option<&str> {
    header.map(str::trim).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use crate::testing::{config, router, with_keys};
    use crate::{Router, RoutingKeys, Unroutable, WorkerId};

    const NONE: RoutingKeys<'_> = RoutingKeys { target_worker: None, routing_key: None, implicit: None };

    fn ring(workers: u32) -> Router {
        router(config("consistent_hashing", &[]), workers, 1)
    }

    fn go(router: &mut Router, keys: RoutingKeys<'_>) -> Result<(u32, &'static str), Unroutable> {
        with_keys(router, 0, keys).map(|assignment| (assignment.worker.0, assignment.reason.as_str()))
    }

    fn homes(router: &mut Router) -> Vec<u32> {
        let key = |n| format!("session-{n}");
        (0..1000)
            .map(|n| go(router, RoutingKeys { routing_key: Some(&key(n)), ..NONE }).expect("a worker").0)
            .collect()
    }

    #[test]
    fn the_first_key_that_is_there_decides() {
        let mut router = ring(4);
        let all = RoutingKeys { target_worker: Some("2"), routing_key: Some("k"), implicit: Some("i") };
        assert_eq!(go(&mut router, all), Ok((2, "target_worker_hit")));
        let keys = RoutingKeys { target_worker: Some(" "), ..all };
        let by_key = go(&mut router, keys);
        assert_eq!(by_key.map(|(_, reason)| reason), Ok("routing_key_hit"));
        assert_eq!(go(&mut router, RoutingKeys { implicit: None, ..keys }), by_key);
        let keys = RoutingKeys { implicit: Some("k"), ..NONE };
        assert_eq!(go(&mut router, keys).map(|(worker, _)| worker), by_key.map(|(worker, _)| worker));
        assert_eq!(go(&mut router, keys).map(|(_, reason)| reason), Ok("implicit_key_hit"));
        assert_eq!(go(&mut router, NONE).map(|(_, reason)| reason), Ok("random_fallback"));
    }

    #[test]
    fn a_target_is_an_index_or_a_url_and_never_another_worker() {
        let mut router = ring(3);
        for (target, expected) in [
            ("0", Ok((0, "target_worker_hit"))),
            ("http://10.0.0.1:30000", Ok((1, "target_worker_hit"))),
            ("http://10.0.0.1:30000/", Ok((1, "target_worker_hit"))),
            ("3", Err(Unroutable::TargetUnavailable)),
            ("-1", Err(Unroutable::TargetUnavailable)),
            ("http://10.0.0.9:30000", Err(Unroutable::TargetUnavailable)),
        ] {
            assert_eq!(
                go(&mut router, RoutingKeys { target_worker: Some(target), ..NONE }),
                expected,
                "{target}"
            );
        }
        router.set_healthy(0, WorkerId(1), false);
        let down = RoutingKeys { target_worker: Some("1"), ..NONE };
        assert_eq!(go(&mut router, down), Err(Unroutable::TargetUnavailable));
        let third = RoutingKeys { target_worker: Some("2"), ..NONE };
        assert_eq!(
            go(&mut router, third),
            Ok((2, "target_worker_hit")),
            "an index does not shift when a worker is down"
        );
    }

    #[test]
    fn a_key_leaves_a_worker_that_is_down_and_comes_back() {
        let mut router = ring(4);
        let before = homes(&mut router);
        router.set_healthy(0, WorkerId(1), false);
        let during = homes(&mut router);
        assert!(
            before.iter().zip(&during).all(|(b, d)| *d != 1 && (b == d || *b == 1)),
            "only its own keys moved"
        );
        router.set_healthy(0, WorkerId(1), true);
        assert_eq!(homes(&mut router), before);
    }

    #[test]
    fn keys_are_shared_out_about_evenly() {
        let homes = homes(&mut ring(4));
        for worker in 0..4 {
            let count = homes.iter().filter(|home| **home == worker).count();
            assert!((160..340).contains(&count), "worker {worker} has {count} of 1000 keys");
        }
    }
}
