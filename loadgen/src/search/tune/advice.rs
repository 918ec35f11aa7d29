//! What is said about the outcome: on the terminal, and at the head of a router's configuration file.

use std::fmt::Write as _;

use router_core::PolicyConfig;

use super::{Confirmation, LEAST_GAIN, Question, Tuned, Verdict};
use crate::report;
use crate::scenario::Scenario;
use crate::statistics::Interval;

/// What a recommended configuration begins with.
pub const MARK: &str = "# Written by loadgen tune for ";

/// The flags of `router` that are a policy with the options that were set.
#[must_use]
pub fn flags(policy: &PolicyConfig) -> String {
    let options = policy
        .overrides()
        .map(|(key, value)| format!(" --{} {}", key.replace('_', "-"), value.as_argument()));
    format!("--policy {}{}", policy.name(), options.collect::<String>())
}

/// The outcome in a few lines.
#[must_use]
pub fn told(question: &Question, tuned: &Tuned) -> String {
    let Confirmation { policy, verdict, unseen, .. } = &tuned.confirmation;
    let mut out = format!(
        "{} settings tried for {}; confirmed on {unseen}\n",
        tuned.tried.len(),
        question.objective.name()
    );
    let (gain, best) = (gain(question, &tuned.confirmation), report::setting(policy));
    let present = report::setting(&tuned.confirmation.cells[0].policy);
    let _ = match verdict {
        Verdict::Change => writeln!(out, "recommended: {}\nexpected: {gain}", flags(policy)),
        Verdict::Unbeaten => writeln!(out, "leave it as it is: nothing was better than {present}"),
        Verdict::Noise => writeln!(out, "leave it as it is: the best, {best}, is within noise: {gain}"),
        Verdict::Small => writeln!(
            out,
            "leave it as it is: the gain of the best, {best}, is below {} %: {gain}",
            LEAST_GAIN * 100.0
        ),
    };
    out
}

/// The gain in words: `hit_rate 40 % -> 44 %: 10.0 % better (95 % interval 8.1 % to 12.0 %)`.
fn gain(question: &Question, confirmation: &Confirmation) -> String {
    let Confirmation { base, best, gain, interval, .. } = confirmation;
    let objective = question.objective;
    let interval = match interval {
        Some(Interval { low, high }) => format!("95 % interval {} % to {} %", percent(*low), percent(*high)),
        None => "no interval: too few observations".to_owned(),
    };
    let word = if *gain < 0.0 { "worse" } else { "better" };
    format!(
        "{} {} -> {}: {} % {word} ({interval})",
        objective.name(),
        objective.figure(*base),
        objective.figure(*best),
        percent(gain.abs()),
    )
}

fn percent(share: f64) -> String {
    format!("{:.2}", share * 100.0)
}

/// The router's configuration file, where a change is recommended.
#[must_use]
pub fn file(
    scenario: &Scenario,
    facts: &[(String, String)],
    question: &Question,
    tuned: &Tuned,
) -> Option<String> {
    let Confirmation { policy, cells, verdict, unseen, .. } = &tuned.confirmation;
    if *verdict != Verdict::Change {
        return None;
    }
    let best = cells.last()?;
    let fleet = &best.scenario.fleet;
    let mut remarks = vec![
        format!("{}.", scenario.name),
        String::new(),
        format!("    router --config FILE {}", report::worker_flags(&fleet.roles.pools(fleet.workers))),
        String::new(),
        "The next tuning of it replaces this file: give the router a copy.".to_owned(),
        String::new(),
    ];
    let line = |name: &str, text: &str| format!("{name:<10}  {text}");
    remarks.extend(facts.iter().map(|(name, fact)| line(name, fact)));
    remarks.extend(scenario.overrides.iter().map(|typed| line("Changed by", typed)));
    remarks.extend([
        String::new(),
        line("Objective", question.objective.name()),
        line("Tried", &format!("{} settings", tuned.tried.len())),
        line("Best", &report::setting(policy)),
        line("Present", &report::setting(&cells[0].policy)),
        line("Confirmed", &format!("on {unseen}")),
        line("Gain", &gain(question, &tuned.confirmation)),
    ]);
    if policy.row().needs_header {
        remarks.extend([
            String::new(),
            "It goes by the header X-SMG-Routing-Key, which clients then have to send.".to_owned(),
        ]);
    }
    let mut out = String::new();
    for (place, remark) in remarks.iter().enumerate() {
        let lead = if place == 0 { MARK } else { "# " };
        // Names and paths may hold anything, and a file of TOML not.
        let remark = remark.replace(|c: char| c.is_control(), " ");
        let _ = writeln!(out, "{}", format!("{lead}{remark}").trim_end());
    }
    let settings = best.scenario.routing.settings(fleet.roles.disaggregated());
    Some(out + "\n" + &report::configuration(policy, &settings))
}
