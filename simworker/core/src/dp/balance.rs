//! Which rank gets the next request: SGLang's `--load-balance-method`.

use crate::config::EngineRole;
use crate::engine::LoadReport;
use crate::request::Refusal;

/// The load of the ranks is read at most so often.
const READ_EVERY_NS: u64 = 20_000_000;

/// SGLang's ways of spreading requests over ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LoadBalance {
    /// One after the other.
    #[default]
    RoundRobin,
    /// Bootstrap room modulo the number of ranks, so that the decode side knows the rank without asking.
    FollowBootstrapRoom,
    /// The least requests, running and waiting; the first of several.
    TotalRequests,
    /// The least tokens, the least requests among equals; the first of several.
    TotalTokens,
}

impl LoadBalance {
    /// Every one.
    pub const ALL: [Self; 4] =
        [Self::RoundRobin, Self::FollowBootstrapRoom, Self::TotalRequests, Self::TotalTokens];

    /// SGLang's word for it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::FollowBootstrapRoom => "follow_bootstrap_room",
            Self::TotalRequests => "total_requests",
            Self::TotalTokens => "total_tokens",
        }
    }

    /// The one with that [label](Self::label).
    #[must_use]
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|balance| balance.label() == label)
    }

    /// What SGLang takes when nothing is asked for (`auto`).
    #[must_use]
    pub const fn auto(role: EngineRole) -> Self {
        match role {
            EngineRole::Prefill => Self::FollowBootstrapRoom,
            EngineRole::Whole | EngineRole::Decode => Self::RoundRobin,
        }
    }
}

/// What the front end believes of one rank.
#[derive(Debug, Clone, Copy, Default)]
struct Belief {
    requests: u64,
    tokens: u64,
    /// Of which report it is, but for the requests that have been sent since; None before the first.
    taken_ns: Option<u64>,
}

/// The state of the balancing. It is not told what becomes of a request, so one that its rank refuses counts too.
#[derive(Debug)]
pub(super) struct Balancer {
    how: LoadBalance,
    next: usize,
    beliefs: Vec<Belief>,
    /// When the load was read; None before the first time.
    read_ns: Option<u64>,
}

impl Balancer {
    pub(super) fn new(how: LoadBalance, ranks: u32) -> Self {
        Self { how, next: 0, beliefs: vec![Belief::default(); ranks as usize], read_ns: None }
    }

    /// The rank that a room belongs to, where rooms decide.
    pub(super) fn rank_of_room(&self, room: u64) -> Option<u32> {
        let ranks = self.beliefs.len() as u64;
        (self.how == LoadBalance::FollowBootstrapRoom).then(|| (room % ranks) as u32)
    }

    /// The rank for a request of so many tokens at `now_ns`. `loads` tells what each rank reports, in order.
    pub(super) fn choose<L: Iterator<Item = LoadReport>>(
        &mut self,
        now_ns: u64,
        room: Option<u64>,
        tokens: u64,
        loads: impl FnOnce() -> L,
    ) -> Result<u32, Refusal> {
        let rank = match self.how {
            LoadBalance::RoundRobin => {
                let rank = self.next;
                self.next = (rank + 1) % self.beliefs.len();
                rank
            }
            LoadBalance::FollowBootstrapRoom => {
                let room = room.ok_or(Refusal::NoRoom)?;
                (room % self.beliefs.len() as u64) as usize
            }
            LoadBalance::TotalRequests => {
                self.read(now_ns, loads);
                self.least(|belief| (belief.requests, 0), tokens)
            }
            LoadBalance::TotalTokens => {
                self.read(now_ns, loads);
                self.least(|belief| (belief.tokens, belief.requests), tokens)
            }
        };
        Ok(rank as u32)
    }

    fn read<L: Iterator<Item = LoadReport>>(&mut self, now_ns: u64, loads: impl FnOnce() -> L) {
        if self.read_ns.is_some_and(|read_ns| now_ns < read_ns + READ_EVERY_NS) {
            return;
        }
        self.read_ns = Some(now_ns);
        for (belief, LoadReport { at_ns, loads }) in self.beliefs.iter_mut().zip(loads()) {
            // A report that is known already knows nothing of what has been sent since.
            if belief.taken_ns != Some(at_ns) {
                let (requests, tokens) = (loads.running + loads.waiting, loads.total_tokens);
                *belief = Belief { requests, tokens, taken_ns: Some(at_ns) };
            }
        }
    }

    /// The first rank with the least of something; it has one request more from now on.
    fn least(&mut self, of: impl Fn(&Belief) -> (u64, u64), tokens: u64) -> usize {
        let ranks = self.beliefs.iter().enumerate();
        let rank = ranks.min_by_key(|(_, belief)| of(belief)).map_or(0, |(rank, _)| rank);
        if let Some(belief) = self.beliefs.get_mut(rank) {
            belief.requests += 1;
            belief.tokens += tokens;
        }
        rank
    }
}
