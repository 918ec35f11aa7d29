use serde_json::{Value, json};

use super::*;
use crate::report::fixture::{disturbed, failed, record, run};
use crate::report::{About, Assertion};
use crate::run::Run;

fn one(policy: &str, cached: u64, last_ms: u64) -> Run {
    let only =
        record(0).tokens(12_345_678, cached, 20).first_ms(last_ms / 2).last_ms(last_ms).worker(0).build();
    run(policy, vec![only])
}

fn experiment(runs: Vec<Run>, assertions: &[Assertion]) -> Experiment {
    let about = About { name: "wide".into(), ..About::default() };
    Experiment::new(about, runs, None, assertions, Value::Null)
}

fn two() -> Vec<Run> {
    vec![one("round_robin", 0, 20_000), one("cache_aware", 10_000_000, 10_000)]
}

#[test]
fn the_best_is_marked_and_compared() {
    let text = table(&experiment(two(), &[]), Glyphs::Ascii, 100);
    let line = |start: &str| text.lines().find(|l| l.starts_with(start)).unwrap_or_else(|| panic!("{text}"));
    let words: Vec<&str> = line("> cache_aware").split_whitespace().collect();
    assert_eq!(words[..5], [">", "cache_aware", "1,234,568*", "2.00", "81.0*"]);
    assert!(line("  round_robin").contains(" 1.00 "));
    assert!(line("policy").contains("vs. round_"), "{text}");
    assert!(text.is_ascii(), "{text}");
}

#[test]
fn a_disturbed_comparison_has_its_table_and_no_best() {
    let text = table(&experiment(two().into_iter().map(disturbed).collect(), &[]), Glyphs::Ascii, 100);
    let row: Vec<&str> =
        text.lines().find(|l| l.starts_with("  cache_aware")).unwrap().split_whitespace().collect();
    assert_eq!(row[..4], ["cache_aware", "1,234,568", "2.00", "81.0"], "{text}");
    assert!(!text.contains('>') && !text.contains('*') && !text.contains("best"), "{text}");
    assert!(text.contains("\nDISTURBED live round_robin seed 1: something else had the machine: "), "{text}");
    assert!(text.contains("end what else runs and run it again") && !text.contains("WARNING"), "{text}");
}

#[test]
fn a_lone_policy_is_compared_with_nothing() {
    let mut runs = vec![one("cache_aware", 0, 20_000), one("cache_aware", 0, 10_000)];
    runs[1].params.insert("max_tree_size".into(), json!(16));
    let text = table(&experiment(runs, &[]), Glyphs::Ascii, 100);
    assert!(text.contains("> best") && !text.contains("vs."), "{text}");
}

#[test]
fn failed_asserts_are_listed_with_what_was_measured() {
    let claims = [
        Assertion::new("hit_rate", "cache_aware", None, ">=", 0.9, None).unwrap(),
        Assertion::new("hit_rate", "cache_aware", None, ">=", 0.8, None).unwrap(),
    ];
    let text = table(&experiment(two(), &claims), Glyphs::Unicode, 100);
    assert!(text.contains("asserts: 1 of 2 hold"), "{text}");
    assert!(text.contains("FAILED  cache_aware (virtual): hit_rate at least 90 %; measured 81 %"), "{text}");
}

/// Two policies and a sweep of one of them.
fn swept(settings: u64) -> Vec<Run> {
    let mut runs = two();
    for setting in 0..settings {
        let mut swept = one("cache_aware", setting, 20_000 - 100 * setting);
        swept.params.insert("balance_abs_threshold".into(), json!(8 * (setting + 1)));
        swept.params.insert("max_tree_size".into(), json!(67_108_864));
        runs.push(swept);
    }
    runs.remove(1);
    runs
}

fn widest(text: &str) -> usize {
    text.lines().map(|l| l.chars().count()).max().unwrap()
}

#[test]
fn swept_keys_are_columns_and_what_is_constant_is_said_once() {
    let text = table(&experiment(swept(3), &[]), Glyphs::Ascii, 100);
    assert!(text.contains("with cache_aware max_tree_size=67108864\n"), "{text}");
    assert!(!text.contains("threshold="), "{text}");
    let row = text.lines().find(|line| line.starts_with("> cache_aware")).unwrap();
    assert_eq!(row.split_whitespace().nth(2), Some("24"), "{text}");
    assert_eq!(text.lines().filter(|line| line.contains("cache_aware  ")).count(), 3, "{text}");
}

#[test]
fn a_long_sweep_lists_its_best_its_defaults_and_the_first_policy() {
    let text = table(&experiment(swept(30), &[]), Glyphs::Ascii, 100);
    let rows =
        text.lines().filter(|l| l.get(2..).is_some_and(|rest| rest.starts_with("cache_aware"))).count();
    assert_eq!(rows, 13, "{text}");
    assert!(text.contains("...17 more settings in the report"), "{text}");
    assert!(text.contains("\n= cache_aware "), "8 x 8 is the default\n{text}");
    assert!(text.contains("  round_robin"), "{text}");
}

#[test]
fn tables_fit_narrow_terminals() {
    for glyphs in [Glyphs::Ascii, Glyphs::Unicode] {
        let wide = table(&experiment(two(), &[]), glyphs, 200);
        assert!(widest(&wide) <= 100 && wide.contains("E2E") && wide.contains("pred."), "{wide}");
        let narrow = table(&experiment(two(), &[]), glyphs, 80);
        assert!(widest(&narrow) <= 80 && !narrow.contains("E2E"), "{narrow}");
        let swept = table(&experiment(swept(20), &[]), glyphs, 80);
        assert!(widest(&swept) <= 80, "{swept}");
    }
}

#[test]
fn failures_are_named_by_number() {
    let mut runs = two();
    runs[0].records = (0..9).map(|seq| failed(seq, 0, 5, 503, "no worker")).collect();
    runs[1].records.extend((1..4).map(|seq| failed(seq, 0, 5, 0, "connection refused")));
    let text = table(&experiment(runs, &[]), Glyphs::Ascii, 100);
    let (first, second) = ("  9 x 503 no worker\n", "  3 x connection refused\n");
    assert!(text.contains(&format!("12 requests failed:\n{first}{second}")), "{text}");
}

#[test]
fn clients_that_left_are_no_failures() {
    let mut runs = two();
    runs[0].records.extend((1..4).map(|seq| failed(seq, 0, 5, 0, crate::run::CLIENT_LEFT)));
    let text = table(&experiment(runs, &[]), Glyphs::Ascii, 100);
    assert!(text.contains("3 requests were left by their clients\n") && !text.contains("failed:"), "{text}");
}

#[test]
fn void_runs_are_told() {
    let mut runs = two();
    runs[1].world = World::Live;
    runs[1].records[0].sent_ns = 1_000_000_000;
    let text = table(&experiment(runs, &[]), Glyphs::Ascii, 100);
    assert!(text.contains("\nINVALID live cache_aware seed 1: "), "{text}");
    assert!(!table(&experiment(two(), &[]), Glyphs::Ascii, 100).contains("INVALID"));
}

#[test]
fn skipped_asserts_do_not_count_as_broken() {
    let live = Some(World::Live);
    let claims = [Assertion::new("hit_rate", "cache_aware", live, ">=", 0.9, None).unwrap()];
    let text = table(&experiment(two(), &claims), Glyphs::Ascii, 100);
    assert!(text.contains("asserts: none checked, 1 skipped (live only)\n"), "{text}");
}

#[test]
fn a_hundred_columns_are_enough() {
    let mut runs = two();
    for threshold in [0.1, 0.5] {
        let mut swept = one("consistent_hashing", 1, 99_999);
        swept
            .params
            .insert("router.options.consistent_hashing.quite_a_long_option_name".into(), json!(threshold));
        swept.params.insert("fleet.kv_tokens".into(), json!((threshold * 1e7) as u64));
        runs.push(swept);
    }
    for glyphs in [Glyphs::Ascii, Glyphs::Unicode] {
        let text = table(&experiment(runs.clone(), &[]), glyphs, 100);
        let widest = text.lines().map(|l| l.chars().count()).max().unwrap();
        assert!(widest <= 100, "{widest}\n{text}");
        assert!(text.contains("5000000"), "{text}");
    }
}
