//! Sections that stand only where there is something to show.

use serde_json::{Value, json};

use super::render;
use super::tests::{HABITS, Habit, made_up};
use crate::report::fixture::{disturbed, failed, record, regular, run};
use crate::report::{About, Assertion, Experiment, Slo};
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
fn three_loads_are_too_few_for_a_knee() {
    let page = page(loaded().into_iter().step_by(3).collect());
    assert!(section(&page, "offered").unwrap().contains("3 loads are too few to look for a knee"));
}

#[test]
fn where_sessions_go_on_the_belief_says_why_it_leaves_replies_out() {
    let why = "it learns of a reply, which the engine has kept, only with the next turn’s prompt";
    let first = record(0).turn(7, 0).tokens(100, 0, 60).predicted(0).build();
    let second = |found| record(1).turn(7, 1).tokens(200, found, 60).predicted(100).build();
    let talk = page(vec![run("cache_aware", vec![first.clone(), second(159)])]);
    let belief = section(&talk, "belief").unwrap();
    assert!(belief.contains(why), "{belief}");
    assert!(belief.contains("19.7 % found and not promised (19.7 % replies to earlier turns)"), "{belief}");
    let known = page(vec![run("cache_aware", vec![first, second(100)])]);
    assert!(!section(&known, "belief").unwrap().contains("replies"));
}

/// A run of one request: so many output tokens in a second, after so long a wait.
fn paced(setting: u64, tokens: u64, ttft_ms: u64) -> Run {
    let one = record(0).sent_ms(0, 0).first_ms(ttft_ms).last_ms(1000).tokens(10, 0, tokens).build();
    let mut run = run("cache_aware", vec![one]);
    run.params.insert("max_tree_size".to_owned(), json!(setting));
    run
}

#[test]
fn the_frontier_names_what_no_other_setting_beats_in_both() {
    let page = page(vec![paced(1, 100, 50), paced(2, 200, 60), paced(3, 150, 70), paced(4, 90, 40)]);
    let pareto = section(&page, "pareto").unwrap();
    let frontier = "On the frontier: cache_aware max_tree_size=2 (200 tok&#x2f;s, 60.0 ms); cache_aware max_tree_size=1 \
                    (100 tok&#x2f;s, 50.0 ms); cache_aware max_tree_size=4 (90 tok&#x2f;s, 40.0 ms).";
    assert!(pareto.contains(frontier), "{pareto}");
    let edge = pareto.split("class=\"axis\"").find(|line| line.contains("stroke-width=\"3\"")).unwrap();
    assert_eq!(
        edge.split("points=\"").nth(1).unwrap().split('"').next().unwrap().split_whitespace().count(),
        3
    );
}

/// A live run whose requests left so late.
fn late(late_ms: u64) -> Run {
    let one = |seq| record(seq).sent_ms(1000, 1000 + late_ms).first_ms(2000).last_ms(9000).build();
    Run { world: World::Live, ..run("cache_aware", (0..100).map(one).collect()) }
}

#[test]
fn the_verdict_says_first_whether_the_figures_can_be_relied_upon() {
    let void = page(vec![late(300)]);
    let verdict = void.split("<nav").next().unwrap();
    assert!(verdict.contains("class=\"verdict bad\"") && verdict.contains("A run is invalid"), "{verdict}");
    assert!(verdict.contains("<strong>INVALID</strong> live cache_aware seed 1: the generator"), "{verdict}");
    assert!(!verdict.contains("<strong>Valid.</strong>"));
    let other = Run { policy: router_core::PolicyConfig::new("random").unwrap(), ..late(300) };
    let two = page(vec![late(300), other]);
    assert!(two.contains("nobody is called best") && !two.contains("is best:"));
    let seeds = (1..=6).map(|seed| Run { seed, ..late(30) }).collect();
    assert!(page(seeds).contains("<summary>2 more warnings</summary>"));
    let doubtful = page(vec![late(30)]);
    let verdict = doubtful.split("<nav").next().unwrap();
    assert!(
        verdict.contains("<strong>WARNING</strong> live cache_aware seed 1: requests left up to"),
        "{verdict}"
    );
    assert!(!verdict.contains("verdict bad") && !verdict.contains("<strong>Valid.</strong>"));
    let good = page(vec![late(0)]);
    assert!(good.contains("<strong>Valid.</strong> No live run was held back"));
}

#[test]
fn the_verdict_names_nobody_where_something_else_had_the_machine() {
    let one = |policy, last_ms| {
        disturbed(run(policy, vec![record(0).tokens(10, 0, 1).first_ms(5).last_ms(last_ms).build()]))
    };
    let page = page(vec![one("random", 10), one("bucket", 20)]);
    let verdict = page.split("<nav").next().unwrap();
    let headline = "</span> Something else had the machine: live runs cannot be compared</p>";
    assert!(verdict.contains("class=\"verdict plain\"") && verdict.contains(headline), "{verdict}");
    assert!(verdict.contains("<strong>DISTURBED</strong> live bucket seed 1: something else"), "{verdict}");
    assert!(verdict.contains("nobody is called best, for something else had the machine."), "{verdict}");
    assert!(!verdict.contains("<strong>Valid.</strong>") && !page.contains("class=\"champion\""));
}

#[test]
fn asserts_that_fail_are_shown_and_the_others_folded() {
    let claim = |op: &str| Assertion::new("hit_rate", "cache_aware", None, op, 0.5, None).unwrap();
    let setting = |cached: u64| {
        let mut run = run("cache_aware", vec![record(0).tokens(100, cached, 1).build()]);
        run.params.insert("max_tree_size".to_owned(), json!(cached));
        run
    };
    let told = |cached: std::ops::Range<u64>| {
        let runs = cached.map(setting).collect();
        let experiment = Experiment::new(About::default(), runs, None, &[claim(">=")], Value::Null);
        render(&experiment).unwrap()
    };
    let page = told(48..53);
    let (open, folded) = page.split_once("The other asserts").unwrap();
    let count = |part: &str, word: &str| part.matches(&format!("<span class=\"word\">{word}<")).count();
    assert_eq!((count(open, "fails"), count(open, "holds")), (2, 0));
    assert_eq!((count(folded, "fails"), count(folded, "holds")), (0, 3));
    let many = told(0..45);
    assert!(many.contains("And 5 more fail."));
    assert_eq!(count(&many, "fails"), 40);
}

#[test]
fn a_long_list_of_settings_is_folded_behind_its_surface() {
    let cells = |sizes: u64| {
        let all = (0..sizes).flat_map(|a| (0..2).flat_map(move |b| (0..2).map(move |c| (a, b, c))));
        let run = |(a, b, c): (u64, u64, u64)| {
            let mut run = paced(a, 100 + a, 50);
            run.params.extend([("k.depth".to_owned(), json!(b)), ("k.idle".to_owned(), json!(c))]);
            run
        };
        page(all.map(run).collect())
    };
    let (few, many) = (cells(4), cells(9));
    assert!(!section(&few, "sweep").unwrap().contains("<details"));
    assert!(section(&many, "sweep").unwrap().contains("<summary>All 36 settings</summary>"));
    assert!(
        section(&many, "pareto").unwrap().contains("</svg>cache_aware</li>"),
        "a colour of many settings"
    );
}

#[test]
fn of_many_loads_the_best_settings_have_rows_and_no_winner_is_made_of_equals() {
    let cell = |(rate, size): (u64, u64)| {
        let mut run = paced(size, 100, 50);
        run.params.insert("arrival.rate".to_owned(), json!(rate));
        run
    };
    let page = page((1..=9).flat_map(|rate| (1..=3).map(move |size| cell((rate, size)))).collect());
    let policies = section(&page, "policies").unwrap();
    assert_eq!(policies.split("<details").next().unwrap().matches("<th scope=\"row\"").count(), 9);
    assert!(policies.contains("the best of each policy, for every workload and fleet, has a row here"));
    let verdict = page.split("<nav").next().unwrap();
    assert!(verdict.contains("for 9 of 9 workloads and fleets the best setting is no better"), "{verdict}");
    assert!(!verdict.contains("is best:"), "{verdict}");
}

#[test]
fn the_table_of_policies_keeps_to_what_fits_and_unfolds_the_rest() {
    let mut runs: Vec<Run> =
        HABITS[..2].iter().map(|habit| made_up(*habit, World::Live, 1, 64, Params::new())).collect();
    runs.push(made_up(HABITS[4], World::Live, 1, 64, Params::new()));
    let slo = Slo { ttft_ns: 1, tpot_ns: 1 };
    let page = render(&Experiment::new(About::default(), runs, Some(slo), &[], Value::Null)).unwrap();
    let policies = section(&page, "policies").unwrap();
    let heads: Vec<usize> = policies
        .split("<thead>")
        .skip(1)
        .map(|t| t.split("</thead>").next().unwrap().matches("<th").count())
        .collect();
    assert_eq!(heads.len(), 2);
    assert!(heads[0] <= 14, "{heads:?}");
    let (seen, unfolded) = policies.split_once("<summary>More figures</summary>").unwrap();
    assert!(
        seen.contains(">Router CPU<")
            && !seen.contains("predicted")
            && unfolded.contains(">Hits, predicted<")
    );
    assert_eq!(policies.matches("<tr").count(), 2 * (1 + 3));
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
    let seed = |(seed, cached)| Run { seed, ..run("random", vec![record(0).tokens(100, cached, 1).build()]) };
    let page = page([(1, 50), (2, 60), (3, 70)].map(seed).into());
    let policies = section(&page, "policies").unwrap();
    // The standard error is 10 / √3 points, and Student's t of two degrees of freedom 4.303.
    let cell = "60.0<small title=\"mean 60.0\">± 24.8</small><small>50.0\u{2009}– 70.0</small>";
    assert!(policies.contains("95&nbsp;% interval") && policies.contains(cell), "{policies}");
    assert!(
        !policies.contains("± 0<") && !policies.contains("± 0.00<"),
        "seeds that agree need none: {policies}"
    );
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
    let mut apart = run.clone();
    apart.reach =
        apart.reach.map(|reach| Reach { infinite: 0.0, fleet: 0.0, policy: 0.0, delivered: 0.0, ..reach });
    assert!(section(&page(vec![apart]), "reach").is_none(), "there was nothing to lose");
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
    run.records.push(failed(500, 0, 1, 0, crate::run::CLIENT_LEFT));
    let page = page(vec![run]);
    let failures = section(&page, "failures").unwrap();
    assert_eq!(failures.matches("<td>30").count(), 5, "{failures}");
    let verdict = page.split("<nav").next().unwrap();
    assert!(
        verdict.contains("<strong>8 of 265 requests failed (3.02\u{a0}%); one client left before its answer.</strong> <a href=\"#failures\">"),
        "{verdict}"
    );
    assert!(!failures.contains(crate::run::CLIENT_LEFT), "nobody failed it");
    let place = |error: &str| failures.find(&format!(">{error}</td>")).unwrap();
    assert!(place("no worker") < place("connection refused"), "the most frequent first");
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
    assert_eq!(sweep.matches("rowspan=\"2\">size ↓<").count(), 3, "{sweep}");
    assert_eq!(sweep.matches("colspan=\"2\">depth →<").count(), 3, "{sweep}");
    assert!(sweep.contains("TTFT p90, ms<small>median over the other keys</small>"), "{sweep}");
}
