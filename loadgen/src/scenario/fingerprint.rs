//! Whether two runs asked the same of the same cluster, in two short hashes of the scenario as it was typed.
//!
//! Comments, order and layout do not count, and neither does what names or multiplies the cells: a comparison pairs
//! these one by one. Defaults do not count either, so a default that was changed shows where it should, in the figures.

use std::path::Path;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::document::{Document, Node, Table, Value};

/// Tables that say what is compared, how often and by which rule, and not what is asked.
const NOT_WORK: [&str; 10] =
    ["schema", "name", "description", "seed", "repeats", "mode", "router", "sweep", "assert", "target"];
/// Tables that say what is under test.
const UNDER_TEST: [&str; 2] = ["router", "target"];

/// What a scenario asks, and of which router. Sixteen hexadecimal digits each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Of the workload, its arrivals, the fleet, its faults and the objectives, with the command line's overrides.
    pub work: String,
    /// Of what the router is told: `[router]` without its list of policies, and `[[target]]`.
    pub router: String,
}

impl Fingerprint {
    /// The fingerprint of a scenario with its overrides; `trace` wins over the one in the file.
    pub(super) fn of(document: &Document, trace: Option<&Path>) -> Self {
        let Value::Table(root) = &document.root.value else { return Self::default() };
        let hash = |keep: &dyn Fn(&str) -> bool| {
            let mut hash = Xxh3::new();
            for (key, node) in root.iter().filter(|(key, _)| keep(key)) {
                feed(&mut hash, key, node, trace.filter(|_| key == "workload"));
            }
            format!("{:016x}", hash.digest())
        };
        Self { work: hash(&|key| !NOT_WORK.contains(&key)), router: hash(&|key| UNDER_TEST.contains(&key)) }
    }
}

/// Feeds an entry of the outermost table. Policies are cells, and so are left out.
fn feed(hash: &mut Xxh3, key: &str, node: &Node, trace: Option<&Path>) {
    let mut node = node.clone();
    if let Value::Table(table) = &mut node.value {
        if key == "router" || key == "live" {
            table.remove("policies");
        }
        if let (Some(trace), Some(path)) = (trace, table.get_mut("path")) {
            path.value = Value::Text(trace.display().to_string());
        }
        if table.is_empty() {
            return;
        }
    }
    hash.update(format!("{key:?}:{}\n", canonical(key, &node.value)).as_bytes());
}

/// A value as text that is the same for equal values. Of a path only the file counts: where it lies differs between
/// machines.
fn canonical(key: &str, value: &Value) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        // Without a fraction it reads like an integer, as it means the same.
        Value::Float(value) => value.to_string(),
        Value::Text(text) | Value::Date(text) if key == "path" => {
            let name =
                Path::new(text).file_name().map_or(text.as_str().into(), |name| name.to_string_lossy());
            format!("{name:?}")
        }
        Value::Text(text) | Value::Date(text) => format!("{text:?}"),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(|item| canonical("", &item.value)).collect();
            format!("[{}]", items.join(","))
        }
        Value::Table(table) => entries(table),
    }
}

fn entries(table: &Table) -> String {
    let entries: Vec<String> =
        table.iter().map(|(key, node)| format!("{key:?}:{}", canonical(key, &node.value))).collect();
    format!("{{{}}}", entries.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "name = \"a\"\n[workload]\nkind = \"trace\"\npath = \"x/t.jsonl\"\n[arrival]\nrate = 4.0\n\
        [router]\npolicies = [\"random\"]\n";

    fn of(text: &str) -> Fingerprint {
        Fingerprint::of(&Document::parse("f", text).unwrap(), None)
    }

    #[test]
    fn layout_names_and_cells_do_not_count() {
        for (from, to) in [
            ("name = \"a\"", "name = \"b\"\nmode = \"both\"\nrepeats = 5 # more\n"),
            ("rate = 4.0", "\n# slow\nrate = 4\n"),
            ("x/t.jsonl", "/elsewhere/t.jsonl"),
            ("[\"random\"]", "\"*\""),
            ("[router]", "[live]\npolicies = [\"random\"]\n[sweep]\n\"fleet.workers\" = [1]\n[router]"),
        ] {
            assert!(BASE.contains(from), "{from}");
            assert_eq!(of(BASE), of(&BASE.replace(from, to)), "{to}");
        }
    }

    #[test]
    fn work_and_router_count_apart() {
        let base = of(BASE);
        for (from, to) in [
            ("rate = 4.0", "rate = 5.0"),
            ("t.jsonl", "u.jsonl"),
            ("[router]", "[slo]\nttft = \"1s\"\n[router]"),
            ("[router]", "[live]\nspeed = 2.0\n[router]"),
        ] {
            let other = of(&BASE.replace(from, to));
            assert!(base.work != other.work && base.router == other.router, "{to}");
        }
        let other = of(&format!("{BASE}[router.options.cache_aware]\ncache_threshold = 0.5\n"));
        assert!(base.work == other.work && base.router != other.router);
        let document = Document::parse("f", BASE).unwrap();
        assert_eq!(Fingerprint::of(&document, Some(Path::new("there/t.jsonl"))), base);
        assert_ne!(Fingerprint::of(&document, Some(Path::new("there/v.jsonl"))).work, base.work);
    }
}
