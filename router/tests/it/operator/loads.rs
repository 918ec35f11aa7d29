//! `/get_loads` and `/v1/loads`.

use serde_json::{Value, json};

use super::{OK, is_json, scripted, start};
use crate::common::Router;
use crate::common::worker::dead_url;

const CURRENT: &str = r#"{"timestamp":"t","version":"0.5.23","loads":[
    {"dp_rank":0,"num_running_reqs":3,"num_waiting_reqs":1,"num_used_tokens":80,"num_total_tokens":90,"token_usage":0.5},
    {"dp_rank":1,"num_running_reqs":1,"num_waiting_reqs":0,"num_used_tokens":10,"num_total_tokens":10,"token_usage":0.1}]}"#;
const OLDER: &str = r#"[{"dp_rank":0,"num_reqs":5,"num_waiting_reqs":2,"num_tokens":700}]"#;

#[test]
fn every_workers_load_is_told_and_a_failure_is_minus_one() {
    let current = scripted(&[("GET /v1/loads?include=core ", OK, CURRENT)]);
    let older = scripted(&[("GET /get_load ", OK, OLDER)]);
    let lying = scripted(&[("GET /v1/loads", OK, r#"{"loads":[{"num_total_tokens":-3}]}"#)]);
    let failing = scripted(&[("GET /v1/loads", "500 Oh", CURRENT)]);
    let dead = dead_url();
    let workers = [&current, &older, &lying, &failing];
    let mut urls: Vec<String> = workers.iter().map(|worker| worker.url()).collect();
    urls.insert(1, dead.clone());
    let router = Router::start(&urls, &[]);
    super::wait_until_ready(&router, 4);
    let loads = router.get("/get_loads");
    assert_eq!((loads.status(), is_json(&loads)), (200, true));
    let load = |worker: &str, load: i64| json!({"worker": worker, "load": load});
    let expected = json!({"workers": [
        load(&current.url(), 100), load(&older.url(), 700), load(&lying.url(), -1), load(&failing.url(), -1),
    ]});
    let mut told = loads.json();
    let of_dead = told["workers"].as_array_mut().expect("a list").remove(1);
    assert_eq!(told, expected);
    assert_eq!((&of_dead["worker"], &of_dead["load"]), (&json!(dead), &json!(-1)));
    assert!(["pending", "probing"].contains(&of_dead["state"].as_str().expect("a state")), "{of_dead}");
    assert_eq!(Router::start(&[], &[]).get("/get_loads").json(), json!({"workers": []}));
}

#[test]
fn every_rank_of_every_worker_is_told_in_sglangs_shape() {
    let current = scripted(&[("GET /v1/loads?include=core,memory&dp_rank=0 ", OK, CURRENT)]);
    let older = scripted(&[("GET /get_load ", OK, OLDER)]);
    let failing = scripted(&[("GET /v1/loads", "500 Oh", "out of order")]);
    let router = start(&[&current, &failing, &older], &[]);
    let answer = router.get("/v1/loads?include=core,memory&dp_rank=0");
    assert_eq!((answer.status(), is_json(&answer)), (200, true), "{}", answer.text());
    let loads = answer.json();
    let of = |name: &str| -> Vec<Value> {
        loads["loads"].as_array().expect("a list").iter().map(|rank| rank[name].clone()).collect()
    };
    assert_eq!(of("worker"), [current.url(), current.url(), older.url()]);
    assert_eq!(of("dp_rank"), [0, 1, 0]);
    assert_eq!(of("num_total_tokens"), [90, 10, 700]);
    assert_eq!((&loads["version"], &loads["dp_rank_count"]), (&json!("0.5.23"), &json!(3)));
    assert_eq!(
        (&loads["aggregate"]["total_reqs"], &loads["aggregate"]["total_tokens"]),
        (&json!(10), &json!(800))
    );
    let failed = json!([{"worker": failing.url(), "error": "status 500: out of order"}]);
    assert_eq!(loads["failed"], failed);
}

#[test]
fn no_report_at_all_is_a_failure() {
    let failing = scripted(&[]);
    let router = start(&[&failing], &[]);
    let refused = router.get("/v1/loads");
    refused.assert_refused(503, "no_worker_response");
    assert_eq!(refused.json()["failed"][0]["worker"], failing.url());
    Router::start(&[], &[]).get("/v1/loads").assert_refused(503, "no_workers");
}

#[test]
fn as_metrics_they_tell_whose_they_are() {
    let text =
        scripted(&[("GET /v1/loads?format=prometheus ", OK, "sglang_num_running_reqs{dp_rank=\"0\"} 3\n")]);
    let router = start(&[&text], &[]);
    let page = router.get("/v1/loads?format=prometheus");
    super::exposition::assert_valid(&page);
    let line = format!("sglang_num_running_reqs{{worker_addr=\"{}\",dp_rank=\"0\"}} 3\n", text.url());
    assert!(page.text().contains(&line), "{}", page.text());
}
