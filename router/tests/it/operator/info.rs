//! `/model_info` and `/server_info`, and their older names.

use serde_json::json;

use super::{HANG, OK, is_json, scripted, send, start};
use crate::common::Router;
use crate::common::worker::dead_url;

const MODEL: &str = r#"{"model_path": "org/a",  "is_generation": true}"#;
const SERVER: &str = r#"{"model_path":"org/a","max_total_num_tokens":7,"api_key":"sk-worker",
    "internal_states":[{"last_gen_throughput":1.5,"api_key":"sk-worker"}]}"#;

#[test]
fn a_healthy_workers_model_info_is_passed_on_under_both_names_from_either() {
    for served in ["GET /model_info ", "GET /get_model_info "] {
        let script: super::Script = Box::leak(Box::new([(served, OK, MODEL)]));
        let (unable, able) = (scripted(&[]), scripted(script));
        let router = start(&[&unable, &able], &[]);
        for path in ["/model_info", "/get_model_info"] {
            let info = router.get(path);
            assert_eq!((info.status(), info.text().as_str()), (200, MODEL), "{served} {path}");
            assert!(is_json(&info));
        }
    }
}

#[test]
fn one_that_hangs_does_not_keep_model_info_from_others() {
    let (a, b) = (scripted(&[("GET /model_info ", HANG, "")]), scripted(&[("GET /model_info ", OK, MODEL)]));
    let router = start(&[&a, &b], &["--request-timeout-secs", "4"]);
    assert_eq!(router.get("/model_info").text(), MODEL, "before the limit of the one that hangs");
}

#[test]
fn nobody_has_an_info() {
    let silent = scripted(&[]);
    let router = start(&[&silent], &[]);
    for path in ["/model_info", "/server_info", "/get_server_info"] {
        router.get(path).assert_refused(503, "no_worker_response");
    }
    let router = Router::start(&[dead_url()], &[]);
    router.get("/model_info").assert_refused(503, "no_available_workers");
    router.get("/server_info").assert_refused(503, "no_available_workers");
}

#[test]
fn a_server_info_is_the_first_workers_and_tells_of_all() {
    for served in ["GET /server_info ", "GET /get_server_info "] {
        let script: super::Script = Box::leak(Box::new([(served, OK, SERVER)]));
        let (a, b) = (
            scripted(Box::leak(Box::new([(served_other(served), OK, r#"{"max_total_num_tokens":9}"#)]))),
            scripted(script),
        );
        let dead = dead_url();
        let router = Router::start(&[dead.clone(), b.url(), a.url()], &["--policy", "random"]);
        super::wait_until_ready(&router, 2);
        for path in ["/server_info", "/get_server_info"] {
            let answer = router.get(path);
            assert_eq!((answer.status(), is_json(&answer)), (200, true), "{}", answer.text());
            assert!(!answer.text().contains("sk-worker"), "keys are nobody's business");
            let info = answer.json();
            assert_eq!((&info["max_total_num_tokens"], &info["model_path"]), (&json!(7), &json!("org/a")));
            assert_eq!(info["internal_states"][0]["last_gen_throughput"], 1.5);
            assert_eq!(
                (&info["router_manager"], &info["routers_count"], &info["workers_count"]),
                (&json!(true), &json!(1), &json!(3))
            );
            let own = &info["router"];
            assert_eq!((&own["policy"], own["version"].is_string()), (&json!("random"), true));
            let workers = own["workers"].as_array().expect("a list");
            let urls: Vec<_> = workers.iter().map(|worker| worker["url"].as_str().expect("a URL")).collect();
            assert_eq!(urls, [dead.as_str(), b.url().as_str(), a.url().as_str()]);
            let healthy: Vec<_> = workers.iter().map(|worker| &worker["healthy"]).collect();
            assert_eq!(healthy, [false, true, true]);
            assert_eq!(workers[0].get("info"), None);
            assert_eq!(workers[1]["info"]["max_total_num_tokens"], 7);
            assert_eq!(workers[2]["info"], json!({"max_total_num_tokens": 9}));
        }
        assert_eq!(send(&router, "HEAD", "/server_info", "").status(), 200);
    }
}

fn served_other(served: &str) -> &'static str {
    if served.contains("get_") { "GET /server_info " } else { "GET /get_server_info " }
}
