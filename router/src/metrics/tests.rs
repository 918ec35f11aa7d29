use std::collections::{BTreeMap, BTreeSet};

use router_core::index::{IndexStats, Matches};
use router_core::prompt::PromptView;
use router_core::{
    BreakerView, PerRole, PolicyConfig, PolicyId, Reason, Role, RouteRequest, Router, RouterConfig,
    RoutingKeys, WorkerSpec,
};

use super::live::{EngineRow, WorkerRow};
use super::*;
use crate::error::Refusal;

/// Every family that there is. Names that the gateway has too are spelled as there.
const FAMILIES: &[(&str, &str)] = &[
    ("smg_http_connections_active", "gauge"),
    ("smg_http_inflight_request_age_count", "gauge"),
    ("smg_http_rate_limit", "counter"),
    ("smg_http_request_duration_seconds", "histogram"),
    ("smg_http_requests", "counter"),
    ("smg_http_responses", "counter"),
    ("smg_router_admitted_requests", "gauge"),
    ("smg_router_cached_tokens", "counter"),
    ("smg_router_client_connections", "gauge"),
    ("smg_router_client_limit_reached", "counter"),
    ("smg_router_client_tls_failures", "counter"),
    ("smg_router_decisions", "counter"),
    ("smg_router_generation_duration_seconds", "histogram"),
    ("smg_router_index_bytes", "gauge"),
    ("smg_router_index_evicted_chars", "counter"),
    ("smg_router_index_nodes", "gauge"),
    ("smg_router_itl_seconds", "histogram"),
    ("smg_router_predicted_cached_tokens", "counter"),
    ("smg_router_prompt_tokens", "counter"),
    ("smg_router_queue_depth", "gauge"),
    ("smg_router_queue_wait_seconds", "histogram"),
    ("smg_router_request_duration_seconds", "histogram"),
    ("smg_router_request_ends", "counter"),
    ("smg_router_request_errors", "counter"),
    ("smg_router_requests", "counter"),
    ("smg_router_sheds", "counter"),
    ("smg_router_tokens", "counter"),
    ("smg_router_tpot_seconds", "histogram"),
    ("smg_router_ttft_seconds", "histogram"),
    ("smg_router_upstream_responses", "counter"),
    ("smg_worker_cb_consecutive_failures", "gauge"),
    ("smg_worker_cb_consecutive_successes", "gauge"),
    ("smg_worker_cb_outcomes", "counter"),
    ("smg_worker_cb_state", "gauge"),
    ("smg_worker_cb_transitions", "counter"),
    ("smg_worker_errors", "counter"),
    ("smg_worker_health", "gauge"),
    ("smg_worker_health_checks", "counter"),
    ("smg_worker_index_chars", "gauge"),
    ("smg_worker_pool_size", "gauge"),
    ("smg_worker_queued_prefill_tokens", "gauge"),
    ("smg_worker_requests_active", "gauge"),
    ("smg_worker_retries", "counter"),
    ("smg_worker_retries_exhausted", "counter"),
    ("smg_worker_retry_backoff_seconds", "histogram"),
    ("smg_worker_selection", "counter"),
    ("smg_worker_state", "gauge"),
    ("smg_worker_tokens_active", "gauge"),
    ("smg_worker_warm_up_requests", "counter"),
    ("smg_worker_warming_up", "gauge"),
];

/// The families that there are under some policies only.
const OF_POLICIES: &[(&str, &str)] = &[
    ("smg_consistent_hashing_policy_branch", "counter"),
    ("smg_manual_policy_branch", "counter"),
    ("smg_manual_policy_cache_entries", "gauge"),
    ("smg_prefix_hash_policy_branch", "counter"),
    ("smg_worker_routing_keys_active", "gauge"),
];

/// The families that there are with prefill workers, or with a limit on their decode streams, only.
const OF_PAIRS: [&str; 2] = ["smg_router_decode_dispatch_waiting", "smg_worker_decode_streams"];

/// The families that SGLang's gateway describes (release 0.3.2), under its spellings.
const OF_THE_GATEWAY: &[&str] = &[
    "smg_consistent_hashing_policy_branch_total",
    "smg_db_connections_active",
    "smg_db_items_stored",
    "smg_db_operation_duration_seconds",
    "smg_db_operations_total",
    "smg_discovery_deregistrations_total",
    "smg_discovery_registrations_total",
    "smg_discovery_sync_duration_seconds",
    "smg_discovery_workers_discovered",
    "smg_http_connections_active",
    "smg_http_inflight_request_age_count",
    "smg_http_rate_limit_total",
    "smg_http_request_duration_seconds",
    "smg_http_requests_total",
    "smg_http_responses_total",
    "smg_manual_policy_branch_total",
    "smg_manual_policy_cache_entries",
    "smg_mcp_servers_active",
    "smg_mcp_tool_calls_total",
    "smg_mcp_tool_duration_seconds",
    "smg_mcp_tool_iterations_total",
    "smg_prefix_hash_policy_branch_total",
    "smg_router_generation_duration_seconds",
    "smg_router_request_duration_seconds",
    "smg_router_request_errors_total",
    "smg_router_requests_total",
    "smg_router_stage_duration_seconds",
    "smg_router_tokens_total",
    "smg_router_tpot_seconds",
    "smg_router_ttft_seconds",
    "smg_router_upstream_responses_total",
    "smg_worker_cb_consecutive_failures",
    "smg_worker_cb_consecutive_successes",
    "smg_worker_cb_outcomes_total",
    "smg_worker_cb_state",
    "smg_worker_cb_transitions_total",
    "smg_worker_connections_active",
    "smg_worker_errors_total",
    "smg_worker_health",
    "smg_worker_health_checks_total",
    "smg_worker_pool_size",
    "smg_worker_requests_active",
    "smg_worker_retries_exhausted_total",
    "smg_worker_retries_total",
    "smg_worker_retry_backoff_seconds",
    "smg_worker_routing_keys_active",
    "smg_worker_selection_total",
];

/// The counters of a router and of its two workers.
struct Counters {
    metrics: Arc<Metrics>,
    workers: [Arc<WorkerMetrics>; 2],
}

impl Counters {
    fn render(&self, places: std::ops::Range<usize>) -> String {
        self.render_as(Format::Plain, places)
    }

    fn render_as(&self, format: Format, places: std::ops::Range<usize>) -> String {
        self.metrics.render(live(&self.workers, places), format)
    }
}

fn policy(name: &str) -> PolicyId {
    PolicyConfig::new(name).expect("a policy").id()
}

fn everywhere(policy: PolicyId) -> PerRole<PolicyId> {
    PerRole::of(|_| policy)
}

/// A decision of this policy for this reason.
fn assignment(policy: PolicyId, reason: &'static str) -> Assignment {
    let config = RouterConfig::new(PolicyConfig::of(policy.row()), 1);
    let mut router = Router::new(config).expect("a policy of the table");
    let url = "http://w0".to_owned();
    router.add_worker(0, WorkerSpec { url, model: None, role: Role::Regular });
    let request = RouteRequest {
        scope: router.scopes(None).expect("any model").regular.expect("one is there"),
        prompt: PromptView::Unreadable,
        prompt_tokens: 1,
        output_budget: None,
        keys: RoutingKeys::default(),
        exclude: &[],
    };
    let assigned = router.assign(0, &request, &Matches::default()).expect("a worker");
    Assignment { reason: Reason::new(reason), ..assigned }
}

fn counters() -> Counters {
    let endpoints = [("/generate", "generate"), ("/a\"b\\", "/a\"b\\"), ("/v2/generate", "generate")];
    let endpoints = endpoints.map(|(path, label)| EndpointName::new(path, label));
    let metrics = Metrics::new(everywhere(policy("cache_aware")), endpoints.into_iter(), &[0.5, 2.0], 1);
    Counters { metrics, workers: Default::default() }
}

/// Everything happens once, with a stated model or without.
fn happen(counters: &Counters, model: Option<&str>) {
    let Counters { metrics, workers } = counters;
    let slot = metrics.in_flight.enter(0, 0);
    metrics.arrived(0);
    metrics.exhausted(2, Leg::Whole);
    metrics.arrived_elsewhere(&Method::GET, "other");
    metrics.admitted(3_000_000);
    let by_prefix = assignment(policy("cache_aware"), "cache_hit");
    metrics.decided(&by_prefix);
    workers[0].selected(by_prefix.policy);
    workers[1].failed(WorkerError::Connect);
    metrics.retried(0, Leg::Whole, 1, Cause::Connect, 0);
    metrics.retried(0, Leg::Decode, 200, Cause::Status(599), 700_000_000_000);
    metrics.exhausted(1, Leg::Whole);
    metrics.exhausted(0, Leg::Prefill);
    for (status, refusal) in [
        (200, None),
        (503, None),
        (429, Some(Refusal::QueueFull { retry_after_secs: 1 })),
        (503, Some(Refusal::NoWorkers { retry_after_secs: 1 })),
        (404, Some(Refusal::NotFound)),
    ] {
        let status = StatusCode::from_u16(status).expect("a status");
        metrics.upstream_answered(status);
        metrics.answered(status, refusal);
    }
    let model = metrics.routes.model(model);
    assert_eq!([0, 1, 2].map(|at| metrics.group(at)), [0, 1, 0]);
    model.row(0, Backend::Pair).failed(RequestError::Overloaded);
    let row = model.row(0, Backend::Regular);
    row.failed(RequestError::Timeout);
    for histogram in [&row.duration, &row.first_token, &row.per_token, &row.generation] {
        [0, 1_500_000_000, 9_000_000_000_000].into_iter().for_each(|time| histogram.observe(time));
    }
    let mut gaps = Gaps::default();
    gaps.add(1, 3);
    row.gaps.merge(&gaps);
    metrics.cache.told(1, 2, 3);
    metrics.ended(0, End::Complete, 1_000_000_000);
    metrics.in_flight.leave(slot);
}

fn worker(workers: &[Arc<WorkerMetrics>; 2], place: usize) -> WorkerRow {
    WorkerRow {
        counts: Arc::clone(&workers[place]),
        url: format!("http://w{place}").into(),
        role: "regular",
        model: (place == 0).then(|| Arc::from("m")),
        healthy: true,
        requests: 3,
        breaker: BreakerView::default(),
        ..WorkerRow::default()
    }
}

fn engine(place: usize) -> EngineRow {
    EngineRow {
        url: format!("http://w{place}"),
        role: "regular",
        good_checks: 2 * place as u64,
        failed_checks: 0,
    }
}

fn live(workers: &[Arc<WorkerMetrics>; 2], places: std::ops::Range<usize>) -> Live {
    let index = IndexStats { bytes: 1, nodes: 2, evicted_chars: 3, chars: Vec::new() };
    Live {
        engines: places.clone().map(engine).collect(),
        workers: places.map(|place| worker(workers, place)).collect(),
        index: Some(index),
        ..Live::default()
    }
}

/// A family of the text: its kind, and its samples in order, as series and value.
struct Family<'a> {
    kind: &'a str,
    samples: Vec<(&'a str, f64)>,
}

/// Reads the text as strictly as a scraper may: every family is described once, before its samples, which follow at
/// once and bear its name with the suffix of its kind. The older format's counters are described with it, too.
fn parse(format: Format, text: &str) -> BTreeMap<&str, Family<'_>> {
    let mut families: BTreeMap<&str, Family<'_>> = BTreeMap::new();
    let mut series = BTreeSet::new();
    let (mut current, mut helped) = ("", "");
    let body = match format {
        Format::OpenMetrics => text.strip_suffix("# EOF\n").expect("the end is marked"),
        Format::Plain => text,
    };
    assert!(body.ends_with('\n') && !body.contains("EOF"));
    for line in body.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            helped = help.split_once(' ').expect("a text").0;
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a kind");
            assert_eq!(helped, name, "help comes before the type");
            current = name;
            assert!(families.insert(name, Family { kind, samples: Vec::new() }).is_none(), "{name} twice");
        } else {
            let (sample, value) = line.rsplit_once(' ').expect("a sample");
            let name = sample.split('{').next().expect("a name");
            let family = families.get_mut(current).expect("a described family");
            let suffixes: &[&str] = match family.kind {
                "counter" if format == Format::OpenMetrics => &["_total"],
                "counter" => &[""],
                "gauge" => &[""],
                "histogram" => &["_sum", "_count", "_bucket"],
                kind => panic!("{current} is a {kind}"),
            };
            let suffix = name.strip_prefix(current).expect("the family's name");
            assert!(suffixes.contains(&suffix), "{name} in a {}", family.kind);
            assert!(series.insert(sample), "{sample} twice");
            family.samples.push((sample, value.parse().expect("a number")));
        }
    }
    families
}

#[test]
fn every_family_is_there_and_no_other() {
    let counters = counters();
    for model in [None, Some("m")] {
        happen(&counters, model);
        for format in [Format::Plain, Format::OpenMetrics] {
            let text = counters.render_as(format, 0..2);
            let families = parse(format, &text);
            let mut shown: Vec<_> = families.iter().map(|(name, family)| (*name, family.kind)).collect();
            if format == Format::Plain {
                for (name, kind) in &mut shown {
                    let base = name.strip_suffix("_total");
                    assert_eq!(base.is_some(), *kind == "counter", "{name}");
                    *name = base.unwrap_or(name);
                }
                shown.sort_unstable();
            }
            assert_eq!(shown, FAMILIES);
            assert!(families.values().all(|family| !family.samples.is_empty()));
        }
    }
}

#[test]
fn the_gateways_branches_are_our_reasons_and_stay_with_their_policy() {
    let counters = counters();
    counters.metrics.set_policies(everywhere(policy("manual")));
    counters.metrics.decided(&assignment(policy("prefix_hash"), "ring_hit"));
    let mut live = live(&counters.workers, 0..2);
    live.remembered_keys = Some(7);
    for (worker, keys) in live.workers.iter_mut().zip([3, 4]) {
        worker.routing_keys = Some(keys);
    }
    let text = counters.metrics.render(live, Format::Plain);
    let shown: BTreeSet<_> = text.lines().filter(|line| line.contains("branch=")).collect();
    let expected = [
        r#"smg_manual_policy_branch_total{branch="no_routing_id"} 0"#,
        r#"smg_manual_policy_branch_total{branch="occupied_hit"} 0"#,
        r#"smg_manual_policy_branch_total{branch="occupied_miss"} 0"#,
        r#"smg_manual_policy_branch_total{branch="vacant"} 0"#,
        r#"smg_prefix_hash_policy_branch_total{branch="fallback_least_load"} 0"#,
        r#"smg_prefix_hash_policy_branch_total{branch="load_balance_walk"} 0"#,
        r#"smg_prefix_hash_policy_branch_total{branch="ring_hit"} 1"#,
    ];
    assert_eq!(shown, BTreeSet::from(expected));
    for line in [
        "smg_manual_policy_cache_entries 7",
        r#"smg_worker_routing_keys_active{worker="http://w0"} 3"#,
        r#"smg_worker_routing_keys_active{worker="http://w1"} 4"#,
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}\nis not in\n{text}");
    }
}

#[test]
fn what_the_gateway_shows_is_shown_or_said_to_be_missing() {
    let counters = counters();
    happen(&counters, None);
    let mut ours = BTreeSet::new();
    for row in POLICIES {
        counters.metrics.set_policies(everywhere(policy(row.name)));
        let mut live = live(&counters.workers, 0..2);
        live.remembered_keys = Some(0);
        let text = counters.metrics.render(live, Format::OpenMetrics);
        ours.extend(
            parse(Format::OpenMetrics, &text)
                .iter()
                .map(|(name, family)| ((*name).to_owned(), family.kind.to_owned())),
        );
    }
    let expected = FAMILIES.iter().chain(OF_POLICIES);
    let expected: BTreeSet<_> =
        expected.map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned())).collect();
    assert_eq!(ours, expected);
    let shown = |name: &str| {
        let (base, kind) = name.strip_suffix("_total").map_or((name, None), |base| (base, Some("counter")));
        ours.iter().any(|(ours, our_kind)| ours == base && kind.is_none_or(|kind| our_kind == kind))
    };
    let page = include_str!("../../../docs/OPERATIONS.md");
    let (_, missing) = page.split_once("Not among the metrics here:").expect("the list");
    let (missing, _) = missing.split_once("\n\n").expect("its end");
    let is_named = |name: &str| missing.contains(&format!("`{name}`"));
    let in_a_group = |name: &str| {
        let mut ends = name.match_indices('_').map(|(at, _)| &name[..=at]);
        ends.any(|group| missing.contains(&format!("`{group}*`")))
    };
    for name in OF_THE_GATEWAY {
        let said = is_named(name) || in_a_group(name);
        assert!(shown(name) != said, "{name}: shown {}, said to be missing {said}", shown(name));
    }
}

#[test]
fn decode_streams_are_shown_of_prefill_workers_and_those_who_wait_where_there_is_a_limit() {
    let counters = counters();
    let shown = |live| -> Vec<String> {
        let text = counters.metrics.render(live, Format::Plain);
        let of_pairs = |line: &&str| OF_PAIRS.iter().any(|name| line.starts_with(name));
        text.lines().filter(of_pairs).map(str::to_owned).collect()
    };
    assert!(shown(live(&counters.workers, 0..2)).is_empty());
    let mut pairs = live(&counters.workers, 0..2);
    pairs.workers[1].decode_streams = Some(4);
    assert_eq!(shown(pairs), [r#"smg_worker_decode_streams{worker="http://w1"} 4"#]);
    let limited = Live { dispatch_waiting: Some(0), ..live(&counters.workers, 0..2) };
    assert_eq!(shown(limited), ["smg_router_decode_dispatch_waiting 0"]);
}

#[test]
fn buckets_are_cumulative_and_end_with_the_count() {
    let counters = counters();
    happen(&counters, Some("m"));
    for format in [Format::Plain, Format::OpenMetrics] {
        let text = counters.render_as(format, 0..2);
        let families = parse(format, &text);
        let histograms = families.iter().filter(|(_, family)| family.kind == "histogram");
        let checked: usize = histograms.map(|(name, family)| check_buckets(name, family)).sum();
        assert!(checked > 8, "{checked} histograms");
    }
}

/// How many histograms the family has.
fn check_buckets(name: &str, family: &Family<'_>) -> usize {
    let (mut bound, mut total) = (0.0, 0.0);
    let (mut totals, mut counts) = (Vec::new(), Vec::new());
    for (series, value) in &family.samples {
        if series.starts_with(&format!("{name}_count")) {
            counts.push(value.to_bits());
        } else if series.starts_with(&format!("{name}_bucket")) {
            let (_, rest) = series.split_once("le=\"").expect("a bound");
            let le: f64 = rest.split('"').next().expect("a value").parse().expect("a number");
            assert!(le > bound && *value >= total, "{series}");
            (bound, total) = (le, *value);
            if le.is_infinite() {
                totals.push(value.to_bits());
                (bound, total) = (0.0, 0.0);
            }
        }
    }
    // Both in the order of the histograms.
    assert_eq!(totals, counts, "{name}");
    counts.len()
}

#[test]
fn a_worker_that_has_left_leaves_no_series() {
    let counters = counters();
    happen(&counters, None);
    assert!(counters.render(0..2).contains("http://w0"));
    let text = counters.render(1..2);
    assert!(!text.contains("http://w0") && text.contains("http://w1"));
}

#[test]
fn a_decision_counts_for_the_policy_that_made_it() {
    let counters = counters();
    let before = assignment(policy("cache_aware"), "cache_hit");
    let after = assignment(policy("manual"), "vacant");
    counters.metrics.set_policies(everywhere(after.policy));
    for decision in [before, after, before] {
        counters.metrics.decided(&decision);
        counters.workers[0].selected(decision.policy);
    }
    let text = counters.render(0..2);
    let shown = |name: &str| -> Vec<&str> {
        let samples = text.lines().filter(|line| line.starts_with(name) && line.contains("policy="));
        samples.filter_map(|line| line.split_once("policy=")).map(|(_, rest)| rest).collect()
    };
    let decisions = [
        r#""cache_aware",reason="cache_hit"} 2"#,
        r#""manual",reason="occupied_hit"} 0"#,
        r#""manual",reason="occupied_miss"} 0"#,
        r#""manual",reason="vacant"} 1"#,
        r#""manual",reason="no_routing_id"} 0"#,
    ];
    assert_eq!(shown("smg_router_decisions_total"), decisions);
    let selections = [
        r#""cache_aware",worker="http://w0"} 2"#,
        r#""manual",worker="http://w0"} 1"#,
        r#""manual",worker="http://w1"} 0"#,
    ];
    assert_eq!(shown("smg_worker_selection_total"), selections);
}

#[test]
fn of_policies_those_are_shown_that_rule_over_somebody() {
    let counters = counters();
    let policies = PerRole { decode: policy("random"), ..everywhere(policy("round_robin")) };
    counters.metrics.set_policies(policies);
    let shown = |roles: [&'static str; 2]| {
        let mut live = live(&counters.workers, 0..2);
        live.workers.iter_mut().zip(roles).for_each(|(worker, role)| worker.role = role);
        let text = counters.metrics.render(live, Format::Plain);
        let named = ["round_robin", "random"].map(|name| {
            let label = format!("policy=\"{name}\"");
            text.lines().filter(|line| line.contains(&label)).count()
        });
        assert!(!text.contains("cache_aware"), "{text}");
        named
    };
    assert_eq!(shown(["regular", "regular"]), [3, 0], "a decision, and a row of each worker");
    assert_eq!(shown(["prefill", "decode"]), [2, 2]);
}

#[test]
fn what_happened_is_what_is_shown() {
    let counters = counters();
    happen(&counters, Some("m"));
    happen(&counters, Some("m"));
    let text = counters.render(0..2);
    let route =
        r#"router_type="http",backend_type="regular",connection_mode="http",model="m",endpoint="generate""#;
    let of_pairs = route.replace(r#""regular""#, r#""pd""#);
    for line in [
        r#"smg_http_requests_total{method="POST",path="/generate"} 2"#,
        r#"smg_http_requests_total{method="POST",path="/a\"b\\"} 0"#,
        r#"smg_http_responses_total{status_code="503",error_code=""} 2"#,
        r#"smg_http_rate_limit_total{result="allowed"} 2"#,
        r#"smg_http_rate_limit_total{result="rejected"} 2"#,
        r#"smg_router_sheds_total{reason="no_workers"} 2"#,
        r#"smg_router_sheds_total{reason="queue_full"} 2"#,
        r#"smg_router_upstream_responses_total{router_type="http",status_code="404",error_code=""} 2"#,
        r#"smg_router_decisions_total{policy="cache_aware",reason="cache_hit"} 2"#,
        r#"smg_router_request_ends_total{end="complete"} 2"#,
        r#"smg_router_predicted_cached_tokens_total 2"#,
        r#"smg_router_cached_tokens_total 4"#,
        r#"smg_worker_pool_size{worker_type="regular",connection_mode="http",model="m"} 1"#,
        r#"smg_worker_pool_size{worker_type="regular",connection_mode="http",model="unknown"} 1"#,
        r#"smg_worker_health_checks_total{worker_type="regular",result="success",worker="http://w1"} 2"#,
        r#"smg_worker_retries_total{worker_type="regular",endpoint="generate",cause="connect"} 2"#,
        r#"smg_worker_retries_total{worker_type="decode",endpoint="generate",cause="status_other"} 2"#,
        r#"smg_worker_retries_exhausted_total{worker_type="regular",endpoint="/a\"b\\"} 2"#,
        r#"smg_worker_retries_exhausted_total{worker_type="regular",endpoint="generate"} 2"#,
        r#"smg_worker_retries_exhausted_total{worker_type="prefill",endpoint="generate"} 2"#,
        r#"smg_worker_retry_backoff_seconds_count{attempt="8"} 2"#,
        r#"smg_worker_cb_state{worker="http://w0"} 0"#,
        &format!("smg_router_request_errors_total{{{route},error_type=\"timeout\"}} 2"),
        &format!("smg_router_request_errors_total{{{of_pairs},error_type=\"overloaded\"}} 2"),
        &format!("smg_router_request_duration_seconds_bucket{{{route},le=\"2\"}} 4"),
        &format!("smg_router_itl_seconds_count{{{route}}} 6"),
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}\nis not in\n{text}");
    }
    assert!(!text.contains("model=\"unknown\",endpoint"), "no rows for models that nobody asked for");
}
