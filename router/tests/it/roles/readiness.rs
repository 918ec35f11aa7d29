//! `/readiness` says which workers are missing.

use serde_json::{Value, json};

use super::{add, engine, in_mode, shown_when};
use crate::common::{Router, wait_until};

fn readiness(router: &Router) -> (u16, Value) {
    let answer = router.get("/readiness");
    (answer.status(), answer.json())
}

fn not_ready(reason: &str, pools: &[&str], counts: &Value) -> (u16, Value) {
    (503, json!({"status": "not ready", "reason": reason, "empty_pools": pools, "pools": counts}))
}

/// What is told of the workers of a role.
fn pool(able: usize, total: usize) -> Value {
    json!({"healthy_workers": able, "total_workers": total})
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
    let counts = json!({"prefill": pool(0, 0), "decode": pool(1, 1)});
    assert_eq!(readiness(&router), not_ready("no prefill workers", &["prefill"], &counts));
    let prefill_id = add(&router, &json!({"url": prefill.url()}));
    shown_when(&router, &prefill_id, "ready");
    let ready = json!({"status": "ready", "healthy_workers": 2, "total_workers": 2,
        "pools": {"prefill": pool(1, 1), "decode": pool(1, 1)}});
    assert_eq!(readiness(&router), (200, ready));

    let answer = super::call(&router, "DELETE", &format!("/workers/{decode_id}"), "");
    assert_eq!(answer.status(), 202);
    wait_until("the worker to be gone", || router.get("/workers").json()["total"] == 1);
    let counts = json!({"prefill": pool(1, 1), "decode": pool(0, 0)});
    assert_eq!(readiness(&router), not_ready("no decode workers", &["decode"], &counts));
    let regular_id = add(&router, &json!({"url": regular.url()}));
    shown_when(&router, &regular_id, "ready");
    let ready = json!({"status": "ready", "healthy_workers": 2, "total_workers": 2, "empty_pools": ["decode"],
        "pools": {"regular": pool(1, 1), "prefill": pool(1, 1), "decode": pool(0, 0)}});
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
    let counts = json!({"prefill": pool(0, 1), "decode": pool(1, 1)});
    let expected = not_ready("insufficient healthy prefill workers", &["prefill"], &counts);
    wait_until("it to be found", || readiness(&router) == expected);
    decode.kill();
    let reason = "insufficient healthy prefill workers; insufficient healthy decode workers";
    let counts = json!({"prefill": pool(0, 1), "decode": pool(0, 1)});
    let expected = not_ready(reason, &["prefill", "decode"], &counts);
    wait_until("both to be found", || readiness(&router) == expected);
}
