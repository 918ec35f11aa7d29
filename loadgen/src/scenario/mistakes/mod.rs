//! Every kind of mistake in a file, and where its message points.

mod apart;
mod cluster;
mod idle;
mod judged;
mod kinds;
mod work;

use proptest::prelude::*;

use super::testing::load_text;
use super::*;
use crate::run::World;

/// A good scenario; the cases change one line of it.
pub(super) const GOOD: &str = r#"schema = 1
name = "case"
mode = "both"
seed = 7
[workload]
kind = "shared_prefix"
groups = 4
prompts_per_group = 2
system_tokens = 100
question_tokens = 10
output_tokens = 5
popularity = "uniform"
match_ratio = "full"
[arrival]
kind = "burst"
over = "1s"
[fleet]
workers = 2
kv_tokens = 100000
page = 1
eviction = "lru"
[router]
policies = ["round_robin", "cache_aware"]
[router.options.cache_aware]
cache_threshold = 0.3
[live]
policies = ["cache_aware"]
stream_interval = 8
[sweep]
"router.options.cache_aware.max_tree_size" = [1000, 2000]
[slo]
ttft = "2s"
tpot = "50ms"
[[assert]]
metric = "hit_rate"
policy = "cache_aware"
op = ">="
value = 0.8
"#;

/// [`GOOD`] with the one line `from` exchanged for `to`.
pub(super) fn changed(from: &str, to: &str) -> String {
    let whole = format!("\n{from}\n");
    let text = format!("\n{GOOD}");
    assert_eq!(text.matches(&whole).count(), 1, "{from} is one line of the good scenario");
    text.replacen(&whole, &format!("\n{to}\n"), 1)[1..].to_owned()
}

#[test]
fn the_good_scenario_is_good() {
    let scenario = load_text(GOOD, &[]).unwrap();
    let cells = scenario.cells();
    let label = |cell: &Cell| (cell.world, cell.policy.name(), cell.params.get("max_tree_size").cloned());
    let (ca, rr) = ("cache_aware", "round_robin");
    assert_eq!(
        cells.iter().map(label).collect::<Vec<_>>(),
        [
            (World::Virtual, rr, None),
            (World::Virtual, ca, Some(1000.into())),
            (World::Virtual, ca, Some(2000.into())),
            (World::Live, ca, Some(1000.into())),
            (World::Live, ca, Some(2000.into())),
        ]
    );
    assert_eq!(cells[1].params["cache_threshold"], 0.3);
    assert_eq!(scenario.seeds(Some(3)).collect::<Vec<_>>(), [7, 8, 9]);
    assert_eq!(scenario.seeds(None).collect::<Vec<_>>(), [7]);
}

/// A line of the good scenario, what it becomes, the line and the key that are blamed, and what the message must say.
type Mistake = (&'static str, &'static str, usize, &'static str, &'static str);

/// Every mistake is found, blamed on its line and key, and its message says what it must.
#[test]
fn mistakes_name_line_key_and_way_out() {
    let tables = [work::MISTAKES, cluster::MISTAKES, judged::MISTAKES, apart::MISTAKES, idle::MISTAKES];
    for &(from, to, line, key, says) in tables.into_iter().flatten() {
        let error = load_text(&changed(from, to), &[]).expect_err(to).to_string();
        assert!(error.contains(&format!("s.toml:{line}: key `{key}`: ")), "{to:?}: {error}");
        assert!(error.contains(says), "{to:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

proptest! {
    #[test]
    fn a_damaged_file_gives_one_line_and_never_a_panic(at in 0..GOOD.len(), cut in 0usize..40, put in "[ -~\n]{0,3}") {
        let end = (at + cut).min(GOOD.len());
        let text = format!("{}{put}{}", &GOOD[..at], &GOOD[end..]);
        if let Err(error) = load_text(&text, &[]) {
            let message = error.to_string();
            prop_assert_eq!(message.lines().count(), 1, "{}", message);
            prop_assert!(message.contains("s.toml:"), "{}", message);
        }
    }

    #[test]
    fn any_flag_gives_one_line_and_never_a_panic(path in "[a-z_.\"]{0,20}", value in "\\PC{0,12}") {
        if let Err(error) = load_text(GOOD, &[(path.as_str(), value.as_str())]) {
            prop_assert_eq!(error.to_string().lines().count(), 1, "{}", error);
        }
    }
}

#[test]
fn missing_tables_are_named() {
    for table in ["workload", "arrival", "fleet", "router"] {
        let start = GOOD.find(&format!("[{table}]")).unwrap();
        let end = start + 1 + GOOD[start + 1..].find("\n[").unwrap();
        let mut text = format!("{}{}", &GOOD[..start], &GOOD[end..]);
        if table == "router" {
            text = text.replacen("[router.options.cache_aware]\ncache_threshold = 0.3\n", "", 1);
        }
        let error = load_text(&text, &[]).expect_err(table).to_string();
        assert!(error.contains(&format!("s.toml:1: key `{table}`: is missing")), "{error}");
    }
}

#[test]
fn schedules_beyond_ten_years_are_refused() {
    let many = changed("groups = 4", "groups = 100000");
    for (kind, set, line, key) in [
        ("poisson", ("arrival.rate", "1e-6"), None, "arrival.rate"),
        ("constant", ("arrival.rate", "1e-6"), None, "arrival.rate"),
        ("closed", ("arrival.concurrency", "1"), Some(18), "fleet.request_overhead"),
    ] {
        let slow = many.replace("workers = 2\n", "workers = 2\nrequest_overhead = \"1h\"\n");
        let error = load_text(&slow, &[("arrival.kind", kind), set]).expect_err(kind).to_string();
        let place = match line {
            Some(line) => format!("s.toml:{}: key `{key}`: ", line + 1),
            None => format!("--set {}={}: key `{key}`: ", set.0, set.1),
        };
        assert!(
            error.contains(&place) && error.contains("years; the longest schedule is 10 years"),
            "{error}"
        );
    }
    let few = load_text(GOOD, &[("arrival.kind", "poisson"), ("arrival.rate", "1e-6")]);
    assert!(few.is_ok(), "eight requests take three months");
}

#[test]
fn asserts_that_nothing_can_measure_are_refused() {
    let claim = |metric: &str, extra: &str| {
        changed("metric = \"hit_rate\"", &format!("metric = \"{metric}\"\n{extra}"))
    };
    let without = claim("slo_attainment", "").replace("[slo]\nttft = \"2s\"\ntpot = \"50ms\"\n", "");
    let error = load_text(&without, &[]).unwrap_err().to_string();
    assert!(error.contains("key `assert.metric`: is not measured without objectives"), "{error}");
    assert!(load_text(&claim("slo_attainment", ""), &[]).is_ok());

    let error =
        load_text(&claim("predicted_hit_rate", "versus = \"round_robin\""), &[]).unwrap_err().to_string();
    assert!(error.contains("key `assert.versus`: \"round_robin\" predicts no hits"), "{error}");
    assert!(load_text(&claim("predicted_hit_rate", ""), &[]).is_ok());

    let between = "mode = \"live\"\nversus_mode = \"virtual\"";
    assert!(load_text(&claim("hit_rate", between), &[]).is_ok());
    let error = load_text(&claim("router_cpu_us_per_request", between), &[]).unwrap_err().to_string();
    assert!(error.contains("is not measured in virtual time"), "{error}");

    assert!(load_text(&claim("router_cpu_us_per_request", "mode = \"live\""), &[]).is_ok());
    assert!(load_text(&claim("router_cpu_us_per_request", ""), &[("mode", "live")]).is_ok());
}

#[test]
fn control_characters_are_written_out() {
    let error = load_text(GOOD, &[("fleet.preset", "a\nb\u{1b}[31m")]).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains("a\\nb\\u{1b}[31m") && !error.contains('\u{1b}'), "{error}");
}
