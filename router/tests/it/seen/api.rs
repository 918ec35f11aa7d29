//! Calls about workers with roles.

use serde_json::json;

use super::{BODY, call, engine, in_mode};
use crate::common::legs::{command_line, decode, prefill};
use crate::common::{RankedEngine, Router, Worker, wait_until};

#[test]
fn a_bootstrap_port_of_a_decode_worker_is_refused() {
    let router = Router::start(&[], &[]);
    let body = json!({"url": "http://127.0.0.1:1", "worker_type": "decode", "bootstrap_port": 8998});
    let answer = call(&router, "POST", "/workers", &body.to_string());
    assert_eq!(answer.status(), 400, "{}", answer.text());
    assert!(answer.text().contains("bootstrap_port 8998: is of prefill workers only"), "{}", answer.text());
    assert_eq!(router.get("/workers").json()["total"], 0);
}

#[test]
fn who_registers_a_known_worker_in_another_role_is_told_how() {
    let router = Router::start(&[], &[]);
    let worker = engine(in_mode("prefill"));
    let message = |body: serde_json::Value| {
        let answer = call(&router, "POST", "/workers", &body.to_string());
        assert_eq!(answer.status(), 202, "{}", answer.text());
        answer.json()["message"].as_str().expect("a text").to_owned()
    };
    message(json!({"url": worker.url(), "worker_type": "prefill"}));
    let said = message(json!({"url": worker.url(), "worker_type": "decode"}));
    assert!(said.contains("known already") && said.contains("for these DELETE it"), "{said}");
    let said = message(json!({"url": worker.url()}));
    assert!(said.contains("PUT changes it") && !said.contains("DELETE"), "{said}");
}

#[test]
fn a_rank_is_named_as_it_is_written_and_not_with_zeros() {
    let engine = RankedEngine::start(0..4);
    let router = Router::start(&[engine.url()], &["--dp-aware"]);
    let total = || router.get("/workers").json()["total"].as_u64();
    wait_until("the ranks", || total() == Some(4));
    let name = format!("{}@03", engine.url()).replace(':', "%3A").replace('/', "%2F").replace('@', "%40");
    let answer = call(&router, "DELETE", &format!("/workers/{name}"), "");
    assert_eq!(answer.status(), 400, "{}", answer.text());
    assert_eq!(total(), Some(4), "rank 3 stays");
}

#[test]
fn a_client_says_what_it_prefers_in_any_usual_word_and_the_first_word_counts() {
    let (prefill, decode, regular) = (prefill(), decode(), Worker::fixed("{}"));
    let line = command_line(&[&prefill], &[&decode], "9000", &["--policy", "round_robin"]);
    let router = Router::start(&[regular.url()], &line.iter().map(String::as_str).collect::<Vec<_>>());
    wait_until("all to be there", || router.get("/readiness").json()["healthy_workers"] == 3);
    let mut regulars = 0;
    for (header, is_regular) in [
        ("x-prefer-pd: 0\r\n", true),
        ("x-prefer-pd: 1\r\n", false),
        ("x-prefer-pd: False\r\n", true),
        ("x-prefer-pd: false\r\nx-prefer-pd: true\r\n", true),
        ("x-prefer-pd: true\r\nx-prefer-pd: false\r\n", false),
        ("x-prefer-pd: maybe\r\n", false),
    ] {
        assert_eq!(router.client().post("/generate", header, BODY).status(), 200, "{header}");
        regulars += usize::from(is_regular);
        assert_eq!(regular.count("POST"), regulars, "{header}");
    }
}
