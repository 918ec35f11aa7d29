//! `bucket`: prompts of similar length share a worker, as long as the workers get about as many characters each.
//!
//! Every worker has a range of prompt lengths. The ranges are cut so that each had the same share of the characters of the
//! last seconds. They are cut anew at intervals, when the load has changed much, and when workers have come or gone.

mod boundaries;
mod window;

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::balance::{ABS_THRESHOLD, BalanceTest, REL_THRESHOLD};
use super::config::PolicyConfig;
use super::options::{OptionKind, OptionSpec, OptionValue};
use super::table::PolicyRow;
use super::{Choice, Decision, Policy, Reason, Signals};
use crate::fleet::Role;
use crate::prompt::CHARS_PER_TOKEN;
use crate::request::RouteRequest;
use crate::{PromptView, ScopeId, Unroutable, WorkerId};
use boundaries::Boundaries;
use window::LengthWindow;

const BUCKET: Reason = Reason::new("bucket");
const BALANCE: Reason = Reason::new("balance_test");
const UNAVAILABLE: Reason = Reason::new("bucket_unavailable");

const ADJUST_INTERVAL_SECS: OptionSpec = OptionSpec {
    key: "bucket_adjust_interval_secs",
    kind: OptionKind::Integer { min: 1, max: u32::MAX as i64 },
    default: OptionValue::Integer(5),
    help: "seconds between two cuts of the ranges; also how far back the load of a worker is looked at",
    search: None,
};

pub(super) const ROW: PolicyRow = PolicyRow {
    name: "bucket",
    summary: "Prompts of similar length share a worker.",
    options: &[ABS_THRESHOLD, REL_THRESHOLD, ADJUST_INTERVAL_SECS],
    reasons: &[BUCKET.as_str(), BALANCE.as_str(), UNAVAILABLE.as_str()],
    needs_header: false,
    fewest_workers: 1,
    // A decode worker's work is not the length of the prompts.
    fits: |role| role != Role::Decode,
    branch_metric: None,
    signals: |_| Signals::default(),
    build: |config| Box::new(Bucket::new(config)),
};

#[derive(Debug)]
struct Bucket {
    balance: BalanceTest,
    interval_ns: u64,
    scopes: BTreeMap<ScopeId, Scope>,
}

/// What was learned about the workers of one scope.
#[derive(Debug)]
struct Scope {
    /// Bucket `i` is the one of `members[i]`.
    members: Vec<WorkerId>,
    boundaries: Boundaries,
    window: LengthWindow,
    /// Characters per worker at the last cut.
    last_average: Option<u64>,
    /// When the ranges are looked at again; `None` while there is nothing to learn from.
    adjust_at_ns: Option<u64>,
}

// === impl Bucket ===

impl Bucket {
    fn new(config: &PolicyConfig) -> Self {
        let interval_ns = config.integer(ADJUST_INTERVAL_SECS.key) * 1_000_000_000;
        Self { balance: BalanceTest::of(config), interval_ns, scopes: BTreeMap::new() }
    }
}

impl Policy for Bucket {
    fn choose<'d>(&self, decision: &'d Decision<'_>) -> Result<Choice<'d>, Unroutable> {
        let (candidates, now_ns) = (&decision.candidates, decision.now_ns);
        let scope = self.scopes.get(&decision.request.scope);
        let chars = |worker: WorkerId| scope.map_or(0, |scope| scope.window.chars(now_ns, worker));
        let loads = candidates.iter().map(|row| chars(row.worker));
        let (least, most) =
            loads.fold((u64::MAX, 0), |(least, most), load| (least.min(load), most.max(load)));
        let fewest = || candidates.least_by(&mut decision.draws(), |row| chars(row.worker));
        if self.balance.fires(most, least) {
            return Ok(Choice::new(fewest(), BALANCE));
        }
        let bucket = match scope {
            Some(scope) => scope.boundaries(now_ns, decision.members).bucket(length(decision.request)),
            None => Boundaries::initial(decision.members.len()).bucket(length(decision.request)),
        };
        let owner = decision.members.get(bucket).and_then(|worker| candidates.get(*worker));
        Ok(owner.map_or_else(|| Choice::new(fewest(), UNAVAILABLE), |row| Choice::new(row, BUCKET)))
    }

    fn booked(&mut self, decision: &Decision<'_>, choice: Choice<'_>) {
        let (now_ns, members) = (decision.now_ns, decision.members);
        let scope = self
            .scopes
            .entry(decision.request.scope)
            .or_insert_with(|| Scope::new(self.interval_ns, members));
        scope.follow(now_ns, members);
        scope.window.record(now_ns, choice.candidate.worker, length(decision.request));
        scope.adjust_at_ns.get_or_insert(now_ns.saturating_add(self.interval_ns));
    }

    fn worker_removed(&mut self, worker: WorkerId) {
        self.scopes.values_mut().for_each(|scope| scope.window.forget(worker));
    }

    fn tick(&mut self, now_ns: u64) {
        for scope in
            self.scopes.values_mut().filter(|scope| scope.adjust_at_ns.is_some_and(|at| at <= now_ns))
        {
            scope.adjust(now_ns);
            let idle = scope.window.is_empty();
            scope.adjust_at_ns = (!idle).then(|| now_ns.saturating_add(self.interval_ns));
        }
    }

    fn next_deadline(&self) -> Option<u64> {
        self.scopes.values().filter_map(|scope| scope.adjust_at_ns).min()
    }
}

// === impl Scope ===

impl Scope {
    fn new(window_ns: u64, members: &[WorkerId]) -> Self {
        Self {
            members: members.to_vec(),
            boundaries: Boundaries::initial(members.len()),
            window: LengthWindow::new(window_ns),
            last_average: None,
            adjust_at_ns: None,
        }
    }

    /// The ranges for these members, who may have changed since the last cut.
    fn boundaries(&self, now_ns: u64, members: &[WorkerId]) -> Cow<'_, Boundaries> {
        if self.members == members {
            return Cow::Borrowed(&self.boundaries);
        }
        Cow::Owned(Boundaries::cut(self.window.lengths(now_ns), members.len()))
    }

    /// Cuts anew if members have come or gone.
    fn follow(&mut self, now_ns: u64, members: &[WorkerId]) {
        if let Cow::Owned(boundaries) = self.boundaries(now_ns, members) {
            self.boundaries = boundaries;
            self.members = members.to_vec();
        }
    }

    /// Cuts anew if the load per worker has at least doubled or halved since the last cut.
    fn adjust(&mut self, now_ns: u64) {
        self.window.expire(now_ns);
        let average = self.window.total() / self.members.len().max(1) as u64;
        let much_the_same = |last: u64| average < last.saturating_mul(2) && last < average.saturating_mul(2);
        if self.window.is_empty() || self.last_average.is_some_and(much_the_same) {
            return;
        }
        self.boundaries = Boundaries::cut(self.window.lengths(now_ns), self.members.len());
        self.last_average = Some(average);
    }
}

/// Length of the prompt in characters; of one that cannot be read, what its length in tokens stands for.
fn length(request: &RouteRequest<'_>) -> u64 {
    match request.prompt {
        PromptView::Unreadable => request.prompt_tokens.saturating_mul(CHARS_PER_TOKEN),
        prompt => prompt.chars(),
    }
}

#[cfg(test)]
mod tests {
    use crate::index::Matches;
    use crate::testing::{REQUEST, SECOND, config, router, worker_spec};
    use crate::{OptionValue, PromptView, RouteRequest, Router, WorkerId};

    /// With a balance test that never fires, so that lengths alone decide.
    fn by_length(workers: u32) -> Router {
        router(config("bucket", &[("balance_abs_threshold", OptionValue::Integer(i64::MAX))]), workers, 1)
    }

    fn go(router: &mut Router, now_ns: u64, chars: usize) -> (u32, &'static str) {
        let text = vec![b'x'; chars];
        let request = RouteRequest { prompt: PromptView::Text(&text), ..REQUEST };
        let assignment = router.assign(now_ns, &request, &Matches::default()).expect("a worker is there");
        (assignment.worker.0, assignment.reason.as_str())
    }

    #[test]
    fn lengths_decide_at_first_by_equal_ranges() {
        let mut router = by_length(4);
        for (chars, worker) in [(0, 0), (1023, 0), (1024, 1), (3071, 2), (4096, 3), (100_000, 3)] {
            assert_eq!(go(&mut router, 0, chars), (worker, "bucket"), "{chars} characters");
        }
    }

    #[test]
    fn ranges_follow_what_came_in_the_window() {
        let mut router = by_length(2);
        assert_eq!(router.next_deadline(), None, "nothing to learn from");
        for n in 0..20 {
            go(&mut router, n, 10_000 + n as usize);
        }
        assert_eq!(go(&mut router, 30, 10_005).0, 1, "all are above the first boundary, at 2048");
        assert_eq!(router.next_deadline(), Some(5 * SECOND));
        router.tick(5 * SECOND - 1);
        assert_eq!(go(&mut router, 31, 10_001).0, 1, "not yet");
        // What came at 0 has left the window by now, the rest is half in each range.
        router.tick(5 * SECOND);
        assert_eq!(
            [10_001, 10_005, 10_015, 10_019].map(|chars| go(&mut router, 5 * SECOND, chars).0),
            [0, 0, 1, 1]
        );
    }

    #[test]
    fn imbalance_goes_to_the_fewest_characters() {
        let mut router = router(config("bucket", &[]), 3, 1);
        assert_eq!(go(&mut router, 0, 100), (0, "bucket"));
        assert_ne!(
            go(&mut router, 0, 500).0,
            0,
            "100 characters are more than 64 and more than 1.5 times none"
        );
        assert_eq!(go(&mut router, 0, 500).1, "balance_test");
        let window_ns = 5 * SECOND;
        assert_eq!(go(&mut router, window_ns, 100), (0, "bucket"), "what left the window is no load");
    }

    #[test]
    fn a_bucket_whose_worker_is_down_goes_to_others_until_it_is_back() {
        let mut router = by_length(4);
        router.set_healthy(0, WorkerId(2), false);
        for _ in 0..10 {
            let (worker, reason) = go(&mut router, 0, 3000);
            assert!(worker != 2 && reason == "bucket_unavailable", "{worker} {reason}");
        }
        router.set_healthy(0, WorkerId(2), true);
        assert_eq!(go(&mut router, 0, 3000), (2, "bucket"));
    }

    #[test]
    fn a_worker_that_joins_or_leaves_changes_the_ranges_at_once() {
        let mut router = by_length(2);
        assert_eq!(go(&mut router, 0, 1500), (0, "bucket"));
        router.add_worker(1, worker_spec(7));
        router.add_worker(1, worker_spec(8));
        assert_eq!(go(&mut router, 6 * SECOND, 1500), (1, "bucket"), "4096 / 4, as nothing is in the window");
        assert_eq!(go(&mut router, 6 * SECOND, 9000), (3, "bucket"));
        router.remove_worker(6 * SECOND, WorkerId(0));
        // 9,000 and 1,500 characters are known: a third of them is reached with the longer one.
        assert_eq!(go(&mut router, 6 * SECOND, 9000), (1, "bucket"));
        assert_eq!(go(&mut router, 6 * SECOND, 9001), (2, "bucket"));
    }
}
