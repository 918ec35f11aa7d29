//! Which families there are, and which of the gateway's.

use std::collections::BTreeSet;

use super::form::parse;
use super::*;

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
    ("smg_worker_pool_available", "gauge"),
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
    let page = include_str!("../../../../docs/OPERATIONS.md");
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
