//! How long a run may take on its own clock. Nanoseconds in 64 bits end after 584 years; what is far below that can be
//! added up without a thought anywhere else, so it is refused here, where its key is known.

use super::document::Document;
use super::error::ScenarioError;
use super::{Arrival, Scenario, Workload};
use crate::trace::{Row, Trace};

/// The longest schedule, from the first request to the last: 10 years, in nanoseconds. Drawn gaps exceed their mean by a
/// factor of 37 at most, so that even a single drawn gap stays within the clock.
const SCHEDULE_NS: u64 = 10 * 365 * 24 * HOUR_NS;
/// The longest span of time that one request may spend in one place, in nanoseconds.
pub(super) const HOUR_NS: u64 = 3_600_000_000_000;

const TOO_LONG: &str = "the longest schedule is 10 years (87600h)";

/// Refuses a schedule that is too long.
pub(super) fn check(document: &Document, scenario: &Scenario) -> Result<(), ScenarioError> {
    let blame = |keys: &[&str], problem: String| {
        // A key that was not given is blamed on its table, and a table on the file.
        let node = document.get(keys).or_else(|| document.get(&keys[..1])).unwrap_or(&document.root);
        Err(ScenarioError::at(&node.origin, problem, TOO_LONG).key(keys.join(".")))
    };
    let requests = scenario.workload.starts() as f64;
    match (&scenario.arrival, &scenario.workload) {
        (Arrival::Burst { over_ns } | Arrival::Ramp { over_ns, .. }, _) if *over_ns > SCHEDULE_NS => {
            blame(&["arrival", "over"], format!("{} is too long", years(*over_ns as f64)))
        }
        (Arrival::Poisson { rate } | Arrival::Constant { rate } | Arrival::Gamma { rate, .. }, _)
            if requests / rate * 1e9 > SCHEDULE_NS as f64 =>
        {
            let span = years(requests / rate * 1e9);
            blame(
                &["arrival", "rate"],
                format!("at {rate} requests per second, {requests} requests take {span}"),
            )
        }
        (Arrival::Ramp { to, .. }, _) if requests / to * 1e9 > SCHEDULE_NS as f64 => {
            let span = years(requests / to * 1e9);
            blame(&["arrival", "to"], format!("at {to} requests per second, {requests} requests take {span}"))
        }
        (Arrival::Servegen { windows, speedup }, _)
            if requests / windows.rate() / speedup * 1e9 > SCHEDULE_NS as f64 =>
        {
            let span = years(requests / windows.rate() / speedup * 1e9);
            blame(&["arrival", "speedup"], format!("{requests} requests of these windows take {span}"))
        }
        (Arrival::Closed { concurrency }, _) => {
            let fleet = &scenario.fleet;
            let (network, overhead) = (2 * fleet.network_ns, fleet.request_overhead_ns);
            let each_ns = (network + overhead) as f64;
            let span_ns = (requests / f64::from(*concurrency)).ceil() * each_ns;
            if span_ns <= SCHEDULE_NS as f64 {
                return Ok(());
            }
            let key = if network > overhead { "network" } else { "request_overhead" };
            let span = years(span_ns);
            blame(
                &["fleet", key],
                format!("{requests} requests, {concurrency} at a time, take at least {span}"),
            )
        }
        (Arrival::Trace, Workload::Trace(replay)) => {
            let span_ns = span_ns(&replay.trace) as f64 / replay.speedup;
            if span_ns <= SCHEDULE_NS as f64 {
                return Ok(());
            }
            let problem = format!("at speed {}, the rows are spread over {}", replay.speedup, years(span_ns));
            let key = if replay.speedup < 1.0 { "speedup" } else { "path" };
            blame(&["workload", key], problem)
        }
        _ => Ok(()),
    }
}

/// From the first row to the last; rows are ordered.
fn span_ns(trace: &Trace) -> u64 {
    let stamp = |row: Option<&Row>| row.map_or(0, |row| row.at_ns);
    stamp(trace.rows.last()) - stamp(trace.rows.first())
}

fn years(ns: f64) -> String {
    format!("{:.1} years", ns / (365.0 * 24.0 * HOUR_NS as f64))
}
