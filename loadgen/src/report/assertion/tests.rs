//! Claims that hold, fail, and cannot be checked.

use serde_json::json;

use super::*;
use crate::report::fixture::{record, run};
use crate::report::summary::RunSummary;

/// A summary with the given cached share of 100 prompt tokens.
fn summary(policy: &str, cached: u64, seed: u64) -> RunSummary {
    let mut run = run(policy, vec![record(0).tokens(100, cached, 5).last_ms(10).worker(0).build()]);
    run.seed = seed;
    RunSummary::of(&run, None)
}

fn claim(policy: &str, op: &str, value: f64, versus: Option<&str>) -> Assertion {
    Assertion::new("hit_rate", policy, None, op, value, versus).unwrap()
}

fn verdicts(assertion: Assertion, summaries: &[RunSummary]) -> Vec<Verdict> {
    evaluate(&[assertion], summaries).into_iter().map(|o| o.verdict).collect()
}

#[test]
fn a_claim_may_compare_cells_of_other_parameters() {
    let swept = |policy: &str, aware: bool, cached| {
        let mut summary = summary(policy, cached, 1);
        summary.params.insert("router.dp_aware".into(), json!(aware));
        summary
    };
    let summaries = [
        swept("round_robin", false, 20),
        swept("round_robin", true, 60),
        swept("cache_aware", false, 30),
        swept("cache_aware", true, 80),
    ];
    let params = |aware: bool| Params::from([("router.dp_aware".to_owned(), json!(aware))]);
    let versus = |wanted: Option<bool>| {
        let claim = claim("cache_aware", ">=", 4.0, Some("round_robin")).where_params(params(true));
        let claim = claim.versus_params(wanted.map(params).unwrap_or_default());
        evaluate(&[claim], &summaries)
    };
    assert_eq!(versus(Some(false)).len(), 1);
    assert_eq!(versus(Some(false))[0].verdict, Verdict::Held, "80 against 20");
    assert!(versus(Some(false))[0].claim.contains("relative to round_robin router.dp_aware=false"));
    assert_eq!(versus(None)[0].verdict, Verdict::Failed, "80 against 60");
    let itself = claim("cache_aware", ">", 2.0, Some("cache_aware"));
    let itself = itself.where_params(params(true)).versus_params(params(false));
    assert_eq!(evaluate(&[itself], &summaries)[0].verdict, Verdict::Held, "80 against 30");
}

#[test]
fn a_claim_may_compare_the_two_worlds_of_one_cell() {
    let of = |world, policy: &str, threshold: f64, cached| {
        let mut summary = summary(policy, cached, 1);
        summary.mode = world;
        summary.params.insert("cache_threshold".into(), json!(threshold));
        summary
    };
    let (live, in_virtual) = (World::Live, World::Virtual);
    let summaries = [
        of(in_virtual, "cache_aware", 0.3, 50),
        of(in_virtual, "cache_aware", 0.5, 10),
        of(in_virtual, "round_robin", 0.3, 20),
        of(live, "cache_aware", 0.3, 48),
        of(live, "cache_aware", 0.5, 20),
        of(live, "round_robin", 0.3, 96),
    ];
    let claim = |op: &str, value: f64, versus: Option<&str>, threshold: f64| {
        let claim = Assertion::new("hit_rate", "cache_aware", Some(live), op, value, versus).unwrap();
        let params = Params::from([("cache_threshold".to_owned(), json!(threshold))]);
        claim.versus_mode(in_virtual).where_params(params)
    };
    let outcomes = evaluate(&[claim("<=", 0.95, None, 0.3)], &summaries);
    assert_eq!(outcomes.len(), 1, "each cell is compared with itself: {outcomes:?}");
    assert_eq!((outcomes[0].verdict, outcomes[0].measured), (Verdict::Failed, Some(0.96)));
    assert_eq!(
        outcomes[0].to_string(),
        "cache_aware cache_threshold=0.3 (live): hit_rate relative to cache_aware (virtual) at most 0.95×; \
         measured 0.96×"
    );
    assert_eq!(verdicts(claim("==", 2.0, None, 0.5), &summaries), [Verdict::Held]);
    assert_eq!(verdicts(claim("==", 2.4, Some("round_robin"), 0.3), &summaries), [Verdict::Held]);
    for one_world in [&summaries[..3], &summaries[3..]] {
        assert_eq!(verdicts(claim(">=", 0.95, None, 0.3), one_world), [Verdict::NotChecked]);
    }
    let without = [summaries[2].clone(), summaries[3].clone()];
    assert_eq!(verdicts(claim(">=", 0.95, None, 0.3), &without), [Verdict::Failed], "no such cell");
}

#[test]
fn comparisons() {
    let cases = [
        (">=", 0.5, true),
        (">=", 0.51, false),
        (">", 0.5, false),
        (">", 0.49, true),
        ("<=", 0.5, true),
        ("<=", 0.49, false),
        ("<", 0.5, false),
        ("<", 0.51, true),
        ("==", 0.5, true),
        ("==", 0.4, false),
    ];
    for (op, value, holds) in cases {
        let expected = if holds { Verdict::Held } else { Verdict::Failed };
        let got = verdicts(claim("random", op, value, None), &[summary("random", 50, 1)]);
        assert_eq!(got, [expected], "0.5 {op} {value}");
    }
}

#[test]
fn the_median_over_seeds_is_what_counts() {
    let seeds = [summary("random", 10, 1), summary("random", 60, 2), summary("random", 70, 3)];
    let outcome = &evaluate(&[claim("random", ">=", 0.6, None)], &seeds)[0];
    assert_eq!((outcome.verdict, outcome.measured), (Verdict::Held, Some(0.6)));
}

#[test]
fn a_ratio_compares_the_medians_of_two_policies() {
    let runs = [summary("round_robin", 40, 1), summary("cache_aware", 80, 1)];
    let outcome = &evaluate(&[claim("cache_aware", ">", 2.1, Some("round_robin"))], &runs)[0];
    assert_eq!((outcome.verdict, outcome.measured), (Verdict::Failed, Some(2.0)));
    assert_eq!(
        outcome.to_string(),
        "cache_aware (virtual): hit_rate relative to round_robin above 2.1×; measured 2×"
    );
}

#[test]
fn what_is_not_in_the_results_fails() {
    let runs = [summary("random", 0, 1)];
    assert_eq!(verdicts(claim("cache_aware", ">=", 0.0, None), &runs), [Verdict::Failed]);
    assert_eq!(verdicts(claim("random", ">=", 0.0, Some("round_robin")), &runs), [Verdict::Failed]);
    assert_eq!(verdicts(claim("random", ">=", 0.0, None), &[]), [Verdict::Failed]);
    let unmeasured = Assertion::new("predicted_hit_rate", "random", None, "<=", 1.0, None).unwrap();
    assert_eq!(verdicts(unmeasured, &runs), [Verdict::Failed]);
    let by_zero = claim("random", ">=", 0.0, Some("random"));
    assert_eq!(verdicts(by_zero, &runs), [Verdict::Failed], "a ratio to zero is no number");
}

#[test]
fn a_world_that_was_not_run_is_shown_as_not_checked() {
    let live = Assertion::new("hit_rate", "random", Some(World::Live), ">=", 0.9, None).unwrap();
    let outcome = &evaluate(&[live], &[summary("random", 0, 1)])[0];
    assert_eq!(outcome.verdict, Verdict::NotChecked);
    assert!(!outcome.failed());
}

#[test]
fn every_setting_of_a_sweep_must_hold_against_its_like() {
    let with = |policy: &str, cached, page: u64| {
        let mut summary = summary(policy, cached, 1);
        summary.params.insert("fleet.page".into(), json!(page));
        summary
    };
    let runs = [
        with("cache_aware", 80, 1),
        with("cache_aware", 60, 64),
        with("random", 40, 1),
        with("random", 50, 64),
    ];
    let outcomes = evaluate(&[claim("cache_aware", ">=", 1.5, Some("random"))], &runs);
    let measured: Vec<Option<f64>> = outcomes.iter().map(|o| o.measured).collect();
    assert_eq!(measured, [Some(2.0), Some(1.2)]);
    assert_eq!(outcomes.iter().filter(|o| o.failed()).count(), 1);
}

#[test]
fn a_claim_about_one_setting_is_checked_there_only() {
    let with = |cached, page: u64| {
        let mut summary = summary("cache_aware", cached, 1);
        summary.params.insert("fleet.page".into(), json!(page));
        summary
    };
    let runs = [with(80, 1), with(60, 64)];
    let claim = |page: Value| {
        let params = Params::from([("fleet.page".to_owned(), page)]);
        evaluate(&[claim("cache_aware", ">=", 0.7, None).where_params(params)], &runs)
    };
    let measured = |outcomes: Vec<AssertOutcome>| outcomes.iter().map(|o| o.measured).collect::<Vec<_>>();
    assert_eq!(measured(claim(json!(1))), [Some(0.8)]);
    assert_eq!(measured(claim(json!(64.0))), [Some(0.6)], "a number, however it is written");
    let missing = &claim(json!(16))[0];
    assert!(missing.failed() && missing.finding == "no run of policy `cache_aware fleet.page=16`");
}

#[test]
fn a_near_miss_does_not_read_like_a_hit() {
    let runs = [summary("random", 50, 1)];
    let outcome = &evaluate(&[claim("random", ">=", 0.500_000_1, None)], &runs)[0];
    assert_eq!(outcome.to_string(), "random (virtual): hit_rate at least 50 %; measured 0.5");
}

#[test]
fn nonsense_is_refused_by_name() {
    let error =
        |metric, op, value| Assertion::new(metric, "random", None, op, value, None).unwrap_err().to_string();
    assert!(error("speed", ">=", 1.0).starts_with("`speed` is no metric; one of requests, failed"));
    assert!(error("hit_rate", "=>", 1.0).contains("`=>` is no comparison"));
    assert!(error("hit_rate", ">=", f64::NAN).contains("finite"));
}
