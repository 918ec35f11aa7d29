//! One load: how it went, and why requests missed their objectives.

use serde::Serialize;

use super::dial::Dial;
use crate::report::{Missed, RunSummary, Slo, e2e_ns, missed};
use crate::run::{Run, was_left};
use crate::statistics::median;

/// A fleet with fewer requests than this in flight, on average, has next to nothing to do.
const IDLE: f64 = 0.05;

/// One load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// The load.
    pub load: f64,
    /// Median share of the requests that met both objectives.
    pub attainment: f64,
    /// Whether that is enough.
    pub met: bool,
    /// The median 90th percentile of the time to first token, in milliseconds.
    pub ttft_p90_ms: Option<f64>,
    /// The median of the time from the first intended send to the last byte, in seconds.
    pub makespan_s: f64,
    /// The share for each seed.
    pub seeds: Vec<f64>,
    /// Share of all requests, of all seeds, whose first token came too late.
    pub missed_ttft: f64,
    /// The same of those whose other tokens came too slowly.
    pub missed_tpot: f64,
    /// The same of those that failed.
    pub failed: f64,
    /// Requests in flight, on average over all seeds.
    pub in_flight: f64,
    #[serde(skip)]
    examples: Examples,
}

/// What requests that missed look like.
#[derive(Debug, Clone, Default, PartialEq)]
struct Examples {
    /// The shortest prompt whose first token came too late, in tokens.
    shortest_late: Option<u64>,
    /// What one that failed was told.
    error: Option<String>,
}

/// What is kept of one run.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    attainment: f64,
    ttft_p90_ms: Option<f64>,
    makespan_s: f64,
    requests: u64,
    late: u64,
    slow: u64,
    failed: u64,
    /// The time that requests were in flight, summed up, in seconds.
    busy_s: f64,
    examples: Examples,
}

impl Seen {
    pub(super) fn of(run: &Run, slo: Slo) -> Self {
        let summary = RunSummary::of(run, Some(slo));
        let mut seen = Self {
            attainment: summary.slo_attainment.unwrap_or(0.0),
            ttft_p90_ms: summary.ttft_ms.p90,
            makespan_s: summary.makespan_s,
            ..Self::default()
        };
        for record in run.records.iter().filter(|record| !was_left(record)) {
            seen.requests += 1;
            seen.busy_s += e2e_ns(record) / 1e9;
            match missed(record, slo) {
                None => {}
                Some(Missed::Ttft) => {
                    seen.late += 1;
                    let shortest = seen.examples.shortest_late.unwrap_or(u64::MAX);
                    seen.examples.shortest_late = Some(shortest.min(record.prompt_tokens));
                }
                Some(Missed::Tpot) => seen.slow += 1,
                Some(Missed::Failed) => {
                    seen.failed += 1;
                    seen.examples.error.get_or_insert_with(|| record.error.clone());
                }
            }
        }
        seen
    }
}

impl Point {
    /// What the runs with one load, one for each seed, come to, if `least` is the share that is enough.
    pub(super) fn of(load: f64, runs: &[Seen], least: f64) -> Self {
        let seeds: Vec<f64> = runs.iter().map(|run| run.attainment).collect();
        let sum = |figure: fn(&Seen) -> f64| runs.iter().map(figure).sum::<f64>();
        let requests = sum(|run| run.requests as f64).max(1.0);
        let attainment = median(&seeds).unwrap_or(0.0);
        let ttft: Vec<f64> = runs.iter().filter_map(|run| run.ttft_p90_ms).collect();
        let makespan: Vec<f64> = runs.iter().map(|run| run.makespan_s).collect();
        Self {
            load,
            attainment,
            met: attainment >= least,
            ttft_p90_ms: median(&ttft),
            makespan_s: median(&makespan).unwrap_or(0.0),
            seeds,
            missed_ttft: sum(|run| run.late as f64) / requests,
            missed_tpot: sum(|run| run.slow as f64) / requests,
            failed: sum(|run| run.failed as f64) / requests,
            in_flight: sum(|run| run.busy_s) / makespan.iter().sum::<f64>().max(1e-9),
            examples: Examples {
                shortest_late: runs.iter().filter_map(|run| run.examples.shortest_late).min(),
                error: runs.iter().find_map(|run| run.examples.error.clone()),
            },
        }
    }

    /// Whether the fleet had next to nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight <= IDLE
    }

    /// The point in words.
    pub(super) fn told(&self, dial: &Dial) -> String {
        let verdict = if self.met { "met" } else { "missed" };
        let share = self.attainment * 100.0;
        format!("{} {}: objectives {verdict}, {share:.2} % of the requests", self.load, dial.unit)
    }

    /// Why requests missed the objectives, the most frequent reason first.
    pub(super) fn cause(&self, slo: Slo) -> String {
        let Examples { shortest_late, error } = &self.examples;
        let shortest = shortest_late
            .map_or(String::new(), |tokens| format!(" (the shortest of these prompts has {tokens} tokens)"));
        let error = error.as_ref().map_or(String::new(), |error| format!(" ({error})"));
        let [ttft, tpot] = [slo.ttft_ns, slo.tpot_ns].map(|ns| ns as f64 / 1e6);
        let mut causes = [
            (self.missed_ttft, format!("have a TTFT above {ttft} ms{shortest}")),
            (self.missed_tpot, format!("have a TPOT above {tpot} ms")),
            (self.failed, format!("fail{error}")),
        ];
        causes.sort_by(|a, b| b.0.total_cmp(&a.0));
        let causes = causes.iter().filter(|(share, _)| *share > 0.0);
        let causes: Vec<String> =
            causes.map(|(share, what)| format!("{:.2} % of the requests {what}", share * 100.0)).collect();
        causes.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{record, run};

    fn seen(attainment: f64) -> Seen {
        Seen { attainment, requests: 4, makespan_s: 1.0, ..Seen::default() }
    }

    #[test]
    fn the_seed_in_the_middle_decides_and_enough_is_enough() {
        let of = |shares: [f64; 3]| Point::of(5.0, &shares.map(seen), 0.99);
        assert!(of([0.99, 0.2, 1.0]).met, "the mean is far below");
        assert!(!of([0.98, 1.0, 0.98]).met, "the best seed is not enough");
        assert_eq!(of([0.99, 0.2, 1.0]).seeds, [0.99, 0.2, 1.0]);
    }

    #[test]
    fn what_misses_is_counted_by_its_reason() {
        let answered = |seq, prompt, first_ms, last_ms| {
            record(seq).tokens(prompt, 0, 11).first_ms(first_ms).last_ms(last_ms).build()
        };
        let slo = Slo { ttft_ns: 100_000_000, tpot_ns: 10_000_000 };
        let mut records = vec![
            answered(0, 10, 50, 100),
            answered(1, 9_000, 300, 350),
            answered(2, 7_000, 200, 250),
            answered(3, 10, 50, 950),
        ];
        let point = Point::of(1.0, &[Seen::of(&run("random", records.clone()), slo)], 0.99);
        assert_eq!(
            (point.attainment, point.missed_ttft, point.missed_tpot, point.failed),
            (0.25, 0.5, 0.25, 0.0)
        );
        assert_eq!(
            point.cause(slo),
            "50.00 % of the requests have a TTFT above 100 ms (the shortest of these prompts has 7000 tokens), \
             25.00 % of the requests have a TPOT above 10 ms"
        );
        assert!(!point.is_idle(), "{}", point.in_flight);
        records[0].status = 400;
        records[0].error = "too long".to_owned();
        let point = Point::of(1.0, &[Seen::of(&run("random", records), slo)], 0.99);
        assert!(point.cause(slo).contains("25.00 % of the requests fail (too long)"), "{}", point.cause(slo));
    }
}
