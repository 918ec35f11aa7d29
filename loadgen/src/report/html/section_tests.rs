//! Sections that stand only where there is something to show.

use serde_json::{Value, json};

use super::render;
use super::tests::{HABITS, Habit, made_up};
use crate::report::fixture::{failed, regular};
use crate::report::{About, Experiment};
use crate::run::{EngineSample, EngineTimeline, Params, Reach, Run, World};

fn page(runs: Vec<Run>) -> String {
    render(&Experiment::new(About::default(), runs, None, &[], Value::Null)).unwrap()
}

fn section<'p>(page: &'p str, id: &str) -> Option<&'p str> {
    page.split(&format!("<section id=\"{id}\">")).nth(1)?.split("</section>").next()
}

fn plain(slow: u64, seed: u64) -> Run {
    made_up(Habit { slow, ..HABITS[4] }, World::Virtual, seed, 256, Params::new())
}

/// One policy under loads up to 80 requests/s. Beyond 50 everything takes much longer.
fn loaded() -> Vec<Run> {
    let at = |rate: u64| {
        let params = Params::from([("arrival.rate".to_owned(), json!(rate * 10))]);
        let slow = if rate <= 5 { 5 + rate } else { 40 * (rate - 5) };
        made_up(Habit { slow, ..HABITS[4] }, World::Virtual, 1, 256, params)
    };
    (1..=8).map(at).collect()
}

#[test]
fn where_the_load_is_swept_latency_is_drawn_over_it_with_its_knee() {
    let page = page(loaded());
    let offered = section(&page, "offered").unwrap();
    assert_eq!(offered.matches("<svg class=\"lines\"").count(), 6);
    assert!(offered.contains("knee at 50 requests") || offered.contains("knee at 60 requests"), "{offered}");
    assert!(offered.contains("<circle") && offered.contains("class=\"f0\""), "{offered}");
    assert!(offered.contains("href=\"summary.csv\""));
    let pareto = section(&page, "pareto").unwrap();
    assert_eq!(pareto.matches("<circle").count(), 2 * 8, "a dot per setting");
    assert!(pareto.contains("On the frontier: "));
}

#[test]
fn without_a_sweep_there_is_no_load_curve_and_no_frontier() {
    let page = page(vec![plain(5, 1), made_up(HABITS[0], World::Virtual, 1, 256, Params::new())]);
    for id in ["offered", "pareto", "sweep", "reach", "failures"] {
        assert!(section(&page, id).is_none(), "{id}");
    }
    for id in ["latency", "cache", "load", "belief", "reasons"] {
        assert!(section(&page, id).unwrap().contains("<p class=\"source\">The data: <a href="), "{id}");
    }
    assert!(page.contains("E2E, virtual") && page.contains("<strong>Valid.</strong>"));
    assert!(!page.contains("±"), "one seed has no interval");
}

#[test]
fn several_seeds_have_an_interval() {
    let page = page(vec![plain(5, 1), plain(6, 2), plain(7, 3)]);
    let policies = section(&page, "policies").unwrap();
    assert!(policies.contains("95 % interval") && policies.matches('±').count() > 4, "{policies}");
}

fn watched(workers: u32, evicts: bool) -> Run {
    let mut run = plain(5, 1);
    (run.workers, run.pools) = (workers, regular(workers));
    let sample = |moment: u64, worker: u32| EngineSample {
        in_flight: worker % 7,
        queued_tokens: moment * u64::from(worker % 13),
        fill: moment as f64 / 200.0,
        evicted_tokens: if evicts { moment * 1000 } else { 0 },
    };
    let row = |moment| -> Box<[EngineSample]> { (0..workers).map(|worker| sample(moment, worker)).collect() };
    run.engines =
        EngineTimeline { interval_ns: 50_000_000, samples: (0..200).map(row).collect(), last: row(200) };
    run
}

#[test]
fn workers_are_drawn_over_time_as_far_as_something_happened() {
    let quiet = page(vec![watched(8, false)]);
    let load = section(&quiet, "load").unwrap();
    for title in ["In flight, virtual", "Queued prefill, virtual", "Cache fill, virtual"] {
        assert!(load.contains(title), "{title}");
    }
    assert!(!load.contains("Evictions, virtual"));
    assert!(load.contains("href=\"timeseries.csv\"") && load.contains("href=\"workers.csv\""));
    let busy = page(vec![watched(8, true)]);
    assert!(
        busy.contains("Evictions, virtual") && busy.contains("peak of 20,000 tokens/s on each worker"),
        "per second"
    );
}

#[test]
fn a_thousand_workers_do_not_make_a_large_page() {
    let page = page(vec![watched(1000, true)]);
    assert!(page.len() < 400_000, "{} bytes", page.len());
}

#[test]
fn what_was_possible_is_told_step_by_step() {
    let mut run = plain(5, 1);
    run.reach =
        Some(Reach { requests: 256, cut: true, infinite: 0.9, fleet: 0.8, policy: 0.5, delivered: 0.45 });
    let page = page(vec![run]);
    let reach = section(&page, "reach").unwrap();
    assert!(reach.contains("of the prompt tokens of the first 256 requests"), "{reach}");
    for text in ["90.0 %", "80.0 %<small>−10.0<", "50.0 %<small>−30.0<", "45.0 %<small>−5.0<", "reach.csv"]
    {
        assert!(reach.contains(text), "{text}: {reach}");
    }
}

#[test]
fn failures_have_a_few_samples_each() {
    let mut run = plain(5, 1);
    run.records.extend((300..307).map(|seq| failed(seq, 1500, 1750, 503, "no worker")));
    run.records.push(failed(400, 0, 1, 0, "connection refused"));
    let page = page(vec![run]);
    let failures = section(&page, "failures").unwrap();
    assert_eq!(failures.matches("<td>30").count(), 5, "{failures}");
    assert!(
        failures.contains("<td rowspan=\"5\">7</td>") && failures.contains("<td>1.500 s</td><td>250 ms</td>")
    );
    assert!(failures.contains("<td>400</td>") && failures.contains("href=\"requests.csv\""));
}

#[test]
fn of_many_swept_keys_the_two_that_matter_most_make_a_surface() {
    let mut runs = Vec::new();
    for (a, b, c) in (0..8).map(|i| (i & 1, i >> 1 & 1, i >> 2)) {
        let params = [("k.size", a), ("k.depth", b), ("k.idle", c)];
        let params: Params = params.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect();
        let habit = Habit { slow: 5 + 8 * a + 3 * b, ..HABITS[4] };
        runs.push(made_up(habit, World::Virtual, 1, 256, params));
    }
    let page = page(runs);
    let sweep = section(&page, "sweep").unwrap();
    assert_eq!(sweep.matches("size ↓ depth →").count(), 3, "{sweep}");
    assert!(sweep.contains("TTFT p90, ms<small>median over the other keys</small>"), "{sweep}");
}
