//! How many workers there are for each model, by role. A role that requests need and nobody has stands at 0, so that alerts
//! find it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use router_core::Role;

use super::page::Page;
use super::workers::WORKER_TYPE;
use super::{MODE, Scrape};
use crate::metrics::live::{Live, WorkerRow};
use crate::metrics::routes::UNKNOWN;

/// The two roles that a pair needs.
const HALVES: [Role; 2] = [Role::Prefill, Role::Decode];

/// The workers of a role that serve a model.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pool {
    size: u64,
    /// Those that may get requests.
    available: u64,
}

/// By role and model.
type Pools<'a> = BTreeMap<(&'a str, &'a str), Pool>;

/// Name, help and value of a family with one sample per pool.
type Gauge = (&'static str, &'static str, fn(&Pool) -> u64);

impl Scrape {
    pub(super) fn pools(&self, page: &mut Page) -> fmt::Result {
        let pools = pools(&self.live);
        let families: [Gauge; 2] = [
            ("smg_worker_pool_size", "Workers", |pool| pool.size),
            (
                "smg_worker_pool_available",
                "Workers that may get requests, by their health and their breakers",
                |pool| pool.available,
            ),
        ];
        for (name, help, value) in families {
            let mut family = page.gauge(name, help)?;
            for ((role, model), pool) in &pools {
                family.value(&[(WORKER_TYPE, role), MODE, ("model", model)], value(pool))?;
            }
        }
        Ok(())
    }
}

fn pools(live: &Live) -> Pools<'_> {
    let mut pools = Pools::new();
    for worker in &live.workers {
        let pool = pools.entry((worker.role, worker.model())).or_default();
        pool.size += 1;
        pool.available += u64::from(worker.available);
    }
    for missing in missing(live) {
        pools.entry(missing).or_default();
    }
    pools
}

/// The roles, each with the model, that nobody has. A pair of whatever model needs both halves; a fleet that is to have pairs
/// needs one of each, and every other one a worker.
fn missing(live: &Live) -> Vec<(&str, &str)> {
    let is_half = |role: &str| HALVES.iter().any(|half| half.label() == role);
    let mut models: BTreeSet<&str> =
        live.workers.iter().filter(|worker| is_half(worker.role)).map(WorkerRow::model).collect();
    if models.is_empty() && live.expects_pairs {
        models.insert(UNKNOWN);
    }
    if models.is_empty() && live.workers.is_empty() {
        return vec![(Role::Regular.label(), UNKNOWN)];
    }
    // Who has not said what it serves may get any request.
    let serves = |role: &str, model: &str| {
        let is_model = |other: &str| other == model || [other, model].contains(&UNKNOWN);
        live.workers.iter().any(|worker| worker.role == role && is_model(worker.model()))
    };
    let wanted = models.into_iter().flat_map(|model| HALVES.map(|role| (role.label(), model)));
    wanted.filter(|(role, model)| !serves(role, model)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(workers: &[(&'static str, &str, bool)], expects_pairs: bool) -> Vec<(String, u64, u64)> {
        let row = |(role, model, available): &(&'static str, &str, bool)| WorkerRow {
            role,
            model: (*model != UNKNOWN).then(|| (*model).into()),
            available: *available,
            ..WorkerRow::default()
        };
        let live = Live { workers: workers.iter().map(row).collect(), expects_pairs, ..Live::default() };
        let row = |((role, model), pool): (&(&str, &str), &Pool)| {
            (format!("{role} {model}"), pool.size, pool.available)
        };
        pools(&live).iter().map(row).collect()
    }

    fn expected(rows: &[(&str, u64, u64)]) -> Vec<(String, u64, u64)> {
        rows.iter().map(|(pool, size, available)| ((*pool).to_owned(), *size, *available)).collect()
    }

    #[test]
    fn a_role_that_a_fleet_should_have_and_has_not_stands_at_0() {
        for (workers, expects_pairs, rows) in [
            (&[][..], false, &[("regular unknown", 0, 0)][..]),
            (&[], true, &[("decode unknown", 0, 0), ("prefill unknown", 0, 0)]),
            (&[("regular", "m", true), ("regular", "m", false)], false, &[("regular m", 2, 1)]),
            (&[("decode", "m", true)], false, &[("decode m", 1, 1), ("prefill m", 0, 0)]),
            (
                &[("prefill", "a", true), ("decode", "b", true), ("regular", "a", true)],
                true,
                &[
                    ("decode a", 0, 0),
                    ("decode b", 1, 1),
                    ("prefill a", 1, 1),
                    ("prefill b", 0, 0),
                    ("regular a", 1, 1),
                ],
            ),
            // Only pairs that were asked for are missed where there are regular workers.
            (
                &[("regular", "m", true)],
                true,
                &[("decode unknown", 0, 0), ("prefill unknown", 0, 0), ("regular m", 1, 1)],
            ),
            // One that has not said its model serves that of the other.
            (
                &[("prefill", "m", true), ("decode", UNKNOWN, false)],
                true,
                &[("decode unknown", 1, 0), ("prefill m", 1, 1)],
            ),
        ] {
            assert_eq!(shown(workers, expects_pairs), expected(rows), "{workers:?} {expects_pairs}");
        }
    }
}
