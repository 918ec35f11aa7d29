//! Engines that are to hand over KV to one another and were started unlike, or without what the policy of their role goes by:
//! told in a line per model, when that is new.
//! It is no reason to keep requests from them: what an engine can do with an unlike one is its own affair.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use parking_lot::Mutex;
use router_core::Role;

use super::{Facts, Layout, Member, Standing};
use crate::shared::Shared;

/// What was told last, by model.
#[derive(Debug, Default)]
pub(crate) struct Unlike(Mutex<BTreeMap<Arc<str>, Vec<String>>>);

/// The engines of one role that serve one model, as far as they must be like others.
#[derive(Debug, Default)]
struct Pool {
    sizes: [BTreeSet<u64>; SIZES.len()],
    methods: BTreeSet<String>,
    /// How those share requests among their ranks whose ranks the router does not choose, and decode workers cannot tell from
    /// the room.
    scattered: BTreeSet<String>,
    /// Whether some of them keep nothing of a prompt for the next one, and whether some do.
    forgets: bool,
    remembers: bool,
}

/// A size that all engines of a model should have in common.
struct Size {
    name: &'static str,
    of: fn(&Facts) -> Option<u64>,
}

const SIZES: [Size; 2] = [
    Size { name: "tp_size", of: |facts| facts.tp_size },
    Size { name: "dp_size", of: |facts| facts.dp_size },
];

/// Whether what an engine says of itself changed in a way that matters here.
pub(super) fn is_news(before: &Facts, now: &Facts) -> bool {
    let matters = |facts: &Facts| {
        let Facts { disaggregation_mode, load_balance_method, model, .. } = facts;
        let sizes = SIZES.map(|size| (size.of)(facts));
        let words = [disaggregation_mode, load_balance_method, model].map(Clone::clone);
        (sizes, words, facts.keeps_prefixes)
    };
    matters(before) != matters(now)
}

/// Tells what is wrong now, model by model, unless it was told already.
pub(crate) fn tell(shared: &Shared) {
    // From before the look on: whoever looks later tells later.
    let mut told = shared.unlike.0.lock();
    let mut pools: BTreeMap<Arc<str>, [Pool; 2]> = BTreeMap::new();
    for worker in shared.standings() {
        let at = match worker.role {
            Role::Regular => continue,
            Role::Prefill => 0,
            Role::Decode => 1,
        };
        let model = worker.model.clone().unwrap_or_else(|| "unknown".into());
        pools.entry(model).or_default()[at].take(&worker);
    }
    let followed = followed(shared);
    let problems =
        |pools: &[Pool; 2]| differences(pools).into_iter().chain(in_vain(pools, &followed)).collect();
    let wrong: BTreeMap<Arc<str>, Vec<String>> =
        pools.into_iter().map(|(model, pools)| (model, problems(&pools))).collect();
    for (model, problems) in &wrong {
        let is_told = |problem: &&String| told.get(model).is_some_and(|told| told.contains(problem));
        for problem in problems.iter().filter(|problem| !is_told(problem)) {
            tracing::warn!(%model, "{problem}");
        }
    }
    *told = wrong;
}

impl Pool {
    fn take(&mut self, worker: &Standing) {
        let member: &Member = &worker.member;
        let facts = member.facts();
        for (sizes, size) in self.sizes.iter_mut().zip(&SIZES) {
            sizes.extend((size.of)(&facts));
        }
        self.forgets |= facts.keeps_prefixes == Some(false);
        self.remembers |= facts.keeps_prefixes == Some(true);
        let method = facts.load_balance_method;
        let is_scattered = worker.role == Role::Prefill
            && member.layout() == Layout::Whole
            && member.dp_size() > 1
            && !member.follows_room();
        if is_scattered {
            self.scattered.extend(method.clone());
        }
        self.methods.extend(method.filter(|_| member.dp_size() > 1));
    }
}

/// The policies of prefill and of decode workers that follow prefixes.
fn followed(shared: &Shared) -> [Option<&'static str>; 2] {
    let router = &shared.books.lock().router;
    [Role::Prefill, Role::Decode].map(|role| {
        let follows = router.signals_of(role).prefix_index.is_some();
        follows.then(|| router.config().policies.get(role).row().name)
    })
}

/// What is wrong where a policy follows prefixes that engines do not keep: a line for each role.
fn in_vain(pools: &[Pool; 2], followed: &[Option<&'static str>; 2]) -> Vec<String> {
    let remedies = [
        ("prefill", "start them without --disable-radix-cache"),
        ("decode", "start them with --disaggregation-decode-enable-radix-cache"),
    ];
    let roles = remedies.into_iter().zip(pools).zip(followed);
    let vain = roles.filter_map(|(((role, remedy), pool), policy)| {
        let policy = policy.filter(|_| pool.forgets)?;
        let some = if pool.remembers { "some " } else { "" };
        Some(format!(
            "{some}{role} workers keep no prefix cache, so {policy} gains nothing with them: give --{role}-policy power_of_two, or \
             {remedy}"
        ))
    });
    vain.collect()
}

/// What is wrong with the prefill and the decode workers of a model, in one line. What is not known is no difference.
fn differences(pools: &[Pool; 2]) -> Option<String> {
    let [prefill, decode] = pools;
    let mut parts: Vec<String> = Vec::new();
    for (at, size) in SIZES.iter().enumerate() {
        let [of_prefill, of_decode] = [&prefill.sizes[at], &decode.sizes[at]];
        let is_known = !of_prefill.is_empty() && !of_decode.is_empty();
        if is_known && (of_prefill != of_decode || of_prefill.len() > 1) {
            let name = size.name;
            parts.push(format!(
                "{name} is {} for prefill workers and {} for decode workers",
                listed(of_prefill),
                listed(of_decode)
            ));
        }
    }
    for (role, pool) in [(Role::Prefill, prefill), (Role::Decode, decode)] {
        if pool.methods.len() > 1 {
            let methods = listed(&pool.methods);
            parts.push(format!("load_balance_method of {} workers is {methods}", role.label()));
        }
    }
    let mut said = String::new();
    if !parts.is_empty() {
        let parts = parts.join("; ");
        said = format!(
            "unlike prefill and decode workers: {parts}; not all engines hand over KV between such: start them alike"
        );
    }
    if !prefill.scattered.is_empty() {
        let gap = if said.is_empty() { "" } else { "; and " };
        let _ = write!(
            said,
            "{gap}prefill workers with several ranks share requests among these by {}, so the room does not tell decode \
             workers which rank has the KV: start them with --load-balance-method follow_bootstrap_room, or the router with \
             --dp-aware",
            listed(&prefill.scattered)
        );
    }
    (!said.is_empty()).then_some(said)
}

fn listed<T: ToString>(values: &BTreeSet<T>) -> String {
    let values: Vec<_> = values.iter().map(ToString::to_string).collect();
    values.join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(tp: &[u64], dp: &[u64], methods: &[&str]) -> Pool {
        let methods = methods.iter().map(|method| (*method).to_owned()).collect();
        let sizes = [tp, dp].map(|sizes| sizes.iter().copied().collect());
        Pool { sizes, methods, ..Pool::default() }
    }

    #[test]
    fn what_differs_is_named_with_the_values_of_both_roles() {
        for (prefill, decode, parts) in [
            (
                pool(&[4], &[1], &[]),
                pool(&[8], &[1], &[]),
                &["tp_size is 4 for prefill", "and 8 for decode"][..],
            ),
            (pool(&[4], &[2], &[]), pool(&[4], &[1], &[]), &["dp_size is 2 for prefill", "and 1 for decode"]),
            (pool(&[4, 8], &[], &[]), pool(&[4, 8], &[], &[]), &["tp_size is 4 or 8 for prefill workers"]),
            (
                pool(&[], &[2], &["follow_bootstrap_room", "round_robin"]),
                pool(&[], &[2], &["round_robin"]),
                &["load_balance_method of prefill workers is follow_bootstrap_room or round_robin"],
            ),
        ] {
            let said = differences(&[prefill, decode]).expect("something");
            for part in parts {
                assert!(said.contains(part) && said.contains("start them alike"), "no {part:?} in {said}");
            }
        }
    }

    #[test]
    fn a_policy_that_follows_what_nobody_keeps_is_told_with_a_remedy() {
        let forgets = || Pool { forgets: true, ..Pool::default() };
        let told = |pools: [Pool; 2], followed| in_vain(&pools, &followed);
        let both = [Some("cache_aware"); 2];
        assert!(told([Pool::default(), Pool::default()], both).is_empty());
        assert!(told([forgets(), forgets()], [None, None]).is_empty());
        let said = told([Pool::default(), forgets()], both);
        let expected = "decode workers keep no prefix cache, so cache_aware gains nothing with them: give --decode-policy \
                        power_of_two, or start them with --disaggregation-decode-enable-radix-cache";
        assert_eq!(said, [expected]);
        assert_eq!(told([forgets(), forgets()], both).len(), 2);
        let mixed = told([Pool::default(), Pool { remembers: true, ..forgets() }], both);
        assert!(mixed[0].starts_with("some decode workers keep"), "{mixed:?}");
    }

    #[test]
    fn what_is_alike_or_not_known_yet_is_not_told() {
        for (prefill, decode) in [
            // The defaults of either role.
            (pool(&[1], &[2], &["follow_bootstrap_room"]), pool(&[1], &[2], &["round_robin"])),
            (pool(&[4], &[2], &[]), pool(&[], &[], &[])),
            (Pool::default(), pool(&[4, 8], &[], &[])),
        ] {
            assert_eq!(differences(&[prefill, decode]), None);
        }
    }
}
