//! A scenario in a few words, for the head of the report.

use std::sync::Arc;

use crate::report::Slo;
use crate::run::World;
use crate::scenario::{
    Agentic, Arrival, Chat, Fleet, MatchRatio, Mix, Opening, Popularity, PrefixTree, Roles, Scenario,
    SharedPrefix, Spread, Target, Workload,
};

/// Most values of a swept fact that are told.
const MOST_VALUES: usize = 4;

/// Key facts, each with its name; of what is swept, every value. `seeds` is how many the command line asked for.
#[must_use]
pub fn facts(scenario: &Scenario, seeds: Option<u32>) -> Vec<(String, String)> {
    let cells = scenario.cells();
    let swept = |what: fn(&Scenario) -> String| {
        let mut values: Vec<String> = Vec::new();
        for cell in &cells {
            let value = what(&cell.scenario);
            if !values.contains(&value) {
                values.push(value);
            }
        }
        listed(values)
    };
    let facts = [
        ("Workload", swept(|scenario| workload(&scenario.workload))),
        ("Arrival", swept(|scenario| arrival(&scenario.arrival))),
        ("Fleet", swept(|scenario| fleet(&scenario.fleet))),
        ("Targets", targets(scenario)),
        ("Faults", swept(|scenario| scenario.faults.to_string())),
        ("Objectives", scenario.slo.map_or(String::new(), objectives)),
        ("Seeds", self::seeds(scenario, seeds)),
    ];
    let told = facts.into_iter().filter(|(_, fact)| !fact.is_empty());
    told.map(|(name, fact)| (name.to_owned(), fact)).collect()
}

/// Values of a fact, in the order of the scenario.
fn listed(values: Vec<String>) -> String {
    let count = values.len();
    let mut told: Vec<&str> = values.iter().map(String::as_str).take(MOST_VALUES).collect();
    if count > MOST_VALUES {
        told.truncate(MOST_VALUES - 1);
        told.extend(values.last().map(String::as_str));
    }
    let list = in_one(&told).unwrap_or_else(|| told.join("; or "));
    if count > MOST_VALUES { format!("{count} values: {list}") } else { list }
}

/// Texts that differ in one word, as one text: `Poisson, 10, 50 or 90 requests per second`.
fn in_one(texts: &[&str]) -> Option<String> {
    let words: Vec<Vec<&str>> = texts.iter().map(|text| text.split(' ').collect()).collect();
    let [first, others @ ..] = &words[..] else { return None };
    if others.is_empty() || others.iter().any(|other| other.len() != first.len()) {
        return None;
    }
    let differing = (0..first.len()).filter(|at| others.iter().any(|other| other[*at] != first[*at]));
    let [at] = differing.collect::<Vec<_>>()[..] else { return None };
    let values: Vec<&str> = words.iter().map(|words| words[at]).collect();
    let (last, before) = values.split_last()?;
    let mut text = first.clone();
    let value = format!("{} or {last}", before.join(", "));
    text[at] = &value;
    Some(text.join(" "))
}

/// Other routers that run beside ours.
fn targets(scenario: &Scenario) -> String {
    if !scenario.mode.worlds().contains(&World::Live) {
        return String::new();
    }
    let told = |target: &Arc<Target>| format!("{}: {}", target.label(), target.source);
    scenario.targets.iter().map(told).collect::<Vec<_>>().join("; ")
}

fn objectives(slo: Slo) -> String {
    format!("TTFT at most {} ms, TPOT at most {} ms", slo.ttft_ns as f64 / 1e6, slo.tpot_ns as f64 / 1e6)
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
            let rounds = match replay.repeat.rounds {
                1 => String::new(),
                rounds => format!(" in {rounds} rounds"),
            };
            let bad = match replay.trace.skipped {
                0 => String::new(),
                skipped => format!(", {skipped} bad rows passed over"),
            };
            let (requests, format) = (replay.requests(), replay.trace.format.label());
            format!("{requests} requests of {name} ({format}{bad}){rounds}{speed}")
        }
        Workload::Independent(w) => {
            format!(
                "{} prompts that share nothing, {} tokens in, {} out",
                w.requests, w.prompt_tokens, w.output_tokens
            )
        }
        Workload::PrefixTree(w) => prefix_tree(w),
        Workload::Chat(w) => chat(w),
        Workload::Agentic(w) => agentic(w),
        Workload::Mix(w) => mix(w),
    }
}

fn shared_prefix(w: &SharedPrefix) -> String {
    let popularity = popularity(w.popularity);
    let ratio = match w.match_ratio {
        MatchRatio::Full => String::new(),
        MatchRatio::Uniform { low, high } => format!(", shared share {low} to {high}"),
    };
    format!(
        "{} prefixes × {} prompts, {} + {} tokens in, {} out{popularity}{ratio}",
        w.groups, w.prompts_per_group, w.system_tokens, w.question_tokens, w.output_tokens
    )
}

fn popularity(popularity: Popularity) -> String {
    match popularity {
        Popularity::Uniform => String::new(),
        Popularity::Zipf { exponent } => format!(", Zipf {exponent}"),
    }
}

fn prefix_tree(w: &PrefixTree) -> String {
    let fan_outs: Vec<String> = w.levels.iter().map(|level| level.fan_out.to_string()).collect();
    let tokens: Vec<String> = w.levels.iter().map(|level| level.tokens.to_string()).collect();
    format!(
        "{} prompts on a tree of {} prefixes, {} + {} tokens in, {} out{}",
        w.requests,
        fan_outs.join(" × "),
        tokens.join(" + "),
        w.question_tokens,
        w.output_tokens,
        popularity(w.popularity)
    )
}

fn opening(opening: &Opening) -> String {
    match (opening.groups(), opening.system_prompts) {
        (0, _) => String::new(),
        (_, 1) => format!(", one system prompt of {} tokens", opening.system_tokens),
        (_, count) => format!(", {count} system prompts of {} tokens", opening.system_tokens),
    }
}

/// Time to think, if there is any.
fn think(think: &Spread) -> String {
    if *think == Spread::Fixed(0) { String::new() } else { format!(", after {} of thought", think.time()) }
}

fn chat(w: &Chat) -> String {
    format!(
        "{} conversations × {} turns, {} tokens in and {} out per turn{}{}",
        w.sessions,
        w.turns,
        w.question_tokens,
        w.output_tokens,
        think(&w.think),
        opening(&w.opening)
    )
}

fn agentic(w: &Agentic) -> String {
    let join = match &w.join_tokens {
        None => String::new(),
        Some(tokens) => format!(", joined with {tokens} tokens"),
    };
    format!(
        "{} parents ({} tokens in, {} out) × {} children (+{} in, {} out){join}{}{}",
        w.sessions,
        w.question_tokens,
        w.output_tokens,
        w.children,
        w.child_tokens,
        w.child_output_tokens,
        think(&w.think),
        opening(&w.opening)
    )
}

fn mix(w: &Mix) -> String {
    let parts: Vec<String> = w
        .parts
        .iter()
        .zip(w.shares())
        .map(|(part, share)| format!("{share} from [{}]", workload(&part.workload)))
        .collect();
    format!("a mix: {}", parts.join(", "))
}

fn arrival(arrival: &Arrival) -> String {
    match arrival {
        Arrival::Burst { over_ns } => format!("a burst over {} s", seconds(*over_ns)),
        Arrival::Gamma { rate, burstiness } => {
            format!("gamma, {rate} requests per second, burstiness {burstiness}")
        }
        Arrival::Ramp { from, to, over_ns } => {
            format!("a ramp from {from} to {to} requests per second over {} s", seconds(*over_ns))
        }
        Arrival::Servegen { windows, speedup } => {
            let name =
                windows.path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
            let speed = if *speedup == 1.0 { String::new() } else { format!(", {speedup} × speed") };
            format!("the {} windows of {name}{speed}", windows.windows.len())
        }
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
    let joining = match fleet.joining {
        None => String::new(),
        Some(joining) => format!(", {} of them from {} s on", joining.workers, seconds(joining.at_ns)),
    };
    let queue = engine.max_queued.map_or(String::new(), |most| format!(", at most {most} waiting"));
    format!(
        "{} workers{ranks}{split}{joining}, {}, {} KV tokens each, page {}{queue}",
        fleet.workers, fleet.preset, engine.kv_tokens, engine.page_size
    )
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_swept_fact_are_told_together() {
        let of = |values: &[&str]| listed(values.iter().map(|value| (*value).to_owned()).collect());
        assert_eq!(of(&["evenly, 5 per second"]), "evenly, 5 per second");
        assert_eq!(of(&["evenly, 5 per second", "evenly, 9 per second"]), "evenly, 5 or 9 per second");
        assert_eq!(of(&["8 workers", "8 workers (4 prefill)"]), "8 workers; or 8 workers (4 prefill)");
        assert_eq!(of(&["1 w", "2 w", "3 w", "4 w", "5 w"]), "5 values: 1, 2, 3 or 5 w");
    }
}
