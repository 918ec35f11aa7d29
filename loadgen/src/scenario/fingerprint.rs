//! Whether two runs asked the same of the same cluster, in two short hashes of the scenario as it was typed.
//!
//! Comments, order and layout do not count, and neither does what names or multiplies the cells: a comparison pairs
//! these one by one. Defaults do not count either, so a default that was changed shows where it should, in the figures.
//! Of a trace, and of any other file that the scenario reads, the contents count: not where it lies, nor its name.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use xxhash_rust::xxh3::Xxh3;

use super::contents::Contents;
use super::document::{Document, Node, Table, Value};

/// Tables that say what is compared, how often and by which rule, and not what is asked.
const NOT_WORK: [&str; 10] =
    ["schema", "name", "description", "seed", "repeats", "mode", "router", "sweep", "assert", "target"];
/// Tables that say what is under test.
const UNDER_TEST: [&str; 2] = ["router", "target"];

/// Keys whose texts are paths of files.
const FILES: [&str; 2] = ["path", "empirical"];

/// What a scenario asks, and of which router. A hash has sixteen hexadecimal digits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Of the workload, its arrivals, the fleet, its faults and the objectives, with the command line's overrides.
    pub work: String,
    /// Of what the router is told: `[router]` without its list of policies, and `[[target]]`.
    pub router: String,
    /// What `work` is the hash of, a setting each by its path, so that people can be told what differs. Files that are
    /// read stand under `files`, by what they hold.
    #[serde(default)]
    pub asked: BTreeMap<String, Json>,
}

impl Fingerprint {
    /// The fingerprint of a scenario with its overrides, which reads files of these contents.
    pub(super) fn of(document: &Document, read: &BTreeSet<Contents>) -> Self {
        let Value::Table(root) = &document.root.value else { return Self::default() };
        let hash = |keep: &dyn Fn(&str) -> bool| {
            let mut hash = Xxh3::new();
            root.iter().filter(|(key, _)| keep(key)).for_each(|(key, node)| feed(&mut hash, key, node));
            hash
        };
        let mut work = hash(&|key| !NOT_WORK.contains(&key));
        read.iter().for_each(|contents| work.update(format!("{contents}\n").as_bytes()));
        let router = hash(&|key| UNDER_TEST.contains(&key));
        let mut asked = BTreeMap::new();
        let work_of = root.iter().filter(|(key, _)| !NOT_WORK.contains(&key.as_str()));
        work_of.filter_map(|(key, node)| Some((key, counted(key, node)?))).for_each(|(key, value)| {
            list(&mut asked, key, key, &value);
        });
        if !read.is_empty() {
            asked.insert("files".into(), read.iter().map(ToString::to_string).collect());
        }
        Self { work: format!("{:016x}", work.digest()), router: format!("{:016x}", router.digest()), asked }
    }
}

/// Feeds an entry of the outermost table.
fn feed(hash: &mut Xxh3, key: &str, node: &Node) {
    if let Some(value) = counted(key, node) {
        hash.update(format!("{key:?}:{}\n", canonical(key, &value)).as_bytes());
    }
}

/// What counts of an entry of the outermost table; none of an empty one. Policies are cells, and so are left out.
fn counted(key: &str, node: &Node) -> Option<Value> {
    let mut value = node.value.clone();
    if let Value::Table(table) = &mut value {
        if key == "router" || key == "live" {
            table.remove("policies");
        }
        if table.is_empty() {
            return None;
        }
    }
    Some(value)
}

/// Lists the settings in a value by their paths.
fn list(to: &mut BTreeMap<String, Json>, path: &str, key: &str, value: &Value) {
    match value {
        Value::Table(table) if !table.is_empty() => {
            table.iter().for_each(|(key, node)| list(to, &format!("{path}.{key}"), key, &node.value));
        }
        value => drop(to.insert(path.to_owned(), plain(key, value))),
    }
}

/// A value as JSON that is the same for equal values.
fn plain(key: &str, value: &Value) -> Json {
    match value {
        // Without a fraction it reads like an integer, as it means the same.
        Value::Float(value) if value.fract() == 0.0 && value.abs() < 1e15 => (*value as i64).into(),
        Value::Text(_) if FILES.contains(&key) => "a file".into(),
        Value::List(items) => items.iter().map(|item| plain("", &item.value)).collect(),
        Value::Table(table) => {
            table.iter().map(|(key, node)| (key.clone(), plain(key, &node.value))).collect()
        }
        other => other.to_json(),
    }
}

/// A value as text that is the same for equal values. A path is none: its file counts by what it holds.
fn canonical(key: &str, value: &Value) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        // Without a fraction it reads like an integer, as it means the same.
        Value::Float(value) => value.to_string(),
        Value::Text(_) if FILES.contains(&key) => "a file".to_owned(),
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
    use std::path::Path;

    use super::*;

    const BASE: &str = "name = \"a\"\n[workload]\nkind = \"trace\"\npath = \"x/t.jsonl\"\n[arrival]\nrate = 4.0\n\
        [router]\npolicies = [\"random\"]\n";

    fn of(text: &str) -> Fingerprint {
        Fingerprint::of(&Document::parse("f", text).unwrap(), &BTreeSet::new())
    }

    #[test]
    fn layout_names_and_cells_do_not_count() {
        for (from, to) in [
            ("name = \"a\"", "name = \"b\"\nmode = \"both\"\nrepeats = 5 # more\n"),
            ("rate = 4.0", "\n# slow\nrate = 4\n"),
            ("x/t.jsonl", "/elsewhere/u.jsonl"),
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
            ("[router]", "[slo]\nttft = \"1s\"\n[router]"),
            ("[router]", "[live]\nspeed = 2.0\n[router]"),
            ("[router]", "[fleet]\nworkers = 9\n[router]"),
            ("[router]", "[faults]\nbusy = 0.1\n[router]"),
            ("kind = \"trace\"", "kind = \"trace\"\nlimit = 9"),
        ] {
            let other = of(&BASE.replace(from, to));
            assert!(base.work != other.work && base.router == other.router, "{to}");
        }
        // And each setting by its name and value.
        let asked = |text: &str| serde_json::to_value(of(text).asked).unwrap();
        assert_eq!(
            asked(&BASE.replace("[router]", "[slo]\nttft = \"1s\"\n[live]\npolicies = []\n[router]")),
            serde_json::json!({
                "workload.kind": "trace", "workload.path": "a file", "arrival.rate": 4, "slo.ttft": "1s"
            })
        );
        let other = of(&format!("{BASE}[router.options.cache_aware]\ncache_threshold = 0.5\n"));
        assert!(base.work == other.work && base.router != other.router);
    }

    /// The fingerprint of a scenario that replays a trace of these rows, with changes.
    fn of_files(dir: &Path, name: &str, trace: &str, set: &[(&str, &str)]) -> Fingerprint {
        let text = "schema = 1\nname = \"t\"\n[workload]\nkind = \"trace\"\npath = \"NAME\"\n[fleet]\nworkers = 1\n\
                    [router]\npolicies = [\"random\"]\n";
        let path = dir.join("s.toml");
        std::fs::write(&path, text.replace("NAME", name)).unwrap();
        std::fs::write(dir.join(name), trace).unwrap();
        let set: Vec<_> = set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        crate::scenario::load(&path, &set, None, None, None)
            .unwrap_or_else(|error| panic!("{error}"))
            .fingerprint
    }

    #[test]
    fn a_trace_counts_by_what_it_holds() {
        let row = |at: u64| {
            format!("{{\"timestamp\":{at},\"input_length\":5,\"output_length\":2,\"hash_ids\":[1]}}\n")
        };
        let [one, two] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let base = of_files(one.path(), "a.jsonl", &row(0), &[]);
        assert_eq!(base, of_files(two.path(), "b.jsonl", &row(0), &[]), "wherever it lies");
        let other = of_files(one.path(), "a.jsonl", &row(5), &[]);
        assert!(base.work != other.work && base.router == other.router, "the same name and size, other rows");
        // Rows that a limit leaves unread are part of the file all the same.
        let limit = [("workload.limit", "1")];
        let short = of_files(one.path(), "a.jsonl", &row(0), &limit);
        assert_ne!(short, of_files(one.path(), "a.jsonl", &(row(0) + &row(9)), &limit));
        // So does one that only a cell of a sweep replays.
        let sweep = [("sweep.\"workload.path\"", "[\"a.jsonl\", \"c.jsonl\"]")];
        let swept = |rows: &str| {
            std::fs::write(one.path().join("c.jsonl"), rows).unwrap();
            of_files(one.path(), "a.jsonl", &row(0), &sweep)
        };
        assert_ne!(swept(&row(1)), swept(&row(2)));
    }

    #[test]
    fn a_list_of_lengths_counts_by_what_it_holds() {
        let dir = tempfile::tempdir().unwrap();
        let of = |name: &str, lengths: &str| {
            let text = "schema = 1\nname = \"t\"\n[workload]\nkind = \"independent\"\nrequests = 4\noutput_tokens = 2\n\
                        prompt_tokens = { empirical = \"NAME\" }\n[arrival]\nkind = \"burst\"\nover = \"1s\"\n\
                        [fleet]\nworkers = 1\n[router]\npolicies = [\"random\"]\n";
            let path = dir.path().join("s.toml");
            std::fs::write(&path, text.replace("NAME", name)).unwrap();
            std::fs::write(dir.path().join(name), lengths).unwrap();
            crate::scenario::load(&path, &[], None, None, None)
                .unwrap_or_else(|error| panic!("{error}"))
                .fingerprint
        };
        let base = of("a.csv", "10,1\n20,3\n");
        assert_eq!(base, of("b.csv", "10,1\n20,3\n"), "whatever its name");
        let other = of("a.csv", "10,1\n20,4\n");
        assert_ne!(base.work, other.work);
        assert_ne!(base.asked["files"], other.asked["files"]);
    }
}
