//! `/readiness` says which workers are missing.

use serde_json::{Value, json};

use super::{add, engine, in_mode, shown_when};
use crate::common::{Router, wait_until};

fn readiness(router: &Router) -> (u16, Value) {
    let answer = router.get("/readiness");
    (answer.status(), answer.json())
}

fn not_ready(reason: &str, pools: &[&str]) -> (u16, Value) {
    (503, json!({"status": "not ready", "reason": reason, "empty_pools": pools}))
}

#[test]
fn a_pair_or_a_regular_worker_is_enough_and_what_is_missing_is_named() {
    let router = Router::start(&[], &[]);
    let nobody = (503, json!({"status": "not ready", "reason": "no workers"}));
    assert_eq!(readiness(&router), nobody);
    let (decode, prefill, regular) =
        (engine(in_mode("decode")), engine(in_mode("prefill")), engine(in_mode("null")));
    let decode_id = add(&router, &json!({"url": decode.url()}));
    shown_when(&router, &decode_id, "ready");
    assert_eq!(readiness(&router), not_ready("no prefill workers", &["prefill"]));
    let prefill_id = add(&router, &json!({"url": prefill.url()}));
    shown_when(&router, &prefill_id, "ready");
    assert_eq!(
        readiness(&router),
        (200, json!({"status": "ready", "healthy_workers": 2, "total_workers": 2}))
    );

    let answer = super::call(&router, "DELETE", &format!("/workers/{decode_id}"), "");
    assert_eq!(answer.status(), 202);
    wait_until("the worker to be gone", || router.get("/workers").json()["total"] == 1);
    assert_eq!(readiness(&router), not_ready("no decode workers", &["decode"]));
    let regular_id = add(&router, &json!({"url": regular.url()}));
    shown_when(&router, &regular_id, "ready");
    let ready =
        json!({"status": "ready", "healthy_workers": 2, "total_workers": 2, "empty_pools": ["decode"]});
    assert_eq!(readiness(&router), (200, ready));
}

#[test]
fn workers_that_are_there_and_not_able_are_told_from_none() {
    let router =
        Router::start(&[], &["--health-check-interval-secs", "1", "--health-failure-threshold", "1"]);
    let (decode, prefill) = (engine(in_mode("decode")), engine(in_mode("prefill")));
    for worker in [&decode, &prefill] {
        let id = add(&router, &json!({"url": worker.url()}));
        shown_when(&router, &id, "ready");
    }
    assert_eq!(readiness(&router).0, 200);
    prefill.kill();
    let expected = not_ready("insufficient healthy prefill workers", &["prefill"]);
    wait_until("it to be found", || readiness(&router) == expected);
    decode.kill();
    let reason = "insufficient healthy prefill workers; insufficient healthy decode workers";
    let expected = not_ready(reason, &["prefill", "decode"]);
    wait_until("both to be found", || readiness(&router) == expected);
}
