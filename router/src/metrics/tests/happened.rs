//! What happened is what is shown.

use super::*;

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
        r#"smg_router_decisions_total{policy="cache_aware",reason="cache_hit",worker_type="regular"} 2"#,
        r#"smg_router_request_ends_total{end="complete"} 2"#,
        r#"smg_router_predicted_cached_tokens_total 2"#,
        r#"smg_router_cached_tokens_total 4"#,
        r#"smg_worker_pool_size{worker_type="regular",connection_mode="http",model="m"} 1"#,
        r#"smg_worker_pool_size{worker_type="regular",connection_mode="http",model="unknown"} 1"#,
        r#"smg_worker_pool_available{worker_type="regular",connection_mode="http",model="m"} 0"#,
        r#"smg_worker_health_checks_total{worker_type="regular",result="success",worker="http://w1"} 2"#,
        r#"smg_worker_retries_total{worker_type="regular",endpoint="generate",cause="connect"} 2"#,
        r#"smg_worker_retries_total{worker_type="decode",endpoint="generate",cause="status_other"} 2"#,
        r#"smg_worker_retries_exhausted_total{worker_type="regular",endpoint="/a\"b\\"} 2"#,
        r#"smg_worker_retries_exhausted_total{worker_type="regular",endpoint="generate"} 2"#,
        r#"smg_worker_retries_exhausted_total{worker_type="prefill",endpoint="generate"} 2"#,
        r#"smg_worker_retry_backoff_seconds_count{attempt="8"} 2"#,
        r#"smg_worker_cb_state{worker="http://w0",worker_type="regular"} 0"#,
        &format!("smg_router_request_errors_total{{{route},error_type=\"timeout\"}} 2"),
        &format!("smg_router_request_errors_total{{{of_pairs},error_type=\"overloaded\"}} 2"),
        &format!("smg_router_request_duration_seconds_bucket{{{route},le=\"2\"}} 4"),
        &format!("smg_router_itl_seconds_count{{{route}}} 6"),
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}\nis not in\n{text}");
    }
    assert!(!text.contains("model=\"unknown\",endpoint"), "no rows for models that nobody asked for");
}
