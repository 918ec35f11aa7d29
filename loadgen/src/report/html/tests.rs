use router_core::PolicyConfig;
use serde_json::{Value, json};

use super::*;
use crate::report::fixture::{apart, failed, gaps, record, regular};
use crate::report::{About, Assertion, Slo};
use crate::run::{EngineTimeline, LoadTimeline, Params, Run, World};
use crate::scenario::Fingerprint;

/// How a made-up policy behaves.
#[derive(Clone, Copy)]
pub(super) struct Habit {
    pub(super) policy: &'static str,
    /// Whether a group always goes to one worker.
    pub(super) sticky: bool,
    pub(super) slow: u64,
}

pub(super) const HABITS: [Habit; 5] = [
    Habit { policy: "round_robin", sticky: false, slow: 10 },
    Habit { policy: "random", sticky: false, slow: 11 },
    Habit { policy: "power_of_two", sticky: false, slow: 9 },
    Habit { policy: "consistent_hashing", sticky: true, slow: 8 },
    Habit { policy: "cache_aware", sticky: true, slow: 5 },
];

const GROUPS: u64 = 64;
const WORKERS: u64 = 8;

/// A number that looks drawn and is a function of its arguments.
fn draw(seed: u64, seq: u64, below: u64) -> u64 {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ seq.wrapping_mul(0xD1B5_4A32_D192_ED03);
    x = (x ^ (x >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (x ^ (x >> 32)) % below
}

fn request(habit: Habit, seed: u64, seq: u64, of: u64) -> protocol::record::RequestRecord {
    let group = draw(seed, seq, GROUPS);
    let scattered = if habit.policy == "round_robin" { seq % WORKERS } else { draw(seed + 9, seq, WORKERS) };
    let overflow = draw(seed + 5, seq, 10) == 0;
    let home = draw(3, group, WORKERS);
    let worker = if habit.sticky && !overflow { home } else { scattered };
    let seen = (seq / GROUPS).min(8);
    let warm = if habit.sticky { seq > GROUPS / 2 } else { draw(seed, seq, 9) < seen };
    let at = 1500 * seq / of;
    let first = at + 30 + (draw(seed, seq + 1, 400) + 3 * seq * 1024 / of / 2) * habit.slow / 5;
    let reason = match (habit.sticky, overflow, warm) {
        (false, ..) => "turn",
        (_, true, _) => "balance",
        (_, _, true) => "hit",
        _ => "miss",
    };
    let draft =
        record(seq).group(group as u32).sent_ms(at, at).first_ms(first).last_ms(first + 2000 + seq % 700);
    let draft = draft.tokens(2271, if warm { 2135 } else { 0 }, 256).worker(worker as u32).reason(reason);
    let draft = if habit.sticky { draft.predicted(if warm { 2100 } else { 50 }) } else { draft };
    draft.build()
}

pub(super) fn made_up(habit: Habit, world: World, seed: u64, requests: u64, params: Params) -> Run {
    let mut records: Vec<_> = (0..requests).map(|seq| request(habit, seed, seq, requests)).collect();
    if habit.policy == "random" && world == World::Live && requests > 7 {
        records[7] = failed(7, 10, 400, 503, "no worker <script>alert(1)</script>");
    }
    Run {
        world,
        policy: PolicyConfig::new(habit.policy).unwrap(),
        settings: Vec::new(),
        params,
        seed,
        workers: WORKERS as u32,
        pools: regular(WORKERS as u32),
        ranks: 1,
        speed: 1.0,
        load: LoadTimeline::from_records(&records, WORKERS as u32, 240),
        records,
        itl_ns: gaps(&[8_000_000, 9_000_000, 30_000_000]),
        engines: EngineTimeline::default(),
        reach: None,
        router_cpu_us_per_request: (world == World::Live).then_some(61.5),
        target: None,
        beside: None,
    }
}

/// Two worlds, five policies, a sweep over two keys, asserts that hold, fail and cannot be checked.
fn experiment(requests: u64, swept: bool) -> Experiment {
    let mut runs = Vec::new();
    for (world, seeds) in [(World::Virtual, 3), (World::Live, 1)] {
        for (habit, seed) in HABITS.iter().flat_map(|h| (1..=seeds).map(move |seed| (*h, seed))) {
            let settings: &[(f64, u64)] = match (habit.policy, world, swept) {
                ("cache_aware", World::Virtual, true) => {
                    &[(0.1, 1 << 20), (0.1, 1 << 26), (0.5, 1 << 20), (0.5, 1 << 26)]
                }
                _ => &[(0.3, 1 << 26)],
            };
            for (threshold, size) in settings {
                let slow = habit.slow + (threshold * 4.0) as u64 + u64::from(*size < 1 << 22);
                let mut params = Params::new();
                if habit.policy == "cache_aware" {
                    params.insert("router.options.cache_aware.cache_threshold".into(), json!(threshold));
                    params.insert("router.options.cache_aware.max_tree_size".into(), json!(size));
                }
                runs.push(made_up(Habit { slow, ..habit }, world, seed, requests, params));
            }
        }
    }
    let about = About {
        name: "multi_prefix".into(),
        description: "64 system prompts shared by 16 questions each, sent within a second and a half. \
                      <script>alert('hi')</script>"
            .into(),
        source: "schema = 1\nname = \"multi_prefix\"  # <b>bold</b> & \"quoted\"\n\n[fleet]\nworkers = 8\n"
            .into(),
        overrides: Vec::new(),
        fingerprint: Fingerprint::default(),
        conclusion: None,
        facts: [
            ("Workload", "64 prefixes × 16 prompts, 2,135 + 136 tokens in, 256 out"),
            ("Arrival", "burst over 1.5 s"),
            ("Fleet", "8 × a100-80g-llama3-8b, 444,500 KV tokens, lpm"),
            ("Objectives", "TTFT ≤ 2 s, TPOT ≤ 50 ms"),
            ("Seeds", "1, 2, 3"),
        ]
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .to_vec(),
    };
    let claim = |metric, mode, value, versus| {
        Assertion::new(metric, "cache_aware", mode, ">=", value, versus).unwrap()
    };
    let claims = [
        claim("hit_rate", Some(World::Virtual), 0.5, None),
        claim("input_tok_s", Some(World::Live), 1.9, Some("round_robin")),
    ];
    let slo = Slo { ttft_ns: 2_000_000_000, tpot_ns: 50_000_000 };
    Experiment::new(about, runs, Some(slo), &claims, Value::Null)
}

fn page() -> String {
    render(&experiment(256, true)).unwrap()
}

/// The text between tags, one item per text.
fn texts(page: &str) -> Vec<&str> {
    page.split('<').filter_map(|part| part.split_once('>')).map(|(_, text)| text.trim()).collect()
}

#[test]
fn nothing_is_loaded_and_nothing_runs() {
    let page = page();
    for forbidden in
        ["http://", "https://", "<script", "javascript:", "<link", "@import", "url(", "<img", "<iframe"]
    {
        assert!(!page.contains(forbidden), "{forbidden} in the page");
    }
    let handlers = page.split('<').filter(|tag| tag.split('>').next().unwrap_or("").contains(" on"));
    assert_eq!(handlers.count(), 0, "event handlers");
}

#[test]
fn what_comes_from_outside_is_shown_and_not_obeyed() {
    let page = page();
    for (place, shown) in [
        ("description", "&lt;script&gt;alert("),
        ("source", "&lt;b&gt;bold&lt;&#x2f;b&gt; &amp; &quot;quoted&quot;"),
        ("error", "no worker &lt;script&gt;"),
    ] {
        assert!(page.contains(shown), "{place}");
    }
    assert!(page.find("&lt;script&gt;alert(") < page.find("<div class=\"verdict"), "what it is comes first");
}

#[test]
fn the_same_runs_give_the_same_bytes() {
    assert_eq!(page(), page());
}

#[test]
fn every_section_is_there_and_the_verdict_speaks() {
    let page = page();
    for id in ["policies", "sweep", "latency", "cache", "load", "reasons", "scenario", "definitions"] {
        assert!(page.contains(&format!("<section id=\"{id}\">")), "{id}");
        assert!(page.contains(&format!("href=\"#{id}\"")), "{id}");
    }
    let texts = texts(&page);
    assert!(texts.contains(&"1 of 5 asserts fails"), "headline");
    assert!(texts.iter().any(|t| t.ends_with("is best:")));
    assert!(texts.iter().any(|t| t.starts_with("1.") && t.contains("× the input throughput of round_robin")));
    assert!(texts.iter().any(|t| t.contains("1 of 7,424 requests failed")), "failures");
    assert!(texts.contains(&"balance"), "reasons");
}

#[test]
fn a_policy_table_has_a_row_per_variant_and_marks_the_best() {
    let page = page();
    let table = page.split("<section id=\"policies\">").nth(1).unwrap().split("<table").nth(1).unwrap();
    let table = table.split("</table>").next().unwrap();
    assert_eq!(table.matches("<tr").count(), 1 + 4 + 4, "heading, four policies, four settings");
    assert_eq!(table.matches("<tr class=\"champion\">").count(), 1);
    assert!(table.matches("<td class=\"best\">").count() >= 5);
}

#[test]
fn only_the_live_table_tells_the_schedule_lag() {
    let punctual = experiment(256, false);
    assert_eq!(render(&punctual).unwrap().matches("Schedule lag").count(), 1);
    let mut runs = punctual.runs().to_vec();
    for run in runs.iter_mut().filter(|run| run.world == World::Live && run.policy.name() == "random") {
        run.records.iter_mut().for_each(|r| r.sent_ns = r.intended_ns + 7_000_000);
    }
    let late = Experiment::new(About::default(), runs, None, &[], Value::Null);
    assert!(render(&late).unwrap().contains("p50 7.00 ms, p99 7.00 ms"));
}

#[test]
fn curves_have_at_most_five_hundred_points() {
    let page = render(&experiment(2000, false)).unwrap();
    let lines: Vec<usize> = page
        .split("points=\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap().split_whitespace().count())
        .collect();
    assert!(lines.len() > 20, "{}", lines.len());
    assert_eq!(lines.iter().max(), Some(&500), "thinned, and not more than that");
}

#[test]
fn charts_tell_in_words_what_they_show() {
    let page = page();
    let charts =
        page.split("<svg").skip(1).filter(|svg| !svg.split('>').next().unwrap().contains("aria-hidden"));
    let mut count = 0;
    for chart in charts {
        let chart = chart.split("</svg>").next().unwrap();
        assert!(
            chart.contains("role=\"img\"") && chart.contains("<title") && chart.contains("<desc"),
            "{chart}"
        );
        count += 1;
    }
    assert!(count > 30, "{count}");
}

#[test]
fn twenty_runs_of_a_thousand_requests_stay_small() {
    let page = render(&experiment(1024, false)).unwrap();
    assert!(page.len() < 600_000, "{} bytes", page.len());
}

#[test]
fn nothing_and_failures_only_still_make_a_page() {
    let empty = Experiment::new(About::default(), vec![], None, &[], Value::Null);
    assert!(render(&empty).unwrap().contains("No request was made."));
    let mut run = made_up(HABITS[0], World::Live, 1, 0, Params::new());
    run.records = vec![failed(0, 0, 5, 0, "connection refused")];
    for policy in ["round_robin", "random"] {
        let runs = vec![run.clone(), Run { policy: PolicyConfig::new(policy).unwrap(), ..run.clone() }];
        let page = render(&Experiment::new(About::default(), runs, None, &[], Value::Null)).unwrap();
        assert!(page.contains("verdict bad") && page.contains("Every request failed"), "{policy}");
        assert!(
            page.contains("connection refused") && !page.contains("NaN") && !page.contains("inf"),
            "{policy}"
        );
    }
}

#[test]
fn a_sweep_of_one_policy_is_compared_with_its_middle_and_listed_by_column() {
    let mut runs = Vec::new();
    for slow in 0..9 {
        let mut params = Params::new();
        for (key, value) in
            [("balance_abs_threshold", slow % 3), ("cache_threshold", slow), ("max_tree_size", slow)]
        {
            params.insert(key.into(), json!(value));
        }
        runs.push(made_up(Habit { slow: 20 - slow, ..HABITS[4] }, World::Virtual, 1, 512, params));
    }
    let page = render(&Experiment::new(About::default(), runs, None, &[], Value::Null)).unwrap();
    assert!(page.contains("of the median of the 9 settings ("), "not its own neighbour");
    let sweep = page.split("<section id=\"sweep\">").nth(1).unwrap().split("</section>").next().unwrap();
    assert!(page.find("id=\"sweep\"").unwrap() < page.find("id=\"policies\"").unwrap());
    assert_eq!(sweep.matches("<th scope=\"row\"").count(), 9 * 3);
    assert!(!sweep.contains("cache_threshold="), "{sweep}");
    assert_eq!(sweep.matches(">best</span>").count(), 1);
    let policies =
        page.split("<section id=\"policies\">").nth(1).unwrap().split("</section>").next().unwrap();
    assert_eq!(policies.matches("<th scope=\"row\"").count(), 2 * 4, "the few best, in both tables");
    assert!(policies.contains("Of 9 settings"));
}

#[test]
fn where_only_load_and_fleet_are_swept_the_best_of_each_load_is_framed() {
    let mut runs = Vec::new();
    for rate in [10, 90] {
        for prefill in [0, 4] {
            // Four prefill workers are slower under the light load, and faster under the heavy one.
            let slow = if (rate == 90) == (prefill == 4) { 4 } else { 16 };
            let params = Params::from([
                ("arrival.rate".to_owned(), json!(rate)),
                ("fleet.prefill".to_owned(), json!(prefill)),
            ]);
            let mut run = made_up(Habit { slow, ..HABITS[4] }, World::Virtual, 1, 256, params);
            if prefill > 0 {
                run.pools = apart(4, 4);
            }
            runs.push(run);
        }
    }
    let page = render(&Experiment::new(About::default(), runs, None, &[], Value::Null)).unwrap();
    let page = page.replace("&#x2f;", "/").replace('\u{a0}', " ");
    assert!(!page.contains("is best:"), "nothing is best overall");
    let texts = texts(&page);
    let after = |lead: &str| texts[texts.iter().position(|text| *text == lead).unwrap() + 1];
    assert!(
        after("At 10 requests/s:").starts_with("regular has 74 % lower TTFT p50"),
        "{}",
        after("At 10 requests/s:")
    );
    assert!(
        after("At 90 requests/s:").starts_with("4 prefill + 4 decode has"),
        "{}",
        after("At 90 requests/s:")
    );
    let sweep = page.split("<section id=\"sweep\">").nth(1).unwrap().split("</section>").next().unwrap();
    assert_eq!(sweep.matches("<table").count(), 1, "all of it in one, once");
    let rows: Vec<Vec<&str>> =
        sweep.split("<tr").skip(2).map(|row| row.split("<td").skip(1).collect()).collect();
    let heads: Vec<&str> = sweep
        .split("<th scope=\"col\"")
        .skip(3)
        .map(|head| head.split('<').next().unwrap().trim_start_matches('>'))
        .collect();
    let ttft = heads.iter().position(|head| *head == "TTFT p50").unwrap();
    let wins: Vec<bool> = rows.iter().map(|row| row[ttft].contains("wins")).collect();
    assert_eq!(wins, [true, false, false, true], "{sweep}");
    let itl = heads.iter().position(|head| *head == "ITL p99").unwrap();
    assert!(rows.iter().all(|row| row[itl].contains("b0") && row[itl].contains(">tie<")), "{sweep}");
    assert!(!sweep.contains("SLO met"), "there are no objectives");
    let latency = page.split("<section id=\"latency\">").nth(1).unwrap().split("</section>").next().unwrap();
    assert!(latency.contains("Drawn at 10 requests/s, the middle one of 2 swept loads."), "{latency}");
    for (colour, name) in [(0, "regular"), (1, "4 prefill + 4 decode")] {
        let key = format!("<path class=\"s{colour}\" d=\"M1 3H33\"/></svg>{name}</li>");
        assert!(latency.contains(&key), "{name}: {latency}");
    }
    let load = page.split("<section id=\"load\">").nth(1).unwrap().split("</section>").next().unwrap();
    for panel in ["regular", "4 prefill + 4 decode: prefill workers", "4 prefill + 4 decode: decode workers"]
    {
        assert!(load.contains(&format!("<figcaption>{panel}<small>")), "{panel}");
    }
}

#[test]
fn one_reason_keeps_one_shade() {
    let mut runs = Vec::new();
    for (threshold, common) in [(1, "hit"), (2, "miss")] {
        let habit = |seq: u64| {
            if seq.is_multiple_of(4) { ["hit", "miss"][usize::from(common == "hit")] } else { common }
        };
        let records =
            (0..100 * threshold).map(|seq| record(seq).reason(habit(seq)).worker(0).build()).collect();
        let mut run = crate::report::fixture::run("cache_aware", records);
        run.params.insert("max_tree_size".into(), json!(threshold));
        runs.push(run);
    }
    let page = render(&Experiment::new(About::default(), runs, None, &[], Value::Null)).unwrap();
    let shade = |text: &str| {
        let ends: Vec<&str> = page.split(&format!("</svg>{text} <b>")).collect();
        let shades = ends[..ends.len() - 1].iter().map(|before| {
            let rect = before.rsplit("<rect class=\"").next().unwrap();
            rect.split('"').next().unwrap().to_owned()
        });
        shades.collect::<Vec<_>>()
    };
    assert_eq!(shade("miss"), ["f0 r0", "f1 r0"], "175 of 300");
    assert_eq!(shade("hit"), ["f0 r1", "f1 r1"]);
}

#[test]
fn void_runs_make_the_banner_red_and_come_first() {
    let mut runs = experiment(256, false).runs().to_vec();
    for run in runs.iter_mut().filter(|run| run.world == World::Live && run.policy.name() == "random") {
        run.records.iter_mut().for_each(|r| r.sent_ns = r.intended_ns + 400_000_000);
    }
    let page = render(&Experiment::new(About::default(), runs, None, &[], Value::Null)).unwrap();
    assert!(page.contains("verdict bad") && page.contains("A run is invalid: the load generator"));
    let (invalid, best) =
        (page.find("<strong>INVALID</strong> live random").unwrap(), page.find("is best:").unwrap());
    assert!(invalid < best);
}

#[test]
fn what_the_command_line_changed_is_told() {
    let about = About { overrides: vec!["--set fleet.workers=4".into()], ..About::default() };
    let page = render(&Experiment::new(about, vec![], None, &[], Value::Null)).unwrap();
    assert!(page.contains("<code>--set fleet.workers=4</code>"));
    assert!(!render(&experiment(64, false)).unwrap().contains("Changed on the command line"));
}
