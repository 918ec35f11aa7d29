//! `power_of_two`: the less loaded of two workers drawn at random.
//!
//! Load is what both workers report of themselves, brought up to now, where both reports are known; otherwise it is what
//! this router has in flight on them. A known figure is never compared with a substitute for an unknown one.

use super::config::PolicyConfig;
use super::options::{OptionKind, OptionSpec, OptionValue};
use super::table::PolicyRow;
use super::{Candidate, Choice, Decision, Policy, Reason, Signals};
use crate::Unroutable;

const ONLY: Reason = Reason::new("only_candidate");
const REPORTED: Reason = Reason::new("reported_load");
const IN_FLIGHT: Reason = Reason::new("in_flight");

const LOAD_METRIC: OptionSpec = OptionSpec {
    key: "load_metric",
    kind: OptionKind::Choice(&["tokens", "requests", "least_requests"]),
    default: OptionValue::Text(std::borrow::Cow::Borrowed("tokens")),
    help: "load: the tokens or requests that workers report, or the requests this router has in flight (least_requests)",
    search: None,
};

pub(super) const ROW: PolicyRow = PolicyRow {
    name: "power_of_two",
    summary: "The less loaded of two workers drawn at random.",
    options: &[LOAD_METRIC],
    reasons: &[REPORTED.as_str(), IN_FLIGHT.as_str(), ONLY.as_str()],
    needs_header: false,
    fewest_workers: 2,
    fits: |_| true,
    branch_metric: None,
    signals: |config| Signals { prefix_index: None, loads: Metric::of(config) != Metric::LeastRequests },
    build: |config| Box::new(PowerOfTwo { metric: Metric::of(config) }),
};

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Metric {
    Tokens,
    Requests,
    /// Requests in flight from here; needs no reports.
    LeastRequests,
}

impl Metric {
    fn of(config: &PolicyConfig) -> Self {
        match config.choice(LOAD_METRIC.key) {
            "requests" => Self::Requests,
            "least_requests" => Self::LeastRequests,
            _ => Self::Tokens,
        }
    }

    fn reported(self, now_ns: u64, row: &Candidate<'_>) -> Option<u64> {
        match self {
            Self::Tokens => row.reported(now_ns).map(|load| load.tokens),
            Self::Requests => row.reported(now_ns).map(|load| load.requests),
            Self::LeastRequests => None,
        }
    }

    fn in_flight(self, row: &Candidate<'_>) -> u64 {
        match self {
            Self::Tokens => row.load().tokens,
            Self::Requests | Self::LeastRequests => row.load().requests,
        }
    }
}

#[derive(Debug)]
struct PowerOfTwo {
    metric: Metric,
}

impl Policy for PowerOfTwo {
    fn choose<'d>(&self, decision: &'d Decision<'_>) -> Result<Choice<'d>, Unroutable> {
        let (now_ns, candidates, mut draws) = (decision.now_ns, &decision.candidates, decision.draws());
        if candidates.len() == 1 {
            return Ok(Choice::new(candidates.at(0), ONLY));
        }
        let first = draws.below(candidates.len());
        let second = first + 1 + draws.below(candidates.len() - 1);
        let (a, b) = (candidates.at(first), candidates.at(second));
        let (loads, reason) = match (self.metric.reported(now_ns, a), self.metric.reported(now_ns, b)) {
            (Some(load_a), Some(load_b)) => ((load_a, load_b), REPORTED),
            _ => ((self.metric.in_flight(a), self.metric.in_flight(b)), IN_FLIGHT),
        };
        // Equal loads keep the first: either is as likely to have been drawn first.
        Ok(Choice::new(if loads.1 < loads.0 { b } else { a }, reason))
    }
}

#[cfg(test)]
mod tests {
    use crate::index::Matches;
    use crate::testing::{DONE, REQUEST, SECOND, config, in_flight, load, router};
    use crate::{LoadReport, Router, WorkerId};

    fn power_of_two(metric: &str, workers: u32) -> Router {
        router(config("power_of_two", &[("load_metric", metric.into())]), workers, 1)
    }

    fn report(tokens: u64, requests: u64) -> LoadReport {
        LoadReport {
            total_tokens: tokens,
            running: requests / 2,
            waiting: requests - requests / 2,
            token_usage: 0.5,
        }
    }

    /// How many of 400 requests that end at once go to each worker, and the reason of the last.
    fn shares(router: &mut Router, now_ns: u64) -> (Vec<u64>, &'static str) {
        let mut counts = vec![0; in_flight(router).len()];
        let mut reason = "";
        for _ in 0..400 {
            let assignment = router.assign(now_ns, &REQUEST, &Matches::default()).expect("a worker is there");
            router.finish(now_ns, assignment.lease, DONE);
            counts[assignment.worker.0 as usize] += 1;
            reason = assignment.reason.as_str();
        }
        (counts, reason)
    }

    #[test]
    fn the_metric_decides_which_reported_figure_counts() {
        for (metric, winner, reason) in [
            ("tokens", 0, "reported_load"),
            ("requests", 1, "reported_load"),
            ("least_requests", 1, "in_flight"),
        ] {
            let mut router = power_of_two(metric, 2);
            load(&mut router, 0, 1);
            router.report_loads(1, 2, WorkerId(0), Some(report(100, 9)));
            router.report_loads(1, 2, WorkerId(1), Some(report(9000, 2)));
            let (counts, last) = shares(&mut router, 3);
            assert_eq!((counts[winner], last), (400, reason), "metric {metric}");
            assert_eq!(router.signals().loads, metric != "least_requests");
        }
    }

    #[test]
    fn without_two_reports_the_own_books_are_compared() {
        let mut router = power_of_two("tokens", 2);
        load(&mut router, 1, 2);
        router.report_loads(1, 2, WorkerId(0), Some(report(50_000, 90)));
        assert_eq!(shares(&mut router, 3), (vec![400, 0], "in_flight"), "worker 1 is unknown, not zero");
        router.report_loads(1, 2, WorkerId(1), Some(report(600, 2)));
        assert_eq!(shares(&mut router, 3), (vec![0, 400], "reported_load"));
    }

    #[test]
    fn reports_expire_and_a_failed_question_makes_unknown() {
        let mut router = power_of_two("tokens", 2);
        load(&mut router, 1, 2);
        let full = |router: &mut Router, asked_ns| {
            router.report_loads(asked_ns, asked_ns, WorkerId(0), Some(report(50_000, 90)));
            router.report_loads(asked_ns, asked_ns, WorkerId(1), Some(report(500, 2)));
        };
        full(&mut router, SECOND);
        assert_eq!(shares(&mut router, 4 * SECOND).1, "reported_load");
        assert_eq!(shares(&mut router, 4 * SECOND + 1).1, "in_flight");
        full(&mut router, 5 * SECOND);
        router.report_loads(6 * SECOND, 6 * SECOND, WorkerId(0), None);
        assert_eq!(shares(&mut router, 6 * SECOND).1, "in_flight");
        full(&mut router, 5 * SECOND);
        assert_eq!(
            shares(&mut router, 6 * SECOND).1,
            "in_flight",
            "an answer that was overtaken is not news"
        );
    }

    #[test]
    fn garbage_neither_draws_nor_repels() {
        let honest = report(4_000, 4);
        for (case, answer) in [
            ("no answer", None),
            ("huge tokens", Some(LoadReport { total_tokens: u64::MAX, ..honest })),
            (
                "tokens that its requests cannot hold",
                Some(LoadReport { total_tokens: 1_000_000_000, ..honest }),
            ),
            ("huge requests", Some(LoadReport { running: u64::MAX, waiting: 5, ..honest })),
            ("negative usage", Some(LoadReport { token_usage: -1.0, ..honest })),
            ("no number", Some(LoadReport { token_usage: f64::NAN, ..honest })),
        ] {
            for metric in ["tokens", "requests"] {
                let mut router = power_of_two(metric, 4);
                for worker in 0..4 {
                    let answer = if worker == 0 { answer } else { Some(honest) };
                    router.report_loads(0, 1, WorkerId(worker), answer);
                }
                let (counts, _) = shares(&mut router, 2);
                assert!((60..=140).contains(&counts[0]), "{case}, {metric}: {counts:?}, 100 is fair");
            }
        }
    }

    #[test]
    fn requests_between_two_reports_spread_evenly() {
        for metric in ["tokens", "requests"] {
            let mut router = power_of_two(metric, 4);
            for worker in 0..4 {
                router.report_loads(0, 1, WorkerId(worker), Some(report(1000 + u64::from(worker), 4)));
            }
            for sent in 0..100 {
                router.assign(2 + sent, &REQUEST, &Matches::default()).expect("a worker is there");
            }
            let loads = in_flight(&router);
            assert!(loads.iter().all(|load| (22..=28).contains(load)), "{metric}: {loads:?}");
        }
    }

    #[test]
    fn one_candidate_is_taken_and_equal_ones_share() {
        let mut router = power_of_two("tokens", 1);
        assert_eq!(shares(&mut router, 0), (vec![400], "only_candidate"));
        let (counts, _) = shares(&mut power_of_two("tokens", 4), 0);
        assert!(counts.iter().all(|count| (70..130).contains(count)), "{counts:?}");
    }
}
