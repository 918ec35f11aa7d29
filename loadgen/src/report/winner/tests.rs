use serde_json::{Value, json};

use super::*;
use crate::report::About;
use crate::report::fixture::{apart, disturbed, record, run};

/// A run of one request of a million tokens.
fn one(policy: &str, ttft_ms: u64, last_ms: u64) -> Run {
    run(policy, vec![record(0).tokens(1_000_000, 500_000, 1).first_ms(ttft_ms).last_ms(last_ms).build()])
}

/// The same, with an option of the policy.
fn set(mut run: Run, key: &str, value: f64) -> Run {
    run.policy.set(key, value).unwrap();
    run.params.insert(key.into(), json!(value));
    run
}

/// The same, with other work.
fn with(mut run: Run, key: &str, value: impl Into<Value>) -> Run {
    run.params.insert(key.into(), value.into());
    run
}

fn of(runs: Vec<Run>) -> Vec<Winner> {
    winners(&experiment(runs))
}

fn experiment(runs: Vec<Run>) -> Experiment {
    let facts = vec![("Fleet".to_owned(), "8 workers".to_owned())];
    let overrides = vec!["--trace a\nb = 1".to_owned()];
    let about = About { name: "small".into(), facts, overrides, ..About::default() };
    Experiment::new(about, runs, None, &[], Value::Null)
}

fn only(runs: Vec<Run>) -> Winner {
    let [winner] = of(runs).try_into().unwrap();
    winner
}

#[test]
fn the_file_says_what_won_what_it_beat_and_by_which_figure() {
    let swept = |threshold, last_ms| set(one("cache_aware", 100, last_ms), "cache_threshold", threshold);
    let winner = only(vec![one("random", 50, 1000), swept(0.25, 600), swept(0.5, 500)]);
    assert_eq!((winner.file.as_str(), winner.contest.as_str()), ("winner.toml", ""));
    assert_eq!(winner.label, "cache_aware cache_threshold=0.5");
    for line in [
        "# Written by loadgen: the winner of the scenario small, virtual.",
        "# Fleet       8 workers",
        "# Changed by  --trace a b = 1",
        "# Winner      cache_aware cache_threshold=0.5, of 3 settings",
        "# Runner-up   cache_aware cache_threshold=0.25",
        "# Decided by  input_tok_s",
        "# input_tok_s    2,000,000   1,666,667  tok/s",
        "# ttft_ms.p50          100         100  ms",
        "# hit_rate            50.0        50.0  %",
        "# failed                 0           0",
        "cache_threshold = 0.5",
    ] {
        assert!(winner.text.lines().any(|l| l == line), "{line}\n{}", winner.text);
    }
}

#[test]
fn the_file_holds_the_policy_and_nothing_else() {
    for name in ["round_robin", "bucket", "cache_aware", "manual"] {
        let winner = only(vec![one("random", 50, 1000), one(name, 50, 500)]);
        let file: toml::Table = winner.text.parse().unwrap();
        assert_eq!(file.keys().collect::<Vec<_>>(), ["policy"], "{}", winner.text);
        let policy = PolicyConfig::new(name).unwrap();
        let keys: BTreeSet<&str> = file["policy"].as_table().unwrap().keys().map(String::as_str).collect();
        let expected = policy.options().map(|(spec, _)| spec.key).chain(["name"]);
        assert_eq!(keys, expected.collect(), "{}", winner.text);
        assert_eq!(winner.text.contains("X-SMG-Routing-Key"), policy.row().needs_header, "{}", winner.text);
    }
}

#[test]
fn near_equals_are_decided_by_latency_and_equals_by_nothing() {
    let sooner = only(vec![one("random", 50, 1000), one("bucket", 40, 1010)]);
    assert!(sooner.text.contains("# Decided by  ttft_ms.p50, as"), "{}", sooner.text);
    assert_eq!(sooner.label, "bucket");
    let same = only(vec![one("random", 50, 1000), one("bucket", 50, 1000), one("manual", 50, 2000)]);
    assert!(same.text.contains("# Decided by  nothing but the scenario's order"), "{}", same.text);
    assert!(!same.level);
}

#[test]
fn a_setting_that_makes_no_difference_leaves_the_default() {
    let swept = |threshold, last_ms| set(one("cache_aware", 100, last_ms), "cache_threshold", threshold);
    let level = only(vec![swept(0.1, 500), swept(0.3, 500), swept(0.5, 500)]);
    assert_eq!((level.label.as_str(), level.level), ("cache_aware cache_threshold=0.3", true));
    assert!(
        level.text.contains("# Decided by  nothing: no difference between the 3 settings"),
        "{}",
        level.text
    );
    let tied = only(vec![swept(0.1, 500), swept(0.3, 500), swept(0.5, 900)]);
    assert_eq!((tied.label.as_str(), tied.level), ("cache_aware cache_threshold=0.3", false));
    assert!(tied.text.contains("# Decided by  nothing but its defaults"), "{}", tied.text);
}

#[test]
fn every_contest_has_its_winner() {
    let runs = [2, 8].into_iter().flat_map(|workers| {
        let policies = [("random", 1000), ("bucket", 900 + 100 * (workers / 4))];
        policies.map(|(policy, last_ms)| with(one(policy, 50, last_ms), "fleet.workers", workers))
    });
    let mut runs: Vec<Run> = runs.collect();
    let named = |runs: &[Run]| -> Vec<(String, String)> {
        of(runs.to_vec()).into_iter().map(|winner| (winner.file, winner.label)).collect()
    };
    let expected = |names: [[&str; 2]; 2]| names.map(|[file, label]| (file.to_owned(), label.to_owned()));
    let [two, eight] = ["winner-workers=2.toml", "winner-workers=8.toml"];
    let labels = ["bucket workers=2", "random workers=8"];
    assert_eq!(named(&runs), expected([[two, labels[0]], [eight, labels[1]]]));
    assert!(of(runs.clone())[0].text.contains("# Here with   workers=2\n"));
    // A lone run in another world has beaten nobody, but the others' names tell the worlds apart.
    runs.push(Run { world: World::Live, ..one("random", 50, 1000) });
    let [two, eight] = ["winner-virtual-workers=2.toml", "winner-virtual-workers=8.toml"];
    assert_eq!(named(&runs), expected([[two, labels[0]], [eight, labels[1]]]));
}

#[test]
fn names_need_no_quotes_and_are_different() {
    let paths = ["a/\"b\".jsonl", "a b .jsonl", &"x".repeat(300)];
    let runs = paths.iter().flat_map(|path| {
        ["random", "bucket"].map(|policy| with(one(policy, 50, 1000), "workload.path", *path))
    });
    let files: Vec<String> = of(runs.collect()).into_iter().map(|winner| winner.file).collect();
    assert_eq!(files[..2], ["winner-path=a--b-.jsonl.toml", "winner-path=a-b-.jsonl.toml"]);
    assert!(files[2].len() < 128, "{files:?}");
    let mut taken = BTreeSet::new();
    assert_eq!(
        ["a b", "a/b"].map(|words| file("", words, &mut taken)),
        ["winner-a-b.toml", "winner-a-b-2.toml"]
    );
}

#[test]
fn no_choice_no_success_and_void_runs_have_no_winner() {
    assert_eq!(of(vec![one("random", 50, 1000)]), []);
    assert_eq!(of(vec![one("random", 0, 0), one("bucket", 0, 0)]), []);
    let live = |policy| Run { world: World::Live, ..one(policy, 50, 1000) };
    assert_eq!(of(vec![live("random"), live("bucket")]).len(), 1);
    let mut late = live("bucket");
    late.records[0].sent_ns = 1_000_000_000;
    let both = vec![live("random"), late, one("random", 50, 1000), one("bucket", 50, 900)];
    let files: Vec<String> = of(both).into_iter().map(|winner| winner.file).collect();
    assert_eq!(files, ["winner-virtual.toml"]);
}

#[test]
fn where_something_else_had_the_machine_nobody_has_won_and_it_is_said_why() {
    let live = |policy| Run { world: World::Live, ..one(policy, 50, 1000) };
    let one_is = |policy| vec![live("random"), disturbed(one(policy, 50, 500))];
    let why = Some((World::Live, "something else had the machine"));
    let told = |runs: Vec<Run>| (of(runs.clone()).len(), undecided(&experiment(runs)));
    assert_eq!(told(vec![live("random"), live("bucket")]), (1, None));
    assert_eq!(told(one_is("bucket")), (0, why));
    assert_eq!(told(one_is("random")), (0, None), "two seeds of one policy: there is nothing to win");
    // Who won in virtual time stands.
    let both = [one_is("bucket"), vec![one("random", 50, 1000), one("bucket", 50, 900)]].concat();
    assert_eq!(told(both.clone()), (1, why));
    assert_eq!(of(both)[0].file, "winner-virtual.toml");
}

#[test]
fn what_else_the_router_was_told_is_in_the_file() {
    let mut told = one("random", 50, 500);
    told.settings = vec![
        ("policy", "decode_policy = \"random\"".to_owned()),
        ("fleet", "dp_aware = true".to_owned()),
        ("disaggregation", "decode_dispatch_limit = 3".to_owned()),
        ("disaggregation", "pd_least_uncached_tokens = 4".to_owned()),
    ];
    let text = only(vec![told, one("round_robin", 50, 1000)]).text;
    let read: toml::Table = text.parse().unwrap();
    assert_eq!(read["policy"]["decode_policy"].as_str(), Some("random"), "{text}");
    assert_eq!(read["fleet"]["dp_aware"].as_bool(), Some(true), "{text}");
    assert_eq!(read["disaggregation"]["decode_dispatch_limit"].as_integer(), Some(3), "{text}");
    assert_eq!(read["disaggregation"]["pd_least_uncached_tokens"].as_integer(), Some(4), "{text}");
}

#[test]
fn behind_another_router_the_best_of_ours_has_the_file() {
    let other = |last_ms| {
        let mut run = Run { world: World::Live, ..one("random", 50, last_ms) };
        run.target = Some("theirs".to_owned());
        run
    };
    let live = |policy, ttft_ms, last_ms| Run { world: World::Live, ..one(policy, ttft_ms, last_ms) };
    let ours = |target| vec![live("random", 50, 1000), live("bucket", 50, 900), other(target)];
    let behind = only(ours(800));
    assert_eq!(behind.label, "theirs, another router; best of ours: bucket");
    for line in [
        "# Winner      theirs, another router: this file is not of it",
        "# This file   the best of ours: bucket, of 3 settings",
        "# Decided by  input_tok_s, 12.5 % more than of this file",
        "# median            winner   this file",
        "# input_tok_s    1,250,000   1,111,111  tok/s",
    ] {
        assert!(behind.text.lines().any(|l| l == line), "{line}\n{}", behind.text);
    }
    let file: toml::Table = behind.text.parse().unwrap();
    assert_eq!(file["policy"]["name"].as_str(), Some("bucket"));
    let before = only(ours(1100));
    assert_eq!(before.label, "bucket");
    assert!(before.text.contains("# Runner-up   random\n"), "{}", before.text);
    // As fast, and sooner at the first token.
    let sooner = only(vec![live("random", 80, 800), other(800)]);
    let reason =
        "# Decided by  ttft_ms.p50, 37.5 % less than of this file, as their input_tok_s are near enough";
    assert!(sooner.text.lines().any(|line| line == reason), "{}", sooner.text);
    assert_eq!(of(vec![live("random", 0, 0), other(800)]).len(), 0, "nothing of ours succeeded");
    assert_eq!(of(vec![other(800)]).len(), 0);
}

#[test]
fn the_command_names_workers_by_role() {
    let regular = only(vec![one("random", 50, 500), one("bucket", 50, 1000)]);
    assert_eq!(regular.flags, "--worker-urls http://HOST:PORT ...");
    let split = |policy, last_ms| Run { workers: 4, pools: apart(2, 2), ..one(policy, 50, last_ms) };
    let winner = only(vec![split("random", 500), split("bucket", 1000)]);
    let flags =
        "--pd-disaggregation --prefill http://HOST:PORT BOOTSTRAP_PORT ... --decode http://HOST:PORT ...";
    assert_eq!(winner.flags, flags);
    assert!(winner.text.contains(&format!("#     router --config FILE {flags}\n")), "{}", winner.text);
}

#[test]
fn files_are_named_by_keys_and_contests_by_words() {
    let runs = ["random", "bucket"]
        .into_iter()
        .flat_map(|policy| [10.0, 50.0].map(|rate| with(one(policy, 50, 1000), "arrival.rate", rate)));
    let named: Vec<(String, String)> =
        of(runs.collect()).into_iter().map(|winner| (winner.file, winner.contest)).collect();
    let expected = [("winner-rate=10.toml", "10 requests/s"), ("winner-rate=50.toml", "50 requests/s")];
    assert_eq!(named, expected.map(|(file, contest)| (file.to_owned(), contest.to_owned())));
}
