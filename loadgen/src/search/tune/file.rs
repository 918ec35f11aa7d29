//! What is recommended, as a router's configuration file.

use std::fmt::Write as _;

use router_core::PolicyConfig;

use super::advice::gain;
use super::{Question, Tuned, Verdict};
use crate::report;
use crate::scenario::Scenario;

/// What a recommended configuration begins with.
const MARK: &str = "# Written by loadgen tune for ";

/// The router's configuration file, where a change is recommended.
#[must_use]
pub fn file(
    scenario: &Scenario,
    facts: &[(String, String)],
    question: &Question,
    tuned: &Tuned,
) -> Option<String> {
    let found = &tuned.confirmation;
    let best = found.challenger.as_ref().filter(|_| found.verdict == Verdict::Change)?;
    let (cell, policy) = (&best.side.cell, &best.side.cell.policy);
    let fleet = &cell.scenario.fleet;
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
        line("Tried", &format!("{} settings", tuned.drawn())),
        line("Best", &report::setting(policy)),
        line("Present", &report::setting(&found.present.cell.policy)),
        line("Confirmed", &format!("on {}", found.unseen)),
        line("Gain", &gain(question, found, best)),
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
    let settings = cell.scenario.routing.settings(fleet.roles.disaggregated());
    Some(out + "\n" + &report::configuration(changes(policy), &settings))
}

/// The section of a policy in which only what differs from the router's defaults is set. The rest stands there as remarks.
fn changes(policy: &PolicyConfig) -> String {
    let at_default =
        |key: &str| policy.options().any(|(spec, value)| spec.key == key && *value == spec.default);
    let line = |line: &str| match line.split_once('=') {
        Some((key, _)) if at_default(key.trim()) => {
            let (setting, _) = line.split_once("  #").unwrap_or((line, ""));
            format!("# {:<46}  # the router's default\n", setting.trim_end())
        }
        _ => format!("{line}\n"),
    };
    router::cli::policy_section(policy).lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_from_the_routers_defaults_is_set() {
        let mut policy = PolicyConfig::new("cache_aware").unwrap();
        let default =
            policy.options().find(|(spec, _)| spec.key == "balance_rel_threshold").unwrap().0.default.clone();
        policy.set("balance_rel_threshold", default).unwrap();
        policy.set("cache_threshold", 0.75).unwrap();
        let text = changes(&policy);
        let read: toml::Table = text.parse().unwrap();
        let section: Vec<&str> = read["policy"].as_table().unwrap().keys().map(String::as_str).collect();
        assert_eq!(section, ["cache_threshold", "name"], "{text}");
        for (spec, _) in policy.options().filter(|(spec, _)| spec.key != "cache_threshold") {
            let remark =
                |line: &str| line.starts_with(&format!("# {} = ", spec.key)) && line.ends_with("default");
            assert!(text.lines().any(remark), "{}: {text}", spec.key);
        }
    }
}
