//! How workers stand at a moment: what the decision core knows of each, copied out of it. The lock that requests wait for
//! is held for the copying only; what is made of it, names and texts, comes afterwards.

use std::sync::Arc;

use router_core::{BreakerView, Load, Role, Tally};

use super::{Books, Member, Rank};

/// One worker.
#[derive(Debug, Clone)]
pub(crate) struct Standing {
    pub(crate) rank: Arc<Rank>,
    pub(crate) member: Arc<Member>,
    pub(crate) role: Role,
    /// `None` until it is known.
    pub(crate) model: Option<Arc<str>>,
    pub(crate) healthy: bool,
    /// Whether it gets requests, as far as its breaker lets them through.
    pub(crate) takes_requests: bool,
    /// What this router has in flight on it.
    pub(crate) load: Load,
    /// Decode streams in flight on others that go on with what it computed.
    pub(crate) decode_streams: u64,
    /// How what went there ended so far.
    pub(crate) tally: Tally,
    pub(crate) breaker: BreakerView,
    /// It is given more than its policy would give it, as its cache is cold.
    pub(crate) warming: bool,
    /// How many requests it got in this way.
    pub(crate) diverted: u64,
    /// How many routing keys stick to it; `None` under a policy that remembers none.
    pub(crate) routing_keys: Option<u64>,
}

impl Books {
    /// All workers, in the order of their ids.
    pub(crate) fn standings(&self, now_ns: u64) -> Vec<Standing> {
        // Most fleets serve one model: its name is copied once.
        let mut last: Option<Arc<str>> = None;
        let mut named = |model: &str| match &last {
            Some(name) if **name == *model => Arc::clone(name),
            _ => Arc::clone(last.insert(Arc::from(model))),
        };
        let mut standings = Vec::with_capacity(self.ranks().len());
        standings.extend(self.router.workers(now_ns).zip(self.ranks()).map(|(row, (rank, member))| {
            Standing {
                rank: Arc::clone(rank),
                member: Arc::clone(member),
                role: row.worker.role,
                model: row.worker.model.as_deref().map(&mut named),
                healthy: row.worker.healthy,
                takes_requests: row.worker.takes_requests(),
                load: row.load,
                decode_streams: row.derived,
                tally: row.tally,
                breaker: row.breaker,
                warming: row.warming,
                diverted: row.diverted,
                routing_keys: row.routing_keys,
            }
        }));
        standings
    }
}
