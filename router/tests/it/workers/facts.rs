//! What workers say of themselves.

use serde_json::{Value, json};

use super::engine::HOLD;
use super::{Engine, add, add_as, call, router, shown, state};
use crate::common::{Router, wait_until};

fn server_info() -> Value {
    json!({"served_model_name": "by-server", "model_path": "/models/m", "dp_size": 2, "tp_size": 4, "page_size": 16,
        "max_total_num_tokens": 123_456, "version": "0.5.9", "disaggregation_mode": "null"})
}

/// Model and labels at the moment when the worker is first seen to be ready.
fn told_when_ready(router: &Router, said: &Value) -> (Value, Value) {
    let id = add_as(router, said);
    let mut worker = Value::Null;
    wait_until("the worker to be ready", || {
        worker = shown(router, &id);
        worker["state"] == "ready"
    });
    (worker["model_id"].clone(), worker["metadata"]["labels"].clone())
}

#[test]
fn what_a_worker_says_of_itself_is_known_before_it_gets_requests() {
    let models = json!({"object": "list", "data": [{"id": "by-models"}]}).to_string();
    for path in ["/server_info", "/get_server_info"] {
        let engine = Engine::describing(path, &server_info());
        let router = router(&[]);
        let expected = |model: &str| {
            json!({"dp_size": "2", "tp_size": "4", "page_size": "16", "max_total_num_tokens": "123456",
                "version": "0.5.9", "served_model_name": model})
        };
        let (model, labels) = told_when_ready(&router, &json!({"url": engine.url()}));
        assert_eq!((model, labels), (json!("by-server"), expected("by-server")), "{path}");

        let engine = Engine::describing(path, &server_info());
        engine.say("/v1/models", "200 OK", &models);
        let (model, labels) = told_when_ready(&router, &json!({"url": engine.url()}));
        assert_eq!((model, labels), (json!("by-models"), expected("by-models")), "{path}");

        let engine = Engine::describing(path, &server_info());
        engine.say("/v1/models", "200 OK", &models);
        let said =
            json!({"url": engine.url(), "model_id": "by-operator", "labels": {"dp_size": "8", "zone": "a"}});
        let (model, labels) = told_when_ready(&router, &said);
        assert_eq!(model, "by-operator", "{path}");
        assert_eq!(
            (&labels["dp_size"], &labels["zone"], &labels["tp_size"]),
            (&json!("8"), &json!("a"), &json!("4"))
        );
    }
}

#[test]
fn a_worker_that_has_said_nothing_yet_is_asked_on_when_its_terms_change() {
    let absent = Engine::start();
    absent.worker.kill();
    let router = router(&[]);
    let id = add_as(&router, &json!({"url": absent.url(), "disable_health_check": true}));
    wait_until("the worker to be taken for ready", || state(&router, &id) == "ready");
    let change = call(&router, "PUT", &format!("/workers/{id}"), r#"{"disable_health_check":false}"#);
    assert_eq!(change.status(), 202);
    let engine = Engine::start_at(&absent.worker.address);
    engine.say("/v1/models", "200 OK", r#"{"object":"list","data":[{"id":"late"}]}"#);
    wait_until("its model to be known", || shown(&router, &id)["model_id"] == "late");
}

#[test]
fn a_role_is_shown_as_the_worker_says_it() {
    for role in ["prefill", "decode"] {
        let engine = Engine::describing("/server_info", &json!({"disaggregation_mode": role}));
        let (_, labels) = told_when_ready(&router(&[]), &json!({"url": engine.url()}));
        assert_eq!(labels, json!({"disaggregation_mode": role}));
    }
}

#[test]
fn a_model_is_known_by_its_path_where_nothing_else_names_it() {
    for path in ["/model_info", "/get_model_info"] {
        let engine = Engine::describing(path, &json!({"model_path": "/models/m"}));
        let (model, labels) = told_when_ready(&router(&[]), &json!({"url": engine.url()}));
        assert_eq!(
            (model, labels),
            (json!("/models/m"), json!({"served_model_name": "/models/m"})),
            "{path}"
        );
    }
}

#[test]
fn what_a_worker_says_badly_is_not_made_up() {
    for nonsense in ["", "[]", "null", r#"{"dp_size":"two","page_size":-1,"version":{}}"#, "<html>"] {
        let engine = Engine::start();
        for path in ["/server_info", "/model_info", "/v1/models"] {
            engine.say(path, "200 OK", nonsense);
        }
        let (model, labels) = told_when_ready(&router(&[]), &json!({"url": engine.url()}));
        assert_eq!((model, labels), (json!("unknown"), json!({})), "{nonsense}");
    }
}

#[test]
fn one_question_that_is_never_answered_leaves_the_other_answers() {
    let engine = Engine::describing("/server_info", &server_info());
    engine.say("/model_info", "200 OK", HOLD);
    let router = router(&[]);
    let (model, labels) = told_when_ready(&router, &json!({"url": engine.url()}));
    assert_eq!((model, &labels["dp_size"]), (json!("by-server"), &json!("2")));
    engine.go.open();
}

#[test]
fn a_worker_that_cannot_say_yet_what_it_serves_is_asked_again_soon() {
    let engine = Engine::start();
    // No answer at all, as while it loads.
    engine.say("/v1/models", "", "");
    let router = router(&[]);
    let id = add(&router, &engine.url());
    wait_until("the worker to be ready", || state(&router, &id) == "ready");
    assert_eq!(shown(&router, &id)["model_id"], "unknown");
    engine.say("/v1/models", "200 OK", r#"{"data":[{"id":"late"}]}"#);
    wait_until("the model to be known", || shown(&router, &id)["model_id"] == "late");
}

#[test]
fn a_worker_that_refuses_the_routers_key_is_told_of_once() {
    for (status, number) in [("401 Unauthorized", "401"), ("403 Forbidden", "403")] {
        let engine = Engine::start();
        for path in ["/v1/models", "/server_info", "/model_info"] {
            engine.say(path, status, "");
        }
        let (router, log) = Router::start_logged(&[], &["--worker-api-key", "wrong"]);
        let id = add_as(&router, &json!({"url": engine.url()}));
        wait_until("the worker to be ready", || state(&router, &id) == "ready");
        let reason = shown(&router, &id)["reason"].as_str().expect("a reason").to_owned();
        assert!(reason.contains(number) && reason.contains("--worker-api-key"), "{reason}");
        let told = |line: &&String| line.contains("WARN") && line.contains(&reason);
        wait_until("it to be told", || log.lines().iter().any(|line| told(&line)));
        assert_eq!(log.lines().iter().filter(told).count(), 1, "{:?}", log.lines());
    }
}
