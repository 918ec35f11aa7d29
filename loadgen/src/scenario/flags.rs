//! Flags and traces: they win over the file, and mistakes in them are blamed on them.

use super::mistakes::{GOOD, changed};
use super::testing::load_text;
use super::*;
use crate::run::World;

#[test]
fn mistakes_in_flags_name_the_flag() {
    for (path, value, key, says) in [
        ("fleet.workers", "0", "fleet.workers", "out of range"),
        ("fleet.wrokers", "3", "fleet.wrokers", "did you mean `workers`?"),
        ("fleet.workers.x", "3", "fleet.workers", "is a table"),
        (
            "router.options.cache_aware.cache_threshold",
            "1.5",
            "router.options.cache_aware.cache_threshold",
            "from 0 to 1",
        ),
        ("arrival.over", "soon", "arrival.over", "not a duration"),
        ("fleet.eviction", "tlru", "fleet.eviction", "not emulated"),
    ] {
        let error = load_text(GOOD, &[(path, value)]).expect_err(path).to_string();
        let start = format!("--set {path}={value}: key `{key}`: ");
        assert!(error.starts_with(&start) && error.contains(says), "{error}");
    }
    for path in ["a b", "..", "assert.0.value"] {
        let error = load_text(GOOD, &[(path, "1")]).expect_err(path).to_string();
        assert!(error.starts_with(&format!("--set {path}=1: ")), "{error}");
    }
}

#[test]
fn flags_win_over_the_file() {
    let scenario = load_text(
        GOOD,
        &[
            ("fleet.workers", "5"),
            ("fleet.schedule", "lpm"),
            ("arrival.kind", "closed"),
            ("arrival.concurrency", "3"),
            ("router.options.cache_aware.cache_threshold", "0.9"),
            ("workload.popularity.zipf", "1.1"),
            ("fleet.stream_interval", "3"),
            ("sweep.router.options.cache_aware.max_tree_size", "[5000]"),
        ],
    )
    .unwrap();
    assert_eq!(scenario.fleet.workers, 5);
    assert_eq!(scenario.arrival, Arrival::Closed { concurrency: 3 });
    let Workload::SharedPrefix(workload) = &scenario.workload else { panic!() };
    assert_eq!(workload.popularity, Popularity::Zipf { exponent: 1.1 });
    let cells = scenario.cells();
    assert_eq!(cells.len(), 3, "round_robin and cache_aware, and cache_aware live");
    assert_eq!(cells[1].params["cache_threshold"], 0.9);
    assert_eq!(cells[1].params["max_tree_size"], 5000);
    assert!(cells.iter().all(|cell| cell.scenario.fleet.stream_interval == 3), "also over [live]");
    let engine = cells[0].scenario.fleet.engine.flags();
    assert!(engine.windows(2).any(|pair| pair == ["--schedule-policy", "lpm"]), "{engine:?}");
    assert!(!engine.contains(&"--share-chunks-first".to_owned()), "{engine:?}");
    let lettered = load_text(GOOD, &[("fleet.share_chunks_first", "true")]).unwrap().fleet.engine;
    assert!(lettered.config().share_chunks_first);
    assert!(lettered.flags().contains(&"--share-chunks-first".to_owned()));
    let mixed = [("fleet.mixed_chunk", "true"), ("fleet.schedule", "lof")];
    let mixed = load_text(GOOD, &mixed).unwrap().fleet.engine.flags();
    assert!(
        mixed.contains(&"--enable-mixed-chunk".to_owned()) && mixed.contains(&"lof".to_owned()),
        "{mixed:?}"
    );
}

#[test]
fn a_value_of_the_command_line_replaces_the_list_of_a_sweep() {
    let scenario = load_text(GOOD, &[("router.options.cache_aware.max_tree_size", "77")]).unwrap();
    let sizes: Vec<_> =
        scenario.cells().iter().filter_map(|c| c.params.get("max_tree_size").cloned()).collect();
    assert_eq!(sizes, [77, 77], "virtual and live");
}

#[test]
fn policy_mode_and_trace_flags() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.toml");
    std::fs::write(&path, GOOD).unwrap();
    let policies = ["random".to_owned(), "round_robin".to_owned()];
    let scenario = load(&path, &[], Some(&policies), None, Some(Mode::Live)).unwrap();
    let cells: Vec<_> = scenario.cells().iter().map(|cell| (cell.world, cell.policy.name())).collect();
    assert_eq!(cells, [(World::Live, "random"), (World::Live, "round_robin")], "also over live.policies");
    assert!(scenario.asserts.is_empty(), "an assertion about a policy that was not asked for is left out");
    assert_eq!(scenario.overrides, ["--policy random,round_robin", "--mode live"]);

    let error = load(&path, &[], Some(&["rnd".to_owned()]), None, None).unwrap_err().to_string();
    assert!(error.starts_with("--policy rnd: key `router.policies`: "), "{error}");
    let error = load(&path, &[], None, Some(Path::new("t.jsonl")), None).unwrap_err().to_string();
    assert!(error.starts_with("--trace t.jsonl: "), "{error}");
    let error = load(&path, &[], Some(&["round_robin".to_owned()]), None, None);
    assert!(error.is_ok(), "a sweep of a policy that was not asked for is left out");
    for special in ["/dev/zero", "/dev"] {
        let error = load(Path::new(special), &[], None, None, None).unwrap_err().to_string();
        assert!(error.contains("cannot be read: it is not a regular file"), "{error}");
    }
    let error = load(Path::new("no/such.toml"), &[], None, None, None).unwrap_err().to_string();
    assert!(error.starts_with("no/such.toml: cannot be read"), "{error}");
}

#[test]
fn a_star_is_every_policy_that_needs_no_header() {
    let all = load_text(&changed("policies = [\"round_robin\", \"cache_aware\"]", "policies = \"*\""), &[])
        .unwrap();
    assert!(all.policies.len() >= 5, "{:?}", all.policies);
    for row in router_core::POLICIES {
        assert_eq!(all.policies.iter().any(|name| name == row.name), !row.needs_header, "{}", row.name);
    }
}

#[test]
fn traces_are_found_beside_the_scenario_and_their_rows_are_blamed() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let row = |stamp: u64| {
        format!("{{\"timestamp\": {stamp}, \"input_length\": 9, \"output_length\": 0, \"hash_ids\": [1]}}\n")
    };
    std::fs::write(at("good.jsonl"), row(1) + &row(2) + &row(3)).unwrap();
    std::fs::write(at("bad.jsonl"), row(2) + &row(1)).unwrap();
    let scenario = |path: &str, extra: &str| {
        let text = format!(
            "schema = 1\nname = \"t\"\n[workload]\nkind = \"trace\"\npath = \"{path}\"\n{extra}\n[fleet]\nworkers = 1\n\
             [router]\npolicies = [\"random\"]\n"
        );
        std::fs::write(at("s.toml"), text).unwrap();
        at("s.toml")
    };
    let read =
        |path: &str, extra: &str, trace: Option<&Path>| load(&scenario(path, extra), &[], None, trace, None);
    let good = read("good.jsonl", "limit = 2", None).unwrap();
    assert_eq!(good.arrival, Arrival::Trace, "a trace brings its own times");
    let plan = crate::workload::plan(&good, 1);
    let times: Vec<_> = plan.requests.iter().map(|r| (r.at_ns, r.prompt_tokens(), r.output_tokens)).collect();
    assert_eq!(times, [(0, 9, 1), (1_000_000, 9, 1)]);

    let error = read("bad.jsonl", "", None).unwrap_err().to_string();
    assert!(error.contains("bad.jsonl:2: timestamp 1 comes after 2"), "{error}");
    let error = read("none.jsonl", "", None).unwrap_err().to_string();
    assert!(error.contains("s.toml:5: key `workload.path`: cannot be read"), "{error}");
    let error = read("good.jsonl", "", Some(Path::new("gone.jsonl"))).unwrap_err().to_string();
    assert!(error.starts_with("--trace gone.jsonl: cannot be read"), "{error}");
    let error = read("/dev/zero", "", None).unwrap_err().to_string();
    assert!(
        error.contains("s.toml:5: key `workload.path`: cannot be read: it is not a regular file"),
        "{error}"
    );
    let won = read("bad.jsonl", "", Some(&at("good.jsonl"))).unwrap();
    assert_eq!(crate::workload::plan(&won, 1).requests.len(), 3);
    let error = read("good.jsonl", "speedup = 0", None).unwrap_err().to_string();
    assert!(error.contains("s.toml:6: key `workload.speedup`: 0 is out of range"), "{error}");
    let error = read("good.jsonl", "jitter = \"gridd\"", None).unwrap_err().to_string();
    assert!(error.contains("did you mean `grid`?"), "{error}");
}

#[test]
fn a_trace_that_is_played_for_centuries_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let row = |stamp: &str| {
        format!("{{\"timestamp\": {stamp}, \"input_length\": 9, \"output_length\": 1, \"hash_ids\": [1]}}\n")
    };
    std::fs::write(directory.path().join("t.jsonl"), row("0") + &row("1e11")).unwrap();
    let path = directory.path().join("s.toml");
    let text = "schema = 1\nname = \"t\"\n[workload]\nkind = \"trace\"\npath = \"t.jsonl\"\nspeedup = 0.001\n\
                [fleet]\nworkers = 1\n[router]\npolicies = [\"random\"]\n";
    std::fs::write(&path, text).unwrap();
    let with = |set: &[(&str, &str)]| {
        let set: Vec<_> = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        load(&path, &set, None, None, None)
    };
    let error = with(&[]).unwrap_err().to_string();
    assert!(
        error.contains("s.toml:6: key `workload.speedup`: ") && error.contains("3171.0 years"),
        "{error}"
    );
    assert!(with(&[("workload.speedup", "1")]).is_ok());
    let burst = with(&[("arrival.kind", "burst"), ("arrival.over", "1s")]);
    assert!(burst.is_ok(), "its own stamps do not matter there");
}

#[test]
fn a_grid_is_found_on_the_whole_file_whatever_the_limit() {
    let directory = tempfile::tempdir().unwrap();
    let row = |step: u64| {
        let stamp = step * 3000;
        format!("{{\"timestamp\": {stamp}, \"input_length\": 9, \"output_length\": 1, \"hash_ids\": [1]}}\n")
    };
    // The first ten rows have one stamp and show no step.
    let rows: String = [0; 10].into_iter().chain(1..40).map(row).collect();
    std::fs::write(directory.path().join("t.jsonl"), rows).unwrap();
    let path = directory.path().join("s.toml");
    let text = "schema = 1\nname = \"t\"\n[workload]\nkind = \"trace\"\npath = \"t.jsonl\"\nlimit = 10\n\
                jitter = \"grid\"\n[fleet]\nworkers = 1\n[router]\npolicies = [\"random\"]\n";
    std::fs::write(&path, text).unwrap();
    let at_ns = |set: &[(&str, &str)]| -> Vec<u64> {
        let set: Vec<_> = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let scenario = load(&path, &set, None, None, None).unwrap();
        crate::workload::plan(&scenario, 1).requests.iter().map(|request| request.at_ns).collect()
    };
    let spread = at_ns(&[]);
    assert_eq!(spread.len(), 10);
    assert!(spread[9] > 1_000_000_000 && spread.windows(2).all(|pair| pair[0] < pair[1]), "{spread:?}");
    assert_eq!(at_ns(&[("workload.jitter", "none")]), [0; 10]);
}

#[test]
fn bad_rows_other_formats_and_traces_without_times() {
    let directory = tempfile::tempdir().unwrap();
    let row = |stamp: u64| {
        format!("{{\"timestamp\": {stamp}, \"input_length\": 9, \"output_length\": 1, \"hash_ids\": [1]}}\n")
    };
    let chats = r#"[{"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"},
        {"from": "human", "value": "Bye"}, {"from": "gpt", "value": "Bye then"}]}]"#;
    std::fs::write(directory.path().join("bad.jsonl"), row(2) + &row(1) + &row(3)).unwrap();
    std::fs::write(directory.path().join("chats.json"), chats).unwrap();
    let path = directory.path().join("s.toml");
    let text = "schema = 1\nname = \"t\"\n[workload]\nkind = \"trace\"\npath = \"bad.jsonl\"\n[fleet]\nworkers = 1\n\
                [router]\npolicies = [\"random\"]\n";
    std::fs::write(&path, text).unwrap();
    let with = |set: &[(&str, &str)]| {
        let set: Vec<_> = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        load(&path, &set, None, None, None)
    };
    let refused = |set: &[(&str, &str)], says: &str| {
        let error = with(set).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    refused(&[], "bad.jsonl:2: timestamp 1 comes after 2");
    assert_eq!(with(&[("workload.skip_bad", "1")]).unwrap().workload.requests(), 2);
    refused(&[("workload.format", "azure")], "bad.jsonl:1: the header has no column `TIMESTAMP`");
    refused(&[("workload.format", "azur")], "did you mean `azure`?");

    let chats = ("workload.path", "chats.json");
    refused(&[chats], "key `arrival`: is missing, and this trace has no times");
    refused(&[chats, ("arrival.kind", "trace")], "key `arrival.kind`: this trace has no times");
    let scenario = with(&[chats, ("arrival.kind", "poisson"), ("arrival.rate", "1")]).unwrap();
    assert_eq!((scenario.workload.requests(), scenario.workload.starts()), (2, 1));
    let waits: Vec<bool> =
        crate::workload::plan(&scenario, 1).requests.iter().map(|request| request.after.is_some()).collect();
    assert_eq!(waits, [false, true], "a turn waits for the one before it");
}

#[test]
fn wrong_values_of_a_trace_name_the_key_and_what_it_takes() {
    let directory = tempfile::tempdir().unwrap();
    let row = |stamp: u64| {
        format!("{{\"timestamp\": {stamp}, \"input_length\": 9, \"output_length\": 1, \"hash_ids\": [1]}}\n")
    };
    std::fs::write(directory.path().join("t.jsonl"), (0..11).map(row).collect::<String>()).unwrap();
    let path = directory.path().join("s.toml");
    let text = "schema = 1\nname = \"t\"\n[workload]\nkind = \"trace\"\npath = \"t.jsonl\"\n[fleet]\nworkers = 1\n\
                [router]\npolicies = [\"random\"]\n";
    std::fs::write(&path, text).unwrap();
    let with = |set: &[(&str, &str)]| {
        let set: Vec<_> = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        load(&path, &set, None, None, None)
    };
    for (key, value, says) in [
        ("repeat", "0", "0 is out of range; use a whole number from 1 to 1000000"),
        ("repeat", "-1", "-1 is out of range"),
        ("repeat", "1000001", "1000001 is out of range"),
        ("repeat", "1.5", "it must be a whole number"),
        ("repeat", "\"twice\"", "it must be a whole number"),
        ("repeat", "true", "it must be a whole number"),
        ("repeat_content", "\"sane\"", "\"sane\" is not known; did you mean `same`?"),
        ("repeat_content", "\"\"", "own, same"),
        ("repeat_content", "true", "it must be a text"),
        ("format", "\"mooncacke\"", "did you mean `mooncake`?"),
        ("format", "\"parquet\"", "auto, mooncake, azure, burstgpt, bailian, sharegpt, aiperf, weka, router"),
        ("format", "7", "it must be a text"),
        ("skip_bad", "-1", "-1 is out of range; use a whole number from 0 to 10000000"),
        ("skip_bad", "0.5", "it must be a whole number"),
        ("skip_bad", "\"many\"", "it must be a whole number"),
        ("skip_bad", "10000001", "10000001 is out of range"),
    ] {
        let wrong = text.replace("path = ", &format!("{key} = {value}\npath = "));
        std::fs::write(&path, &wrong).unwrap();
        let error = with(&[]).expect_err(value).to_string();
        let place = format!("s.toml:5: key `workload.{key}`: ");
        assert!(error.contains(&place) && error.contains(says), "{key} = {value}: {error}");
        std::fs::write(&path, text).unwrap();
        let flag = format!("workload.{key}");
        let error = with(&[(&flag, value)]).expect_err(value).to_string();
        assert!(error.starts_with("--set ") && error.contains(says), "{key} = {value}: {error}");
    }
    assert_eq!(with(&[("workload.repeat", "2")]).unwrap().workload.requests(), 22);
    let error = with(&[("workload.repeat", "1000000")]).unwrap_err().to_string();
    assert!(error.contains("1000000 rounds of 11 rows are 11000000 requests"), "{error}");
}
