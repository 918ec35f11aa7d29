//! Who of those that wait comes next, and how many may wait for how long.

/// In which order waiting requests are tried (`--schedule-policy`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Schedule {
    /// First come, first served.
    #[default]
    Fcfs,
    /// Longest prefix match first; first come, first served while more than 128 wait.
    Lpm,
    /// Down the tree of what is cached, branches with the most waiting requests first.
    DfsWeight,
    /// Longest reply first.
    Lof,
    /// A new draw at each pass.
    Random,
    /// Those first whose routing key the most running requests have.
    RoutingKey,
    /// Highest response ratio next: who has waited for the most prefill work in relation to its own; first come, first
    /// served while more than 128 wait.
    Hrrn,
    /// The least prefill work first; a prompt that is half computed leaves room in its steps for shorter ones.
    ShortestPrefillFirst,
}

/// What is to be known about a schedule.
struct Row {
    schedule: Schedule,
    label: &'static str,
    /// It matches the waiting requests against the cache.
    looks_at_cache: bool,
    /// It does so for a short queue only.
    falls_back: bool,
    /// It may be combined with priorities.
    takes_priorities: bool,
}

const fn row(schedule: Schedule, label: &'static str) -> Row {
    Row { schedule, label, looks_at_cache: false, falls_back: false, takes_priorities: false }
}

const TABLE: [Row; 8] = [
    Row { takes_priorities: true, ..row(Schedule::Fcfs, "fcfs") },
    Row { looks_at_cache: true, falls_back: true, ..row(Schedule::Lpm, "lpm") },
    Row { looks_at_cache: true, ..row(Schedule::DfsWeight, "dfs-weight") },
    Row { takes_priorities: true, ..row(Schedule::Lof, "lof") },
    row(Schedule::Random, "random"),
    row(Schedule::RoutingKey, "routing-key"),
    Row { looks_at_cache: true, falls_back: true, ..row(Schedule::Hrrn, "hrrn") },
    Row { looks_at_cache: true, ..row(Schedule::ShortestPrefillFirst, "shortest-prefill-first") },
];

impl Schedule {
    /// Every one.
    pub const ALL: [Self; 8] = {
        let mut all = [Self::Fcfs; 8];
        let mut at = 0;
        while at < TABLE.len() {
            all[at] = TABLE[at].schedule;
            at += 1;
        }
        all
    };

    fn row(self) -> &'static Row {
        // The rows are in the order of the variants; a test says so.
        &TABLE[self as usize]
    }

    /// SGLang's word for it.
    #[must_use]
    pub fn label(self) -> &'static str {
        self.row().label
    }

    /// The one with that [label](Self::label).
    #[must_use]
    pub fn from_label(label: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.label == label).map(|row| row.schedule)
    }

    /// Whether it matches waiting requests against the cache, as long as not too many wait.
    pub(crate) fn looks_at_cache(self) -> bool {
        self.row().looks_at_cache
    }

    /// Whether it is first come, first served while too many wait.
    pub(crate) fn falls_back(self) -> bool {
        self.row().falls_back
    }

    /// Whether it may be combined with priorities.
    pub(crate) fn takes_priorities(self) -> bool {
        self.row().takes_priorities
    }
}

/// What bounds and orders the queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueConfig {
    /// What [`Schedule::Random`] draws from.
    pub seed: u64,
    /// Priorities count (`--enable-priority-scheduling`).
    pub priority: Option<PriorityConfig>,
    /// Requests with a priority are refused where priorities do not count (`--abort-on-priority-when-disabled`).
    pub refuses_priorities: bool,
    /// Who has waited longer is aborted at the next pass (`SGLANG_REQ_WAITING_TIMEOUT`).
    pub waiting_timeout_ns: Option<u64>,
    /// Who was admitted longer ago is aborted with the next result (`SGLANG_REQ_RUNNING_TIMEOUT`).
    pub running_timeout_ns: Option<u64>,
}

/// What priorities mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorityConfig {
    /// Small numbers go first (`--schedule-low-priority-values-first`).
    pub low_values_first: bool,
    /// A request takes the place of running ones whose priority is worse by more than this
    /// (`--priority-scheduling-preemption-threshold`); none = it never does (`--disable-priority-preemption`).
    pub preempts_above: Option<i64>,
}

impl Default for PriorityConfig {
    fn default() -> Self {
        Self { low_values_first: false, preempts_above: Some(10) }
    }
}

impl PriorityConfig {
    /// Place in the order: the least goes first. A request without a priority is the last.
    pub(crate) fn rank(self, priority: Option<i64>) -> i128 {
        let sign = if self.low_values_first { 1 } else { -1 };
        let least = if self.low_values_first { i64::MAX } else { i64::MIN };
        sign * i128::from(priority.unwrap_or(least))
    }
}

/// After how many decode steps a prefill step may follow a prefill step (`--prefill-decode-interval`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PrefillInterval {
    /// Decode steps; 0 = a prefill step comes whenever there is something to prefill.
    pub steps: u32,
    /// With fewer running requests nothing is held up (`--prefill-decode-interval-min-bs`).
    pub min_batch: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_schedule_is_in_its_row() {
        for (at, row) in TABLE.iter().enumerate() {
            assert_eq!(row.schedule as usize, at, "{}", row.label);
            assert_eq!(Schedule::from_label(row.schedule.label()), Some(row.schedule));
        }
    }

    #[test]
    fn no_priority_is_the_last_in_both_directions() {
        for low_values_first in [false, true] {
            let config = PriorityConfig { low_values_first, ..PriorityConfig::default() };
            let ranks = [5, -5, i64::MIN + 1, i64::MAX - 1].map(|p| config.rank(Some(p)));
            assert!(ranks.iter().all(|rank| *rank < config.rank(None)));
            assert_eq!(ranks[0] < ranks[1], !low_values_first);
        }
    }
}
