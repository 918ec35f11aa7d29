//! What operators say of a worker.

use serde_json::json;

use super::{BODY, Engine, add, add_as, add_ready, call, call_with, router, shown, state};
use crate::common::{Router, wait_until};

/// The key that the worker got with a request of a client that shows its own.
fn key_of_a_request(router: &Router, engine: &Engine) -> Option<String> {
    let before = engine.requests();
    let body = std::str::from_utf8(BODY).expect("text");
    let answer = call_with(router, "Authorization: Bearer client\r\n", "POST", "/generate", body);
    assert_eq!((answer.status(), engine.requests()), (200, before + 1));
    engine.last_header("/generate", "authorization")
}

#[test]
fn what_is_said_of_a_worker_is_shown_and_can_be_changed() {
    let engine = Engine::start();
    let router = router(&[]);
    let id = add(&router, &engine.url());
    let defaults = shown(&router, &id);
    assert_eq!((&defaults["priority"], &defaults["cost"]), (&json!(50), &json!(1.0)));
    assert_eq!((&defaults["worker_type"], &defaults["model_id"]), (&json!("regular"), &json!("unknown")));
    let change = |body: &str| {
        assert_eq!(call(&router, "PUT", &format!("/workers/{id}"), body).status(), 202, "{body}");
        let worker = shown(&router, &id);
        json!([worker["priority"], worker["cost"], worker["metadata"]["labels"]])
    };
    assert_eq!(change(r#"{"priority":7}"#), json!([7, 1.0, {}]));
    assert_eq!(
        change(r#"{"cost":0,"labels":{"zone":"a","rack":"1"}}"#),
        json!([7, 0.0, {"zone": "a", "rack": "1"}])
    );
    assert_eq!(change(r#"{"labels":{"zone":"b"},"made_up":1}"#), json!([7, 0.0, {"zone": "b"}]));
    assert_eq!(change("{}"), json!([7, 0.0, {"zone": "b"}]));
    for (status, wrong) in [(400, "{"), (422, r#"{"cost":-1}"#), (422, r#"{"priority":"high"}"#)] {
        assert_eq!(call(&router, "PUT", &format!("/workers/{id}"), wrong).status(), status, "{wrong}");
    }
    assert_eq!(change("{}"), json!([7, 0.0, {"zone": "b"}]));

    let other = Engine::start();
    let said = json!({"url": other.url(), "priority": 3, "cost": 2.5, "labels": {"a": "b"}, "model_id": "m"});
    let worker = shown(&router, &add_as(&router, &said));
    let told = json!([worker["priority"], worker["cost"], worker["metadata"]["labels"], worker["model_id"]]);
    assert_eq!(told, json!([3, 2.5, {"a": "b"}, "m"]));
}

#[test]
fn the_next_request_carries_the_key_that_a_worker_was_given_last() {
    let engine = Engine::start();
    let router = router(&[]);
    let id = add_as(&router, &json!({"url": engine.url(), "api_key": "first"}));
    wait_until("the worker to be ready", || state(&router, &id) == "ready");
    assert_eq!(key_of_a_request(&router, &engine).as_deref(), Some("Bearer first"));
    let put = |body: &str| call(&router, "PUT", &format!("/workers/{id}"), body).status();
    assert_eq!(put(r#"{"api_key":"second"}"#), 202);
    assert_eq!(key_of_a_request(&router, &engine).as_deref(), Some("Bearer second"));
    assert_eq!((put(r#"{"api_key":"a b"}"#), put(r#"{"priority":1}"#)), (422, 202));
    assert_eq!(key_of_a_request(&router, &engine).as_deref(), Some("Bearer second"));
    let told = shown(&router, &id).to_string() + &router.get("/workers").text();
    assert!(!told.contains("second"), "a key is not shown: {told}");
}

#[test]
fn a_worker_without_a_key_of_its_own_gets_the_routers_for_workers_or_the_clients() {
    for (args, key) in [(&[][..], "Bearer client"), (&["--worker-api-key", "fleet"], "Bearer fleet")] {
        let engine = Engine::start();
        let router = router(args);
        add_ready(&router, &engine.url());
        assert_eq!(key_of_a_request(&router, &engine).as_deref(), Some(key), "{args:?}");
    }
}

#[test]
fn one_that_is_not_to_be_probed_gets_requests_at_once() {
    let engine = Engine::unwell();
    let router = router(&[]);
    let id = add_as(&router, &json!({"url": engine.url(), "disable_health_check": true}));
    wait_until("the worker to be ready", || state(&router, &id) == "ready");
    assert_eq!(shown(&router, &id)["disable_health_check"], true);
    assert_eq!(router.post("/generate", BODY).status(), 200);
    assert_eq!(engine.asked("/health"), 0);
}
