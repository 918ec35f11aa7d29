//! `/v1/models`.

use serde_json::json;

use super::{HANG, OK, get_all, is_json, scripted, send, start};
use crate::common::Router;
use crate::common::worker::dead_url;

const A: &str = r#"{"object":"list","data":[
    {"id":"a","object":"model","created":1,"owned_by":"sglang","root":"org/a","parent":null,"max_model_len":8192},
    {"id":"lora","object":"model","parent":"a"}]}"#;
const B: &str = r#"{"object":"list","data":[{"id":"b","x-own":[1.5]},{"id":"a","max_model_len":1}]}"#;

#[test]
fn the_models_of_all_workers_are_listed_as_they_describe_them() {
    let (a, b) = (scripted(&[("GET /v1/models ", OK, A)]), scripted(&[("GET /v1/models ", OK, B)]));
    let c = scripted(&[("GET /v1/models ", "500 Oh", "[]")]);
    let router = start(&[&c, &a, &b], &[]);
    let list = router.get("/v1/models");
    assert_eq!((list.status(), is_json(&list)), (200, true));
    let expected = json!({"object": "list", "data": [
        {"id": "a", "object": "model", "created": 1, "owned_by": "sglang", "root": "org/a", "parent": null,
         "max_model_len": 8192},
        {"id": "lora", "object": "model", "parent": "a"},
        {"id": "b", "x-own": [1.5]},
    ]});
    assert_eq!(list.json(), expected);
}

#[test]
fn without_any_list_there_is_none() {
    let silent = scripted(&[]);
    start(&[&silent], &[]).get("/v1/models").assert_refused(503, "no_worker_response");
    Router::start(&[], &[]).get("/v1/models").assert_refused(503, "no_workers");
    Router::start(&[dead_url()], &[]).get("/v1/models").assert_refused(503, "no_available_workers");
}

/// The client's own key is for the workers where the router has none.
#[test]
fn a_key_protected_worker_sees_the_clients_key() {
    let keyed = |expected: Option<&'static str>| {
        crate::common::Worker::probed(move |conn, request| {
            let is_right = request.header("authorization") == expected;
            let is_models = request.first.starts_with("GET /v1/models ");
            match (is_models, is_right) {
                (true, true) => conn.answer(OK, "", B.as_bytes()),
                (true, false) => conn.answer("401 Unauthorized", "", b""),
                (false, _) => conn.answer(OK, "", b"{}"),
            }
            true
        })
    };
    let key = "Authorization: Bearer k2\r\n";
    let worker = keyed(Some("Bearer k2"));
    let router = start(&[&worker], &[]);
    assert_eq!(send(&router, "GET", "/v1/models", key).status(), 200);
    send(&router, "GET", "/v1/models", "").assert_refused(503, "no_worker_response");
    // Where the router has a key of its own, that is sent, and the client's is the router's business.
    let worker = keyed(Some("Bearer w"));
    let router = start(&[&worker], &["--api-key", "k2", "--worker-api-key", "w"]);
    assert_eq!(send(&router, "GET", "/v1/models", key).status(), 200);
    assert_eq!(send(&router, "GET", "/v1/models", "").status(), 401);
}

#[test]
fn who_hangs_is_left_out() {
    let (a, b) = (scripted(&[("GET /v1/models ", HANG, "")]), scripted(&[("GET /v1/models ", OK, B)]));
    let router = start(&[&a, &b], &[]);
    let lists = get_all(&router, &["/v1/models"; 3]);
    for list in lists {
        assert_eq!((list.status(), list.json()["data"][0]["id"].as_str()), (200, Some("b")));
    }
}
