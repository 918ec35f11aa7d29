//! Every kind of mistake in a file, and where its message points.

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
pub(super) type Mistake = (&'static str, &'static str, usize, &'static str, &'static str);

const MISTAKES: &[Mistake] = &[
    ("schema = 1", "schema = 2", 1, "schema", "schema = 1"),
    ("schema = 1", "# nothing", 1, "schema", "is missing"),
    ("name = \"case\"", "name = \"a/b\"", 2, "name", "directory"),
    ("name = \"case\"", "nane = \"case\"", 2, "nane", "did you mean `name`?"),
    ("mode = \"both\"", "mode = \"vitrual\"", 3, "mode", "did you mean `virtual`?"),
    ("seed = 7", "seed = -7", 4, "seed", "out of range"),
    ("seed = 7", "seed = 7\ncolour = 1", 5, "colour", "possible here: schema, name"),
    ("kind = \"shared_prefix\"", "kind = \"multi_turn\"", 6, "workload.kind", "shared_prefix, trace"),
    (
        "kind = \"shared_prefix\"",
        "kind = \"trace\"",
        7,
        "workload.groups",
        "belongs to kind = \"shared_prefix\"",
    ),
    ("groups = 4", "groups = 0", 7, "workload.groups", "0 is out of range; use a whole number from 1"),
    ("groups = 4", "groups = \"four\"", 7, "workload.groups", "is a text; it must be a whole number"),
    ("groups = 4", "groups = 4.5", 7, "workload.groups", "is a number; it must be a whole number"),
    ("groups = 4", "group = 4", 7, "workload.group", "did you mean `groups`?"),
    ("groups = 4", "# nothing", 5, "workload.groups", "is missing"),
    ("groups = 4", "groups = 99999999999", 7, "workload.groups", "out of range"),
    (
        "prompts_per_group = 2",
        "prompts_per_group = 5_000_000",
        8,
        "workload.prompts_per_group",
        "out of range",
    ),
    ("output_tokens = 5", "output_tokens = 0", 11, "workload.output_tokens", "out of range"),
    ("popularity = \"uniform\"", "popularity = \"zipf\"", 12, "workload.popularity", "{ zipf = 1.0 }"),
    (
        "popularity = \"uniform\"",
        "popularity = { zipf = -1 }",
        12,
        "workload.popularity.zipf",
        "out of range",
    ),
    ("popularity = \"uniform\"", "popularity = { zip = 1 }", 12, "workload.popularity.zip", "mean `zipf`"),
    ("match_ratio = \"full\"", "match_ratio = 0.5", 13, "workload.match_ratio", "{ uniform ="),
    (
        "match_ratio = \"full\"",
        "match_ratio = { uniform = [0.5] }",
        13,
        "workload.match_ratio.uniform",
        "[low, high]",
    ),
    (
        "match_ratio = \"full\"",
        "match_ratio = { uniform = [0.9, 0.1] }",
        13,
        "workload.match_ratio.uniform",
        "lower",
    ),
    (
        "match_ratio = \"full\"",
        "match_ratio = { uniform = [0.1, 1.5] }",
        13,
        "workload.match_ratio.uniform",
        "1.5",
    ),
    ("kind = \"burst\"", "kind = \"trace\"", 16, "arrival.over", "belongs to kind = \"burst\""),
    ("kind = \"burst\"", "kind = \"poisson\"", 16, "arrival.over", "belongs to kind = \"burst\""),
    ("over = \"1s\"", "over = 1.5", 16, "arrival.over", "write a number and a unit"),
    ("over = \"1s\"", "over = \"1.5\"", 16, "arrival.over", "\"1.5\" is not a duration"),
    ("over = \"1s\"", "over = \"-1s\"", 16, "arrival.over", "not a duration"),
    ("over = \"1s\"", "over = \"87601h\"", 16, "arrival.over", "10.0 years is too long"),
    ("over = \"1s\"", "rate = 4.0", 16, "arrival.rate", "belongs to kind = \"poisson\""),
    (
        "workers = 2",
        "workers = 0",
        18,
        "fleet.workers",
        "0 is out of range; use a whole number from 1 to 4096",
    ),
    ("workers = 2", "wrokers = 2", 18, "fleet.wrokers", "did you mean `workers`?"),
    ("workers = 2", "workers = 2\npreset = \"a100\"", 19, "fleet.preset", "a100-80g-llama3-8b"),
    ("workers = 2", "workers = 2\noverlap = 1", 19, "fleet.overlap", "it must be true or false"),
    ("workers = 2", "workers = 2\nschedule = \"lmp\"", 19, "fleet.schedule", "lpm"),
    ("workers = 2", "workers = 2\nschedule = \"dfs-weight\"", 19, "fleet.schedule", "not emulated"),
    ("workers = 2", "workers = 2\nspeed = 0", 19, "fleet.speed", "out of range"),
    ("workers = 2", "workers = 2\nnetwork = \"fast\"", 19, "fleet.network", "not a duration"),
    ("workers = 2", "workers = 2\nnetwork = \"1000000000s\"", 19, "fleet.network", "use at most 1h"),
    (
        "workers = 2",
        "workers = 2\nrequest_overhead = \"61m\"",
        19,
        "fleet.request_overhead",
        "use at most 1h",
    ),
    ("workers = 2", "workers = 2\nstream_interval = 0", 19, "fleet.stream_interval", "out of range"),
    ("kv_tokens = 100000", "kv_tokens = 2", 19, "fleet.kv_tokens", "at least"),
    ("page = 1", "page = 0", 20, "fleet.page", "out of range"),
    ("eviction = \"lru\"", "eviction = \"mru\"", 21, "fleet.eviction", "not emulated"),
    ("eviction = \"lru\"", "eviction = \"lruu\"", 21, "fleet.eviction", "did you mean `lru`?"),
    ("policies = [\"round_robin\", \"cache_aware\"]", "policies = []", 23, "router.policies", "is empty"),
    (
        "policies = [\"round_robin\", \"cache_aware\"]",
        "policies = [\"cache_awre\"]",
        23,
        "router.policies",
        "did you mean `cache_aware`?",
    ),
    (
        "policies = [\"round_robin\", \"cache_aware\"]",
        "policies = [\n\"random\",\n\"random\"]",
        25,
        "router.policies",
        "twice",
    ),
    (
        "policies = [\"round_robin\", \"cache_aware\"]",
        "policies = \"all\"",
        23,
        "router.policies",
        "must be a list",
    ),
    ("[router.options.cache_aware]", "[router.options.cache]", 24, "router.options.cache", "not a policy"),
    (
        "cache_threshold = 0.3",
        "cache_threshold = 1.5",
        25,
        "router.options.cache_aware.cache_threshold",
        "from 0 to 1",
    ),
    (
        "cache_threshold = 0.3",
        "cache_treshold = 0.3",
        25,
        "router.options.cache_aware.cache_treshold",
        "did you mean `cache_threshold`?",
    ),
    (
        "cache_threshold = 0.3",
        "cache_threshold = [0.3]",
        25,
        "router.options.cache_aware.cache_threshold",
        "is a list",
    ),
    (
        "policies = [\"cache_aware\"]",
        "policies = [\"cash_aware\"]",
        27,
        "live.policies",
        "did you mean `cache_aware`?",
    ),
    ("stream_interval = 8", "stream_interval = -8", 28, "live.stream_interval", "out of range"),
    ("stream_interval = 8", "workers = 8", 28, "live.workers", "possible here"),
    (
        "\"router.options.cache_aware.max_tree_size\" = [1000, 2000]",
        "\"fleet.wrokers\" = [1]",
        30,
        "fleet.wrokers",
        "did you mean `workers`?",
    ),
    (
        "\"router.options.cache_aware.max_tree_size\" = [1000, 2000]",
        "fleet.workers = [1, 0]",
        30,
        "fleet.workers",
        "0 is out of range",
    ),
    (
        "\"router.options.cache_aware.max_tree_size\" = [1000, 2000]",
        "\"fleet.workers\" = []",
        30,
        "sweep.\"fleet.workers\"",
        "is empty",
    ),
    (
        "\"router.options.cache_aware.max_tree_size\" = [1000, 2000]",
        "\"fleet.workers\" = 4",
        30,
        "sweep.\"fleet.workers\"",
        "give a list",
    ),
    (
        "\"router.options.cache_aware.max_tree_size\" = [1000, 2000]",
        "\"feet.workers\" = [4]",
        30,
        "sweep.\"feet.workers\"",
        "mean `fleet`",
    ),
    (
        "\"router.options.cache_aware.max_tree_size\" = [1000, 2000]",
        "\"seed\" = [4]",
        30,
        "sweep.\"seed\"",
        "cannot be swept",
    ),
    (
        "\"router.options.cache_aware.max_tree_size\" = [1000, 2000]",
        "\"router.options.random.x\" = [4]",
        30,
        "router.options.random.x",
        "no option",
    ),
    ("over = \"1s\"", "over = 1979-05-27", 16, "arrival.over", "is a date"),
    ("name = \"case\"", "name = 1979-05-27", 2, "name", "is a date"),
    ("workers = 2", "workers = 2\nspeed = nan", 19, "fleet.speed", "nan is no number that fits"),
    ("over = \"1s\"", "over = [1, inf]", 16, "arrival.over", "inf is no number that fits"),
    (
        "\"router.options.cache_aware.max_tree_size\" = [1000, 2000]",
        "\"router.options.random.balance_abs_threshold\" = [4]",
        30,
        "router.options.random.balance_abs_threshold",
        "no option",
    ),
    (
        "\"router.options.cache_aware.max_tree_size\" = [1000, 2000]",
        "\"router.options.prefix_hash.prefix_token_count\" = [4]",
        30,
        "sweep.\"router.options.prefix_hash.prefix_token_count\"",
        "does not run here",
    ),
    (
        "\"router.options.cache_aware.max_tree_size\" = [1000, 2000]",
        "\"fleet.speed\" = [1, 2, 1.0]",
        30,
        "sweep.\"fleet.speed\"",
        "stands here twice",
    ),
    (
        "\"router.options.cache_aware.max_tree_size\" = [1000, 2000]",
        "\"fleet\" = [1]",
        30,
        "sweep.\"fleet\"",
        "name one of its keys, fleet.KEY",
    ),
    (
        "metric = \"hit_rate\"",
        "metric = \"router_cpu_us_per_request\"",
        35,
        "assert.metric",
        "add mode = \"live\"",
    ),
    ("ttft = \"2s\"", "ttfb = \"2s\"", 32, "slo.ttfb", "mean `ttft`"),
    ("ttft = \"2s\"", "# nothing", 31, "slo.ttft", "is missing"),
    ("[[assert]]", "[[asserts]]", 34, "asserts", "did you mean `assert`?"),
    ("metric = \"hit_rate\"", "metric = \"hitrate\"", 35, "assert.metric", "did you mean `hit_rate`?"),
    ("policy = \"cache_aware\"", "policy = \"random\"", 36, "assert.policy", "does not run here"),
    ("policy = \"cache_aware\"", "policy = \"cache\"", 36, "assert.policy", "not a policy"),
    ("op = \">=\"", "op = \"=>\"", 37, "assert.op", "use >="),
    ("value = 0.8", "value = \"high\"", 38, "assert.value", "must be a number"),
    ("value = 0.8", "# nothing", 34, "assert.value", "is missing"),
    ("value = 0.8", "value = 0.8\nversus = \"rr\"", 39, "assert.versus", "not a policy"),
    ("value = 0.8", "value = 0.8\nversus_mode = \"both\"", 39, "assert.versus_mode", "virtual"),
    (
        "value = 0.8",
        "value = 0.8\nversus_mode = \"virtual\"",
        39,
        "assert.versus_mode",
        "add mode = \"live\"",
    ),
    (
        "value = 0.8",
        "value = 0.8\nmode = \"live\"\nversus_mode = \"live\"",
        40,
        "assert.versus_mode",
        "add mode = \"virtual\"",
    ),
    (
        "value = 0.8",
        "value = 0.8\nparams = { fleet.page = 1 }",
        39,
        "assert.params.fleet",
        "must be a number or a word",
    ),
    ("workers = 2", "workers = 2\nshare_chunks_first = 1", 19, "fleet.share_chunks_first", "true or false"),
];

#[test]
fn mistakes_name_line_key_and_way_out() {
    all_are_told(MISTAKES);
}

/// Every mistake is found, blamed on its line and key, and its message says what it must.
pub(super) fn all_are_told(mistakes: &[Mistake]) {
    for &(from, to, line, key, says) in mistakes {
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
