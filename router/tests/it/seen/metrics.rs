//! Series by role.

use super::{BODY, engine, in_mode, remove, series};
use crate::common::legs::router;
use crate::common::{Router, Worker, wait_until};

/// The value of the pool of a role.
fn pool(router: &Router, what: &str, role: &str, model: &str) -> Option<f64> {
    let labels = format!(r#"worker_type="{role}",connection_mode="http",model="{model}""#);
    router.metric(&format!("smg_worker_pool_{what}{{{labels}}}"))
}

/// A pair whose model is known.
fn pair() -> (Worker, Worker, Router) {
    let (prefill, decode) = (engine(in_mode("prefill")), engine(in_mode("decode")));
    let args = ["--health-check-interval-secs", "1", "--health-failure-threshold", "1"];
    let router = router(&[&prefill], &[&decode], &args);
    wait_until("both to be there", || {
        ["prefill", "decode"].iter().all(|role| pool(&router, "available", role, "m") == Some(1.0))
    });
    (prefill, decode, router)
}

#[test]
fn the_pool_of_a_role_that_nobody_has_any_more_stands_at_0() {
    let (prefill, decode, router) = pair();
    assert_eq!(pool(&router, "size", "prefill", "m"), Some(1.0));
    prefill.kill();
    wait_until("it to be found", || pool(&router, "available", "prefill", "m") == Some(0.0));
    assert_eq!(pool(&router, "size", "prefill", "m"), Some(1.0), "it is registered");
    remove(&router, &prefill);
    wait_until("it to be gone", || pool(&router, "size", "prefill", "m") == Some(0.0));
    assert_eq!(pool(&router, "available", "prefill", "m"), Some(0.0));
    assert_eq!(pool(&router, "available", "decode", "m"), Some(1.0));
    assert_eq!(pool(&router, "size", "regular", "unknown"), None, "nobody asked for regular workers");
    remove(&router, &decode);
    wait_until("both to be gone", || pool(&router, "size", "decode", "unknown") == Some(0.0));
    assert_eq!(pool(&router, "available", "prefill", "unknown"), Some(0.0), "pairs were asked for");
}

#[test]
fn without_pairs_it_is_regular_workers_that_are_missing() {
    let router = Router::start(&[], &[]);
    assert_eq!(pool(&router, "size", "regular", "unknown"), Some(0.0));
    assert_eq!(series(&router, "smg_worker_pool_size{").len(), 1);
}

#[test]
fn a_worker_whose_breaker_is_open_is_not_available() {
    let worker = Worker::answering("500 Internal Server Error", "", "");
    let router = Router::start(&[worker.url()], &["--cb-failure-threshold", "1", "--disable-retries"]);
    let available = || pool(&router, "available", "regular", "unknown");
    wait_until("it to be there", || available() == Some(1.0));
    assert_eq!(router.post("/generate", BODY).status(), 500);
    wait_until("its breaker to open", || available() == Some(0.0));
    assert_eq!(pool(&router, "size", "regular", "unknown"), Some(1.0));
}

#[test]
fn series_of_workers_and_decisions_name_the_role() {
    let (prefill, decode, router) = pair();
    assert_eq!(router.post("/generate", BODY).status(), 200);
    for (worker, role) in [(&prefill, "prefill"), (&decode, "decode")] {
        for family in ["requests_active", "tokens_active", "health", "cb_state", "warming_up", "state"] {
            let of = format!("smg_worker_{family}{{worker=\"{}\"", worker.url());
            let shown = series(&router, &of);
            let labelled = shown.iter().filter(|line| line.contains(&format!("worker_type=\"{role}\"")));
            assert_eq!((shown.len(), labelled.count()), (1, 1), "{family}: {shown:?}");
        }
        let decisions = series(&router, "smg_router_decisions_total{");
        let role = format!("worker_type=\"{role}\"}} 1");
        assert_eq!(decisions.iter().filter(|line| line.ends_with(&role)).count(), 1, "{decisions:?}");
    }
    // Who computes no prompts has none that wait for it.
    let queued = series(&router, "smg_worker_queued_prefill_tokens{");
    assert_eq!(queued.len(), 1, "{queued:?}");
    assert!(queued[0].contains(&prefill.url()), "{queued:?}");
}
