//! The engines of the fleet, each behind its front end, and the names by which the router knows them.

use std::collections::BTreeSet;

use router_core::ids::WorkerId;
use router_core::{LoadReport, Role};
use simworker_core::Ranks;
use simworker_core::{ConfigError, EngineConfig, EngineRole, RequestId};

use crate::run::EngineSample;
use crate::scenario::Fleet;

/// One worker: the engines of its ranks, and what its front end knows.
pub(super) struct Host {
    pub(super) role: EngineRole,
    pub(super) ranks: Ranks,
    /// Whether its engines never look at tokens.
    pub(super) names_pages: bool,
    /// The earliest wake-up already on the heap.
    pub(super) wake_ns: Option<u64>,
    /// Whether it is there at all.
    pub(super) up: bool,
    /// The legs that it has taken and not ended.
    pub(super) inside: BTreeSet<RequestId>,
}

impl Host {
    /// A cold worker whose steps take `slowness` times as long as they should. If `prompts_are_runs`, it is never given tokens.
    pub(super) fn new(
        fleet: &Fleet,
        role: EngineRole,
        slowness: f64,
        prompts_are_runs: bool,
    ) -> Result<Self, ConfigError> {
        let config = EngineConfig { prompts_are_runs, ..fleet.engine_config(role) };
        let names_pages = config.names_pages();
        let mut ranks = Ranks::new(config, fleet.ranks.of(role))?;
        if slowness != 1.0 {
            // It has nothing to do yet, and so nothing to say.
            ranks.set_pace_factor(0, slowness, &mut Vec::new());
        }
        Ok(Self { role, ranks, names_pages, wake_ns: None, up: true, inside: BTreeSet::new() })
    }

    /// The load that it reports: of one rank, or of all of them as the router adds them up.
    pub(super) fn load(&self, now_ns: u64, rank: Option<u32>) -> LoadReport {
        let ranks = rank.map_or(0..self.ranks.size(), |rank| rank..rank + 1);
        let count = f64::from(ranks.end - ranks.start);
        let mut sum = LoadReport { total_tokens: 0, running: 0, waiting: 0, token_usage: 0.0 };
        for loads in ranks.map(|rank| self.ranks.reported_loads(rank, now_ns).loads) {
            sum.total_tokens += loads.total_tokens;
            sum.running += loads.running;
            sum.waiting += loads.waiting;
            sum.token_usage += loads.token_usage;
        }
        LoadReport { token_usage: sum.token_usage / count, ..sum }
    }

    /// What it holds, as its last event has left it; nothing while it is not there.
    pub(super) fn sample(&self) -> EngineSample {
        let ranks = || 0..self.ranks.size();
        let evicted_tokens = ranks().map(|rank| self.ranks.totals(rank).evicted_tokens).sum();
        if !self.up {
            return EngineSample { evicted_tokens, ..EngineSample::default() };
        }
        let (mut queued_tokens, mut free, mut all) = (0, 0, 0);
        for loads in ranks().map(|rank| self.ranks.loads(rank)) {
            queued_tokens += loads.waiting_uncached_tokens;
            free += loads.free_tokens;
            all += loads.max_total_tokens;
        }
        let fill = 1.0 - free as f64 / all.max(1) as f64;
        EngineSample { in_flight: self.inside.len() as u32, queued_tokens, fill, evicted_tokens }
    }
}

/// The role of a worker as the router calls it.
pub(super) fn role_at_router(role: EngineRole) -> Role {
    match role {
        EngineRole::Whole => Role::Regular,
        EngineRole::Prefill => Role::Prefill,
        EngineRole::Decode => Role::Decode,
    }
}

/// Which worker of the router's is which host, and which rank of it. Workers are added to a new router in the order of
/// their places, so ids are places, or, where every rank is a worker, places and ranks counted through.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addresses {
    hosts: u32,
    /// How many ranks of each host are workers; `None` where the host is one as a whole.
    ranks: Option<u32>,
}

impl Addresses {
    /// Every rank is a worker if `by_rank`.
    pub(super) fn new(fleet: &Fleet, by_rank: bool) -> Self {
        let ranks = Some(fleet.ranks.size).filter(|size| by_rank && *size > 1);
        Self { hosts: fleet.workers, ranks }
    }

    /// Host and rank of every worker, in the order of ids.
    pub(super) fn all(self) -> impl Iterator<Item = (usize, Option<u32>)> {
        (0..self.hosts as usize).flat_map(move |host| self.of_host(host).map(move |(_, rank)| (host, rank)))
    }

    /// Workers and ranks of a host.
    pub(super) fn of_host(self, host: usize) -> impl Iterator<Item = (WorkerId, Option<u32>)> {
        let per_host = self.ranks.unwrap_or(1);
        let id = move |rank| WorkerId(host as u32 * per_host + rank);
        (0..per_host).map(move |rank| (id(rank), self.ranks.map(|_| rank)))
    }

    /// The host of a worker.
    pub(super) fn host(self, worker: WorkerId) -> usize {
        (worker.0 / self.ranks.unwrap_or(1)) as usize
    }

    /// The rank that a worker is; `None` where it is a host as a whole.
    pub(super) fn rank(self, worker: WorkerId) -> Option<u32> {
        self.ranks.map(|size| worker.0 % size)
    }

    /// The worker's URL.
    pub(super) fn url(host: usize, rank: Option<u32>) -> String {
        let rank = rank.map_or(String::new(), |rank| format!("@{rank}"));
        format!("http://worker-{host}{rank}")
    }
}

#[cfg(test)]
mod tests {
    use simworker_core::Submit;

    use super::super::testing::cell;
    use super::*;

    #[test]
    fn the_usage_of_a_worker_is_the_mean_of_its_ranks_and_the_rest_their_sum() {
        let cell = cell(
            "schema = 1\nname = \"ranks\"\n[workload]\nkind = \"independent\"\nrequests = 1\nprompt_tokens = 5\n\
             output_tokens = 1\n[arrival]\nkind = \"closed\"\nconcurrency = 1\n[fleet]\nworkers = 1\ndp_size = 2\n\
             kv_tokens = 10000\n[router]\npolicies = [\"random\"]",
        );
        let mut host = Host::new(&cell.scenario.fleet, EngineRole::Whole, 1.0, false).unwrap();
        for (id, tokens) in [(1, 1000), (2, 3000)] {
            let prompt: Vec<u32> = (0..tokens).map(|token| token + id).collect();
            let submit = Submit::new(RequestId(id.into()), prompt.into(), 500);
            host.ranks.submit(0, submit, Some(id - 1), &mut Vec::new()).unwrap();
        }
        let now_ns = 2_000_000_000;
        host.ranks.advance(now_ns, &mut Vec::new());
        let [first, second] = [0, 1].map(|rank| host.load(now_ns, Some(rank)));
        let both = host.load(now_ns, None);
        assert!(second.token_usage > 0.3 && first.token_usage < 0.2, "{first:?} {second:?}");
        assert!((both.token_usage - f64::midpoint(first.token_usage, second.token_usage)).abs() < 1e-12);
        assert_eq!((both.running, both.total_tokens), (2, first.total_tokens + second.total_tokens));
    }
}
