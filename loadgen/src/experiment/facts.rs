//! A scenario in a few words, for the head of the report.

use crate::scenario::{Arrival, Fleet, MatchRatio, Popularity, Roles, Scenario, SharedPrefix, Workload};

/// Key facts, each with its name. `seeds` is how many the command line asked for.
#[must_use]
pub fn facts(scenario: &Scenario, seeds: Option<u32>) -> Vec<(String, String)> {
    let fact = |name: &str, value: String| (name.to_owned(), value);
    vec![
        fact("Workload", workload(&scenario.workload)),
        fact("Arrival", arrival(scenario.arrival)),
        fact("Fleet", fleet(&scenario.fleet)),
        fact("Seeds", self::seeds(scenario, seeds)),
    ]
}

/// How many requests a run has.
#[must_use]
pub(super) fn requests(scenario: &Scenario) -> u64 {
    match &scenario.workload {
        Workload::SharedPrefix(w) => u64::from(w.groups) * u64::from(w.prompts_per_group),
        Workload::Trace(replay) => replay.trace.rows.len() as u64,
    }
}

fn seeds(scenario: &Scenario, count: Option<u32>) -> String {
    let (first, last) = (scenario.seed, scenario.seeds(count).last().unwrap_or(scenario.seed));
    match last - first + 1 {
        1 => format!("1 seed ({first})"),
        count => format!("{count} seeds ({first}–{last})"),
    }
}

fn workload(workload: &Workload) -> String {
    match workload {
        Workload::SharedPrefix(w) => shared_prefix(w),
        Workload::Trace(replay) => {
            let name = replay.path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
            let speed =
                if replay.speedup == 1.0 { String::new() } else { format!(", {} × speed", replay.speedup) };
            format!("{} requests of {name}{speed}", replay.trace.rows.len())
        }
    }
}

fn shared_prefix(w: &SharedPrefix) -> String {
    let popularity = match w.popularity {
        Popularity::Uniform => String::new(),
        Popularity::Zipf { exponent } => format!(", Zipf {exponent}"),
    };
    let ratio = match w.match_ratio {
        MatchRatio::Full => String::new(),
        MatchRatio::Uniform { low, high } => format!(", shared share {low} to {high}"),
    };
    format!(
        "{} prefixes × {} prompts, {} + {} tokens in, {} out{popularity}{ratio}",
        w.groups, w.prompts_per_group, w.system_tokens, w.question_tokens, w.output_tokens
    )
}

fn arrival(arrival: Arrival) -> String {
    match arrival {
        Arrival::Burst { over_ns } => format!("a burst over {} s", seconds(over_ns)),
        Arrival::Poisson { rate } => format!("Poisson, {rate} requests per second"),
        Arrival::Constant { rate } => format!("evenly, {rate} requests per second"),
        Arrival::Closed { concurrency } => format!("closed loop, {concurrency} in flight"),
        Arrival::Trace => "as recorded".to_owned(),
    }
}

fn fleet(fleet: &Fleet) -> String {
    let engine = fleet.engine.config();
    let Roles { prefill, decode, link } = fleet.roles;
    let split = match fleet.workers - prefill - decode {
        _ if prefill == 0 => String::new(),
        0 => format!(" ({prefill} prefill, {decode} decode, {link})"),
        regular => format!(" ({prefill} prefill, {decode} decode, {link}; {regular} do both)"),
    };
    let ranks = match fleet.ranks.size {
        1 => String::new(),
        size => format!(" of {size} ranks"),
    };
    format!(
        "{} workers{ranks}{split}, {}, {} KV tokens each, page {}",
        fleet.workers, fleet.preset, engine.kv_tokens, engine.page_size
    )
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
