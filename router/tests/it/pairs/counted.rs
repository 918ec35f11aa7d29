//! What `/metrics` tells of requests that pairs serve.

use super::legs::{Holding, decode, prefill, router};
use super::{BODY, flags};
use crate::common::{Router, Worker, wait_until};

/// The value of a series that there is by now.
fn count(router: &Router, series: &str) -> f64 {
    router.metric(series).unwrap_or(0.0)
}

fn route(backend: &str) -> String {
    format!(
        r#"router_type="http",backend_type="{backend}",connection_mode="http",model="unknown",endpoint="generate""#
    )
}

#[test]
fn requests_of_pairs_are_told_from_those_of_regular_workers() {
    let (prefill, decode, regular) = (prefill(), decode(), Worker::fixed("{}"));
    let regular_url = regular.url();
    let router = router(&[&prefill], &[&decode], &flags(&["--worker-urls", &regular_url]));
    for (prefers, requests) in [("true", 3), ("false", 2)] {
        for _ in 0..requests {
            let mut client = router.client();
            client.send_post("/generate", &format!("x-prefer-pd: {prefers}\r\n"), BODY);
            assert_eq!(client.receive().status(), 200);
        }
    }
    for (backend, requests) in [("pd", 3.0), ("regular", 2.0)] {
        let route = route(backend);
        let given = format!(r#"smg_router_requests_total{{{route},streaming="false"}}"#);
        assert_eq!(router.metric(&given), Some(requests), "{backend}");
        let durations = format!("smg_router_request_duration_seconds_count{{{route}}}");
        wait_until("their ends to be counted", || router.metric(&durations) == Some(requests));
    }
}

#[test]
fn a_request_that_a_role_is_missing_for_is_one_of_pairs() {
    let dying = prefill();
    let router = router(&[&dying], &[&decode()], &flags(&["--health-check-interval-secs", "1"]));
    dying.kill();
    let id = format!("/workers/{}", dying.url().replace(':', "%3A").replace('/', "%2F"));
    let mut client = router.client();
    client.send(format!("DELETE {id} HTTP/1.1\r\nHost: r\r\n\r\n"));
    assert_eq!(client.receive().status(), 202);
    wait_until("it to be gone", || router.loads().len() == 1);
    router.post("/generate", BODY).assert_refused(503, "no_prefill_workers");
    let errors = |backend| {
        let series =
            format!(r#"smg_router_request_errors_total{{{},error_type="no_workers"}}"#, route(backend));
        count(&router, &series)
    };
    assert_eq!((errors("pd"), errors("regular")), (1.0, 0.0));
}

#[test]
fn a_retry_is_counted_for_the_leg_that_failed() {
    for leg in ["prefill", "decode"] {
        let busy = Worker::answering("503 Service Unavailable", "", "");
        // Who waits for the KV, as decode engines do, does not answer before prefill has refused.
        let (good_prefill, waiting_decode) = (prefill(), Holding::silent().worker);
        let args = flags(&["--retry-max-retries", "2", "--cb-failure-threshold", "100"]);
        let router = match leg {
            "prefill" => router(&[&busy], &[&waiting_decode], &args),
            _ => router(&[&good_prefill], &[&busy], &args),
        };
        assert_eq!(router.post("/generate", BODY).status(), 503, "{leg}");
        for of in ["regular", "prefill", "decode"] {
            let labels = format!(r#"worker_type="{of}",endpoint="generate""#);
            let retries =
                count(&router, &format!(r#"smg_worker_retries_total{{{labels},cause="status_503"}}"#));
            assert_eq!(retries > 0.0, of == leg, "{leg}: retries of {of}: {retries}");
            let exhausted = count(&router, &format!("smg_worker_retries_exhausted_total{{{labels}}}"));
            assert_eq!(exhausted, if of == leg { 1.0 } else { 0.0 }, "{leg}: {of}");
        }
    }
}
