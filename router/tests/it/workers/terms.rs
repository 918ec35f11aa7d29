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
    assert_eq!(change(r#"{"labels":{"zone":"b"}}"#), json!([7, 0.0, {"zone": "b"}]));
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

#[test]
fn what_cannot_be_changed_is_named_and_nothing_is() {
    let engine = Engine::start();
    let router = router(&[]);
    let id = add(&router, &engine.url());
    for (body, named) in [
        (r#"{"priority":1,"url":"http://w:1"}"#, "cannot be changed: `url`"),
        (r#"{"priority":1,"worker_type":"decode"}"#, "cannot be changed: `worker_type`"),
        (r#"{"priority":1,"health_check_timeout_secs":1}"#, "cannot be changed: `health_check_timeout_secs`"),
        (r#"{"priority":1,"foo":{"a":1},"bar":2}"#, "no field of a worker: `bar`, `foo`"),
        (r#"{"priority":1,"modelid":"m"}"#, "those that can be changed are api_key, model_id"),
    ] {
        let answer = call(&router, "PUT", &format!("/workers/{id}"), body);
        assert_eq!((answer.status(), &answer.json()["code"]), (422, &json!("BAD_REQUEST")), "{body}");
        assert!(answer.text().contains(named), "{body}: {}", answer.text());
    }
    assert_eq!(shown(&router, &id)["priority"], 50);
}

#[test]
fn the_model_that_was_said_last_is_the_one_that_is_served() {
    let engines = [Engine::start(), Engine::start()];
    engines[0].say("/v1/models", "200 OK", r#"{"data":[{"id":"own"}]}"#);
    let router = router(&["--worker-info-interval-secs", "0.1"]);
    let of = |engine: &Engine, model: &str| json!({"url": engine.url(), "model_id": model});
    let ids = [add_as(&router, &of(&engines[0], "a")), add_as(&router, &of(&engines[1], "b"))];
    for id in &ids {
        wait_until("the worker to be ready", || state(&router, id) == "ready");
    }
    let served_by = |model: &str| {
        let before = engines.each_ref().map(Engine::requests);
        let answer = router.post("/generate", json!({"model": model, "text": "a"}).to_string().as_bytes());
        let after = engines.each_ref().map(Engine::requests);
        (answer.status() == 200).then(|| usize::from(after[1] > before[1]))
    };
    assert_eq!([served_by("a"), served_by("b"), served_by("own")], [Some(0), Some(1), None]);
    let put = |at: usize, model: &str| {
        let body = json!({"model_id": model}).to_string();
        assert_eq!(call(&router, "PUT", &format!("/workers/{}", ids[at]), &body).status(), 202);
    };
    put(0, "b");
    put(1, "a");
    assert_eq!([served_by("a"), served_by("b"), served_by("own")], [Some(1), Some(0), None]);
    assert_eq!(shown(&router, &ids[0])["model_id"], "b");
    // What the worker says itself, again and again, does not count against it.
    let asked = engines[0].asked("/v1/models");
    wait_until("it to be asked", || engines[0].asked("/v1/models") > asked + 2);
    assert_eq!(shown(&router, &ids[0])["model_id"], "b");
    // Nobody says it any more.
    put(0, "");
    assert_eq!(shown(&router, &ids[0])["model_id"], "own");
    assert_eq!([served_by("a"), served_by("b"), served_by("own")], [Some(1), None, Some(0)]);
}

#[test]
fn probes_can_be_ended_and_begun_again() {
    let engine = Engine::start();
    let router = router(&["--health-check-interval-secs", "1", "--health-failure-threshold", "1"]);
    let id = add_ready(&router, &engine.url());
    let put = |is_off: bool| {
        let body = json!({"disable_health_check": is_off}).to_string();
        assert_eq!(call(&router, "PUT", &format!("/workers/{id}"), &body).status(), 202);
        assert_eq!(shown(&router, &id)["disable_health_check"], is_off);
    };
    engine.say("/health", "503 Service Unavailable", "");
    let is_healthy = || shown(&router, &id)["is_healthy"] == true;
    for _ in 0..2 {
        wait_until("the worker to be unhealthy", || !is_healthy());
        put(true);
        wait_until("it to be taken for healthy", is_healthy);
        assert_eq!(router.post("/generate", BODY).status(), 200);
        put(false);
    }
    engine.get_well();
    wait_until("it to be healthy", is_healthy);
}

#[test]
fn one_that_comes_without_a_key_to_a_router_with_one_is_warned_of() {
    let warned = |args: &[&str], key: Option<&str>| {
        let (router, log) = Router::start_logged(&[], args);
        let said = json!({"url": "http://127.0.0.1:1", "api_key": key}).to_string();
        let headers = "Authorization: Bearer sk-1\r\n";
        assert_eq!(call_with(&router, headers, "POST", "/workers", &said).status(), 202);
        wait_until("the registration", || log.lines().iter().any(|line| line.contains("registered")));
        drop(router);
        log.into_lines().iter().any(|line| line.contains("WARN") && line.contains("without api_key"))
    };
    assert!(warned(&["--api-key", "sk-1"], None));
    assert!(!warned(&["--api-key", "sk-1"], Some("sk-2")));
    assert!(!warned(&["--api-key", "sk-1", "--worker-api-key", "sk-3"], None));
    assert!(!warned(&[], None));
}

#[test]
fn a_field_that_nobody_knows_is_told_of_in_the_log_too() {
    let (router, log) = Router::start_logged(&[], &[]);
    add_as(&router, &json!({"url": "127.0.0.1:1", "dp_aware": true, "api_kye": "sk-1"}));
    let is_told = |line: &String| line.contains("WARN") && line.contains("read over: `api_kye`");
    wait_until("the warning", || log.lines().iter().any(is_told));
    assert!(log.lines().iter().all(|line| !line.contains("sk-1") && !line.contains("dp_aware")));
}
