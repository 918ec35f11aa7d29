//! Keys that change nothing. What is typed and has no effect is a mistake: whoever typed it believes that it was tried.
//!
//! A key has no effect if that holds in every cell: in a sweep over `fleet.prefill` it is enough that one of them has prefill
//! workers. A key at its default says nothing, and is let be.

use std::collections::BTreeMap;

use router_core::spelling;

use super::Scenario;
use super::document::{Document, Node, Origin, Value};
use super::error::ScenarioError;
use super::section::Section;
use crate::run::Params;

/// What a key needs in order to mean something.
#[derive(Debug, Clone, Copy)]
enum Needs {
    Prefill,
    /// Both prefill workers, and workers that do everything.
    Both,
    Ranks,
    FirstByte,
}

/// The keys that need something, and the text of each one's default; empty for none.
const ROWS: &[(&str, &str, Needs)] = &[
    ("fleet.regular", "0", Needs::Prefill),
    ("fleet.kv_link", "ib-400g", Needs::Prefill),
    ("fleet.decode_radix_cache", "false", Needs::Prefill),
    ("fleet.reserved_decode_tokens", "512", Needs::Prefill),
    ("fleet.dp_attention", "false", Needs::Ranks),
    ("fleet.load_balance", "auto", Needs::Ranks),
    ("router.decode_policy", "power_of_two", Needs::Prefill),
    ("router.decode_dispatch_limit", "0", Needs::Prefill),
    ("router.least_uncached_tokens", "0", Needs::Both),
    ("router.dp_aware", "false", Needs::Ranks),
    ("faults.prefill_failure", "0", Needs::Prefill),
    ("faults.transfer_failure", "0", Needs::Prefill),
    ("faults.handshake_lost", "0", Needs::Prefill),
    ("faults.peer_lost", "0", Needs::Prefill),
    ("faults.bad_room", "0", Needs::Prefill),
    ("faults.stalled", "0", Needs::FirstByte),
    ("faults.prefill_lost", "", Needs::Prefill),
    ("faults.prefill_drained", "", Needs::Prefill),
];

impl Needs {
    fn are_met(self, scenario: &Scenario) -> bool {
        let roles = &scenario.fleet.roles;
        match self {
            Self::Prefill => roles.disaggregated(),
            Self::Both => roles.disaggregated() && roles.prefill + roles.decode < scenario.fleet.workers,
            Self::Ranks => scenario.fleet.ranks.size > 1,
            Self::FirstByte => scenario.routing.first_byte_ns.is_some(),
        }
    }

    /// Why a key means nothing, and what to set.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Prefill => ("no worker prefills only", "set fleet.prefill"),
            Self::Both => ("not both kinds of workers are there", "set fleet.prefill and fleet.regular"),
            Self::Ranks => ("workers have one rank", "set fleet.dp_size"),
            Self::FirstByte => ("a leg without an answer would never end", "set router.first_byte_timeout"),
        }
    }

    /// The keys that could meet it.
    fn keys(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::Prefill => &[&["fleet", "prefill"]],
            Self::Both => &[&["fleet", "prefill"], &["fleet", "regular"]],
            Self::Ranks => &[&["fleet", "dp_size"]],
            Self::FirstByte => &[&["router", "first_byte_timeout"]],
        }
    }
}

/// The keys that were given, and whether they meant something in any cell.
#[derive(Default)]
pub(super) struct Idle {
    seen: BTreeMap<&'static str, (Origin, Needs, bool)>,
}

impl Idle {
    /// Looks at the keys of one cell.
    pub(super) fn look(&mut self, document: &Document, scenario: &Scenario) {
        for (path, default, needs) in ROWS {
            let keys: Vec<&str> = path.split('.').collect();
            let Some(node) = document.get(&keys).filter(|node| text(node) != *default) else { continue };
            let is_met = needs.are_met(scenario);
            // What the command line takes away, the file cannot have known.
            let by_flag = |path: &&[&str]| document.get(path).is_some_and(|node| node.origin.is_flag());
            let excused = !node.origin.is_flag() && needs.keys().iter().any(by_flag);
            let entry = self.seen.entry(path).or_insert_with(|| (node.origin.clone(), *needs, false));
            entry.2 |= is_met || excused;
        }
    }

    /// Refuses the first key that meant nothing anywhere, in the order of the file.
    pub(super) fn check(self) -> Result<(), ScenarioError> {
        let idle = self.seen.into_iter().filter(|(_, (_, _, is_met))| !is_met);
        match idle.min_by(|a, b| a.1.0.cmp(&b.1.0)) {
            None => Ok(()),
            Some((path, (origin, needs, _))) => {
                let (why, remedy) = needs.words();
                let problem = format!("has no effect: {why}");
                Err(ScenarioError::at(&origin, problem, format!("{remedy}, or remove this key")).key(path))
            }
        }
    }
}

/// A plain value as it is compared with a default.
fn text(node: &Node) -> String {
    match &node.value {
        Value::Text(text) => text.clone(),
        other => match other.to_json() {
            number if number.as_f64() == Some(0.0) => "0".to_owned(),
            other => other.to_string(),
        },
    }
}

/// Refuses parameters of asserts that no cell has: such an assert could only fail, after all the work.
pub(super) fn check_params<'p>(
    document: &Document,
    cells: impl Iterator<Item = &'p Params> + Clone,
) -> Result<(), ScenarioError> {
    // Flags narrow what runs, and the file cannot have known.
    let narrowed = document.get(&["router", "policies"]).is_some_and(|node| node.origin.is_flag());
    let Some(Node { value: Value::List(asserts), .. }) = document.get(&["assert"]).filter(|_| !narrowed)
    else {
        return Ok(());
    };
    for assert in asserts {
        let section = Section::unchecked(assert, "assert")?;
        for table in ["params", "versus_params"].into_iter().filter_map(|key| section.get(key)) {
            for (key, field) in Section::unchecked(table.node, table.path())?.fields() {
                let path: Vec<&str> = key.split('.').collect();
                let is_set = document.get(&path).is_some_and(|node| node.origin.is_flag());
                if is_set || cells.clone().any(|params| params.contains_key(key)) {
                    continue;
                }
                let mut known: Vec<&str> = cells.clone().flat_map(Params::keys).map(String::as_str).collect();
                known.sort_unstable();
                known.dedup();
                let remedy = match spelling::nearest(key, &known) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => format!("the cells differ in: {}", known.join(", ")),
                };
                return Err(field.error("is neither swept nor an option that was set", remedy));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::mistakes::GOOD;
    use super::super::testing::load_text;

    #[test]
    fn one_cell_in_which_it_counts_is_enough() {
        let link = ("fleet.kv_link", "nvlink");
        assert!(load_text(GOOD, &[link, ("sweep.fleet.prefill", "[0, 1]")]).is_ok());
        assert!(load_text(GOOD, &[("fleet.kv_link", "ib-400g"), ("router.dp_aware", "false")]).is_ok());
        let error = load_text(GOOD, &[link]).unwrap_err().to_string();
        assert!(
            error.starts_with("--set fleet.kv_link=nvlink: key `fleet.kv_link`: has no effect"),
            "{error}"
        );
    }

    #[test]
    fn what_a_flag_takes_away_is_not_the_files_mistake() {
        let text = GOOD.replace("workers = 2\n", "workers = 2\nprefill = 1\nkv_link = \"nvlink\"\n");
        assert!(load_text(&text, &[("fleet.prefill", "0")]).is_ok());
        assert!(load_text(&text.replace("prefill = 1\n", ""), &[]).is_err());
    }
}
