//! Prefill and decode workers over the API.

use serde_json::{Value, json};

use super::{PORT, add, call, engine, shown, shown_when};
use crate::common::Router;

#[test]
fn a_worker_is_shown_with_the_role_and_port_that_it_was_given() {
    let router = Router::start(&[], &["--policy", "random", "--prefill-policy", "bucket"]);
    for (said, role, port, policy) in [
        (json!({"worker_type": "prefill", "bootstrap_port": PORT}), "prefill", json!(PORT), "bucket"),
        (json!({"worker_type": "prefill"}), "prefill", Value::Null, "bucket"),
        (json!({"worker_type": "decode"}), "decode", Value::Null, "random"),
        (json!({"worker_type": "regular", "bootstrap_port": PORT}), "regular", Value::Null, "random"),
    ] {
        let worker = engine(json!({}));
        let mut body = said.clone();
        body["url"] = json!(worker.url());
        let id = add(&router, &body);
        // At once, and when it is there.
        for shown in [shown(&router, &id), shown_when(&router, &id, "ready")] {
            let told = ["worker_type", "bootstrap_port", "policy"].map(|key| shown[key].clone());
            assert_eq!(told, [json!(role), port.clone(), json!(policy)], "{said}");
        }
    }
    let list = router.get("/workers").json();
    assert_eq!(list["stats"], json!({"prefill_count": 2, "decode_count": 1, "regular_count": 1}));
    assert_eq!(list["in_flight"], json!({"prefill": 0, "decode": 0, "regular": 0}));
}

#[test]
fn a_role_and_a_port_stay_as_they_were_registered() {
    let router = Router::start(&[], &[]);
    let worker = engine(json!({}));
    let body = json!({"url": worker.url(), "worker_type": "prefill", "bootstrap_port": PORT});
    let id = add(&router, &body);
    for change in [json!({"worker_type": "decode"}), json!({"bootstrap_port": 1})] {
        let answer = call(&router, "PUT", &format!("/workers/{id}"), &change.to_string());
        assert_eq!(answer.status(), 422, "{change}");
        assert!(answer.text().contains("cannot be changed"), "{}", answer.text());
    }
    let again = json!({"url": worker.url(), "worker_type": "decode"});
    assert_eq!(add(&router, &again), id, "the one that is there is left as it is");
    let shown = shown(&router, &id);
    assert_eq!((&shown["worker_type"], &shown["bootstrap_port"]), (&json!("prefill"), &json!(PORT)));
}
