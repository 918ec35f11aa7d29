//! `manual`: a routing key stays with the worker that it was first assigned to.
//!
//! When that worker cannot be chosen, the key gets a second one, and goes back to the first when that is there again.
//! A request without a key is assigned like a new key, and not remembered.

use super::config::PolicyConfig;
use super::options::{OptionKind, OptionSpec, OptionValue};
use super::sticky::{Key, StickyTable};
use super::table::PolicyRow;
use super::{Candidate, Choice, Decision, Policy, Reason, Signals};
use crate::{Unroutable, WorkerId};

const STUCK: Reason = Reason::new("occupied_hit");
const MOVED: Reason = Reason::new("occupied_miss");
const NEW: Reason = Reason::new("vacant");
const NO_KEY: Reason = Reason::new("no_routing_id");

const ASSIGNMENT_MODE: OptionSpec = OptionSpec {
    key: "assignment_mode",
    kind: OptionKind::Choice(&["random", "min_load", "min_group"]),
    default: OptionValue::Text(std::borrow::Cow::Borrowed("random")),
    help: "where a new key goes: any worker, the one with the fewest requests in flight, or with the fewest keys",
    search: None,
};
const MAX_IDLE_SECS: OptionSpec = OptionSpec {
    key: "max_idle_secs",
    kind: OptionKind::Integer { min: 1, max: 1 << 32 },
    default: OptionValue::Integer(14_400),
    help: "seconds after which a key that is not used is forgotten",
    search: None,
};

pub(super) const ROW: PolicyRow = PolicyRow {
    name: "manual",
    summary: "A routing key stays with the worker that it was first assigned to.",
    options: &[ASSIGNMENT_MODE, MAX_IDLE_SECS],
    reasons: &[STUCK.as_str(), MOVED.as_str(), NEW.as_str(), NO_KEY.as_str()],
    needs_header: true,
    fewest_workers: 1,
    fits: |_| true,
    branch_metric: Some("smg_manual_policy_branch"),
    signals: |_| Signals::default(),
    build: |config| Box::new(Manual::new(config)),
};

/// Where a new key goes.
#[derive(Debug, Clone, Copy)]
enum Assignment {
    Random,
    MinLoad,
    MinGroup,
}

impl Assignment {
    fn of(config: &PolicyConfig) -> Self {
        match config.choice(ASSIGNMENT_MODE.key) {
            "min_load" => Self::MinLoad,
            "min_group" => Self::MinGroup,
            _ => Self::Random,
        }
    }
}

fn max_idle_ns(config: &PolicyConfig) -> u64 {
    config.integer(MAX_IDLE_SECS.key) * 1_000_000_000
}

#[derive(Debug)]
struct Manual {
    assignment: Assignment,
    table: StickyTable,
}

impl Manual {
    fn new(config: &PolicyConfig) -> Self {
        Self { assignment: Assignment::of(config), table: StickyTable::new(max_idle_ns(config)) }
    }

    fn assign<'d>(&self, decision: &'d Decision<'_>) -> &'d Candidate<'d> {
        let (candidates, mut draws) = (&decision.candidates, decision.draws());
        match self.assignment {
            Assignment::Random => candidates.at(draws.below(candidates.len())),
            Assignment::MinLoad => candidates.least_loaded(&mut draws),
            Assignment::MinGroup => candidates.least_by(&mut draws, |row| self.table.group(row.worker)),
        }
    }
}

impl Policy for Manual {
    fn choose<'d>(&self, decision: &'d Decision<'_>) -> Result<Choice<'d>, Unroutable> {
        let Some(key) = key(decision) else { return Ok(Choice::new(self.assign(decision), NO_KEY)) };
        let Some(mut workers) = self.table.workers(decision.now_ns, key) else {
            return Ok(Choice::new(self.assign(decision), NEW));
        };
        Ok(match workers.find_map(|worker| decision.candidates.get(worker)) {
            Some(row) => Choice::new(row, STUCK),
            None => Choice::new(self.assign(decision), MOVED),
        })
    }

    fn booked(&mut self, decision: &Decision<'_>, choice: Choice<'_>) {
        if let Some(key) = key(decision) {
            self.table.used(decision.now_ns, key, choice.candidate.worker);
        }
    }

    fn reconfigure(&mut self, config: &PolicyConfig) -> bool {
        self.assignment = Assignment::of(config);
        self.table.set_max_idle_ns(max_idle_ns(config));
        true
    }

    fn worker_removed(&mut self, worker: WorkerId) {
        self.table.forget(worker);
    }

    fn remembered_keys(&self) -> Option<usize> {
        Some(self.table.len())
    }

    fn keys_of(&self, worker: WorkerId) -> u64 {
        self.table.group(worker)
    }

    fn tick(&mut self, now_ns: u64) {
        self.table.expire(now_ns);
    }

    fn next_deadline(&self) -> Option<u64> {
        self.table.next_expiry()
    }
}

fn key(decision: &Decision<'_>) -> Option<Key> {
    let key = decision.request.keys.routing_key.filter(|key| !key.is_empty())?;
    Some(Key::new(decision.request.scope, key))
}

#[cfg(test)]
mod tests {
    use crate::testing::{SECOND, config, load, router, with_key};
    use crate::{OptionValue, Policies, Router, WorkerId};

    fn manual(mode: &str, options: &[(&str, OptionValue)]) -> Router {
        let options = [&[("assignment_mode", mode.into())], options].concat();
        router(config("manual", &options), 4, 1)
    }

    #[test]
    fn a_key_stays_where_it_was_first_assigned() {
        for mode in ["random", "min_load", "min_group"] {
            let mut router = manual(mode, &[]);
            let (home, reason) = with_key(&mut router, 0, "k");
            assert_eq!(reason, "vacant");
            load(&mut router, home, 50);
            for _ in 0..20 {
                assert_eq!(with_key(&mut router, 0, "k"), (home, "occupied_hit"), "mode {mode}");
            }
        }
    }

    #[test]
    fn a_key_returns_to_its_first_worker_when_that_recovers() {
        let mut router = manual("random", &[]);
        let (first, _) = with_key(&mut router, 0, "k");
        router.set_healthy(0, WorkerId(first), false);
        let (second, reason) = with_key(&mut router, 0, "k");
        assert!(second != first && reason == "occupied_miss");
        assert_eq!(
            with_key(&mut router, 0, "k"),
            (second, "occupied_hit"),
            "it sticks to the second meanwhile"
        );
        router.set_healthy(0, WorkerId(first), true);
        assert_eq!(with_key(&mut router, 0, "k"), (first, "occupied_hit"));
        router.set_healthy(0, WorkerId(first), false);
        assert_eq!(with_key(&mut router, 0, "k"), (second, "occupied_hit"), "both are remembered");
    }

    #[test]
    fn a_key_whose_worker_was_removed_gets_another() {
        let mut router = manual("min_group", &[]);
        let (first, _) = with_key(&mut router, 0, "k");
        router.remove_worker(0, WorkerId(first));
        let (second, reason) = with_key(&mut router, 0, "k");
        assert!(second != first && reason == "occupied_miss");
    }

    #[test]
    fn an_idle_key_is_forgotten() {
        let mut router = manual("random", &[("max_idle_secs", 10.into())]);
        with_key(&mut router, 0, "k");
        assert_eq!(with_key(&mut router, 9 * SECOND, "k").1, "occupied_hit");
        assert_eq!(router.next_deadline(), Some(19 * SECOND));
        assert_eq!(with_key(&mut router, 19 * SECOND, "k").1, "vacant", "it was used until 9 s");
        let keys = |router: &Router| router.workers(0).map(|row| row.routing_keys).sum::<Option<u64>>();
        assert_eq!((router.remembered_keys(), keys(&router)), (Some(1), Some(1)));
        router.tick(29 * SECOND);
        assert_eq!(router.next_deadline(), None);
        assert_eq!((router.remembered_keys(), keys(&router)), (Some(0), Some(0)));
        router.set_policies(29 * SECOND, Policies::all(config("random", &[])));
        assert_eq!((router.remembered_keys(), keys(&router)), (None, None), "it remembers none");
    }

    #[test]
    fn keys_stay_where_they_are_when_options_change() {
        let mut router = manual("random", &[("max_idle_secs", 100.into())]);
        let homes: Vec<_> = (0..8).map(|n| with_key(&mut router, 0, &format!("k{n}")).0).collect();
        let options = [("assignment_mode", "min_load".into()), ("max_idle_secs", 10.into())];
        router.set_policies(SECOND, Policies::all(config("manual", &options)));
        for (n, home) in homes.iter().enumerate() {
            assert_eq!(with_key(&mut router, 9 * SECOND, &format!("k{n}")), (*home, "occupied_hit"));
        }
        router.set_policies(18 * SECOND, Policies::all(config("manual", &[("max_idle_secs", 5.into())])));
        assert_eq!(router.next_deadline(), None, "all were idle for too long");
        assert_eq!(with_key(&mut router, 18 * SECOND, "k0").1, "vacant");
    }

    #[test]
    fn a_request_without_a_key_is_assigned_and_not_remembered() {
        let mut router = manual("min_group", &[]);
        for _ in 0..10 {
            assert_eq!(with_key(&mut router, 0, "").1, "no_routing_id");
        }
        assert_eq!(router.next_deadline(), None, "nothing is there that could expire");
    }

    #[test]
    fn new_keys_go_where_the_mode_says() {
        let mut by_load = manual("min_load", &[]);
        [0, 1, 3].into_iter().for_each(|worker| load(&mut by_load, worker, 1));
        assert!(
            (0..10).all(|n| with_key(&mut by_load, 0, &format!("k{n}")).0 == 2),
            "the others have one in flight"
        );

        let mut by_group = manual("min_group", &[]);
        let mut counts = [0; 4];
        (0..40).for_each(|n| counts[with_key(&mut by_group, 0, &format!("k{n}")).0 as usize] += 1);
        assert_eq!(counts, [10; 4], "the same number of keys each");

        let mut random = manual("random", &[]);
        let mut counts = [0; 4];
        (0..400).for_each(|n| counts[with_key(&mut random, 0, &format!("k{n}")).0 as usize] += 1);
        assert!(counts.iter().all(|count| (70..130).contains(count)), "{counts:?}");
    }
}
